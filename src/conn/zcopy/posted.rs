// SPDX-License-Identifier: GPL-2.0-only

//! Blocks posted to the transport, for transfers of this end or for access by the peer.

use super::advert::{Advert, AdvertState};
use crate::protocol::Block;
use crate::transport::{BlockId, Endpoint, Key, Watch};
use kernel::prelude::*;

/// Block posted to the transport.
#[derive(Clone)]
pub(super) struct Posted {
    pub(super) id: BlockId,
    /// Reports the release of memory that cannot be taken back.
    pub(super) watch: Watch,
}

impl From<Key> for Block {
    fn from(key: Key) -> Self {
        Block {
            size: key.len,
            r_key: key.rkey,
            address: key.address,
        }
    }
}

/// Posts the invalidation of a block if it is due and the queue has space.
pub(super) fn end_access(advert: &mut Advert<Posted>, endpoint: &mut Endpoint) -> Result {
    if advert.state == AdvertState::Done {
        match endpoint.invalidate(advert.memory.id, advert.cookie) {
            Ok(()) => advert.invalidating(),
            Err(e) if e == ENOSPC => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Flag in the cookie of a WRITE or message with the rest of a block; the other bits are the
/// block's cookie.
pub(super) const REST: u64 = 1 << 63;
