// SPDX-License-Identifier: GPL-2.0-only

//! The two transports as one, so that whoever uses them need not know which one it is.
//!
//! A connection is local if its destination is an address of its own network namespace, and the
//! parameter `local_transport` allows that; [`Resolver::new`] decides. Requests come to the one
//! [`Acceptor`] from both.

mod cm;
mod endpoint;

pub(crate) use cm::{start, usable_address, Acceptor, CmLink, Request, Resolver};
pub(crate) use endpoint::Endpoint;
