// SPDX-License-Identifier: GPL-2.0-only

//! The connection's lock, held: the only place where it is taken and let go of.
//!
//! Whoever has it may find news for others, whom nobody may call under it. They are collected as
//! [`Wakeups`] and told when the guard goes, after the lock.

use super::closing::{Act, Event};
use super::wakeups::Wakeups;
use super::{rx_buffers, zcopy, Connection, SdpSock, JOB_PROGRESS};
use crate::sys::errno::Errno;
use core::ops::{Deref, DerefMut};
use kernel::alloc::flags::GFP_NOWAIT;
use kernel::sync::atomic::Full;
use kernel::sync::lock::{self, spinlock::SpinLockBackend};

/// The lock of a socket's connection, held.
pub(crate) struct Guard<'a> {
    // the order of the fields is that in which they are dropped
    connection: lock::Guard<'a, Connection, SpinLockBackend>,
    deliver: Deliver<'a>,
}

/// Tells whoever is to be told, when it is dropped. The lock is not held.
pub(crate) struct Deliver<'a> {
    sk: &'a SdpSock,
    wakeups: Wakeups,
    /// It is one of those who poll.
    polls: bool,
    /// It is the peer's task, which attends to nobody else then.
    is_peer: bool,
    /// It is the look at what was left to whoever had the lock before.
    is_again: bool,
}

impl SdpSock {
    /// Takes the lock of the connection: a spinlock, under which nothing sleeps and no user memory is
    /// touched.
    pub(crate) fn connection(&self) -> Guard<'_> {
        self.guard(self.data().connection.lock())
    }

    #[inline]
    fn guard<'a>(&'a self, connection: lock::Guard<'a, Connection, SpinLockBackend>) -> Guard<'a> {
        Guard {
            connection,
            deliver: Deliver::new(self, Wakeups::default()),
        }
    }

    /// Polls the completion queues and moves everything on that can be.
    pub(crate) fn progress(&self) {
        self.connection().progress();
    }

    /// Tells whoever is to be told. The lock is not held.
    pub(super) fn deliver(&self, wakeups: Wakeups) {
        drop(Deliver::new(self, wakeups));
    }

    /// [`SdpSock::progress`] by the task of the peer that has sent something.
    pub(crate) fn progress_for_peer(&self) {
        let mut guard = self.connection();
        guard.deliver.is_peer = true;
        guard.progress();
    }

    /// Sends what was held back until the peer has taken what came to it, by the peer's task, or leaves that to
    /// whoever has the lock.
    pub(crate) fn go_on_for_peer(&self) {
        self.data().taking.tell();
        if let Some(connection) = self.data().connection.try_lock() {
            let mut guard = self.guard(connection);
            guard.deliver.is_peer = true;
            guard.progress();
        }
    }

    /// Does what the peer's task has left to whoever had the lock.
    #[cold]
    fn go_on(&self) {
        if self.data().taking.going_on.xchg(1, Full) != 0 {
            return self.schedule(JOB_PROGRESS);
        }
        while self.data().taking.is_left() {
            let mut guard = self.connection();
            guard.deliver.is_again = true;
            guard.progress();
        }
        self.data().taking.going_on.xchg(0, Full);
    }
}

impl<'a> Guard<'a> {
    /// The connection, the wakeups that are for later, and the socket.
    pub(crate) fn split(&mut self) -> (&mut Connection, &mut Wakeups, &'a SdpSock) {
        let Deliver { sk, wakeups, .. } = &mut self.deliver;
        (&mut self.connection, wakeups, sk)
    }

    /// Polls the completion queues and moves everything on that can be.
    pub(crate) fn progress(&mut self) {
        let (connection, wakeups, sk) = self.split();
        connection.run(sk, wakeups);
    }

    /// [`Guard::progress`] by one of those who poll. If they were woken for what it finds, they are not
    /// woken once more: an epoll that asks would take that for another edge.
    pub(crate) fn progress_of_poller(&mut self) {
        self.deliver.polls = true;
        self.progress();
    }

    /// Whoever waits for room to write, because all sockets had too much memory, is told if there is some.
    pub(crate) fn look_for_memory(&mut self) {
        let (c, wakeups, sk) = self.split();
        c.has_room_again(sk, wakeups);
        if c.space_wanted || sk.is_room_wanted() {
            c.await_memory(sk);
        }
    }

    /// A call has read what it wanted of the peer's adverts: whoever has waited meanwhile may have the rest.
    pub(crate) fn leave_advert(&mut self) {
        let (c, wakeups, sk) = self.split();
        if c.next_advert().is_some() {
            c.offer_advert(sk, wakeups);
            c.run(sk, wakeups);
        }
    }

    /// [`Connection::close_on`].
    pub(crate) fn close_on(&mut self, event: Event, error: Errno) -> Act {
        let (connection, wakeups, sk) = self.split();
        connection.close_on(sk, event, error, wakeups)
    }

    /// Whoever waits for another state of the socket is to be told.
    pub(crate) fn state_has_changed(&mut self) {
        self.deliver.wakeups.state = true;
    }

    /// The connection was not made: whoever waits for it is to be told of the error.
    pub(crate) fn is_not_made(&mut self) {
        (self.deliver.wakeups.state, self.deliver.wakeups.error) = (true, true);
    }

    /// Lets go of the lock, but tells nobody before what is returned is dropped.
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
            is_peer: false,
            is_again: false,
        }
    }
}

impl Deliver<'_> {
    /// Has nobody told: there is nobody yet.
    pub(crate) fn forget(mut self) {
        self.wakeups = Wakeups::default();
    }

    /// What is to be told, for somebody else to do.
    pub(super) fn take(mut self) -> Wakeups {
        core::mem::take(&mut self.wakeups)
    }

    /// Does what is to be done without the lock, and tells. Most who have held the lock need not.
    #[inline(never)]
    fn tell(&mut self) {
        self.serve();
        let wakeups = core::mem::take(&mut self.wakeups);
        wakeups.tell(self.sk, !(self.polls && wakeups.is_known_to_pollers()));
        if wakeups.attend {
            self.attend();
        }
        if wakeups.disconnect {
            self.sk.start_disconnect();
        }
    }

    /// Takes what was sent to a peer that no program has any more, in place of its worker.
    fn attend(&self) {
        let mut c = self.sk.connection();
        let peer = c.endpoint.as_mut().and_then(|e| e.take_unattended());
        drop(c);
        // one that is not attended to has a worker
        if let Some(peer) = peer.filter(|_| !self.is_peer) {
            peer.attend();
        }
    }

    /// Makes receive buffers, lets go of memory and runs the transport's copy jobs, as long as one leads to the other.
    /// Pollers are notified of what another hold of the lock finds: they may have polled in between.
    fn serve(&mut self) {
        let (sk, wakeups) = (self.sk, &mut self.wakeups);
        while wakeups.copy_job || wakeups.buffers || wakeups.released {
            if core::mem::take(&mut wakeups.released) {
                zcopy::memory::release_blocks(sk);
            }
            if core::mem::take(&mut wakeups.buffers) {
                // the program, or a worker, may be what memory is wanted for
                let found = rx_buffers::stock(sk, GFP_NOWAIT);
                self.polls &= found.is_empty();
                wakeups.merge(found);
            }
            if !core::mem::take(&mut wakeups.copy_job) {
                continue;
            }
            let copy_job = sk.connection().endpoint.as_mut().and_then(|c| c.copy_job());
            if let Some(copy_job) = copy_job {
                // who copies looks afterwards: no worker is needed for what is told meanwhile
                let events = &sk.data().events;
                events.enter();
                let helped = copy_job.run();
                events.leave();
                let mut c = sk.connection();
                c.stats.direct_helped += helped;
                c.progress();
                let found = c.unlock().take();
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
            self.tell();
        }
        if !self.is_again && self.sk.data().taking.is_left() {
            self.sk.go_on();
        }
    }
}
