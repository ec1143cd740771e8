// SPDX-License-Identifier: GPL-2.0-only

//! Protocol core of `ib_sdp`, built as a host crate for the tests.
//!
//! The kernel module compiles the same sources as its module `protocol`. Only cargo uses `lib.rs`,
//! which repeats the lints of the kernel build.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_docs, unreachable_pub, rust_2018_idioms)]

#[path = "mod.rs"]
pub mod protocol;

pub use protocol::*;
