// SPDX-License-Identifier: GPL-2.0-only

//! Checks the rules for sending from outside, by an independent computation.

use sdp_protocol::message::{Body, Message};

use crate::packet::Packet;

/// Messages that an end has sent and received so far.
#[derive(Debug)]
pub struct Audit {
    sent: u32,
    /// Bufs of the last message that the end received.
    bufs: u16,
    acked: u32,
    received: u32,
    /// MSeq of the last message that the peer has granted a credit for.
    edge: u32,
    /// Maximum payload of a message to the peer.
    payload: u32,
    asked: bool,
    closed: bool,
    /// True if the peer is an OFED peer.
    ofed: bool,
    /// MSeq of a SrcAvailCancel that waits for a READ.
    cancel: Option<u32>,
    /// Numbers of messages with stream bytes, of credit updates, and of all others.
    pub counts: [u64; 3],
}

impl Audit {
    /// `bufs` and `size` are the peer's, `posted` this end's own, from Hello and HelloAck.
    pub fn new(bufs: u16, size: u32, posted: u16, ofed: bool) -> Self {
        Audit {
            sent: 0,
            bufs,
            acked: 0,
            received: 0,
            edge: u32::from(posted),
            payload: size - 16,
            asked: false,
            closed: false,
            ofed,
            cancel: None,
            counts: [0; 3],
        }
    }

    /// Handles a message that the end has accepted; `reading`: its READs are in flight.
    pub fn received(&mut self, message: &Message, reading: bool) {
        if message.body == Body::SrcAvailCancel && reading {
            self.cancel = self.cancel.or(Some(message.mseq));
        }
        self.received = message.mseq;
        self.bufs = message.bufs;
        self.acked = message.mseq_ack;
        if let Body::ChRcvBufAck { size } = message.body {
            if std::mem::take(&mut self.asked) {
                self.payload = self.payload.max(size.saturating_sub(16));
            }
        }
    }

    /// Checks a message that the end sends. `posted`: number of the end's posted receive buffers.
    /// `reading`: true if READs are in flight.
    pub fn sending(&mut self, packet: &Packet, posted: u16, reading: bool) -> Result<(), String> {
        self.cancel = self.cancel.filter(|_| reading);
        let message = packet.message().ok_or("a malformed message was sent")?;
        let wrong = |what: &str| Err(format!("{what}: {}, {self:?}", packet.describe()));
        let credits = i64::from(self.bufs) - i64::from(self.sent.wrapping_sub(self.acked));
        let is_data = message.body == Body::Data;
        if message.mseq != self.sent.wrapping_add(1) {
            return wrong("MSeq out of order");
        }
        if message.mseq_ack != self.cancel.map_or(self.received, |mseq| mseq - 1) {
            return wrong("MSeqAck is not the last message received, or the last before a cancel");
        }
        let behind = self.received.wrapping_sub(message.mseq_ack);
        if u32::from(message.bufs) != u32::from(posted) + behind {
            return wrong("Bufs is not what is posted");
        }
        let advert = matches!(message.body, Body::SrcAvail(_));
        let stream = message.payload > 0 || advert || message.body == Body::DisConn;
        if stream && self.cancel.is_some() {
            return wrong("the stream goes on while MSeqAck is held back");
        }
        let most = match message.body {
            Body::Data => self.payload,
            Body::SrcAvail(_) => 1,
            _ => 0,
        };
        if message.payload > most {
            return wrong("more payload than fits");
        }
        if (message.payload > 0 || advert) && credits < 3 {
            return wrong("payload without three credits");
        }
        let answers = matches!(
            message.body,
            Body::SendSm
                | Body::RdmaRdCompl { .. }
                | Body::SrcAvailCancel
                | Body::RdmaWrCompl { .. }
                | Body::SinkAvailCancel
                | Body::SinkCancelAck
        );
        let edge = self.received.wrapping_add(u32::from(posted));
        let raises = (is_data || answers) && edge > self.edge;
        // an OFED peer waits only for the end of its advert
        let ends = matches!(message.body, Body::SendSm | Body::RdmaRdCompl { .. });
        let awaited = self.ofed && ends;
        if credits < 1 || (credits == 1 && !raises && !awaited) {
            return wrong("the last credit is not for this");
        }
        if credits == 2 && message.payload > 0 {
            return wrong("the reserve is not for payload");
        }
        if self.closed && (message.payload > 0 || message.body == Body::DisConn) {
            return wrong("the stream goes on after its end");
        }
        let kind = match (is_data, message.payload) {
            (true, 0) => 1,
            (true, _) => 0,
            _ => 2,
        };
        self.sent = message.mseq;
        self.edge = self.edge.max(edge);
        self.asked |= matches!(message.body, Body::ChRcvBuf { .. });
        self.closed |= message.body == Body::DisConn;
        self.counts[kind] += 1;
        Ok(())
    }
}
