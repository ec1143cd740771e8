// SPDX-License-Identifier: GPL-2.0-only

//! What one send call goes by: which of its bytes are copied, and which are not.

use super::send_step::{Space, Step};
use crate::conn::send_queue::LARGE_CHUNK;
use crate::conn::zcopy::detached::Added;
use crate::conn::{zcopy, Connection, SdpSock};
use crate::sys::bindings;
use crate::sys::net::message::SendMsg;
use crate::sys::net::notice::Notice;
use core::ops::Range;
use kernel::prelude::*;

/// One send call.
pub(super) struct Call<'a> {
    /// It is counted, and looked at.
    begun: bool,
    /// All of its bytes are copied, whatever else there is.
    is_plain: bool,
    /// Bytes of a run from which it may go other than by a copy, if any may.
    least: Option<usize>,
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
    /// Why it ends when there is no more room.
    pub(super) stopped: Option<Error>,
    /// What is told when they are free, for which the call need not wait.
    pub(super) notice: Option<&'a Notice>,
    pub(super) copied: bool,
    /// Where the next ones are copied to ([`Step::Copy`]).
    pub(super) space: Space,
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
            is_plain: false,
            least: None,
            part: Part {
                bytes: 0..0,
                direct: None,
            },
            longest: 0,
            scattered: false,
            asynchronous: false,
            detached: false,
            stopped: None,
            notice,
            copied: false,
            space: Space::default(),
        }
    }

    /// The next step, if all of its bytes are copied; else it goes on part by part. `may_wait`: for whoever reads them.
    pub(super) fn plain_step(
        &mut self,
        sk: &SdpSock,
        message: &mut SendMsg<'_>,
        may_wait: bool,
    ) -> Option<Step> {
        if self.begun && !self.is_plain {
            return None;
        }
        let size = message.remaining();
        let mut c = sk.connection();
        if !self.begun {
            self.begin(&mut c, message, size, may_wait);
        }
        if self.is_plain {
            return Some(Step::to_copy(sk, &mut c, size, &mut self.space));
        }
        self.asynchronous = may_wait && self.notice.is_none() && c.may_send_async(size);
        let news = may_wait && c.may_go_directly(size) && c.may_have_news(sk);
        let threshold = c.zcopy_threshold();
        drop(c);
        if news {
            // a reader's advert may have come, to which it can write at once
            sk.progress();
        }
        if self.asynchronous || self.notice.is_some() {
            let one = message.run(size).is_some_and(|(_, len)| len == size);
            self.scattered = !one && message.short(size, size.div_ceil(2)) == size;
            if self.scattered {
                self.least = threshold;
            }
        }
        None
    }

    /// Counts it, and looks whether all of its bytes, so many, are copied.
    #[inline]
    fn begin(&mut self, c: &mut Connection, message: &SendMsg<'_>, size: usize, may_wait: bool) {
        self.begun = true;
        c.stats.send_calls += 1;
        c.polling.called();
        let is_small = size < zcopy::LEAST_TRANSFER || {
            self.least = match self.notice {
                Some(_) => Some(zcopy::detached::LEAST),
                None if may_wait => c.zcopy_threshold(),
                None => None,
            };
            if may_wait && self.least.is_none() {
                // zero copy was switched off: the peer's readers need not tell of their memory any more
                c.chooses_direct(size);
            }
            self.least.is_none_or(|least| size < least)
        };
        let is_urgent = message.flags() & bindings::MSG_OOB != 0;
        self.is_plain = is_urgent || (is_small && !message.is_spliced());
    }

    /// The best step for `want` bytes. `part`: so many of them go one way, and it may wait for whoever reads them.
    pub(super) fn step(&mut self, sk: &SdpSock, want: usize, part: Option<usize>) -> Step {
        let mut c = sk.connection();
        if let Some(left) = part.filter(|_| self.is_direct(&mut c)) {
            if c.writable_directly(want) > 0 {
                return Step::Write;
            }
            match c.block_size(sk, left) {
                0 if c.awaits_reader(want) => return Step::AwaitReader,
                0 => {}
                size => return Step::Block(size),
            }
        }
        Step::to_copy(sk, &mut c, want, &mut self.space)
    }

    /// How many of the next bytes are of the part that it is at.
    pub(super) fn look(&mut self, message: &mut SendMsg<'_>) -> usize {
        let (at, left) = (message.taken(), message.remaining());
        if !self.part.bytes.contains(&at) {
            let run = match left < zcopy::LEAST_TRANSFER {
                true => left,
                false => message.run(left).map_or(left, |(_, len)| len),
            };
            let (len, direct) = match self.least {
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

    /// Whether its next bytes may be a block that it need not wait for.
    pub(super) fn may_detach(&self, message: &SendMsg<'_>) -> bool {
        let may = self.notice.is_some() || self.asynchronous || message.is_spliced();
        may && message.flags() & bindings::MSG_OOB == 0
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
        let left = self.look(message);
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
