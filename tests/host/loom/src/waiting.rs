// SPDX-License-Identifier: GPL-2.0-only

//! Waiting callers, pollers and workers, and a device that notifies of completions: in the end some
//! task has polled each completion.

use crate::events::Queue::{self, Receive, Send};
use crate::socket::{Arms, Socket};
use loom::sync::Arc;
use loom::thread;

/// Runs the calls and the device concurrently on a socket, in all orders with a bounded number of
/// preemptions, and then checks the result.
fn in_all_orders(
    socket: impl Fn() -> Socket + std::marker::Send + Sync + 'static,
    calls: &'static [fn(&Socket)],
    completions: &'static [Queue],
    changes: usize,
    check: fn(&Socket, usize),
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(changes);
    model.check(move || {
        let socket = Arc::new(socket());
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
        check(&socket, completions.len());
    });
}

/// Checks that in the end every completion was polled.
fn all_orders(calls: &'static [fn(&Socket)], completions: &'static [Queue], changes: usize) {
    orders_of(Arms::Always, calls, completions, changes);
}

fn orders_of(
    arms: Arms,
    calls: &'static [fn(&Socket)],
    completions: &'static [Queue],
    changes: usize,
) {
    // a message may not matter to a waiting caller
    let wanted = match arms {
        Arms::NotPolled => completions.len() as u32,
        _ => 0,
    };
    let socket = move || Socket::new(arms, wanted);
    in_all_orders(socket, calls, completions, changes, |socket, all| {
        assert_eq!(socket.polled() as usize, all, "polled for");
    });
}

/// Like `all_orders`, but with pollers that may have left, or have not polled yet: an unpolled
/// completion stays pending for the next call, and no other work waits for it.
fn orders_with_pollers(
    watched: bool,
    calls: &'static [fn(&Socket)],
    completions: &'static [Queue],
    changes: usize,
) {
    orders_with_owner(false, watched, calls, completions, changes);
}

fn orders_with_owner(
    owned: bool,
    watched: bool,
    calls: &'static [fn(&Socket)],
    completions: &'static [Queue],
    changes: usize,
) {
    let socket = move || {
        let mut socket = Socket::new(Arms::Always, 0);
        socket.owned = owned;
        // an idle connection
        assert!(!socket.events.set_unfinished(false));
        if watched {
            socket.watch();
        }
        socket
    };
    in_all_orders(socket, calls, completions, changes, |socket, all| {
        let all = socket.polled() as usize == all;
        assert!(all || socket.events.are_noted(), "lost");
        let queues = socket.queues.lock().unwrap();
        for q in queues.iter() {
            assert!(!(q.awaited && q.there > 0), "left to one who need not come");
        }
    });
}

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
fn one_watches_a_socket_with_an_owner() {
    let calls: &[fn(&Socket)] = &[|s| s.watch_for(1), Socket::watch_in_vain];
    orders_with_owner(true, false, calls, &[Receive], 2);
    orders_with_owner(false, false, calls, &[Receive], 2);
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
