// SPDX-License-Identifier: GPL-2.0-only

//! The functions of the C library that this one replaces. Each hands on what does not concern it.

mod connect;
mod descriptors;
mod listen;
mod options;
mod wait;

pub use listen::{MARK, OF_SDP, OF_TCP};

use crate::log::{self, Level};
use crate::settings::Settings;
use crate::sys::Address;
use sdp_rules::{Mode, Role};

/// What the rules say of an address.
fn decide(settings: &Settings, role: Role, address: &Address) -> Mode {
    let verdict = settings
        .rules
        .decide(&settings.program, role, address.ip(), address.port());
    let mode = verdict.mode;
    match verdict.rule {
        Some(rule) if rule.line != 0 => log::write(
            Level::Match,
            format_args!("{role} {address}: {mode}, by line {}", rule.line),
        ),
        _ => log::write(
            Level::NoMatch,
            format_args!("{role} {address}: {mode}, no rule matches"),
        ),
    }
    mode
}
