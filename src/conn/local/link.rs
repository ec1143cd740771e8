// SPDX-License-Identifier: GPL-2.0-only

//! Access of one end to the two streams of a local connection.

use super::super::closing::CloseEvent;
use super::super::timers::Timer;
use super::super::unread::{Unread, Urgent};
use super::super::{SdpSock, CORK_TIME, JOB_ADMIT};
use super::blocks::{Blocks, Offered};
use crate::sys::byte_queue::ByteQueue;
use crate::sys::errno::ECONNRESET;
use crate::sys::net::sock::SockCore;
use crate::sys::time::milliseconds;
use crate::transport::LinkId;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{Acquire, Atomic, AtomicFlag, Full, Relaxed, Release};
use kernel::sync::Arc;

/// Maximum number of queued copied bytes to which a call adds more. A queue has 256 entries, most
/// of them segments of 64 KiB, so a message of 2 MiB still fits behind the copied bytes.
const MOST_COPIED: usize = 12 << 20;

/// State of one direction of a local connection.
pub(super) struct Direction {
    pub(super) queue: Arc<ByteQueue<Offered>>,
    pub(super) blocks: Arc<Blocks>,
    /// Position behind the last urgent byte, 0 for none. Written before the byte is published.
    urgent: Atomic<i64>,
    /// Position of an unread urgent byte that a newer urgent byte has replaced; negative for none.
    dropped: Atomic<i64>,
    /// Value of `urgent` for the byte that the reader has read by `MSG_OOB`.
    urgent_read: Atomic<i64>,
    /// Set while accept(2) waits for the first bytes (`TCP_DEFER_ACCEPT`).
    deferred: AtomicFlag,
    /// Set after the last byte of the stream is written.
    finished: AtomicFlag,
    /// Set once the reading socket is closed.
    closed: AtomicFlag,
}

impl Direction {
    pub(super) fn new(queue: Arc<ByteQueue<Offered>>) -> Result<Arc<Self>> {
        let direction = Direction {
            queue,
            blocks: Blocks::new()?,
            urgent: Atomic::new(0),
            dropped: Atomic::new(-1),
            urgent_read: Atomic::new(0),
            deferred: AtomicFlag::new(false),
            finished: AtomicFlag::new(false),
            closed: AtomicFlag::new(false),
        };
        Ok(Arc::new(direction, GFP_KERNEL)?)
    }
}

/// One end of a local connection. Context of the methods: any, unless stated otherwise.
pub(crate) struct LocalLink {
    pub(crate) id: LinkId,
    pub(super) outgoing: Arc<Direction>,
    pub(super) incoming: Arc<Direction>,
    pub(crate) peer: ARef<SdpSock>,
    /// Bits of [`Special`] for this end.
    special: Atomic<i32>,
    /// Number of send calls of this end. Written under the socket lock.
    sends: Atomic<u64>,
    receives: Atomic<u64>,
}

/// Condition under which calls have to take the connection's lock.
#[derive(Clone, Copy)]
pub(crate) enum Special {
    /// `TCP_CORK`.
    Cork = 1,
    /// `TCP_NOTSENT_LOWAT` or `TCP_USER_TIMEOUT` is set, which each send call has to check.
    Send = 2,
    /// `TCP_INQ`.
    Inq = 4,
}

impl LocalLink {
    pub(super) fn new(
        id: LinkId,
        [outgoing, incoming]: [&Arc<Direction>; 2],
        peer: &SdpSock,
    ) -> Result<Arc<Self>> {
        let link = LocalLink {
            id,
            outgoing: outgoing.clone(),
            incoming: incoming.clone(),
            peer: peer.into(),
            special: Atomic::new(0),
            sends: Atomic::new(0),
            receives: Atomic::new(0),
        };
        Ok(Arc::new(link, GFP_KERNEL)?)
    }

    /// Returns the positions of the bytes that this end can read.
    pub(crate) fn unread(&self) -> Unread {
        let d = &self.incoming;
        let flow = d.queue.flow();
        // Loads the mark before the end: the byte of a mark at or below the end has arrived.
        let read = flow.read();
        let (mark, end) = (d.urgent.load(Acquire), flow.written());
        let at = mark.wrapping_sub(1);
        let urgent = match mark {
            0 => Urgent::None,
            _ if at < read => Urgent::None,
            _ if end < mark => Urgent::Pending,
            _ if d.urgent_read.load(Relaxed) == mark => Urgent::Read(at as u64),
            _ => Urgent::Valid(0, at as u64),
        };
        Unread::new(read as u64, end as u64, urgent)
    }

    /// Returns the position behind the last urgent byte, 0 for none. A caller that has loaded the
    /// end of the stream before this call has no newer urgent byte before that end.
    #[inline]
    pub(crate) fn mark(&self) -> i64 {
        self.incoming.urgent.load(Acquire)
    }

    /// Returns the numbers of calls, bytes, and bytes copied only once, each sent and received.
    pub(super) fn counts(&self) -> [u64; 6] {
        [
            self.sends.load(Relaxed),
            self.receives.load(Relaxed),
            self.outgoing.queue.flow().written() as u64,
            self.incoming.queue.flow().read() as u64,
            self.outgoing.blocks.direct.load(Relaxed),
            self.incoming.blocks.direct.load(Relaxed),
        ]
    }

    /// Returns the position to which the peer has read.
    pub(crate) fn arrived(&self) -> i64 {
        self.outgoing.queue.flow().read()
    }

    /// Returns the number of bytes that this end can read now.
    pub(crate) fn readable(&self) -> usize {
        self.incoming.queue.flow().unread()
    }

    /// Returns the number of published bytes that the peer has not read.
    pub(crate) fn unsent(&self) -> usize {
        self.outgoing.queue.flow().unread()
    }

    /// Returns the size of the peer's receive buffer, up to which unread bytes count as arrived.
    fn window(&self) -> usize {
        self.peer.rcvbuf() / 2
    }

    /// Returns the number of unread bytes outside blocks.
    pub(crate) fn copied(&self) -> usize {
        let pinned = self.outgoing.blocks.pinned();
        self.unsent().saturating_sub(pinned)
    }

    /// Returns the number of copied bytes beyond the peer's receive buffer, which have not arrived.
    pub(crate) fn queued(&self) -> usize {
        self.copied().saturating_sub(self.window())
    }

    /// Returns the space for bytes at `position`, the end of the outgoing stream.
    #[inline]
    pub(crate) fn space(&self, sk: &SdpSock, position: i64) -> usize {
        let read = self.outgoing.queue.flow().read();
        let unread = usize::try_from(position.wrapping_sub(read)).unwrap_or(0);
        let most = sk.sndbuf().saturating_add(self.window());
        most.min(MOST_COPIED)
            .saturating_sub(unread.saturating_sub(self.outgoing.blocks.pinned()))
    }

    /// Returns true if the program has to read bytes before more can arrive.
    pub(crate) fn is_full(&self, sk: &SdpSock) -> bool {
        let most = (sk.rcvbuf() / 2).saturating_add(self.peer.sndbuf());
        self.readable() >= most.min(MOST_COPIED)
    }

    /// Returns true if the queue has entries for more copied bytes.
    pub(in crate::conn) fn has_entries(&self) -> bool {
        self.copied() < MOST_COPIED
    }

    /// Requests a wakeup of this end's callers for new bytes. The caller then checks for bytes.
    pub(crate) fn await_bytes(&self) {
        self.incoming.queue.flow().await_bytes();
    }

    /// Requests a wakeup of this end once half of the space is free, since a wakeup costs as much
    /// as many copies. A free send buffer suffices, since a reader may wait for a full window
    /// (`SO_RCVLOWAT`). After the request, the caller checks for space again.
    pub(crate) fn await_space(&self, sk: &SdpSock) {
        let (window, d) = (self.window(), &self.outgoing);
        let half = sk.sndbuf().saturating_add(window) / 2;
        let low = half.max(window).min(MOST_COPIED);
        let low = low.saturating_add(d.blocks.pinned());
        d.queue.flow().await_space(low);
    }

    /// Delays accept(2) of this end until bytes arrive. Returns false if bytes have arrived.
    pub(crate) fn defer(&self) -> bool {
        let d = &self.incoming;
        d.deferred.xchg(true, Full);
        d.queue.flow().await_bytes();
        d.queue.flow().unread() == 0
    }

    #[inline]
    pub(crate) fn has(&self, what: Special) -> bool {
        self.special.load(Relaxed) & what as i32 != 0
    }

    #[inline]
    pub(crate) fn is_special(&self) -> bool {
        self.special.load(Relaxed) != 0
    }

    /// Sets or clears a condition. Context: connection's lock held.
    pub(crate) fn set(&self, what: Special, on: bool) {
        let others = self.special.load(Relaxed) & !(what as i32);
        let this = if on { what as i32 } else { 0 };
        self.special.store(others | this, Relaxed);
    }

    /// Counts a call of this end. Context: process, with the socket lock held.
    #[inline]
    pub(crate) fn count_call(&self, sends: bool) {
        let calls = if sends { &self.sends } else { &self.receives };
        calls.store(calls.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Ends this end's stream. The caller notifies the peer of the end.
    pub(crate) fn finish(&self) {
        let d = &self.outgoing;
        let _ = d.queue.publish_held();
        d.finished.xchg(true, Full);
    }

    pub(crate) fn peer_has_finished(&self) -> bool {
        self.incoming.finished.load(Acquire)
    }

    pub(crate) fn both_ended(&self) -> bool {
        self.peer_has_finished() && self.outgoing.finished.load(Acquire)
    }

    /// Publishes the bytes held back by `MSG_MORE` or `TCP_CORK`.
    pub(crate) fn uncork(&self) {
        if let Some(waits) = self.outgoing.queue.publish_held() {
            self.has_written(waits);
        }
    }

    /// Notifies the peer of new bytes. `waits` is true if a call of the peer waits.
    #[inline(always)] // a call would cost 1 % of a small send
    pub(crate) fn has_written(&self, waits: bool) {
        if waits {
            self.peer.wake();
            let deferred = &self.outgoing.deferred;
            if deferred.load(Relaxed) && deferred.xchg(false, Full) {
                self.peer.schedule(JOB_ADMIT);
            }
        }
        // at each write, as in TCP (EPOLLET)
        if SockCore::is_watched(&self.peer) {
            self.peer.data_ready();
        }
        if self.outgoing.closed.load(Relaxed) {
            self.reject();
        }
    }

    /// Resets the connection, since the closed peer cannot read the bytes just sent.
    #[cold]
    fn reject(&self) {
        let mut c = self.peer.connection();
        if c.is_of(self.id) {
            c.close_on(CloseEvent::Reset, ECONNRESET);
        }
    }

    /// Starts the timer that sends bytes held back by `MSG_MORE` or `TCP_CORK`.
    #[cold]
    pub(crate) fn holds(&self, sk: &SdpSock) {
        let mut c = sk.connection();
        if !c.timers.is_set(Timer::Cork) {
            c.set_timer(sk, Timer::Cork, CORK_TIME);
        }
    }

    /// Returns true if at least `TCP_NOTSENT_LOWAT` bytes have not arrived.
    #[cold]
    pub(crate) fn has_enough_unsent(&self, sk: &SdpSock) -> bool {
        let enough = sk.with(|c| c.options.not_sent_lowat) as usize;
        enough != 0 && self.queued() >= enough
    }

    /// Starts `TCP_USER_TIMEOUT` before bytes are sent, unless earlier bytes are unread.
    #[cold]
    pub(crate) fn watch_progress(&self, sk: &SdpSock) {
        let timeout = sk.with(|c| {
            c.note_progress(self.outstanding() == 0);
            c.options.user_timeout
        });
        if timeout != 0 {
            sk.set_timer(milliseconds(timeout));
        }
    }

    /// Notifies the peer of free space, for which a call of the peer waits.
    #[cold]
    pub(crate) fn has_read(&self) {
        self.peer.wake();
        if self.peer.take_want_space() {
            self.peer.write_space();
        }
        if self.incoming.finished.load(Relaxed) {
            self.peer.fin_arrives(self.id);
        }
    }

    /// Returns true if all bytes are within the peer's receive buffer. Otherwise requests a wakeup
    /// when all bytes have arrived.
    pub(in crate::conn) fn has_arrived(&self) -> bool {
        self.outgoing.queue.flow().await_space(self.window());
        self.queued() == 0 && self.outgoing.blocks.count() == 0
    }

    /// Announces an urgent byte before position `end`, which is published next.
    pub(crate) fn announce(&self, end: i64) {
        let d = &self.outgoing;
        let (before, read) = (d.urgent.load(Relaxed), d.queue.flow().read());
        let next = before > 0 && before.wrapping_sub(1) == read;
        d.dropped.store(if next { read } else { -1 }, Relaxed);
        d.urgent.store(end, Release);
    }

    /// Records that the urgent byte before position `mark` was read by `MSG_OOB`.
    pub(crate) fn urgent_is_read(&self, mark: i64) {
        self.incoming.urgent_read.store(mark, Relaxed);
    }

    /// Returns true if the next byte to read is urgent, but a newer urgent byte has replaced it.
    pub(crate) fn drops_next(&self) -> bool {
        let d = &self.incoming;
        let dropped = d.dropped.load(Relaxed);
        dropped >= 0 && dropped == d.queue.flow().read()
    }

    /// Records that this end's socket is closed and reads no more. Returns true if bytes are
    /// unread. A writer publishes bytes before it checks if the reader is closed.
    pub(crate) fn stop_reading(&self) -> bool {
        self.incoming.closed.xchg(true, Full);
        self.readable() > 0
    }

    /// Returns true if the peer's socket is closed and reads no more.
    pub(crate) fn peer_is_closed(&self) -> bool {
        self.outgoing.closed.load(Relaxed)
    }
}
