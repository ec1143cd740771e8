// SPDX-License-Identifier: GPL-2.0-only

//! The C library's own functions, which are points of cancellation and which other preloaded
//! libraries may have replaced, too.

use crate::sys;
use libc::{c_int, c_void, nfds_t, size_t, sockaddr, socklen_t, ssize_t};
use std::ffi::CStr;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A function that is looked up once.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Next {
            name,
            found: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Its address; null if the C library has no such function.
    fn get(&self) -> *mut c_void {
        let found = self.found.load(Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: looks for a name that ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Relaxed);
        found
    }
}

macro_rules! next {
    ($($name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty;)*) => {
        #[allow(non_upper_case_globals)]
        mod looked_up {
            use super::*;
            $(pub static $name: Next = {
                // A name without a zero inside, and one at its end.
                const NAME: &[u8] = concat!(stringify!($name), "\0").as_bytes();
                Next::new(match CStr::from_bytes_with_nul(NAME) {
                    Ok(name) => name,
                    Err(_) => panic!(),
                })
            };)*
        }

        $(
            /// The next function of this name.
            ///
            /// # Safety
            ///
            /// That of the function.
            #[inline]
            pub unsafe fn $name($($argument: $kind),*) -> $result {
                let found = looked_up::$name.get();
                if found.is_null() {
                    sys::set_errno(libc::ENOSYS);
                    return -1;
                }
                // SAFETY: the function of this name has these arguments.
                let next: unsafe extern "C-unwind" fn($($kind),*) -> $result = unsafe { mem::transmute(found) };
                // SAFETY: by the caller.
                unsafe { next($($argument),*) }
            }
        )*

        /// Looks all of them up, so that no signal handler has to.
        pub fn resolve() {
            $(looked_up::$name.get();)*
        }
    };
}

next! {
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    listen(fd: c_int, backlog: c_int) -> c_int;
    connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    close(fd: c_int) -> c_int;
    fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    ioctl(fd: c_int, command: libc::c_ulong, argument: usize) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    sendto(fd: c_int, data: *const c_void, count: size_t, flags: c_int, to: *const sockaddr, length: socklen_t) -> ssize_t;
    sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t;
    poll(fds: *mut libc::pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll(fds: *mut libc::pollfd, count: nfds_t, timeout: *const libc::timespec, mask: *const libc::sigset_t) -> c_int;
    select(count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set,
           timeout: *mut libc::timeval) -> c_int;
    pselect(count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set,
            timeout: *const libc::timespec, mask: *const libc::sigset_t) -> c_int;
    epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int;
    epoll_wait(epoll: c_int, events: *mut libc::epoll_event, most: c_int, timeout: c_int) -> c_int;
    epoll_pwait(epoll: c_int, events: *mut libc::epoll_event, most: c_int, timeout: c_int, mask: *const libc::sigset_t) -> c_int;
    epoll_pwait2(epoll: c_int, events: *mut libc::epoll_event, most: c_int, timeout: *const libc::timespec,
                 mask: *const libc::sigset_t) -> c_int;
}
