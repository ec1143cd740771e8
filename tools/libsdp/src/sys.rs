// SPDX-License-Identifier: GPL-2.0-only

//! System calls that go to the kernel directly: they are no points of cancellation, touch nothing
//! of the C library's but errno, and cannot come back to this library.

use libc::{c_int, c_long};
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// What a system call gave: its value, or errno.
pub type Result<T = c_int> = std::result::Result<T, c_int>;

pub fn errno() -> c_int {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(e: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = e }
}

/// A system call; errno stays what it was.
///
/// # Safety
///
/// That of the call: pointers must be good for what it does with them.
unsafe fn call(number: c_long, a: [usize; 6]) -> Result<usize> {
    let before = errno();
    // SAFETY: by the caller.
    let r = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) };
    if r == -1 {
        let e = errno();
        set_errno(before);
        Err(e)
    } else {
        Ok(r as usize)
    }
}

/// A call that is given numbers only.
fn plain(number: c_long, a: &[c_int]) -> Result {
    let mut all = [0usize; 6];
    for (to, from) in all.iter_mut().zip(a) {
        *to = *from as usize;
    }
    // SAFETY: no pointers.
    unsafe { call(number, all) }.map(|r| r as c_int)
}

pub fn pid() -> c_int {
    plain(libc::SYS_getpid, &[]).unwrap_or(0)
}

pub fn close(fd: c_int) {
    let _ = plain(libc::SYS_close, &[fd]);
}

pub fn socket(family: c_int, kind: c_int, protocol: c_int) -> Result {
    plain(libc::SYS_socket, &[family, kind, protocol])
}

/// An address of IPv4 or IPv6; none if it is none.
///
/// # Safety
///
/// What the caller of bind(2) promises.
pub unsafe fn address(from: *const libc::sockaddr, length: libc::socklen_t) -> Option<SocketAddr> {
    let length = length as usize;
    if from.is_null() || length < mem::size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: by the caller there are so many bytes, which hold the family.
    let family = unsafe { (&raw const (*from).sa_family).read_unaligned() };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: as above, and it is long enough.
            let a = unsafe { from.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr));
            Some((ip, u16::from_be(a.sin_port)).into())
        }
        libc::AF_INET6 if length >= mem::size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above.
            let a = unsafe { from.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(a.sin6_addr.s6_addr);
            Some((ip, u16::from_be(a.sin6_port)).into())
        }
        _ => None,
    }
}

/// getsockname(2).
pub fn local_address(fd: c_int) -> Option<SocketAddr> {
    // SAFETY: all zeroes is an address without a family.
    let mut a: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut length = mem::size_of_val(&a) as libc::socklen_t;
    let (to, room) = ((&raw mut a) as usize, (&raw mut length) as usize);
    // SAFETY: the storage is as long as the length says.
    unsafe { call(libc::SYS_getsockname, [fd as usize, to, room, 0, 0, 0]) }.ok()?;
    // SAFETY: the kernel has filled it in.
    unsafe { address((&raw const a).cast(), length) }
}

pub fn set_int(fd: c_int, level: c_int, name: c_int, value: c_int) -> Result {
    let [a, b, c] = [fd, level, name].map(|n| n as usize);
    let at = (&raw const value) as usize;
    // SAFETY: the value is as long as it is said to be.
    unsafe { call(libc::SYS_setsockopt, [a, b, c, at, 4, 0]) }.map(|r| r as c_int)
}

/// Reads an option into `value`; how long it is.
pub fn get_option(fd: c_int, level: c_int, name: c_int, value: &mut [u8]) -> Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: as above.
    unsafe {
        call(
            libc::SYS_getsockopt,
            [
                fd as usize,
                level as usize,
                name as usize,
                value.as_mut_ptr() as usize,
                (&raw mut length) as usize,
                0,
            ],
        )
    }?;
    Ok((length as usize).min(value.len()))
}

pub fn get_int(fd: c_int, level: c_int, name: c_int) -> Result {
    let mut raw = [0; 4];
    get_option(fd, level, name, &mut raw)?;
    Ok(c_int::from_ne_bytes(raw))
}

pub fn stat(fd: c_int) -> Option<libc::stat> {
    // SAFETY: all zeroes is a stat, and the kernel fills it in.
    let mut s: libc::stat = unsafe { mem::zeroed() };
    // SAFETY: as above.
    unsafe {
        call(
            libc::SYS_fstat,
            [fd as usize, (&raw mut s) as usize, 0, 0, 0, 0],
        )
    }
    .ok()?;
    Some(s)
}

/// openat(2) of a path that ends with a zero.
pub fn open(directory: c_int, path: &[u8], flags: c_int, mode: u32) -> Result {
    if path.last() != Some(&0) {
        return Err(libc::EINVAL);
    }
    // SAFETY: the path ends with a zero.
    unsafe {
        call(
            libc::SYS_openat,
            [
                directory as usize,
                path.as_ptr() as usize,
                (flags | libc::O_CLOEXEC) as usize,
                mode as usize,
                0,
                0,
            ],
        )
    }
    .map(|r| r as c_int)
}

pub fn mkdir(path: &[u8], mode: u32) -> Result {
    if path.last() != Some(&0) {
        return Err(libc::EINVAL);
    }
    // SAFETY: the path ends with a zero.
    unsafe {
        call(
            libc::SYS_mkdirat,
            [
                libc::AT_FDCWD as usize,
                path.as_ptr() as usize,
                mode as usize,
                0,
                0,
                0,
            ],
        )
    }
    .map(|r| r as c_int)
}

pub fn read(fd: c_int, to: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer is as long as it is said to be.
    unsafe {
        call(
            libc::SYS_read,
            [fd as usize, to.as_mut_ptr() as usize, to.len(), 0, 0, 0],
        )
    }
}

pub fn write(fd: c_int, from: &[u8]) -> Result<usize> {
    // SAFETY: as above.
    unsafe {
        call(
            libc::SYS_write,
            [fd as usize, from.as_ptr() as usize, from.len(), 0, 0, 0],
        )
    }
}

pub fn send_to_path(fd: c_int, path: &[u8], text: &[u8]) -> Result<usize> {
    // SAFETY: all zeroes is an address.
    let mut to: libc::sockaddr_un = unsafe { mem::zeroed() };
    to.sun_family = libc::AF_UNIX as _;
    if path.len() >= to.sun_path.len() {
        return Err(libc::ENAMETOOLONG);
    }
    for (place, &c) in to.sun_path.iter_mut().zip(path) {
        *place = c as _;
    }
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: text and address are as long as they are said to be.
    unsafe {
        call(
            libc::SYS_sendto,
            [
                fd as usize,
                text.as_ptr() as usize,
                text.len(),
                flags as usize,
                (&raw const to) as usize,
                mem::size_of_val(&to),
            ],
        )
    }
}

/// Milliseconds of a clock that only goes forward.
pub fn now() -> u64 {
    let t = clock(libc::CLOCK_MONOTONIC);
    t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
}

pub fn clock(which: libc::clockid_t) -> libc::timespec {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the C library's call without a system call; may be called by signal handlers.
    unsafe { libc::clock_gettime(which, &mut t) };
    t
}

/// Waits for some milliseconds; a signal may end it.
pub fn pause(milliseconds: u32) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(milliseconds.min(999)) * 1_000_000,
    };
    // SAFETY: the time is there; what is left of it is not asked for.
    let _ = unsafe {
        call(
            libc::SYS_nanosleep,
            [(&raw const time) as usize, 0, 0, 0, 0, 0],
        )
    };
}
