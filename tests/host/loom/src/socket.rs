// SPDX-License-Identifier: GPL-2.0-only

//! Models a socket of the module for its callers, pollers, workers and a device: its completion
//! queues, its lock, and its wait queues, with the steps of `SdpSock::event`, `looking`
//! (`conn/wait.rs`), `Guard::progress` and poll(2) in their order.

use crate::events::{Events, Notify, Queue};
use loom::sync::atomic::{fence, AtomicI32, AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};
use Queue::Receive;

/// Conditions for arming the queues.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Arms {
    Always,
    /// Arms unless all callers who wait poll (`Connection::is_polled`).
    NotPolled,
}

pub(super) struct Socket {
    arms: Arms,
    /// Number of polled completions that wakes the waiting callers.
    wanted: u32,
    /// Set if signals go to an owner (F_SETOWN): pollers are woken only for completions that were
    /// found.
    pub(super) owned: bool,
    pub(super) events: Events,
    /// Completions of receives and of sends, written by the device. A completion whose queue is
    /// armed causes an event.
    pub(super) queues: Mutex<[Completions; 2]>,
    /// Number of callers that poll instead of arming the queues. Written under the lock of
    /// `queues`, which stands for the connection's lock.
    polling: AtomicU32,
    /// Wakeups of waiting callers so far (`events` of the kernel's wait queue).
    woken: AtomicI32,
    sleep: (Mutex<()>, Condvar),
    /// Number of pollers (entries of the socket's wait queue), and their wakeups so far.
    pollers: AtomicI32,
    asked: (Mutex<u32>, Condvar),
    /// Flags: a worker was scheduled; no more work will come.
    work: (Mutex<(bool, bool)>, Condvar),
}

#[derive(Clone, Copy)]
pub(super) struct Completions {
    /// Number of completions that were not polled yet.
    pub(super) there: u32,
    armed: bool,
    polled: u32,
    /// Set if the next completion lets pending work continue.
    pub(super) awaited: bool,
}

impl Socket {
    pub(super) fn new(arms: Arms, wanted: u32) -> Self {
        Socket {
            arms,
            wanted,
            owned: false,
            events: Events::new(),
            queues: Mutex::new(
                [Completions {
                    there: 0,
                    armed: true,
                    polled: 0,
                    awaited: false,
                }; 2],
            ),
            polling: AtomicU32::new(0),
            woken: AtomicI32::new(0),
            sleep: (Mutex::new(()), Condvar::new()),
            pollers: AtomicI32::new(0),
            asked: (Mutex::new(0), Condvar::new()),
            work: (Mutex::new((false, false)), Condvar::new()),
        }
    }

    /// The device adds a completion, and notifies if the queue was armed.
    pub(super) fn complete(&self, queue: Queue) {
        let mut queues = self.queues.lock().unwrap();
        let completions = &mut queues[queue as usize];
        completions.there += 1;
        let armed = std::mem::take(&mut completions.armed);
        drop(queues);
        if armed {
            match self.events.notify(queue, || self.has_pollers()) {
                Notify::Caller => self.wake(),
                Notify::Poller => self.wake_pollers(),
                Notify::Worker => self.schedule(),
                Notify::Taker => {}
            }
        }
    }

    /// `sdp_h_watchers()`.
    fn has_pollers(&self) -> bool {
        // skwq_has_sleeper()
        fence(Ordering::SeqCst);
        self.pollers.load(Ordering::Relaxed) > 0 && !self.owned
    }

    /// `sdp_h_wake_pollers()`, and the callbacks of the `struct sock`.
    fn wake_pollers(&self) {
        *self.asked.0.lock().unwrap() += 1;
        self.asked.1.notify_all();
    }

    /// Models sock_poll_wait() at the beginning of poll(2).
    pub(super) fn watch(&self) {
        self.pollers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn unwatch(&self) {
        self.pollers.fetch_sub(1, Ordering::Relaxed);
    }

    /// poll(2): polls the queues if an event is pending. Polls the queues; returns the number of
    /// completions polled so far.
    fn ask(&self) -> u32 {
        if self.events.are_noted() {
            let (found, to_pollers) = self.poll();
            if found {
                self.wake();
            }
            if found && !to_pollers {
                self.wake_pollers();
            }
        }
        self.polled()
    }

    /// Models epoll_wait(2) until `count` completions were polled.
    pub(super) fn watch_for(&self, count: u32) {
        self.watch();
        let mut seen = *self.asked.0.lock().unwrap();
        while self.ask() < count {
            let mut asked = self.asked.0.lock().unwrap();
            while *asked == seen {
                asked = self.asked.1.wait(asked).unwrap();
            }
            seen = *asked;
        }
        self.unwatch();
    }

    /// Models epoll_wait(2) as `watch_for` does, with a time-out of 0.
    pub(super) fn watch_in_vain(&self) {
        self.watch();
        self.ask();
        self.unwatch();
    }

    /// Models a send call whose remaining bytes are sent at the next completion, without another
    /// call.
    pub(super) fn leave(&self) {
        self.queues.lock().unwrap()[Receive as usize].awaited = true;
        self.progress();
    }

    /// `sdp_h_wake()`, whose lock is the wait queue's.
    fn wake(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        drop(self.sleep.0.lock().unwrap());
        self.sleep.1.notify_all();
    }

    fn event_seq(&self) -> i32 {
        self.woken.load(Ordering::Relaxed)
    }

    /// `sdp_h_sleep()`.
    fn sleep(&self, seq: i32) {
        let mut held = self.sleep.0.lock().unwrap();
        while self.woken.load(Ordering::Relaxed) == seq {
            held = self.sleep.1.wait(held).unwrap();
        }
    }

    fn schedule(&self) {
        self.work.0.lock().unwrap().0 = true;
        self.work.1.notify_one();
    }

    /// Polls only queues with pending events, or all of them if not every completion causes an
    /// event.
    fn progress(&self) {
        if self.poll().0 {
            self.wake();
            self.wake_pollers();
        }
    }

    /// Returns true if the poll found completions, and true if the pollers were woken for all of
    /// them.
    fn poll(&self) -> (bool, bool) {
        let mut queues = self.queues.lock().unwrap();
        let mut found = false;
        let mut to_pollers = true;
        loop {
            let told = self.events.take();
            to_pollers &= told.as_ref().is_none_or(|t| t.to_pollers);
            // a queue without a pending event need not be polled
            let (receive, send) = told.map_or((false, false), |t| (t.receive, true));
            found |= self.look(&mut queues, receive, send);
            let unfinished = queues.iter().any(|q| q.awaited);
            if !self.events.set_unfinished(unfinished) {
                break;
            }
        }
        let enough = queues.iter().map(|q| q.polled).sum::<u32>() >= self.wanted;
        (found && enough, to_pollers)
    }

    fn look(&self, queues: &mut [Completions; 2], receive: bool, send: bool) -> bool {
        let all = self.arms != Arms::Always;
        if !receive && !send && !all {
            return false;
        }
        let arm = match self.arms {
            Arms::Always => true,
            Arms::NotPolled => {
                let polling = self.polling.load(Ordering::Relaxed);
                polling == 0 || self.events.awaited() > polling
            }
        };
        let mut found = false;
        for (told, queue) in [receive, send].into_iter().zip(queues) {
            if told || all {
                found |= told || queue.there > 0;
                queue.awaited &= queue.there == 0;
                queue.polled += std::mem::take(&mut queue.there);
                queue.armed |= arm;
            }
        }
        found
    }

    /// Models a send call without credits: it polls only if the receive queue is not armed
    /// (`Connection::is_stalled`).
    pub(super) fn send(&self) {
        let told = self.queues.lock().unwrap()[Receive as usize].armed;
        if !told || self.events.are_noted() {
            self.progress();
        }
    }

    pub(super) fn polled(&self) -> u32 {
        self.queues.lock().unwrap().iter().map(|q| q.polled).sum()
    }

    /// Models `SdpSock::looking`.
    fn looking(&self, sleep: impl FnOnce()) {
        self.events.enter();
        self.progress();
        sleep();
        self.events.leave();
        self.progress();
    }

    /// Models a call that waits until `count` completions were polled.
    pub(super) fn wait_for(&self, count: u32) {
        loop {
            let seq = self.event_seq();
            if self.polled() >= count {
                return;
            }
            self.looking(|| self.sleep(seq));
        }
    }

    /// Like `wait_for`, but by a call that polls before it sleeps (`BusyPoll`).
    pub(super) fn poll_for(&self, count: u32) {
        loop {
            let seq = self.event_seq();
            if self.polled() >= count {
                return;
            }
            self.change_polling(1);
            self.looking(|| {
                let come = self.queues.lock().unwrap().iter().any(|q| q.there > 0);
                self.change_polling(-1);
                if !come {
                    self.progress();
                    self.sleep(seq);
                }
            });
        }
    }

    fn change_polling(&self, by: i32) {
        let _lock = self.queues.lock().unwrap();
        let polling = self.polling.load(Ordering::Relaxed);
        let polling = polling.wrapping_add_signed(by);
        self.polling.store(polling, Ordering::Relaxed);
    }

    /// Models a waiting call with a time-out of 0.
    pub(super) fn wait_in_vain(&self) {
        self.looking(|| {});
    }

    /// Models the workqueue.
    pub(super) fn work(&self) {
        loop {
            let mut work = self.work.0.lock().unwrap();
            while !work.0 && !work.1 {
                work = self.work.1.wait(work).unwrap();
            }
            let (asked, over) = std::mem::take(&mut *work);
            work.1 = over;
            drop(work);
            if asked {
                self.progress();
            } else {
                return;
            }
        }
    }

    pub(super) fn no_more_work(&self) {
        self.work.0.lock().unwrap().1 = true;
        self.work.1.notify_one();
    }
}
