// SPDX-License-Identifier: GPL-2.0-only

//! poll(2), select(2) and epoll(7), by TCP's rules of readiness.

use super::receive_queue::Urgent;
use super::{direct, SdpSock};
use crate::sys::bindings as c;
use crate::sys::net::sock::{Flag, State, RCV_SHUTDOWN, SEND_SHUTDOWN, SHUTDOWN_MASK};
use kernel::sync::atomic::Relaxed;

/// The events that are there.
pub(super) fn poll(sk: &SdpSock) -> u32 {
    let state = sk.state();
    let mut connection = sk.data().connection.lock();
    if connection.holds_advert() && sk.data().readers.load(Relaxed) == 0 {
        // who polls does not wait in a receive call
        drop(connection);
        direct::reading::refuse(sk);
        connection = sk.data().connection.lock();
    }
    if state == State::Listen {
        let ready = connection.listener.as_ref().is_some_and(|l| l.ready() > 0);
        return if ready {
            c::EPOLLIN | c::EPOLLRDNORM
        } else {
            0
        };
    }
    let shutdown = sk.shutdown();
    let mut events = 0;
    if shutdown == SHUTDOWN_MASK || state == State::Close {
        events |= c::EPOLLHUP;
    }
    if shutdown & RCV_SHUTDOWN != 0 {
        events |= c::EPOLLIN | c::EPOLLRDNORM | c::EPOLLRDHUP;
    }
    if !matches!(state, State::SynSent | State::SynRecv) {
        let inline = sk.flag(Flag::UrgInline);
        let urgent = connection.rx.urgent;
        let mark_first = !inline && urgent != Urgent::None && connection.rx.at_mark();
        let target = sk.rcvlowat() + usize::from(mark_first);
        if connection.rx.bytes() >= target {
            events |= c::EPOLLIN | c::EPOLLRDNORM;
        }
        if let Urgent::Valid(..) = urgent {
            events |= c::EPOLLPRI;
        }
        if shutdown & SEND_SHUTDOWN != 0 || connection.writable(sk) {
            events |= c::EPOLLOUT | c::EPOLLWRNORM;
        } else {
            drop(connection);
            return events | wait_for_space(sk) | error(sk);
        }
    }
    events | error(sk)
}

/// Asks to be told of room, and looks once more.
fn wait_for_space(sk: &SdpSock) -> u32 {
    sk.want_space();
    sk.data().connection.lock().space_wanted = true;
    // has the completions told that make room
    sk.progress();
    if sk.data().connection.lock().writable(sk) {
        c::EPOLLOUT | c::EPOLLWRNORM
    } else {
        0
    }
}

fn error(sk: &SdpSock) -> u32 {
    if sk.has_error() {
        c::EPOLLERR
    } else {
        0
    }
}
