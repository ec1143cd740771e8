// SPDX-License-Identifier: GPL-2.0-only

//! Programs that do one thing with themselves, and check it.

use super::calls::*;
use super::clients::{client, CLIENTS};
use libc::{c_int, c_void, pollfd};
use std::mem;
use std::ptr;

/// Programs that need no other.
pub const ALONE: &[&str] = &[
    "listener-flags",
    "listener-timeout",
    "descriptors-are-the-smallest",
    "closing-everything",
    "hidden-numbers",
    "port-in-use",
    "bound-options",
    "vfork-child",
    "many-threads",
    "cancelled",
    "fork-storm",
    "looks-like-tcp",
];

/// The library's descriptors, which are out of the program's way.
fn hidden_descriptors() -> Vec<c_int> {
    let all = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = all.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(|&fd: &c_int| fd > 900).collect()
}

fn count_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

pub fn alone(what: &str) -> Result<()> {
    match what {
        "listener-flags" => {
            let fd = listener()?;
            let flags = || check(unsafe { libc::fcntl(fd, libc::F_GETFL) });
            let before = flags()?;
            assert_eq!(before & libc::O_NONBLOCK, 0);
            let on: c_int = 1;
            check(unsafe { libc::ioctl(fd, libc::FIONBIO, &on) })?;
            assert_eq!(flags()?, before | libc::O_NONBLOCK);
            assert_eq!(accept(fd), Err(libc::EAGAIN));
            // Processes share the flag, as they share the listener.
            let child = fork();
            if child == 0 {
                let done = unsafe { libc::fcntl(fd, libc::F_SETFL, before) };
                unsafe { libc::_exit(done) };
            }
            reap(child)?;
            assert_eq!(flags()?, before);
            assert_eq!(get(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN), Ok(1));
        }
        "listener-timeout" => {
            let fd = listener()?;
            let time = libc::timeval {
                tv_sec: 0,
                tv_usec: 20_000,
            };
            check(unsafe {
                libc::setsockopt(
                    fd,
                    libc::SOL_SOCKET,
                    libc::SO_RCVTIMEO,
                    (&raw const time).cast(),
                    16,
                )
            })?;
            assert_eq!(accept(fd), Err(libc::EAGAIN));
            assert_eq!(poll(fd, libc::POLLIN, 10), Err(libc::ETIMEDOUT));
            // A listener that is shut down wakes its readers.
            let waiting = std::thread::spawn(move || poll(fd, libc::POLLIN, 30_000));
            check(unsafe { libc::shutdown(fd, libc::SHUT_RDWR) })?;
            assert!(waiting.join().is_ok_and(|r| r.is_ok()));
            assert_eq!(accept(fd), Err(libc::EINVAL));
        }
        "descriptors-are-the-smallest" => {
            let a = listener()?;
            let b = socket(0)?;
            assert_eq!(b, a + 1);
            let port = local_port(a);
            connect(b, port)?;
            let c = accept(a)?;
            assert_eq!(c, b + 1);
        }
        "closing-everything" => {
            let before = count_descriptors();
            for how in 0..3 {
                let fd = listener()?;
                let port = local_port(fd);
                match how {
                    0 => (fd..20_000).for_each(|fd| {
                        unsafe { libc::close(fd) };
                    }),
                    1 => {
                        check(unsafe { libc::close_range(fd as u32, u32::MAX, 0) })?;
                    }
                    _ => {
                        // All but the listener, which goes on listening on both.
                        check(unsafe { libc::close_range(fd as u32 + 1, u32::MAX, 0) })?;
                        let other = socket(0)?;
                        connect(other, port)?;
                        let third = accept(fd)?;
                        [fd, other, third].map(|fd| unsafe { libc::close(fd) });
                        continue;
                    }
                }
                let fd = socket(0)?;
                assert_eq!(connect(fd, port), Err(libc::ECONNREFUSED));
                unsafe { libc::close(fd) };
            }
            // The stand-in's own descriptor may have been closed, too.
            assert!(count_descriptors() <= before + 1);
        }
        "hidden-numbers" => {
            let fd = listener()?;
            let port = local_port(fd);
            // The program wants just the numbers that are in use behind its back.
            let null = check(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY) })?;
            let mut taken = 0;
            for entry in std::fs::read_dir("/proc/self/fd").map_err(|_| libc::EIO)? {
                let number = entry
                    .ok()
                    .and_then(|e| e.file_name().to_str()?.parse().ok());
                if let Some(number @ 1000..) = number {
                    check(unsafe { libc::dup2(null, number) })?;
                    taken += 1;
                }
            }
            assert_eq!(taken, 2);
            let other = socket(0)?;
            connect(other, port)?;
            assert_eq!(poll(fd, libc::POLLIN, 30_000), Ok(libc::POLLIN));
            accept(fd)?;
        }
        "port-in-use" => {
            let fd = listener()?;
            let other = socket(0)?;
            assert_eq!(bind(other, local_port(fd)), Err(libc::EADDRINUSE));
            assert_eq!(bind(other, 0), Ok(0));
            assert_ne!(local_port(other), local_port(fd));
            // Of its own port a socket can give notice.
            assert_eq!(bind(other, 0), Err(libc::EINVAL));
        }
        "bound-options" => {
            // Options of before bind(2) that cannot be set again, and options of after it.
            let v6 = unsafe { libc::socket(libc::AF_INET6, libc::SOCK_STREAM, 0) };
            set(v6, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
            let mut a: libc::sockaddr_in6 = unsafe { mem::zeroed() };
            a.sin6_family = libc::AF_INET6 as _;
            check(unsafe { libc::bind(v6, (&raw const a).cast(), mem::size_of_val(&a) as u32) })?;
            set(v6, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
            check(unsafe { libc::listen(v6, 5) })?;
            let hidden = hidden_descriptors().len();
            assert_eq!(hidden, 2, "a second listener, and what watches both");
            let fd = socket(0)?;
            bind(fd, 0)?;
            set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 50_000)?;
            let other = listener()?;
            connect(fd, local_port(other))?;
            assert_eq!(get(fd, libc::SOL_SOCKET, libc::SO_SNDBUF), Ok(100_000));
        }
        "vfork-child" => {
            let fd = listener()?;
            let port = local_port(fd);
            let before = hidden_descriptors().len();
            let mut child = 0;
            // A child that closes what it has inherited, in the parent's memory.
            let arguments = [c"true".as_ptr(), ptr::null()];
            // SAFETY: the child calls functions that may be called there.
            unsafe {
                let made = close_in_vfork(fd, &arguments);
                child = made.max(child);
            }
            reap(child)?;
            // The parent's are as they were.
            assert_eq!(hidden_descriptors().len(), before);
            let other = socket(0)?;
            connect(other, port)?;
            accept(fd)?;
        }
        "many-threads" => {
            let fd = listener()?;
            let port = local_port(fd);
            let server = std::thread::spawn(move || {
                for _ in 0..80 {
                    let one = accept(fd)?;
                    std::thread::spawn(move || answer(one));
                }
                Ok::<(), c_int>(())
            });
            let clients: Vec<_> = (0..8)
                .map(|number| {
                    std::thread::spawn(move || {
                        for turn in 0..10 {
                            let how = CLIENTS[(number + turn) % 8];
                            client(how, port)?;
                        }
                        Ok::<(), c_int>(())
                    })
                })
                .collect();
            for one in clients {
                one.join().unwrap_or(Err(libc::EFAULT))?;
            }
            server.join().unwrap_or(Err(libc::EFAULT))?;
        }
        "cancelled" => unsafe {
            // Threads that are cancelled while they wait in calls of the library's.
            let fd = listener()?;
            for start in [cancel_accept, cancel_poll] {
                let mut thread = 0;
                let argument = fd as usize as *mut c_void;
                assert_eq!(
                    libc::pthread_create(&mut thread, ptr::null(), start, argument),
                    0
                );
                assert_eq!(pthread_cancel(thread), 0);
                let mut result = ptr::null_mut();
                assert_eq!(libc::pthread_join(thread, &mut result), 0);
                assert_eq!(result as isize, -1, "PTHREAD_CANCELED");
            }
            let other = socket(0)?;
            connect(other, local_port(fd))?;
            accept(fd)?;
        },
        "fork-storm" => {
            // Forks while other threads change the table.
            let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let busy: Vec<_> = (0..2)
                .map(|_| {
                    let stop = stop.clone();
                    std::thread::spawn(move || {
                        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                            let fd = listener().unwrap_or(-1);
                            unsafe { libc::close(fd) };
                        }
                    })
                })
                .collect();
            for _ in 0..100 {
                let child = fork();
                if child == 0 {
                    let done = listener().and_then(|fd| {
                        let other = socket(0)?;
                        connect(other, local_port(fd))?;
                        accept(fd)
                    });
                    unsafe { libc::_exit(done.err().unwrap_or(0)) };
                }
                reap(child)?;
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            for one in busy {
                one.join().map_err(|_| libc::EFAULT)?;
            }
        }
        "looks-like-tcp" => {
            let fd = listener()?;
            let other = socket(0)?;
            connect(other, local_port(fd))?;
            let third = accept(fd)?;
            for one in [fd, other, third] {
                assert_eq!(
                    get(one, libc::SOL_SOCKET, libc::SO_DOMAIN),
                    Ok(libc::AF_INET)
                );
                assert_eq!(
                    get(one, libc::SOL_SOCKET, libc::SO_PROTOCOL),
                    Ok(libc::IPPROTO_TCP)
                );
                assert_eq!(
                    get(one, libc::SOL_SOCKET, libc::SO_TYPE),
                    Ok(libc::SOCK_STREAM)
                );
                assert_ne!(local_port(one), 0);
            }
        }
        _ => return Err(libc::EINVAL),
    }
    Ok(())
}

extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}

extern "C" fn cancel_accept(fd: *mut c_void) -> *mut c_void {
    unsafe { wait_forever(fd as usize as c_int, true) };
    ptr::null_mut()
}

extern "C" fn cancel_poll(fd: *mut c_void) -> *mut c_void {
    unsafe { wait_forever(fd as usize as c_int, false) };
    ptr::null_mut()
}

unsafe fn wait_forever(fd: c_int, by_accept: bool) {
    if by_accept {
        let _ = unsafe { libc::accept(fd, ptr::null_mut(), ptr::null_mut()) };
    } else {
        let mut one = pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        unsafe { libc::poll(&mut one, 1, -1) };
    }
}

/// A child that shares this process's memory until it executes something else.
unsafe fn close_in_vfork(fd: c_int, arguments: &[*const libc::c_char; 2]) -> c_int {
    extern "C" fn child(what: *mut c_void) -> c_int {
        // SAFETY: the pair that the parent has on its stack, which waits.
        let (fd, arguments) = unsafe { &*what.cast::<(c_int, *const *const libc::c_char)>() };
        // SAFETY: calls that such a child may make.
        unsafe {
            libc::close(*fd);
            libc::close_range(3, u32::MAX, 0);
            libc::execvp(**arguments, *arguments);
            127
        }
    }
    let mut pair = (fd, arguments.as_ptr());
    let mut stack = vec![0u8; 256 * 1024];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: a stack of its own, and what it is given stays until it has gone.
    unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast();
        libc::clone(child, top, flags, (&raw mut pair).cast())
    }
}
