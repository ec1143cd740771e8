// SPDX-License-Identifier: GPL-2.0-only

//! Pointers to the functions that libsdp replaces, as the C library or the next preloaded library
//! defines them.

use crate::sys;
use libc::{c_int, c_void, sockaddr, socklen_t};
use std::ffi::CStr;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Address of a function that was looked up, or null.
type Found = AtomicPtr<c_void>;

fn look_up(found: &Found, name: &CStr) -> *mut c_void {
    if found.load(Relaxed).is_null() {
        // SAFETY: the name ends with a zero.
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        found.store(next, Relaxed);
    }
    found.load(Relaxed)
}

macro_rules! next {
    ($($name:ident = $text:literal ($($argument:ident: $kind:ty),*);)*) => {
        $(
            /// Calls the next function with the given name.
            ///
            /// # Safety
            ///
            /// Same contract as the C library's function.
            #[inline]
            pub unsafe fn $name($($argument: $kind),*) -> c_int {
                let next = look_up(&looked_up::$name, $text);
                if next.is_null() {
                    sys::set_errno(libc::ENOSYS);
                    return -1;
                }
                // SAFETY: the function of the given name has the given arguments.
                let next: unsafe extern "C-unwind" fn($($kind),*) -> c_int = unsafe { mem::transmute(next) };
                // SAFETY: the caller guarantees valid arguments.
                unsafe { next($($argument),*) }
            }
        )*

        #[allow(non_upper_case_globals)]
        mod looked_up {
            $(pub static $name: super::Found = super::Found::new(super::ptr::null_mut());)*
        }

        /// Looks up all functions, so that no signal handler has to.
        pub fn resolve() {
            $(look_up(&looked_up::$name, $text);)*
        }
    };
}

next! {
    socket = c"socket" (domain: c_int, kind: c_int, protocol: c_int);
    bind = c"bind" (fd: c_int, address: *const sockaddr, length: socklen_t);
    listen = c"listen" (fd: c_int, backlog: c_int);
    connect = c"connect" (fd: c_int, address: *const sockaddr, length: socklen_t);
}
