// SPDX-License-Identifier: GPL-2.0-only

//! State of one send call: its copied bytes and its zero-copy bytes.

use super::netns;
use crate::conn::events::last_check;
use crate::conn::send_queue::{OpenChunk, LARGE_CHUNK, MIDDLE_CHUNK, SMALL_CHUNK};
use crate::conn::wait::SpaceWanted;
use crate::conn::zcopy::memory::Added;
use crate::conn::{zcopy, Connection, SdpSock};
use crate::memory::pressure;
use crate::sys::bindings;
use crate::sys::errno::{EAGAIN, EPIPE};
use crate::sys::net::message::SendMsg;
use crate::sys::net::notice::ZerocopyCompletion;
use crate::sys::net::sock::Locked;
use crate::sys::rdma::mapper::Mapper;
use crate::sys::time::nanoseconds;
use core::ops::Range;
use kernel::prelude::*;
use kernel::sync::Arc;

#[derive(Default)]
pub(super) struct Call<'a> {
    /// Set once the call is counted and classified.
    begun: bool,
    /// Set if all bytes are copied.
    is_plain: bool,
    /// Minimum size of a run for zero copy; `None`: no zero copy.
    least: Option<usize>,
    /// Current part.
    part: Part,
    /// Start and size of a call whose duration is reported to the zero-copy policy.
    timed: Option<(u64, usize)>,
    /// Size of the largest part for which copy or zero copy was chosen.
    longest: usize,
    /// Set if zero copy would need many blocks: no contiguous run is half of the call's bytes.
    scattered: bool,
    /// Set if the call need not wait for uncopied bytes (`async_send`).
    asynchronous: bool,
    /// Set if some blocks are detached.
    detached: bool,
    pub(super) is_local: bool,
    /// Set if the call waits for blocks on a local connection.
    pub(super) waits: bool,
    /// Error that ends the call when the queue is full.
    pub(super) stopped: Option<Error>,
    /// Completion of a `MSG_ZEROCOPY` call, which returns without waiting for the peer.
    pub(super) notice: Option<&'a ZerocopyCompletion>,
    pub(super) copied: bool,
    /// Space for the next copied bytes ([`Space::find`]).
    pub(super) space: Space,
}

/// Bytes of a call that are sent by one method: a run of its memory ([`SendMsg::run`]), or several
/// runs that are too short for zero copy.
#[derive(Default)]
struct Part {
    bytes: Range<usize>,
    /// True for zero copy, `None` until chosen.
    zcopy: Option<bool>,
}

impl<'a> Call<'a> {
    pub(super) fn new(notice: Option<&'a ZerocopyCompletion>, is_local: bool) -> Self {
        Call {
            is_local,
            notice,
            ..Call::default()
        }
    }

    /// Returns true if all bytes of the call are copied and the queue has space for the next ones.
    /// Returns `None` to send the call in parts. `may_wait`: the call may wait for a reader.
    ///
    /// Errors: those of [`Space::find`].
    pub(super) fn plain_space(
        &mut self,
        sk: &SdpSock,
        message: &mut SendMsg<'_>,
        may_wait: bool,
    ) -> Result<Option<bool>> {
        if self.begun && (self.is_local || !self.is_plain) {
            return Ok(self.is_plain.then_some(true));
        }
        let size = message.remaining();
        let space = sk.with(|c| {
            if !self.begun {
                c.stats.send_calls += u64::from(!self.is_local);
                self.begin(c, message, size, may_wait);
            }
            self.is_plain.then(|| self.find(sk, c, size))
        });
        match space {
            Some(space) => space.map(Some),
            None if sk.prepare_zcopy() => {
                self.begin_parts(sk, message, size, may_wait);
                Ok(None)
            }
            None => {
                self.is_plain = true;
                sk.with(|c| self.find(sk, c, size)).map(Some)
            }
        }
    }

    /// Calls [`Space::find`], except on a local connection, which finds space while it copies.
    pub(super) fn find(&mut self, sk: &SdpSock, c: &mut Connection, want: usize) -> Result<bool> {
        match self.is_local {
            true => Ok(true),
            false => self.space.find(sk, c, want),
        }
    }

    /// Prepares a call that may use zero copy.
    fn begin_parts(
        &mut self,
        sk: &SdpSock,
        message: &mut SendMsg<'_>,
        size: usize,
        may_wait: bool,
    ) {
        let is_timed = size >= zcopy::policy::SMALLEST && may_wait && may_choose(message);
        self.timed = is_timed.then(|| (nanoseconds(), size));
        let (news, threshold) = sk.with(|c| {
            self.asynchronous = may_wait && self.notice.is_none() && c.may_send_async(size);
            let news = may_wait && c.may_use_zcopy(size) && sk.may_have_completions();
            (news, c.zcopy_threshold())
        });
        if news {
            // the peer's reader may have advertised a buffer that the call can write to at once
            sk.progress();
        }
        if self.asynchronous || self.notice.is_some() {
            let one = message.run(size).is_some_and(|(_, len)| len == size);
            self.scattered = !one && message.short(size, size.div_ceil(2)) == size;
            if self.scattered {
                self.least = threshold;
            }
        }
    }

    /// Checks if all of the call's `size` bytes are to be copied.
    #[inline]
    fn begin(&mut self, c: &mut Connection, message: &SendMsg<'_>, size: usize, may_wait: bool) {
        self.begun = true;
        let is_small = size < zcopy::LEAST_TRANSFER || {
            self.least = match self.notice {
                Some(_) => Some(zcopy::memory::LEAST),
                None if may_wait => c.zcopy_threshold(),
                None => None,
            };
            if may_wait && self.least.is_none() {
                // zero copy was switched off: the peer's readers need not advertise their memory
                c.chooses_zcopy(size);
            }
            self.least.is_none_or(|least| size < least)
        };
        let is_urgent = message.flags() & bindings::MSG_OOB != 0;
        self.is_plain = is_urgent || (is_small && !message.is_spliced());
    }

    /// Sends the next bytes of a call that may use zero copy. `None`: check again. Returns the
    /// number of bytes to copy next.
    ///
    /// # Errors
    ///
    /// `EPIPE`: the connection is lost. `EAGAIN`, or the error of a signal or time-out: some bytes
    /// are sent, or a block has no space.
    #[inline(never)] // keeps the function's registers out of calls that only copy
    pub(super) fn send_part(
        &mut self,
        sk: &SdpSock,
        lock: &mut Locked<'_>,
        message: &mut SendMsg<'_>,
        seq: i32,
        timeout: &mut isize,
    ) -> Result<Option<usize>> {
        let want = message.remaining();
        let (mut most, may_wait) = (want, *timeout != 0);
        if self.may_detach(message) {
            let mut wanted = None;
            let added = last_check(
                self.add(sk, lock, message, may_wait),
                |added| *added == Added::Full,
                || wanted = request_space(sk, !may_wait),
                || self.add(sk, lock, message, may_wait),
            );
            match added {
                Added::Block => return Ok(None),
                Added::Copy(n) => most = n.min(want),
                Added::Full if !may_wait => return Err(EAGAIN.into()),
                Added::Full => {
                    *timeout = wait_for_space(sk, lock, seq, *timeout)?;
                    return Ok(None);
                }
            }
        }
        let left = self.look(message);
        // bytes before and after a block are copied
        let may_wait = may_wait && may_choose(message) && self.notice.is_none() && most == want;
        let size = match may_wait {
            true => self.block_size(sk, left),
            false => 0,
        };
        let sent = match size {
            0 => Ok(false),
            _ if self.is_local => {
                zcopy::send::add_local(sk, lock, message, &mut self.waits, timeout)
            }
            _ => zcopy::send::send_blocks(sk, lock, message, size, timeout),
        };
        match sent {
            Ok(true) => return Ok(None),
            Err(e) if message.taken() > 0 || e == EPIPE.into() => return Err(e),
            // as on TCP, bytes are accepted while the queue has space
            Err(e) => (self.stopped, *timeout) = (Some(e), 0),
            Ok(false) => {}
        }
        Ok(Some(most.min(left)))
    }

    /// Returns the size of the next block of `left` bytes, 0 if the part is copied.
    fn block_size(&mut self, sk: &SdpSock, left: usize) -> usize {
        let mut c = sk.connection();
        match self.is_direct(&mut c) {
            true if self.is_local => left,
            true => c.block_size(sk, left),
            false => 0,
        }
    }

    /// Returns the number of bytes left in the current part of the call.
    fn look(&mut self, message: &mut SendMsg<'_>) -> usize {
        let (at, left) = (message.taken(), message.remaining());
        if !self.part.bytes.contains(&at) {
            let run = match left < zcopy::LEAST_TRANSFER {
                true => left,
                false => message.run(left).map_or(left, |(_, len)| len),
            };
            let (len, zcopy) = match self.least {
                _ if run == left => (left, None),
                Some(least) if run >= least => (run, None),
                Some(least) => (message.short(LARGE_CHUNK.min(left), least), Some(false)),
                None => (left, Some(false)),
            };
            self.part = Part {
                bytes: at..at.saturating_add(len),
                zcopy,
            };
        }
        self.part.bytes.end.saturating_sub(at)
    }

    /// Returns true if the policy for blocking calls selects zero copy for the current part.
    fn is_direct(&mut self, c: &mut Connection) -> bool {
        let (part, longest) = (&mut self.part, &mut self.longest);
        *part.zcopy.get_or_insert_with(|| {
            let len = part.bytes.len();
            *longest = len.max(*longest);
            c.chooses_zcopy(len)
        })
    }

    /// Reports the duration of a timed call to the zero-copy policy.
    pub(super) fn has_sent(&self, sk: &SdpSock) {
        // a detached block costs time in later calls, not in this call
        let waits = !self.detached && self.notice.is_none();
        if let Some((start, size)) = self.timed.filter(|_| waits || self.scattered) {
            sk.connection().has_sent(self.longest, size, start);
        }
    }

    /// Returns true if the next bytes may be a detached block.
    fn may_detach(&self, message: &SendMsg<'_>) -> bool {
        let may = self.notice.is_some() || self.asynchronous || message.is_spliced();
        may && message.flags() & bindings::MSG_OOB == 0
    }

    /// Adds the next bytes as a detached block, if possible. `may_wait`: the call may wait.
    fn add(
        &mut self,
        sk: &SdpSock,
        lock: &mut Locked<'_>,
        message: &mut SendMsg<'_>,
        may_wait: bool,
    ) -> Added {
        let all = Added::Copy(message.remaining());
        if message.is_spliced() && self.notice.is_none() {
            return zcopy::spliced::add(sk, lock, message).unwrap_or(all);
        }
        self.asynchronous &= may_wait;
        if self.notice.is_none() && !self.asynchronous {
            return all;
        }
        let left = self.look(message);
        // with many blocks, each costs as much as a call of its size
        let copies = match self.scattered {
            true => !self.is_direct(&mut sk.connection()),
            false => self.part.zcopy == Some(false),
        };
        if copies {
            return Added::Copy(left);
        }
        let added = match self.notice {
            Some(notice) => Some(zcopy::detached::add(sk, lock, message, notice)),
            None => zcopy::protected::add(sk, lock, message),
        };
        self.asynchronous &= added.is_some();
        self.detached |= added == Some(Added::Block);
        added.unwrap_or(all)
    }
}

/// Returns true if the call may choose between copy and zero copy.
pub(super) fn may_choose(message: &SendMsg<'_>) -> bool {
    message.flags() & bindings::MSG_OOB == 0 && !message.is_spliced()
}

/// Result of an attempt to queue bytes.
pub(super) enum Queued {
    /// Bytes were queued.
    Some,
    /// There is no space in the send buffer.
    Full,
    /// There is no memory for more unread bytes of a local connection.
    NoMemory,
}

/// Space in the send queue for the next copied bytes. The chunk in this space is open: the holder
/// closes the chunk before it releases the socket lock.
#[derive(Default)]
pub(super) struct Space {
    /// Maximum number of bytes to copy.
    pub(super) bytes: usize,
    /// Chunk to copy to, if any.
    pub(super) chunk: Option<OpenChunk>,
    /// Size of the chunk to allocate.
    pub(super) size: usize,
    /// Mapper for the chunk to allocate.
    pub(super) mapper: Option<Arc<Mapper>>,
}

impl Space {
    /// Finds space for a copy of `want` bytes. Returns false if the send queue is full.
    ///
    /// Errors: `EPIPE`: the connection is lost.
    #[inline(always)] // inlined into both send paths
    pub(super) fn find(&mut self, sk: &SdpSock, c: &mut Connection, want: usize) -> Result<bool> {
        if !c.connected() {
            return Err(EPIPE.into());
        }
        // as on TCP, at most `TCP_NOTSENT_LOWAT` bytes may be unsent
        let enough = c.options.not_sent_lowat as usize;
        let is_enough = enough != 0 && c.tx.unsent() >= enough;
        let free = sk.sndbuf().saturating_sub(c.tx.queued());
        if is_enough || free == 0 || !c.tx.has_space() || c.lacks_memory() {
            return Ok(false);
        }
        self.bytes = free;
        self.open(c, want);
        Ok(true)
    }

    /// Opens the chunk for the next `want` bytes, or chooses the size of a new one.
    #[inline(always)] // in either send path
    pub(super) fn open(&mut self, c: &mut Connection, want: usize) {
        // occasional sends should use little memory, streams few chunks
        self.size = match want {
            _ if want > MIDDLE_CHUNK || c.tx.unsent() > 0 => LARGE_CHUNK,
            _ if want > SMALL_CHUNK => MIDDLE_CHUNK,
            _ => SMALL_CHUNK,
        };
        self.chunk = c.tx.open(self.size);
        if self.chunk.is_none() && pressure::is_exhausted() {
            self.size = SMALL_CHUNK;
            self.chunk = c.tx.open(self.size);
        }
        if self.chunk.is_none() {
            self.mapper = c.mapper();
        }
    }
}

/// Sends the queued bytes before a call waits or fails, as TCP does, and polls completions that may
/// have arrived without a notification. `poll`: the call must not wait, so tasks in poll(2) are
/// notified of space, not the caller.
#[inline(never)]
pub(super) fn request_space(sk: &SdpSock, poll: bool) -> Option<SpaceWanted<'_>> {
    let wanted = (!poll).then(|| sk.await_space());
    if poll {
        sk.want_space();
    }
    if let Some(link) = sk.with(|c| c.living_link().cloned()) {
        link.uncork();
        link.await_space(sk);
        if pressure::is_exhausted() {
            netns::shed();
        }
        return wanted;
    }
    let lacks_memory = {
        let mut c = sk.connection();
        c.no_more();
        c.space_wanted |= poll;
        c.await_memory(sk);
        c.lacks_memory()
    };
    if lacks_memory {
        netns::shed();
    }
    sk.progress();
    wanted
}

/// Waits for space in the send queue, after a call of [`request_space`].
#[inline(never)]
pub(super) fn wait_for_space(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    seq: i32,
    timeout: isize,
) -> Result<isize> {
    if sk.local_end(lock).is_some() {
        return sk.wait_local(lock, seq, timeout);
    }
    sk.connection().stats.memory_waits += 1;
    sk.wait(lock, seq, timeout)
}
