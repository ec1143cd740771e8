// SPDX-License-Identifier: GPL-2.0-only

//! Handles received messages.

use core::ops::Range;

use super::super::message::{Block, Body, Flags, Message, Mid, Mode, SinkAvail};
use super::super::Violation;
use super::{Connection, CONTROL_CREDITS, PAYLOAD_CREDITS};

/// Events for the layer above, in addition to payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// No event.
    None,
    /// The peer's stream ends after the bytes received so far.
    PeerClosed,
    /// The peer has aborted the connection.
    PeerAborted,
    /// The peer has suspended the connection, to rebuild it at another service ID. This end does
    /// not connect to that service, so the connection ends, without an error.
    Suspended,
    /// The peer requests receive buffers of this size in bytes, which includes the BSDH in some
    /// implementations. The owner replies by [`Connection::resize_receive`].
    ReceiveSizeRequested(u32),
    /// The peer advertises a block of its stream ([`Connection::source_advert`]).
    SourceAdvert,
    /// The peer has read the oldest source advert of this end, or a part of it.
    SourceRead {
        /// Number of bytes read since the last such event.
        bytes: u32,
        /// Set if the block was read to its end and returns to the owner.
        finished: bool,
    },
    /// All source adverts of this end return to the owner, since the peer reads no more of them.
    SourcesReturned {
        /// Number of bytes of the oldest block that the peer has, including the byte in the
        /// SrcAvail. All other bytes are still to be sent.
        done: u32,
    },
    /// The peer advertises memory for the next bytes ([`Connection::sink_advert`]).
    SinkAdvert {
        /// Set if all source adverts of this end return to the owner, since the peer has read none.
        returned: bool,
    },
    /// The peer has written to the oldest sink advert of this end, which returns to the owner.
    SinkWritten {
        /// Number of bytes written from the block's start.
        bytes: u32,
    },
    /// All sink adverts of this end return to the owner, without written bytes.
    SinksReturned,
}

/// Result of a received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Type of the message.
    pub mid: Mid,
    /// Offsets of the stream bytes in the message, or an empty range.
    pub payload: Range<u32>,
    /// Set if the payload is for the reader of this end's oldest sink advert. The advertised block
    /// returns to the owner, with nothing written and space for the payload.
    pub for_sink: bool,
    /// Set if the peer has announced a new urgent byte, for which the owner sends SIGURG.
    pub urgent_pending: bool,
    /// Set if the last byte of the payload is the urgent byte.
    pub urgent: bool,
    /// Event for the layer above.
    pub event: Event,
}

impl Received {
    fn new(mid: Mid) -> Self {
        Received {
            mid,
            payload: 0..0,
            for_sink: false,
            urgent_pending: false,
            urgent: false,
            event: Event::None,
        }
    }
}

impl Connection {
    /// Handles a message received on the queue pair.
    ///
    /// `bytes` contains at least the first `min(length, MAX_HEADER)` bytes of the message. `length`
    /// is the length that the transport reports. From this call on, the buffer does not count as
    /// posted.
    ///
    /// After the peer's AbortConn or SuspComm, or a violation, the call ignores the message. On a
    /// [`Violation`], the caller aborts the connection without another message.
    pub fn receive(&mut self, bytes: &[u8], length: u32) -> Result<Received, Violation> {
        if self.ended {
            return Ok(Received::new(Mid::Data));
        }
        self.idle = None;
        let result = self.take(bytes, length);
        if result.is_err() {
            self.ended = true;
        }
        result
    }

    fn take(&mut self, bytes: &[u8], length: u32) -> Result<Received, Violation> {
        let message = Message::parse(bytes, length)?;
        if length > self.local.size() {
            return Err(Violation::TooLong);
        }
        self.receive.receive(message.mseq)?;
        let mut received = Received::new(message.body.mid());
        self.send.update(message.mseq_ack, message.bufs)?;
        self.peer_sources.acknowledged(message.mseq_ack);
        self.peer_sinks.acknowledged(message.mseq_ack);
        self.local.consumed();
        if message.payload > 0 {
            self.stream_goes_on()?;
            received.payload = message.header_len() as u32..length;
        }
        received.event = self.body(&message)?;
        self.note_stale_record(&message, received.event);
        if message.payload > 0 {
            // the message voids the oldest sink advert
            received.for_sink = self.own_sinks.pop().is_some();
            let counts = u32::from(!received.for_sink);
            self.non_discards = self.non_discards.wrapping_add(counts);
        }
        self.out_of_band(message.flags, &mut received);
        Ok(received)
    }

    /// Updates an OFED peer's `StaleRecord`. Three credits count as few: a ChRcvBufAck may use one.
    fn note_stale_record(&mut self, message: &Message, event: Event) {
        if self.own_line() {
            return;
        }
        let known = self
            .receive
            .known_credits(message.mseq_ack, self.send.sent());
        let edge = message.mseq_ack.wrapping_add(message.bufs.into());
        let finished = matches!(event, Event::SourceRead { finished: true, .. });
        let few = known <= PAYLOAD_CREDITS;
        self.stale_record.received(edge, few, finished);
    }

    fn body(&mut self, message: &Message) -> Result<Event, Violation> {
        match message.body {
            Body::Data => self.payload(message.payload)?,
            Body::SrcAvail(advert) => return self.source_advertised(&advert, message.payload),
            Body::SrcAvailCancel => self.peer_sources.cancelled(message.mseq),
            Body::DisConn => return self.peer_ends(),
            Body::AbortConn => {
                self.ended = true;
                return Ok(Event::PeerAborted);
            }
            Body::SuspComm { .. } => {
                self.ended = true;
                return Ok(Event::Suspended);
            }
            Body::ModeChange {
                receiver_sends,
                mode,
            } => return self.mode_changes(receiver_sends, mode),
            Body::ChRcvBuf { size: 0 } if self.own_line() => {
                self.owes_message.get_or_insert(CONTROL_CREDITS);
            }
            Body::ChRcvBuf { size } => {
                if self.local.size_requested() {
                    return Ok(Event::ReceiveSizeRequested(size));
                }
            }
            Body::ChRcvBufAck { size } => {
                let edge = message.mseq_ack.wrapping_add(message.bufs.into());
                let last = (!self.own_line()).then_some(edge);
                self.remote.answered(size, last);
            }
            Body::RdmaRdCompl { size } => {
                self.peer_knows = true;
                if let Some((bytes, finished)) = self.own_sources.read(size, message.mseq_ack)? {
                    return Ok(Event::SourceRead { bytes, finished });
                }
            }
            Body::SendSm => {
                self.peer_knows = true;
                if let Some(done) = self.own_sources.refused(message.mseq_ack) {
                    return Ok(Event::SourcesReturned { done });
                }
            }
            Body::SinkAvail(advert) => {
                self.payload(message.payload)?;
                return self.sink_advertised(&advert, message.mseq_ack);
            }
            Body::SinkAvailCancel => self.peer_sinks.cancelled(),
            Body::RdmaWrCompl { size } => {
                self.own_sinks.written(size)?;
                return Ok(Event::SinkWritten { bytes: size });
            }
            Body::SinkCancelAck => {
                self.own_sinks.cancel_confirmed()?;
                return Ok(Event::SinksReturned);
            }
            Body::SuspCommAck => return Err(Violation::UnexpectedSuspCommAck),
        }
        Ok(Event::None)
    }

    /// Handles the end of the peer's stream.
    fn peer_ends(&mut self) -> Result<Event, Violation> {
        if self.receive_closed {
            return Err(Violation::SecondDisConn);
        }
        if self.peer_sources.outstanding() {
            return Err(Violation::DisConnDuringAdvert);
        }
        self.receive_closed = true;
        self.own_sinks.clear();
        Ok(Event::PeerClosed)
    }

    /// Handles a ModeChange, which may return the sink adverts of this end.
    ///
    /// Both halves begin Combined. The source may change its half to Buffered, or to Pipelined and
    /// back. The sink may only end Buffered mode, which this end never sets as a source.
    fn mode_changes(&mut self, receiver_sends: bool, mode: Mode) -> Result<Event, Violation> {
        let before = core::mem::replace(&mut self.receive_mode, mode);
        match (before, mode) {
            _ if receiver_sends => Err(Violation::ModeChange),
            (Mode::Combined, Mode::Buffered) if !self.peer_sources.outstanding() => Ok(Event::None),
            (Mode::Combined, Mode::Pipelined) => Ok(Event::None),
            (Mode::Pipelined, Mode::Combined) => {
                self.peer_sources.void()?;
                match self.own_sinks.clear() {
                    true => Ok(Event::SinksReturned),
                    false => Ok(Event::None),
                }
            }
            _ => Err(Violation::ModeChange),
        }
    }

    /// Handles stream bytes outside of adverts.
    fn payload(&mut self, bytes: u32) -> Result<(), Violation> {
        if bytes > 0 {
            self.peer_sources.given_up();
            if self.peer_sources.outstanding() {
                return Err(Violation::DataDuringAdvert);
            }
            self.unanswered = true;
        }
        Ok(())
    }

    /// Handles a SrcAvail.
    fn source_advertised(&mut self, advert: &Block, inline: u32) -> Result<Event, Violation> {
        self.stream_goes_on()?;
        self.peer_knows = true;
        if self.own_sinks.count() > 0 && inline == 0 {
            // The SrcAvail has crossed a SinkAvail, which the peer will detect.
            return Ok(Event::None);
        }
        let kept = self
            .peer_sources
            .advertised(advert, inline, self.receive_mode)?;
        if self.is_starved() {
            self.peer_sources.refuse();
        } else if kept {
            return Ok(Event::SourceAdvert);
        }
        Ok(Event::None)
    }

    /// Handles a SinkAvail.
    fn sink_advertised(&mut self, advert: &SinkAvail, mseq_ack: u32) -> Result<Event, Violation> {
        if self.send_closed() {
            // The SinkAvail has crossed the DisConn of this end.
            return Ok(Event::None);
        }
        let pipelined = self.send_mode == Mode::Pipelined;
        if !self.peer_sinks.advertised(advert, mseq_ack, pipelined)? {
            return Ok(Event::None);
        }
        let returned = self.own_sources.void(mseq_ack)?;
        Ok(Event::SinkAdvert { returned })
    }

    /// Handles the announcement of an urgent byte: by OOB_PEND on any message, or at the latest by
    /// OOB_PRES on the message that contains the byte. Each urgent byte is announced once.
    fn out_of_band(&mut self, flags: Flags, received: &mut Received) {
        received.urgent = flags.contains(Flags::OOB_PRES);
        let announced = received.urgent || flags.contains(Flags::OOB_PEND);
        received.urgent_pending = announced && !self.urgent_expected;
        self.urgent_expected = (self.urgent_expected || announced) && !received.urgent;
    }

    fn stream_goes_on(&self) -> Result<(), Violation> {
        if self.receive_closed {
            Err(Violation::AfterDisConn)
        } else {
            Ok(())
        }
    }
}
