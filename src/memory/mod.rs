// SPDX-License-Identifier: GPL-2.0-only

//! Zero-copy memory of programs: pinning and notification of the release ([`pinned`]), limits
//! ([`budget`]), and write protection ([`protect`]). [`pressure`] limits the buffers of all
//! sockets. [`ring`] is a queue in one allocation.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

pub(crate) mod budget;
pub(crate) mod pinned;
pub(crate) mod pressure;
pub(crate) mod protect;
pub(crate) mod ring;
pub(crate) mod spares;
