// SPDX-License-Identifier: GPL-2.0-only

//! Compiles the module's queue of blocks to send (`src/conn/zcopy/tx_blocks.rs`) unchanged.

#![expect(dead_code, reason = "the module uses all of it")]

#[path = "../../../../src/conn/zcopy/advert.rs"]
pub(crate) mod advert;
#[path = "../../../../src/conn/zcopy/tx_blocks.rs"]
pub(crate) mod tx_blocks;
