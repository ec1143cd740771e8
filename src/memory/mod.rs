// SPDX-License-Identifier: GPL-2.0-only

//! Memory of programs that bytes travel from and to without a copy ([`pinned`], as far as [`budget`]
//! allows), and cannot be written to meanwhile ([`protect`]); who is told when it is free again ([`notify`]).
//! How much the buffers of all sockets may take: [`pressure`]. What queues in one allocation: [`ring`].

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

pub(crate) mod budget;
pub(crate) mod notify;
pub(crate) mod pinned;
pub(crate) mod pressure;
pub(crate) mod protect;
pub(crate) mod ring;
pub(crate) mod spares;
