// SPDX-License-Identifier: GPL-2.0-only

//! What can be seen of the module from outside.

pub(crate) mod debug;
pub(crate) mod trace;
