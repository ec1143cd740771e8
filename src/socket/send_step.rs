// SPDX-License-Identifier: GPL-2.0-only

//! Ways of the next bytes of a send call.

use crate::conn::send_queue::{OpenChunk, LARGE_CHUNK, MIDDLE_CHUNK, SMALL_CHUNK};
use crate::conn::{Connection, SdpSock};
use crate::memory::pressure;
use crate::sys::rdma::mapper::Mapper;
use crate::transport::Transport;
use kernel::sync::Arc;

/// Way of the next bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Copy into the send queue, to the [`Space`] of the call.
    Copy,
    /// Not now: the send queue is full.
    Full,
    /// Never: the connection is lost.
    Lost,
}

/// Space in the send queue for a copy. Its chunk is open: the holder closes it before anybody else
/// gets there, by the socket's lock.
#[derive(Default)]
pub(super) struct Space {
    /// Maximum number of bytes.
    pub(super) room: usize,
    /// Chunk to fill, if there is one.
    pub(super) chunk: Option<OpenChunk>,
    /// Size of the chunk to make.
    pub(super) size: usize,
    /// Mapper for the chunk to make.
    pub(super) mapper: Option<Arc<Mapper>>,
}

impl Step {
    /// Returns the step for copying `want` bytes.
    pub(super) fn copy(sk: &SdpSock, want: usize, space: &mut Space) -> Self {
        Self::to_copy(sk, &mut sk.connection(), want, space)
    }

    /// Returns the step for copying `want` bytes, under the lock.
    #[inline]
    pub(super) fn to_copy(
        sk: &SdpSock,
        c: &mut Connection,
        want: usize,
        space: &mut Space,
    ) -> Self {
        if !c.connected() {
            return Step::Lost;
        }
        // as on TCP, no more bytes than this may be unsent
        let enough = c.options.not_sent_lowat as usize;
        let is_enough = enough != 0 && c.tx.unsent() >= enough;
        let room = sk.sndbuf().saturating_sub(c.tx.queued());
        if is_enough || room == 0 || !c.tx.has_room() || c.lacks_memory() {
            return Step::Full;
        }
        // occasional sends need little memory, a flow few chunks
        let mut size = match want {
            _ if want > MIDDLE_CHUNK || c.tx.unsent() > 0 => LARGE_CHUNK,
            _ if want > SMALL_CHUNK => MIDDLE_CHUNK,
            _ => SMALL_CHUNK,
        };
        space.chunk = c.tx.open(size);
        if space.chunk.is_none() && pressure::is_exhausted() {
            size = SMALL_CHUNK;
            space.chunk = c.tx.open(size);
        }
        if space.chunk.is_none() {
            space.mapper = c.endpoint.as_ref().and_then(|c| c.mapper()).cloned();
        }
        (space.room, space.size) = (room, size);
        Step::Copy
    }
}
