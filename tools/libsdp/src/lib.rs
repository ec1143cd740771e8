// SPDX-License-Identifier: GPL-2.0-only

//! `libsdp.so` is preloaded into a program and turns the TCP sockets of the program into sockets of
//! `IPPROTO_SDP`. The kernel then uses SDP or TCP in every call that takes a descriptor: SDP if the
//! peer supports it, TCP if not.
//!
//! Replacing socket(2) suffices without rules for addresses (`calls`). Rules of `libsdp.conf` may
//! name addresses and ports, so bind(2), connect(2) and listen(2) first pass the decision of the
//! rules to the kernel by `SDP_ROUTE`. The library stores nothing about any descriptor.
//!
//! # Rules for the code
//!
//! A signal handler may call the replaced functions, as may a child between vfork(2) and execve(2),
//! malloc, and other libraries before the constructors have run. Therefore none of the replaced
//! functions allocates or locks, and each reaches the C library's own function by a pointer that
//! the constructor has looked up. Only the constructor, which reads the rules, needs memory. A
//! thread may be cancelled in connect(2), which unwinds the stack, so the functions are `C-unwind`
//! and hold no resource during connect(2).

#![warn(unsafe_op_in_unsafe_fn)]
// The tests use parts of the library; with the replaced functions the test would preload itself.
#![cfg_attr(test, allow(dead_code))]

mod absent;
mod calls;
mod log;
mod real;
mod report;
mod sdp;
mod settings;
mod sys;

/// Runs when the library is loaded, before the program.
extern "C" fn constructor() {
    let errno = sys::errno();
    real::resolve();
    if let Some(problem) = settings::load() {
        log::write(settings::Level::Error, format_args!("{problem}"));
    }
    sdp::learn();
    sys::set_errno(errno);
}

#[cfg(not(test))]
#[used]
#[link_section = ".init_array"]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[cfg(test)]
const _: extern "C" fn() = constructor;
