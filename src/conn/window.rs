// SPDX-License-Identifier: GPL-2.0-only

//! Receive buffers: how many are posted, and which.

use super::{Connection, SdpSock, Wakeups};
use crate::protocol::PAYLOAD_CREDITS;
use crate::sys::rdma::buffer::Buffer;
use crate::sys::time::{jiffies, milliseconds, Jiffies};
use crate::transport::{Channel, Transport};
use kernel::prelude::*;

/// Receive buffers that are posted whatever the program leaves unread: the peer's last credits,
/// which only its control messages may use.
const LAST_BUFFERS: u16 = 2;
/// Receive buffers that are posted while nothing lies unread, however small `SO_RCVBUF` is.
const LEAST_BUFFERS: u16 = 4;
/// How long to wait before memory that could not be had is asked for again; at first, and at most.
const FIRST_PAUSE: Jiffies = milliseconds(4);
const LONGEST_PAUSE: Jiffies = milliseconds(1000);

/// Receive buffers are so few that the peer may not send, because there was no memory for more. It
/// would be for ever, since nothing happens to a connection whose peer may not send: so the socket's
/// timer tries again, after longer and longer pauses.
pub(crate) struct Shortage {
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
    pub(crate) fn due(&self) -> Option<Jiffies> {
        self.due
    }

    /// It is being tried again.
    pub(crate) fn tried(&mut self) {
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
    pub(crate) fn recycle(&mut self, buffer: KBox<Buffer>) {
        if self.channel.is_some() && buffer.capacity() == self.buffer_size as usize {
            let _ = self.spare.push_within_capacity(buffer);
        }
    }

    /// How many receive buffers are to be made.
    pub(crate) fn lacking(&self, sk: &SdpSock) -> usize {
        let Some(channel) = self.channel.as_ref().filter(|_| self.wants_refill(sk)) else {
            return 0;
        };
        let there = usize::from(channel.posted_receives()) + self.spare.len();
        let target = usize::from(self.target(sk).min(self.rx.most_more()));
        target.saturating_sub(there)
    }

    /// There was no memory for some that are lacking.
    pub(crate) fn stays_short(&mut self, sk: &SdpSock) {
        let least = usize::from(self.target(sk).min(LEAST_BUFFERS));
        let posted = |c: &Channel| usize::from(c.posted_receives());
        if self.channel.as_ref().is_some_and(|c| posted(c) < least) {
            self.shortage.noticed(sk);
        }
    }

    /// Whether no bytes can come before some are read that lie here.
    pub(crate) fn is_full(&self, sk: &SdpSock) -> bool {
        let posted = self.channel.as_ref().map(|c| c.posted_receives());
        let few = posted.is_some_and(|posted| posted < PAYLOAD_CREDITS);
        // others may be on their way to be posted
        few && self.rx.memory() > 0 && self.target(sk) < PAYLOAD_CREDITS
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
    pub(crate) fn wants_refill(&self, sk: &SdpSock) -> bool {
        let Some(channel) = self.channel.as_ref() else {
            return false;
        };
        let target = self.target(sk);
        channel.posted_receives() <= target - target / 4
    }

    /// Posts the receive buffers that are missing, if it is time to. They are made without the lock, so
    /// `tell` says if there are not enough.
    pub(crate) fn refill(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        if !self.wants_refill(sk) {
            return;
        }
        let Some(channel) = self.channel.as_mut() else {
            return;
        };
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
            let Some(buffer) = self.spare.pop() else {
                break;
            };
            if channel.post_receive(buffer).is_err() {
                break;
            }
        }
        if channel.posted_receives() >= target.min(LEAST_BUFFERS) {
            self.shortage = Shortage::new();
        } else if !self.spare.is_empty() {
            self.shortage.noticed(sk);
        }
        wakeups.buffers |= self.lacking(sk) > 0;
    }
}

/// Twice the window, as far as the receive queue allows.
pub(super) fn wider(window: u16, channel: &Channel) -> u16 {
    window.saturating_mul(2).min(channel.limits().receive_slots)
}
