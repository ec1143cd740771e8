// SPDX-License-Identifier: GPL-2.0-only

//! What one send call goes by: which of its bytes are copied, and which are not.

use crate::conn::send_queue::LARGE_CHUNK;
use crate::conn::zcopy::detached::Added;
use crate::conn::{zcopy, Connection, SdpSock};
use crate::sys::bindings as c;
use crate::sys::net::message::SendMsg;
use crate::sys::net::notice::Notice;
use core::ops::Range;

/// One send call.
pub(super) struct Call<'a> {
    /// It is counted.
    begun: bool,
    /// Where it is.
    part: Part,
    /// Bytes of the longest part of which it was asked how they are to go.
    longest: usize,
    /// It would be many blocks: no run of its memory is half of it.
    scattered: bool,
    /// Whether it need not wait for bytes all the same that are not copied.
    asynchronous: bool,
    /// It does not wait for some of them.
    detached: bool,
    /// What is told when they are free, for which the call need not wait.
    pub(super) notice: Option<&'a Notice>,
    /// Some were copied.
    pub(super) copied: bool,
}

/// Bytes of a call that go one way: a run of its memory ([`SendMsg::run`]), or several that are too short for
/// anything but a copy.
struct Part {
    /// Which of the call's bytes they are.
    bytes: Range<usize>,
    /// Whether they are not to be copied, once that was asked.
    direct: Option<bool>,
}

impl<'a> Call<'a> {
    pub(super) fn new(notice: Option<&'a Notice>) -> Self {
        Call {
            begun: false,
            part: Part {
                bytes: 0..0,
                direct: None,
            },
            longest: 0,
            scattered: false,
            asynchronous: false,
            detached: false,
            notice,
            copied: false,
        }
    }

    /// Looks how its bytes may go, and whether it need not wait for them if it may. A reader's advert may have
    /// come, to which it can write at once.
    pub(super) fn look_ahead(&mut self, sk: &SdpSock, message: &mut SendMsg<'_>, may_wait: bool) {
        let size = message.remaining();
        if size < zcopy::LEAST_TRANSFER {
            return;
        }
        if may_wait {
            let mut c = sk.connection();
            self.asynchronous = self.notice.is_none() && c.may_send_async(size);
            if c.may_go_directly(size) && c.may_have_news(sk) {
                c.progress();
            }
        }
        if self.asynchronous || self.notice.is_some() {
            let one = message.run(size).is_some_and(|(_, len)| len == size);
            self.scattered = !one && message.short(size, size.div_ceil(2)) == size;
        }
    }

    /// How many of the next bytes are of the part that it is at.
    pub(super) fn look(&mut self, sk: &SdpSock, message: &mut SendMsg<'_>) -> usize {
        let (at, left) = (message.taken(), message.remaining());
        if !self.part.bytes.contains(&at) {
            let run = match left < zcopy::LEAST_TRANSFER {
                true => left,
                false => message.run(left).map_or(left, |(_, len)| len),
            };
            let shortest = (run < left).then(|| self.shortest(sk));
            let (len, direct) = match shortest.flatten() {
                _ if run == left => (left, None),
                Some(least) if run >= least => (run, None),
                Some(least) => (message.short(LARGE_CHUNK.min(left), least), Some(false)),
                None => (left, Some(false)),
            };
            self.part = Part {
                bytes: at..at + len,
                direct,
            };
        }
        self.part.bytes.end - at
    }

    /// Bytes of a run from which it may go other than by a copy, if any may.
    fn shortest(&self, sk: &SdpSock) -> Option<usize> {
        match self.notice {
            Some(_) if !self.scattered => Some(zcopy::detached::LEAST),
            _ => sk.connection().zcopy_threshold(),
        }
    }

    /// Whether the part that it is at is not to be copied, as blocking calls go.
    pub(super) fn is_direct(&mut self, c: &mut Connection) -> bool {
        let (part, longest) = (&mut self.part, &mut self.longest);
        *part.direct.get_or_insert_with(|| {
            let len = part.bytes.len();
            *longest = len.max(*longest);
            c.chooses_direct(len)
        })
    }

    /// It has sent all of its bytes, so many, since `start`, if it is timed.
    pub(super) fn has_sent(&self, sk: &SdpSock, size: usize, start: Option<u64>) {
        // what a block costs that nobody waits for is told where others follow
        let waits = !self.detached && self.notice.is_none();
        if let Some(start) = start.filter(|_| waits || self.scattered) {
            sk.connection().has_sent(self.longest, size, start);
        }
    }

    /// Counts it.
    pub(super) fn count(&mut self, c: &mut Connection) {
        if !core::mem::replace(&mut self.begun, true) {
            c.stats.send_calls += 1;
            c.polling.called();
        }
    }

    /// Whether its next bytes may be a block that it need not wait for.
    pub(super) fn may_detach(&self, message: &SendMsg<'_>) -> bool {
        let may = self.notice.is_some() || self.asynchronous || message.is_spliced();
        may && message.flags() & c::MSG_OOB == 0
    }

    /// Adds its next bytes as a block that it need not wait for, if they are to be one: what became of
    /// that. `may_wait`: it waits for them otherwise.
    pub(super) fn add(
        &mut self,
        sk: &SdpSock,
        message: &mut SendMsg<'_>,
        may_wait: bool,
    ) -> Option<Added> {
        if message.is_spliced() && self.notice.is_none() {
            return zcopy::spliced::add(sk, message);
        }
        self.asynchronous &= may_wait;
        if self.notice.is_none() && !self.asynchronous {
            return None;
        }
        let left = self.look(sk, message);
        // of many blocks each costs as much as a call of that size
        let copies = match self.scattered {
            true => !self.is_direct(&mut sk.connection()),
            false => self.part.direct == Some(false),
        };
        if copies {
            return Some(Added::Copy(left));
        }
        let added = match self.notice {
            Some(notice) => Some(zcopy::detached::add(sk, message, notice)),
            None => zcopy::protected::add(sk, message).ok(),
        };
        self.asynchronous &= added.is_some();
        self.detached |= added == Some(Added::Block);
        added
    }
}
