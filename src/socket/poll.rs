// SPDX-License-Identifier: GPL-2.0-only

//! poll(2), select(2) and epoll(7), by TCP's rules of readiness.

use crate::conn::events::last_check;
use crate::conn::unread::Urgent;
use crate::conn::{zcopy, Connection, SdpSock};
use crate::sys::bindings as c;
use crate::sys::net::sock::{Flag, State, RCV_SHUTDOWN, SEND_SHUTDOWN, SHUTDOWN_MASK};
use kernel::sync::atomic::Relaxed;

const READABLE: u32 = c::EPOLLIN | c::EPOLLRDNORM;
const WRITABLE: u32 = c::EPOLLOUT | c::EPOLLWRNORM;

/// Returns the pending events.
pub(super) fn poll(sk: &SdpSock) -> u32 {
    let mut connection = sk.connection();
    if sk.may_have_completions() {
        // polls completions and arms their notifications
        connection.progress_of_poller();
        drop(connection);
        connection = sk.connection();
    }
    if connection.holds_advert() && sk.data().readers.load(Relaxed) == 0 {
        // a task in poll(2) does not wait in a receive call
        drop(connection);
        zcopy::recv::refuse(sk);
        connection = sk.connection();
    }
    last_check(
        events(sk, &connection),
        |now| wants_space(sk, *now),
        move || {
            sk.want_space();
            connection.space_wanted = true;
            connection.await_memory(sk);
            if let Some(local) = &connection.local {
                local.link.await_space(sk);
            }
        },
        || {
            // arms the notification of completions that free space
            sk.connection().progress_of_poller();
            events(sk, &sk.connection())
        },
    )
}

/// Returns true if the socket would be writable, but has no space now.
fn wants_space(sk: &SdpSock, events: u32) -> bool {
    let never = matches!(sk.state(), State::Listen | State::SynSent | State::SynRecv);
    !never && events & c::EPOLLOUT == 0
}

/// Returns the pending events. The connection's lock keeps state, shutdown and error consistent.
fn events(sk: &SdpSock, connection: &Connection) -> u32 {
    let state = sk.state();
    if state == State::Listen {
        let ready = connection.listener.as_ref().is_some_and(|l| l.ready() > 0);
        return if ready { READABLE } else { 0 };
    }
    let shutdown = sk.shutdown();
    let mut events = 0;
    if sk.has_error() || sk.has_notices() {
        events |= c::EPOLLERR;
    }
    if shutdown == SHUTDOWN_MASK || state == State::Close {
        events |= c::EPOLLHUP;
    }
    if shutdown & RCV_SHUTDOWN != 0 {
        events |= READABLE | c::EPOLLRDHUP;
    }
    if matches!(state, State::SynSent | State::SynRecv) {
        return events;
    }
    let (unread, inline) = (connection.unread(), sk.flag(Flag::UrgInline));
    let readable = match sk.is_seqpacket() {
        true => connection.has_message(),
        false => unread.reaches(sk.rcvlowat(), inline, || connection.is_full(sk)),
    };
    if readable {
        events |= READABLE;
    }
    if let Urgent::Valid(..) = unread.urgent {
        events |= c::EPOLLPRI;
    }
    if shutdown & SEND_SHUTDOWN != 0 || connection.writable(sk) {
        events |= WRITABLE;
    }
    events
}
