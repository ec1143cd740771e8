// SPDX-License-Identifier: GPL-2.0-only

//! Zero copy: the bytes of a blocking send or receive call go straight between its own pages and
//! those of the program at the other end.
//!
//! [`Direct`] is what one connection has under way of that: blocks that a send call has advertised
//! ([`source`]), what a receive call is reading from adverts of the peer ([`reading`]), memory that a
//! receive call has advertised ([`sink`], [`filling`]), and what a send call is writing to such memory
//! of the peer ([`writing`]). Each is of one call at a time; other calls copy, or wait.
//!
//! **Who is asked.** Whoever is ahead tells the other end. A send call that may wait and has at least
//! the threshold of bytes (`SDP_ZCOPY_THRESH`, `sdp_zcopy_thresh`) writes them to where the peer's
//! reader waits; if none does, it offers them. The other end reads them within a receive call that
//! waits, or refuses: to whoever polls, peeks or must not wait, bytes have to be there when they are
//! told of, so these get them as Data. If nobody does anything, the sender does not wait much longer
//! than such transfers took lately, takes its blocks back and copies. A receive call that would sleep,
//! and has room for at least the threshold, offers that, once the peer has sent large blocks. Where
//! no threshold is set, the sender finds out whether all this pays ([`Choice`]).
//!
//! **Who owns the pages** is told in [`crate::transport`]. The call that had them pinned stays until
//! they are let go of; that needs nothing of the peer once the connection is lost.

pub(crate) mod filling;
pub(crate) mod hints;
mod lent;
mod moving;
pub(crate) mod reading;
pub(crate) mod sink;
pub(crate) mod source;
mod waiting;
pub(crate) mod writing;

use self::hints::Hints;
use self::lent::{Lent, Stage};
use self::source::Advertised;
use super::closing::Event;
use super::{Connection, SdpSock, Threshold, Wakeups};
use crate::protocol::{Choice, Line, Outgoing, Places, SMALLEST_DIRECT};
use crate::sys::net::params;
use crate::sys::net::sock::Locked;
use crate::sys::time::{milliseconds, Jiffies};
use crate::transport::{Channel, Loan, Pinned, Watch};
use kernel::prelude::*;

/// Bytes for which pinning is not worth while for a READ or WRITE of ours.
pub(crate) const LEAST_TRANSFER: usize = 4096;
/// Blocks of a send call that are advertised at a time.
const BLOCKS: usize = 4;
/// How long reading a block is believed to take before anything is known.
const FIRST_MEAN: Jiffies = milliseconds(50);
/// How long a send call waits for its block to be taken up, at least and at most; and a receive
/// call for its memory to be written to.
const LEAST_PATIENCE: Jiffies = milliseconds(20);
const MOST_PATIENCE: Jiffies = milliseconds(1000);
/// How long the peer's kernel may take to give memory back, which it does by itself.
const CANCEL_TIME: Jiffies = milliseconds(10_000);
/// Blocks that are copied after adverts that were not taken up, at most.
const MOST_SKIPS: u32 = 64;

/// Whether zero copy may use RDMA READ, or RDMA WRITE (`zcopy_ways`).
fn by_read() -> bool {
    params::zcopy_ways() & 1 != 0
}

fn by_write() -> bool {
    params::zcopy_ways() & 2 != 0
}

/// Zero copy of one connection. Protected by `Socket::connection`.
pub(crate) struct Direct {
    /// What a send call has advertised, or is about to.
    sources: [Option<Advertised>; BLOCKS],
    /// Blocks that there were, of both kinds: each has its number, and the end of access to it is
    /// called by that.
    blocks: u64,
    /// The blocks were given back for a sink of the peer.
    voided: bool,
    /// What a receive call has advertised, or is about to.
    sinks: Places<Loan>,
    /// What a receive call reads.
    reading: Line<Loan>,
    /// What a send call writes.
    writing: Line<Loan>,
    /// How long it lately took until a block was read: a running mean.
    mean: Jiffies,
    /// What comes before this position in what is sent is copied without asking.
    copy_until: u64,
    /// So many blocks more than the one that came back are copied when the next one does.
    skips: u32,
    /// Whether to advertise sinks.
    sink_skips: Skips,
    /// The peer's readers advertise sinks, by the last that was seen of them.
    readers_advertise: bool,
    /// Whether to copy, from the first large send on; and whether that is about local connections.
    choice: Option<(Choice, bool)>,
}

/// How often not to do what did not work lately.
struct Skips {
    left: u32,
    next: u32,
}

impl Skips {
    const fn new() -> Self {
        Skips { left: 0, next: 0 }
    }

    /// Whether not to do it this time.
    fn skip(&mut self) -> bool {
        let skip = self.left > 0;
        self.left = self.left.saturating_sub(1);
        skip
    }

    /// It did not work.
    fn failed(&mut self) {
        self.next = (self.next * 2).clamp(1, MOST_SKIPS);
        self.left = self.next;
    }

    /// It worked.
    fn worked(&mut self) {
        (self.left, self.next) = (0, 0);
    }
}

impl Direct {
    /// Nothing under way.
    pub(crate) const fn new() -> Self {
        Direct {
            sources: [None; BLOCKS],
            blocks: 0,
            voided: false,
            sinks: Places::new(),
            reading: Line::new(),
            writing: Line::new(),
            mean: FIRST_MEAN,
            copy_until: 0,
            skips: 0,
            sink_skips: Skips::new(),
            readers_advertise: true,
            choice: None,
        }
    }

    /// Another connection begins: nothing is known of its ends.
    pub(crate) fn forget(&mut self) {
        (self.mean, self.copy_until, self.skips) = (FIRST_MEAN, 0, 0);
        (self.sink_skips, self.readers_advertise) = (Skips::new(), true);
        self.choice = None;
    }

    /// Whether the end of a work request is waited for, so that it has to be told.
    pub(crate) fn is_busy(&self) -> bool {
        let mut sources = self.sources.iter().flatten();
        sources.any(|s| s.lent.ends())
            || self.sinks.iter().any(Lent::ends)
            || !self.reading.is_empty()
            || !self.writing.is_empty()
    }

    /// Whether memory is lent to the transport.
    pub(crate) fn has_lent(&self) -> bool {
        self.sources.iter().any(Option::is_some)
            || !self.sinks.is_empty()
            || !self.reading.is_empty()
            || !self.writing.is_empty()
    }

    /// The connection is lost: whoever waits has to know.
    pub(crate) fn lost(&mut self) {
        for s in self.sources.iter_mut().flatten() {
            s.lent.stage = Stage::Lost;
        }
        self.sinks.lost();
        self.reading.lost();
        self.writing.lost();
    }

    /// The number of a new block.
    fn next_block(&mut self) -> u64 {
        self.blocks += 1;
        self.blocks
    }

    /// The peer's access to some memory has ended.
    fn ended(&mut self, cookie: u64) {
        let mut sources = self.sources.iter_mut().flatten();
        if !sources.any(|s| s.lent.ended(cookie)) {
            self.sinks.ended(cookie);
        }
    }

    /// How long to wait for a block to be taken up.
    fn patience(&self) -> Jiffies {
        (self.mean * 4).clamp(LEAST_PATIENCE, MOST_PATIENCE)
    }

    /// A block was read in `took`.
    fn taken_up(&mut self, took: Jiffies) {
        self.skips = 0;
        self.mean = (self.mean * 3 + took.min(MOST_PATIENCE)) / 4;
    }

    /// A block of `size` was refused, or nobody read it in time, and `left` bytes are to be copied
    /// now, from position `at` on. Each time in a row more of them are, before another one is tried.
    fn not_taken_up(&mut self, at: u64, size: u32, left: u32) {
        let more = u64::from(self.skips) * u64::from(size);
        self.copy_until = at.wrapping_add(u64::from(left)).wrapping_add(more);
        self.skips = (self.skips * 2).clamp(1, MOST_SKIPS);
    }
}

/// What `local` connections, or those over devices, have found out.
fn hints(sk: &SdpSock, local: bool) -> &Hints {
    let namespace = sk.netns();
    match local {
        true => &namespace.local_hints,
        false => &namespace.device_hints,
    }
}

/// Whether the peer is told of a message with an advert even if it looks itself: the call that can use
/// the advert does so, and a worker would only take the processor from it.
fn is_told(channel: &Channel, message: &Outgoing) -> bool {
    message.solicited && !(message.just_advert && channel.knows_solicited())
}

impl Connection {
    /// Fewest bytes for which zero copy is tried, if it is at all.
    fn zcopy_threshold(&self) -> Option<usize> {
        self.options.zcopy_threshold().bytes()
    }

    /// Whether a call with so many bytes may be to send them directly, as far as is known before it begins.
    pub(crate) fn may_go_directly(&mut self, bytes: usize) -> bool {
        match (self.options.zcopy_threshold(), &mut self.direct.choice) {
            (Threshold::Adaptive, choice) => choice.as_mut().is_some_and(|(c, _)| c.direct(bytes)),
            (threshold, _) => threshold.bytes().is_some_and(|least| bytes >= least),
        }
    }

    /// Whether it is.
    pub(crate) fn chooses_direct(&mut self, sk: &SdpSock, bytes: usize) -> bool {
        let (direct, pipelined) = match self.options.zcopy_threshold() {
            Threshold::Never => (false, false),
            Threshold::From(n) if bytes < n => return false,
            Threshold::From(_) => (true, true),
            Threshold::Adaptive if bytes < SMALLEST_DIRECT => return false,
            Threshold::Adaptive => {
                let local = self.channel.as_ref().is_some_and(|c| c.exchanges());
                let begin = || (Choice::with(hints(sk, local).get()), local);
                let (choice, _) = self.direct.choice.get_or_insert_with(begin);
                (choice.direct(bytes), choice.any_direct())
            }
        };
        if let Some(p) = &mut self.protocol {
            // so that several blocks go at once, and that the peer's readers tell of their memory
            p.set_pipelined(pipelined);
        }
        direct
    }

    /// A call with so many bytes has sent them all, and lasted from `start` to `end`.
    pub(crate) fn has_sent(&mut self, sk: &SdpSock, bytes: usize, start: u64, end: u64) {
        if self.options.zcopy_threshold() == Threshold::Adaptive {
            let Some((choice, local)) = &mut self.direct.choice else {
                return;
            };
            if choice.sent(bytes, start, end) {
                hints(sk, *local).put(choice.learnt());
            }
        }
    }

    /// The program has closed the socket: what it has begun to find out, others go on with.
    pub(crate) fn hand_on(&self, sk: &SdpSock) {
        if let Some((choice, local)) = &self.direct.choice {
            hints(sk, *local).put(choice.learnt());
        }
    }

    /// Ends the peer's access to memory that it is done with.
    pub(crate) fn end_access(&mut self) -> Result {
        self.end_source_access()?;
        self.end_sink_access()
    }

    /// Posts READs and WRITEs.
    pub(crate) fn move_on(&mut self, wakeups: &mut Wakeups) -> Result {
        // whoever waits for more than there will be has to know
        wakeups.direct |= self.read_on()?;
        wakeups.direct |= self.write_on()?;
        Ok(())
    }

    /// The peer's access to some memory has ended.
    pub(crate) fn access_ended(&mut self, cookie: u64, wakeups: &mut Wakeups) {
        self.direct.ended(cookie);
        wakeups.direct = true;
    }
}

impl Connection {
    /// Room for a piece of pinned memory that was used before, for the same piece if there is any.
    fn spare_room(&mut self, piece: (usize, usize)) -> Option<Pinned> {
        self.channel.as_mut()?.spare_for(piece)
    }

    /// Keeps room for the next time.
    fn keep_room(&mut self, room: Pinned) {
        match self.channel.as_mut() {
            Some(channel) => channel.keep(room),
            None => drop(room),
        }
    }
}

impl SdpSock {
    /// Room for a piece of pinned memory, `None` if it is not memory of a program. Called without the
    /// connection's lock.
    fn pinning_room(&self, piece: Option<(usize, usize)>) -> Option<Pinned> {
        let piece = piece?;
        let pinning = {
            let mut c = self.connection();
            if let Some(room) = c.spare_room(piece) {
                return Some(room);
            }
            c.channel.as_ref()?.pinning()?
        };
        pinning.make().ok()
    }

    /// Gives room back that nothing was lent of.
    fn give_back_room(&self, mut room: Pinned) {
        room.release();
        self.connection().keep_room(room);
    }

    /// Waits until lent memory is let go of, after the connection was lost. Needs nobody's help.
    fn wait_released(&self, lock: &mut Locked<'_>, watch: &Watch) {
        lock.unlocked(|| loop {
            let mark = self.wake_mark();
            if !watch.is_held() {
                return;
            }
            self.sleep_through(mark, milliseconds(100));
        })
    }

    /// Loses the connection, for a call that must not wait for the peer any longer.
    pub(crate) fn give_up(&self, error: crate::sys::errno::Errno) {
        let (below, told) = {
            let mut c = self.connection();
            c.close_on(Event::Failed, error);
            // also where both streams had ended and the channel was still there
            c.direct.lost();
            (c.channel.take(), c.unlock())
        };
        drop(below);
        drop(told);
    }
}
