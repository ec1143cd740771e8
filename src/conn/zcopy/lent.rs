// SPDX-License-Identifier: GPL-2.0-only

//! What the transport is told of memory that the peer gets access to: see
//! [`crate::protocol::Lent`].

use crate::protocol::Block;
use crate::transport::{Access, Channel, Loan, Pinned, Transport};
use kernel::prelude::*;

pub(super) use crate::protocol::Stage;

/// A piece of memory.
pub(super) type Lent = crate::protocol::Lent<Loan>;

/// Lends pinned memory and lets the peer access it. `cookie`: what to call the end of that.
///
/// # Errors
///
/// Gives the memory back, if it has not gone with the connection.
pub(super) fn lend(
    channel: &mut Channel,
    memory: Pinned,
    access: Access,
    cookie: u64,
) -> Result<Lent, Option<Pinned>> {
    let loan = channel.lend(memory).map_err(Some)?;
    let Ok(key) = channel.register(loan, access) else {
        return Err(channel.reclaim(loan).ok());
    };
    let block = Block {
        size: key.len,
        r_key: key.rkey,
        address: key.address,
    };
    Ok(Lent::new(loan, block, cookie))
}

/// Ends the peer's access to a piece if it is time to, as soon as there is room for that.
pub(super) fn end_access(lent: &mut Lent, channel: &mut Channel) -> Result {
    if lent.stage == Stage::Over {
        match channel.invalidate(lent.loan, lent.cookie) {
            Ok(()) => lent.ending(),
            Err(e) if e == ENOSPC => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
