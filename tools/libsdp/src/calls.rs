// SPDX-License-Identifier: GPL-2.0-only

//! The functions of the C library that libsdp replaces. Each function passes calls without SDP on
//! to the C library.

use crate::log;
use crate::settings::{self, Level, Settings};
use crate::{real, report, sdp, sys};
use libc::{c_int, sockaddr, socklen_t};
use sdp_rules::{Mode, Role};
use std::net::SocketAddr;

/// Returns the settings if sockets of this program may use SDP.
fn active() -> Option<&'static Settings> {
    settings::known().filter(|s| s.uniform != Some(Mode::Tcp))
}

/// socket(2).
///
/// # Safety
///
/// Same contract as in the C library.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let stream = kind & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) == libc::SOCK_STREAM;
    let ip = domain == libc::AF_INET || domain == libc::AF_INET6;
    let tcp = protocol == 0 || protocol == libc::IPPROTO_TCP;
    if let Some(settings) = active().filter(|_| stream && ip && tcp) {
        if let Some(fd) = sdp::socket(domain, kind) {
            if settings.uniform == Some(Mode::Sdp) {
                // io_uring connects without a call of `connect`
                let _ = sdp::set_route(fd, Mode::Sdp);
            }
            return fd;
        }
    }
    // SAFETY: the caller guarantees valid arguments.
    unsafe { real::socket(domain, kind, protocol) }
}

/// Returns the settings if the rules or the log need the addresses that sockets use.
fn concerned() -> Option<&'static Settings> {
    active().filter(|s| s.uniform.is_none() || log::wanted(Level::Summary))
}

/// Sets the mode that the rules have for an address on a socket.
fn apply(settings: &Settings, role: Role, fd: c_int, address: SocketAddr) {
    let of = settings
        .rules
        .decide(&settings.program, role, address.ip(), address.port());
    let mode = of.mode;
    match of.rule {
        Some(rule) if rule.line != 0 => log::write(
            Level::Match,
            format_args!("{role} {address}: {mode}, by line {}", rule.line),
        ),
        _ => log::write(
            Level::NoMatch,
            format_args!("{role} {address}: {mode}, no rule matches"),
        ),
    }
    if settings.uniform.is_some() || sdp::set_route(fd, mode).is_ok() || mode != Mode::Sdp {
        return;
    }
    // the program has called setsockopt(2) before, and the program's choice applies
    if let Some(choice @ sdp::Choice::Tcp(_)) = sdp::choice(fd) {
        log::write(
            Level::Warning,
            format_args!("{role} {address}: {choice}, not sdp as the rules say"),
        );
    }
}

/// connect(2).
///
/// # Safety
///
/// Same contract as in the C library.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn connect(
    fd: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    // SAFETY: the caller guarantees a valid address.
    let to = concerned().zip(unsafe { sys::address(address, length) });
    if let Some((settings, to)) = to {
        apply(settings, Role::Client, fd, to);
    }
    // SAFETY: the caller guarantees valid arguments.
    let r = unsafe { real::connect(fd, address, length) };
    if let Some((_, to)) = to.filter(|_| log::wanted(Level::Summary)) {
        let errno = sys::errno();
        report::connect(fd, to, if r < 0 { Err(errno) } else { Ok(r) });
        sys::set_errno(errno);
    }
    r
}

/// bind(2).
///
/// # Safety
///
/// Same contract as in the C library.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn bind(
    fd: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    // SAFETY: the caller guarantees a valid address.
    if let Some((settings, to)) = concerned().zip(unsafe { sys::address(address, length) }) {
        apply(settings, Role::Server, fd, to);
    }
    // SAFETY: the caller guarantees valid arguments.
    unsafe { real::bind(fd, address, length) }
}

/// listen(2).
///
/// # Safety
///
/// Same contract as in the C library.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let concerned = concerned();
    if let Some(settings) = concerned {
        // otherwise bind(2) has applied the rules
        if let Some(any) = sys::local_address(fd).filter(|a| a.port() == 0) {
            apply(settings, Role::Server, fd, any);
        }
    }
    // SAFETY: passes numbers only.
    let r = unsafe { real::listen(fd, backlog) };
    if r == 0 && concerned.is_some() && log::wanted(Level::Summary) {
        report::listen(fd);
    }
    r
}
