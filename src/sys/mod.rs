// SPDX-License-Identifier: GPL-2.0-only

//! Safe wrappers of the kernel's C interfaces; the only folder with `unsafe`.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

pub(crate) mod address;
pub(crate) mod bindings;
pub(crate) mod byte_queue;
pub(crate) mod debug;
pub(crate) mod deferred;
pub(crate) mod errno;
mod flow;
pub(crate) mod net;
pub(crate) mod netns;
pub(crate) mod pages;
pub(crate) mod pin;
pub(crate) mod protect;
pub(crate) mod random;
pub(crate) mod rdma;
pub(crate) mod sync;
pub(crate) mod time;
pub(crate) mod vec;
pub(crate) mod watch;
pub(crate) mod work;
