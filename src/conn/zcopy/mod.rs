// SPDX-License-Identifier: GPL-2.0-only

//! Zero copy: the bytes of a send or receive call go straight between its own pages and those of the
//! program at the other end.
//!
//! [`Direct`] is what one connection has under way of that: each of one call at a time, while other calls copy
//! or wait, but for the blocks of sends that do not wait. A piece of a call's memory is pinned ([`memory`]), joins
//! a queue, and is taken out of it when nobody accesses it any more.
//!
//! | way | queue | call | under the lock |
//! | --- | --- | --- | --- |
//! | SrcAvail: the peer reads | [`tx_blocks`] | [`send::be_read`], [`detached`] | [`tx`] |
//! | RDMA WRITE, to a reader of the peer | [`transfer`] | [`send::write`] | [`tx`] |
//! | SinkAvail: the peer writes | one [`advert`] | [`recv::be_written_to`] | [`rx`] |
//! | RDMA READ, of what the peer has advertised | [`transfer`] | [`recv::read`] | [`rx`] |
//!
//! What of the stream goes next where it has blocks: [`ahead`].
//!
//! The queues know neither memory nor transport, and are tested on the host (`tests/host/zcopy`).
//!
//! **Who is asked.** Whoever is ahead tells the other end. A send call that may wait and has at least
//! the threshold of bytes (`SDP_ZCOPY_THRESH`, `sdp_zcopy_thresh`) writes them to where the peer's
//! reader waits; if none does, it offers them. The other end reads them within a receive call that
//! waits, or refuses: to whoever polls, peeks or must not wait, bytes have to be there when they are
//! told of, so these get them as Data. If nobody does anything, the sender does not wait much longer
//! than such transfers took lately, takes its blocks back and copies. A receive call that would sleep,
//! and has room for at least the threshold, offers that, once the peer has sent large blocks. Where
//! no threshold is set, the sender finds out whether all this pays ([`policy`]).
//!
//! **Who waits.** As a rule the call that had the pages pinned stays until they are let go of; that needs
//! nothing of the peer once the connection is lost. One with `MSG_ZEROCOPY` does not: its blocks are
//! *detached*, go one way or the other in their place in the stream, and whoever moves the connection on
//! lets go of them, which tells the program.
//!
//! **Who owns the pages** is told in [`crate::transport`].

mod advert;
pub(crate) mod ahead;
pub(crate) mod detached;
pub(crate) mod memory;
pub(crate) mod policy;
mod posted;
pub(crate) mod protected;
pub(crate) mod recv;
mod rx;
pub(crate) mod send;
pub(crate) mod spliced;
mod touches;
mod transfer;
mod tx;
mod tx_blocks;
mod waiting;

use self::advert::{Advert, AdvertState};
use self::policy::{Kind, Policy, SMALLEST};
use self::posted::{Posted, Way, REST};
use self::spliced::Collection;
use self::touches::Touches;
use self::transfer::TransferQueue;
use self::tx_blocks::TxBlocks;
use super::closing::Event;
use super::{Connection, SdpSock, Threshold, Wakeups};
use crate::memory::protect::Room;
use crate::protocol::Outgoing;
use crate::sys::errno::ECONNABORTED;
use crate::sys::net::params;
use crate::sys::protect::Protector;
use crate::sys::time::{jiffies, milliseconds, nanoseconds, Jiffies};
use crate::transport::{Endpoint, Pinned, Transport};
use kernel::prelude::*;
use kernel::sync::Arc;

/// The fewest bytes for which pinning is worth while for a READ or WRITE of ours.
pub(crate) const LEAST_TRANSFER: usize = 4096;
/// How long reading a block is believed to take before anything is known.
const FIRST_MEAN: Jiffies = milliseconds(50);
/// How long a send call waits for its block to be taken up, at least and at most; and a receive
/// call for its memory to be written to.
const LEAST_PATIENCE: Jiffies = milliseconds(20);
const MOST_PATIENCE: Jiffies = milliseconds(1000);
/// Time for the peer's kernel to give memory back, which it does by itself.
const CANCEL_TIME: Jiffies = milliseconds(10_000);
/// The same of OFED's, which drops a SrcAvailCancel that comes during its READ. It answers when its
/// program reads again. Its own calls wait for 60 s.
const OFED_CANCEL_TIME: Jiffies = milliseconds(65_000);
/// Blocks that are copied after adverts that were not taken up, at most.
const MOST_SKIPS: u32 = 64;
/// Pieces of memory that wait to be let go of; what is beyond that a worker does.
const MOST_RELEASED: usize = 4;

/// Whether zero copy may use RDMA READ, or RDMA WRITE (`zcopy_ways`).
fn by_read() -> bool {
    params::zcopy_ways() & 1 != 0
}

fn by_write() -> bool {
    params::zcopy_ways() & 2 != 0
}

/// Zero copy of one connection. Protected by `Socket::connection`.
pub(crate) struct Direct {
    /// What goes out from programs' own pages.
    blocks: TxBlocks<Posted>,
    /// Pages that are to become one of them.
    collection: Collection,
    /// Memory of blocks that have gone, to be let go of without the lock.
    released: [Option<Pinned>; MOST_RELEASED],
    /// Whether detached blocks are sent without being advertised.
    detached_skips: Skips,
    /// Adverts that there were, of both kinds: each has its number, and the end of access to it is
    /// called by that.
    cookies: u64,
    /// What a receive call has advertised, or is about to.
    sink: Option<Advert<Posted>>,
    /// What a receive call reads.
    reading: TransferQueue<Posted>,
    /// What a send call writes.
    writing: TransferQueue<Posted>,
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
    /// Whether to copy, from the first large send on.
    policy: Option<Policy>,
    /// Whether blocks are worth protecting.
    touches: Touches,
    /// Where the last one was.
    room: Option<Arc<Protector<Room>>>,
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
            blocks: TxBlocks::new(),
            collection: Collection::None,
            released: [const { None }; MOST_RELEASED],
            detached_skips: Skips::new(),
            cookies: 0,
            sink: None,
            reading: TransferQueue::new(),
            writing: TransferQueue::new(),
            mean: FIRST_MEAN,
            copy_until: 0,
            skips: 0,
            sink_skips: Skips::new(),
            readers_advertise: true,
            policy: None,
            touches: Touches::new(),
            room: None,
        }
    }

    /// Another connection begins: nothing is known of its ends.
    pub(crate) fn forget(&mut self) {
        (self.mean, self.copy_until, self.skips) = (FIRST_MEAN, 0, 0);
        (self.sink_skips, self.readers_advertise) = (Skips::new(), true);
        self.detached_skips = Skips::new();
        self.policy = None;
        self.touches = Touches::new();
    }

    /// Whether the end of a work request is waited for, so that it has to be told.
    pub(crate) fn is_busy(&self) -> bool {
        self.has_lent()
            && (self.blocks.adverts().any(Advert::is_ending)
                || self.blocks.is_sending()
                || self.sink.as_ref().is_some_and(Advert::is_ending)
                || !self.reading.is_empty()
                || !self.writing.is_empty())
    }

    /// Whether another block may be added that no call waits for.
    pub(crate) fn has_room(&self) -> bool {
        self.blocks.has_room()
    }

    /// Whether there are blocks that no call waits for.
    pub(crate) fn has_detached(&self) -> bool {
        self.blocks.detached_bytes() > 0
    }

    /// Whether memory is lent to the transport.
    pub(crate) fn has_lent(&self) -> bool {
        !self.blocks.is_empty()
            || self.sink.is_some()
            || !self.reading.is_empty()
            || !self.writing.is_empty()
    }

    /// The connection is lost: whoever waits has to know.
    pub(crate) fn lost(&mut self) {
        self.blocks.lost();
        self.collection = Collection::None;
        if let Some(sink) = &mut self.sink {
            sink.state = AdvertState::Lost;
        }
        self.reading.lost();
        self.writing.lost();
    }

    /// Memory that the peer has access to, or gets.
    fn adverts(&mut self) -> impl Iterator<Item = &mut Advert<Posted>> {
        Iterator::chain(self.blocks.adverts_mut(), self.sink.iter_mut())
    }

    /// The number of a new advert.
    fn next_cookie(&mut self) -> u64 {
        self.cookies += 1;
        self.cookies
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

/// Whether the peer is told of a message with an advert even if it looks itself: the call that can use
/// the advert does so, and a worker would only take the processor from it.
fn is_told(endpoint: &Endpoint, message: &Outgoing) -> bool {
    message.solicited && !(message.just_advert && endpoint.knows_solicited())
}

impl Connection {
    /// Fewest bytes for which zero copy is tried, if it is at all.
    pub(crate) fn zcopy_threshold(&self) -> Option<usize> {
        self.options.zcopy_threshold().bytes()
    }

    /// What carries the connection.
    fn kind(&self) -> Kind {
        match self.endpoint.as_ref().and_then(|c| c.mapper()) {
            None => Kind::Local,
            Some(mapper) if mapper.is_software() => Kind::Software,
            Some(_) => Kind::Adapter,
        }
    }

    /// Whether a call with so many bytes is to send them directly.
    pub(crate) fn may_go_directly(&mut self, bytes: usize) -> bool {
        match self.options.zcopy_threshold() {
            Threshold::Adaptive => {
                let kind = self.kind();
                let policy = self.direct.policy.get_or_insert_with(|| Policy::new(kind));
                policy.is_direct(bytes)
            }
            threshold => threshold.bytes().is_some_and(|least| bytes >= least),
        }
    }

    /// The same for one that begins.
    pub(crate) fn chooses_direct(&mut self, bytes: usize) -> bool {
        let direct = self.may_go_directly(bytes);
        let pipelined = match (self.options.zcopy_threshold(), &mut self.direct.policy) {
            (Threshold::Adaptive, Some(policy)) if bytes >= SMALLEST => policy.begins(bytes),
            // as it was
            (Threshold::Adaptive, _) => return direct,
            (Threshold::From(n), _) if bytes < n => return direct,
            _ => direct,
        };
        if let Some(p) = &mut self.protocol {
            // so that several blocks go at once, and that the peer's readers tell of their memory
            p.set_pipelined(pipelined);
        }
        direct
    }

    /// A call with so many bytes, begun at `start` of [`nanoseconds`], has sent them all, as was chosen for so many in one run.
    pub(crate) fn has_sent(&mut self, run: usize, bytes: usize, start: u64) {
        let adaptive = self.options.zcopy_threshold() == Threshold::Adaptive;
        if let Some(policy) = self.direct.policy.as_mut().filter(|_| adaptive) {
            policy.sent(run, bytes, nanoseconds().saturating_sub(start));
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
        // one of them is it, unless it was lost
        let _ = self.direct.adverts().any(|a| a.invalidated(cookie));
        wakeups.direct = true;
    }
}

impl Connection {
    /// What a call moves in one direction.
    fn transfers(&mut self, way: Way) -> &mut TransferQueue<Posted> {
        match way {
            Way::Read => &mut self.direct.reading,
            Way::Write => &mut self.direct.writing,
        }
    }

    /// A READ or WRITE of `n` bytes is complete.
    pub(crate) fn moved(&mut self, cookie: u64, n: u32, wakeups: &mut Wakeups) {
        if cookie & REST != 0 {
            return self.rest_gone(cookie & !REST, n, wakeups);
        }
        let (way, number) = Way::of(cookie);
        match way {
            Way::Read => {
                if let Some(p) = self.protocol.as_mut() {
                    p.read_done(n);
                }
                self.stats.bytes_received += u64::from(n);
                self.stats.direct_received += u64::from(n);
            }
            Way::Write => {
                self.stats.bytes_sent += u64::from(n);
                self.stats.direct_written += u64::from(n);
                self.heard.progress(jiffies());
            }
        }
        wakeups.direct |= self.transfers(way).moved(number, n);
    }
}

impl SdpSock {
    /// Loses the connection, for a call that must not wait for its memory any longer.
    fn give_up(&self) {
        let (below, told) = {
            let mut c = self.connection();
            c.close_on(Event::Failed, ECONNABORTED);
            // also where both streams had ended and the endpoint was still there
            c.direct.lost();
            (c.endpoint.take(), c.unlock())
        };
        drop(below);
        drop(told);
    }
}
