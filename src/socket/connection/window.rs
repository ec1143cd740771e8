// SPDX-License-Identifier: GPL-2.0-only

//! Receive buffers: how many are posted, and which.

use super::super::SdpSock;
use super::Connection;
use crate::sys::rdma::buffer::Buffer;
use crate::sys::time::{jiffies, milliseconds, Jiffies};
use crate::transport::{Channel, Transport};
use kernel::alloc::flags::*;
use kernel::prelude::*;

/// Receive buffers that are posted whatever the program leaves unread: the peer's last credits,
/// which only its control messages may use.
const LAST_BUFFERS: u16 = 2;
/// Receive buffers that are posted while nothing lies unread, however small `SO_RCVBUF` is.
pub(in crate::socket) const LEAST_BUFFERS: u16 = 4;
/// How long to wait before memory that could not be had is asked for again; at first, and at most.
const FIRST_PAUSE: Jiffies = milliseconds(4);
const LONGEST_PAUSE: Jiffies = milliseconds(1000);

/// Receive buffers are so few that the peer may not send, because there was no memory for more. It
/// would be for ever, since nothing happens to a connection whose peer may not send: so the socket's
/// timer tries again, after longer and longer pauses.
pub(in crate::socket) struct Shortage {
    /// When to try again, if the peer may not send.
    due: Option<Jiffies>,
    /// The last pause; 0 for none.
    pause: Jiffies,
}

impl Shortage {
    /// None.
    pub(super) const fn new() -> Self {
        Shortage {
            due: None,
            pause: 0,
        }
    }

    /// When to try again.
    pub(in crate::socket) fn due(&self) -> Option<Jiffies> {
        self.due
    }

    /// It is being tried again.
    pub(in crate::socket) fn tried(&mut self) {
        self.due = None;
    }

    /// There is one.
    fn noticed(&mut self, sk: &SdpSock) {
        if self.due.is_none() {
            self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            self.due = Some(jiffies().wrapping_add(self.pause));
            sk.set_timer(self.pause);
        }
    }
}

impl Connection {
    /// Takes back a receive buffer that is empty.
    pub(in crate::socket) fn recycle(&mut self, buffer: KBox<Buffer>) {
        if self.channel.is_some() && buffer.capacity() == self.buffer_size as usize {
            let _ = self.spare.push_within_capacity(buffer);
        }
    }

    /// Adds a new receive buffer to the unused ones.
    pub(in crate::socket) fn stock(&mut self, mut buffer: KBox<Buffer>) {
        let mapped = self.channel.as_mut().map(|c| c.map_receive(&mut buffer));
        if let Some(Ok(())) = mapped {
            self.recycle(buffer);
        }
    }

    /// How many receive buffers there are to be made lest the peer may not send.
    pub(in crate::socket) fn missing(&self) -> usize {
        let posted = |c: &Channel| usize::from(c.posted_receives());
        self.channel.as_ref().map_or(0, |c| {
            usize::from(LEAST_BUFFERS).saturating_sub(posted(c) + self.spare.len())
        })
    }

    /// Receive buffers to have posted, by the window and the program's buffer size.
    fn target(&self, sk: &SdpSock) -> u16 {
        let unread = self.rx.memory();
        let room = sk.rcvbuf().saturating_sub(unread) / (self.buffer_size as usize).max(1);
        // a peer that has advertised sends no Data, and may need credits to take that back
        let least = if unread == 0 || self.holds_advert() {
            LEAST_BUFFERS
        } else {
            LAST_BUFFERS
        };
        self.window
            .min(u16::try_from(room).unwrap_or(u16::MAX))
            .max(least)
    }

    /// Whether so many receive buffers are missing that it is time to post them: a quarter, since
    /// it costs the same for one as for all of them.
    pub(in crate::socket) fn wants_refill(&self, sk: &SdpSock) -> bool {
        let Some(channel) = self.channel.as_ref() else {
            return false;
        };
        let target = self.target(sk);
        channel.posted_receives() <= target - target / 4
    }

    /// Posts the receive buffers that are missing, if it is time to.
    pub(in crate::socket) fn refill(&mut self, sk: &SdpSock) {
        if !self.wants_refill(sk) {
            return;
        }
        let Some(channel) = self.channel.as_mut() else {
            return;
        };
        let size = self.buffer_size as usize;
        let posted = channel.posted_receives();
        let keeps_up = self.rx.memory() == 0;
        if posted < self.window / 2 && keeps_up && self.spare.len() < usize::from(posted) {
            // the peer has sent half of what it may in one go, and the reader keeps up
            self.window = wider(self.window, channel);
        }
        let target = self.target(sk).min(self.rx.most_more());
        let Some(channel) = self.channel.as_mut() else {
            return;
        };
        for _ in posted..target {
            if !self
                .rx
                .make_room(usize::from(channel.posted_receives()) + 1)
            {
                break;
            }
            let buffer = match self.spare.pop() {
                Some(b) => b,
                None => {
                    let Ok(mut b) = Buffer::new(size, GFP_NOWAIT) else {
                        break;
                    };
                    if channel.map_receive(&mut b).is_err() {
                        break;
                    }
                    b
                }
            };
            if channel.post_receive(buffer).is_err() {
                break;
            }
        }
        if channel.posted_receives() < target.min(LEAST_BUFFERS) {
            self.shortage.noticed(sk);
        } else {
            self.shortage = Shortage::new();
        }
    }
}

/// Twice the window, as far as the receive queue allows.
pub(super) fn wider(window: u16, channel: &Channel) -> u16 {
    window.saturating_mul(2).min(channel.limits().receive_slots)
}
