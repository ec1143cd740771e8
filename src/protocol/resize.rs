// SPDX-License-Identifier: GPL-2.0-only

//! Growth of receive buffers during the connection: ChRcvBuf and ChRcvBufAck.
//!
//! Implementations disagree about the size in both messages, which does or does not include the 16
//! bytes of BSDH. In the OFED family, the size is the payload only; no other implementation grows
//! buffers on request. So this end sends the payload size in a ChRcvBufAck, and uses 16 bytes less
//! than a peer's ChRcvBufAck contains. The smaller size is safe in both cases.
//!
//! This end sends its ChRcvBufAck once the smaller buffers are used up. OFED replies at once, and
//! posts larger buffers after the current ones, whose number is in the reply. A message longer than
//! its receive buffer ends the connection.

use super::credits::after;
use super::message::{BSDH_LEN, MAX_RECEIVE_SIZE};

const BSDH: u32 = BSDH_LEN as u32;

/// Score of full messages that triggers a ChRcvBuf. A full message that is followed by queued bytes
/// adds two, and any other message subtracts one. A few sends of several messages reach the score;
/// sends of one message never do.
const SUSTAINED: u8 = 16;

/// Divisor of the desired size for a first request: many connections never need a larger size.
const MIDDLE: u32 = 8;

/// Receive buffers of this end, whose growth the peer may request.
#[derive(Clone, Debug)]
pub(super) struct LocalBuffers {
    /// Size with BSDH that was announced to the peer.
    size: u32,
    state: LocalState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalState {
    /// No request is pending.
    Idle,
    /// A ChRcvBuf has arrived, and the owner has not decided yet.
    Asked,
    /// The new size is decided. The ChRcvBufAck is sent once `smaller` more buffers are used up.
    Decided { size: u32, smaller: u16 },
}

impl LocalBuffers {
    /// Creates the state of buffers with the size in this end's Hello or HelloAck.
    pub(super) fn new(size: u32) -> Self {
        LocalBuffers {
            size,
            state: LocalState::Idle,
        }
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Counts a used receive buffer.
    pub(super) fn consumed(&mut self) {
        if let LocalState::Decided { smaller, .. } = &mut self.state {
            *smaller = smaller.saturating_sub(1);
        }
    }

    /// Handles a ChRcvBuf. Returns true if the owner must decide. While an earlier request is
    /// pending, its ChRcvBufAck replies to both requests.
    pub(super) fn size_requested(&mut self) -> bool {
        let new = self.state == LocalState::Idle;
        if new {
            self.state = LocalState::Asked;
        }
        new
    }

    /// Sets the size for the reply. Without a pending request, the call has no effect.
    pub(super) fn decide(&mut self, size: u32, smaller: u16) {
        if self.state == LocalState::Asked {
            let grows = size > self.size;
            self.state = LocalState::Decided {
                size: size.max(self.size),
                smaller: if grows { smaller } else { 0 },
            };
        }
    }

    /// Returns true if the ChRcvBufAck is due.
    pub(super) fn answer_due(&self) -> bool {
        matches!(self.state, LocalState::Decided { smaller: 0, .. })
    }

    /// Marks the ChRcvBufAck as sent and returns its value.
    pub(super) fn answered(&mut self) -> u32 {
        if let LocalState::Decided { size, .. } = self.state {
            self.size = size;
        }
        self.state = LocalState::Idle;
        self.size.saturating_sub(BSDH)
    }
}

/// The peer's receive buffers, whose growth this end may request.
#[derive(Clone, Debug)]
pub(super) struct RemoteBuffers {
    /// Maximum number of payload bytes in a Data message.
    payload: u32,
    /// Largest size to request, or 0 to request none.
    desired: u32,
    /// Largest number of bytes that were recently ready to send at a time.
    wanted: u32,
    /// Larger maximum payload of a Data message, valid after the message with this MSeq.
    larger: Option<(u32, u32)>,
    state: RemoteState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemoteState {
    /// No request is sent yet. Contains the score of full messages ([`SUSTAINED`]).
    Counting(u8),
    /// A ChRcvBuf is outstanding, for less than the desired size if `middle`.
    Asked { middle: bool },
    /// The reply has arrived, or no request is needed.
    Settled,
}

impl RemoteBuffers {
    /// Creates the state of buffers of `size` bytes with BSDH. `desired` is the size to request.
    pub(super) fn new(size: u32, desired: u32) -> Self {
        RemoteBuffers {
            payload: size.saturating_sub(BSDH),
            desired,
            wanted: 0,
            larger: None,
            state: if desired > size {
                RemoteState::Counting(0)
            } else {
                RemoteState::Settled
            },
        }
    }

    pub(super) fn payload(&self) -> u32 {
        self.payload
    }

    /// Counts a Data message with `payload` bytes and `more` bytes queued after it.
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

    /// Returns true if a ChRcvBuf is due.
    pub(super) fn request_due(&self) -> bool {
        matches!(self.state, RemoteState::Counting(run) if run >= SUSTAINED)
    }

    /// Marks the ChRcvBuf as sent and returns its value.
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

    /// Records the MSeq of the last message sent, after which larger buffers may follow.
    pub(super) fn sent(&mut self, mseq: u32) {
        if let Some((payload, _)) = self.larger.take_if(|(_, last)| !after(*last, mseq)) {
            self.payload = payload;
        }
    }

    /// Handles a ChRcvBufAck, unless it arrives without a request. `last` is the MSeq of the last
    /// message that may still arrive in a smaller buffer.
    pub(super) fn answered(&mut self, size: u32, last: Option<u32>) {
        let RemoteState::Asked { middle } = self.state else {
            return;
        };
        let payload = size.saturating_sub(BSDH).min(MAX_RECEIVE_SIZE);
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `size` bytes until a request is due. Returns the send count and the requested size.
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
        let first = |size| sends(&mut RemoteBuffers::new(2064, 65552), size);
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
        let mut remote = RemoteBuffers::new(2064, 65552);
        assert_eq!(sends(&mut remote, 4096), Some((16, 8194)));
        remote.answered(8192, None);
        assert_eq!(sends(&mut remote, 4096), None);
        assert_eq!(sends(&mut remote, 8192), Some((16, 65552)));
        remote.answered(65536, None);
        assert_eq!(sends(&mut remote, 1 << 20), None);
    }

    #[test]
    fn larger_buffers_lie_behind_those_that_are_posted() {
        let mut remote = RemoteBuffers::new(2064, 32784);
        assert!(sends(&mut remote, 65536).is_some());
        remote.sent(u32::MAX - 1);
        remote.answered(32768, Some(1));
        for mseq in [u32::MAX - 1, u32::MAX, 0] {
            remote.sent(mseq);
            assert_eq!(remote.payload(), 2048);
        }
        remote.sent(1);
        assert_eq!(remote.payload(), 32752);
    }

    #[test]
    fn a_refused_or_uncalled_answer_changes_nothing() {
        let mut remote = RemoteBuffers::new(2064, 32784);
        remote.answered(1 << 20, None);
        assert_eq!(remote.payload(), 2048);
        for _ in 0..SUSTAINED {
            remote.sending(2048, 2048);
        }
        remote.requested();
        remote.answered(2048, None);
        assert_eq!(remote.payload(), 2048);
        remote.answered(1 << 20, None);
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
