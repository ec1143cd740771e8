// SPDX-License-Identifier: GPL-2.0-only

//! Servers: they answer three connections, or any number.

use super::calls::*;
use libc::c_int;
use std::mem;
use std::ptr;

/// Servers that serve three connections, by how they wait.
pub const SERVERS: &[&str] = &[
    "serve-accept",
    "serve-poll",
    "serve-select",
    "serve-epoll",
    "serve-epoll-before-listen",
    "serve-nonblocking",
    "serve-duplicate",
    "serve-in-a-child",
    "serve-after-exec",
    "serve-unbound",
    "serve-restarted",
    "serve-thread",
];

pub fn server(how: &str) -> Result<()> {
    if how == "serve-unbound" {
        let fd = socket(0)?;
        check(unsafe { libc::listen(fd, 5) })?;
        say_port(fd);
        return serve(fd, accept);
    }
    if how == "serve-epoll-before-listen" {
        let (fd, e) = (socket(0)?, epoll()?);
        bind(fd, 0)?;
        epoll_add(e, fd, libc::EPOLLIN | libc::EPOLLET, 4711)?;
        epoll_wait(e)?;
        check(unsafe { libc::listen(fd, 5) })?;
        say_port(fd);
        return serve(fd, |fd| {
            assert_eq!(epoll_wait(e)?.1, 4711);
            accept(fd)
        });
    }
    let mut fd = listener()?;
    say_port(fd);
    match how {
        "serve-accept" => serve(fd, accept),
        "serve-poll" => serve(fd, |fd| {
            assert_eq!(poll(fd, libc::POLLIN, 30_000)?, libc::POLLIN);
            accept(fd)
        }),
        "serve-select" => serve(fd, |fd| unsafe {
            let mut read: libc::fd_set = mem::zeroed();
            libc::FD_SET(fd, &mut read);
            let none = ptr::null_mut();
            assert_eq!(
                libc::select(fd + 1, &mut read, none, none, ptr::null_mut()),
                1
            );
            assert!(libc::FD_ISSET(fd, &read));
            accept(fd)
        }),
        "serve-epoll" => {
            let e = epoll()?;
            epoll_add(e, fd, libc::EPOLLIN, 4711)?;
            serve(fd, |fd| {
                assert_eq!(epoll_wait(e)?, (libc::EPOLLIN as u32, 4711));
                accept(fd)
            })
        }
        "serve-nonblocking" => {
            let flags = check(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
            check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
            serve(fd, |fd| loop {
                let none = ptr::null_mut();
                let r = unsafe { libc::accept4(fd, none, ptr::null_mut(), libc::SOCK_NONBLOCK) };
                match check(r) {
                    Err(libc::EAGAIN) => poll(fd, libc::POLLIN, 30_000)?,
                    other => return other,
                };
            })
        }
        "serve-duplicate" => {
            let other = check(unsafe { libc::dup(fd) })?;
            unsafe { libc::close(fd) };
            let third = check(unsafe { libc::fcntl(other, libc::F_DUPFD_CLOEXEC, 20) })?;
            check(unsafe { libc::dup2(third, 100) })?;
            unsafe { libc::close(third) };
            unsafe { libc::close(other) };
            fd = 100;
            serve(fd, accept)
        }
        "serve-in-a-child" => {
            let child = fork();
            if child == 0 {
                let done = serve(fd, accept);
                unsafe { libc::_exit(done.err().unwrap_or(0)) };
            }
            unsafe { libc::close(fd) };
            reap(child)
        }
        "serve-after-exec" => {
            check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) })?;
            std::env::set_var("SDP_TEST_LISTENER", fd.to_string());
            let own = c"/proc/self/exe";
            let arguments = [
                own.as_ptr(),
                c"--program".as_ptr(),
                c"serve-inherited".as_ptr(),
                ptr::null(),
            ];
            check(unsafe { libc::execv(own.as_ptr(), arguments.as_ptr()) }).map(drop)
        }
        "serve-restarted" => {
            // Handlers that restart calls: accept() has to go on after each signal.
            unsafe {
                libc::signal(libc::SIGALRM, nothing as extern "C" fn(c_int) as usize);
                let every = libc::timeval {
                    tv_sec: 0,
                    tv_usec: 2000,
                };
                let timer = libc::itimerval {
                    it_interval: every,
                    it_value: every,
                };
                libc::setitimer(libc::ITIMER_REAL, &timer, ptr::null_mut());
            }
            serve_with(fd, accept, |fd| {
                let never: libc::itimerval = unsafe { mem::zeroed() };
                let mut before = never;
                unsafe { libc::setitimer(libc::ITIMER_REAL, &never, &mut before) };
                let done = answer(fd);
                unsafe { libc::setitimer(libc::ITIMER_REAL, &before, ptr::null_mut()) };
                done
            })
        }
        "serve-thread" => std::thread::spawn(move || serve(fd, accept))
            .join()
            .unwrap_or(Err(libc::EFAULT)),
        _ => Err(libc::EINVAL),
    }
}

pub fn serve(fd: c_int, next: impl Fn(c_int) -> Result) -> Result<()> {
    serve_with(fd, next, answer)
}

fn serve_with(
    fd: c_int,
    next: impl Fn(c_int) -> Result,
    answer: impl Fn(c_int) -> Result<()>,
) -> Result<()> {
    for _ in 0..3 {
        answer(next(fd)?)?;
    }
    unsafe { libc::close(fd) };
    println!("served 3");
    Ok(())
}

/// Serves until it is ended.
pub fn echo() -> Result<()> {
    let fd = listener()?;
    say_port(fd);
    loop {
        let one = accept(fd)?;
        std::thread::spawn(move || answer(one));
    }
}
