// SPDX-License-Identifier: GPL-2.0-only

//! Receive buffers that grow while the connection lives: ChRcvBuf and ChRcvBufAck.
//!
//! The value in both messages is read differently by different implementations: with or without
//! the 16 bytes of BSDH. All that grow buffers on request (the OFED family) mean the payload. So
//! a ChRcvBufAck of ours says the payload that fits, and of a peer's we use 16 bytes less than it
//! says, which is right either way.

use super::message::BSDH_LEN;

const BSDH: u32 = BSDH_LEN as u32;

/// How many more full messages with as much waiting behind them than others there must have been for
/// larger buffers to be asked for. So few large sends are enough, one after the other or each on
/// its own, and small ones never are.
const SUSTAINED: u8 = 16;

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
    /// What to ask for; 0: nothing.
    desired: u32,
    state: RemoteState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemoteState {
    /// So many more full messages than others were sent.
    Counting(u8),
    /// A ChRcvBuf is sent and not answered.
    Asked,
    /// The answer came, or there is nothing to ask for.
    Settled,
}

impl RemoteBuffers {
    /// Buffers of `size` bytes with BSDH, of which `desired` bytes would be better.
    pub(super) fn new(size: u32, desired: u32) -> Self {
        RemoteBuffers {
            payload: size.saturating_sub(BSDH),
            desired,
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
            *run = if payload >= self.payload && more >= self.payload {
                run.saturating_add(1)
            } else {
                run.saturating_sub(1)
            };
        }
    }

    /// Whether to send a ChRcvBuf.
    pub(super) fn request_due(&self) -> bool {
        matches!(self.state, RemoteState::Counting(run) if run >= SUSTAINED)
    }

    /// The ChRcvBuf goes; returns its value.
    pub(super) fn requested(&mut self) -> u32 {
        self.state = RemoteState::Asked;
        self.desired
    }

    /// A ChRcvBufAck came. One that nobody asked for changes nothing. Returns whether messages
    /// may be longer now.
    pub(super) fn answered(&mut self, size: u32) -> bool {
        if self.state != RemoteState::Asked {
            return false;
        }
        self.state = RemoteState::Settled;
        let payload = size.saturating_sub(BSDH);
        let grown = payload > self.payload;
        if grown {
            self.payload = payload;
        }
        grown
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
        let mut remote = RemoteBuffers::new(2064, 32784);
        for _ in 0..SUSTAINED {
            assert!(!remote.request_due());
            remote.sending(2048, 2048);
        }
        assert!(remote.request_due());
        assert_eq!(remote.requested(), 32784);
        assert!(!remote.request_due());
        assert!(remote.answered(32768));
        assert_eq!(remote.payload(), 32752);
        for _ in 0..100 {
            remote.sending(32752, 100_000);
        }
        assert!(!remote.request_due());
    }

    /// Sends of `size` bytes, one after the other, until larger buffers are asked for.
    fn sends(size: u32) -> Option<u32> {
        let mut remote = RemoteBuffers::new(2064, 32784);
        (1..1000).find(|_| {
            let mut left = size;
            while left > 0 {
                let payload = left.min(2048);
                left -= payload;
                remote.sending(payload, left);
            }
            remote.request_due()
        })
    }

    #[test]
    fn sends_that_take_many_messages_ask_for_larger_buffers() {
        assert_eq!(sends(65536), Some(1));
        assert_eq!(sends(16384), Some(3));
        assert!(sends(8192).is_some_and(|n| n < 10));
        for size in [1, 100, 2048, 4096, 4100] {
            assert_eq!(sends(size), None, "{size}");
        }
    }

    #[test]
    fn a_refused_or_uncalled_answer_changes_nothing() {
        let mut remote = RemoteBuffers::new(2064, 32784);
        assert!(!remote.answered(1 << 20));
        assert_eq!(remote.payload(), 2048);
        for _ in 0..SUSTAINED {
            remote.sending(2048, 2048);
        }
        remote.requested();
        assert!(!remote.answered(2048));
        assert_eq!(remote.payload(), 2048);
        assert!(!remote.answered(1 << 20));
        assert_eq!(remote.payload(), 2048);
        for desired in [0, 2064] {
            let mut content = RemoteBuffers::new(2064, desired);
            for _ in 0..100 {
                content.sending(2048, 2048);
            }
            assert!(!content.request_due());
        }
    }
}
