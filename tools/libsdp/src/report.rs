// SPDX-License-Identifier: GPL-2.0-only

//! Logs the outcome of listeners and connections, as the kernel reports it.

use crate::log;
use crate::sdp::{choice, Choice, Errno};
use crate::settings::Level;
use crate::sys;
use libc::c_int;
use std::net::SocketAddr;

/// Time limit in milliseconds; longer than the kernel needs for its decision.
const LONGEST: u64 = 5000;

/// Logs the protocol of a socket whose connect(2) returned `result`, or the error. Waits for the
/// decision of a non-blocking connect.
pub fn connect(fd: c_int, to: SocketAddr, result: sys::Result) {
    let until = sys::now() + LONGEST;
    loop {
        match (choice(fd), result) {
            // nothing new
            (None, _) | (_, Err(libc::EISCONN | libc::EALREADY)) => return,
            (Some(Choice::Open), Err(libc::EINPROGRESS | libc::EINTR)) if sys::now() < until => {
                sys::pause(5);
            }
            (Some(choice), Err(e)) if e != libc::EINPROGRESS => {
                return tell("connect", to, format_args!("{choice}: {}", Errno(e)));
            }
            (Some(choice), _) => return tell("connect", to, format_args!("{choice}")),
        }
    }
}

/// Logs that the socket listens, and by which protocol.
pub fn listen(fd: c_int) {
    if let (Some(choice), Some(local)) = (choice(fd), sys::local_address(fd)) {
        match choice {
            Choice::Open => tell("listen", local, format_args!("SDP and TCP")),
            choice => tell("listen", local, format_args!("{choice}")),
        }
    }
}

fn tell(call: &str, address: SocketAddr, what: std::fmt::Arguments<'_>) {
    log::write(Level::Summary, format_args!("{call} {address}: {what}"));
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Choice::Open => f.write_str("open"),
            Choice::Sdp => f.write_str("SDP"),
            Choice::OnlySdp => f.write_str("SDP only"),
            Choice::Tcp(reason) => write!(f, "TCP ({reason})"),
        }
    }
}
