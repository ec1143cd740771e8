// SPDX-License-Identifier: GPL-2.0-only

//! Queue of a listener: connections ready for accept(2), and places reserved for new connections.

use super::{SdpSock, Socket};
use crate::sys::net::sock::Unaccepted;
use crate::transport::Listening;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNode};
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{Atomic, Relaxed};

/// Number of places ever reserved in all queues; the value orders the reservations.
static PLACES: Atomic<u64> = Atomic::new(0);

/// Key of a place. Established connections sort before reserved places.
type Key = (bool, u64);
const WAITING: bool = false;
const PENDING: bool = true;

/// Queue of a listener, made by listen(2). Protected by the connection's spinlock.
pub(crate) struct Listener {
    /// Registration for connection requests to the port.
    listening: Option<Listening>,
    /// Reserved places, each with its connection once it is established.
    places: RBTree<Key, Option<Unaccepted<Socket>>>,
    taken: usize,
    waiting: usize,
}

impl Listener {
    /// Begins to listen.
    pub(crate) fn new(listening: Listening) -> Result<KBox<Self>> {
        let listener = Listener {
            listening: Some(listening),
            places: RBTree::new(),
            taken: 0,
            waiting: 0,
        };
        Ok(KBox::new(listener, GFP_KERNEL)?)
    }

    /// Stops accepting requests, and waits for requests in progress.
    pub(crate) fn end(&mut self) {
        drop(self.listening.take());
    }

    /// Removes and returns the connection that has waited longest for accept(2).
    pub(crate) fn take(&mut self) -> Option<Unaccepted<Socket>> {
        self.waiting = self.waiting.checked_sub(1)?;
        self.taken = self.taken.saturating_sub(1);
        let (_, first) = self.places.cursor_front_mut()?.remove_current();
        first.to_key_value().1
    }

    /// Returns the number of connections that wait for accept(2).
    pub(crate) fn ready(&self) -> usize {
        self.waiting
    }
}

/// Place in a listener's queue, which a new connection holds until queued for accept(2).
#[derive(Clone)]
pub(crate) struct BacklogSlot {
    pub(crate) listener: ARef<SdpSock>,
    number: u64,
}

impl BacklogSlot {
    /// Reserves a place in the backlog, with all memory needed until accept(2). Returns `None` if
    /// the backlog is full, or out of memory.
    pub(crate) fn reserve(listener: &ARef<SdpSock>) -> Option<Self> {
        let number = PLACES.fetch_add(1, Relaxed);
        let place = RBTreeNode::new((PENDING, number), None, GFP_KERNEL).ok()?;
        let mut c = listener.connection();
        let backlog = listener.backlog() as usize;
        let l = c.listener.as_mut()?;
        // as in TCP, a queue may hold one connection more than its backlog
        if l.taken > backlog {
            return None;
        }
        l.places.insert(place);
        l.taken = l.taken.saturating_add(1);
        Some(BacklogSlot {
            listener: listener.clone(),
            number,
        })
    }

    /// Gives the reserved place back to the listener's queue.
    pub(crate) fn give_back(&self) {
        let mut c = self.listener.connection();
        if let Some(l) = c.listener.as_mut() {
            let place = l.places.remove(&(PENDING, self.number));
            l.taken = l.taken.saturating_sub(place.iter().count());
        }
    }

    /// Adds an established connection to the listener's queue, for accept(2). Returns `EINVAL` if
    /// the socket has stopped listening.
    pub(crate) fn hand_over(&self, child: &SdpSock) -> Result {
        {
            let mut c = self.listener.connection();
            let l = c.listener.as_mut().ok_or(EINVAL)?;
            let place = l.places.remove_node(&(PENDING, self.number));
            let place = place.ok_or(EINVAL)?.into_reservation();
            // needs the lock: from here on, upcalls of the child reach the listener's user
            let child = Unaccepted::new(child).ok_or(EINVAL)?;
            let at = (WAITING, PLACES.fetch_add(1, Relaxed));
            l.places.insert(place.into_node(at, Some(child)));
            l.waiting = l.waiting.saturating_add(1);
            self.listener.set_waiting(l.waiting as u32);
        }
        child.state_changed();
        self.listener.wake_one();
        self.listener.data_ready();
        Ok(())
    }
}
