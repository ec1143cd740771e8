// SPDX-License-Identifier: GPL-2.0-only

//! Closing and duplicating descriptors, and their flags.
//!
//! A child of vfork(2) does this between its parent's memory and its own descriptors: what it keeps
//! for the program that it starts, and what it closes, holds for the hidden descriptors as well.

use super::listen::duplicate;
use crate::table::{self, Entry, Kind, Table};
use crate::{real, replace, sys};
use libc::{c_int, c_uint, c_ulong};

/// close(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if table::knows(fd) {
        let table = table::lock();
        if table::is_hidden(fd) {
            // Whoever closes everything does not know of it.
            return sys::c_result(Err(libc::EBADF));
        }
        match table {
            Some(mut table) => {
                replace::closes(&mut table, fd);
                table.forget(fd);
            }
            None => table::hidden_of(fd)
                .into_iter()
                .flatten()
                .for_each(sys::close),
        }
    }
    // SAFETY: the caller's argument.
    unsafe { real::close(fd) }
}

/// close_range(2).
#[cfg_attr(not(test), no_mangle)]
pub extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    /// CLOSE_RANGE_CLOEXEC
    const ON_EXEC: c_int = 4;
    if first > last {
        return sys::c_result(sys::close_range(first, last, flags as u32));
    }
    let mut table = table::lock();
    let within = |fd: c_int| (first..=last).contains(&(fd as u32));
    for fd in table::known() {
        if !within(fd) || table::kind(fd) == Kind::Hidden {
            continue;
        }
        let hidden = table::hidden_of(fd).into_iter().flatten();
        match &mut table {
            _ if flags & ON_EXEC != 0 => hidden.for_each(|hidden| {
                let _ = sys::fcntl(hidden, libc::F_SETFD, libc::FD_CLOEXEC as usize);
            }),
            Some(table) => {
                replace::closes(table, fd);
                table.forget(fd);
            }
            None => hidden.for_each(sys::close),
        }
    }
    // What is hidden for descriptors outside the range stays.
    let mut from = first;
    let kept = |fd: &c_int| {
        within(*fd) && table::kind(*fd) == Kind::Hidden && !within(table::owner_of(*fd))
    };
    for fd in table::known().filter(kept) {
        let fd = fd as u32;
        if fd > from {
            if let Err(e) = sys::close_range(from, fd - 1, flags as u32) {
                return sys::c_result(Err(e));
            }
        }
        from = fd + 1;
    }
    if from > last {
        return 0;
    }
    sys::c_result(sys::close_range(from, last, flags as u32))
}

/// closefrom(3).
#[cfg_attr(not(test), no_mangle)]
pub extern "C-unwind" fn closefrom(first: c_int) {
    close_range(first.max(0) as c_uint, c_uint::MAX, 0);
}

/// Remembers `new` as a duplicate of `old`.
fn follow(table: &mut Table, old: c_int, new: c_int) {
    table.forget(new);
    let (kind, mut entry) = table.get(old);
    match kind {
        Kind::Other | Kind::Hidden => return,
        Kind::Listening => return duplicate(table, new, entry),
        _ => {}
    }
    table.update(old, |e| e.shared = true);
    entry.shared = true;
    entry.interests = Entry::NONE.interests;
    entry.shadow = entry
        .shadow
        .and_then(|hidden| table.hide_copy(hidden, new).ok());
    table.set(new, kind, entry);
}

/// dup(2).
#[cfg_attr(not(test), no_mangle)]
pub extern "C-unwind" fn dup(fd: c_int) -> c_int {
    let Some(mut table) = table::knows(fd).then(table::lock).flatten() else {
        return sys::c_result(sys::dup(fd));
    };
    sys::c_result(sys::dup(fd).inspect(|&new| follow(&mut table, fd, new)))
}

/// dup2(2) and dup3(2), where one of the two is remembered.
fn onto(from: c_int, to: c_int, call: impl Fn() -> sys::Result) -> c_int {
    if from == to || !(table::knows(from) || table::knows(to)) {
        return sys::c_result(call());
    }
    let Some(mut table) = table::lock() else {
        return sys::c_result(call());
    };
    table.move_away(to);
    sys::c_result(call().inspect(|&new| follow(&mut table, from, new)))
}

/// dup2(2).
#[cfg_attr(not(test), no_mangle)]
pub extern "C-unwind" fn dup2(from: c_int, to: c_int) -> c_int {
    onto(from, to, || sys::dup2(from, to))
}

/// dup3(2).
#[cfg_attr(not(test), no_mangle)]
pub extern "C-unwind" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    onto(from, to, || sys::dup3(from, to, flags))
}

/// Does to hidden descriptors what is done to their owner.
fn to_hidden(fd: c_int, what: impl Fn(c_int)) {
    let _held = table::lock();
    table::hidden_of(fd).into_iter().flatten().for_each(what);
}

/// fcntl(2).
///
/// # Safety
///
/// As the C library's. Its third argument is passed as every argument is, also where there is none.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's arguments, here and below.
    let pass = || unsafe { real::fcntl(fd, command, argument) };
    if !table::knows(fd) {
        return pass();
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            let Some(mut table) = table::lock() else {
                return pass();
            };
            let made = sys::fcntl(fd, command, argument);
            sys::c_result(made.inspect(|&new| follow(&mut table, fd, new)))
        }
        libc::F_SETFD => {
            let r = pass();
            if r == 0 {
                to_hidden(fd, |hidden| {
                    let _ = sys::fcntl(hidden, command, argument);
                });
            }
            r
        }
        libc::F_GETFL | libc::F_SETFL if table::kind(fd) == Kind::Listening => {
            listener_flags(fd, command, argument).unwrap_or_else(pass)
        }
        libc::F_SETOWN | sys::F_SETSIG => {
            let r = pass();
            if r == 0 && table::kind(fd) == Kind::Listening {
                to_hidden(fd, |hidden| {
                    let _ = sys::fcntl(hidden, command, argument);
                });
            }
            r
        }
        _ => pass(),
    }
}

/// The flags of a listener on both: whether it blocks is a flag of what watches both.
fn listener_flags(fd: c_int, command: c_int, argument: usize) -> Option<c_int> {
    let _held = table::lock();
    let [Some(sdp), Some(joint)] = table::hidden_of(fd) else {
        return None;
    };
    let wait = libc::O_NONBLOCK as usize;
    if command == libc::F_SETFL {
        let done = sys::fcntl(fd, command, argument | wait);
        let _ = sys::fcntl(sdp, command, argument | wait);
        let _ = sys::fcntl(joint, command, argument & wait);
        return Some(sys::c_result(done));
    }
    let flags = sys::fcntl(fd, command, 0).ok()?;
    let own = sys::fcntl(joint, command, 0).ok()? & libc::O_NONBLOCK;
    Some((flags & !libc::O_NONBLOCK) | own)
}

/// fcntl(2), as programs with large files call it.
///
/// # Safety
///
/// As [`fcntl`].
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fcntl(fd, command, argument) }
}

/// ioctl(2).
///
/// # Safety
///
/// As the C library's; of its arguments as [`fcntl`].
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // SAFETY: the caller's arguments, here and below.
    let pass = || unsafe { real::ioctl(fd, request, argument) };
    if !table::knows(fd) {
        return pass();
    }
    match request {
        libc::FIOCLEX | libc::FIONCLEX => {
            let r = pass();
            if r == 0 {
                let on = usize::from(request == libc::FIOCLEX);
                to_hidden(fd, |hidden| {
                    let _ = sys::fcntl(hidden, libc::F_SETFD, on);
                });
            }
            r
        }
        libc::FIONBIO if table::kind(fd) == Kind::Listening && argument != 0 => {
            let on = unsafe { (argument as *const c_int).read_unaligned() } != 0;
            let Some(flags) = listener_flags(fd, libc::F_GETFL, 0) else {
                return pass();
            };
            let flags = (flags & !libc::O_NONBLOCK) | if on { libc::O_NONBLOCK } else { 0 };
            listener_flags(fd, libc::F_SETFL, flags as usize).unwrap_or_else(pass)
        }
        _ => pass(),
    }
}
