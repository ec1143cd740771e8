// SPDX-License-Identifier: GPL-2.0-only

//! Programs that know nothing of SDP: they call the C library as programs do, and print how it
//! went.

use libc::{c_int, c_void, pollfd};
use std::mem;
use std::process::ExitCode;
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
];

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

/// Programs that need no other.
pub const ALONE: &[&str] = &[
    "listener-flags",
    "listener-timeout",
    "descriptors-are-the-smallest",
    "closing-everything",
    "hidden-numbers",
    "port-in-use",
    "vfork-child",
    "many-threads",
    "cancelled",
    "fork-storm",
    "looks-like-tcp",
];

type Result<T = c_int> = std::result::Result<T, c_int>;

fn errno() -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() }
}

fn check(r: c_int) -> Result {
    if r < 0 {
        Err(errno())
    } else {
        Ok(r)
    }
}

fn name(e: c_int) -> String {
    match e {
        libc::ECONNREFUSED => "ECONNREFUSED".into(),
        e => format!("errno {e}"),
    }
}

fn address(port: u16) -> libc::sockaddr_in {
    // SAFETY: zeroes are an address.
    let mut a: libc::sockaddr_in = unsafe { mem::zeroed() };
    a.sin_family = libc::AF_INET as _;
    a.sin_port = port.to_be();
    a.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
    a
}

const LENGTH: u32 = mem::size_of::<libc::sockaddr_in>() as u32;

// The calls, as the C library has them. SAFETY, for all: pointers to what is there.

fn socket(flags: c_int) -> Result {
    check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | flags, 0) })
}

fn connect(fd: c_int, port: u16) -> Result {
    let a = address(port);
    check(unsafe { libc::connect(fd, (&raw const a).cast(), LENGTH) })
}

fn bind(fd: c_int, port: u16) -> Result {
    let a = address(port);
    check(unsafe { libc::bind(fd, (&raw const a).cast(), LENGTH) })
}

fn local_port(fd: c_int) -> u16 {
    let (mut a, mut length) = (address(0), LENGTH);
    let r = unsafe { libc::getsockname(fd, (&raw mut a).cast(), &mut length) };
    assert_eq!(
        (r, length, c_int::from(a.sin_family)),
        (0, LENGTH, libc::AF_INET)
    );
    u16::from_be(a.sin_port)
}

fn get(fd: c_int, level: c_int, option: c_int) -> Result {
    let (mut value, mut length) = (0, 4);
    check(unsafe { libc::getsockopt(fd, level, option, (&raw mut value).cast(), &mut length) })?;
    Ok(value)
}

fn set(fd: c_int, level: c_int, option: c_int, value: c_int) -> Result {
    check(unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), 4) })
}

fn error(fd: c_int) -> Result<()> {
    match get(fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        e => Err(e),
    }
}

fn epoll() -> Result {
    check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

fn epoll_add(epoll: c_int, fd: c_int, events: c_int, data: u64) -> Result {
    let mut event = libc::epoll_event {
        events: events as u32,
        u64: data,
    };
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) })
}

/// One event: what was wanted with it.
fn epoll_wait(epoll: c_int) -> Result<(u32, u64)> {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    loop {
        match check(unsafe { libc::epoll_wait(epoll, &mut event, 1, 30_000) }) {
            Ok(1) => return Ok((event.events, event.u64)),
            Ok(_) => return Err(libc::ETIMEDOUT),
            Err(libc::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
}

fn poll(fd: c_int, events: i16, timeout: c_int) -> Result<i16> {
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

fn fork() -> c_int {
    unsafe { libc::fork() }
}

/// A child's success.
fn reap(child: c_int) -> Result<()> {
    let mut status = 0;
    check(unsafe { libc::waitpid(child, &mut status, 0) })?;
    match libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        true => Ok(()),
        false => Err(libc::ECHILD),
    }
}

/// Sends a text, and gets it back.
fn talk(fd: c_int) -> Result<()> {
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

fn begin(fd: c_int, port: u16) -> Result<()> {
    match connect(fd, port) {
        Ok(_) | Err(libc::EINPROGRESS) => Ok(()),
        Err(e) => Err(e),
    }
}

fn client(how: &str, port: u16) -> Result<()> {
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
    let fd = socket(libc::SOCK_NONBLOCK)?;
    match how {
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

extern "C" fn nothing(_: c_int) {}

/// Answers one connection, to its end.
fn answer(fd: c_int) -> Result<()> {
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

fn accept(fd: c_int) -> Result {
    check(unsafe { libc::accept(fd, ptr::null_mut(), ptr::null_mut()) })
}

fn listener() -> Result {
    let fd = socket(libc::SOCK_CLOEXEC)?;
    set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    bind(fd, 0)?;
    check(unsafe { libc::listen(fd, 5) })?;
    Ok(fd)
}

fn say_port(fd: c_int) {
    println!("{}", local_port(fd));
}

fn server(how: &str) -> Result<()> {
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

fn serve(fd: c_int, next: impl Fn(c_int) -> Result) -> Result<()> {
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
fn echo() -> Result<()> {
    let fd = listener()?;
    say_port(fd);
    loop {
        let one = accept(fd)?;
        std::thread::spawn(move || answer(one));
    }
}

fn count_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn alone(what: &str) -> Result<()> {
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
        "vfork-child" => {
            let fd = listener()?;
            let port = local_port(fd);
            let mut child = 0;
            // A child that closes what it has inherited, in the parent's memory.
            let arguments = [c"true".as_ptr(), ptr::null()];
            // SAFETY: the child calls functions that may be called there.
            unsafe {
                let made = close_in_vfork(fd, &arguments);
                child = made.max(child);
            }
            reap(child)?;
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

pub fn run(what: &str) -> ExitCode {
    let port = || {
        let text = std::env::var("SDP_TEST_PORT").unwrap_or_default();
        text.parse().unwrap_or(1)
    };
    let done = if what == "echo" {
        echo()
    } else if what == "serve-inherited" {
        let fd = std::env::var("SDP_TEST_LISTENER").ok();
        let fd = fd.and_then(|f| f.parse().ok()).unwrap_or(-1);
        serve(fd, accept)
    } else if SERVERS.contains(&what) {
        server(what)
    } else {
        let done = if CLIENTS.contains(&what) {
            client(what, port())
        } else {
            alone(what)
        };
        match done {
            Ok(()) => println!("ok"),
            Err(e) => println!("{}", name(e)),
        }
        Ok(())
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{what}: {}", name(e));
            ExitCode::FAILURE
        }
    }
}
