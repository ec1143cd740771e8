// SPDX-License-Identifier: GPL-2.0-only

//! The protocol core of `ib_sdp`, built for the host so that it can be tested there.
//!
//! The kernel module has the very same sources as its module `protocol`; this file exists only
//! for cargo and adds nothing but the promises that the kernel build makes anyway.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_docs, unreachable_pub, rust_2018_idioms)]

#[path = "mod.rs"]
pub mod protocol;

pub use protocol::*;
