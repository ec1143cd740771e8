// SPDX-License-Identifier: GPL-2.0-only

//! A listener's queue: connections that wait for accept(2), and places for those that are being made.

use super::{SdpSock, Socket};
use crate::memory::ring::Ring;
use crate::sys::net::unaccepted::Unaccepted;
use crate::transport::Listening;
use kernel::alloc::flags::{GFP_ATOMIC, GFP_KERNEL};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{Atomic, Relaxed};

/// How often listen(2) has made something of a socket, in the whole module.
static LISTENS: Atomic<u64> = Atomic::new(0);

/// What listen(2) has made of a socket. Protected by the connection's spinlock.
pub(crate) struct Listener {
    /// Which of all that ever were this is.
    number: u64,
    /// Keeps requests to the port coming.
    listening: Option<Listening>,
    /// Connections that wait for accept(2).
    ready: Ring<Unaccepted<Socket>>,
    /// Connections that are not established yet.
    pending: u32,
}

impl Listener {
    /// Begins to listen.
    pub(crate) fn new(backlog: u32, listening: Listening) -> Result<KBox<Self>> {
        let mut ready = Ring::new();
        ready.reserve(backlog.clamp(1, 64) as usize, GFP_KERNEL)?;
        let listener = Listener {
            number: LISTENS.fetch_add(1, Relaxed),
            listening: Some(listening),
            ready,
            pending: 0,
        };
        Ok(KBox::new(listener, GFP_KERNEL)?)
    }

    /// Lets no more requests come, which waits for those in progress.
    pub(crate) fn end(&mut self) {
        drop(self.listening.take());
    }

    /// Takes the connection that has waited longest.
    pub(crate) fn take(&mut self) -> Option<Unaccepted<Socket>> {
        self.ready.pop_front()
    }

    /// How many connections wait for accept(2).
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }
}

/// A place in a listener's queue. A new connection has it until it waits there for accept(2).
#[derive(Clone)]
pub(crate) struct BacklogSlot {
    pub(crate) listener: ARef<SdpSock>,
    /// Of what listen(2) made then: since, the socket may listen anew.
    number: u64,
}

impl BacklogSlot {
    /// Takes a place in the backlog, if there is one, and there is memory for it: once the connection is
    /// made there must be.
    pub(crate) fn reserve(listener: &ARef<SdpSock>) -> Option<Self> {
        let mut c = listener.connection();
        let backlog = listener.backlog();
        let l = c.listener.as_mut()?;
        // one more than the backlog says, as on TCP
        let taken = l.ready.len() as u32 + l.pending;
        if taken > backlog {
            return None;
        }
        let (taken, capacity) = (taken as usize, l.ready.capacity());
        if taken >= capacity {
            l.ready.reserve(capacity * 2, GFP_ATOMIC).ok()?;
        }
        l.pending += 1;
        Some(BacklogSlot {
            listener: listener.clone(),
            number: l.number,
        })
    }

    /// Leaves it to others, and does something with what it is a place of, if that still listens.
    fn leave<R>(&self, f: impl FnOnce(&mut Listener) -> R) -> Option<R> {
        let mut c = self.listener.connection();
        let l = c.listener.as_mut().filter(|l| l.number == self.number)?;
        l.pending = l.pending.saturating_sub(1);
        Some(f(l))
    }

    /// Somebody else may have it.
    pub(crate) fn give_back(&self) {
        let _ = self.leave(|_| ());
    }

    /// Gives a new connection to the listener, for accept(2).
    ///
    /// # Errors
    ///
    /// `EINVAL` if it does not listen any more.
    pub(crate) fn hand_over(&self, child: &SdpSock) -> Result {
        let child = Unaccepted::new(child).ok_or(EINVAL)?;
        let queued = self.leave(|l| {
            let queued = l.ready.push_back(child);
            self.listener.set_waiting(l.ready.len() as u32);
            queued.is_ok()
        });
        if queued != Some(true) {
            return Err(EINVAL);
        }
        self.listener.wake_one();
        self.listener.data_ready();
        Ok(())
    }
}
