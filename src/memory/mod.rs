// SPDX-License-Identifier: GPL-2.0-only

//! Memory that messages and their payload travel in.

pub(crate) mod buffer;
