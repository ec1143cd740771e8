// SPDX-License-Identifier: GPL-2.0-only

//! Connections by an RDMA device: InfiniBand, or RoCE.
//!
//! A connection has two halves that live apart. The [`Channel`] carries messages and belongs to
//! whoever holds the connection's lock. The [`Link`] is the connection towards the connection
//! manager, and makes upcalls to the connection's [`Owner`], in process context and one at a time.
//!
//! * [`resolve`]: from an IP address to a route, and from there to a link (active side);
//! * [`connect`]: REQ, and what its answer leads to;
//! * [`accept`]: requests that come in, listening (passive side);
//! * [`link`]: the life of a connection and its end;
//! * [`channel`]: the messages;
//! * [`device`]: devices that come and go, and what has to go with them.
//!
//! **Who keeps what.** An owner holds its `Channel`, `Link` and [`Resolver`]; they hold the owner
//! in turn. The owner breaks the ring by dropping them: when it is closed, when it is refused, and
//! on [`Owner::device_removed`], where the removal waits for it. All three may be dropped anywhere,
//! in upcalls and under spinlocks, because their parts are destroyed by the module's workqueue:
//! there the owner's last reference may be dropped, too. A link that is dropped while connected
//! says goodbye to the peer by itself.
//!
//! **Locks.** [`crate::sys::rdma::registry`] is a mutex and inner to all locks of the owner that
//! may sleep; no upcall is made under it. A link's state has a spinlock under which nothing is
//! called.

pub(crate) mod accept;
pub(crate) mod channel;
pub(crate) mod connect;
pub(crate) mod device;
pub(crate) mod link;
pub(crate) mod resolve;

pub(crate) use accept::{listen, Listening, Request};
pub(crate) use channel::Channel;
pub(crate) use device::{local_device_for, start, Service};
pub(crate) use link::Link;
pub(crate) use resolve::Resolver;

use super::{
    Acceptor, Attempt, Gone, LinkId, Net, Owner, SearchId, Verdict, REPLY_DATA, REQUEST_DATA,
};

/// Where SDP's service IDs begin; the port is added (IBA Annex A4).
pub(crate) const SERVICE_ID: u64 = 0x1_0000;

/// How a connection is to be.
#[derive(Clone, Copy)]
pub(crate) struct Config {
    /// Messages that can be on their way.
    pub(crate) send_slots: u16,
    /// Buffers that can wait for messages.
    pub(crate) receive_slots: u16,
    /// Pieces of payload per message.
    pub(crate) spans: u8,
    /// Length of a message up to which it is copied into the work request.
    pub(crate) inline: u16,
    /// How often a message is repeated that the peer does not acknowledge, up to 7; but rxe takes 7
    /// to mean without end.
    pub(crate) retry_count: u8,
    /// How often the peer repeats a message that finds no buffer here; 7 is without end.
    pub(crate) rnr_retry: u8,
    /// Code of the time after which it does (IBA table 45; 12 is 0.64 ms).
    pub(crate) min_rnr_timer: u8,
    /// RDMA READs in progress, in either direction.
    pub(crate) reads: u8,
    /// Pieces of memory in one RDMA READ or WRITE.
    pub(crate) gather: u8,
    /// Code of the time to wait for an answer to a REQ, REP or DREQ: 4.096 us times 2 to the power.
    /// With 18 and RoCE's path a REQ is repeated every 1.5 s.
    pub(crate) response_timeout: u8,
    /// How often it is repeated, up to 15.
    pub(crate) cm_retries: u8,
}

impl Default for Config {
    /// Sizes for which rxe, which rounds up to powers of two, wastes nothing.
    fn default() -> Self {
        Config {
            send_slots: 31,
            receive_slots: 31,
            spans: 2,
            inline: 48,
            retry_count: 6,
            rnr_retry: 7,
            min_rnr_timer: 12,
            reads: 4,
            // the most that fit rxe's 512 bytes for a work request
            gather: 19,
            response_timeout: 18,
            cm_retries: 15,
        }
    }
}
