// SPDX-License-Identifier: GPL-2.0-only

//! Messages of a connection.
//!
//! An [`Endpoint`] is one end of a connection for sending and receiving: a QP with its posted
//! buffers and blocks. All of these are destroyed together.

use super::registry;
use crate::memory::pinned::{Charged, Pinned};
use crate::sys::rdma::buffer::Buffer;
use crate::sys::rdma::device::DeviceRef;
use crate::sys::rdma::endpoint as verbs;
use crate::sys::rdma::mapper::Mapper;
use crate::sys::rdma::send::queue::Unacknowledged;
use crate::sys::work;
use crate::transport::{
    Access, Arming, BlockId, BlockSpan, Completion, Key, Limits, NotifyOn, SendCompletion, SendWr,
    Transfer,
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

/// One end of a connection for sending and receiving.
pub(crate) struct Endpoint {
    /// `None` only during the drop.
    remains: Option<Pin<KBox<DestroyWork>>>,
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
        *remains.as_mut().project().endpoint = Some(make()?);
        Ok(Endpoint {
            remains: Some(remains),
        })
    }

    fn endpoint(&self) -> Option<&verbs::Endpoint<Charged>> {
        self.remains.as_ref()?.endpoint.as_ref()
    }

    fn endpoint_mut(&mut self) -> Option<&mut verbs::Endpoint<Charged>> {
        self.remains.as_mut()?.as_mut().project().endpoint.as_mut()
    }

    /// See [`verbs::Endpoint::can_read`].
    pub(crate) fn can_read(&self) -> bool {
        self.endpoint().is_some_and(|e| e.can_read())
    }

    /// See [`verbs::Endpoint::has_completion`].
    pub(crate) fn has_completion(&mut self, sent: bool) -> bool {
        self.endpoint_mut().is_some_and(|e| e.has_completion(sent))
    }

    /// See [`verbs::Endpoint::probe`].
    pub(crate) fn probe(&mut self) -> Result {
        self.endpoint_mut().ok_or(EIO)?.probe()
    }

    /// See [`verbs::Endpoint::unacknowledged`].
    pub(crate) fn unacknowledged(&self) -> Unacknowledged {
        self.endpoint()
            .map_or(Unacknowledged::Nothing, verbs::Endpoint::unacknowledged)
    }

    /// See [`verbs::Endpoint::probes`].
    pub(crate) fn probes(&self) -> u16 {
        self.endpoint().map_or(0, verbs::Endpoint::probes)
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

/// See the methods of [`Endpoint`](crate::transport::Endpoint) with these names.
impl Endpoint {
    pub(crate) fn limits(&self) -> Limits {
        self.endpoint().map_or_else(Limits::default, |e| Limits {
            receive_slots: e.receive_slots(),
            max_sge: e.max_sge(),
            header_aside: 0,
            pinned_pages: e.mapper().most_pages() as u16,
            connector_first: e.qp().is_iwarp(),
        })
    }

    pub(crate) fn mapper(&self) -> Option<&Arc<Mapper>> {
        self.endpoint().map(verbs::Endpoint::mapper)
    }

    pub(crate) fn post_receive(&mut self, b: Buffer) -> Result<(), Buffer> {
        match self.endpoint_mut() {
            Some(e) => e.post_receive(b),
            None => Err(b),
        }
    }

    pub(crate) fn post_send(&mut self, s: &SendWr<'_>) -> Result {
        self.endpoint_mut().ok_or(EIO)?.post_send(s)
    }

    pub(crate) fn post_block_span(&mut self, s: &SendWr<'_>, payload: &BlockSpan) -> Result {
        self.endpoint_mut().ok_or(EIO)?.post_block_span(s, payload)
    }

    pub(crate) fn block_payload(&mut self, payload: &BlockSpan) -> u32 {
        self.endpoint_mut().map_or(0, |e| e.block_payload(payload))
    }

    pub(crate) fn flush(&mut self) -> Result {
        self.endpoint_mut().ok_or(EIO)?.flush()
    }

    pub(crate) fn poll_receive(&mut self) -> Option<Completion> {
        Some(match self.endpoint_mut()?.poll_receive()? {
            Ok((buffer, len)) => Completion::Received {
                buffer,
                len,
                head: None,
            },
            Err(status) => Completion::Failed { status },
        })
    }

    pub(crate) fn poll_send(&mut self) -> Option<SendCompletion> {
        self.endpoint_mut()?.poll_send()
    }

    /// Requests a notification of every message: other implementations set the solicited event for
    /// urgent messages only, or for none.
    pub(crate) fn arm_receive(&mut self, _of: NotifyOn) -> Arming {
        self.endpoint_mut()
            .map_or(Arming::Armed, verbs::Endpoint::arm_receive)
    }

    pub(crate) fn arm_send(&mut self) -> Arming {
        self.endpoint_mut()
            .map_or(Arming::Armed, verbs::Endpoint::arm_send)
    }

    pub(crate) fn posted_receives(&self) -> u16 {
        self.endpoint().map_or(0, verbs::Endpoint::posted_receives)
    }

    pub(crate) fn send_space(&self) -> u16 {
        self.endpoint().map_or(0, verbs::Endpoint::send_space)
    }

    pub(crate) fn in_flight(&self) -> u16 {
        self.endpoint().map_or(0, verbs::Endpoint::in_flight)
    }

    pub(crate) fn post_block(&mut self, p: Pinned) -> Result<BlockId, Pinned> {
        match self.endpoint_mut() {
            Some(e) => e.post_block(p),
            None => Err(p),
        }
    }

    pub(crate) fn take_back(&mut self, block: BlockId) -> Result<Pinned> {
        self.endpoint_mut().ok_or(EIO)?.take_back(block)
    }

    pub(crate) fn register(&mut self, block: BlockId, access: Access) -> Result<Key> {
        self.endpoint_mut().ok_or(EIO)?.register(block, access)
    }

    pub(crate) fn invalidate(&mut self, block: BlockId, cookie: u64) -> Result {
        self.endpoint_mut().ok_or(EIO)?.invalidate(block, cookie)
    }

    pub(crate) fn transfer(&mut self, block: BlockId, t: &Transfer) -> Result<u32> {
        self.endpoint_mut().ok_or(EIO)?.transfer(block, t)
    }
}
