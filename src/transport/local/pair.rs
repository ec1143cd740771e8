// SPDX-License-Identifier: GPL-2.0-only

//! State shared by the two ends of a local connection.
//!
//! A [`Pair`] has two [`PairEnd`]s. A message is usually delivered when it is posted. It waits if
//! there is no buffer for it, if the other end is missing, or behind another request that waits.
//!
//! A READ or WRITE always waits for a task with a [`CopyJob`]: one of its owner and, if it is
//! large, also a waiting one of the other end's owner. Each copies a segment at a time, without
//! the lock. The transport owns the memory until the copies have ended.
//!
//! [`CopyJob`]: super::copy_job::CopyJob

use super::pair_end::{Copying, OptionalEnd, PairEnd};
use super::ready::{call, OrphanedPeer, Ready};
use super::received::Message;
use super::tally::{Counts, Tally};
use crate::memory::pinned::Pinned;
use crate::sys::deferred::DropInWorker;
use crate::sys::rdma::buffer::Buffer;
use crate::transport::BlockId;
use core::ops::{Deref, DerefMut};
use kernel::prelude::*;
use kernel::sync::lock::{spinlock::SpinLockBackend, Guard};
use kernel::sync::{new_condvar, new_spinlock, Arc, CondVar, SpinLock};

#[pin_data]
pub(super) struct Pair {
    #[pin]
    ends: SpinLock<Ends>,
    /// Counts of each end, for polling without the lock.
    tallies: [Tally; 2],
    /// Notified when nothing is being copied any more and an end is gone.
    #[pin]
    copies_done: CondVar,
}

/// The two ends; under [`Pair::ends`].
pub(super) struct Ends {
    ends: [OptionalEnd; 2],
    /// Pieces of transfers that are being copied without the lock.
    pub(super) copying: u32,
}

impl Ends {
    const fn new() -> Self {
        Ends {
            ends: [const { None }; 2],
            copying: 0,
        }
    }

    /// Returns this end and the other one.
    pub(super) fn ends(&mut self, side: Side) -> (&mut OptionalEnd, &mut OptionalEnd) {
        let [a, b] = &mut self.ends;
        match side {
            Side::Active => (a, b),
            Side::Passive => (b, a),
        }
    }
}

/// Result of posting messages.
pub(super) struct Posted<R> {
    /// Result of the posting function.
    pub(super) result: R,
    /// Peer to notify once the batch is posted.
    pub(super) told: Option<Arc<dyn Ready>>,
    /// Set if work is left for [`Pair::carry_on`].
    pub(super) is_left: bool,
}

/// The lock of a pair, held.
pub(super) struct Held<'a> {
    ends: Guard<'a, Ends, SpinLockBackend>,
    pair: &'a Pair,
}

impl Deref for Held<'_> {
    type Target = Ends;

    fn deref(&self) -> &Ends {
        &self.ends
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Ends {
        &mut self.ends
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for (end, tally) in self.ends.ends.iter().zip(&self.pair.tallies) {
            tally.note(end.as_ref().map_or(Counts::GONE, |e| e.counts()));
        }
    }
}

/// Which end of a pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// End of the owner that called connect(2).
    Active,
    /// End of the owner that accepted.
    Passive,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Side::Active => Side::Passive,
            Side::Passive => Side::Active,
        }
    }
}

impl Pair {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Pair {
                ends <- new_spinlock!(Ends::new(), "ib_sdp_pair"),
                tallies: [Tally::new(), Tally::new()],
                copies_done <- new_condvar!("ib_sdp_copies_done"),
            }),
            GFP_KERNEL,
        )
    }

    /// Attaches an end. Returns it if there is one already.
    pub(super) fn attach(
        &self,
        side: Side,
        end: DropInWorker<PairEnd>,
    ) -> Result<(), DropInWorker<PairEnd>> {
        let mut both = self.both();
        let (mine, _) = both.ends(side);
        match mine {
            Some(_) => Err(end),
            None => {
                *mine = Some(end);
                Ok(())
            }
        }
    }

    /// Detaches an end. Requests of the other end wait from now on. Copies in progress continue;
    /// [`Copying::wait_for_copies`] waits for them.
    pub(super) fn detach(&self, side: Side) -> Option<DropInWorker<PairEnd>> {
        let mut both = self.both();
        let (mine, _) = both.ends(side);
        mine.take()
    }

    /// Locks both ends.
    pub(super) fn both(&self) -> Held<'_> {
        Held {
            ends: self.ends.lock(),
            pair: self,
        }
    }

    /// Returns the counts of an end, for reading without the lock.
    pub(super) fn tally(&self, side: Side) -> &Tally {
        let [a, b] = &self.tallies;
        match side {
            Side::Active => a,
            Side::Passive => b,
        }
    }

    /// Records the end of a copy without the lock.
    pub(super) fn copied(&self, both: &mut Ends) {
        both.copying = both.copying.saturating_sub(1);
        if both.copying == 0 && both.ends.iter().any(Option::is_none) {
            self.copies_done.notify_all();
        }
    }

    /// True if a task copies without the lock. No copy begins any more once an end is destroyed.
    pub(super) fn is_copying(&self) -> bool {
        self.both().copying > 0
    }

    /// Calls `f` with an end, if it is attached.
    pub(super) fn with<R>(&self, side: Side, f: impl FnOnce(&mut PairEnd) -> R) -> Option<R> {
        let mut both = self.both();
        let (mine, _) = both.ends(side);
        mine.as_mut().map(|end| f(end))
    }

    /// Posts a buffer, and delivers a message that waits for it.
    pub(super) fn post_receive(&self, side: Side, b: Buffer) -> Result<(), Buffer> {
        let mut both = self.both();
        let (mine, other) = both.ends(side);
        let Some(end) = mine.as_mut() else {
            return Err(b);
        };
        end.received.post(b)?;
        let Some(peer) = other.as_mut().filter(|p| p.in_flight() > 0) else {
            return Ok(());
        };
        peer.carry_on(mine);
        let tell = [peer.take_done(), mine.as_mut().and_then(|m| m.take_event())];
        drop(both);
        call(tell);
        Ok(())
    }

    /// Takes the first received message. If it was the last one and the other end waits for that,
    /// also returns the other end's owner: the caller notifies it after releasing its own lock.
    pub(super) fn take(&self, side: Side) -> Option<(Message, Option<OrphanedPeer>)> {
        let mut both = self.both();
        let (mine, other) = both.ends(side);
        let mine = mine.as_mut()?;
        let message = mine.received.take()?;
        let awaits = |o: &mut DropInWorker<PairEnd>| core::mem::take(&mut o.awaits_drain);
        let peer = other.as_mut().filter(|_| !mine.has_arrived());
        let peer = peer.and_then(|o| awaits(o).then(|| OrphanedPeer::new(o.owner(), true)));
        Some((message, peer))
    }

    /// Requests notification of an end's owner once the other end has drained its messages, and of
    /// send completions. Returns false if there is nothing to wait for.
    pub(super) fn await_drain(&self, side: Side) -> bool {
        let mut both = self.both();
        let (mine, other) = both.ends(side);
        let Some(mine) = mine.as_mut() else {
            return true;
        };
        mine.awaits_drain = other.as_ref().is_some_and(|o| o.has_arrived());
        mine.send_armed = true;
        (mine.awaits_drain || mine.in_flight() > 0) && !mine.has_done()
    }

    /// Calls `post` with both ends under the lock.
    pub(super) fn post<R>(
        &self,
        side: Side,
        post: impl FnOnce(&mut PairEnd, &mut OptionalEnd) -> Result<R>,
    ) -> Result<Posted<R>> {
        let mut both = self.both();
        let (mine, other) = both.ends(side);
        let mine = mine.as_mut().ok_or(EIO)?;
        Ok(Posted {
            result: post(mine, other)?,
            told: other.as_mut().and_then(|o| o.take_pending()),
            is_left: mine.lacks_memory.is_some() || mine.is_broken(),
        })
    }

    pub(super) fn post_block(&self, side: Side, p: Pinned) -> Result<BlockId, Pinned> {
        let mut both = self.both();
        match both.ends(side).0 {
            Some(mine) => mine.blocks.post_block(p),
            None => Err(p),
        }
    }

    pub(super) fn invalidate(&self, side: Side, block: BlockId, cookie: u64) -> Result {
        let mut both = self.both();
        let (mine, other) = both.ends(side);
        let mine = mine.as_mut().ok_or(EIO)?;
        mine.invalidate(block, cookie)?;
        mine.carry_on(other);
        Ok(())
    }

    /// Continues with waiting requests. Returns the peer to notify, and the size of the other
    /// end's buffer if a message still waits for its memory.
    pub(super) fn carry_on(&self, side: Side) -> Result<Posted<Option<usize>>> {
        let mut both = self.both();
        let (mine, other) = both.ends(side);
        let mine = mine.as_mut().filter(|m| !m.is_broken()).ok_or(EIO)?;
        let lacks_memory = mine.wants_memory(other);
        Ok(Posted {
            result: lacks_memory,
            told: other.as_mut().and_then(|o| o.take_pending()),
            is_left: lacks_memory.is_some(),
        })
    }

    /// Replaces a buffer of the other end that lacks memory, and continues. Returns the size of
    /// the next one that lacks it.
    pub(super) fn refill(&self, side: Side, buffer: Buffer) -> Option<usize> {
        let mut both = self.both();
        let (mine, other) = both.ends(side);
        if let Some(other) = other {
            other.received.refill(buffer);
        }
        mine.as_mut()?.wants_memory(other)
    }

    /// Notifies the other end as for a solicited message, without a new message.
    pub(super) fn poke(&self, side: Side) {
        let mut both = self.both();
        let (_, other) = both.ends(side);
        let news = other.as_mut().and_then(|o| {
            o.has_event(true);
            o.take_event()
        });
        drop(both);
        call([news]);
    }
}

impl Copying for Pair {
    fn wait_for_copies(&self) {
        let mut both = self.both();
        while both.copying > 0 {
            self.copies_done.wait(&mut both.ends);
        }
    }
}
