// SPDX-License-Identifier: GPL-2.0-only

//! What is remembered of descriptors, by their numbers. Most have nothing here.
//!
//! The table is changed under one lock, with all signals blocked, and nothing that waits is done
//! under it. Only [`kind`] is read without, to see that a descriptor is of no concern.
//!
//! It belongs to one process. A child of fork(2) has its own copy; one of vfork(2), which has the
//! parent's memory and other descriptors, finds that it is not the owner and changes nothing. What
//! it does to a descriptor before execve(2) it has to do to the hidden ones, too, so these can be
//! read without the lock ([`hidden_of`], [`owner_of`]): other threads of the parent go on.

use crate::arena;
use crate::sys::{self, Address};
use libc::c_int;
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering::*,
};

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Nothing of ours, or settled.
    Other = 0,
    /// A TCP socket that may become SDP. Its shadow, if any, is an SDP socket with the same address.
    Fresh,
    /// An SDP socket that connects. Its shadow is the TCP socket that is used if it fails.
    Connecting,
    /// A TCP socket that connects, since SDP has failed; events of before are not its own.
    Following,
    /// An SDP socket that has failed, as TCP would: `error` is still to be told.
    Failed,
    /// A TCP listener. Its shadow is the SDP listener, `joint` watches both.
    Listening,
    /// A shadow or joint of another descriptor, which programs do not see.
    Hidden,
}

/// So many epoll descriptors can watch one socket before it is settled; later ones are not
/// followed.
const INTERESTS: usize = 4;

/// A socket's place in an epoll descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    pub epoll: c_int,
    pub events: u32,
    pub data: u64,
}

/// What is remembered of one descriptor. All zeroes is nothing.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Says which entries are duplicates of one descriptor.
    pub socket: u32,
    /// Other descriptors have the same number here.
    pub shared: bool,
    /// Made for IPv6.
    pub six: bool,
    /// The program has set an option that SDP does not have: level and name.
    pub foreign: Option<(c_int, c_int)>,
    /// Options that the program has set, as bits (see [`crate::options`]).
    pub options: u64,
    /// What the rules said when it was bound.
    pub bound: Option<sdp_rules::Mode>,
    /// A hidden descriptor.
    pub shadow: Option<c_int>,
    /// A hidden epoll descriptor.
    pub joint: Option<c_int>,
    /// The socket's inode once there is a shadow, to see that it is still the same.
    pub inode: u64,
    /// Where it connects to.
    pub to: Address,
    /// When SDP was asked, and until when it has to have answered, by [`sys::now`].
    pub asked: u64,
    pub until: u64,
    /// What SO_ERROR is still to tell.
    pub error: c_int,
    /// Of a hidden descriptor, whose it is.
    pub owner: c_int,
    pub interests: [Option<Interest>; INTERESTS],
}

impl Entry {
    pub const NONE: Entry = Entry {
        socket: 0,
        shared: false,
        six: false,
        foreign: None,
        options: 0,
        bound: None,
        shadow: None,
        joint: None,
        inode: 0,
        to: Address::NONE,
        asked: 0,
        until: u64::MAX,
        error: 0,
        owner: -1,
        interests: [None; INTERESTS],
    };
}

struct Slot {
    kind: AtomicU8,
    /// The entry's shadow and joint, or -1, its owner and its inode, for who cannot have the lock.
    hidden: [AtomicI32; 2],
    owner: AtomicI32,
    inode: AtomicU64,
    /// Under [`LOCK`].
    entry: UnsafeCell<Entry>,
}

impl Slot {
    /// Lets everybody see what of an entry is not only for who has the lock.
    fn show(&self, entry: &Entry) {
        for (shown, hidden) in self.hidden.iter().zip([entry.shadow, entry.joint]) {
            shown.store(hidden.unwrap_or(-1), Relaxed);
        }
        self.owner.store(entry.owner, Relaxed);
        self.inode.store(entry.inode, Relaxed);
    }
}

const PAGE: usize = 256;
const PAGES: usize = 4096;

/// The slots of the first million numbers, in pages that are there once they are needed.
static SLOTS: [AtomicPtr<[Slot; PAGE]>; PAGES] = [const { AtomicPtr::new(ptr::null_mut()) }; PAGES];
/// The thread that holds the lock, 0 for none, negative if others wait.
static LOCK: AtomicI32 = AtomicI32::new(0);
/// The process whose table it is.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The thread that forks and holds the lock for that.
static FORKING: AtomicI32 = AtomicI32::new(0);
/// Signals that were blocked when it began. Under [`LOCK`].
static FORK_MASK: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// Numbers the sockets.
static SOCKETS: AtomicU32 = AtomicU32::new(1);
/// How many descriptors are [`Kind::Listening`].
static LISTENING: AtomicUsize = AtomicUsize::new(0);
/// How many are [`Kind::Connecting`], [`Kind::Following`] or [`Kind::Failed`].
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

fn slot(fd: c_int) -> Option<&'static Slot> {
    let fd = usize::try_from(fd).ok()?;
    let page = SLOTS.get(fd / PAGE)?.load(Acquire);
    // SAFETY: a page that is there stays there.
    unsafe { page.as_ref() }.map(|page| &page[fd % PAGE])
}

fn slot_or_new(fd: c_int) -> Option<&'static Slot> {
    let place = SLOTS.get(usize::try_from(fd).ok()? / PAGE)?;
    if place.load(Acquire).is_null() {
        let page = arena::map(std::mem::size_of::<[Slot; PAGE]>()).cast::<[Slot; PAGE]>();
        if page.is_null() {
            return None;
        }
        // SAFETY: the mapping is as large, aligned, and nobody else's yet. Zeroes are a kind.
        unsafe {
            for index in 0..PAGE {
                let slot = page.cast::<Slot>().add(index);
                slot.write(Slot {
                    kind: AtomicU8::new(Kind::Other as u8),
                    hidden: [const { AtomicI32::new(-1) }; 2],
                    owner: AtomicI32::new(-1),
                    inode: AtomicU64::new(0),
                    entry: UnsafeCell::new(Entry::NONE),
                });
            }
        }
        // Only ever done under the lock.
        place.store(page, Release);
    }
    slot(fd)
}

/// What a descriptor is, at this moment.
#[inline]
pub fn kind(fd: c_int) -> Kind {
    let kind = slot(fd).map_or(0, |s| s.kind.load(Acquire));
    match kind {
        1 => Kind::Fresh,
        2 => Kind::Connecting,
        3 => Kind::Following,
        4 => Kind::Failed,
        5 => Kind::Listening,
        6 => Kind::Hidden,
        _ => Kind::Other,
    }
}

/// Whether a descriptor is remembered.
#[inline]
pub fn knows(fd: c_int) -> bool {
    slot(fd).is_some_and(|s| s.kind.load(Relaxed) != 0)
}

/// A descriptor's shadow and joint, at this moment, as far as this process has them.
pub fn hidden_of(fd: c_int) -> [Option<c_int>; 2] {
    let numbers = slot(fd).map_or([-1, -1], |s| {
        [0, 1].map(|n: usize| s.hidden[n].load(Relaxed))
    });
    numbers.map(|n| (n >= 0 && is_hidden(n)).then_some(n))
}

/// Whether a descriptor is hidden, and the one that it was then: a process without a table may
/// have closed it.
pub fn is_hidden(fd: c_int) -> bool {
    let known = slot(fd).filter(|_| kind(fd) == Kind::Hidden);
    known.is_some_and(|s| sys::inode(fd) == Some(s.inode.load(Relaxed)))
}

/// Whose a hidden descriptor is, at this moment.
pub fn owner_of(fd: c_int) -> c_int {
    slot(fd).map_or(-1, |s| s.owner.load(Relaxed))
}

/// All descriptors that are remembered, at this moment.
pub fn known() -> impl Iterator<Item = c_int> {
    SLOTS.iter().enumerate().flat_map(|(number, page)| {
        // SAFETY: a page that is there stays there.
        let page = unsafe { page.load(Acquire).as_ref() };
        page.into_iter().flat_map(move |page| {
            page.iter()
                .enumerate()
                .filter(|(_, slot)| slot.kind.load(Relaxed) != 0)
                .map(move |(index, _)| (number * PAGE + index) as c_int)
        })
    })
}

#[inline]
pub fn any_listening() -> bool {
    LISTENING.load(Relaxed) != 0
}

#[inline]
pub fn any_under_way() -> bool {
    UNDER_WAY.load(Relaxed) != 0
}

/// The counter that a kind is counted by.
fn counter(kind: Kind) -> Option<&'static AtomicUsize> {
    match kind {
        Kind::Listening => Some(&LISTENING),
        Kind::Connecting | Kind::Following | Kind::Failed => Some(&UNDER_WAY),
        _ => None,
    }
}

/// Some descriptors; more duplicates of one socket than fit here nobody has.
#[derive(Default)]
pub struct Few {
    all: [c_int; 16],
    count: usize,
}

impl std::ops::Deref for Few {
    type Target = [c_int];

    fn deref(&self) -> &[c_int] {
        &self.all[..self.count]
    }
}

/// The table, held.
pub struct Table {
    mask: u64,
    /// This thread holds it anyway, for fork(2).
    again: bool,
}

/// Takes hold of the table; none in a process that has no table of its own.
pub fn lock() -> Option<Table> {
    let mask = sys::block_signals();
    let me = sys::tid();
    if sys::pid() != OWNER.load(Relaxed) {
        sys::restore_signals(mask);
        return None;
    }
    if FORKING.load(Relaxed) == me {
        return Some(Table { mask, again: true });
    }
    loop {
        match LOCK.compare_exchange(0, me, Acquire, Relaxed) {
            Ok(_) => break,
            Err(holder) => {
                let waiting = -holder.abs();
                if holder == waiting
                    || LOCK
                        .compare_exchange(holder, waiting, Relaxed, Relaxed)
                        .is_ok()
                {
                    sys::futex_wait(&LOCK, waiting);
                    // Whoever has waited cannot know whether others still do.
                    if LOCK.compare_exchange(0, -me, Acquire, Relaxed).is_ok() {
                        break;
                    }
                }
            }
        }
    }
    Some(Table { mask, again: false })
}

fn unlock() {
    if LOCK.swap(0, Release) < 0 {
        sys::futex_wake(&LOCK);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !self.again {
            unlock();
        }
        sys::restore_signals(self.mask);
    }
}

impl Table {
    /// What is remembered of a descriptor.
    pub fn get(&self, fd: c_int) -> (Kind, Entry) {
        match (kind(fd), slot(fd)) {
            (Kind::Other, _) | (_, None) => (Kind::Other, Entry::NONE),
            // SAFETY: entries are touched under the lock only, which `self` is.
            (kind, Some(s)) => (kind, unsafe { *s.entry.get() }),
        }
    }

    /// Remembers something else of a descriptor; false if there is no room for it.
    pub fn set(&mut self, fd: c_int, new: Kind, entry: Entry) -> bool {
        let Some(slot) = slot_or_new(fd) else {
            return false;
        };
        let old = kind(fd);
        // SAFETY: as above.
        unsafe { *slot.entry.get() = entry };
        slot.show(&entry);
        slot.kind.store(new as u8, Release);
        if let Some(counter) = counter(new) {
            counter.fetch_add(1, Relaxed);
        }
        if let Some(counter) = counter(old) {
            counter.fetch_sub(1, Relaxed);
        }
        true
    }

    pub fn update(&mut self, fd: c_int, change: impl FnOnce(&mut Entry)) {
        if let Some(slot) = slot(fd) {
            // SAFETY: as above.
            let entry = unsafe { &mut *slot.entry.get() };
            change(entry);
            slot.show(entry);
        }
    }

    /// A TCP socket that may become SDP.
    pub fn add_fresh(&mut self, fd: c_int, six: bool) {
        let entry = Entry {
            socket: SOCKETS.fetch_add(1, Relaxed),
            six,
            ..Entry::NONE
        };
        self.forget(fd);
        self.set(fd, Kind::Fresh, entry);
    }

    /// Forgets a descriptor, and closes what was hidden with it.
    pub fn forget(&mut self, fd: c_int) {
        let (old, entry) = self.get(fd);
        if old == Kind::Other {
            return;
        }
        self.set(fd, Kind::Other, Entry::NONE);
        for hidden in [entry.shadow, entry.joint].into_iter().flatten() {
            self.drop_hidden(hidden, fd);
        }
    }

    /// Closes a hidden descriptor, if it is still that.
    pub fn drop_hidden(&mut self, hidden: c_int, owner: c_int) {
        let (kind, entry) = self.get(hidden);
        if kind == Kind::Hidden && entry.owner == owner {
            self.set(hidden, Kind::Other, Entry::NONE);
            if sys::inode(hidden) == Some(entry.inode) {
                sys::close(hidden);
            }
        }
    }

    /// Moves a descriptor to a number out of the program's sight, for `owner`.
    ///
    /// # Errors
    ///
    /// That of fcntl(2); the descriptor is as it was.
    pub fn hide(&mut self, fd: c_int, owner: c_int) -> sys::Result {
        let hidden = self.hide_copy(fd, owner)?;
        sys::close(fd);
        Ok(hidden)
    }

    /// Makes a hidden duplicate of a descriptor for `owner`.
    ///
    /// # Errors
    ///
    /// That of fcntl(2).
    pub fn hide_copy(&mut self, fd: c_int, owner: c_int) -> sys::Result {
        let flags = sys::fcntl(owner, libc::F_GETFD, 0)?;
        let on_exec = flags & libc::FD_CLOEXEC != 0;
        let hidden = sys::hide(fd, hidden_from(), on_exec)
            .or_else(|_| sys::hide(fd, hidden_from() / 4, on_exec))?;
        let entry = Entry {
            owner,
            inode: sys::inode(hidden).unwrap_or(0),
            ..Entry::NONE
        };
        if !self.set(hidden, Kind::Hidden, entry) {
            sys::close(hidden);
            return Err(libc::EMFILE);
        }
        Ok(hidden)
    }

    /// Makes a hidden descriptor's number free for the program.
    pub fn move_away(&mut self, hidden: c_int) {
        let (kind, entry) = self.get(hidden);
        if kind != Kind::Hidden {
            return;
        }
        let owner = entry.owner;
        if let Ok(new) = self.hide_copy(hidden, owner) {
            self.update(owner, |e| {
                for place in [&mut e.shadow, &mut e.joint] {
                    if *place == Some(hidden) {
                        *place = Some(new);
                    }
                }
            });
        } else {
            self.update(owner, |e| {
                for place in [&mut e.shadow, &mut e.joint] {
                    if *place == Some(hidden) {
                        *place = None;
                    }
                }
            });
        }
        self.set(hidden, Kind::Other, Entry::NONE);
        sys::close(hidden);
    }

    /// Whether a remembered socket is still the one under that number; forgets it if not, because
    /// somebody has closed it without our knowledge.
    pub fn verify(&mut self, fd: c_int) -> bool {
        let (kind, entry) = self.get(fd);
        let same = match kind {
            Kind::Other | Kind::Hidden => false,
            Kind::Fresh if entry.inode == 0 => {
                let family = if entry.six {
                    libc::AF_INET6
                } else {
                    libc::AF_INET
                };
                let is = |name, value| sys::get_int(fd, libc::SOL_SOCKET, name) == Ok(value);
                is(libc::SO_DOMAIN, family)
                    && is(libc::SO_PROTOCOL, libc::IPPROTO_TCP)
                    && is(libc::SO_ACCEPTCONN, 0)
            }
            _ => sys::inode(fd) == Some(entry.inode),
        };
        if !same {
            self.forget(fd);
        }
        same
    }

    /// Other descriptors for the same socket.
    pub fn duplicates(&self, fd: c_int) -> Few {
        let (_, own) = self.get(fd);
        let mut few = Few::default();
        if own.shared {
            let same = |&other: &c_int| other != fd && self.get(other).1.socket == own.socket;
            for (place, other) in few.all.iter_mut().zip(known().filter(same)) {
                *place = other;
                few.count += 1;
            }
        }
        few
    }

    /// Notes what epoll_ctl(2) has done for a descriptor.
    pub fn note_interest(&mut self, fd: c_int, operation: c_int, interest: Interest) {
        self.update(fd, |e| {
            let same = |i: &Option<Interest>| i.is_some_and(|i| i.epoll == interest.epoll);
            let at = e.interests.iter().position(same);
            let place = at.or_else(|| e.interests.iter().position(Option::is_none));
            if let Some(place) = place {
                e.interests[place] = (operation != libc::EPOLL_CTL_DEL).then_some(interest);
            }
        });
    }
}

/// Where hidden descriptors begin: programs use small numbers, and count on getting the smallest.
fn hidden_from() -> c_int {
    (sys::descriptor_limit() / 4 * 3).min(30_000)
}

extern "C" fn before_fork() {
    let Some(table) = lock() else { return };
    FORK_MASK.store(table.mask as usize as *mut u8, Relaxed);
    FORKING.store(sys::tid(), Relaxed);
    std::mem::forget(table);
}

extern "C" fn after_fork() {
    if FORKING.load(Relaxed) != sys::tid() || sys::pid() != OWNER.load(Relaxed) {
        return;
    }
    let mask = FORK_MASK.load(Relaxed) as usize as u64;
    FORKING.store(0, Relaxed);
    unlock();
    sys::restore_signals(mask);
}

extern "C" fn after_fork_in_child() {
    let held = FORKING.swap(0, Relaxed) != 0;
    // A table of another process, which this one could not see.
    if !held {
        return;
    }
    let mask = FORK_MASK.load(Relaxed) as usize as u64;
    OWNER.store(sys::pid(), Relaxed);
    LOCK.store(0, Relaxed);
    sys::restore_signals(mask);
}

/// Makes the table this process's, and its children's.
pub fn follow_forks() {
    extern "C" {
        fn pthread_atfork(
            before: extern "C" fn(),
            parent: extern "C" fn(),
            child: extern "C" fn(),
        ) -> c_int;
    }
    OWNER.store(sys::pid(), Relaxed);
    // SAFETY: functions of a library that is never unloaded.
    unsafe { pthread_atfork(before_fork, after_fork, after_fork_in_child) };
}
