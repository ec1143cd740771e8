// SPDX-License-Identifier: GPL-2.0-only

//! A QP with all its resources.
//!
//! An [`Endpoint`] is one end of a connection at the device: the QP, its own PD (so that no other
//! connection's peer can reach its registered memory), a CQ for receives, a CQ for sends, and the
//! posted memory.

use super::super::bindings as c;
use super::super::debug::debug;
use super::block::OwnedBlock;
use super::buffer::Buffer;
use super::cm::Config;
use super::cq::{Arming, EndpointEvents};
use super::device::DeviceRef;
use super::mapper::{Mapper, MapperOwner};
use super::mr::Key;
use super::pd::Pd;
use super::qp::{OwnedQp, QueuePair};
use super::queues::{Sizes, Status};
use super::receive::{ReceiveParts, ReceiveQueue};
use super::send::blocks::{BlockId, BlockSpan, Transfer};
use super::send::requests::SendWr;
use super::send::{SendCompletion, SendParts, SendQueue, Unacknowledged};
use core::ptr::NonNull;
use kernel::ffi::c_void;
use kernel::prelude::*;
use kernel::sync::{Arc, UniqueArc};

extern "C" fn qp_event(event: *mut c::ib_event, context: *mut c_void) {
    // SAFETY: The context was made by `Endpoint::new`. The context is freed after the QP is
    // destroyed, when every call of this function has ended.
    let events = unsafe { &*context.cast::<Arc<dyn EndpointEvents>>() };
    // SAFETY: The driver passes a valid event.
    match unsafe { (*event).event } {
        c::ib_event_type_IB_EVENT_COMM_EST => events.message_arrived(),
        c::ib_event_type_IB_EVENT_QP_FATAL
        | c::ib_event_type_IB_EVENT_QP_REQ_ERR
        | c::ib_event_type_IB_EVENT_QP_ACCESS_ERR => events.failed(),
        _ => (),
    }
}

/// Reusable parts of an endpoint: not the QP and the memory of connections. Drop: process.
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

// SAFETY: No part is tied to a thread, as with an endpoint; pointers of work requests are unused.
unsafe impl Send for QueueSet {}

impl QueueSet {
    /// Returns true if the CQs work: a device may report a failure late.
    fn works(&self) -> bool {
        !self.receive.cq.has_failed() && !self.send.cq.has_failed()
    }

    pub(crate) fn device(&self) -> &DeviceRef {
        self.pd.device()
    }

    fn new(device: &DeviceRef, sizes: &Sizes) -> Result<Self> {
        // one interrupt serves both CQs
        let vector = device.next_vector();
        let send_sges = sizes.max_sge.saturating_add(1);
        // INVARIANT: All parts are new.
        Ok(QueueSet {
            sizes: *sizes,
            receive: ReceiveParts::new(device, vector, sizes.receive_slots, 1, false)?,
            send: SendParts::new(device, vector, sizes.send_slots, send_sges, true)?,
            pd: Pd::new(device)?,
        })
    }
}

/// One end of a connection at the device. Dropped in process context; with blocks only by
/// [`Endpoint::into_queues`].
///
/// # Invariants
///
/// `qp` uses the CQs of `receive` and `send`, and is the only QP of `send`'s PD. `qp` refers to the
/// content of `events`, which does not change. The compiler drops fields in order, so the QP is
/// destroyed before its resources.
pub(crate) struct Endpoint<T: Send + 'static> {
    qp: OwnedQp,
    send: SendQueue<T>,
    receive: ReceiveQueue,
    events: KBox<Arc<dyn EndpointEvents>>,
    sizes: Sizes,
}

// SAFETY: No part of an endpoint is tied to a thread: verbs may be called by any, and the raw
// pointers are to memory that the endpoint owns.
unsafe impl<T: Send + 'static> Send for Endpoint<T> {}
// SAFETY: Shared references give access to numbers only.
unsafe impl<T: Send + 'static> Sync for Endpoint<T> {}

impl<T: Send + 'static> Endpoint<T> {
    /// Makes an endpoint, from `spare` if possible. Sizes are reduced to what the device supports.
    pub(crate) fn new(
        device: &DeviceRef,
        config: &Config,
        spare: Option<QueueSet>,
        events: Arc<dyn EndpointEvents>,
    ) -> Result<Self> {
        let sizes = Sizes::new(device, config.receive_slots, config.inline);
        // All steps that can fail precede the QP, so that no error path has to destroy a QP.
        let fits = |q: &QueueSet| q.device() == device && q.sizes == sizes && q.works();
        let queues = match spare.filter(fits) {
            Some(queues) => queues,
            None => QueueSet::new(device, &sizes)?,
        };
        let pd = queues.pd;
        let mapper = MapperOwner::new(&pd)?;
        let headers = SendQueue::<T>::headers(sizes.send_slots, &mapper)?;
        let events = KBox::new(events, GFP_KERNEL)?;

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
            qp_context: core::ptr::from_ref(&*events).cast_mut().cast(),
            send_cq: queues.send.cq.raw(),
            recv_cq: queues.receive.cq.raw(),
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
        let actual = Sizes {
            inline: u16::try_from(init.cap.max_inline_data).unwrap_or(u16::MAX),
            ..sizes
        };
        let receive = ReceiveQueue::new(qp.qp(), queues.receive, &mapper, &pd, events.clone());
        // INVARIANT: All parts were made above as the invariants require.
        Ok(Endpoint {
            send: SendQueue::new(
                qp.qp(),
                queues.send,
                headers,
                &mapper,
                &pd,
                actual,
                events.clone(),
            ),
            qp,
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
    /// Returns the endpoint unchanged, with all memory that the device may still access, if the
    /// driver refuses to destroy the QP now. Retry later.
    pub(crate) fn into_queues(mut self) -> Result<Option<QueueSet>, Self> {
        if self.qp.destroy().is_err() {
            return Err(self);
        }
        drop(self.qp);
        // no callback runs any more
        drop(self.events);
        let pd = self.send.pd.clone();
        let (receive, send) = (self.receive.into_parts(), self.send.into_parts());
        // the PD is not reused if memory is still registered, which holds a reference to the PD
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

    /// Returns true if a receive has completed, or, if `sent` is set, a send.
    pub(crate) fn has_completion(&mut self, sent: bool) -> bool {
        self.receive.parts.cq.has_completion() || sent && self.send.has_completion()
    }

    pub(crate) fn mapper(&self) -> &Arc<Mapper> {
        self.receive.mapper()
    }

    /// Returns the receiver of the notification of released blocks, if blocks are posted.
    pub(crate) fn lender(&self) -> Option<Arc<dyn EndpointEvents>> {
        self.send.blocks.is_in_use().then(|| self.events.clone())
    }

    /// Posts all queued requests to the device: receives first, so that replies find them.
    ///
    /// # Errors
    ///
    /// `EIO`: a CQ has failed. Others: the driver's. After an error the endpoint is unusable.
    pub(crate) fn flush(&mut self) -> Result {
        if self.receive.parts.cq.has_failed() || self.send.parts.cq.has_failed() {
            return Err(EIO);
        }
        self.receive.flush().and(self.send.flush())
    }
}

/// Defines methods of an endpoint that call the same method of one of its queues. With a reference
/// to a queue, a caller could move the queue to another endpoint.
macro_rules! queue_methods {
    ($(fn $name:ident($($argument:tt)*) $(-> $result:ty)? = $call:expr;)*) => {
        impl<T: Send + 'static> Endpoint<T> {$(
            pub(crate) fn $name($($argument)*) $(-> $result)? {
                $call
            }
        )*}
    };
}

queue_methods! {
    fn receive_slots(&self) -> u16 = self.receive.slots();
    fn posted_receives(&self) -> u16 = self.receive.posted;
    fn post_receive(&mut self, b: Buffer) -> Result<(), Buffer> = self.receive.post(b);
    fn poll_receive(&mut self) -> Option<Result<(Buffer, u32), Status>> = self.receive.poll();
    fn arm_receive(&mut self) -> Arming = self.receive.parts.cq.arm();

    fn max_sge(&self) -> u8 = self.send.sizes.max_sge;
    fn send_space(&self) -> u16 = self.send.space();
    fn in_flight(&self) -> u16 = self.send.messages;
    fn post_send(&mut self, message: &SendWr<'_>) -> Result = self.send.post(message);
    fn probe(&mut self) -> Result = self.send.probe();
    fn probes(&self) -> u16 = self.send.probes;
    fn unacknowledged(&self) -> Unacknowledged = self.send.unacknowledged();
    fn poll_send(&mut self) -> Option<SendCompletion> = self.send.poll();
    fn arm_send(&mut self) -> Arming = self.send.parts.cq.arm();

    fn post_block(&mut self, block: OwnedBlock<T>) -> Result<BlockId, OwnedBlock<T>> = self.send.post_block(block);
    fn take_back(&mut self, block: BlockId) -> Result<OwnedBlock<T>> = self.send.blocks.take_back(block);
    fn post_block_span(&mut self, message: &SendWr<'_>, payload: &BlockSpan) -> Result =
        self.send.post_block_span(message, payload);
    fn block_payload(&mut self, payload: &BlockSpan) -> u32 = self.send.block_payload(payload);
    fn register(&mut self, block: BlockId) -> Result<Key> = self.send.register(block);
    fn invalidate(&mut self, block: BlockId, cookie: u64) -> Result = self.send.invalidate(block, cookie);
    fn transfer(&mut self, block: BlockId, t: &Transfer) -> Result<u32> = self.send.transfer(block, t);
    fn can_read(&self) -> bool = self.send.most_reads() > 0;
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
    // SAFETY: The call above made the QP for `device`, and the QP has no other owner.
    Ok(unsafe { OwnedQp::new(place, raw, device) })
}
