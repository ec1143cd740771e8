// SPDX-License-Identifier: GPL-2.0-only

//! Properties that hold for all texts, patterns and rules.

use proptest::prelude::*;
use sdp_rules::{parse, Glob, Mode, Network, Ports, Role, Rule, Rules, MAX_PROBLEMS};
use std::ffi::CString;
use std::net::IpAddr;

fn network() -> impl Strategy<Value = Network> {
    prop_oneof![
        Just(Network::Any),
        (any::<u32>(), 0..=32u8).prop_map(|(a, prefix)| Network::V4 {
            address: a.into(),
            prefix
        }),
        (any::<u128>(), 0..=128u8).prop_map(|(a, prefix)| Network::V6 {
            address: a.into(),
            prefix
        }),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let mode = prop_oneof![Just(Mode::Tcp), Just(Mode::Sdp), Just(Mode::Both)];
    let role = prop_oneof![Just(Role::Server), Just(Role::Client)];
    let ports = (any::<u16>(), any::<u16>()).prop_map(|(a, b)| Ports {
        first: a.min(b),
        last: a.max(b),
    });
    (mode, role, "[ab*?]{1,4}", network(), ports).prop_map(
        |(mode, role, program, network, ports)| Rule {
            line: 0,
            mode,
            role,
            program: Glob::new(program.as_bytes()),
            network,
            ports,
        },
    )
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|a| IpAddr::V4(a.into())),
        any::<u128>().prop_map(|a| IpAddr::V6(a.into())),
        any::<u32>().prop_map(|a| IpAddr::V6(std::net::Ipv4Addr::from(a).to_ipv6_mapped())),
    ]
}

/// Generates a line that is nearly one of the grammar.
fn near_line() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("use"),
        Just("log"),
        Just("tcp"),
        Just("sdp"),
        Just("both"),
        Just("server"),
        Just("client"),
        Just("*"),
        Just("*:*"),
        Just("1.2.3.4/8:1-2"),
        Just("::1/:"),
        Just(":"),
        Just("#"),
        Just("destination"),
        Just("file"),
        Just("min-level"),
        Just("99999999999999999999"),
        Just("é\u{0}"),
    ];
    proptest::collection::vec(word, 0..8).prop_map(|w| w.join(" "))
}

/// Result of the C library's fnmatch(3).
fn fnmatch(pattern: &[u8], name: &[u8]) -> bool {
    let (p, n) = (CString::new(pattern).unwrap(), CString::new(name).unwrap());
    // SAFETY: both strings end with a zero.
    unsafe { libc::fnmatch(p.as_ptr(), n.as_ptr(), 0) == 0 }
}

proptest! {
    /// No text makes the parser panic, and problems are within the text.
    #[test]
    fn any_bytes(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        places(&text)?;
    }

    #[test]
    fn any_near_text(lines in proptest::collection::vec(near_line(), 0..6)) {
        places(lines.join("\n").as_bytes())?;
    }

    /// A printed rule is parsed as the same rule.
    #[test]
    fn printed_rules_are_read(mut rules in proptest::collection::vec(rule(), 1..6)) {
        let text: String = rules.iter().map(|r| r.to_string() + "\n").collect();
        for (index, rule) in rules.iter_mut().enumerate() {
            rule.line = index as u32 + 1;
        }
        prop_assert_eq!(parse(text.as_bytes()).map(|r| r.rules), Ok(rules));
    }

    /// Patterns match the same names as with fnmatch(3).
    #[test]
    fn globs_are_those_of_the_c_library(pattern in r"[ab*?]{0,8}", name in "[abc]{0,8}") {
        prop_assert_eq!(Glob::new(pattern.as_bytes()).matches(name.as_bytes()), fnmatch(pattern.as_bytes(), name.as_bytes()));
    }

    #[test]
    fn sets_are_those_of_the_c_library(
        pattern in r"([ab*?]|\[!?[a-c]{1,2}\]|\[!?a-[a-c]\]|\\[ab*\[]){0,5}", name in r"[abc*\[]{0,8}",
    ) {
        prop_assert_eq!(Glob::new(pattern.as_bytes()).matches(name.as_bytes()), fnmatch(pattern.as_bytes(), name.as_bytes()));
    }

    /// No pattern makes the matcher panic.
    #[test]
    fn any_glob(pattern in proptest::collection::vec(any::<u8>(), 0..20), name in proptest::collection::vec(any::<u8>(), 0..20)) {
        Glob::new(&pattern).matches(&name);
    }

    /// A rule that is covered by another one never decides.
    #[test]
    fn hidden_rules_never_decide(
        rules in proptest::collection::vec(rule(), 1..6), role in 0..2, a in address(), port: u16, program in "[ab]{0,3}",
    ) {
        let role = [Role::Server, Role::Client][role as usize];
        let mut all = Rules { rules, ..Rules::default() };
        for (index, rule) in all.rules.iter_mut().enumerate() {
            rule.line = index as u32 + 1;
        }
        if let Some(rule) = all.decide(program.as_bytes(), role, a, port).rule {
            prop_assert!(all.hidden_by(rule.line as usize - 1).is_none());
        }
    }

    /// Rules selected for a program decide as the whole file does.
    #[test]
    fn other_programs_rules_do_not_matter(
        rules in proptest::collection::vec(rule(), 0..6), role in 0..2, a in address(), port: u16, program in "[ab]{0,3}",
    ) {
        let role = [Role::Server, Role::Client][role as usize];
        let all = Rules { rules, ..Rules::default() };
        let name = program.as_bytes();
        let own = all.clone().of_program(name);
        let mode = all.decide(name, role, a, port).mode;
        prop_assert_eq!(own.decide(name, role, a, port).mode, mode);
        if let Some(all) = all.uniform(name) {
            prop_assert_eq!(mode, all);
        }
    }
}

fn places(text: &[u8]) -> Result<(), TestCaseError> {
    let lines: Vec<&[u8]> = text.split(|&c| c == b'\n').collect();
    if let Err(problems) = parse(text) {
        prop_assert!(!problems.is_empty() && problems.len() <= MAX_PROBLEMS);
        for p in problems {
            prop_assert!(p.line >= 1 && p.line as usize <= lines.len());
            prop_assert!(
                p.column >= 1 && p.column as usize <= lines[p.line as usize - 1].len() + 1
            );
            prop_assert!(!p.to_string().contains('\n'));
        }
    }
    Ok(())
}
