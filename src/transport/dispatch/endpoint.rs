// SPDX-License-Identifier: GPL-2.0-only

//! End of a connection, over either transport.

use super::super::{
    local, rdma, Access, Arming, BlockId, BlockSpan, Completion, CopyJob, Key, Limits, NotifyOn,
    Pinned, Pinning, SendCompletion, SendWr, Transfer, Unacknowledged,
};
use crate::memory::spares::BlockPool;
use crate::sys::rdma::buffer::{Buffer, Sge};
use crate::sys::rdma::mapper::Mapper;
use kernel::prelude::*;
use kernel::sync::Arc;

/// One end of a connection for sending and receiving. May be dropped anywhere.
pub(crate) struct Endpoint {
    carrier: Carrier,
    /// Blocks for pinned memory that are not in use.
    spares: BlockPool,
}

/// Transport of an endpoint.
enum Carrier {
    /// By an RDMA device.
    Rdma(rdma::Endpoint),
    /// Within this kernel.
    Local(local::Endpoint),
}

/// Methods that call the one of the same name of the carrier.
macro_rules! of_the_carrier {
    (&self: $($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $($(#[$doc])*
        pub(crate) fn $name(&self, $($arg: $type),*) -> $result {
            match &self.carrier {
                Carrier::Rdma(c) => c.$name($($arg),*),
                Carrier::Local(c) => c.$name($($arg),*),
            }
        })*
    };
    (&mut self: $($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $($(#[$doc])*
        pub(crate) fn $name(&mut self, $($arg: $type),*) -> $result {
            match &mut self.carrier {
                Carrier::Rdma(c) => c.$name($($arg),*),
                Carrier::Local(c) => c.$name($($arg),*),
            }
        })*
    };
}

/// Methods of both transports.
impl Endpoint {
    of_the_carrier! { &self:
        limits() -> Limits;
        /// Returns the mapper for [`Buffer::map_receive`] and [`Buffer::map_send`], which a buffer
        /// needs once, without the lock, before [`Endpoint::post_receive`] or
        /// [`Endpoint::post_send`]. `None`: buffers need no mapping.
        mapper() -> Option<&Arc<Mapper>>;
        posted_receives() -> u16;
        /// Returns the number of messages that can still be posted.
        send_space() -> u16;
        /// Returns the number of messages posted and not known to be complete.
        in_flight() -> u16;
    }

    of_the_carrier! { &mut self:
        /// Posts a buffer for a received message. Returns the buffer if there is no space, if it is
        /// not mapped, or if the transport is broken.
        post_receive(b: Buffer) -> Result<(), Buffer>;
        /// Queues a message.
        ///
        /// The buffers may be dropped at once, but must not be written to before the message
        /// completes.
        ///
        /// # Errors
        ///
        /// `ENOSPC`: the queue is full. `EINVAL`: beyond the limits, or not mapped. `EIO`: the
        /// transport is broken.
        post_send(s: &SendWr<'_>) -> Result;
        /// Queues a message with payload from a block. [`SendCompletion::Moved`] follows, at the
        /// latest with the completion of a later signaled message.
        ///
        /// # Errors
        ///
        /// As [`Endpoint::post_send`], and `EINVAL`: more than [`Endpoint::block_payload`].
        /// `EBUSY`: the peer has access to the block. `ENOENT`: no such block.
        post_block_span(s: &SendWr<'_>, payload: &BlockSpan) -> Result;
        /// Returns the number of these bytes that one message can carry; 0 if messages cannot carry
        /// them.
        block_payload(payload: &BlockSpan) -> u32;
        /// Posts the queued requests to the device.
        ///
        /// # Errors
        ///
        /// The transport is broken; the connection has to be aborted.
        flush() -> Result;
        poll_receive() -> Option<Completion>;
        poll_send() -> Option<SendCompletion>;
        /// Arms the notification for the next completion of a receive. Cheap while an earlier
        /// request is still armed.
        arm_receive(of: NotifyOn) -> Arming;
        /// Arms the notification for the next completion of a send, like [`Endpoint::arm_receive`].
        arm_send() -> Arming;
        /// Takes over pinned memory as a block, for access by the device or the peer.
        ///
        /// # Errors
        ///
        /// The memory, if it was made for another transport, if nothing is pinned, or at the
        /// maximum number of blocks.
        post_block(p: Pinned) -> Result<BlockId, Pinned>;
        /// Returns the memory of a block.
        ///
        /// # Errors
        ///
        /// `EBUSY`: it may still be accessed. `ENOENT`: no such block.
        take_back(block: BlockId) -> Result<Pinned>;
        /// Registers a block for access by the peer and returns its key. Key and address are new
        /// each time.
        ///
        /// # Errors
        ///
        /// `ENOSPC`: no space now. `EBUSY`: the peer has access already. `EINVAL`: not pinned for
        /// this access, or registered before. `ENOENT`: no such block. `EIO`: the transport is
        /// broken.
        register(block: BlockId, access: Access) -> Result<Key>;
        /// Invalidates the peer's access; [`SendCompletion::Ended`] follows.
        ///
        /// # Errors
        ///
        /// `ENOSPC`: no space now. `EALREADY`: invalidated before. `EINVAL`: the peer has no
        /// access. `ENOENT`: no such block. `EIO`: the transport is broken.
        invalidate(block: BlockId, cookie: u64) -> Result;
        /// Queues an RDMA READ or WRITE, or the beginning of one, and returns the number of bytes
        /// queued; [`SendCompletion::Moved`] follows.
        ///
        /// # Errors
        ///
        /// `ENOSPC`: no space now, or the maximum number of READs is in flight. `EINVAL`: outside
        /// the block, not pinned for this access, no bytes, or an impossible address. `EBUSY`: the
        /// peer has access to the block. `ENOENT`: no such block. `ENOMEM`. `EIO`: the transport is
        /// broken.
        transfer(block: BlockId, t: &Transfer) -> Result<u32>;
    }
}

/// Methods that only one of the transports has, or that depend on neither.
impl Endpoint {
    pub(super) fn by_device(carrier: rdma::Endpoint) -> Self {
        Endpoint {
            spares: BlockPool::new(Pinning::new(carrier.mapper().cloned())),
            carrier: Carrier::Rdma(carrier),
        }
    }

    pub(super) fn here(carrier: local::Endpoint) -> Self {
        Endpoint {
            carrier: Carrier::Local(carrier),
            spares: BlockPool::new(Pinning::new(None)),
        }
    }

    /// Posts up to `n` buffers of `size` bytes that get their memory when a message arrives.
    /// Returns the number posted: 0 for a device, whose buffers need memory at once.
    pub(crate) fn post_without_memory(&mut self, size: usize, n: u16) -> u16 {
        match &mut self.carrier {
            Carrier::Rdma(_) => 0,
            Carrier::Local(c) => c.post_without_memory(size, n),
        }
    }

    /// Returns true if READs can be posted: both devices allow at least one in progress.
    pub(crate) fn can_read(&self) -> bool {
        match &self.carrier {
            Carrier::Local(_) => true,
            Carrier::Rdma(c) => c.can_read(),
        }
    }

    /// Destroys it, as far as possible here and not in a worker. Context: process, without locks.
    pub(crate) fn destroy(self) {
        match self.carrier {
            Carrier::Rdma(c) => drop(c),
            Carrier::Local(c) => c.destroy(),
        }
    }

    /// Returns true if the peer is in this kernel. Then messages may swap buffers
    /// ([`Endpoint::exchange`]), and each message states reliably if it is solicited.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.carrier, Carrier::Local(_))
    }

    /// Queues a message with the first `len` bytes of a buffer as payload. The buffer may be
    /// exchanged for another one of its size; its bytes are undefined afterwards.
    pub(crate) fn exchange(&mut self, s: &SendWr<'_>, buffer: &mut Buffer, len: u32) -> Result {
        if let Carrier::Local(c) = &mut self.carrier {
            if c.exchange(s, buffer, len)? {
                return Ok(());
            }
        }
        let sge = Sge {
            buffer,
            offset: 0,
            len,
        };
        self.post_send(&SendWr {
            payload: &[sge],
            ..*s
        })
    }

    /// Notifies the peer of all messages that have arrived, even if it has armed its notification
    /// for solicited ones only ([`Endpoint::is_local`]).
    pub(crate) fn poke(&mut self) {
        match &mut self.carrier {
            // it is notified of all
            Carrier::Rdma(_) => (),
            Carrier::Local(c) => c.poke(),
        }
    }

    /// Returns true if there is a copy job: a transfer queued by this end or by the peer that the
    /// caller has to copy itself. Always false without blocks.
    pub(crate) fn has_copy_job(&self) -> bool {
        match &self.carrier {
            Carrier::Rdma(_) => false,
            Carrier::Local(c) => c.has_copy_job(),
        }
    }

    /// Takes the copy job. The caller releases the lock, runs the job, and polls.
    pub(crate) fn copy_job(&mut self) -> Option<CopyJob> {
        match &mut self.carrier {
            Carrier::Rdma(_) => None,
            Carrier::Local(c) => c.copy_job(),
        }
    }

    /// Returns the size of the peer's buffer if a queued message waits for its memory. Each
    /// [`Endpoint::flush`] tries to allocate that. `None` for a device, whose buffers have memory.
    pub(crate) fn lacks_memory(&self) -> Option<usize> {
        match &self.carrier {
            Carrier::Rdma(_) => None,
            Carrier::Local(c) => c.lacks_memory(),
        }
    }

    /// Replaces the buffer without memory ([`Endpoint::lacks_memory`]).
    pub(crate) fn refill(&mut self, buffer: Buffer) {
        match &mut self.carrier {
            Carrier::Rdma(_) => (),
            Carrier::Local(c) => c.refill(buffer),
        }
    }

    /// Returns true if something was sent to a peer whose socket is closed.
    pub(crate) fn has_orphaned_peer(&self) -> bool {
        match &self.carrier {
            Carrier::Rdma(_) => false,
            Carrier::Local(c) => c.has_orphaned_peer(),
        }
    }

    /// Takes that peer. The caller releases the lock and drains it.
    pub(crate) fn take_orphaned_peer(&mut self) -> Option<local::OrphanedPeer> {
        match &mut self.carrier {
            Carrier::Rdma(_) => None,
            Carrier::Local(c) => c.take_orphaned_peer(),
        }
    }

    /// Returns true if there is a receive completion or, with `sent`, a send completion. Always
    /// false for a local end.
    pub(crate) fn has_completion(&mut self, sent: bool) -> bool {
        match &mut self.carrier {
            Carrier::Rdma(c) => c.has_completion(sent),
            Carrier::Local(_) => false,
        }
    }

    /// Returns true if the peer has messages to drain, as far as that is known.
    pub(crate) fn is_behind(&self) -> bool {
        match &self.carrier {
            Carrier::Rdma(_) => false,
            Carrier::Local(c) => c.is_behind(),
        }
    }

    /// Arms the notification by the peer's task once it has drained its messages. If
    /// [`Endpoint::is_behind`] returns false, only send completions are notified.
    pub(crate) fn arm_drain(&mut self) -> Arming {
        match &mut self.carrier {
            Carrier::Rdma(_) => Arming::Armed,
            Carrier::Local(c) => c.arm_drain(),
        }
    }

    /// Returns true if there are send completions to poll. Always false for a device, where a send
    /// seldom completes at once.
    pub(crate) fn has_ended_sends(&self) -> bool {
        match &self.carrier {
            Carrier::Rdma(_) => false,
            Carrier::Local(c) => c.has_ended_sends(),
        }
    }

    /// Returns the bytes of payload that have arrived and were not polled, as far as known.
    pub(crate) fn unpolled(&self) -> usize {
        match &self.carrier {
            Carrier::Rdma(_) => 0,
            Carrier::Local(c) => c.unpolled(),
        }
    }

    /// Queues a probe, which fails if the peer is gone; then the connection fails.
    pub(crate) fn probe(&mut self) -> Result {
        match &mut self.carrier {
            Carrier::Rdma(c) => c.probe(),
            // the peer is in this kernel
            Carrier::Local(_) => Ok(()),
        }
    }

    /// Returns the requests that the peer's device may not have acknowledged, if this device
    /// retries without end.
    pub(crate) fn unacknowledged(&self) -> Unacknowledged {
        match &self.carrier {
            Carrier::Rdma(c) => c.unacknowledged(),
            Carrier::Local(_) => Unacknowledged::Nothing,
        }
    }

    /// Returns the number of probes in flight, as of the last [`Endpoint::poll_send`].
    pub(crate) fn probes(&self) -> u16 {
        match &self.carrier {
            Carrier::Rdma(c) => c.probes(),
            Carrier::Local(_) => 0,
        }
    }

    /// Returns the allocator for [`Endpoint::post_block`]; `None` if the transport has none.
    pub(crate) fn pinning(&self) -> Option<Pinning> {
        let pinning = self.spares.pinning();
        (pinning.most_pages() != 0).then(|| pinning.clone())
    }

    pub(crate) fn spares(&mut self) -> &mut BlockPool {
        &mut self.spares
    }
}
