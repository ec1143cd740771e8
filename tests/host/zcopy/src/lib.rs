// SPDX-License-Identifier: GPL-2.0-only

//! Compiles the module's zero-copy files unchanged: those of `src/conn/zcopy` and `src/memory` that
//! need nothing but `core` and the protocol.

#![cfg(test)]
#![expect(dead_code, reason = "the module uses all of it")]

// The files call the protocol by its name in the module.
use sdp_protocol as protocol;

#[path = "../../../../src/conn/zcopy/advert.rs"]
mod advert;
#[path = "../../../../src/conn/zcopy/policy.rs"]
mod policy;
#[path = "../../../../src/memory/protect/record.rs"]
mod record;
#[path = "../../../../src/conn/zcopy/touches.rs"]
mod touches;
#[path = "../../../../src/conn/zcopy/transfer.rs"]
mod transfer;
#[path = "../../../../src/conn/zcopy/tx_blocks.rs"]
mod tx_blocks;
