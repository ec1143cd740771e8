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
    "serve-after-vfork",
    "serve-after-vfork-close",
    "serve-after-vfork-flags",
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
        "serve-after-vfork" | "serve-after-vfork-close" | "serve-after-vfork-flags" => {
            std::env::set_var("SDP_TEST_LISTENER", fd.to_string());
            let child = start_after_vfork(how, fd);
            reap(check(child)?)
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

/// Starts `serve-inherited`, as subprocess.Popen() of Python does it: a child that has this
/// process's memory until it executes it hands over the listener, and closes everything else.
fn start_after_vfork(how: &str, fd: c_int) -> c_int {
    extern "C" fn child(what: *mut libc::c_void) -> c_int {
        // SAFETY: what the parent has on its stack, which waits.
        let (how, fd) = unsafe { *what.cast::<(&str, c_int)>() };
        let own = c"/proc/self/exe";
        let arguments = [
            own.as_ptr(),
            c"--program".as_ptr(),
            c"serve-inherited".as_ptr(),
            ptr::null(),
        ];
        let number = fd as u32;
        // SAFETY: calls that such a child may make.
        unsafe {
            match how {
                "serve-after-vfork" => {
                    libc::ioctl(fd, libc::FIONCLEX);
                    libc::close_range(3, number - 1, 0);
                    libc::close_range(number + 1, u32::MAX, 0);
                }
                "serve-after-vfork-close" => {
                    libc::fcntl(fd, libc::F_SETFD, 0);
                    (3..2000).filter(|&other| other != fd).for_each(|other| {
                        libc::close(other);
                    });
                }
                _ => {
                    // CLOSE_RANGE_CLOEXEC
                    libc::close_range(3, u32::MAX, 4);
                    libc::fcntl(fd, libc::F_SETFD, 0);
                    libc::close_range(number + 1, u32::MAX, 4);
                }
            }
            // What is the listener's own is untouched: it waits for accept(2).
            let flags = libc::fcntl(fd, libc::F_GETFL);
            if flags & libc::O_NONBLOCK != 0 || libc::fcntl(fd, libc::F_SETFL, flags) != 0 {
                return 126;
            }
            libc::execv(own.as_ptr(), arguments.as_ptr());
        }
        127
    }
    let mut what = (how, fd);
    let mut stack = vec![0u8; 256 * 1024];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: a stack of its own, and what it is given stays until it has gone.
    unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast();
        libc::clone(child, top, flags, (&raw mut what).cast())
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
