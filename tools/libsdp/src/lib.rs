// SPDX-License-Identifier: GPL-2.0-only

//! `libsdp.so`: preloaded into a program, it makes sockets of `IPPROTO_SDP` of the program's TCP
//! sockets. All else is the kernel's to do: SDP where the peer answers by it, TCP where it does not,
//! in every call that takes a descriptor.
//!
//! socket(2) is all that needs to be replaced for that (`calls`). Rules of `libsdp.conf` may speak of
//! addresses and ports, so bind(2), connect(2) and listen(2) tell the kernel what they say, by
//! `SDP_ROUTE`, before they go on. Nothing is remembered of any descriptor.
//!
//! # Rules for the code
//!
//! The functions that are replaced may be called by a signal handler, by a child between vfork(2) and
//! execve(2), by other libraries before the constructors have run, and by malloc. So none of them
//! allocates or locks, and each reaches the C library's own function by a pointer that the constructor
//! has looked up. Only the constructor, which reads the rules, needs memory. A thread may be cancelled in connect(2), which unwinds it, so the functions are `C-unwind`
//! and hold nothing then.

#![warn(unsafe_op_in_unsafe_fn)]
// The tests look at parts; with the functions themselves in it, the test would preload itself.
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
