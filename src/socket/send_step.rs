// SPDX-License-Identifier: GPL-2.0-only

//! By which way the next bytes of a send call go.

use crate::conn::send_queue::{OpenChunk, LARGE_CHUNK, MIDDLE_CHUNK, SMALL_CHUNK};
use crate::conn::{Connection, SdpSock};
use crate::memory::pressure;
use crate::sys::rdma::mapper::Mapper;
use crate::transport::Transport;
use kernel::sync::Arc;

/// How the next bytes of a call go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// To where the peer's reader waits.
    Write,
    /// So many of them as a block that the peer reads.
    Block(usize),
    /// The peer's reader is to be waited for, which others may use the queue meanwhile.
    AwaitReader,
    /// Copied into the send queue, to the [`Space`] of the call.
    Copy,
    /// Not now: the send queue has no room.
    Full,
    /// Not at all: there is no connection any more.
    Lost,
}

/// Where in the send queue bytes may be copied to. Its chunk is open: who has it closes it before anybody
/// else gets there, by the socket's lock.
#[derive(Default)]
pub(super) struct Space {
    /// So many bytes at most.
    pub(super) room: usize,
    /// The chunk to fill, if there is one.
    pub(super) chunk: Option<OpenChunk>,
    /// The size of one to make.
    pub(super) size: usize,
    /// What that is to be mapped by.
    pub(super) mapper: Option<Arc<Mapper>>,
}

impl Step {
    /// The one for `want` bytes that are copied.
    pub(super) fn copy(sk: &SdpSock, want: usize, space: &mut Space) -> Self {
        Self::to_copy(sk, &mut sk.hold(), want, space)
    }

    /// The same, with the lock.
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
        // as on TCP, no more than that waits to be sent
        let enough = c.options.not_sent_lowat as usize;
        let is_enough = enough != 0 && c.tx.unsent() >= enough;
        let room = sk.sndbuf().saturating_sub(c.tx.queued());
        if is_enough || room == 0 || !c.tx.has_room() || c.lacks_memory() {
            return Step::Full;
        }
        // a trickle needs little memory, a flow few chunks
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
