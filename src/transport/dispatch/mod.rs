// SPDX-License-Identifier: GPL-2.0-only

//! The two transports as one, so that whoever uses them need not know which one it is.
//!
//! A connection is local if its destination is an address of its own network namespace, and the
//! parameter `local_transport` allows that; [`Resolver::new`] decides. Requests come to the one
//! [`Acceptor`] from both.

mod channel;
mod cm;

pub(crate) use channel::Channel;
pub(crate) use cm::{start, usable_address, Acceptor, Link, Request, Resolver};
