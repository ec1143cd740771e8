// SPDX-License-Identifier: GPL-2.0-only

//! Waits in socket calls: a caller polls for the time of [`BusyPoll`], then sleeps.
//!
//! A sleep and a wakeup often take longer than the peer's reply. If recent bytes arrived soon, a
//! reader polls before sleeping, unless another task needs the processor. The reader polls the
//! completion queues, so that no notification is needed. On a local connection, the sender notifies
//! the reader.

use super::timers::Timer;
use super::{SdpSock, Socket, SPACE_PAUSE};
use crate::sys::errno::EAGAIN;
use crate::sys::net::sock::{cpu_contended, signal_pending, Locked, FOREVER};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::time::{Delta, Instant, Monotonic};

/// Number of event checks between two polls of the CQ; a poll takes as long as ten checks.
const SPINS: u32 = 8;
/// Shortest polling time (us).
const LEAST: i32 = 10;

/// Recent waiting times of a socket's readers.
///
/// Concurrent readers may overwrite each other's measurement, which is harmless.
pub(crate) struct BusyPoll {
    /// Running mean (us).
    mean: Atomic<i32>,
}

impl BusyPoll {
    pub(crate) fn new() -> Self {
        BusyPoll {
            mean: Atomic::new(0),
        }
    }

    /// Returns the polling time before sleeping, or 0 if no bytes are expected within `most` (us),
    /// the parameter `recv_poll`.
    pub(crate) fn limit(&self, most: i32) -> Delta {
        let mean = self.mean.load(Relaxed);
        let limit = match mean > most {
            true => 0,
            false => mean.saturating_mul(2).saturating_add(LEAST).min(most),
        };
        Delta::from_micros(limit.into())
    }

    /// Records the waiting time of a reader. A single long wait, such as a pause between two
    /// requests, does not outweigh several short ones.
    pub(crate) fn learn(&self, waited: Delta, most: i32) {
        let most = most.saturating_mul(4);
        let waited = waited.as_micros_ceil().clamp(0, most.into()) as i32;
        let mean = self.mean.load(Relaxed);
        let step = waited.saturating_sub(mean) / 4;
        self.mean.store(mean.saturating_add(step), Relaxed);
    }
}

/// Registration of a caller that waits for send space, from before its last check until after the
/// wait: space that appears after the check causes a notification. Without a registered caller no
/// notification is sent, since it would wake callers that wait for something else.
pub(crate) struct SpaceWanted<'a>(&'a Socket);

impl Drop for SpaceWanted<'_> {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Relaxed);
    }
}

impl SdpSock {
    /// Registers a caller that waits for space. The caller then checks for space under the lock.
    pub(crate) fn await_space(&self) -> SpaceWanted<'_> {
        self.data().writers.fetch_add(1, Relaxed);
        SpaceWanted(self.data())
    }

    /// Returns true if a caller waits for space.
    pub(crate) fn is_space_wanted(&self) -> bool {
        self.data().writers.load(Relaxed) > 0
    }

    /// Polls for an event after `seq`, and for completions if `polls`. Returns true if a completion
    /// has arrived. The polling ends when another task needs the processor: the scheduler can wake
    /// a sleeping task on an idle processor, but does not move a task that only yields.
    fn watch(&self, seq: i32, limit: Delta, polls: bool) -> bool {
        let start = Instant::<Monotonic>::now();
        let waits = || self.event_seq() == seq && !signal_pending() && !cpu_contended();
        let mut spins = 0_u32;
        while waits() && start.elapsed() < limit {
            spins = spins.wrapping_add(1) % SPINS;
            if polls && spins == 0 && self.connection().has_completion(self) {
                return true;
            }
            core::hint::spin_loop();
        }
        false
    }

    /// Waits like [`SdpSock::wait`] for something to read, but polls first.
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

    /// Waits like [`SdpSock::wait`], but polls first, for the time that `busy_poll` has learned.
    pub(super) fn poll_then_wait(
        &self,
        lock: &mut Locked<'_>,
        seq: i32,
        timeout: isize,
        busy_poll: &BusyPoll,
    ) -> Result<isize> {
        let limit = busy_poll.limit(self.params().recv_poll());
        // a registration after the first check would be late: that check arms the queues
        let polls = limit > Delta::ZERO && !cpu_contended() && self.connection().begin_polling();
        self.looking(lock, || {
            self.watch_then_sleep(seq, timeout, busy_poll, limit, polls)
        })
    }

    /// Polls for an event after `seq` for `limit`, then sleeps. If `polls`, polls also for
    /// completions, as a registered caller. Records the time of polling and sleeping, which
    /// excludes the caller's own work.
    fn watch_then_sleep(
        &self,
        seq: i32,
        timeout: isize,
        busy_poll: &BusyPoll,
        limit: Delta,
        polls: bool,
    ) -> Result<isize> {
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
        busy_poll.learn(start.elapsed(), self.params().recv_poll());
        r
    }

    /// Waits on a local connection for an event after `seq`: polls first, then sleeps. Returns the
    /// remaining time of `timeout`.
    pub(crate) fn wait_local(
        &self,
        lock: &mut Locked<'_>,
        seq: i32,
        timeout: isize,
    ) -> Result<isize> {
        let busy_poll = &self.data().busy_poll;
        let limit = busy_poll.limit(self.params().recv_poll());
        lock.unlocked(|| self.watch_then_sleep(seq, timeout, busy_poll, limit, false))
    }

    /// Waits on a local connection until the sockets of the system may have memory again.
    #[cold]
    pub(crate) fn wait_for_local_memory(
        &self,
        lock: &mut Locked<'_>,
        seq: i32,
        timeout: isize,
    ) -> Result<isize> {
        if timeout == 0 {
            let mut c = self.connection();
            c.space_wanted = true;
            c.set_timer(self, Timer::Space, SPACE_PAUSE);
            return Err(EAGAIN.into());
        }
        let pause = timeout.min(SPACE_PAUSE as isize);
        let left = lock.unlocked(|| self.sleep(seq, pause))?;
        Ok(match timeout {
            FOREVER => FOREVER,
            _ => timeout.saturating_sub(pause.saturating_sub(left)),
        })
    }

    /// Waits without the socket lock for an event after `seq`. Returns the remaining time of
    /// `timeout` in jiffies, or `ERESTARTSYS` or `EINTR` after a signal.
    pub(crate) fn wait(&self, lock: &mut Locked<'_>, seq: i32, timeout: isize) -> Result<isize> {
        self.looking(lock, || self.sleep(seq, timeout))
    }

    /// Polls the completion queues, sleeps without the socket lock, and polls again.
    pub(super) fn looking<R>(&self, lock: &mut Locked<'_>, sleep: impl FnOnce() -> R) -> R {
        let events = &self.data().events;
        events.enter();
        lock.unlocked(|| {
            // Earlier events may be waiting for a worker, so this task polls first.
            self.progress();
            let r = sleep();
            events.leave();
            self.progress();
            r
        })
    }
}
