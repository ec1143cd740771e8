// SPDX-License-Identifier: GPL-2.0-only

//! The messages of a connection.
//!
//! A [`Channel`] is one end of a connection for sending and receiving: a QP, and the memory that is
//! posted or lent to it. The QP lives and dies with it.

use crate::memory::pinned::Pinned;
use crate::sys::bindings as c;
use crate::sys::rdma::buffer::Buffer;
use crate::sys::rdma::endpoint::Endpoint;
use crate::sys::rdma::mapper::Mapper;
use crate::sys::rdma::queues::WcStatus;
use crate::sys::rdma::send::queue::WcKind;
use crate::sys::rdma::work;
use crate::transport::{
    Access, Arming, Completion, Interest, Key, Limits, Loan, SendCompletion, Sending, Status,
    Transfer, Transport,
};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

/// What a channel consists of; destroyed by the workqueue.
#[pin_data]
struct Parts {
    endpoint: Endpoint<Pinned>,
    #[pin]
    work: Work<Parts>,
}

impl_has_work! {
    impl HasWork<Parts> for Parts { self.work }
}

impl WorkItem for Parts {
    type Pointer = Pin<KBox<Parts>>;

    fn run(this: Self::Pointer) {
        let lender = this.endpoint.lender();
        // Destroys the QP and lets go of lent memory, which sleeps.
        drop(this);
        if let Some(lender) = lender {
            lender.ready();
        }
    }
}

/// One end of a connection for sending and receiving.
pub(crate) struct Channel {
    /// `None` only while it is dropped.
    parts: Option<Pin<KBox<Parts>>>,
}

impl Channel {
    /// A channel by an endpoint.
    pub(super) fn new(endpoint: Endpoint<Pinned>) -> Result<Self> {
        let parts = KBox::pin_init(
            pin_init!(Parts {
                endpoint,
                work <- new_work!("ib_sdp_channel"),
            }),
            GFP_KERNEL,
        )?;
        Ok(Channel { parts: Some(parts) })
    }

    fn endpoint(&self) -> Option<&Endpoint<Pinned>> {
        self.parts.as_ref().map(|p| &p.endpoint)
    }

    fn endpoint_mut(&mut self) -> Option<&mut Endpoint<Pinned>> {
        self.parts.as_mut().map(|p| p.as_mut().project().endpoint)
    }

    /// See [`Endpoint::look`].
    pub(crate) fn look(&mut self, sent: bool) -> bool {
        self.endpoint_mut().is_some_and(|e| e.look(sent))
    }

    /// See [`Endpoint::probe`].
    pub(crate) fn probe(&mut self) -> Result {
        self.endpoint_mut().ok_or(EIO)?.probe()
    }

    /// See [`Endpoint::probes`].
    pub(crate) fn probes(&self) -> u16 {
        self.endpoint().map_or(0, Endpoint::probes)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            work::defer(parts);
        }
    }
}

fn status(s: WcStatus) -> Status {
    match s.0 {
        c::ib_wc_status_IB_WC_WR_FLUSH_ERR => Status::Flushed,
        c::ib_wc_status_IB_WC_RETRY_EXC_ERR | c::ib_wc_status_IB_WC_RESP_TIMEOUT_ERR => {
            Status::TransportRetry
        }
        c::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR => Status::RnrRetry,
        c::ib_wc_status_IB_WC_REM_INV_REQ_ERR
        | c::ib_wc_status_IB_WC_REM_ACCESS_ERR
        | c::ib_wc_status_IB_WC_REM_OP_ERR
        | c::ib_wc_status_IB_WC_REM_ABORT_ERR => Status::Remote,
        c::ib_wc_status_IB_WC_LOC_LEN_ERR | c::ib_wc_status_IB_WC_BAD_RESP_ERR => Status::Protocol,
        _ => Status::Local,
    }
}

impl Transport for Channel {
    fn limits(&self) -> Limits {
        let (send, receive_slots, reads, gather, pinned_pages) = match self.endpoint() {
            Some(e) => (
                e.send_limits(),
                e.receive_slots(),
                e.qp().reads(),
                e.gather(),
                e.mapper().most_pages() as u16,
            ),
            None => Default::default(),
        };
        Limits {
            send_slots: send.slots,
            receive_slots,
            spans: send.spans,
            beside: 0,
            reads,
            gather,
            pinned_pages,
        }
    }

    fn mapper(&self) -> Option<&Arc<Mapper>> {
        self.endpoint().map(Endpoint::mapper)
    }

    fn post_receive(&mut self, b: KBox<Buffer>) -> Result<(), KBox<Buffer>> {
        match self.endpoint_mut() {
            Some(e) => e.post_receive(b),
            None => Err(b),
        }
    }

    fn post_send(&mut self, s: &Sending<'_>) -> Result {
        self.endpoint_mut().ok_or(EIO)?.post_send(s)
    }

    fn flush(&mut self) -> Result {
        self.endpoint_mut().ok_or(EIO)?.flush()
    }

    fn poll_receive(&mut self) -> Option<Completion> {
        let r = self.endpoint_mut()?.poll_receive()?;
        Some(match r.buffer {
            Some(buffer) if r.status.is_success() => Completion::Received {
                buffer,
                len: r.len,
                head: None,
            },
            buffer => Completion::Failed {
                buffer,
                status: status(r.status),
            },
        })
    }

    fn poll_send(&mut self) -> Option<SendCompletion> {
        let s = self.endpoint_mut()?.poll_send()?;
        let cookie = s.cookie;
        Some(match s.kind {
            _ if !s.status.is_success() => SendCompletion::Failed {
                cookie,
                status: status(s.status),
            },
            WcKind::Message => SendCompletion::Sent { cookie },
            WcKind::Transfer(len) => SendCompletion::Moved { cookie, len },
            WcKind::Access => SendCompletion::Ended { cookie },
        })
    }

    /// Of all: other systems' senders mark urgent messages only, or none.
    fn arm_receive(&mut self, _of: Interest) -> Arming {
        self.endpoint_mut()
            .map_or(Arming::Armed, Endpoint::arm_receive)
    }

    fn arm_send(&mut self) -> Arming {
        self.endpoint_mut()
            .map_or(Arming::Armed, Endpoint::arm_send)
    }

    fn posted_receives(&self) -> u16 {
        self.endpoint().map_or(0, Endpoint::posted_receives)
    }

    fn send_room(&self) -> u16 {
        self.endpoint().map_or(0, Endpoint::send_room)
    }

    fn in_flight(&self) -> u16 {
        self.endpoint().map_or(0, Endpoint::in_flight)
    }

    fn lend(&mut self, p: Pinned) -> Result<Loan, Pinned> {
        match self.endpoint_mut() {
            Some(e) => e.lend(p),
            None => Err(p),
        }
    }

    fn reclaim(&mut self, loan: Loan) -> Result<Pinned> {
        self.endpoint_mut().ok_or(EIO)?.reclaim(loan)
    }

    fn register(&mut self, loan: Loan, access: Access) -> Result<Key> {
        self.endpoint_mut().ok_or(EIO)?.register(loan, access)
    }

    fn invalidate(&mut self, loan: Loan, cookie: u64) -> Result {
        self.endpoint_mut().ok_or(EIO)?.invalidate(loan, cookie)
    }

    fn transfer(&mut self, loan: Loan, t: &Transfer) -> Result<u32> {
        self.endpoint_mut().ok_or(EIO)?.transfer(loan, t)
    }

    fn direct_room(&self) -> u16 {
        self.endpoint().map_or(0, Endpoint::direct_room)
    }

    fn read_room(&self) -> u16 {
        self.endpoint().map_or(0, Endpoint::read_room)
    }
}
