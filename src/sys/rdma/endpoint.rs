// SPDX-License-Identifier: GPL-2.0-only

//! A QP with all its resources.
//!
//! An [`Endpoint`] is one end of a connection at the device: the QP, its own PD (so that no other
//! connection's peer can reach its registered memory), a CQ for receives and one for sends, and the
//! posted memory.

use super::super::bindings as c;
use super::super::debug::debug;
use super::block::OwnedBlock;
use super::context::Context;
use super::cq::{Arming, Ready};
use super::device::DeviceRef;
use super::mapper::{Mapper, MapperOwner};
use super::mr::{Access, Key};
use super::pd::Pd;
use super::qp::{OwnedQp, QueuePair};
use super::queues::{Status, MAX_COPIED, MAX_SGES, MAX_SLOTS};
use super::receive::{ReceiveParts, ReceiveQueue};
use super::send::blocks::{BlockId, BlockSpan, BlockTable, Transfer};
use super::send::message::SendWr;
use super::send::queue::{SendCompletion, SendParts, SendQueue, Unacknowledged};
use crate::sys::rdma::buffer::Buffer;
use core::ptr::NonNull;
use kernel::ffi::c_void;
use kernel::prelude::*;
use kernel::sync::{Arc, UniqueArc};

/// Asynchronous event of a QP.
pub(crate) enum QpEvent {
    /// The first message arrived before the connection manager received the RTU.
    Established,
    /// The QP has changed to ERR after a failure.
    Fatal,
}

pub(crate) trait QpEvents: Send + Sync + 'static {
    /// Context: any.
    fn event(self: Arc<Self>, event: QpEvent);
}

/// Sizes of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Maximum number of sends in flight.
    pub(crate) send_slots: u16,
    /// Maximum number of posted receive buffers.
    pub(crate) receive_slots: u16,
    /// Payload segments per message, at most [`MAX_SGES`].
    pub(crate) max_sge: u8,
    /// Maximum size of a message that is copied into the work request (inline), in bytes.
    pub(crate) inline: u16,
    /// Memory segments in one RDMA READ or WRITE.
    pub(crate) gather: u8,
}

impl Sizes {
    /// Limits the sizes to what the device supports.
    fn cut(&self, device: &DeviceRef) -> Self {
        let limits = device.attributes();
        let most = u16::try_from(limits.max_qp_wr.min(limits.max_cqe)).unwrap_or(u16::MAX);
        let most_sge = u8::try_from(limits.max_send_sge.clamp(1, 255)).unwrap_or(u8::MAX);
        let most_read = u8::try_from(limits.max_sge_rd.clamp(1, 255)).unwrap_or(u8::MAX);
        Sizes {
            send_slots: self.send_slots.clamp(2, most.clamp(2, MAX_SLOTS)),
            receive_slots: self.receive_slots.clamp(1, most.clamp(1, MAX_SLOTS)),
            max_sge: self.max_sge.min(MAX_SGES).min(most_sge.saturating_sub(1)),
            inline: self.inline.min(MAX_COPIED as u16),
            gather: self.gather.min(most_sge).min(most_read).max(1),
        }
    }
}

extern "C" fn qp_event(event: *mut c::ib_event, context: *mut c_void) {
    // SAFETY: The context was made by `Endpoint::new`. It is freed after the QP is destroyed, when
    // every call of this function has ended.
    let events = unsafe { &*context.cast::<Arc<dyn QpEvents>>() };
    // SAFETY: The driver passes a valid event.
    match unsafe { (*event).event } {
        c::ib_event_type_IB_EVENT_COMM_EST => events.clone().event(QpEvent::Established),
        c::ib_event_type_IB_EVENT_QP_FATAL
        | c::ib_event_type_IB_EVENT_QP_REQ_ERR
        | c::ib_event_type_IB_EVENT_QP_ACCESS_ERR => events.clone().event(QpEvent::Fatal),
        _ => (),
    }
}

/// Reusable parts of an endpoint: all except the QP and the memory of connections. Dropped in
/// process context.
///
/// The QP is always new: its number must not be reused while packets of the last one may be in
/// flight, and some drivers (irdma) do not support reuse of a QP.
///
/// # Invariants
///
/// No QP uses the CQs, and the PD has no other reference.
pub(crate) struct QueueSet {
    sizes: Sizes,
    receive: ReceiveParts,
    send: SendParts,
    pd: Arc<Pd>,
}

// SAFETY: No part is tied to a thread, as with an endpoint; the pointers of its work requests are
// unused.
unsafe impl Send for QueueSet {}

impl QueueSet {
    /// Returns true if the CQs work: a device may report a failure late.
    fn works(&self) -> bool {
        self.receive.works() && self.send.works()
    }

    fn new(device: &DeviceRef, sizes: &Sizes) -> Result<Self> {
        // one interrupt serves both CQs
        let vector = device.next_vector();
        let send_sges = sizes.max_sge.saturating_add(1);
        // INVARIANT: All parts are new.
        Ok(QueueSet {
            sizes: *sizes,
            receive: ReceiveParts::new(device, vector, sizes.receive_slots, 1)?,
            send: SendParts::new(device, vector, sizes.send_slots, send_sges)?,
            pd: Pd::new(device)?,
        })
    }
}

/// One end of a connection at the device. Dropped in process context; with blocks only by
/// [`Endpoint::into_queues`].
///
/// # Invariants
///
/// `qp` uses the CQs of `receive` and `send`, refers to `events`, and is the only QP of `send`'s
/// PD. It is destroyed before any of them: fields are dropped in this order.
pub(crate) struct Endpoint<T: Send + 'static> {
    qp: OwnedQp,
    send: SendQueue<T>,
    receive: ReceiveQueue,
    events: Context<Arc<dyn QpEvents>>,
    sizes: Sizes,
}

// SAFETY: No part of an endpoint is tied to a thread: verbs may be called by any, and the raw
// pointers are to memory that the endpoint owns.
unsafe impl<T: Send + 'static> Send for Endpoint<T> {}
// SAFETY: Shared references give access to numbers only.
unsafe impl<T: Send + 'static> Sync for Endpoint<T> {}

impl<T: Send + 'static> Endpoint<T> {
    /// Makes an endpoint, from `spare` if that fits. Sizes are reduced to what the device supports.
    pub(crate) fn new(
        device: &DeviceRef,
        sizes: &Sizes,
        spare: Option<QueueSet>,
        received: Arc<dyn Ready>,
        sent: Arc<dyn Ready>,
        events: Arc<dyn QpEvents>,
    ) -> Result<Self> {
        let sizes = sizes.cut(device);
        // All steps that can fail come before the QP, so that no error path has to destroy a QP.
        let fits = |q: &QueueSet| q.pd.device() == device && q.sizes == sizes && q.works();
        let queues = match spare.filter(fits) {
            Some(queues) => queues,
            None => QueueSet::new(device, &sizes)?,
        };
        let pd = queues.pd;
        let mapper = MapperOwner::new(&pd)?;
        let mut receive = ReceiveQueue::new(queues.receive, &mapper, pd.lkey());
        let blocks = BlockTable::new(sizes.gather);
        let mut send = SendQueue::new(queues.send, &mapper, sizes.max_sge, &pd, blocks)?;
        let events = Context::new(events)?;
        receive.begin(received);
        send.begin(sent);

        let cap = c::ib_qp_cap {
            max_send_wr: u32::from(sizes.send_slots),
            max_recv_wr: u32::from(sizes.receive_slots),
            max_send_sge: u32::from(sizes.gather.max(sizes.max_sge.saturating_add(1))),
            max_recv_sge: 1,
            max_inline_data: u32::from(sizes.inline),
            ..Default::default()
        };
        let mut init = c::ib_qp_init_attr {
            event_handler: Some(qp_event),
            qp_context: events.as_ptr(),
            send_cq: send.cq().raw(),
            recv_cq: receive.cq().raw(),
            cap,
            sq_sig_type: c::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: c::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        let made = create_qp(&pd, device, &mut init);
        debug!(
            "{device}: a queue pair for {} sends of {} pieces and {} bytes inline, {} receives: {:?}",
            sizes.send_slots,
            cap.max_send_sge,
            init.cap.max_inline_data,
            sizes.receive_slots,
            made.as_ref().map(|_| ())
        );
        let qp = made?;
        receive.attach(qp.qp());
        send.attach(
            qp.qp(),
            u16::try_from(init.cap.max_inline_data).unwrap_or(u16::MAX),
        );
        // INVARIANT: Made this way above.
        Ok(Endpoint {
            qp,
            send,
            receive,
            events,
            sizes,
        })
    }

    /// See [`OwnedQp::close`].
    pub(crate) fn close(&mut self) -> bool {
        self.qp.close()
    }

    /// Destroys the endpoint, except for the reusable parts if they work, and releases all blocks.
    /// Context: process.
    ///
    /// # Errors
    ///
    /// Returns the endpoint unchanged, with all that the device may still access, if the driver
    /// refuses to destroy the QP now. Retry later.
    pub(crate) fn into_queues(mut self) -> Result<Option<QueueSet>, Self> {
        if self.qp.destroy().is_err() {
            return Err(self);
        }
        drop(self.qp);
        // no callback runs any more
        drop(self.events);
        let pd = self.send.pd();
        let (receive, send) = (self.receive.into_parts(), self.send.into_parts());
        // Not if memory is still registered: it holds a reference.
        let pd = Arc::into_unique_or_drop(pd).filter(|pd| pd.is_clean());
        let (Some(pd), Some(receive), Some(send)) = (pd, receive, send) else {
            return Ok(None);
        };
        // INVARIANT: The QP is destroyed, and the PD had no other reference.
        Ok(Some(QueueSet {
            sizes: self.sizes,
            receive,
            send,
            pd: pd.into(),
        }))
    }

    pub(crate) fn qp(&self) -> &Arc<QueuePair> {
        self.qp.qp()
    }

    /// Returns the maximum number of posted receive buffers.
    pub(crate) fn receive_slots(&self) -> u16 {
        self.receive.slots()
    }

    /// Returns the number of posted receive buffers, including queued ones.
    pub(crate) fn posted_receives(&self) -> u16 {
        self.receive.posted()
    }

    /// See [`ReceiveQueue::post`].
    pub(crate) fn post_receive(&mut self, b: Buffer) -> Result<(), Buffer> {
        self.receive.post(b)
    }

    /// See [`ReceiveQueue::poll`].
    pub(crate) fn poll_receive(&mut self) -> Option<Result<(Buffer, u32), Status>> {
        self.receive.poll()
    }

    /// Returns true if a receive has completed, or, if `sent` is set, a send.
    pub(crate) fn has_completion(&mut self, sent: bool) -> bool {
        self.receive.has_completion() || sent && self.send.has_completion()
    }

    /// See [`ReceiveQueue::arm`].
    pub(crate) fn arm_receive(&mut self) -> Arming {
        self.receive.arm()
    }

    pub(crate) fn max_sge(&self) -> u8 {
        self.send.max_sge()
    }

    /// Returns the number of messages that can still be posted.
    pub(crate) fn send_space(&self) -> u16 {
        self.send.space()
    }

    /// Returns the number of messages posted and not known to be complete.
    pub(crate) fn in_flight(&self) -> u16 {
        self.send.in_flight()
    }

    /// See [`SendQueue::post`].
    pub(crate) fn post_send(&mut self, message: &SendWr<'_>) -> Result {
        self.send.post(message)
    }

    /// See [`SendQueue::post_block_span`].
    pub(crate) fn post_block_span(&mut self, message: &SendWr<'_>, payload: &BlockSpan) -> Result {
        self.send.post_block_span(message, payload)
    }

    /// See [`SendQueue::block_payload`].
    pub(crate) fn block_payload(&mut self, payload: &BlockSpan) -> u32 {
        self.send.block_payload(payload)
    }

    /// See [`SendQueue::can_read`].
    pub(crate) fn can_read(&self) -> bool {
        self.send.can_read()
    }

    /// See [`SendQueue::unacknowledged`].
    pub(crate) fn unacknowledged(&self) -> Unacknowledged {
        self.send.unacknowledged()
    }

    pub(crate) fn probes(&self) -> u16 {
        self.send.probes()
    }

    /// See [`SendQueue::probe`].
    pub(crate) fn probe(&mut self) -> Result {
        self.send.probe()
    }

    /// See [`SendQueue::poll`].
    pub(crate) fn poll_send(&mut self) -> Option<SendCompletion> {
        self.send.poll()
    }

    pub(crate) fn mapper(&self) -> &Arc<Mapper> {
        self.receive.mapper()
    }

    /// See [`SendQueue::post_block`].
    pub(crate) fn post_block(&mut self, block: OwnedBlock<T>) -> Result<BlockId, OwnedBlock<T>> {
        self.send.post_block(block)
    }

    /// See [`SendQueue::take_back`].
    pub(crate) fn take_back(&mut self, block: BlockId) -> Result<OwnedBlock<T>> {
        self.send.take_back(block)
    }

    /// See [`SendQueue::register`].
    pub(crate) fn register(&mut self, block: BlockId, access: Access) -> Result<Key> {
        self.send.register(block, access)
    }

    /// See [`SendQueue::invalidate`].
    pub(crate) fn invalidate(&mut self, block: BlockId, cookie: u64) -> Result {
        self.send.invalidate(block, cookie)
    }

    /// See [`SendQueue::transfer`].
    pub(crate) fn transfer(&mut self, block: BlockId, t: &Transfer) -> Result<u32> {
        self.send.transfer(block, t)
    }

    /// Returns the receiver of the notification of released blocks, if blocks are posted.
    pub(crate) fn lender(&self) -> Option<Arc<dyn Ready>> {
        self.send
            .has_blocks()
            .then(|| self.send.cq().ready())
            .flatten()
    }

    /// See [`SendQueue::arm`].
    pub(crate) fn arm_send(&mut self) -> Arming {
        self.send.arm()
    }

    /// Posts all queued requests to the device: receives first, so that replies find them.
    ///
    /// # Errors
    ///
    /// `EIO`: a CQ has failed. Others: from the driver. After an error the endpoint is unusable.
    pub(crate) fn flush(&mut self) -> Result {
        if self.receive.cq().has_failed() || self.send.cq().has_failed() {
            return Err(EIO);
        }
        self.receive.flush().and(self.send.flush())
    }
}

/// Makes a QP with the sizes in `init`, which returns the actual ones.
fn create_qp(pd: &Pd, device: &DeviceRef, init: &mut c::ib_qp_init_attr) -> Result<OwnedQp> {
    let place = UniqueArc::new_uninit(GFP_KERNEL)?;
    let create = |init: &mut c::ib_qp_init_attr| {
        // SAFETY: The PD exists, and `init` names CQs and handlers that outlive the QP.
        let qp = unsafe { c::ib_create_qp_kernel(pd.raw(), init, super::name()) };
        NonNull::new(kernel::error::from_err_ptr(qp)?).ok_or(ENOMEM)
    };
    let cap = init.cap;
    let raw = create(init).or_else(|_| {
        // Some drivers refuse unsupported values instead of reducing them.
        init.cap = c::ib_qp_cap {
            max_inline_data: 0,
            ..cap
        };
        create(init)
    })?;
    // SAFETY: The QP was made above for that device, and has no other owner.
    Ok(unsafe { OwnedQp::new(place, raw, device) })
}
