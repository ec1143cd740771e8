// SPDX-License-Identifier: GPL-2.0-only

//! Guard of the connection's lock. No other code takes or releases this lock.
//!
//! Work under the lock may require wakeups of other tasks. Wakeups must not happen under the lock.
//! The holder collects [`Wakeups`], which the guard's drop delivers after the unlock.

use super::closing::{CloseAction, CloseEvent};
use super::wakeups::{Wakeup, Wakeups};
use super::{rx_buffers, zcopy, Connection, SdpSock};
use crate::sys::errno::Errno;
use core::ops::{Deref, DerefMut};
use kernel::alloc::flags::GFP_NOWAIT;
use kernel::sync::lock::{self, spinlock::SpinLockBackend};

/// Guard that holds the lock of a socket's connection.
pub(crate) struct Guard<'a> {
    // the order of the fields matters: the drop unlocks before it delivers the wakeups
    connection: lock::Guard<'a, Connection, SpinLockBackend>,
    deliver: Deliver<'a>,
}

/// Collected wakeups, delivered by the drop of this value. Context: without the connection's lock.
pub(crate) struct Deliver<'a> {
    sk: &'a SdpSock,
    wakeups: Wakeups,
    /// True if the lock's holder is a poller.
    polls: bool,
}

impl SdpSock {
    /// Takes the connection's spinlock. A holder of the lock must not sleep or access user memory.
    pub(crate) fn connection(&self) -> Guard<'_> {
        Guard {
            connection: self.data().connection.lock(),
            deliver: Deliver::new(self, Wakeups::default()),
        }
    }

    /// Runs `f` under the connection's lock, for calls that need no wakeups.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Connection) -> R) -> R {
        f(&mut self.data().connection.lock())
    }

    /// Polls the completion queues and makes all possible progress.
    pub(crate) fn progress(&self) {
        self.connection().progress();
    }

    /// Delivers wakeups. Context: without the connection's lock.
    pub(super) fn deliver(&self, wakeups: Wakeups) {
        drop(Deliver::new(self, wakeups));
    }
}

impl<'a> Guard<'a> {
    pub(crate) fn split(&mut self) -> (&mut Connection, &mut Wakeups, &'a SdpSock) {
        let Deliver { sk, wakeups, .. } = &mut self.deliver;
        (&mut self.connection, wakeups, sk)
    }

    pub(crate) fn progress(&mut self) {
        let (connection, wakeups, sk) = self.split();
        connection.run(sk, wakeups);
    }

    /// Variant of [`Guard::progress`] for pollers. Does not wake pollers again that an event has
    /// already woken: epoll would report a second edge.
    pub(crate) fn progress_of_poller(&mut self) {
        self.deliver.polls = true;
        self.progress();
    }

    /// Wakes callers that wait for memory if the buffers of all sockets no longer exceed the limit.
    pub(crate) fn check_memory(&mut self) {
        let (c, wakeups, sk) = self.split();
        c.has_space_again(sk, wakeups);
        if c.space_wanted || sk.is_space_wanted() {
            c.await_memory(sk);
        }
    }

    /// Ends a call's use of the peer's adverts. The next waiting call may use the unread adverts.
    pub(crate) fn leave_advert(&mut self) {
        let (c, wakeups, sk) = self.split();
        if c.next_advert().is_some() {
            c.offer_advert(sk, wakeups);
            c.run(sk, wakeups);
        }
    }

    /// [`Connection::close_on`].
    pub(crate) fn close_on(&mut self, event: CloseEvent, error: Errno) -> CloseAction {
        let (connection, wakeups, sk) = self.split();
        connection.close_on(sk, event, error, wakeups)
    }

    /// Notifies waiters of a new state of the socket.
    pub(crate) fn state_has_changed(&mut self) {
        self.deliver.wakeups.add(Wakeup::State);
    }

    /// Wakes waiting calls, which return the error of a failed connection attempt.
    pub(crate) fn is_not_made(&mut self) {
        self.deliver.wakeups.add(Wakeup::State);
        self.deliver.wakeups.add(Wakeup::Error);
    }

    /// Releases the lock. The drop of the result delivers the wakeups.
    pub(crate) fn unlock(self) -> Deliver<'a> {
        self.deliver
    }
}

impl Deref for Guard<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl<'a> Deliver<'a> {
    #[inline]
    fn new(sk: &'a SdpSock, wakeups: Wakeups) -> Self {
        Deliver {
            sk,
            wakeups,
            polls: false,
        }
    }
}

impl Deliver<'_> {
    /// Drops the wakeups of a connection that has no waiter yet.
    pub(crate) fn forget(mut self) {
        self.wakeups = Wakeups::default();
    }

    /// Returns the collected wakeups for another task to deliver.
    pub(super) fn take(mut self) -> Wakeups {
        core::mem::take(&mut self.wakeups)
    }

    /// Does deferred work and delivers wakeups, both without the connection's lock; seldom needed.
    #[inline(never)]
    fn notify(&mut self) {
        self.serve();
        let wakeups = core::mem::take(&mut self.wakeups);
        wakeups.notify(self.sk, !(self.polls && wakeups.is_left_to_pollers()));
        if wakeups.has(Wakeup::Fin) {
            self.sk.send_fin();
        }
        if wakeups.has(Wakeup::Disconnect) {
            self.sk.start_disconnect();
        }
    }

    /// Allocates receive buffers and releases memory, until neither step causes the other. If a
    /// step has caused wakeups, these also wake the pollers, which may have polled before the step.
    fn serve(&mut self) {
        let (sk, wakeups) = (self.sk, &mut self.wakeups);
        while wakeups.has(Wakeup::Buffers) || wakeups.has(Wakeup::Released) {
            if wakeups.take(Wakeup::Released) {
                zcopy::memory::release_blocks(sk);
            }
            if wakeups.take(Wakeup::Buffers) {
                // `GFP_NOWAIT`: the program or a worker may wait for the memory instead
                let found = rx_buffers::stock(sk, GFP_NOWAIT);
                self.polls &= found.is_empty();
                wakeups.merge(found);
            }
        }
    }
}

impl Drop for Deliver<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.wakeups.is_empty() {
            self.notify();
        }
    }
}
