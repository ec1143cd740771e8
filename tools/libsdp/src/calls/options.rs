// SPDX-License-Identifier: GPL-2.0-only

//! setsockopt(2) and getsockopt(2).

use crate::options::{self, Class};
use crate::replace::{self, AF_INET6_SDP, AF_INET_SDP};
use crate::table::{self, Kind};
use crate::{real, sys};
use libc::{c_int, c_void, socklen_t};

/// setsockopt(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    let r = unsafe { real::setsockopt(fd, level, name, value, length) };
    if !table::knows(fd) {
        if r != 0 && sys::errno() == libc::ENOPROTOOPT && pretends(fd, level, name) {
            return 0;
        }
        return r;
    }
    let errno = sys::errno();
    let Some(mut table) = table::lock() else {
        return r;
    };
    let (kind, entry) = table.get(fd);
    match kind {
        Kind::Fresh if r == 0 => {
            for_duplicates(&mut table, fd, |e| match options::class(level, name) {
                Class::Carried(bit) => e.options |= bit,
                Class::Harmless => {}
                Class::Foreign => e.foreign = Some((level, name)),
            });
        }
        Kind::Connecting | Kind::Listening => {
            if let Some(shadow) = entry.shadow {
                // SAFETY: as above.
                let other = unsafe { real::setsockopt(shadow, level, name, value, length) };
                // TCP takes it, and may be what the connection ends up with.
                if kind == Kind::Connecting && other == 0 {
                    return 0;
                }
            }
        }
        _ => {}
    }
    sys::set_errno(errno);
    r
}

/// Notes something for a socket under all its numbers.
fn for_duplicates(table: &mut table::Table, fd: c_int, mut change: impl FnMut(&mut table::Entry)) {
    table.update(fd, &mut change);
    for &other in table.duplicates(fd).iter() {
        table.update(other, &mut change);
    }
}

/// Whether an option that SDP does not know can be taken for set.
fn pretends(fd: c_int, level: c_int, name: c_int) -> bool {
    options::class(level, name) == Class::Harmless
        && matches!(
            sys::get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN),
            Ok(AF_INET_SDP | AF_INET6_SDP)
        )
}

/// getsockopt(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let told = (level == libc::SOL_SOCKET && name == libc::SO_ERROR)
        .then(|| settled_error(fd))
        .flatten();
    // SAFETY: the caller's arguments.
    let r = unsafe { real::getsockopt(fd, level, name, value, length) };
    if r != 0 || level != libc::SOL_SOCKET || value.is_null() {
        return r;
    }
    // SAFETY: the kernel has written that many bytes there.
    if unsafe { *length } < 4 {
        return r;
    }
    // SAFETY: as above; the caller's pointer need not be aligned.
    unsafe {
        let value = value.cast::<c_int>();
        match (name, value.read_unaligned()) {
            (libc::SO_DOMAIN, AF_INET_SDP) => value.write_unaligned(libc::AF_INET),
            (libc::SO_DOMAIN, AF_INET6_SDP) => value.write_unaligned(libc::AF_INET6),
            (libc::SO_ERROR, _) => {
                if let Some(error) = told {
                    value.write_unaligned(error);
                }
            }
            _ => {}
        }
    }
    r
}

/// What SO_ERROR is to say of a connection under way; none if the kernel knows.
fn settled_error(fd: c_int) -> Option<c_int> {
    if !table::any_under_way() {
        return None;
    }
    if !matches!(
        table::kind(fd),
        Kind::Connecting | Kind::Following | Kind::Failed
    ) {
        return None;
    }
    let mut table = table::lock()?;
    // Somebody who did not wait by a call of ours sees SDP's failure here: it goes on by TCP.
    replace::settle(&mut table, fd);
    let (kind, entry) = table.get(fd);
    if kind != Kind::Failed {
        return None;
    }
    replace::forget_all(&mut table, fd);
    Some(entry.error)
}

/// Takes a socket's error, as SO_ERROR does.
pub fn take_error(fd: c_int) -> c_int {
    match settled_error(fd) {
        Some(error) => error,
        None => sys::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR).unwrap_or(libc::EBADF),
    }
}
