// SPDX-License-Identifier: GPL-2.0-only

//! The functions that this library replaces, as the C library or the next preloaded library has them.

use crate::sys;
use libc::{c_int, c_void, sockaddr, socklen_t};
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
}
