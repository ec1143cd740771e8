// SPDX-License-Identifier: GPL-2.0-only

//! Socket options between a TCP socket and the SDP socket that takes its place.
//!
//! Those that the program has set are noted as bits, and carried over by asking the one socket and
//! telling the other. An option that is known to neither list is one that SDP cannot honour, and
//! whoever sets it keeps TCP.

use crate::sys;
use libc::c_int;
use std::mem;

/// Options that mean the same on SDP.
const CARRIED: &[(c_int, c_int)] = &[
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_BINDTODEVICE),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
];

/// Options that say how TCP does its work, which SDP does without them.
const HARMLESS: &[(c_int, c_int)] = &[
    (libc::SOL_SOCKET, libc::SO_DEBUG),
    (libc::SOL_SOCKET, libc::SO_BUSY_POLL),
    (libc::SOL_SOCKET, libc::SO_INCOMING_CPU),
    (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    (libc::IPPROTO_TCP, libc::TCP_MAXSEG),
    (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP),
    (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
    (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
    (libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS),
    (libc::IPPROTO_TCP, libc::TCP_THIN_DUPACK),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT),
    (libc::IPPROTO_TCP, libc::TCP_SAVE_SYN),
];

/// What an option is to SDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The bit that notes it.
    Carried(u64),
    Harmless,
    /// Known to TCP only.
    Foreign,
}

pub fn class(level: c_int, name: c_int) -> Class {
    // Privileged ways to set the same.
    let name = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE) => libc::SO_SNDBUF,
        (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE) => libc::SO_RCVBUF,
        _ => name,
    };
    let option = (level, name);
    if let Some(index) = CARRIED.iter().position(|&o| o == option) {
        Class::Carried(1 << index)
    } else if HARMLESS.contains(&option) {
        Class::Harmless
    } else {
        Class::Foreign
    }
}

/// Gives `to` the options of `from` that have been set.
///
/// # Errors
///
/// The option that `to` does not take.
pub fn carry(set: u64, from: c_int, to: c_int) -> Result<(), (c_int, c_int)> {
    for (index, &(level, name)) in CARRIED.iter().enumerate() {
        if set & (1 << index) == 0 {
            continue;
        }
        let mut value = [0; 64];
        let Ok(length) = sys::get_option(from, level, name, &mut value) else {
            return Err((level, name));
        };
        if level == libc::SOL_SOCKET && matches!(name, libc::SO_SNDBUF | libc::SO_RCVBUF) {
            carry_buffer(name, &mut value, to);
            continue;
        }
        sys::set_option(to, level, name, &value[..length]).map_err(|_| (level, name))?;
    }
    Ok(())
}

/// A buffer's size is told doubled. One that only root may set is set if it can be.
fn carry_buffer(name: c_int, value: &mut [u8; 64], to: c_int) {
    let size = c_int::from_ne_bytes([value[0], value[1], value[2], value[3]]) / 2;
    let size = size.to_ne_bytes();
    let force = if name == libc::SO_SNDBUF {
        libc::SO_SNDBUFFORCE
    } else {
        libc::SO_RCVBUFFORCE
    };
    if sys::set_option(to, libc::SOL_SOCKET, force, &size).is_err() {
        let _ = sys::set_option(to, libc::SOL_SOCKET, name, &size);
    }
}

/// What fcntl(2) has set: who gets signals, and the flags.
pub fn carry_flags(from: c_int, to: c_int) {
    // struct f_owner_ex
    let mut owner: [c_int; 2] = [0; 2];
    let place = (&raw mut owner) as usize;
    if sys::fcntl(from, sys::F_GETOWN_EX, place).is_ok() && owner[1] != 0 {
        let _ = sys::fcntl(to, sys::F_SETOWN_EX, place);
    }
    if let Ok(signal @ 1..) = sys::fcntl(from, sys::F_GETSIG, 0) {
        let _ = sys::fcntl(to, sys::F_SETSIG, signal as usize);
    }
    if let Ok(flags) = sys::fcntl(from, libc::F_GETFL, 0) {
        let kept = flags & (libc::O_NONBLOCK | libc::O_ASYNC | libc::O_APPEND | libc::O_NOATIME);
        let _ = sys::fcntl(to, libc::F_SETFL, kept as usize);
    }
}

/// As many repetitions of SDP's request to connect as a fallback can wait for: answers come at
/// once, and repetitions 1.5 s apart are for lost requests.
pub fn hurry(fd: c_int, set: u64) {
    let option = (libc::IPPROTO_TCP, libc::TCP_SYNCNT);
    if class(option.0, option.1) != Class::Carried(set & (1 << SYNCNT)) {
        let _ = sys::set_option(fd, option.0, option.1, &1i32.to_ne_bytes());
    }
}

/// Of the options that have been carried over, those that have to be known later.
pub fn to_repeat(set: u64) -> u64 {
    set & (1 << SYNCNT)
}

/// Where TCP_SYNCNT is in [`CARRIED`].
const SYNCNT: usize = 27;

const _: () = assert!(CARRIED.len() <= mem::size_of::<u64>() * 8);
const _: () = assert!(CARRIED[SYNCNT].1 == libc::TCP_SYNCNT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        assert_eq!(
            class(libc::SOL_SOCKET, libc::SO_REUSEADDR),
            Class::Carried(1)
        );
        assert_eq!(
            class(libc::IPPROTO_TCP, libc::TCP_CONGESTION),
            Class::Harmless
        );
        assert_eq!(class(libc::IPPROTO_TCP, libc::TCP_MD5SIG), Class::Foreign);
        assert_eq!(
            class(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE),
            class(libc::SOL_SOCKET, libc::SO_SNDBUF)
        );
        for option in HARMLESS {
            assert!(!CARRIED.contains(option), "{option:?}");
        }
    }

    #[test]
    fn options_are_carried() {
        let new = || sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        let (from, to) = (new(), new());
        let mut set = 0;
        let mut put = |level, name, value: &[u8]| {
            sys::set_option(from, level, name, value).unwrap();
            if let Class::Carried(bit) = class(level, name) {
                set |= bit;
            }
        };
        put(libc::IPPROTO_TCP, libc::TCP_NODELAY, &1i32.to_ne_bytes());
        put(libc::SOL_SOCKET, libc::SO_SNDBUF, &30000i32.to_ne_bytes());
        put(
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            &[1i32.to_ne_bytes(), 7i32.to_ne_bytes()].concat(),
        );
        assert_eq!(carry(set, from, to), Ok(()));
        for (level, name) in [
            (libc::IPPROTO_TCP, libc::TCP_NODELAY),
            (libc::SOL_SOCKET, libc::SO_SNDBUF),
            (libc::SOL_SOCKET, libc::SO_LINGER),
            (libc::SOL_SOCKET, libc::SO_RCVBUF),
        ] {
            let (mut a, mut b) = ([0; 16], [0; 16]);
            let la = sys::get_option(from, level, name, &mut a);
            let lb = sys::get_option(to, level, name, &mut b);
            assert_eq!((la, a), (lb, b), "{name}");
        }
        sys::close(from);
        sys::close(to);
    }
}
