// SPDX-License-Identifier: GPL-2.0-only

//! Reactions of a foreign end to each message.

use sdp_protocol::message::{Body, Flags, Message, Mode};

use super::Foreign;
use crate::packet::Packet;

impl Foreign {
    /// Handles a message.
    pub(super) fn take(&mut self, packet: &Packet, message: &Message) -> Result<(), String> {
        self.received = message.mseq;
        self.acked = message.mseq_ack;
        self.bufs = message.bufs;
        self.told -= 1;
        if let Some((_, left)) = &mut self.answer {
            *left = left.saturating_sub(1);
        }
        let handled = match self.sinks(message) {
            Err(what) if self.trusting => return Err(what),
            handled => handled.unwrap_or(true),
        };
        if !handled {
            self.body(packet, message)?;
        }
        let flags = message.flags;
        let pend = flags.contains(Flags::OOB_PEND);
        let inbox = &mut self.common.inbox;
        let urgent = inbox.urgent(pend, flags.contains(Flags::OOB_PRES));
        self.expected(urgent)
    }

    /// Ignores an error if messages were tampered with.
    fn expected(&self, result: Result<(), String>) -> Result<(), String> {
        if self.trusting {
            result
        } else {
            Ok(())
        }
    }

    fn body(&mut self, packet: &Packet, message: &Message) -> Result<(), String> {
        let ends = message.body == Body::DisConn;
        match message.body {
            Body::Data | Body::DisConn
                if !self.held.is_empty() && self.trusting && (message.payload > 0 || ends) =>
            {
                return Err("the stream passes an advert".into());
            }
            Body::SrcAvail(_) if self.reporting.is_some() => {
                // The record of the last advert still exists: a SrcAvail is taken for Data.
                self.payload(&packet.bytes[16..])?;
            }
            Body::SrcAvail(advert) => {
                if message.payload > 0 {
                    self.payload(&packet.bytes[message.header_len()..])?;
                }
                let held = self.hold(advert, message);
                self.expected(held)?;
            }
            Body::RdmaRdCompl { size } => {
                let read = self.was_read(size, message.mseq_ack);
                self.expected(read)?;
            }
            Body::SrcAvailCancel => {
                self.again = self.held.is_empty() && self.flavour.pipelined == 0;
                for held in &mut self.held {
                    held.refused |= (message.mseq.wrapping_sub(held.mseq) as i32) > 0;
                }
            }
            Body::Data if message.payload > 0 => {
                self.payload(&packet.bytes[message.header_len()..])?;
            }
            Body::Data => {}
            Body::DisConn => {
                self.void();
                self.common.inbox.closed = true;
                if self.flavour.stingy {
                    self.common.port.budget = 2;
                }
            }
            Body::SendSm => {
                let ours = self
                    .adverts
                    .front()
                    .is_some_and(|oldest| (message.mseq_ack.wrapping_sub(oldest.mseq) as i32) >= 0);
                if ours {
                    self.drop_adverts();
                }
            }
            Body::ModeChange {
                receiver_sends: false,
                mode,
            } if self.flavour.max_adverts > 1 => self.peer_changes_mode(mode)?,
            Body::ChRcvBuf { size } => self.asked_to_grow(size),
            Body::ChRcvBufAck { size } => {
                if !std::mem::take(&mut self.wish_pending) && self.trusting {
                    return Err("a ChRcvBufAck came that was not asked for".into());
                }
                if size > self.payload {
                    self.payload = size;
                    self.wish_done = true;
                }
            }
            other if self.trusting => {
                return Err(format!("{} came", other.mid().name()));
            }
            _ => {}
        }
        Ok(())
    }

    fn peer_changes_mode(&mut self, mode: Mode) -> Result<(), String> {
        let wrong = mode == self.peer_mode || mode == Mode::Buffered;
        if (wrong || !self.held.is_empty()) && self.trusting {
            return Err(format!("a change to {mode:?}"));
        }
        if mode == Mode::Combined {
            self.void();
        }
        self.peer_mode = mode;
        Ok(())
    }

    fn asked_to_grow(&mut self, size: u32) {
        let payload = size.min(self.flavour.grows);
        let posted = self.common.port.posted();
        if payload > self.own_payload {
            self.own_payload = payload;
            self.common.port.size = payload + 16;
            let smaller = if self.flavour.hasty { 0 } else { posted };
            self.answer = Some((payload, smaller));
        } else {
            self.answer = Some((self.own_payload, 0));
        }
    }
}
