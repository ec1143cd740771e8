// SPDX-License-Identifier: GPL-2.0-only

//! bind(2), listen(2), accept(2), and shutdown(2) of listeners.
//!
//! bind(2) takes the port from TCP and, in a hidden socket, from SDP. Only listen(2) tells that the
//! socket is a server's: then one of the two goes, or both listen.

use super::decide;
use crate::log::{self, Level};
use crate::replace::{self, Errno, Why};
use crate::settings;
use crate::sys::{self, Address};
use crate::table::{self, Entry, Kind, Table};
use crate::{options, real};
use libc::{c_int, sockaddr, socklen_t};
use sdp_rules::{Mode, Role};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// So many ports are tried until one is free in both worlds.
const TRIES: u32 = 100;

/// bind(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn bind(
    fd: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    if table::kind(fd) == Kind::Fresh {
        // SAFETY: the caller's address.
        if let Some(to) = unsafe { Address::read(address, length) } {
            if let Some(mut table) = table::lock() {
                if table.verify(fd) {
                    if let Some(result) = bind_both(&mut table, fd, &to) {
                        return sys::c_result(result);
                    }
                }
            }
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { real::bind(fd, address, length) }
}

/// Binds an SDP socket and the TCP socket; none if only TCP is to be bound, by the program's call.
fn bind_both(table: &mut Table, fd: c_int, to: &Address) -> Option<sys::Result> {
    let settings = settings::known()?;
    let entry = table.get(fd).1;
    if entry.bound.is_some() || entry.six != to.is_v6() {
        return None;
    }
    log::write(Level::Calls, format_args!("bind {fd} to {to}"));
    let mode = decide(settings, Role::Server, to);
    table.update(fd, |e| e.bound = Some(mode));
    if mode == Mode::Tcp {
        return None;
    }
    for _ in 0..TRIES {
        let sdp = match replace::sdp_like(fd, &entry) {
            Ok(sdp) => sdp,
            Err(why) => {
                tell_why(to, why);
                return None;
            }
        };
        if let Err(e) = sys::bind(sdp, to) {
            sys::close(sdp);
            log::write(
                Level::Warning,
                format_args!("bind {to}: not by SDP ({})", Errno(e)),
            );
            let final_error = mode == Mode::Sdp || e == libc::EADDRINUSE;
            table.update(fd, |e| e.bound = None);
            return final_error.then_some(Err(e));
        }
        let mut both = *to;
        if let (0, Ok(local)) = (to.port(), sys::local_address(sdp)) {
            both.set_port(local.port());
        }
        match sys::bind(fd, &both) {
            Ok(_) => {}
            // A port that is free for SDP need not be for TCP.
            Err(libc::EADDRINUSE) if to.port() == 0 => {
                sys::close(sdp);
                continue;
            }
            // The port that an SDP server has is its own.
            Err(libc::EADDRINUSE) if mode == Mode::Sdp => {
                return Some(match replace::install(table, fd, sdp) {
                    Ok(()) => {
                        replace::forget_all(table, fd);
                        Ok(0)
                    }
                    Err(e) => {
                        sys::close(sdp);
                        Err(e)
                    }
                });
            }
            Err(e) => {
                sys::close(sdp);
                table.update(fd, |e| e.bound = None);
                return Some(Err(e));
            }
        }
        match table.hide(sdp, fd) {
            Ok(hidden) => table.update(fd, |e| {
                e.shadow = Some(hidden);
                // Some could not be set once more, now that it is bound.
                e.options = options::to_repeat(e.options);
            }),
            Err(e) => {
                sys::close(sdp);
                log::write(
                    Level::Warning,
                    format_args!("bind {to}: TCP only ({})", Errno(e)),
                );
            }
        }
        return Some(Ok(0));
    }
    None
}

fn tell_why(to: &Address, why: Why) {
    if let Why::Option(level, name) = why {
        log::write(
            Level::Warning,
            format_args!("bind {to}: TCP, for option {name} of level {level}"),
        );
    }
}

/// listen(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    match table::kind(fd) {
        Kind::Fresh => {
            if let Some(mut table) = table::lock() {
                if table.verify(fd) {
                    if let Some(result) = begin(&mut table, fd, backlog) {
                        return sys::c_result(result);
                    }
                }
            }
        }
        Kind::Listening => {
            if let Some(mut table) = table::lock() {
                if let (true, Some(sdp)) = (table.verify(fd), table.get(fd).1.shadow) {
                    let _ = sys::listen(sdp, backlog);
                }
            }
        }
        _ => {}
    }
    // SAFETY: the caller's arguments.
    unsafe { real::listen(fd, backlog) }
}

/// Begins to listen; none if only TCP is to.
fn begin(table: &mut Table, fd: c_int, backlog: c_int) -> Option<sys::Result> {
    if table.get(fd).1.bound.is_none() {
        let local = sys::local_address(fd).ok()?;
        if local.port() == 0 {
            if let Some(Err(e)) = bind_both(table, fd, &Address::any(local.is_v6())) {
                return Some(Err(e));
            }
        }
    }
    let entry = table.get(fd).1;
    let local = sys::local_address(fd).ok()?;
    let told = |what: &str| log::write(Level::Summary, format_args!("listen {local}: {what}"));
    let Some(sdp) = entry.shadow.filter(|_| entry.foreign.is_none()) else {
        told("TCP");
        replace::forget_all(table, fd);
        return None;
    };
    // Those that have been set since bind(2).
    if let Err((level, name)) = options::carry(entry.options, fd, sdp) {
        log::write(
            Level::Warning,
            format_args!("listen {local}: TCP, for option {name} of level {level}"),
        );
        replace::forget_all(table, fd);
        return None;
    }
    options::carry_flags(fd, sdp);
    if entry.bound == Some(Mode::Sdp) {
        if let Err(e) = sys::listen(sdp, backlog) {
            return Some(Err(e));
        }
        let copy = match sys::dup(sdp) {
            Ok(copy) => copy,
            Err(e) => return Some(Err(e)),
        };
        if let Err(e) = replace::install(table, fd, copy) {
            sys::close(copy);
            return Some(Err(e));
        }
        replace::forget_all(table, fd);
        told("SDP");
        return Some(Ok(0));
    }
    if let Err(e) = sys::listen(fd, backlog) {
        return Some(Err(e));
    }
    match sys::listen(sdp, backlog).and_then(|_| join(table, fd, sdp)) {
        Ok(()) => told("SDP and TCP"),
        Err(e) => {
            log::write(
                Level::Warning,
                format_args!("listen {local}: TCP only (SDP: {})", Errno(e)),
            );
            replace::forget_all(table, fd);
        }
    }
    Some(Ok(0))
}

/// What a joint epoll descriptor says of its two listeners: a number that no program would choose,
/// and which of them it is. See [`crate::inherit`].
pub const MARK: u64 = 0x6962_7364_705f_0000;
pub const OF_TCP: u64 = MARK | 1;
pub const OF_SDP: u64 = MARK | 2;

/// Makes two listeners one for the program.
fn join(table: &mut Table, fd: c_int, sdp: c_int) -> sys::Result<()> {
    let joint = sys::epoll_create(libc::EPOLL_CLOEXEC)?;
    let watch =
        |what, data| sys::epoll_ctl(joint, libc::EPOLL_CTL_ADD, what, libc::EPOLLIN as u32, data);
    let hidden = watch(fd, OF_TCP)
        .and_then(|_| watch(sdp, OF_SDP))
        .and_then(|_| table.hide(joint, fd));
    let joint = match hidden {
        Ok(joint) => joint,
        Err(e) => {
            sys::close(joint);
            return Err(e);
        }
    };
    // What the program thinks of its listener; the two themselves never block.
    let flags = sys::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
    let _ = sys::fcntl(joint, libc::F_SETFL, (flags & libc::O_NONBLOCK) as usize);
    for one in [fd, sdp] {
        let flags = sys::fcntl(one, libc::F_GETFL, 0).unwrap_or(0);
        let _ = sys::fcntl(one, libc::F_SETFL, (flags | libc::O_NONBLOCK) as usize);
    }
    let inode = sys::inode(fd).unwrap_or(0);
    let (_, mut entry) = table.get(fd);
    for interest in entry.interests.into_iter().flatten() {
        let _ = sys::epoll_ctl(
            interest.epoll,
            libc::EPOLL_CTL_ADD,
            sdp,
            interest.events,
            interest.data,
        );
    }
    entry.joint = Some(joint);
    entry.inode = inode;
    table.set(fd, Kind::Listening, entry);
    for &other in table.duplicates(fd).iter() {
        duplicate(table, other, entry);
    }
    Ok(())
}

/// Remembers `fd` as another descriptor of what `entry` is of.
pub fn duplicate(table: &mut Table, fd: c_int, mut entry: Entry) {
    let mut copy = |hidden: Option<c_int>| hidden.and_then(|h| table.hide_copy(h, fd).ok());
    let (shadow, joint) = (copy(entry.shadow), copy(entry.joint));
    entry.interests = Entry::NONE.interests;
    if let (Some(_), Some(_)) = (shadow, joint) {
        (entry.shadow, entry.joint) = (shadow, joint);
        table.set(fd, Kind::Listening, entry);
    } else {
        for hidden in [shadow, joint].into_iter().flatten() {
            table.drop_hidden(hidden, fd);
        }
        log::write(
            Level::Warning,
            format_args!("descriptor {fd}: listens by TCP only"),
        );
    }
}

/// accept(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    if let Some(listeners) = listeners(fd) {
        return sys::c_result(take(fd, listeners, address, length, 0));
    }
    // SAFETY: the caller's arguments.
    new(unsafe { real::accept(fd, address, length) })
}

/// accept4(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if let Some(listeners) = listeners(fd) {
        return sys::c_result(take(fd, listeners, address, length, flags));
    }
    // SAFETY: the caller's arguments.
    new(unsafe { real::accept4(fd, address, length, flags) })
}

/// A descriptor that the kernel has just given: whatever is remembered under its number was closed
/// behind our back.
fn new(fd: c_int) -> c_int {
    if fd >= 0 && table::knows(fd) {
        if let Some(mut table) = table::lock() {
            table.forget(fd);
        }
    }
    fd
}

/// A listener's SDP listener, and what watches both.
fn listeners(fd: c_int) -> Option<(c_int, c_int)> {
    if table::kind(fd) != Kind::Listening {
        return None;
    }
    let mut table = table::lock()?;
    if !table.verify(fd) {
        return None;
    }
    let (_, entry) = table.get(fd);
    Some((entry.shadow?, entry.joint?))
}

/// Takes turns between the two.
static TURN: AtomicU32 = AtomicU32::new(0);

/// The next connection of either listener.
fn take(
    fd: c_int,
    (sdp, joint): (c_int, c_int),
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> sys::Result {
    let deadline = sys::timeout(fd, libc::SO_RCVTIMEO).map(|t| sys::now() + t);
    loop {
        let turn = TURN.fetch_add(1, Relaxed) % 2 == 0;
        let order = if turn { [sdp, fd] } else { [fd, sdp] };
        for one in order {
            match sys::accept4(one, address, length, flags) {
                Ok(accepted) => {
                    let by = if one == sdp { "SDP" } else { "TCP" };
                    log::write(
                        Level::Summary,
                        format_args!("accept {accepted} from listener {fd}: {by}"),
                    );
                    return Ok(new(accepted));
                }
                Err(libc::EAGAIN) => {}
                // as of a listener that does not wait
                Err(libc::EINTR) => {}
                // whatever has become of the SDP listener, the program has a TCP listener
                Err(_) if one == sdp => {}
                Err(e) => return Err(e),
            }
        }
        let non_blocking = sys::fcntl(joint, libc::F_GETFL, 0)? & libc::O_NONBLOCK != 0;
        let left = match deadline {
            Some(d) => d.saturating_sub(sys::now()).min(i32::MAX as u64) as c_int,
            None => -1,
        };
        if non_blocking || left == 0 {
            return Err(libc::EAGAIN);
        }
        let mut one = libc::pollfd {
            fd: joint,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry. A point of cancellation, as accept(2) is.
        if unsafe { real::poll(&mut one, 1, left) } < 0 {
            let e = sys::errno();
            // accept(2) goes on after handlers that say so, poll(2) never.
            if e != libc::EINTR || !sys::handlers_restart() {
                return Err(e);
            }
        }
    }
}

/// shutdown(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if let Some((sdp, _)) = listeners(fd) {
        // SAFETY: numbers only.
        unsafe { real::shutdown(sdp, how) };
    }
    // SAFETY: as above.
    unsafe { real::shutdown(fd, how) }
}
