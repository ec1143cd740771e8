// SPDX-License-Identifier: GPL-2.0-only

//! Memory that messages and their payload travel in: the module's own ([`buffer`]), and that of
//! programs ([`pinned`], as far as [`budget`] allows); [`ring`] is what they queue in.

pub(crate) mod access;
pub(crate) mod budget;
pub(crate) mod buffer;
pub(crate) mod pinned;
pub(crate) mod ring;
