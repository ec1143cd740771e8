// SPDX-License-Identifier: GPL-2.0-only

//! One connection, from Hello and HelloAck to the end of both streams.

mod receive;
mod transmit;

pub use self::receive::{Event, Received};
pub use self::transmit::{Hold, Offer, Outgoing, Transmit};

use super::adverts::PeerAdverts;
use super::credits::{ReceiveWindow, SendWindow};
use super::message::Mode;
use super::modes::Modes;
use super::resize::{LocalBuffers, RemoteBuffers};

/// What is fixed once Hello and HelloAck are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Size in bytes with BSDH of our receive buffers, as our Hello or HelloAck announced it.
    pub local_receive_size: u32,
    /// Size in bytes with BSDH of the peer's receive buffers: LocalRcvSz of its Hello or
    /// ActRcvSz of its HelloAck.
    pub remote_receive_size: u32,
    /// MaxAdverts that we announced.
    pub local_max_adverts: u16,
    /// MaxAdverts that the peer announced. 1 means that the peer is of OFED's line.
    pub remote_max_adverts: u16,
    /// Receive buffers that we announced (Bufs of our Hello or HelloAck). With fewer than three
    /// the peer can send nothing until more are posted; with three it works slowly, and not at
    /// all well with a peer that has three, too.
    pub posted: u16,
    /// Receive buffers that the peer announced (Bufs of its Hello or HelloAck): the credits at
    /// the start, which may be 0.
    pub credits: u16,
    /// Size in bytes with BSDH that the peer is asked for by ChRcvBuf under load; 0, or not more
    /// than `remote_receive_size`: never ask.
    pub desired_remote_size: u32,
}

/// Why nothing more comes or goes, other than by DisConn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The peer sent AbortConn.
    Aborted,
    /// The peer sent SuspComm.
    Suspended,
    /// The peer sent what it must not.
    Violated,
}

/// The protocol's state of one connection at one end.
///
/// Whoever owns it calls [`receive`](Connection::receive) for every message, in the order in
/// which they came, and [`transmit`](Connection::transmit) whenever something may have changed
/// (bytes to send, a message received, a SEND completed, receive buffers posted), until it says
/// that there is nothing to send. A message that it hands out has its place in the sequence and
/// must be posted, in that order.
#[derive(Clone, Debug)]
pub struct Connection {
    send: SendWindow,
    receive: ReceiveWindow,
    modes: Modes,
    adverts: PeerAdverts,
    local: LocalBuffers,
    remote: RemoteBuffers,
    remote_max_adverts: u16,
    /// OOB_PEND was sent for an urgent byte that was not.
    urgent_announced: bool,
    /// OOB_PEND came, and the urgent byte did not yet.
    urgent_expected: bool,
    /// Stream bytes came, and the peer was sent no message since: if it holds a small message back
    /// until then, it waits.
    unanswered: bool,
    /// Our stream ends with the bytes that are queued.
    send_shutdown: bool,
    /// Our DisConn was handed out.
    send_closed: bool,
    /// The peer's DisConn came.
    receive_closed: bool,
    end: Option<End>,
}

impl Connection {
    /// A connection whose Hello and HelloAck have been exchanged.
    pub fn new(parameters: &Parameters) -> Self {
        Connection {
            send: SendWindow::new(parameters.credits),
            receive: ReceiveWindow::new(parameters.posted),
            modes: Modes::new(),
            adverts: PeerAdverts::new(parameters.local_max_adverts),
            local: LocalBuffers::new(parameters.local_receive_size),
            remote: RemoteBuffers::new(
                parameters.remote_receive_size,
                parameters.desired_remote_size,
            ),
            remote_max_adverts: parameters.remote_max_adverts,
            urgent_announced: false,
            urgent_expected: false,
            unanswered: false,
            send_shutdown: false,
            send_closed: false,
            receive_closed: false,
            end: None,
        }
    }

    /// Ends our stream: a DisConn goes out behind the bytes that are queued, which are no longer
    /// held back for more. Bytes queued later than this call go before it, too, as long as
    /// [`send_closed`](Connection::send_closed) is false; better queue none.
    pub fn shutdown_send(&mut self) {
        self.send_shutdown = true;
    }

    /// Answers an [`Event::ReceiveSizeRequested`]: receive buffers that are posted from now on
    /// hold `new_size` bytes (with BSDH), and `old_posted` smaller ones are still posted and
    /// will be used first. The ChRcvBufAck goes out when those are used up.
    ///
    /// With a `new_size` that is not larger than the present one the wish is refused, and the
    /// answer goes out at once. Each request must be answered, one way or the other; without a
    /// request the call has no effect.
    ///
    /// The answer counts `new_size - 16` payload bytes for a peer of OFED's line, and a peer of
    /// our own line uses 16 bytes less than that: for messages of whole pages between our own
    /// ends, `new_size` should be the pages and 32 bytes.
    pub fn resize_receive(&mut self, new_size: u32, old_posted: u16) {
        self.local.decide(new_size, old_posted);
    }

    /// Most payload bytes that fit in one Data message to the peer.
    pub fn max_payload(&self) -> u32 {
        self.remote.payload()
    }

    /// Size in bytes with BSDH of our receive buffers, as far as the peer was told.
    pub fn receive_size(&self) -> u32 {
        self.local.size()
    }

    /// Messages that may be sent now by the peer's account. Payload needs three.
    pub fn credits(&self) -> u16 {
        self.send.credits()
    }

    /// Messages that the peer may still send by what it was told.
    pub fn peer_credits(&self) -> u16 {
        self.receive.credits()
    }

    /// MSeq of the last message handed out; 0 before the first.
    pub fn mseq_sent(&self) -> u32 {
        self.send.sent()
    }

    /// MSeq of the last message received; 0 before the first.
    pub fn mseq_received(&self) -> u32 {
        self.receive.received()
    }

    /// Messages sent that the peer has not acknowledged by an MSeqAck.
    pub fn unacknowledged(&self) -> u32 {
        self.send.unacknowledged()
    }

    /// Mode of what we send.
    pub fn send_mode(&self) -> Mode {
        self.modes.send
    }

    /// Mode of what we receive.
    pub fn receive_mode(&self) -> Mode {
        self.modes.receive
    }

    /// Whether our DisConn was handed out: nothing can be sent any more.
    pub fn send_closed(&self) -> bool {
        self.send_closed
    }

    /// Whether the peer's DisConn came: no more stream bytes follow.
    pub fn receive_closed(&self) -> bool {
        self.receive_closed
    }

    /// Whether both streams have ended by DisConn; the transport may be taken down.
    pub fn finished(&self) -> bool {
        self.send_closed && self.receive_closed
    }

    /// Whether the peer suspended the connection.
    pub fn suspended(&self) -> bool {
        self.end == Some(End::Suspended)
    }

    /// Whether the peer aborted the connection.
    pub fn aborted(&self) -> bool {
        self.end == Some(End::Aborted)
    }

    /// Whether [`transmit`](Connection::transmit) would send a credit update if it had nothing
    /// else to send, now that `posted` receive buffers are posted.
    pub fn credit_update_due(&self, posted: u16) -> bool {
        self.live() && self.receive.update_due(posted, self.send.credits())
    }

    /// Whether messages still make sense.
    fn live(&self) -> bool {
        self.end.is_none() && !self.finished()
    }

    /// Whether the peer is of our own line, by its MaxAdverts.
    fn own_line(&self) -> bool {
        self.remote_max_adverts > 1
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
