// SPDX-License-Identifier: GPL-2.0-only

//! Limits of pinned memory.
//!
//! An [`Account`] counts the pages of one user in one network namespace; a [`Charge`] counts the
//! pages of one block. Sending and receiving have separate limits, so that neither waits for the
//! other. Each user may use a part of both limits. A user without pinned pages in a direction may
//! always pin one block. When a limit is reached, further pinning is refused, and the bytes are
//! copied.
//!
//! Pinned pages also count against the user's `RLIMIT_MEMLOCK` ([`crate::sys::pin::Locked`]).

use crate::sys::net::params::{self, Params};
use crate::sys::pin::{ram_pages, PAGE};
use kernel::dma::DataDirection::{self as Direction, ToDevice};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

/// Counter of pages or events.
pub(crate) struct Count(Atomic<i64>);

impl Count {
    const fn new() -> Self {
        Count(Atomic::new(0))
    }

    /// Adds `n` pages to the counter, and returns the sum.
    pub(super) fn add(&self, n: i64) -> i64 {
        self.0.fetch_add(n, Relaxed).wrapping_add(n)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed).max(0) as u64
    }
}

/// Numbers of pages pinned for sending (`ToDevice`) and for receiving.
struct Pinned([Count; 2]);

impl Pinned {
    const fn new() -> Self {
        Pinned([Count::new(), Count::new()])
    }

    fn of(&self, direction: Direction) -> &Count {
        let [send, receive] = &self.0;
        match direction {
            ToDevice => send,
            _ => receive,
        }
    }
}

/// Numbers of pages pinned by all users.
static ALL: Pinned = Pinned::new();

/// Account of a user's pinned pages in one namespace.
pub(crate) struct Account {
    params: Arc<Params>,
    pinned: Pinned,
    /// Number of times that the limit was reached.
    pub(crate) refused: Count,
    /// Number of times that the user's `RLIMIT_MEMLOCK` was reached.
    pub(crate) unlockable: Count,
    /// Number of times that memory was still pinned from an earlier call.
    pub(crate) hits: Count,
}

impl Account {
    pub(crate) fn new(params: Arc<Params>) -> Result<Arc<Self>> {
        let account = Account {
            params,
            pinned: Pinned::new(),
            refused: Count::new(),
            unlockable: Count::new(),
            hits: Count::new(),
        };
        Ok(Arc::new(account, GFP_KERNEL)?)
    }

    /// Returns the number of pages pinned for one direction.
    pub(crate) fn pinned(&self, direction: Direction) -> u64 {
        self.pinned.of(direction).get()
    }

    pub(crate) fn clear(&self) {
        for count in [&self.hits, &self.refused, &self.unlockable] {
            count.0.store(0, Relaxed);
        }
    }

    /// Charges `pages` to the account. Returns `None` if the limit is reached.
    pub(crate) fn charge(self: &Arc<Self>, direction: Direction, pages: usize) -> Option<Charge> {
        let n = i64::try_from(pages).ok()?;
        let all = ALL.of(direction).add(n);
        let mine = self.pinned.of(direction).add(n);
        let charge = Charge {
            account: self.clone(),
            direction,
            pages: n,
        };
        let (most, most_each) = self.limits(direction);
        if mine == n || (all <= most && mine <= most_each) {
            return Some(charge);
        }
        self.refused.add(1);
        None
    }

    /// Returns the maximum number of pages pinned for one direction: by all users, and by each
    /// user. A namespace cannot raise the module's limit.
    fn limits(&self, direction: Direction) -> (i64, i64) {
        let (all, each, own) = match direction {
            ToDevice => (
                params::max_pinned_send(),
                params::max_pinned_send_user(),
                self.params.max_pinned_send_user(),
            ),
            _ => (
                params::max_pinned_receive(),
                params::max_pinned_receive_user(),
                self.params.max_pinned_receive_user(),
            ),
        };
        let pages = |mib: i32, default| match mib {
            ..=-1 => default,
            mib => i64::from(mib).saturating_mul(((1 << 20) / PAGE) as i64),
        };
        let all = pages(all, i64::try_from(ram_pages() / 16).unwrap_or(i64::MAX));
        (all, pages(each, all / 2).min(pages(own, all / 2)))
    }
}

/// Charge of one block to a user's account. The drop, in any context, uncharges the pages.
pub(crate) struct Charge {
    account: Arc<Account>,
    direction: Direction,
    pages: i64,
}

impl Charge {
    pub(super) fn direction(&self) -> Direction {
        self.direction
    }

    /// Adds another charge of the same account and direction.
    pub(crate) fn add(&mut self, mut other: Charge) {
        self.pages = self.pages.wrapping_add(core::mem::take(&mut other.pages));
    }

    /// Reduces the charge to at most `pages`.
    pub(crate) fn shrink(&mut self, pages: usize) {
        let pages = i64::try_from(pages).unwrap_or(i64::MAX).min(self.pages);
        self.give_back(self.pages.wrapping_sub(pages));
    }

    fn give_back(&mut self, n: i64) {
        ALL.of(self.direction).add(n.wrapping_neg());
        self.account.pinned.of(self.direction).add(n.wrapping_neg());
        self.pages = self.pages.wrapping_sub(n);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back(self.pages);
    }
}
