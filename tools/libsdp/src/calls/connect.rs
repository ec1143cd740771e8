// SPDX-License-Identifier: GPL-2.0-only

//! socket(2) and connect(2), and what connects by the way.

use super::decide;
use crate::log::{self, Level};
use crate::replace::{self, Errno, Settled, Why};
use crate::settings;
use crate::sys::{self, Address};
use crate::table::{self, Entry, Kind, Table};
use crate::{options, real};
use libc::{c_int, c_void, size_t, sockaddr, socklen_t, ssize_t};
use sdp_rules::{Mode, Role};

/// socket(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    if fd < 0 {
        return fd;
    }
    let stream = kind & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) == libc::SOCK_STREAM;
    let ip = domain == libc::AF_INET || domain == libc::AF_INET6;
    let tcp = protocol == 0 || protocol == libc::IPPROTO_TCP;
    if stream && ip && tcp && settings::known().is_some_and(|s| s.active) {
        if let Some(mut table) = table::lock() {
            table.add_fresh(fd, domain == libc::AF_INET6);
        }
    } else if table::knows(fd) {
        if let Some(mut table) = table::lock() {
            table.forget(fd);
        }
    }
    fd
}

/// connect(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn connect(
    fd: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    let mut limit = None;
    match table::kind(fd) {
        Kind::Fresh => {
            // SAFETY: the caller's address.
            if let Some(to) = unsafe { Address::read(address, length) } {
                let begun = sys::now();
                if let Some(result) = first(fd, &to) {
                    return sys::c_result(result);
                }
                limit = shorten(fd, sys::now() - begun);
            }
        }
        Kind::Connecting | Kind::Following | Kind::Failed => {
            if let Some(result) = again(fd) {
                return sys::c_result(result);
            }
        }
        _ => {}
    }
    // SAFETY: the caller's arguments.
    let r = unsafe { real::connect(fd, address, length) };
    if let Some(limit) = limit {
        sys::set_timeout(fd, libc::SO_SNDTIMEO, limit);
    }
    if (r == 0 || sys::errno() == libc::EINPROGRESS) && table::kind(fd) == Kind::Fresh {
        // TCP it is.
        let errno = sys::errno();
        if let Some(mut table) = table::lock() {
            replace::forget_all(&mut table, fd);
        }
        sys::set_errno(errno);
    }
    r
}

/// Takes what SDP has used up from the time that connect(2) may take; what to set it to afterwards.
fn shorten(fd: c_int, used: u64) -> Option<u64> {
    let limit = sys::timeout(fd, libc::SO_SNDTIMEO).filter(|_| used > 0)?;
    let left = limit.saturating_sub(used).max(1);
    sys::set_timeout(fd, libc::SO_SNDTIMEO, left);
    Some(limit)
}

/// What an attempt by SDP has come to.
enum Attempt {
    /// An SDP socket, and whether it has to be watched until it is connected.
    Begun(c_int, bool, c_int),
    /// There is none: the error, if SDP could be tried at all.
    None(Option<c_int>),
}

/// Whether the rules want SDP for a new connection, and an SDP socket for it.
fn prepare(fd: c_int, to: &Address) -> Option<(Mode, Entry, c_int, bool)> {
    let settings = settings::known()?;
    log::write(Level::Calls, format_args!("connect {fd} to {to}"));
    let mut table = table::lock()?;
    if !table.verify(fd) {
        return None;
    }
    let mode = decide(settings, Role::Client, to);
    if mode == Mode::Tcp {
        return None;
    }
    let mut entry = table.get(fd).1;
    entry.to = *to;
    if mode == Mode::Both && replace::is_silent(to) {
        log::write(
            Level::Summary,
            format_args!("connect {to}: TCP (no SDP lately)"),
        );
        return None;
    }
    let sdp = match entry.shadow.take() {
        // bound already, to the same address
        Some(hidden) => {
            if let Some((level, name)) = entry.foreign {
                tell_option(to, level, name);
                return None;
            }
            if let Err((level, name)) = options::carry(entry.options, fd, hidden) {
                tell_option(to, level, name);
                return None;
            }
            let copy = sys::dup(hidden).ok()?;
            let _ = sys::fcntl(copy, libc::F_SETFD, libc::FD_CLOEXEC as usize);
            options::carry_flags(fd, copy);
            copy
        }
        None => match replace::sdp_like(fd, &entry).and_then(|sdp| bind_like(fd, sdp)) {
            Ok(sdp) => sdp,
            Err(Why::Absent) => return None,
            Err(Why::Option(level, name)) => {
                tell_option(to, level, name);
                return None;
            }
        },
    };
    let non_blocking = sys::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) & libc::O_NONBLOCK != 0;
    if mode == Mode::Both {
        options::hurry(sdp, entry.options);
    }
    Some((mode, entry, sdp, non_blocking))
}

fn tell_option(to: &Address, level: c_int, name: c_int) {
    log::write(
        Level::Warning,
        format_args!("connect {to}: TCP, for option {name} of level {level}"),
    );
}

/// Binds the SDP socket as the TCP socket is, as far as it can be.
fn bind_like(fd: c_int, sdp: c_int) -> Result<c_int, Why> {
    if let Ok(local) = sys::local_address(fd) {
        if local.port() != 0 || !local.ip().is_unspecified() {
            // An address without RDMA is found out by connect(2) as well.
            let _ = sys::bind(sdp, &local);
        }
    }
    Ok(sdp)
}

/// The first connect(2) of a socket; none if it is for TCP, which the program's own call makes.
fn first(fd: c_int, to: &Address) -> Option<sys::Result> {
    let (mode, entry, sdp, non_blocking) = prepare(fd, to)?;
    let patience = replace::patience(to).filter(|_| mode == Mode::Both);
    let start = sys::now();
    let attempt = if non_blocking {
        attempt(sys::connect(sdp, to), sdp)
    } else if let Some(patience) = patience {
        // Half of what there is: TCP is to have a chance.
        let half = sys::timeout(fd, libc::SO_SNDTIMEO).map_or(u64::MAX, |t| t / 2);
        attempt(within(sdp, to, patience.min(half)), sdp)
    } else {
        // Nothing is held while it waits.
        // SAFETY: the address is as long as it says.
        let r = unsafe { real::connect(sdp, to.as_ptr(), to.len()) };
        let r = if r == 0 { Ok(0) } else { Err(sys::errno()) };
        attempt(r, sdp)
    };
    let waited = sys::now().saturating_sub(start);
    match attempt {
        Attempt::Begun(sdp, under_way, result) => {
            let mut table = table::lock()?;
            match enter(&mut table, fd, sdp, mode, entry, under_way) {
                Ok(()) if result == 0 => {
                    replace::remember_answer(to);
                    log::write(Level::Summary, format_args!("connect {to}: SDP"));
                    Some(Ok(0))
                }
                Ok(()) => Some(Err(result)),
                Err(e) => Some(Err(e)),
            }
        }
        Attempt::None(error) => {
            let error = error.unwrap_or(libc::ECONNREFUSED);
            if mode == Mode::Sdp {
                log::write(
                    Level::Summary,
                    format_args!("connect {to}: not by SDP ({})", Errno(error)),
                );
                return Some(Err(error));
            }
            // A program that waits for a moment only says nothing about the host.
            if waited >= replace::NOTABLE.min(patience.unwrap_or(0)) {
                replace::remember_timeout(to, error);
            }
            log::write(
                Level::Summary,
                format_args!("connect {to}: TCP (SDP: {})", Errno(error)),
            );
            None
        }
    }
}

/// connect(2) of a socket that blocks, for so many milliseconds.
fn within(sdp: c_int, to: &Address, time: u64) -> sys::Result {
    let flags = sys::fcntl(sdp, libc::F_GETFL, 0)?;
    sys::fcntl(sdp, libc::F_SETFL, (flags | libc::O_NONBLOCK) as usize)?;
    let until = sys::now() + time;
    let mut r = sys::connect(sdp, to);
    while r == Err(libc::EINPROGRESS) {
        let mut one = libc::pollfd {
            fd: sdp,
            events: libc::POLLOUT,
            revents: 0,
        };
        let left = until.saturating_sub(sys::now()).min(i32::MAX as u64);
        // SAFETY: one entry. A point of cancellation, as connect(2) is.
        r = match unsafe { real::poll(&mut one, 1, left as c_int) } {
            0 => Err(libc::ETIMEDOUT),
            1 => match sys::get_int(sdp, libc::SOL_SOCKET, libc::SO_ERROR) {
                Ok(0) => Ok(0),
                Ok(e) | Err(e) => Err(e),
            },
            // connect(2) goes on after handlers that say so, poll(2) never.
            _ if sys::errno() == libc::EINTR && sys::handlers_restart() => r,
            _ => Err(sys::errno()),
        };
    }
    sys::fcntl(sdp, libc::F_SETFL, flags as usize)?;
    r
}

fn attempt(result: sys::Result, sdp: c_int) -> Attempt {
    match result {
        Ok(_) => Attempt::Begun(sdp, false, 0),
        // EINTR: goes on while the program does something else
        Err(e @ (libc::EINPROGRESS | libc::EINTR)) => Attempt::Begun(sdp, true, e),
        Err(e) => {
            sys::close(sdp);
            Attempt::None(Some(e))
        }
    }
}

/// Puts the SDP socket in the program's socket's place.
fn enter(
    table: &mut Table,
    fd: c_int,
    sdp: c_int,
    mode: Mode,
    mut entry: Entry,
    under_way: bool,
) -> sys::Result<()> {
    // Somebody may have closed it meanwhile.
    let (_, current) = table.get(fd);
    if current.socket != entry.socket {
        sys::close(sdp);
        return Err(libc::EBADF);
    }
    // The TCP socket waits beside it, in case.
    entry.shadow = None;
    if let Some(bound) = current.shadow {
        table.update(fd, |e| e.shadow = None);
        table.drop_hidden(bound, fd);
    }
    if under_way && mode == Mode::Both {
        if let Ok(hidden) = table.hide_copy(fd, fd) {
            let flags = sys::fcntl(hidden, libc::F_GETFL, 0).unwrap_or(0);
            let _ = sys::fcntl(hidden, libc::F_SETFL, (flags | libc::O_NONBLOCK) as usize);
            entry.shadow = Some(hidden);
        }
    }
    if let Err(e) = replace::install(table, fd, sdp) {
        sys::close(sdp);
        if let Some(hidden) = entry.shadow {
            table.drop_hidden(hidden, fd);
        }
        return Err(e);
    }
    if entry.shadow.is_none() {
        replace::forget_all(table, fd);
        return Ok(());
    }
    entry.asked = sys::now();
    entry.until = replace::patience(&entry.to).map_or(u64::MAX, |p| entry.asked.saturating_add(p));
    let inode = sys::inode(fd).unwrap_or(0);
    for &other in table.duplicates(fd).iter() {
        let mut theirs = table.get(other).1;
        theirs.shadow = entry
            .shadow
            .and_then(|hidden| table.hide_copy(hidden, other).ok());
        (theirs.inode, theirs.to) = (inode, entry.to);
        (theirs.asked, theirs.until) = (entry.asked, entry.until);
        table.set(other, Kind::Connecting, theirs);
    }
    entry.interests = table.get(fd).1.interests;
    entry.inode = inode;
    table.set(fd, Kind::Connecting, entry);
    Ok(())
}

/// connect(2) once more, to see how far it is; none if the kernel can answer.
fn again(fd: c_int) -> Option<sys::Result> {
    let mut table = table::lock()?;
    let (kind, entry) = table.get(fd);
    if kind == Kind::Failed {
        replace::forget_all(&mut table, fd);
        return Some(Err(entry.error));
    }
    match replace::settle(&mut table, fd) {
        Settled::Yes if table::kind(fd) == Kind::Failed => {
            let error = table.get(fd).1.error;
            replace::forget_all(&mut table, fd);
            Some(Err(error))
        }
        Settled::Yes => None,
        Settled::NotYet => {
            let flags = sys::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
            if flags & libc::O_NONBLOCK != 0 {
                return Some(Err(libc::EALREADY));
            }
            drop(table);
            Some(wait_for(fd))
        }
    }
}

/// Waits for a connection that a signal has interrupted the making of.
fn wait_for(fd: c_int) -> sys::Result {
    let mut one = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    // The library's own poll(2) goes on by TCP where SDP fails.
    // SAFETY: one entry.
    if unsafe { super::wait::poll(&mut one, 1, -1) } < 0 {
        return Err(sys::errno());
    }
    match super::options::take_error(fd) {
        0 => Ok(0),
        error => Err(error),
    }
}

/// Before a call that connects and sends at once (MSG_FASTOPEN); the flags that are left, or the
/// error.
unsafe fn fast_open(
    fd: c_int,
    flags: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> Result<c_int, ()> {
    if flags & libc::MSG_FASTOPEN == 0 || table::kind(fd) != Kind::Fresh || to.is_null() {
        return Ok(flags);
    }
    // SAFETY: the caller's address.
    if unsafe { connect(fd, to, length) } == 0 {
        Ok(flags & !libc::MSG_FASTOPEN)
    } else {
        Err(())
    }
}

/// sendto(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    data: *const c_void,
    count: size_t,
    flags: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    // SAFETY: the caller's arguments, here and below.
    match unsafe { fast_open(fd, flags, to, length) } {
        Ok(left) if left != flags => unsafe {
            real::sendto(fd, data, count, left, std::ptr::null(), 0)
        },
        Ok(_) => unsafe { real::sendto(fd, data, count, flags, to, length) },
        Err(()) => -1,
    }
}

/// sendmsg(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const libc::msghdr,
    flags: c_int,
) -> ssize_t {
    if flags & libc::MSG_FASTOPEN != 0 && !message.is_null() {
        // SAFETY: the caller's arguments, here and below.
        let mut copy = unsafe { *message };
        match unsafe { fast_open(fd, flags, copy.msg_name.cast(), copy.msg_namelen) } {
            Ok(left) if left != flags => {
                copy.msg_name = std::ptr::null_mut();
                copy.msg_namelen = 0;
                return unsafe { real::sendmsg(fd, &copy, left) };
            }
            Ok(_) => {}
            Err(()) => return -1,
        }
    }
    // SAFETY: as above.
    unsafe { real::sendmsg(fd, message, flags) }
}
