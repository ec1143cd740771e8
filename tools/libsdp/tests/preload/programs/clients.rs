// SPDX-License-Identifier: GPL-2.0-only

//! Clients: they connect, send, and get back what they sent.

use super::calls::*;
use libc::{c_int, pollfd};
use std::mem;
use std::ptr;

/// Clients of the echo server, by how they connect.
pub const CLIENTS: &[&str] = &[
    "blocking",
    "nonblocking-poll",
    "nonblocking-ppoll",
    "nonblocking-select",
    "nonblocking-pselect",
    "nonblocking-epoll",
    "epoll-before-connect",
    "epoll-oneshot",
    "connect-again",
    "error-only",
    "duplicated",
    "with-options",
    "bound",
    "in-a-child",
    "interrupted",
    "impatient-poll",
    "impatient-select",
    "impatient-epoll",
    "impatient-blocking",
    "twice",
];

/// How long the impatient ones wait, in milliseconds: less than SDP takes to fail.
const IMPATIENT: c_int = 1000;

fn begin(fd: c_int, port: u16) -> Result<()> {
    match connect(fd, port) {
        Ok(_) | Err(libc::EINPROGRESS) => Ok(()),
        Err(e) => Err(e),
    }
}

pub fn client(how: &str, port: u16) -> Result<()> {
    if how == "blocking" {
        let fd = socket(libc::SOCK_CLOEXEC)?;
        connect(fd, port)?;
        let flags = check(unsafe { libc::fcntl(fd, libc::F_GETFD) })?;
        assert_eq!(flags, libc::FD_CLOEXEC);
        return talk(fd);
    }
    if how == "in-a-child" {
        let fd = socket(0)?;
        let child = fork();
        if child == 0 {
            let done = connect(fd, port).and_then(|_| talk(fd));
            unsafe { libc::_exit(done.err().unwrap_or(0)) };
        }
        let mut status = 0;
        check(unsafe { libc::waitpid(child, &mut status, 0) })?;
        return match libc::WEXITSTATUS(status) {
            0 => Ok(()),
            e => Err(e),
        };
    }
    if how == "with-options" {
        let fd = socket(0)?;
        set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
        set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 50_000)?;
        connect(fd, port)?;
        assert_eq!(get(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY), Ok(1));
        assert_eq!(get(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE), Ok(1));
        assert_eq!(get(fd, libc::SOL_SOCKET, libc::SO_SNDBUF), Ok(100_000));
        return talk(fd);
    }
    if how == "bound" {
        let fd = socket(0)?;
        bind(fd, 0)?;
        let own = local_port(fd);
        connect(fd, port)?;
        assert_eq!(local_port(fd), own);
        return talk(fd);
    }
    if how == "interrupted" {
        // A handler that does not restart calls, and signals all the time.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
            libc::sigaction(libc::SIGALRM, &action, ptr::null_mut());
            let every = libc::timeval {
                tv_sec: 0,
                tv_usec: 300,
            };
            let timer = libc::itimerval {
                it_interval: every,
                it_value: every,
            };
            libc::setitimer(libc::ITIMER_REAL, &timer, ptr::null_mut());
        }
        let fd = socket(0)?;
        let done = loop {
            match connect(fd, port) {
                Ok(_) | Err(libc::EISCONN) => break Ok(()),
                Err(libc::EINTR | libc::EALREADY) => {}
                Err(e) => break Err(e),
            }
        };
        let never: libc::itimerval = unsafe { mem::zeroed() };
        unsafe { libc::setitimer(libc::ITIMER_REAL, &never, ptr::null_mut()) };
        return done.and_then(|()| talk(fd));
    }
    if how == "impatient-blocking" {
        let fd = socket(0)?;
        let time = libc::timeval {
            tv_sec: (IMPATIENT / 1000).into(),
            tv_usec: 0,
        };
        let set = || unsafe {
            let value: *const libc::timeval = &time;
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, value.cast(), 16)
        };
        check(set())?;
        connect(fd, port)?;
        let (mut left, mut length) = (time, 16);
        check(unsafe {
            let value: *mut libc::timeval = &mut left;
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_SNDTIMEO,
                value.cast(),
                &mut length,
            )
        })?;
        assert_eq!((left.tv_sec, left.tv_usec), (time.tv_sec, time.tv_usec));
        return talk(fd);
    }
    if how == "twice" {
        // Gives up before the library does, and tries once more.
        for last in [false, true] {
            let fd = socket(libc::SOCK_NONBLOCK)?;
            begin(fd, port)?;
            match poll(fd, libc::POLLOUT, 200) {
                Err(libc::ETIMEDOUT) if !last => {
                    unsafe { libc::close(fd) };
                }
                other => {
                    other?;
                    error(fd)?;
                    return talk(fd);
                }
            }
        }
    }
    let fd = socket(libc::SOCK_NONBLOCK)?;
    match how {
        "impatient-poll" => {
            begin(fd, port)?;
            // in small pieces, as a loop with other work does it
            let parts = (0..100).map(|_| poll(fd, libc::POLLOUT, IMPATIENT / 100));
            let mut waits = parts.skip_while(|r| *r == Err(libc::ETIMEDOUT));
            waits.next().unwrap_or(Err(libc::ETIMEDOUT))?;
        }
        "impatient-select" => {
            begin(fd, port)?;
            unsafe {
                let mut write: libc::fd_set = mem::zeroed();
                libc::FD_SET(fd, &mut write);
                let mut time = libc::timeval {
                    tv_sec: 0,
                    tv_usec: libc::suseconds_t::from(IMPATIENT) * 1000 - 1,
                };
                let none = ptr::null_mut();
                let r = libc::select(fd + 1, none, &mut write, none, &mut time);
                assert_eq!((r, libc::FD_ISSET(fd, &write)), (1, true));
            }
        }
        "impatient-epoll" => {
            begin(fd, port)?;
            let e = epoll()?;
            epoll_add(e, fd, libc::EPOLLOUT, 4711)?;
            assert_eq!(epoll_wait_for(e, IMPATIENT)?.1, 4711);
        }
        "nonblocking-poll" => {
            begin(fd, port)?;
            poll(fd, libc::POLLOUT, 30_000)?;
        }
        "nonblocking-ppoll" => {
            begin(fd, port)?;
            let mut one = pollfd {
                fd,
                events: libc::POLLOUT,
                revents: 0,
            };
            check(unsafe { libc::ppoll(&mut one, 1, ptr::null(), ptr::null()) })?;
        }
        "nonblocking-select" | "nonblocking-pselect" => {
            begin(fd, port)?;
            unsafe {
                let mut write: libc::fd_set = mem::zeroed();
                libc::FD_SET(fd, &mut write);
                let none = ptr::null_mut();
                let r = if how == "nonblocking-select" {
                    let mut time = libc::timeval {
                        tv_sec: 30,
                        tv_usec: 0,
                    };
                    libc::select(fd + 1, none, &mut write, none, &mut time)
                } else {
                    libc::pselect(fd + 1, none, &mut write, none, ptr::null(), ptr::null())
                };
                assert_eq!((r, libc::FD_ISSET(fd, &write)), (1, true));
            }
        }
        "nonblocking-epoll" => {
            begin(fd, port)?;
            let e = epoll()?;
            epoll_add(e, fd, libc::EPOLLOUT, 4711)?;
            assert_eq!(epoll_wait(e)?.1, 4711);
        }
        "epoll-before-connect" => {
            let e = epoll()?;
            let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
            epoll_add(e, fd, events, 4711)?;
            // What an unconnected socket has to say.
            assert_eq!(epoll_wait(e)?.0, (libc::EPOLLOUT | libc::EPOLLHUP) as u32);
            begin(fd, port)?;
            assert_eq!(epoll_wait(e)?.1, 4711);
        }
        "epoll-oneshot" => {
            begin(fd, port)?;
            let e = epoll()?;
            epoll_add(e, fd, libc::EPOLLOUT | libc::EPOLLONESHOT, 4711)?;
            assert_eq!(epoll_wait(e)?.1, 4711);
        }
        "connect-again" => loop {
            match connect(fd, port) {
                Ok(_) | Err(libc::EISCONN) => break,
                Err(libc::EINPROGRESS | libc::EALREADY) => {}
                Err(e) => return Err(e),
            }
        },
        "error-only" => {
            begin(fd, port)?;
            // Who looks at the error first, and does not wait by a call of the library's.
            error(fd)?;
            poll(fd, libc::POLLOUT, 30_000)?;
        }
        "duplicated" => {
            let other = check(unsafe { libc::dup(fd) })?;
            begin(fd, port)?;
            poll(other, libc::POLLOUT, 30_000)?;
            error(other)?;
            unsafe { libc::close(fd) };
            return talk(other);
        }
        _ => return Err(libc::EINVAL),
    }
    error(fd)?;
    // connected, and nothing else
    assert_eq!(
        poll(fd, libc::POLLOUT | libc::POLLRDHUP, 0),
        Ok(libc::POLLOUT)
    );
    talk(fd)
}
