// SPDX-License-Identifier: GPL-2.0-only

//! The calls, as the C library has them, and what several programs do with them.

use libc::{c_int, c_void, pollfd};
use std::mem;
use std::ptr;

pub type Result<T = c_int> = std::result::Result<T, c_int>;

pub fn errno() -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() }
}

pub fn check(r: c_int) -> Result {
    if r < 0 {
        Err(errno())
    } else {
        Ok(r)
    }
}

pub fn address(port: u16) -> libc::sockaddr_in {
    // SAFETY: zeroes are an address.
    let mut a: libc::sockaddr_in = unsafe { mem::zeroed() };
    a.sin_family = libc::AF_INET as _;
    a.sin_port = port.to_be();
    a.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
    a
}

pub const LENGTH: u32 = mem::size_of::<libc::sockaddr_in>() as u32;

// The calls, as the C library has them. SAFETY, for all: pointers to what is there.

pub fn socket(flags: c_int) -> Result {
    check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | flags, 0) })
}

pub fn connect(fd: c_int, port: u16) -> Result {
    let a = address(port);
    check(unsafe { libc::connect(fd, (&raw const a).cast(), LENGTH) })
}

pub fn bind(fd: c_int, port: u16) -> Result {
    let a = address(port);
    check(unsafe { libc::bind(fd, (&raw const a).cast(), LENGTH) })
}

pub fn local_port(fd: c_int) -> u16 {
    let (mut a, mut length) = (address(0), LENGTH);
    let r = unsafe { libc::getsockname(fd, (&raw mut a).cast(), &mut length) };
    assert_eq!(
        (r, length, c_int::from(a.sin_family)),
        (0, LENGTH, libc::AF_INET)
    );
    u16::from_be(a.sin_port)
}

pub fn get(fd: c_int, level: c_int, option: c_int) -> Result {
    let (mut value, mut length) = (0, 4);
    check(unsafe { libc::getsockopt(fd, level, option, (&raw mut value).cast(), &mut length) })?;
    Ok(value)
}

pub fn set(fd: c_int, level: c_int, option: c_int, value: c_int) -> Result {
    check(unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), 4) })
}

pub fn error(fd: c_int) -> Result<()> {
    match get(fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        e => Err(e),
    }
}

pub fn epoll() -> Result {
    check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

pub fn epoll_add(epoll: c_int, fd: c_int, events: c_int, data: u64) -> Result {
    let mut event = libc::epoll_event {
        events: events as u32,
        u64: data,
    };
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) })
}

/// One event: what was wanted with it.
pub fn epoll_wait(epoll: c_int) -> Result<(u32, u64)> {
    epoll_wait_for(epoll, 30_000)
}

pub fn epoll_wait_for(epoll: c_int, timeout: c_int) -> Result<(u32, u64)> {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    loop {
        match check(unsafe { libc::epoll_wait(epoll, &mut event, 1, timeout) }) {
            Ok(1) => return Ok((event.events, event.u64)),
            Ok(_) => return Err(libc::ETIMEDOUT),
            Err(libc::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
}

pub fn poll(fd: c_int, events: i16, timeout: c_int) -> Result<i16> {
    let mut one = pollfd {
        fd,
        events,
        revents: 0,
    };
    match check(unsafe { libc::poll(&mut one, 1, timeout) })? {
        0 => Err(libc::ETIMEDOUT),
        _ => Ok(one.revents),
    }
}

pub fn fork() -> c_int {
    unsafe { libc::fork() }
}

/// A child's success.
pub fn reap(child: c_int) -> Result<()> {
    let mut status = 0;
    check(unsafe { libc::waitpid(child, &mut status, 0) })?;
    match libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        true => Ok(()),
        false => Err(libc::ECHILD),
    }
}

/// Sends a text, and gets it back.
pub fn talk(fd: c_int) -> Result<()> {
    let text = *b"What comes back is what was sent.";
    let mut back = [0u8; 33];
    check(unsafe {
        libc::send(fd, text.as_ptr().cast(), text.len(), libc::MSG_NOSIGNAL) as c_int
    })?;
    let mut got = 0;
    while got < back.len() {
        let at: *mut c_void = back[got..].as_mut_ptr().cast();
        match check(unsafe { libc::recv(fd, at, back.len() - got, 0) as c_int }) {
            Ok(0) => return Err(libc::ECONNRESET),
            Ok(n) => got += n as usize,
            Err(libc::EAGAIN) => {
                poll(fd, libc::POLLIN, 30_000)?;
            }
            Err(e) => return Err(e),
        }
    }
    unsafe { libc::close(fd) };
    match back == text {
        true => Ok(()),
        false => Err(libc::EBADMSG),
    }
}

pub extern "C" fn nothing(_: c_int) {}

/// Answers one connection, to its end.
pub fn answer(fd: c_int) -> Result<()> {
    let mut part = [0u8; 4096];
    loop {
        let got =
            check(unsafe { libc::recv(fd, part.as_mut_ptr().cast(), part.len(), 0) as c_int });
        match got {
            Ok(0) => {
                unsafe { libc::close(fd) };
                return Ok(());
            }
            Ok(n) => {
                let flags = libc::MSG_NOSIGNAL;
                check(unsafe { libc::send(fd, part.as_ptr().cast(), n as usize, flags) as c_int })?;
            }
            Err(libc::EAGAIN) => {
                poll(fd, libc::POLLIN, 30_000)?;
            }
            Err(e) => return Err(e),
        }
    }
}

pub fn accept(fd: c_int) -> Result {
    check(unsafe { libc::accept(fd, ptr::null_mut(), ptr::null_mut()) })
}

pub fn listener() -> Result {
    let fd = socket(libc::SOCK_CLOEXEC)?;
    set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    bind(fd, 0)?;
    check(unsafe { libc::listen(fd, 5) })?;
    Ok(fd)
}

pub fn say_port(fd: c_int) {
    println!("{}", local_port(fd));
}
