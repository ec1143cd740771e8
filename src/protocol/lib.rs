// SPDX-License-Identifier: GPL-2.0-only

//! The protocol core of `ib_sdp`, built for the host so that it can be tested there.
//!
//! The kernel module compiles the same sources as its module `protocol`. This file exists for cargo
//! only, and repeats the lints of the kernel build.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_docs, unreachable_pub, rust_2018_idioms)]

#[path = "mod.rs"]
pub mod protocol;

pub use protocol::*;
