// SPDX-License-Identifier: GPL-2.0-only

//! The end of connections: shutdown(2), close(2), and what the peer, the device or a time-out does
//! to the same effect.
//!
//! A stream ends with a DisConn behind its last byte. When both directions have ended, the side
//! that closed first takes the connection down (DREQ); the other does so if that does not come.
//! Everything else is a reset: the connection manager's DREQ without a word of SDP.

use super::connection::{Connection, Tell};
use super::{listen, SdpSock, JOB_FINISH};
use crate::sys::errno::{ECONNRESET, ENETRESET, EPIPE, ETIMEDOUT};
use crate::sys::net::address::Address;
use crate::sys::net::sock::{Flag, Sock, State, RCV_SHUTDOWN, SEND_SHUTDOWN, SHUTDOWN_MASK};
use crate::sys::time::{is_past, jiffies, seconds, Jiffies};
use crate::transport::{Attempt, Gone, LinkId};
use kernel::sync::aref::ARef;
use kernel::sync::atomic::Relaxed;

/// How long a closed socket waits for the peer's end (as the OFED line has it), and for each step by which
/// its last bytes get there.
pub(super) const FIN_TIME: Jiffies = seconds(60);
/// How long the side that closed last waits for the other to take the connection down.
pub(super) const LAST_ACK_TIME: Jiffies = seconds(3);

/// Ends our stream behind the bytes that are queued. The socket lock is held.
pub(super) fn shutdown(sk: &SdpSock, how: u8) {
    {
        // the bits were added without what orders that and the peer's end
        let _c = sk.data().connection.lock();
        let theirs = if sk.peer_has_ended() { RCV_SHUTDOWN } else { 0 };
        sk.add_shutdown(how | theirs);
    }
    if how & SEND_SHUTDOWN != 0 {
        end_stream(sk);
        sk.progress();
    }
    // whoever waits in a receive or send call sees the end
    sk.wake();
}

fn end_stream(sk: &SdpSock) {
    let mut c = sk.data().connection.lock();
    match sk.state() {
        State::Established | State::SynRecv => sk.set_state(State::FinWait1),
        State::CloseWait => sk.set_state(State::LastAck),
        _ => return,
    }
    c.more = false;
    if let Some(p) = c.protocol.as_mut() {
        p.shutdown_send();
    }
}

/// Makes the socket unconnected at once (connect(2) to `AF_UNSPEC`, or a failed connect). The socket
/// lock is held.
pub(super) fn disconnect(sk: &SdpSock) {
    let old = sk.state();
    sk.data().connection.lock().fallback.dissolve();
    match old {
        State::Listen => listen::stop(sk),
        State::Close => {}
        _ => reset(sk),
    }
    drop_link(sk);
    {
        let mut c = sk.data().connection.lock();
        c.reset();
        c.deadline = None;
    }
    if !sk.port_is_bound() {
        sk.netns().ports.lock().release(sk.id(), sk.port());
        sk.set_port(0);
    }
    let mut local = Address::any(sk.is_v6());
    if sk.address_is_bound() {
        local = sk.local();
    }
    local.port = sk.local().port;
    sk.set_local(&local);
    sk.set_remote(&Address::any(sk.is_v6()));
    sk.set_peek_offset(-1);
    sk.clear_shutdown();
    sk.data().peer_ended.store(false, Relaxed);
    if !matches!(old, State::Close | State::Listen) {
        // whoever waits for the connection learns that it is gone, as on TCP
        sk.set_error(ECONNRESET);
        sk.error_report();
    }
    sk.wake();
}

/// Resets the connection, if there is one.
fn reset(sk: &SdpSock) {
    let mut c = sk.data().connection.lock();
    if sk.state() != State::Close {
        c.end(sk);
    }
    match &c.link {
        Some(link) => link.fail(),
        None => {
            // not asked yet
            c.resolver = None;
        }
    }
}

/// Lets go of everything of the connection below the socket.
pub(super) fn drop_link(sk: &SdpSock) {
    let below = sk.data().connection.lock().let_go();
    drop(below);
}

/// close(2).
pub(super) fn close(sk: &SdpSock, linger: usize) {
    let mut lock = sk.lock();
    {
        let c = sk.data().connection.lock();
        sk.add_shutdown(SHUTDOWN_MASK);
        c.hand_on(sk);
    }
    match sk.state() {
        State::Listen => listen::stop(sk),
        State::Close => {}
        State::SynSent => {
            sk.set_state(State::Close);
            drop_link(sk);
        }
        _ => {
            // bytes may have come that nobody was told of
            sk.progress();
            let unread = {
                let mut c = sk.data().connection.lock();
                let unread = c.rx.bytes() > 0 || c.holds_advert();
                c.rx.clear();
                unread
            };
            if unread || (sk.flag(Flag::Linger) && sk.linger_time() == 0) {
                // as TCP: the peer must not believe that we have read what it sent
                reset(sk);
            } else {
                end_stream(sk);
                sk.progress();
                let mut left = isize::try_from(linger).unwrap_or(isize::MAX);
                while left > 0 {
                    let mark = sk.wake_mark();
                    if !matches!(
                        sk.state(),
                        State::FinWait1 | State::Closing | State::LastAck
                    ) {
                        break;
                    }
                    match sk.wait(&mut lock, mark, left) {
                        Ok(l) => left = l,
                        Err(_) => break,
                    }
                }
            }
        }
    }
    {
        let mut c = sk.data().connection.lock();
        c.orphaned = true;
        if sk.state() == State::FinWait2 {
            c.await_end(sk);
        } else if c.link.is_some() && c.deadline.is_none() {
            c.set_deadline(sk, FIN_TIME);
        }
        // Bytes that came in the meantime, or blocks that were advertised, are answered like all that
        // come from now on.
        if c.rx.bytes() > 0 || c.holds_advert() {
            c.rx.clear();
            if sk.state() != State::Close {
                c.end(sk);
                if let Some(link) = &c.link {
                    link.fail();
                }
            }
        }
    }
    drop(lock);
    finish(sk);
}

/// Ends a connection that never had a descriptor.
pub(super) fn abandon(child: ARef<SdpSock>) {
    {
        let mut c = child.data().connection.lock();
        if c.orphaned {
            return;
        }
        c.orphaned = true;
        if child.state() != State::Close {
            c.end(&child);
        }
        if let Some(link) = &c.link {
            link.fail();
        }
    }
    finish(&child);
    Sock::discard(child);
}

/// Takes the connection down; both streams have ended, or nobody waits for that any more.
pub(super) fn take_down(sk: &SdpSock) {
    let link = {
        let c = sk.data().connection.lock();
        if c.link.is_some() && !c.failing {
            // the socket has another connection by now
            return;
        }
        c.link.clone()
    };
    match link {
        Some(link) => link.disconnect(),
        None => finish(sk),
    }
}

/// The connection is down.
pub(super) fn disconnected(sk: &SdpSock, link: LinkId, how: Gone) {
    // What has arrived before counts.
    sk.progress();
    let mut tell = Tell::default();
    let (place, below) = {
        let mut c = sk.data().connection.lock();
        if !c.is_of(link) {
            return;
        }
        let over = c
            .protocol
            .as_ref()
            .is_some_and(|p| p.send_closed() && p.receive_closed());
        match sk.state() {
            State::Close => {}
            _ if over || (how != Gone::Peer && c.orphaned) => c.end(sk),
            s => {
                if how != Gone::Peer {
                    // The queue pair has failed by itself, as it does when the peer reaches for
                    // memory that is not its own: no completion tells of that.
                    c.stats.transport_errors += 1;
                }
                let e = if s == State::CloseWait {
                    EPIPE
                } else {
                    ECONNRESET
                };
                c.lose(sk, e, &mut tell);
            }
        }
        tell.state = true;
        c.deadline = None;
        // Under the same hold: the next connection's would be taken later.
        (c.place.take(), c.let_go())
    };
    drop(below);
    if let Some(place) = place {
        // accept(2) had to wait for its first bytes
        return place.abandoned(sk);
    }
    tell.deliver(sk);
    finish(sk);
}

/// The device is being removed: nothing of the connection may stay on it.
pub(super) fn device_removed(sk: &SdpSock, of: Attempt) {
    lost(sk, |c| c.is_at(of))
}

/// The connection cannot go on, if it is still the one that is meant.
fn lost(sk: &SdpSock, current: impl FnOnce(&Connection) -> bool) {
    let mut tell = Tell::default();
    let (place, below) = {
        let mut c = sk.data().connection.lock();
        if !current(&c) {
            return;
        }
        let e = if sk.state() == State::SynSent {
            ENETRESET
        } else {
            ECONNRESET
        };
        c.lose(sk, e, &mut tell);
        c.deadline = None;
        (c.place.take(), c.let_go())
    };
    drop(below);
    tell.deliver(sk);
    match place {
        Some(place) => place.abandoned(sk),
        None => finish(sk),
    }
}

/// The network namespace ends, and a kernel user's socket is left in it: nothing of it may go on.
pub(super) fn namespace_ends(sk: &SdpSock) {
    if sk.state() == State::Listen {
        let _lock = sk.lock();
        listen::stop(sk);
    }
    lost(sk, |_| true);
}

/// Gives up what a closed socket still holds, once nothing of its connection is left.
pub(super) fn finish(sk: &SdpSock) {
    let over = {
        let c = sk.data().connection.lock();
        c.orphaned && c.link.is_none() && c.resolver.is_none()
    };
    if over {
        if sk.state() != State::Close {
            sk.set_state(State::Close);
        }
        sk.clear_timer();
        {
            let mut c = sk.data().connection.lock();
            c.rx.clear();
            sk.set_memory(0, 0);
        }
        sk.netns().leave(sk);
    }
}

/// The time that closing may take has run out, or that a peer may take to say that it has our answer.
pub(super) fn overdue(sk: &SdpSock) {
    let mut tell = Tell::default();
    let below = {
        let mut c = sk.data().connection.lock();
        // it may just have come to that
        if !c.deadline.is_some_and(is_past) {
            return;
        }
        c.deadline = None;
        if c.place.is_some() {
            // nothing may come any more that tells of its end
            drop(c);
            return lost(sk, |c| c.place.is_some());
        }
        match sk.state() {
            // the peer did not end its stream, or did not take the connection down
            State::FinWait2 | State::Close if c.take_down(sk) => None,
            State::FinWait2 | State::Close => Some(c.let_go()),
            State::FinWait1 | State::Closing | State::LastAck
                if !is_past(c.last_progress.wrapping_add(FIN_TIME)) =>
            {
                // the peer takes what waits
                let due = c.last_progress.wrapping_add(FIN_TIME);
                c.set_deadline(sk, due.wrapping_sub(jiffies()));
                None
            }
            _ => {
                // Bytes wait for a peer that takes none, or a connection is not answered.
                c.lose(sk, ETIMEDOUT, &mut tell);
                None
            }
        }
    };
    if let Some((_, _, link)) = &below {
        if let Some(link) = link {
            link.give_up();
        }
        sk.schedule(JOB_FINISH);
    }
    drop(below);
    tell.deliver(sk);
}
