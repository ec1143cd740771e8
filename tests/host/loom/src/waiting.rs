// SPDX-License-Identifier: GPL-2.0-only

//! Callers who wait, those who poll, workers, and a device that tells of completions: none may be
//! left to nobody.
//!
//! [`Socket`] is what a socket of the module's is for them: its completion queue, its lock, and its
//! wait queues, with the steps of `SdpSock::event`, `looking`, `progress` and `poll` as they are there.

use crate::events::{Events, Looker, Queue};
use loom::sync::atomic::{fence, AtomicI32, AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// When the queues are armed.
#[derive(Clone, Copy, PartialEq)]
enum Arms {
    Always,
    /// While a caller waits (`Connection::interest`).
    Awaited,
    /// Unless all callers who wait poll (`Connection::is_polled`).
    NotPolled,
}

struct Socket {
    arms: Arms,
    /// Those who wait are woken if so many completions were polled for, not by each.
    wanted: u32,
    events: Events,
    /// Those of receives and of sends. The device's; each is told of once it was armed.
    queues: Mutex<[Completions; 2]>,
    /// Callers who poll in place of being told. Written under the lock of `queues`, as it is that of the
    /// connection.
    polling: AtomicU32,
    /// How often those who wait were woken (`events` of the kernel's wait queue).
    woken: AtomicI32,
    sleep: (Mutex<()>, Condvar),
    /// How many poll (the entries of the socket's wait queue), and how often they were woken.
    pollers: AtomicI32,
    asked: (Mutex<u32>, Condvar),
    /// Whether a worker was asked for, and whether there will be no more work.
    work: (Mutex<(bool, bool)>, Condvar),
}

#[derive(Clone, Copy)]
struct Completions {
    /// Nobody has polled for them.
    there: u32,
    armed: bool,
    polled: u32,
    /// The next one makes something go on.
    awaited: bool,
}

impl Socket {
    fn new(arms: Arms, wanted: u32) -> Self {
        Socket {
            arms,
            wanted,
            events: Events::new(),
            queues: Mutex::new(
                [Completions {
                    there: 0,
                    armed: arms != Arms::Awaited,
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

    /// The device: a completion, which is told if the queue was armed.
    fn complete(&self, queue: Queue) {
        let mut queues = self.queues.lock().unwrap();
        let completions = &mut queues[queue as usize];
        completions.there += 1;
        let armed = std::mem::take(&mut completions.armed);
        drop(queues);
        if armed {
            match self.events.tell(queue) {
                Looker::Caller => self.wake(),
                Looker::Poller if !self.events.leave_to_pollers(queue) || self.wake_pollers() => {}
                Looker::Poller | Looker::Worker => self.schedule(),
            }
        }
    }

    /// `sdp_h_wake_pollers()`.
    fn wake_pollers(&self) -> bool {
        // skwq_has_sleeper()
        fence(Ordering::SeqCst);
        if self.pollers.load(Ordering::Relaxed) == 0 {
            return false;
        }
        *self.asked.0.lock().unwrap() += 1;
        self.asked.1.notify_all();
        true
    }

    /// sock_poll_wait() of one who begins to poll.
    fn watch(&self) {
        self.pollers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn unwatch(&self) {
        self.pollers.fetch_sub(1, Ordering::Relaxed);
    }

    /// What poll(2) finds: it looks if something was told.
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

    /// epoll_wait(2) until so many completions were polled for.
    fn watch_for(&self, count: u32) {
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

    /// The same, whose time is over at once.
    fn watch_in_vain(&self) {
        self.watch();
        self.ask();
        self.unwatch();
    }

    /// A send call: what it leaves goes out with the next completion, though nobody calls again.
    fn leave(&self) {
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

    fn mark(&self) -> i32 {
        self.woken.load(Ordering::Relaxed)
    }

    /// `sdp_h_sleep()`.
    fn sleep(&self, mark: i32) {
        let mut held = self.sleep.0.lock().unwrap();
        while self.woken.load(Ordering::Relaxed) == mark {
            held = self.sleep.1.wait(held).unwrap();
        }
    }

    fn schedule(&self) {
        self.work.0.lock().unwrap().0 = true;
        self.work.1.notify_one();
    }

    /// Looks only at a queue of which something was told; but at all if not everything is told.
    fn progress(&self) {
        if self.poll().0 {
            self.wake();
            self.wake_pollers();
        }
    }

    /// Whether there was something, and whether those who poll were woken for all of it.
    fn poll(&self) -> (bool, bool) {
        let mut queues = self.queues.lock().unwrap();
        let mut found = false;
        let mut to_pollers = true;
        loop {
            let told = self.events.take();
            to_pollers &= told.as_ref().is_none_or(|t| t.to_pollers);
            // a queue of which nothing was told is looked at in vain
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
            Arms::Awaited => self.events.are_awaited(),
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
                queue.armed = arm || queue.armed && self.arms == Arms::NotPolled;
            }
        }
        found
    }

    /// A send call that has no credits: it looks only if it is not told of them
    /// (`Connection::is_stalled`).
    fn send(&self) {
        let told = self.queues.lock().unwrap()[Receive as usize].armed;
        if !told || self.events.are_noted() {
            self.progress();
        }
    }

    fn polled(&self) -> u32 {
        self.queues.lock().unwrap().iter().map(|q| q.polled).sum()
    }

    /// `SdpSock::looking`.
    fn looking(&self, sleep: impl FnOnce()) {
        self.events.enter();
        self.progress();
        sleep();
        self.events.leave();
        self.progress();
    }

    /// A call that waits until so many completions were polled for.
    fn wait_for(&self, count: u32) {
        loop {
            let mark = self.mark();
            if self.polled() >= count {
                return;
            }
            self.looking(|| self.sleep(mark));
        }
    }

    /// The same by one that polls before it sleeps (`SdpSock::wait_patiently`).
    fn poll_for(&self, count: u32) {
        loop {
            let mark = self.mark();
            if self.polled() >= count {
                return;
            }
            self.change_polling(1);
            self.looking(|| {
                let come = self.queues.lock().unwrap().iter().any(|q| q.there > 0);
                self.change_polling(-1);
                if !come {
                    self.progress();
                    self.sleep(mark);
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

    /// A call that waits, and whose time is over at once.
    fn wait_in_vain(&self) {
        self.looking(|| {});
    }

    /// The workqueue.
    fn work(&self) {
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

    fn no_more_work(&self) {
        self.work.0.lock().unwrap().1 = true;
        self.work.1.notify_one();
    }
}

/// Runs the calls and the device beside each other, in all orders in which threads are changed so
/// often, at most, where nothing asks for it; at the end every completion was polled for.
fn all_orders(calls: &'static [fn(&Socket)], completions: &'static [Queue], changes: usize) {
    orders_of(Arms::Always, calls, completions, changes);
}

fn orders_of(
    arms: Arms,
    calls: &'static [fn(&Socket)],
    completions: &'static [Queue],
    changes: usize,
) {
    // a message may be of no interest to who waits
    let wanted = match arms {
        Arms::NotPolled => completions.len() as u32,
        _ => 0,
    };
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(changes);
    model.check(move || {
        let socket = Arc::new(Socket::new(arms, wanted));
        let start = |f: fn(&Socket)| {
            let socket = socket.clone();
            thread::spawn(move || f(&socket))
        };
        let worker = start(Socket::work);
        let calls: Vec<_> = calls.iter().map(|call| start(*call)).collect();
        for queue in completions {
            socket.complete(*queue);
        }
        for call in calls {
            call.join().unwrap();
        }
        socket.no_more_work();
        worker.join().unwrap();
        assert_eq!(socket.polled() as usize, completions.len(), "polled for");
    });
}

/// The same with those who poll and may have gone, or have not asked yet: what nobody has polled for
/// is noted, for the next call, and nothing that has to go on waits for that.
fn orders_with_pollers(
    watched: bool,
    calls: &'static [fn(&Socket)],
    completions: &'static [Queue],
    changes: usize,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(changes);
    model.check(move || {
        let socket = Arc::new(Socket::new(Arms::Always, 0));
        // a connection that has come to rest
        assert!(!socket.events.set_unfinished(false));
        if watched {
            socket.watch();
        }
        let start = |f: fn(&Socket)| {
            let socket = socket.clone();
            thread::spawn(move || f(&socket))
        };
        let worker = start(Socket::work);
        let calls: Vec<_> = calls.iter().map(|call| start(*call)).collect();
        for queue in completions {
            socket.complete(*queue);
        }
        for call in calls {
            call.join().unwrap();
        }
        socket.no_more_work();
        worker.join().unwrap();
        let all = socket.polled() as usize == completions.len();
        assert!(all || socket.events.are_noted(), "lost");
        let queues = socket.queues.lock().unwrap();
        for q in queues.iter() {
            assert!(!(q.awaited && q.there > 0), "left to one who need not come");
        }
    });
}

use Queue::{Receive, Send};

#[test]
fn nobody_waits() {
    all_orders(&[], &[Receive, Receive], 4);
    all_orders(&[], &[Receive, Send], 4);
}

#[test]
fn a_caller_waits() {
    all_orders(&[|s| s.wait_for(1)], &[Receive], 2);
}

#[test]
fn a_caller_waits_for_two() {
    all_orders(&[|s| s.wait_for(2)], &[Receive, Receive], 2);
    all_orders(&[|s| s.wait_for(2)], &[Receive, Send], 2);
}

#[test]
fn a_caller_gives_up() {
    all_orders(&[Socket::wait_in_vain], &[Receive], 3);
    all_orders(&[Socket::wait_in_vain], &[Send], 3);
}

#[test]
fn one_gives_up_and_one_waits() {
    all_orders(&[Socket::wait_in_vain, |s| s.wait_for(1)], &[Receive], 1);
}

#[test]
fn two_give_up() {
    all_orders(&[Socket::wait_in_vain, Socket::wait_in_vain], &[Receive], 2);
}

#[test]
fn a_caller_waits_for_what_nobody_was_told_of() {
    orders_of(Arms::Awaited, &[|s| s.wait_for(1)], &[Receive], 2);
    orders_of(Arms::Awaited, &[|s| s.wait_for(2)], &[Receive, Receive], 2);
}

#[test]
fn one_gives_up_and_one_waits_for_what_nobody_was_told_of() {
    let calls: &[fn(&Socket)] = &[Socket::wait_in_vain, |s| s.wait_for(1)];
    orders_of(Arms::Awaited, calls, &[Receive], 1);
}

#[test]
fn a_stalled_sender_does_not_look() {
    all_orders(&[Socket::send], &[Receive, Receive], 3);
    all_orders(&[Socket::send, Socket::send], &[Receive], 2);
}

#[test]
fn a_caller_polls() {
    orders_of(Arms::NotPolled, &[|s| s.poll_for(1)], &[Receive], 3);
    orders_of(Arms::NotPolled, &[|s| s.poll_for(2)], &[Receive, Send], 2);
    orders_of(
        Arms::NotPolled,
        &[|s| s.poll_for(2)],
        &[Receive, Receive],
        2,
    );
}

#[test]
fn one_polls_and_one_does_not() {
    let calls: &[fn(&Socket)] = &[|s| s.poll_for(1), |s| s.wait_for(1)];
    orders_of(Arms::NotPolled, calls, &[Receive], 1);
    let calls: &[fn(&Socket)] = &[|s| s.poll_for(1), Socket::wait_in_vain];
    orders_of(Arms::NotPolled, calls, &[Receive], 2);
}

#[test]
fn two_poll() {
    let calls: &[fn(&Socket)] = &[|s| s.poll_for(1), |s| s.poll_for(1)];
    orders_of(Arms::NotPolled, calls, &[Receive], 1);
}

#[test]
fn one_watches() {
    orders_with_pollers(false, &[|s| s.watch_for(1)], &[Receive], 3);
    orders_with_pollers(false, &[|s| s.watch_for(2)], &[Receive, Receive], 2);
    orders_with_pollers(false, &[|s| s.watch_for(2)], &[Receive, Send], 2);
}

#[test]
fn one_watches_in_vain() {
    orders_with_pollers(false, &[Socket::watch_in_vain], &[Receive, Receive], 3);
}

#[test]
fn two_watch() {
    let calls: &[fn(&Socket)] = &[|s| s.watch_for(1), |s| s.watch_for(1)];
    orders_with_pollers(false, calls, &[Receive], 1);
}

#[test]
fn one_watches_and_one_waits() {
    let calls: &[fn(&Socket)] = &[|s| s.watch_for(1), |s| s.wait_for(1)];
    orders_with_pollers(false, calls, &[Receive], 1);
    let calls: &[fn(&Socket)] = &[|s| s.watch_for(1), Socket::wait_in_vain];
    orders_with_pollers(false, calls, &[Receive], 2);
}

#[test]
fn what_is_left_goes_on_while_nobody_asks() {
    orders_with_pollers(true, &[Socket::leave], &[Receive], 4);
    orders_with_pollers(true, &[Socket::leave], &[Receive, Receive], 3);
    orders_with_pollers(false, &[Socket::leave], &[Receive], 4);
    let calls: &[fn(&Socket)] = &[Socket::leave, Socket::watch_in_vain];
    orders_with_pollers(false, calls, &[Receive], 2);
}
