// SPDX-License-Identifier: GPL-2.0-only

//! Outstanding adverts of this end, and their cancel.

use super::ring::Ring;

/// Maximum number of own adverts of each kind that are outstanding at a time.
const OWN_ADVERTS: usize = 8;

/// State of a SrcAvailCancel or SinkAvailCancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancel {
    No,
    Due,
    /// The cancel is sent and adverts are outstanding.
    Sent,
}

/// Adverts that the peer may be accessing, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Own<T: Copy + Default> {
    adverts: Ring<T, OWN_ADVERTS>,
    cancel: Cancel,
}

impl<T: Copy + Default> Own<T> {
    pub(crate) fn new() -> Self {
        Own {
            adverts: Ring::new(),
            cancel: Cancel::No,
        }
    }

    /// Returns the number of adverts that the peer may be accessing.
    pub(crate) fn count(&self) -> usize {
        self.adverts.len()
    }

    /// Returns true if another advert may be sent (at most `limit`): not during a cancel.
    pub(crate) fn room(&self, limit: usize) -> bool {
        self.cancel == Cancel::No && self.count() < limit.min(OWN_ADVERTS)
    }

    /// Adds a sent advert. The caller has checked [`room`](Self::room).
    pub(crate) fn push(&mut self, advert: T) {
        self.adverts.push(advert);
    }

    pub(super) fn oldest(&self) -> Option<&T> {
        self.adverts.front()
    }

    pub(super) fn oldest_mut(&mut self) -> Option<&mut T> {
        self.adverts.front_mut()
    }

    /// Removes the oldest advert. A cancel ends with the last one.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let oldest = self.adverts.pop();
        if self.adverts.is_empty() {
            self.cancel = Cancel::No;
        }
        oldest
    }

    /// Removes all adverts. Returns true if there were any.
    pub(crate) fn clear(&mut self) -> bool {
        let some = self.count() > 0;
        self.adverts.clear();
        self.cancel = Cancel::No;
        some
    }

    /// Requests the return of all adverts.
    pub(crate) fn cancel(&mut self) {
        if self.count() > 0 && self.cancel == Cancel::No {
            self.cancel = Cancel::Due;
        }
    }

    /// Returns true if the message that cancels the adverts is due.
    pub(crate) fn cancel_due(&self) -> bool {
        self.cancel == Cancel::Due
    }

    /// Marks that message as sent.
    pub(crate) fn cancelled(&mut self) {
        self.cancel = Cancel::Sent;
    }

    /// Returns true if that message is sent and has no reply yet.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel == Cancel::Sent
    }
}
