// SPDX-License-Identifier: GPL-2.0-only

//! Access to `IPPROTO_SDP` sockets through the kernel's interface (`include/uapi/sdp.h`).

use crate::absent::Cause;
use crate::log;
use crate::settings::Level;
use crate::{real, sys};
use libc::c_int;
use sdp_rules::Mode;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

/// Default number of the protocol in the module. Creating a socket with the default number loads
/// the module.
const IPPROTO_SDP: c_int = 257;
const NUMBER: &CStr = c"/sys/module/ib_sdp/parameters/ipproto";
const SDP_INFO: c_int = 82;
const SDP_ROUTE: c_int = 83;

/// Number of the protocol, once it was read.
static PROTOCOL: AtomicI32 = AtomicI32::new(IPPROTO_SDP);
/// No such protocol: read the number again before the next socket, without loading the module.
const NONE: c_int = 0;

static TOLD: AtomicBool = AtomicBool::new(false);

/// Returns the protocol number that the module uses, 0 if it has none. `None`: the module is not
/// loaded.
fn number() -> Option<c_int> {
    let fd = sys::open(libc::AT_FDCWD, NUMBER, libc::O_RDONLY, 0).ok()?;
    let mut text = [0; 16];
    let n = sys::read(fd, &mut text);
    sys::close(fd);
    std::str::from_utf8(&text[..n.ok()?])
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Reads the protocol number when the library is loaded.
pub fn learn() {
    PROTOCOL.store(number().unwrap_or(IPPROTO_SDP), Relaxed);
}

/// Creates a socket of `IPPROTO_SDP`, if the protocol exists.
pub fn socket(domain: c_int, kind: c_int) -> Option<c_int> {
    let mut protocol = PROTOCOL.load(Relaxed);
    if protocol == NONE {
        protocol = number().unwrap_or(NONE);
    }
    loop {
        let why = match attempt(domain, kind, protocol) {
            Ok(fd) => {
                PROTOCOL.store(protocol, Relaxed);
                return Some(fd);
            }
            // the program's own socket(2) gets the same error
            Err(
                libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::EAFNOSUPPORT,
            ) => return None,
            Err(why) => why,
        };
        match number() {
            // the module was loaded after the number was read
            Some(n) if n != NONE && n != protocol => protocol = n,
            now => {
                PROTOCOL.store(NONE, Relaxed);
                tell(protocol, now, why);
                return None;
            }
        }
    }
}

fn attempt(domain: c_int, kind: c_int, protocol: c_int) -> sys::Result {
    if protocol == NONE {
        return Err(libc::EPROTONOSUPPORT);
    }
    let errno = sys::errno();
    // SAFETY: passes numbers only.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    if fd < 0 {
        let e = sys::errno();
        sys::set_errno(errno);
        return Err(e);
    }
    if sys::get_int(fd, libc::IPPROTO_TCP, SDP_ROUTE).is_err() {
        // another protocol has this number
        sys::close(fd);
        return Err(libc::EPROTOTYPE);
    }
    Ok(fd)
}

/// Logs once why sockets are TCP.
fn tell(protocol: c_int, number: Option<c_int>, why: c_int) {
    if TOLD.swap(true, Relaxed) {
        return;
    }
    let message = |what: std::fmt::Arguments<'_>| {
        log::write(Level::Error, format_args!("{what}; sockets are TCP"));
    };
    match (number, why) {
        (Some(NONE), _) => message(format_args!(
            "the module ib_sdp has no number for IPPROTO_SDP (ipproto=0)"
        )),
        (_, libc::EPROTOTYPE) => message(format_args!(
            "the kernel has no SDP ({protocol} is the number of another protocol)"
        )),
        (None, _) => message(format_args!(
            "the kernel has no SDP (the module ib_sdp is not loaded: {})",
            Cause::find()
        )),
        (Some(_), e) => message(format_args!(
            "cannot create a socket of IPPROTO_SDP ({})",
            Errno(e)
        )),
    }
}

/// Passes the chosen route of a socket to the kernel. Fails on sockets of other protocols.
pub fn set_route(fd: c_int, mode: Mode) -> sys::Result {
    let route = match mode {
        Mode::Both => 0,
        Mode::Sdp => 1,
        Mode::Tcp => 2,
    };
    sys::set_int(fd, libc::IPPROTO_TCP, SDP_ROUTE, route)
}

/// Protocol that a socket of `IPPROTO_SDP` has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Neither SDP nor TCP is chosen yet.
    Open,
    Sdp,
    /// SDP, since the program or the rules allow only SDP.
    OnlySdp,
    /// TCP, for this reason.
    Tcp(Reason),
}

/// Name of a reason, as in `/proc/net/sdp_ipproto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    text: [u8; 24],
    length: usize,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.text[..self.length]).unwrap_or("?"))
    }
}

/// Returns field `n` of struct sdp_info.
fn word(info: &[u8], n: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&info[n * 8..][..8]);
    u64::from_ne_bytes(bytes)
}

/// Reads from the kernel the choice that a socket has made. `None`: not an `IPPROTO_SDP` socket.
pub fn choice(fd: c_int) -> Option<Choice> {
    // struct sdp_info
    let mut info = [0; 18 * 8];
    match sys::get_option(fd, libc::IPPROTO_TCP, SDP_INFO, &mut info) {
        Ok(_) => match (word(&info, 16), word(&info, 17)) {
            (1, _) => Some(Choice::Open),
            (2, 1) => Some(Choice::OnlySdp),
            (2, _) => Some(Choice::Sdp),
            _ => None,
        },
        Err(_) => reason(sys::stat(fd)?.st_ino).map(Choice::Tcp),
    }
}

/// Returns why the socket with this inode uses TCP, from a line `INODE UID TCP: REASON`.
fn reason(inode: u64) -> Option<Reason> {
    let path = c"/proc/thread-self/net/sdp_ipproto";
    let fd = sys::open(libc::AT_FDCWD, path, libc::O_RDONLY, 0).ok()?;
    let (mut line, mut length) = ([0; 80], 0);
    let mut part = [0; 2048];
    let mut found = None;
    while let (None, Ok(n @ 1..)) = (found, sys::read(fd, &mut part)) {
        for &c in &part[..n] {
            if c == b'\n' {
                found = found.or_else(|| reason_in(&line[..length], inode));
                length = 0;
            } else if let Some(place) = line.get_mut(length) {
                *place = c;
                length += 1;
            }
        }
    }
    sys::close(fd);
    found
}

fn reason_in(line: &[u8], inode: u64) -> Option<Reason> {
    let (own, rest) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    if own.parse() != Ok(inode) {
        return None;
    }
    let reason = rest.split_once(" TCP: ")?.1.trim().as_bytes();
    let mut text = [0; 24];
    let length = reason.len().min(text.len());
    text[..length].copy_from_slice(&reason[..length]);
    Some(Reason { text, length })
}

/// Prints an errno as text.
pub struct Errno(pub c_int);

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        extern "C" {
            // unlike strerror(3), strerrordesc_np(3) needs no memory
            fn strerrordesc_np(e: c_int) -> *const libc::c_char;
        }
        // SAFETY: takes a number, and returns null or a static string.
        let text = unsafe { strerrordesc_np(self.0).as_ref().map(|t| CStr::from_ptr(t)) };
        match text.and_then(|t| t.to_str().ok()) {
            Some(text) => f.write_str(text),
            None => write!(f, "errno {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let of = |line: &str| reason_in(line.as_bytes(), 2517).map(|r| r.to_string());
        assert_eq!(of("2517 1000 TCP: refused   ").as_deref(), Some("refused"));
        assert_eq!(of("2517 0 TCP: no answer").as_deref(), Some("no answer"));
        for other in [
            "inode uid choice",
            "2517 0 SDP",
            "12517 0 TCP: option",
            "",
            "2517",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn other_sockets_have_no_choice() {
        let fd = sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        assert_eq!(
            (choice(fd), set_route(fd, Mode::Sdp)),
            (None, Err(libc::ENOPROTOOPT))
        );
        sys::close(fd);
    }
}
