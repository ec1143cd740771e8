// SPDX-License-Identifier: GPL-2.0-only

//! OFED's source adverts, and its reactions to those of its peer.

use sdp_protocol::message::{Body, Flags, Message, Mode};
use sdp_protocol::Block;

use super::Foreign;
use crate::packet::stream_byte;
use crate::rng::Rng;

/// An unfinished source advert.
#[derive(Debug)]
pub(super) struct Advert {
    pub(super) mseq: u32,
    pub(super) key: u32,
    /// Stream position after the bytes that the peer has received.
    pub(super) tail: u64,
    /// Stream position after the block.
    pub(super) end: u64,
}

/// A source advert of the peer.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) mseq: u32,
    /// Part of the advert that this end has not read.
    pub(super) rest: Block,
    /// Set while a READ is in flight.
    pub(super) reading: bool,
    /// Number of bytes read and not reported.
    pub(super) done: u32,
    /// Set if the advert will not be read any more.
    pub(super) refused: bool,
}

impl Foreign {
    /// Returns true if a SrcAvailCancel is due, and marks it as sent.
    pub(super) fn cancel_due(&mut self) -> bool {
        let due = !self.adverts.is_empty() && self.cancel && !self.cancelled;
        self.cancelled |= due;
        due
    }

    pub(super) fn advertise(&mut self, rng: &mut Rng, queued: u32) -> (Body, u32, Flags) {
        let size = rng.range(self.flavour.advert, queued);
        let inline = if self.mode == Mode::Pipelined {
            0
        } else {
            let most = (size - 1).min(self.payload.saturating_sub(16));
            rng.range(0, most.min(40))
        };
        let (side, start) = (self.common.side, self.common.outbox.sent);
        let end = start + u64::from(size);
        let bytes = (start..end).map(|at| stream_byte(side, at)).collect();
        let block = self.common.fabric.borrow_mut().register(side, bytes, rng);
        self.adverts.push_back(Advert {
            mseq: self.sent.wrapping_add(1),
            key: block.r_key,
            tail: start + u64::from(inline),
            end,
        });
        (Body::SrcAvail(block), inline, Flags::NONE)
    }

    /// Takes back all adverts of this end. Unread bytes of the adverts are sent as Data, or
    /// advertised again.
    pub(super) fn drop_adverts(&mut self) {
        if let Some(oldest) = self.adverts.front() {
            self.common.outbox.sent = oldest.tail;
        }
        for advert in self.adverts.drain(..) {
            self.common.fabric.borrow_mut().take_back(advert.key);
        }
        self.cancel = false;
        self.cancelled = false;
    }

    /// Handles a report that the peer has read a part of the oldest advert.
    pub(super) fn was_read(&mut self, size: u32, mseq_ack: u32) -> Result<(), String> {
        let Some(oldest) = self.adverts.front_mut() else {
            return Ok(());
        };
        if (mseq_ack.wrapping_sub(oldest.mseq) as i32) < 0 {
            return Ok(());
        }
        let tail = oldest.tail + u64::from(size);
        if tail > oldest.end {
            return Err("more was read than was advertised".into());
        }
        oldest.tail = tail;
        if oldest.tail == oldest.end {
            let key = oldest.key;
            self.common.fabric.borrow_mut().take_back(key);
            self.adverts.pop_front();
            if self.adverts.is_empty() {
                self.cancel = false;
                self.cancelled = false;
            }
        }
        Ok(())
    }

    /// Returns a due message about the peer's adverts.
    pub(super) fn about_held(&mut self) -> Option<Body> {
        let oldest = self.held.front_mut()?;
        if oldest.reading {
            return None;
        }
        if oldest.done > 0 {
            let size = std::mem::take(&mut oldest.done);
            if oldest.rest.size == 0 {
                self.held.pop_front();
            }
            return Some(Body::RdmaRdCompl { size });
        }
        if oldest.refused {
            self.held.clear();
            return Some(Body::SendSm);
        }
        None
    }

    /// Sends the last report about an advert. OFED posts the report while the record of the advert
    /// still exists, then its queue, and polls its receive queue when two credits are left. The
    /// queue is empty unless credits were short when the call began.
    pub(super) fn reported(&mut self) {
        let few = self.left <= 2 || self.credits() <= 2;
        let edge = self.edge();
        self.reporting = (self.flavour.ofed() && few).then_some(edge);
    }

    /// Returns true while OFED's report call may poll. During the call that reports the end of an
    /// advert OFED posts no receive buffers.
    pub(super) fn is_reporting(&self) -> bool {
        self.reporting == Some(self.edge())
    }

    fn edge(&self) -> u32 {
        self.received.wrapping_add(self.common.port.posted().into())
    }

    /// Handles an advert of the peer.
    pub(super) fn hold(&mut self, advert: Block, message: &Message) -> Result<(), String> {
        let (mseq, inline) = (message.mseq, message.payload);
        if !self.flavour.zero_copy {
            return Err("an advert came to one that does not know them".into());
        }
        if (self.refusal.wrapping_sub(message.mseq_ack) as i32) > 0 {
            return Ok(());
        }
        if !self.made.blocks.is_empty() {
            return Ok(());
        }
        self.again = false;
        let pipelined = self.peer_mode == Mode::Pipelined;
        let most = if pipelined {
            self.flavour.max_adverts
        } else {
            1
        };
        if self.held.len() >= usize::from(most) {
            return Err("one advert too many came".into());
        }
        if (inline == 0) != pipelined || advert.size <= inline {
            return Err(format!("{inline} bytes of {advert:?}"));
        }
        self.held.push_back(Held {
            mseq,
            rest: Block {
                address: advert.address.wrapping_add(inline.into()),
                r_key: advert.r_key,
                size: advert.size.saturating_sub(inline),
            },
            reading: false,
            done: 0,
            refused: false,
        });
        // OFED cancels its own advert when an advert of the peer crosses it.
        self.cancel |= self.flavour.pipelined == 0 && !self.adverts.is_empty();
        Ok(())
    }
}
