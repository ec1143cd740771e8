// SPDX-License-Identifier: GPL-2.0-only

//! Memory of programs that bytes travel from and to without a copy ([`pinned`], as far as [`budget`]
//! allows); [`ring`] is what it queues in.

pub(crate) mod access;
pub(crate) mod budget;
pub(crate) mod pinned;
pub(crate) mod ring;
