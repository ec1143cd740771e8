// SPDX-License-Identifier: GPL-2.0-only

//! Receive buffers that grow while the connection lives: ChRcvBuf and ChRcvBufAck.
//!
//! The value in both messages is read differently by different implementations: with or without
//! the 16 bytes of BSDH. All that grow buffers on request (the OFED family) mean the payload. So
//! a ChRcvBufAck of ours says the payload that fits, and of a peer's we use 16 bytes less than it
//! says, which is right either way; unless the peer is in the same kernel.
//!
//! Our ChRcvBufAck waits until the smaller buffers are used up. OFED's does not: its larger buffers lie
//! behind those that are posted when it answers, as many as it says, and a message that is longer than
//! the one that it meets costs the connection.

use super::message::BSDH_LEN;
use super::sequence::after;

const BSDH: u32 = BSDH_LEN as u32;

/// How far full messages behind which something waits, each of which counts twice, must have been
/// ahead of others for larger buffers to be asked for. So a few sends that take several messages
/// are enough, one after the other or each on its own, and those that take one never are.
const SUSTAINED: u8 = 16;

/// Buffers of this part of the desired size are asked for first if they are enough: many
/// connections have requests of some pages and never more.
const MIDDLE: u32 = 8;

/// Our receive buffers, which the peer may ask to grow.
#[derive(Clone, Debug)]
pub(super) struct LocalBuffers {
    /// Size with BSDH that the peer was told.
    size: u32,
    state: LocalState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalState {
    /// The peer asked for nothing.
    Idle,
    /// The peer asked and nobody has decided yet.
    Asked,
    /// The size is decided; the ChRcvBufAck goes when so many smaller buffers are used up.
    Decided { size: u32, smaller: u16 },
}

impl LocalBuffers {
    /// Buffers of the size that our Hello or HelloAck announced.
    pub(super) fn new(size: u32) -> Self {
        LocalBuffers {
            size,
            state: LocalState::Idle,
        }
    }

    /// Size with BSDH that the peer knows of.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// A message used up a buffer. (Buffers are used in the order they were posted.)
    pub(super) fn consumed(&mut self) {
        if let LocalState::Decided { smaller, .. } = &mut self.state {
            *smaller = smaller.saturating_sub(1);
        }
    }

    /// A ChRcvBuf came. Returns whether somebody must decide: not if a decision is already
    /// being made, whose answer then serves both.
    pub(super) fn asked(&mut self) -> bool {
        let new = self.state == LocalState::Idle;
        if new {
            self.state = LocalState::Asked;
        }
        new
    }

    /// The answer to a ChRcvBuf is decided. Without one there is nobody to tell, and nothing
    /// happens.
    pub(super) fn decide(&mut self, size: u32, smaller: u16) {
        if self.state == LocalState::Asked {
            self.state = if size > self.size {
                LocalState::Decided { size, smaller }
            } else {
                LocalState::Decided {
                    size: self.size,
                    smaller: 0,
                }
            };
        }
    }

    /// Whether the ChRcvBufAck may go.
    pub(super) fn answer_due(&self) -> bool {
        matches!(self.state, LocalState::Decided { smaller: 0, .. })
    }

    /// The ChRcvBufAck goes; returns its value.
    pub(super) fn answered(&mut self) -> u32 {
        if let LocalState::Decided { size, .. } = self.state {
            self.size = size;
        }
        self.state = LocalState::Idle;
        self.size.saturating_sub(BSDH)
    }
}

/// The peer's receive buffers, which we may ask to grow.
#[derive(Clone, Debug)]
pub(super) struct RemoteBuffers {
    /// Payload bytes that fit.
    payload: u32,
    /// What to ask for at most; 0: nothing.
    desired: u32,
    /// Bytes of the size in an answer that are not for payload.
    header_aside: u32,
    /// Most bytes that were to go at once lately.
    wanted: u32,
    /// Payload bytes that fit once this message has gone.
    larger: Option<(u32, u32)>,
    state: RemoteState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemoteState {
    /// How far full messages are ahead of others.
    Counting(u8),
    /// A ChRcvBuf is sent and not answered; whether it was for less than is desired.
    Asked { middle: bool },
    /// The answer came, or there is nothing to ask for.
    Settled,
}

impl RemoteBuffers {
    /// Buffers of `size` bytes with BSDH, of which `desired` bytes would be better. `acks_payload`:
    /// see [`Parameters`](super::Parameters).
    pub(super) fn new(size: u32, desired: u32, acks_payload: bool) -> Self {
        RemoteBuffers {
            payload: size.saturating_sub(BSDH),
            desired,
            header_aside: if acks_payload { 0 } else { BSDH },
            wanted: 0,
            larger: None,
            state: if desired > size {
                RemoteState::Counting(0)
            } else {
                RemoteState::Settled
            },
        }
    }

    /// Payload bytes that fit in a Data message.
    pub(super) fn payload(&self) -> u32 {
        self.payload
    }

    /// A Data message with so many bytes goes, and `more` wait behind it.
    pub(super) fn sending(&mut self, payload: u32, more: u32) {
        if let RemoteState::Counting(run) = &mut self.state {
            if payload >= self.payload && more > 0 {
                *run = run.saturating_add(2);
                self.wanted = self.wanted.max(payload.saturating_add(more));
            } else {
                *run = run.saturating_sub(1);
                if *run == 0 {
                    self.wanted = 0;
                }
            }
        }
    }

    /// Whether to send a ChRcvBuf.
    pub(super) fn request_due(&self) -> bool {
        matches!(self.state, RemoteState::Counting(run) if run >= SUSTAINED)
    }

    /// The ChRcvBuf goes; returns its value.
    pub(super) fn requested(&mut self) -> u32 {
        let size = self.desired / MIDDLE;
        let enough = self.wanted.saturating_add(2 * BSDH) <= size;
        let middle = enough && self.payload.saturating_add(2 * BSDH) < size;
        self.state = RemoteState::Asked { middle };
        if middle {
            size
        } else {
            self.desired
        }
    }

    /// The last message that was sent is this one: the larger buffers may be next.
    pub(super) fn sent(&mut self, mseq: u32) {
        if let Some((payload, _)) = self.larger.take_if(|(_, last)| !after(*last, mseq)) {
            self.payload = payload;
        }
    }

    /// A ChRcvBufAck came. One that nobody asked for changes nothing. `last`: the last message that may
    /// meet a smaller buffer nevertheless. Returns whether messages may be longer now.
    pub(super) fn answered(&mut self, size: u32, last: Option<u32>) -> bool {
        let RemoteState::Asked { middle } = self.state else {
            return false;
        };
        let payload = size.saturating_sub(self.header_aside);
        let grown = payload > self.payload;
        self.state = if grown && middle {
            RemoteState::Counting(0)
        } else {
            RemoteState::Settled
        };
        if grown {
            self.wanted = 0;
            match last {
                None => self.payload = payload,
                Some(last) => self.larger = Some((payload, last)),
            }
        }
        grown && last.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_waits_for_the_smaller_buffers() {
        let mut local = LocalBuffers::new(2064);
        local.decide(8208, 2); // nobody asked
        assert!(!local.answer_due());
        assert!(local.asked());
        assert!(!local.asked());
        local.decide(8208, 2);
        assert!(!local.answer_due());
        local.consumed();
        assert!(!local.answer_due());
        assert_eq!(local.size(), 2064);
        local.consumed();
        assert!(local.answer_due());
        assert_eq!(local.answered(), 8192);
        assert_eq!(local.size(), 8208);
        assert!(!local.answer_due());
    }

    #[test]
    fn a_refusal_goes_at_once_and_names_the_present_size() {
        for size in [0, 16, 2064] {
            let mut local = LocalBuffers::new(2064);
            local.asked();
            local.decide(size, 40);
            assert!(local.answer_due());
            assert_eq!(local.answered(), 2048);
            assert_eq!(local.size(), 2064);
        }
    }

    #[test]
    fn larger_buffers_are_asked_for_once_under_load() {
        let mut remote = RemoteBuffers::new(2064, 32784, false);
        for _ in 0..SUSTAINED / 2 {
            assert!(!remote.request_due());
            remote.sending(2048, 32768);
        }
        assert!(remote.request_due());
        assert_eq!(remote.requested(), 32784);
        assert!(!remote.request_due());
        assert!(remote.answered(32768, None));
        assert_eq!(remote.payload(), 32752);
        for _ in 0..100 {
            remote.sending(32752, 100_000);
        }
        assert!(!remote.request_due());
    }

    /// Sends of `size` bytes, one after the other, until larger buffers are asked for: how many, and
    /// how large.
    fn sends(remote: &mut RemoteBuffers, size: u32) -> Option<(u32, u32)> {
        let number = (1..1000).find(|_| {
            let mut left = size;
            while left > 0 {
                let payload = left.min(remote.payload());
                left -= payload;
                remote.sending(payload, left);
            }
            remote.request_due()
        })?;
        Some((number, remote.requested()))
    }

    #[test]
    fn sends_that_take_several_messages_ask_for_buffers_that_hold_them() {
        let first = |size| sends(&mut RemoteBuffers::new(2064, 65552, false), size);
        assert_eq!(first(65536), Some((1, 65552)));
        assert_eq!(first(16384), Some((2, 65552)));
        assert_eq!(first(8192), Some((4, 65552)));
        assert_eq!(first(4096), Some((16, 8194)));
        assert_eq!(first(2049), Some((16, 8194)));
        for size in [1, 100, 2048] {
            assert_eq!(first(size), None, "{size}");
        }
    }

    #[test]
    fn buffers_that_have_grown_grow_once_more() {
        let mut remote = RemoteBuffers::new(2064, 65552, false);
        assert_eq!(sends(&mut remote, 4096), Some((16, 8194)));
        assert!(remote.answered(8192, None));
        assert_eq!(sends(&mut remote, 4096), None);
        assert_eq!(sends(&mut remote, 8192), Some((16, 65552)));
        assert!(remote.answered(65536, None));
        assert_eq!(sends(&mut remote, 1 << 20), None);
    }

    #[test]
    fn an_answer_that_says_the_payload_is_believed() {
        let mut remote = RemoteBuffers::new(2064, 65552, true);
        assert_eq!(sends(&mut remote, 65536), Some((1, 65552)));
        assert!(remote.answered(65536, None));
        assert_eq!(remote.payload(), 65536);
    }

    #[test]
    fn larger_buffers_that_were_refused_are_not_asked_for_again() {
        let mut remote = RemoteBuffers::new(2064, 65552, false);
        assert_eq!(sends(&mut remote, 4096), Some((16, 8194)));
        assert!(!remote.answered(2048, None));
        assert_eq!(sends(&mut remote, 65536), None);
    }

    #[test]
    fn larger_buffers_lie_behind_those_that_are_posted() {
        let mut remote = RemoteBuffers::new(2064, 32784, false);
        assert!(sends(&mut remote, 65536).is_some());
        remote.sent(u32::MAX - 1);
        assert!(!remote.answered(32768, Some(1)));
        for mseq in [u32::MAX - 1, u32::MAX, 0] {
            remote.sent(mseq);
            assert_eq!(remote.payload(), 2048);
        }
        remote.sent(1);
        assert_eq!(remote.payload(), 32752);
    }

    #[test]
    fn a_refused_or_uncalled_answer_changes_nothing() {
        let mut remote = RemoteBuffers::new(2064, 32784, false);
        assert!(!remote.answered(1 << 20, None));
        assert_eq!(remote.payload(), 2048);
        for _ in 0..SUSTAINED {
            remote.sending(2048, 2048);
        }
        remote.requested();
        assert!(!remote.answered(2048, None));
        assert_eq!(remote.payload(), 2048);
        assert!(!remote.answered(1 << 20, None));
        assert_eq!(remote.payload(), 2048);
        for desired in [0, 2064] {
            let mut content = RemoteBuffers::new(2064, desired, false);
            for _ in 0..100 {
                content.sending(2048, 2048);
            }
            assert!(!content.request_due());
        }
    }
}
