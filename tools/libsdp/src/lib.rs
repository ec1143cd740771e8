// SPDX-License-Identifier: GPL-2.0-only

//! `libsdp.so`: preloaded into a program, it puts the program's TCP sockets on SDP where the rules
//! of `libsdp.conf` say so, and leaves them on TCP where SDP cannot be had.
//!
//! # How
//!
//! A program's socket is what the program asked for, a TCP socket, until it is known whom it is
//! for: [`calls::connect`] or [`calls::listen`] then makes an SDP socket like it and puts that in
//! its place, under the same number. From there on the kernel does all the work, and the library
//! knows nothing of the descriptor any more. That leaves three kinds of descriptors that it has to
//! remember (see [`table`]):
//!
//! * a TCP socket that may yet become SDP: which options the program has set on it, and which
//!   epoll descriptors watch it, since these watch what a number stood for when it was added;
//! * a connection in the making that goes back to TCP if SDP fails: beside it the TCP socket is
//!   kept as it was, as a hidden descriptor, and connects when a call of the program comes to see
//!   SDP's failure (see [`calls::wait`]);
//! * a listener on both: the SDP listener is a hidden descriptor, and a hidden epoll descriptor
//!   watches both. Whatever the kernel can keep is kept there: that the program wants a listener
//!   that does not block is the flag of this epoll descriptor, which processes share as they share
//!   the listener.
//!
//! # Rules for the code
//!
//! Every function that the library replaces may be called by a signal handler, by a child between
//! vfork(2) and execve(2), by other libraries before the constructors have run, and by malloc. So
//! none of them allocates, none blocks while it holds the table, which blocks all signals, and each
//! reaches the C library's own function by a pointer that the constructor has looked up. What Rust's
//! library allocates when the rules are read comes from [`arena`], not from malloc. A thread may be
//! cancelled in a call that waits, which unwinds it, so functions that wait are `C-unwind` and hold
//! nothing then.

#![warn(unsafe_op_in_unsafe_fn)]
// The tests look at parts; with the functions themselves in it, the test would preload itself.
#![cfg_attr(test, allow(dead_code))]

mod arena;
mod calls;
mod inherit;
mod log;
mod options;
mod real;
mod replace;
mod settings;
mod sys;
mod table;

#[global_allocator]
static ARENA: arena::Arena = arena::Arena::new();

/// Runs when the library is loaded, before the program.
extern "C" fn constructor() {
    let errno = sys::errno();
    real::resolve();
    table::follow_forks();
    settings::get();
    inherit::listeners();
    sys::set_errno(errno);
}

#[cfg(not(test))]
#[used]
#[link_section = ".init_array"]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[cfg(test)]
const _: extern "C" fn() = constructor;
