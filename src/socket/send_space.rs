// SPDX-License-Identifier: GPL-2.0-only

//! Space in the send queue for copied bytes of a send call.

use crate::conn::send_queue::{OpenChunk, LARGE_CHUNK, MIDDLE_CHUNK, SMALL_CHUNK};
use crate::conn::{Connection, SdpSock};
use crate::memory::pressure;
use crate::sys::errno::EPIPE;
use crate::sys::rdma::mapper::Mapper;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Space in the send queue for the next copied bytes. The chunk in this space is open: the holder
/// closes the chunk before it releases the socket lock.
#[derive(Default)]
pub(super) struct Space {
    /// Maximum number of bytes to copy.
    pub(super) bytes: usize,
    /// Chunk to copy to, if any.
    pub(super) chunk: Option<OpenChunk>,
    /// Size of the chunk to allocate.
    pub(super) size: usize,
    /// Mapper for the chunk to allocate.
    pub(super) mapper: Option<Arc<Mapper>>,
}

impl Space {
    /// Finds space for a copy of `want` bytes. Returns false if the send queue is full.
    ///
    /// Errors: `EPIPE`: the connection is lost.
    #[inline]
    pub(super) fn find(&mut self, sk: &SdpSock, c: &mut Connection, want: usize) -> Result<bool> {
        if !c.connected() {
            return Err(EPIPE.into());
        }
        // as on TCP, at most this many bytes may be unsent
        let enough = c.options.not_sent_lowat as usize;
        let is_enough = enough != 0 && c.tx.unsent() >= enough;
        let free = sk.sndbuf().saturating_sub(c.tx.queued());
        if is_enough || free == 0 || !c.tx.has_space() || c.lacks_memory() {
            return Ok(false);
        }
        // occasional sends should use little memory, streams few chunks
        let mut size = match want {
            _ if want > MIDDLE_CHUNK || c.tx.unsent() > 0 => LARGE_CHUNK,
            _ if want > SMALL_CHUNK => MIDDLE_CHUNK,
            _ => SMALL_CHUNK,
        };
        self.chunk = c.tx.open(size);
        if self.chunk.is_none() && pressure::is_exhausted() {
            size = SMALL_CHUNK;
            self.chunk = c.tx.open(size);
        }
        if self.chunk.is_none() {
            self.mapper = c.mapper();
        }
        (self.bytes, self.size) = (free, size);
        Ok(true)
    }
}
