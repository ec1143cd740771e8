// SPDX-License-Identifier: GPL-2.0-only

//! State of a network namespace: ports, sockets and counters.

mod peers;
mod ports;
mod proc;

pub(super) use peers::{patience, remember, timeout_for};

use super::close;
use crate::conn::stats::Stats;
use crate::conn::SdpSock;
use crate::memory::budget::Account;
use crate::memory::pressure;
use crate::sys::errno::ENOBUFS;
use crate::sys::net::netns::{PerNet, ProcFile};
use crate::sys::net::params::{self, Params};
use crate::sys::pin::{ram_pages, PAGE};
use crate::sys::sync::late_mutex;
use crate::sys::time::{jiffies, milliseconds, Jiffies};
use kernel::alloc::flags::GFP_KERNEL;
use kernel::dma::DataDirection as Direction;
use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNode};
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, Mutex, SpinLock};
use kernel::{new_mutex, new_spinlock};
use peers::{FixedBufferPeers, PeerCache};
use ports::Ports;

/// Machine memory in bytes per socket. Determines the default limit of sockets of a namespace
/// (`PER_NET`), and of a user in a namespace (`PER_USER`). The limits are needed because queue
/// pairs are not charged to a user. An idle end of a connection takes 93 KiB with rxe
/// (docs/performance.md), so a user may use half of the memory, and a namespace all of it.
const PER_NET: usize = 96 << 10;
const PER_USER: usize = 192 << 10;

/// Minimum time between two searches for idle memory.
const SHED_PAUSE: Jiffies = milliseconds(100);
/// Time of the last search for idle memory.
static SHED: Atomic<usize> = Atomic::new(0);

late_mutex! {
    /// All namespaces, by address of their `struct net`.
    mod all, ALL: Option<RBTree<usize, Arc<Netns>>> = None
}

/// Frees memory that connections keep for their next transfers, when memory is short. Does nothing
/// shortly after another call, since each call visits all sockets. Context: process, may sleep.
/// Locks with a lower number than `sockets` in docs/locking.md may be held.
pub(crate) extern "C" fn shed() {
    let (last, now) = (SHED.load(Relaxed), jiffies());
    if now.wrapping_sub(last) < SHED_PAUSE || SHED.cmpxchg(last, now, Relaxed).is_err() {
        return;
    }
    let next = |least| {
        let all = all::lock().ok()?;
        let at = all.as_ref()?.cursor_lower_bound(&least)?;
        Some(at.current().1.clone())
    };
    let mut least = 0;
    while let Some(namespace) = next(least) {
        least = namespace.key().saturating_add(1);
        namespace.for_each(|sk| {
            sk.connection().shed();
            sk.trim(0);
        });
    }
}

/// Returns the number of sockets that the parameters of the module and of the namespace allow.
fn most(module: i32, own: i32, memory_of_each: usize) -> usize {
    let memory = ram_pages().saturating_mul(PAGE);
    let by_memory = memory.checked_div(memory_of_each).unwrap_or(0);
    let most = |parameter| usize::try_from(parameter).unwrap_or(by_memory);
    most(module).min(most(own))
}

/// Socket family's state in one namespace. docs/locking.md describes the order of its locks.
#[pin_data]
pub(crate) struct Netns {
    pub(in crate::socket) params: Arc<Params>,
    /// Ports and the sockets that hold them.
    #[pin]
    pub(in crate::socket) ports: Mutex<Ports>,
    /// All sockets, by [`SdpSock::id`](crate::sys::net::sock::SockCore::id), from creation to
    /// destruction. An entry holds a reference.
    #[pin]
    sockets: Mutex<Sockets>,
    /// Counters of destroyed sockets.
    #[pin]
    totals: Mutex<Stats>,
    /// Serialises [`Netns::stats`].
    #[pin]
    summing: Mutex<()>,
    /// Destinations where `IPPROTO_SDP` sockets need not try SDP. The spinlock is a leaf lock.
    #[pin]
    pub(in crate::socket) peer_cache: SpinLock<PeerCache>,
    /// Services of OFED peers, which get large receive buffers. The spinlock is a leaf lock.
    #[pin]
    pub(in crate::socket) fixed_buffer_peers: SpinLock<FixedBufferPeers>,
}

impl PerNet for Netns {
    type Row = SdpSock;
    const FILES: &'static [(&'static CStr, ProcFile<Self>)] = proc::FILES;

    fn params(&self) -> &Params {
        &self.params
    }

    fn init() -> impl PinInit<Self, Error> {
        all::start();
        try_pin_init!(Netns {
            params: Params::new()?,
            ports <- new_mutex!(Ports::default()),
            sockets <- new_mutex!(Sockets::new()),
            totals <- new_mutex!(Stats::new()),
            summing <- new_mutex!(()),
            peer_cache <- new_spinlock!(PeerCache::new(params.clone())?),
            fixed_buffer_peers <- new_spinlock!(FixedBufferPeers::new()?),
        })
    }

    fn start(this: &Arc<Self>) -> Result {
        let mut all = all::lock()?;
        let all = all.get_or_insert_with(RBTree::new);
        all.try_create_and_insert(this.key(), this.clone(), GFP_KERNEL)?;
        Ok(())
    }

    fn stop(this: &Arc<Self>) {
        if let Some(all) = all::lock().ok().as_deref_mut().and_then(Option::as_mut) {
            all.remove(&this.key());
        }
        this.for_each(close::namespace_ends);
    }
}

struct Entry {
    sk: ARef<SdpSock>,
    /// Owner of the socket at its creation; accept(2) may change the owner. `None`: the socket has
    /// switched to TCP, and counts against no limit.
    uid: Option<u32>,
}

struct User {
    sockets: usize,
    /// Account that the pinned pages of the user's sockets are charged to.
    account: Arc<Account>,
}

struct Sockets {
    all: RBTree<usize, Entry>,
    /// Number of sockets with an owner.
    count: usize,
    /// Owners of the sockets.
    users: RBTree<u32, User>,
    /// First socket id that the running call of [`Netns::stats`] has not added to its sum yet.
    summed: usize,
    /// Counters of sockets that left during a call of [`Netns::stats`], not added to `totals` yet.
    missed: Stats,
}

impl Sockets {
    fn new() -> Self {
        Sockets {
            all: RBTree::new(),
            count: 0,
            users: RBTree::new(),
            summed: usize::MAX,
            missed: Stats::new(),
        }
    }
}

impl Netns {
    fn key(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Adds a socket.
    ///
    /// # Errors
    ///
    /// `ENOBUFS`: the namespace, or its user, has reached the limit of sockets. `ENOMEM`.
    pub(in crate::socket) fn enter(&self, sk: &SdpSock) -> Result {
        let uid = sk.uid();
        let entry = Entry {
            sk: sk.into(),
            uid: Some(uid),
        };
        let node = RBTreeNode::new(sk.id(), entry, GFP_KERNEL)?;
        let mut sockets = self.sockets.lock();
        let theirs = sockets.users.get(&uid).map(|u| u.sockets);
        let (net, user) = (
            params::max_sockets_per_net(),
            params::max_sockets_per_user(),
        );
        if sockets.count >= most(net, self.params.max_sockets_per_net(), PER_NET)
            || theirs.unwrap_or(0) >= most(user, self.params.max_sockets_per_user(), PER_USER)
        {
            drop(sockets);
            self.totals.lock().limit_drops += 1;
            return Err(ENOBUFS.into());
        }
        if theirs.is_none() {
            let user = User {
                sockets: 0,
                account: Account::new(self.params.clone())?,
            };
            sockets.users.try_create_and_insert(uid, user, GFP_KERNEL)?;
        }
        if let Some(u) = sockets.users.get_mut(&uid) {
            u.sockets = u.sockets.saturating_add(1);
            // each socket is added only once
            sk.data().enter(u.account.clone());
        }
        sockets.all.insert(node);
        sockets.count = sockets.count.saturating_add(1);
        Ok(())
    }

    /// Returns false, and counts a refusal, if all socket buffers exceed the limit ([`pressure`]).
    pub(in crate::socket) fn admits(&self) -> bool {
        if pressure::is_tight() {
            shed();
        }
        let admitted = !pressure::is_exhausted();
        if !admitted {
            self.totals.lock().limit_drops += 1;
        }
        admitted
    }

    /// Removes a socket, with its port and counters, unless it is already removed.
    pub(in crate::socket) fn leave(&self, sk: &SdpSock) {
        self.ports.lock().release(sk.id());
        self.became_tcp(sk);
        let entry = self.sockets.lock().all.remove(&sk.id());
        drop(entry);
    }

    /// Marks a socket as switched to TCP, of which only the reason is kept until close(2).
    pub(in crate::socket) fn became_tcp(&self, sk: &SdpSock) {
        let mut sockets = self.sockets.lock();
        let entry = sockets.all.get_mut(&sk.id());
        let Some(uid) = entry.and_then(|entry| entry.uid.take()) else {
            return;
        };
        sockets.count = sockets.count.saturating_sub(1);
        let left = sockets.users.get_mut(&uid).map(|u| {
            u.sockets = u.sockets.saturating_sub(1);
            u.sockets
        });
        // locks are taken in this order: the mutex before the spinlock
        let mut totals = self.totals.lock();
        if left == Some(0) {
            if let Some(u) = sockets.users.remove(&uid) {
                totals.pin_refusals += u.account.refused.get();
                totals.pin_unlockable += u.account.unlockable.get();
                totals.pin_hits += u.account.hits.get();
            }
        }
        let mut c = sk.connection();
        let stats = c.counters();
        totals.add(stats);
        if sk.id() >= sockets.summed {
            sockets.missed.add(stats);
        }
        *stats = Stats::new();
    }

    /// Counts an event without a connection.
    pub(in crate::socket) fn count(&self, f: impl FnOnce(&mut Stats)) {
        f(&mut self.totals.lock())
    }

    /// Returns the sum of all counters. Locks one socket at a time: any user may call this.
    pub(crate) fn stats(&self) -> Stats {
        let one = self.summing.lock();
        let mut sum = Stats::new();
        {
            let mut sockets = self.sockets.lock();
            sum.add(&self.totals.lock());
            for User { account, .. } in sockets.users.values() {
                sum.pin_refusals += account.refused.get();
                sum.pin_unlockable += account.unlockable.get();
                sum.pin_hits += account.hits.get();
                sum.pinned_send += account.pinned(Direction::ToDevice);
                sum.pinned_receive += account.pinned(Direction::FromDevice);
            }
            (sockets.summed, sockets.missed) = (0, Stats::new());
        }
        loop {
            let mut sockets = self.sockets.lock();
            let at = sockets.all.cursor_lower_bound(&sockets.summed);
            let Some(sk) = at.map(|at| at.current().1.sk.clone()) else {
                sum.add(&sockets.missed);
                sockets.summed = usize::MAX;
                break;
            };
            sockets.summed = sk.id().saturating_add(1);
            drop(sockets);
            sum.add(sk.connection().counters());
        }
        drop(one);
        sum
    }

    pub(crate) fn clear_stats(&self) {
        *self.totals.lock() = Stats::new();
        self.for_each(|sk| *sk.connection().counters() = Stats::new());
        for User { account, .. } in self.sockets.lock().users.values() {
            account.clear();
        }
    }

    /// Returns the socket with the lowest id of at least `least` whose entry `fits`.
    fn find(&self, mut least: usize, fits: impl Fn(&Entry) -> bool) -> Option<ARef<SdpSock>> {
        loop {
            let sockets = self.sockets.lock();
            let at = sockets.all.cursor_lower_bound(&least)?;
            let (id, entry) = at.current();
            if fits(entry) {
                return Some(entry.sk.clone());
            }
            least = id.saturating_add(1);
        }
    }

    /// Returns the socket with the lowest id of at least `least`, except sockets that use TCP.
    fn next(&self, least: usize) -> Option<ARef<SdpSock>> {
        self.find(least, |entry| entry.uid.is_some())
    }

    /// Variant of [`Self::next`] for `IPPROTO_SDP` sockets, even those switched to TCP.
    fn next_either(&self, least: usize) -> Option<ARef<SdpSock>> {
        self.find(least, |entry| entry.sk.is_either())
    }

    /// Calls `f` for each socket, without a lock.
    fn for_each(&self, mut f: impl FnMut(&SdpSock)) {
        let mut least = 0;
        while let Some(sk) = self.next(least) {
            least = sk.id().saturating_add(1);
            f(&sk);
        }
    }
}
