// SPDX-License-Identifier: GPL-2.0-only

//! Messages of a connection.
//!
//! An [`Endpoint`] is one end of a connection for sending and receiving: a QP with its posted
//! buffers and blocks. All of these are destroyed together.

use super::registry;
use crate::memory::pinned::{Charged, Pinned, Pinning};
use crate::memory::spares::BlockPool;
use crate::sys::rdma::buffer::Buffer;
use crate::sys::rdma::device::DeviceRef;
use crate::sys::rdma::endpoint as verbs;
use crate::sys::rdma::mapper::Mapper;
use crate::sys::rdma::send::queue::Unacknowledged;
use crate::sys::work;
use crate::transport::{
    Access, Arming, BlockId, BlockSpan, Completion, Key, Limits, SendCompletion, SendWr, Transfer,
};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::workqueue::{impl_has_delayed_work, new_delayed_work, DelayedWork, WorkItem};

/// Delay before the first retry to destroy a QP that the driver has refused to destroy (ms).
/// Doubled by each retry.
const PAUSE: u32 = 20;
/// Number of times the delay doubles: up to 1.28 s.
const DOUBLINGS: u32 = 6;
/// Delay before the RCU grace period that the destruction of a QP waits for is expedited (ms): more
/// than the usual few ticks.
const GRACE: u32 = 20;
/// Number of refusals, in four seconds, after which the failure counts as permanent.
const MANY: u32 = 8;

/// Objects of an endpoint, destroyed by the workqueue.
#[pin_data]
struct DestroyWork {
    /// `None` only during construction and drop.
    endpoint: Option<verbs::Endpoint<Charged>>,
    device: DeviceRef,
    /// Number of times the driver has refused to destroy the QP.
    refused: u32,
    #[pin]
    work: DelayedWork<DestroyWork>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<DestroyWork> for DestroyWork { self.work }
}

impl DestroyWork {
    /// Retries later. All memory that the device may access stays, and so do the device and the
    /// owner, which keeps the module loaded.
    fn refused(mut self: Pin<KBox<Self>>, endpoint: verbs::Endpoint<Charged>) {
        // the QP accepts nothing more from a peer
        endpoint.qp().to_error();
        let this = self.as_mut().project();
        let pause = PAUSE << (*this.refused).min(DOUBLINGS);
        *this.refused = this.refused.saturating_add(1);
        if *this.refused == MANY {
            endpoint.qp().warn_of_refusal();
        }
        *this.endpoint = Some(endpoint);
        work::defer_by(self, pause);
    }
}

impl WorkItem for DestroyWork {
    type Pointer = Pin<KBox<DestroyWork>>;

    fn run(mut this: Self::Pointer) {
        let Some(mut endpoint) = this.as_mut().project().endpoint.take() else {
            return;
        };
        if endpoint.close() {
            *this.as_mut().project().endpoint = Some(endpoint);
            return work::defer_by(this, GRACE);
        }
        let lender = endpoint.lender();
        // Destroys the QP and releases all blocks. Sleeps.
        match endpoint.into_queues() {
            Ok(Some(queues)) => registry::keep_queues(&this.device, queues),
            Ok(None) => (),
            Err(endpoint) => return this.refused(endpoint),
        }
        if let Some(lender) = lender {
            lender.ready();
        }
    }
}

/// One end of a connection for sending and receiving. May be dropped in any context.
pub(crate) struct Endpoint {
    /// `None` only during the drop.
    remains: Option<Pin<KBox<DestroyWork>>>,
    /// Blocks for pinned memory that are not in use.
    spares: BlockPool,
}

impl Endpoint {
    /// Wraps an endpoint of the device.
    pub(super) fn new(
        device: &DeviceRef,
        make: impl FnOnce() -> Result<verbs::Endpoint<Charged>>,
    ) -> Result<Self> {
        let mut remains = KBox::pin_init(
            pin_init!(DestroyWork {
                endpoint: None,
                device: device.clone(),
                refused: 0,
                work <- new_delayed_work!("ib_sdp_endpoint"),
            }),
            GFP_KERNEL,
        )?;
        // last, since destroying it may take long
        let endpoint = make()?;
        let spares = BlockPool::new(Pinning::new(Some(endpoint.mapper().clone())));
        *remains.as_mut().project().endpoint = Some(endpoint);
        Ok(Endpoint {
            remains: Some(remains),
            spares,
        })
    }

    fn endpoint(&self) -> Option<&verbs::Endpoint<Charged>> {
        self.remains.as_ref()?.endpoint.as_ref()
    }

    fn endpoint_mut(&mut self) -> Option<&mut verbs::Endpoint<Charged>> {
        self.remains.as_mut()?.as_mut().project().endpoint.as_mut()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(endpoint) = self.endpoint() {
            endpoint.qp().give_up();
        }
        if let Some(remains) = self.remains.take() {
            work::defer(remains);
        }
    }
}

impl Endpoint {
    pub(crate) fn limits(&self) -> Limits {
        self.endpoint().map_or_else(Limits::default, |e| Limits {
            receive_slots: e.receive_slots(),
            max_sge: e.max_sge(),
            pinned_pages: e.mapper().most_pages() as u16,
            connector_first: e.qp().is_iwarp(),
        })
    }

    /// Returns the mapper for [`Buffer::map_receive`] and [`Buffer::map_send`], which a buffer
    /// needs once, without the lock, before [`Endpoint::post_receive`] or [`Endpoint::post_send`].
    pub(crate) fn mapper(&self) -> Option<&Arc<Mapper>> {
        self.endpoint().map(verbs::Endpoint::mapper)
    }

    pub(crate) fn spares(&mut self) -> &mut BlockPool {
        &mut self.spares
    }

    pub(crate) fn posted_receives(&self) -> u16 {
        self.endpoint().map_or(0, verbs::Endpoint::posted_receives)
    }

    /// Returns the number of messages that can still be posted.
    pub(crate) fn send_space(&self) -> u16 {
        self.endpoint().map_or(0, verbs::Endpoint::send_space)
    }

    /// Returns the number of messages posted and not known to be complete.
    pub(crate) fn in_flight(&self) -> u16 {
        self.endpoint().map_or(0, verbs::Endpoint::in_flight)
    }

    /// Returns true if READs can be posted: both devices allow at least one in progress.
    pub(crate) fn can_read(&self) -> bool {
        self.endpoint().is_some_and(|e| e.can_read())
    }

    /// Posts a buffer for a received message. Returns the buffer if there is no space, if it is not
    /// mapped, or if the transport is broken.
    pub(crate) fn post_receive(&mut self, b: Buffer) -> Result<(), Buffer> {
        match self.endpoint_mut() {
            Some(e) => e.post_receive(b),
            None => Err(b),
        }
    }

    /// Queues a message.
    ///
    /// The buffers may be dropped at once, but must not be written to before the message completes.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the queue is full. `EINVAL`: beyond the limits, or not mapped. `EIO`: the
    /// transport is broken.
    pub(crate) fn post_send(&mut self, s: &SendWr<'_>) -> Result {
        self.endpoint_mut().ok_or(EIO)?.post_send(s)
    }

    /// Queues a message with payload from a block. [`SendCompletion::Moved`] follows, at the latest
    /// with the completion of a later signaled message.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post_send`], and `EINVAL`: more than [`Endpoint::block_payload`]. `EBUSY`:
    /// the peer has access to the block. `ENOENT`: no such block.
    pub(crate) fn post_block_span(&mut self, s: &SendWr<'_>, payload: &BlockSpan) -> Result {
        self.endpoint_mut().ok_or(EIO)?.post_block_span(s, payload)
    }

    /// Returns the number of these bytes that one message can carry; 0 if messages cannot carry
    /// them.
    pub(crate) fn block_payload(&mut self, payload: &BlockSpan) -> u32 {
        self.endpoint_mut().map_or(0, |e| e.block_payload(payload))
    }

    /// Posts the queued requests to the device.
    ///
    /// # Errors
    ///
    /// The transport is broken; the connection has to be aborted.
    pub(crate) fn flush(&mut self) -> Result {
        self.endpoint_mut().ok_or(EIO)?.flush()
    }

    /// Returns true if there is a receive completion or, with `sent`, a send completion.
    pub(crate) fn has_completion(&mut self, sent: bool) -> bool {
        self.endpoint_mut().is_some_and(|e| e.has_completion(sent))
    }

    pub(crate) fn poll_receive(&mut self) -> Option<Completion> {
        Some(match self.endpoint_mut()?.poll_receive()? {
            Ok((buffer, len)) => Completion::Received { buffer, len },
            Err(status) => Completion::Failed { status },
        })
    }

    pub(crate) fn poll_send(&mut self) -> Option<SendCompletion> {
        self.endpoint_mut()?.poll_send()
    }

    /// Arms the notification for the next completion of a receive. Cheap while an earlier request
    /// is still armed.
    pub(crate) fn arm_receive(&mut self) -> Arming {
        self.endpoint_mut()
            .map_or(Arming::Armed, verbs::Endpoint::arm_receive)
    }

    /// Arms the notification for the next completion of a send, like [`Endpoint::arm_receive`].
    pub(crate) fn arm_send(&mut self) -> Arming {
        self.endpoint_mut()
            .map_or(Arming::Armed, verbs::Endpoint::arm_send)
    }

    /// Takes over pinned memory as a block, for access by the device or the peer.
    ///
    /// # Errors
    ///
    /// The memory, if it was made for another transport, if nothing is pinned, or at the maximum
    /// number of blocks.
    pub(crate) fn post_block(&mut self, p: Pinned) -> Result<BlockId, Pinned> {
        match self.endpoint_mut() {
            Some(e) => e.post_block(p),
            None => Err(p),
        }
    }

    /// Returns the memory of a block.
    ///
    /// # Errors
    ///
    /// `EBUSY`: it may still be accessed. `ENOENT`: no such block.
    pub(crate) fn take_back(&mut self, block: BlockId) -> Result<Pinned> {
        self.endpoint_mut().ok_or(EIO)?.take_back(block)
    }

    /// Registers a block for access by the peer and returns its key. Key and address are new each
    /// time.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: no space now. `EBUSY`: the peer has access already. `EINVAL`: not pinned for this
    /// access, or registered before. `ENOENT`: no such block. `EIO`: the transport is broken.
    pub(crate) fn register(&mut self, block: BlockId, access: Access) -> Result<Key> {
        self.endpoint_mut().ok_or(EIO)?.register(block, access)
    }

    /// Invalidates the peer's access; [`SendCompletion::Ended`] follows.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: no space now. `EALREADY`: invalidated before. `EINVAL`: the peer has no access.
    /// `ENOENT`: no such block. `EIO`: the transport is broken.
    pub(crate) fn invalidate(&mut self, block: BlockId, cookie: u64) -> Result {
        self.endpoint_mut().ok_or(EIO)?.invalidate(block, cookie)
    }

    /// Queues an RDMA READ or WRITE, or the beginning of one, and returns the number of bytes
    /// queued; [`SendCompletion::Moved`] follows.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: no space now, or the maximum number of READs is in flight. `EINVAL`: outside the
    /// block, not pinned for this access, no bytes, or an impossible address. `EBUSY`: the peer has
    /// access to the block. `ENOENT`: no such block. `ENOMEM`. `EIO`: the transport is broken.
    pub(crate) fn transfer(&mut self, block: BlockId, t: &Transfer) -> Result<u32> {
        self.endpoint_mut().ok_or(EIO)?.transfer(block, t)
    }

    /// Queues a probe, which fails if the peer is gone; then the connection fails.
    pub(crate) fn probe(&mut self) -> Result {
        self.endpoint_mut().ok_or(EIO)?.probe()
    }

    /// Returns the requests that the peer's device may not have acknowledged, if this device
    /// retries without end.
    pub(crate) fn unacknowledged(&self) -> Unacknowledged {
        self.endpoint()
            .map_or(Unacknowledged::Nothing, verbs::Endpoint::unacknowledged)
    }

    /// Returns the number of probes in flight, as of the last [`Endpoint::poll_send`].
    pub(crate) fn probes(&self) -> u16 {
        self.endpoint().map_or(0, verbs::Endpoint::probes)
    }
}
