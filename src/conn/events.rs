// SPDX-License-Identifier: GPL-2.0-only

//! Who looks at the completion queues.
//!
//! That a queue has something is told in a context in which nobody may look. A caller who waits
//! looks, which spares a change of threads. Else those look who poll the socket by poll(2) or
//! epoll(7): they are woken, whatever it is, and ask again what there is. A worker looks when
//! nobody polls either, and for what has to go on while the program does something else. Both sides
//! agree by [`Events`], without a lock: one notes the event and then looks whether anybody waits and
//! whether anything has to go on, the other says that it does not wait any more, or that something
//! has, and then takes what is noted. At least one of the two sees the other, so that no event is
//! left to nobody.
//!
//! `tests/host/loom` compiles this file and tries all orders in which that can come about.

use kernel::sync::atomic::{Atomic, Full, Relaxed};

/// Which queue has something.
#[derive(Clone, Copy)]
pub(crate) enum Queue {
    Receive,
    Send,
}

/// Who is to look after an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Looker {
    /// Those who wait: they are to be woken.
    Caller,
    /// The pollers: the caller wakes them without another condition.
    Poller,
    /// A worker.
    Worker,
    /// Another task, which has taken the note.
    Taker,
}

/// What [`Events::take`] has taken.
pub(crate) struct Told {
    /// Of receives something was told.
    pub(crate) receive: bool,
    /// Those who poll were woken for all that was told, or are just being woken.
    pub(crate) to_pollers: bool,
}

/// A note for a caller or a worker.
const NOTED: i32 = 1;
/// A note for those who poll.
const FOR_POLLERS: i32 = 2;

/// What was told of a socket's queues, and who will look at them.
pub(crate) struct Events {
    /// Callers who wait and will look when they are woken.
    waiters: Atomic<i32>,
    /// A receive completion was told and not yet looked for.
    receive: Atomic<i32>,
    /// A send completion was told and not yet looked for.
    send: Atomic<i32>,
    /// Something goes on with the next event, whether or not a call comes. Written under the
    /// connection's lock.
    unfinished: Atomic<i32>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Events {
            waiters: Atomic::new(0),
            receive: Atomic::new(0),
            send: Atomic::new(0),
            unfinished: Atomic::new(1),
        }
    }

    /// Notes an event of a queue and returns its [`Looker`]. `has_pollers` decides, once, whether a
    /// wakeup of the pollers reaches all that have to be notified.
    #[must_use]
    pub(crate) fn tell(&self, queue: Queue, has_pollers: impl FnOnce() -> bool) -> Looker {
        let note = match queue {
            Queue::Receive => &self.receive,
            Queue::Send => &self.send,
        };
        note.store(NOTED, Relaxed);
        // orders the note before the looks at who waits and what is unfinished; pairs with the
        // fetch_sub in `leave` and the exchange in `set_unfinished`
        if self.waiters.fetch_add(0, Full) > 0 {
            return Looker::Caller;
        }
        if self.unfinished.load(Relaxed) != 0 || !has_pollers() {
            return Looker::Worker;
        }
        // From here on a poller may take the note without a wakeup of the others. So the caller wakes
        // them, whatever has changed since.
        match note.cmpxchg(NOTED, FOR_POLLERS, Full) {
            Ok(_) => Looker::Poller,
            Err(_) => Looker::Taker,
        }
    }

    /// Says whether something goes on with the next event by itself, so that a worker has to look.
    /// Returns whether an event was told before, perhaps to nobody: then the caller looks. Called
    /// under the connection's lock.
    #[must_use]
    pub(crate) fn set_unfinished(&self, unfinished: bool) -> bool {
        let unfinished = i32::from(unfinished);
        if self.unfinished.load(Relaxed) == unfinished {
            return false;
        }
        self.unfinished.xchg(unfinished, Full);
        unfinished != 0 && self.are_noted()
    }

    /// Takes what was told since the last time, if anything. Who does so looks then.
    pub(crate) fn take(&self) -> Option<Told> {
        let take = |e: &Atomic<i32>| match e.load(Relaxed) {
            0 => 0,
            _ => e.xchg(0, Full),
        };
        let notes = [take(&self.receive), take(&self.send)];
        notes.iter().any(|n| *n != 0).then(|| Told {
            receive: notes[0] != 0,
            to_pollers: !notes.contains(&NOTED),
        })
    }

    /// Whether something was told that nobody has taken yet.
    pub(crate) fn are_noted(&self) -> bool {
        self.receive.load(Relaxed) != 0 || self.send.load(Relaxed) != 0
    }

    /// A caller is going to wait. He looks once more before he does: what was told until now may be
    /// on its way to a worker.
    pub(crate) fn enter(&self) {
        self.waiters.fetch_add(1, Full);
    }

    /// How many wait who will look.
    pub(crate) fn awaited(&self) -> u32 {
        self.waiters.load(Relaxed).max(0) as u32
    }

    /// Whether somebody waits who will look.
    pub(crate) fn are_awaited(&self) -> bool {
        self.awaited() > 0
    }

    /// A caller has waited, and looks once more: what was told until now may have been told to him.
    pub(crate) fn leave(&self) {
        self.waiters.fetch_sub(1, Full);
    }
}
