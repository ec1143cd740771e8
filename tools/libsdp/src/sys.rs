// SPDX-License-Identifier: GPL-2.0-only

//! System calls that go to the kernel directly: they are no points of cancellation, touch nothing
//! of the C library's but errno, and cannot come back to this library.

use libc::{c_int, c_long};
use std::mem;

// Of <asm-generic/fcntl.h>, not in the libc crate.
pub const F_SETSIG: c_int = 10;
pub const F_GETSIG: c_int = 11;
pub const F_SETOWN_EX: c_int = 15;
pub const F_GETOWN_EX: c_int = 16;

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

/// The result of a call as C has it.
pub fn c_result(r: Result) -> c_int {
    r.unwrap_or_else(|e| {
        set_errno(e);
        -1
    })
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

pub fn tid() -> c_int {
    plain(libc::SYS_gettid, &[]).unwrap_or(0)
}

pub fn close(fd: c_int) {
    let _ = plain(libc::SYS_close, &[fd]);
}

pub fn socket(family: c_int, kind: c_int, protocol: c_int) -> Result {
    plain(libc::SYS_socket, &[family, kind, protocol])
}

pub fn listen(fd: c_int, backlog: c_int) -> Result {
    plain(libc::SYS_listen, &[fd, backlog])
}

pub fn dup(fd: c_int) -> Result {
    plain(libc::SYS_dup, &[fd])
}

pub fn dup3(from: c_int, to: c_int, flags: c_int) -> Result {
    plain(libc::SYS_dup3, &[from, to, flags])
}

#[cfg(target_arch = "x86_64")]
pub fn dup2(from: c_int, to: c_int) -> Result {
    plain(libc::SYS_dup2, &[from, to])
}

#[cfg(not(target_arch = "x86_64"))]
pub fn dup2(from: c_int, to: c_int) -> Result {
    if from == to {
        return fcntl(from, libc::F_GETFD, 0).map(|_| to);
    }
    dup3(from, to, 0)
}

pub fn fcntl(fd: c_int, command: c_int, argument: usize) -> Result {
    // SAFETY: callers use commands whose argument is a number.
    unsafe {
        call(
            libc::SYS_fcntl,
            [fd as usize, command as usize, argument, 0, 0, 0],
        )
    }
    .map(|r| r as c_int)
}

pub fn close_range(first: u32, last: u32, flags: u32) -> Result {
    plain(
        libc::SYS_close_range,
        &[first as c_int, last as c_int, flags as c_int],
    )
}

/// The same descriptor under a number where programs do not expect theirs to be.
pub fn hide(fd: c_int, from: c_int, close_on_exec: bool) -> Result {
    let command = if close_on_exec {
        libc::F_DUPFD_CLOEXEC
    } else {
        libc::F_DUPFD
    };
    fcntl(fd, command, from as usize)
}

/// An address as the calls take it.
#[derive(Clone, Copy)]
pub struct Address {
    raw: libc::sockaddr_storage,
    length: libc::socklen_t,
}

impl Address {
    pub const NONE: Address = Address {
        // SAFETY: all zeroes is an address without a family.
        raw: unsafe { mem::zeroed() },
        length: 0,
    };

    /// A copy of a caller's address; none if it cannot be one of IPv4 or IPv6.
    ///
    /// # Safety
    ///
    /// What the caller of bind(2) promises.
    pub unsafe fn read(from: *const libc::sockaddr, length: libc::socklen_t) -> Option<Self> {
        let size = mem::size_of::<libc::sockaddr_storage>().min(length as usize);
        if from.is_null() || size < mem::size_of::<libc::sockaddr_in>() {
            return None;
        }
        let mut a = Address {
            length,
            ..Self::NONE
        };
        // SAFETY: the caller's `length` bytes, and no more than there is room for.
        unsafe {
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut a.raw).cast::<u8>(), size)
        };
        let v6 = length as usize >= mem::size_of::<libc::sockaddr_in6>();
        match i32::from(a.raw.ss_family) {
            libc::AF_INET => Some(a),
            libc::AF_INET6 if v6 => Some(a),
            _ => None,
        }
    }

    /// The wildcard with port 0.
    pub fn any(six: bool) -> Self {
        let mut a = Self::NONE;
        a.raw.ss_family = if six { libc::AF_INET6 } else { libc::AF_INET } as _;
        a.length = if six {
            mem::size_of::<libc::sockaddr_in6>()
        } else {
            mem::size_of::<libc::sockaddr_in>()
        } as _;
        a
    }

    pub fn is_v6(&self) -> bool {
        i32::from(self.raw.ss_family) == libc::AF_INET6
    }

    pub fn ip(&self) -> std::net::IpAddr {
        if self.is_v6() {
            // SAFETY: the family says which of them it is, and the storage is large enough.
            let a = unsafe { (*(&raw const self.raw).cast::<libc::sockaddr_in6>()).sin6_addr };
            std::net::IpAddr::V6(a.s6_addr.into())
        } else {
            // SAFETY: as above.
            let a = unsafe { (*(&raw const self.raw).cast::<libc::sockaddr_in>()).sin_addr };
            std::net::IpAddr::V4(u32::from_be(a.s_addr).into())
        }
    }

    pub fn port(&self) -> u16 {
        // Both kinds have it at the same place.
        // SAFETY: as above.
        u16::from_be(unsafe { (*(&raw const self.raw).cast::<libc::sockaddr_in>()).sin_port })
    }

    pub fn set_port(&mut self, port: u16) {
        // SAFETY: as above.
        unsafe { (*(&raw mut self.raw).cast::<libc::sockaddr_in>()).sin_port = port.to_be() }
    }

    pub fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.raw).cast()
    }

    pub fn len(&self) -> libc::socklen_t {
        self.length
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ip() {
            std::net::IpAddr::V4(a) => write!(f, "{a}:{}", self.port()),
            std::net::IpAddr::V6(a) => write!(f, "[{a}]:{}", self.port()),
        }
    }
}

fn with_address(number: c_long, fd: c_int, to: &Address) -> Result {
    // SAFETY: the address is as long as it says.
    unsafe {
        call(
            number,
            [
                fd as usize,
                to.as_ptr() as usize,
                to.len() as usize,
                0,
                0,
                0,
            ],
        )
    }
    .map(|r| r as c_int)
}

pub fn bind(fd: c_int, to: &Address) -> Result {
    with_address(libc::SYS_bind, fd, to)
}

/// For sockets that do not block.
pub fn connect(fd: c_int, to: &Address) -> Result {
    with_address(libc::SYS_connect, fd, to)
}

/// getsockname(2).
pub fn local_address(fd: c_int) -> Result<Address> {
    let mut a = Address {
        length: mem::size_of::<libc::sockaddr_storage>() as _,
        ..Address::NONE
    };
    // SAFETY: the storage is as long as the length says.
    unsafe {
        call(
            libc::SYS_getsockname,
            [
                fd as usize,
                (&raw mut a.raw) as usize,
                (&raw mut a.length) as usize,
                0,
                0,
                0,
            ],
        )
    }?;
    Ok(a)
}

pub fn accept4(
    fd: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
    flags: c_int,
) -> Result {
    // SAFETY: the kernel checks the pointers, as for the caller's own call.
    unsafe {
        call(
            libc::SYS_accept4,
            [
                fd as usize,
                address as usize,
                length as usize,
                flags as usize,
                0,
                0,
            ],
        )
    }
    .map(|r| r as c_int)
}

pub fn set_option(fd: c_int, level: c_int, name: c_int, value: &[u8]) -> Result {
    // SAFETY: the value is as long as it is said to be.
    unsafe {
        call(
            libc::SYS_setsockopt,
            [
                fd as usize,
                level as usize,
                name as usize,
                value.as_ptr() as usize,
                value.len(),
                0,
            ],
        )
    }
    .map(|r| r as c_int)
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

/// What SO_RCVTIMEO or SO_SNDTIMEO says, in milliseconds; none for no limit.
pub fn timeout(fd: c_int, name: c_int) -> Option<u64> {
    let mut raw = [0; 16];
    get_option(fd, libc::SOL_SOCKET, name, &mut raw).ok()?;
    let half = |r: &[u8]| r.try_into().map(i64::from_ne_bytes).unwrap_or(0);
    let (seconds, micros) = (half(&raw[..8]), half(&raw[8..]));
    let total = seconds
        .saturating_mul(1000)
        .saturating_add((micros + 999) / 1000);
    (total > 0).then_some(total as u64)
}

pub fn set_timeout(fd: c_int, name: c_int, milliseconds: u64) {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&(milliseconds / 1000).to_ne_bytes());
    raw[8..].copy_from_slice(&(milliseconds % 1000 * 1000).to_ne_bytes());
    let _ = set_option(fd, libc::SOL_SOCKET, name, &raw);
}

/// What is true of a socket now, of all that can be asked.
pub fn look(fd: c_int) -> i16 {
    let mut one = libc::pollfd {
        fd,
        events: libc::POLLIN | libc::POLLOUT,
        revents: 0,
    };
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: one entry, no mask.
    match unsafe {
        call(
            libc::SYS_ppoll,
            [
                (&raw mut one) as usize,
                1,
                (&raw const now) as usize,
                0,
                8,
                0,
            ],
        )
    } {
        Ok(1) => one.revents,
        _ => 0,
    }
}

pub fn epoll_create(flags: c_int) -> Result {
    plain(libc::SYS_epoll_create1, &[flags])
}

pub fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, events: u32, data: u64) -> Result {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: one event.
    unsafe {
        call(
            libc::SYS_epoll_ctl,
            [
                epoll as usize,
                operation as usize,
                fd as usize,
                (&raw mut event) as usize,
                0,
                0,
            ],
        )
    }
    .map(|r| r as c_int)
}

/// The inode behind a descriptor; that of a socket is its own.
pub fn inode(fd: c_int) -> Option<u64> {
    stat(fd).map(|s| s.st_ino)
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

/// The names in a directory, in records of getdents64(2).
pub fn directory(fd: c_int, to: &mut [u8]) -> Result<usize> {
    // SAFETY: as above.
    unsafe {
        call(
            libc::SYS_getdents64,
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

/// Blocks all signals of the thread; what was blocked before.
pub fn block_signals() -> u64 {
    let (all, mut before) = (u64::MAX, 0u64);
    // SAFETY: the kernel's signal sets have 8 bytes.
    let _ = unsafe {
        call(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_BLOCK as usize,
                (&raw const all) as usize,
                (&raw mut before) as usize,
                8,
                0,
                0,
            ],
        )
    };
    before
}

pub fn restore_signals(before: u64) {
    // SAFETY: as above.
    let _ = unsafe {
        call(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_SETMASK as usize,
                (&raw const before) as usize,
                0,
                8,
                0,
                0,
            ],
        )
    };
}

/// Whether calls go on after the handlers that the program has installed: all of them say so. Of
/// several handlers the kernel does not tell which one it was. Those for a thread's own faults, and
/// the C library's, interrupt no call.
pub fn handlers_restart() -> bool {
    const NOT_ASLEEP: [usize; 9] = [
        libc::SIGILL as usize,
        libc::SIGTRAP as usize,
        libc::SIGABRT as usize,
        libc::SIGBUS as usize,
        libc::SIGFPE as usize,
        libc::SIGSEGV as usize,
        libc::SIGSYS as usize,
        32,
        33,
    ];
    // struct kernel_sigaction: handler, flags, restorer, mask
    let mut action = [0usize; 4];
    let mut some = false;
    for signal in (1..=64usize).filter(|s| !NOT_ASLEEP.contains(s)) {
        // SAFETY: the action is as large as the kernel's.
        let r = unsafe {
            call(
                libc::SYS_rt_sigaction,
                [signal, 0, (&raw mut action) as usize, 8, 0, 0],
            )
        };
        if r.is_ok() && action[0] != libc::SIG_DFL && action[0] != libc::SIG_IGN {
            if action[1] & libc::SA_RESTART as usize == 0 {
                return false;
            }
            some = true;
        }
    }
    some
}

/// Sleeps while `word` is `value`, or not at all.
pub fn futex_wait(word: &std::sync::atomic::AtomicI32, value: c_int) {
    // SAFETY: the word is there as long as the call.
    let _ = unsafe {
        call(
            libc::SYS_futex,
            [
                word.as_ptr() as usize,
                (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize,
                value as usize,
                0,
                0,
                0,
            ],
        )
    };
}

pub fn futex_wake(word: &std::sync::atomic::AtomicI32) {
    // SAFETY: as above.
    let _ = unsafe {
        call(
            libc::SYS_futex,
            [
                word.as_ptr() as usize,
                (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize,
                1,
                0,
                0,
                0,
            ],
        )
    };
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

/// The limit on descriptors.
pub fn descriptor_limit() -> c_int {
    let mut limit = libc::rlimit {
        rlim_cur: 1024,
        rlim_max: 1024,
    };
    // SAFETY: prlimit of the process itself.
    let _ = unsafe {
        call(
            libc::SYS_prlimit64,
            [
                0,
                libc::RLIMIT_NOFILE as usize,
                0,
                (&raw mut limit) as usize,
                0,
                0,
            ],
        )
    };
    limit.rlim_cur.min(1 << 20) as c_int
}
