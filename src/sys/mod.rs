// SPDX-License-Identifier: GPL-2.0-only

//! The one place with `unsafe`: the C side of the kernel behind safe types.

pub(crate) mod bindings;
pub(crate) mod layout;
