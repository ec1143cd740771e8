// SPDX-License-Identifier: GPL-2.0-only

//! System calls made directly: they are not cancellation points, change no state of the C library
//! except errno, and cannot re-enter this library.

use libc::{c_int, c_long};
use std::ffi::CStr;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Result of a system call: its value, or errno.
pub type Result<T = c_int> = std::result::Result<T, c_int>;

pub fn errno() -> c_int {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(e: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = e }
}

/// Makes a system call by its name and arguments, and preserves errno. Pointers must be valid for
/// the call.
macro_rules! call {
    ($name:ident $(, $argument:expr)*) => {{
        let before = errno();
        let r: c_long = libc::syscall(libc::$name $(, $argument)*);
        match r {
            -1 => {
                let e = errno();
                set_errno(before);
                Err(e)
            }
            r => Ok(r as c_int),
        }
    }};
}

pub fn pid() -> c_int {
    // SAFETY: there are no arguments.
    unsafe { call!(SYS_getpid) }.unwrap_or(0)
}

pub fn close(fd: c_int) {
    // SAFETY: passes only a number.
    let _ = unsafe { call!(SYS_close, fd) };
}

pub fn socket(family: c_int, kind: c_int, protocol: c_int) -> Result {
    // SAFETY: numbers.
    unsafe { call!(SYS_socket, family, kind, protocol) }
}

/// Parses an address of IPv4 or IPv6. Returns `None` for another family.
///
/// # Safety
///
/// The pointer and the length must be valid, as for bind(2).
pub unsafe fn address(from: *const libc::sockaddr, length: libc::socklen_t) -> Option<SocketAddr> {
    let length = length as usize;
    if from.is_null() || length < mem::size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: the caller guarantees `length` bytes, which include the family.
    let family = unsafe { (&raw const (*from).sa_family).read_unaligned() };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the caller guarantees the bytes, and the address is long enough.
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
    // SAFETY: zeros are a valid address, without a family.
    let mut a: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut length = mem::size_of_val(&a) as libc::socklen_t;
    // SAFETY: the storage has the given length.
    unsafe { call!(SYS_getsockname, fd, &raw mut a, &raw mut length) }.ok()?;
    // SAFETY: the kernel has filled the address.
    unsafe { address((&raw const a).cast(), length) }
}

pub fn set_int(fd: c_int, level: c_int, name: c_int, value: c_int) -> Result {
    // SAFETY: `value` has the given length.
    unsafe { call!(SYS_setsockopt, fd, level, name, &raw const value, 4) }
}

/// Reads an option into `value`.
pub fn get_option(fd: c_int, level: c_int, name: c_int, value: &mut [u8]) -> Result {
    let mut length = value.len() as libc::socklen_t;
    let (to, length) = (value.as_mut_ptr(), &raw mut length);
    // SAFETY: `value` has the given length.
    unsafe { call!(SYS_getsockopt, fd, level, name, to, length) }
}

pub fn get_int(fd: c_int, level: c_int, name: c_int) -> Result {
    let mut raw = [0; 4];
    get_option(fd, level, name, &mut raw)?;
    Ok(c_int::from_ne_bytes(raw))
}

pub fn stat(fd: c_int) -> Option<libc::stat> {
    // SAFETY: zeros are a valid stat.
    let mut s: libc::stat = unsafe { mem::zeroed() };
    // SAFETY: the kernel fills the structure.
    unsafe { call!(SYS_fstat, fd, &raw mut s) }.ok()?;
    Some(s)
}

pub fn open(directory: c_int, path: &CStr, flags: c_int, mode: u32) -> Result {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero.
    unsafe { call!(SYS_openat, directory, path.as_ptr(), flags, mode) }
}

pub fn mkdir(path: &CStr, mode: u32) -> Result {
    // SAFETY: as above.
    unsafe { call!(SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), mode) }
}

/// Returns the number of bytes read.
pub fn read(fd: c_int, to: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer has the given length.
    let n = unsafe { call!(SYS_read, fd, to.as_mut_ptr(), to.len()) };
    n.map(|n| n as usize)
}

pub fn write(fd: c_int, from: &[u8]) -> Result {
    // SAFETY: as above.
    unsafe { call!(SYS_write, fd, from.as_ptr(), from.len()) }
}

/// Sends a datagram to a UNIX socket.
pub fn send_to_path(fd: c_int, path: &[u8], text: &[u8]) -> Result {
    // SAFETY: zeros are a valid address.
    let mut to: libc::sockaddr_un = unsafe { mem::zeroed() };
    to.sun_family = libc::AF_UNIX as _;
    // the path ends with a zero, which takes one byte
    let room = to.sun_path.len() - 1;
    for (place, &c) in to.sun_path[..room].iter_mut().zip(path) {
        *place = c as _;
    }
    let (from, length) = (text.as_ptr(), text.len());
    let (flags, size) = (
        libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        mem::size_of_val(&to),
    );
    // SAFETY: text and address have the given lengths.
    unsafe { call!(SYS_sendto, fd, from, length, flags, &raw const to, size) }
}

pub fn clock(which: libc::clockid_t) -> libc::timespec {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: no system call is made; signal handlers may call clock_gettime(2).
    unsafe { libc::clock_gettime(which, &mut t) };
    t
}

/// Returns milliseconds of a monotonic clock.
pub fn now() -> u64 {
    let t = clock(libc::CLOCK_MONOTONIC);
    t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
}

/// Waits for some milliseconds, fewer than a second; a signal may end the wait.
pub fn pause(milliseconds: u32) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(milliseconds.min(999)) * 1_000_000,
    };
    // SAFETY: the timespec is valid during the call, and the remaining time may be null.
    let _ = unsafe {
        call!(
            SYS_nanosleep,
            &raw const time,
            std::ptr::null_mut::<libc::timespec>()
        )
    };
}
