// SPDX-License-Identifier: GPL-2.0-only

//! Waiting: for a while awake, as long as a [`BusyPoll`] says, then asleep.
//!
//! Who is awake polls the completion queues, so that nothing has to be told; in a local connection
//! whoever sends tells it.

use super::busy_poll::BusyPoll;
use super::{SdpSock, Socket};
use crate::sys::net::sock::{is_crowded, signal_pending, Locked};
use crate::sys::time::Jiffies;
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::time::{Delta, Instant, Monotonic};

/// After so many looks for an event a look at the completion queue follows, which takes some ten times as long.
const SPINS: u32 = 8;

/// A caller wants room to write, from before its last look for some until it has waited: room that appears behind that
/// look is told. Nobody is told of other room, which would wake those who wait for something else.
pub(crate) struct RoomWanted<'a>(&'a Socket);

impl Drop for RoomWanted<'_> {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Relaxed);
    }
}

impl SdpSock {
    /// Says that the caller wants room. It looks for some afterwards, with the connection's lock.
    pub(crate) fn want_room(&self) -> RoomWanted<'_> {
        self.data().writers.fetch_add(1, Relaxed);
        RoomWanted(self.data())
    }

    /// Whether a caller wants room.
    pub(crate) fn is_room_wanted(&self) -> bool {
        self.data().writers.load(Relaxed) > 0
    }

    /// Watches for an event after `seq`, and for completions if it `polls`: whether one has come. A task that is
    /// woken up gets an idle processor, if there is one; one that only lets others go before it stays where they
    /// are.
    fn watch(&self, seq: i32, limit: Delta, polls: bool) -> bool {
        let start = Instant::<Monotonic>::now();
        let waits = || self.event_seq() == seq && !signal_pending() && !is_crowded();
        let mut spins = 0_u32;
        while waits() && start.elapsed() < limit {
            spins = (spins + 1) % SPINS;
            if polls && spins == 0 && self.connection().has_completion(self) {
                return true;
            }
            core::hint::spin_loop();
        }
        false
    }

    /// [`SdpSock::wait`] for something to read.
    pub(crate) fn wait_to_read(
        &self,
        lock: &mut Locked<'_>,
        seq: i32,
        timeout: isize,
    ) -> Result<isize> {
        let socket = self.data();
        socket.readers.fetch_add(1, Relaxed);
        let r = self.poll_then_wait(lock, seq, timeout, &socket.busy_poll);
        socket.readers.fetch_sub(1, Relaxed);
        r
    }

    /// [`SdpSock::wait`] for the peer to take what is advertised.
    pub(crate) fn wait_for_taking(
        &self,
        lock: &mut Locked<'_>,
        seq: i32,
        timeout: isize,
    ) -> Result<isize> {
        self.poll_then_wait(lock, seq, timeout, &self.data().busy_poll_adverts)
    }

    fn poll_then_wait(
        &self,
        lock: &mut Locked<'_>,
        seq: i32,
        timeout: isize,
        busy_poll: &BusyPoll,
    ) -> Result<isize> {
        let limit = busy_poll.limit();
        // before the look that comes first, which arms the queues otherwise
        let polls = limit > Delta::ZERO && !is_crowded() && self.connection().begin_polling();
        self.looking(lock, || {
            // without what the caller does for its peer before and after
            let start = Instant::<Monotonic>::now();
            let come = limit > Delta::ZERO && self.watch(seq, limit, polls);
            if polls {
                self.connection().end_polling();
                if !come && self.event_seq() == seq {
                    self.progress();
                }
            }
            let r = match come {
                true => Ok(timeout),
                false => self.sleep(seq, timeout),
            };
            busy_poll.learn(start.elapsed());
            r
        })
    }

    /// Waits without the socket lock until something happens after `seq` was taken. Returns what
    /// is left of `timeout` jiffies.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` or `EINTR` on a signal.
    pub(crate) fn wait(&self, lock: &mut Locked<'_>, seq: i32, timeout: isize) -> Result<isize> {
        self.looking(lock, || self.sleep(seq, timeout))
    }

    /// [`SdpSock::wait`] for one of the connections that others wait for, too.
    pub(crate) fn wait_in_turn(
        &self,
        lock: &mut Locked<'_>,
        seq: i32,
        timeout: isize,
    ) -> Result<isize> {
        lock.unlocked(|| self.sleep_in_turn(seq, timeout))
    }

    /// [`SdpSock::wait`] that only the death of the caller ends before its time.
    ///
    /// # Errors
    ///
    /// `EINTR` if the caller is to die, `ETIMEDOUT`.
    pub(crate) fn wait_killably(
        &self,
        lock: &mut Locked<'_>,
        seq: i32,
        timeout: Jiffies,
    ) -> Result {
        self.looking(lock, || self.sleep_killably(seq, timeout))
    }

    /// Looks at the completion queues, has the caller sleep without the socket lock, and looks
    /// again.
    fn looking<R>(&self, lock: &mut Locked<'_>, sleep: impl FnOnce() -> R) -> R {
        let events = &self.data().events;
        events.enter();
        lock.unlocked(|| {
            // Events told to a worker until now may be waiting for it: look first.
            self.progress();
            let r = sleep();
            events.leave();
            self.progress();
            r
        })
    }
}
