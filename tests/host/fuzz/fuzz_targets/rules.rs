// SPDX-License-Identifier: GPL-2.0-only

//! Parses a libsdp.conf. The parser must not panic, and printed rules must parse as the same rules.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sdp_rules::{parse, Role};

fuzz_target!(|data: &[u8]| {
    let Ok(rules) = parse(data) else { return };
    for rule in &rules.rules {
        // Non-text bytes are not printed literally.
        if std::str::from_utf8(rule.program.as_bytes()).is_err() {
            continue;
        }
        let line = rule.to_string();
        let again = parse(line.as_bytes()).expect("a rule that was printed");
        assert_eq!(again.rules.len(), 1);
        let again = &again.rules[0];
        assert_eq!((again.mode, again.role, again.ports), (rule.mode, rule.role, rule.ports));
        assert_eq!((&again.program, again.network), (&rule.program, rule.network));
    }
    for role in [Role::Server, Role::Client] {
        rules.decide(data, role, std::net::Ipv4Addr::LOCALHOST.into(), 80);
    }
});
