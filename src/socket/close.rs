// SPDX-License-Identifier: GPL-2.0-only

//! Ends a connection for the program: shutdown(2), close(2) and connect(2) to `AF_UNSPEC`. Other
//! ways to end a connection are in [`release`] and [`timer`](super::timer); the steps common to all
//! are in [`crate::conn`].

use super::{listen, release};
use crate::conn::closing::CloseEvent;
use crate::conn::SdpSock;
use crate::sys::address::Address;
use crate::sys::errno::{ECONNRESET, EPIPE};
use crate::sys::net::sock::{Flag, Locked, State, RCV_SHUTDOWN, SEND_SHUTDOWN, SHUTDOWN_MASK};
use kernel::sync::atomic::Relaxed;

/// Ends the outgoing stream after the queued bytes. Context: socket lock held.
pub(super) fn shutdown(sk: &SdpSock, how: u8) {
    {
        // inet_shutdown() has set the bits without ordering them against the peer's FIN
        let _c = sk.connection();
        let theirs = if sk.peer_has_ended() { RCV_SHUTDOWN } else { 0 };
        sk.add_shutdown(how | theirs);
    }
    if how & SEND_SHUTDOWN != 0 {
        sk.connection().close_on(CloseEvent::LocalFin, EPIPE);
        sk.progress();
    }
    // wakes waiting receive and send calls
    sk.wake();
}

/// Disconnects the socket at once (connect(2) to `AF_UNSPEC`, failed connect), under its lock.
pub(super) fn disconnect(sk: &SdpSock, lock: &mut Locked<'_>) {
    let old = sk.state();
    sk.connection().fallback.dissolve();
    match old {
        State::Listen => listen::stop(sk),
        State::Close => {}
        _ => reset(sk),
    }
    release::release_transport(sk);
    sk.leave_local(lock);
    sk.connection().reset();
    if !sk.port_is_bound() {
        sk.netns().ports.lock().release(sk.id());
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
        // the error wakes waiting calls, as on TCP
        sk.set_error(ECONNRESET);
        sk.error_report();
    }
    sk.wake();
}

/// Resets the socket's connection, if any.
fn reset(sk: &SdpSock) {
    let mut c = sk.connection();
    c.close_on(CloseEvent::Reset, ECONNRESET);
    if c.cm.link.is_none() {
        // accept(2) has not returned the connection yet
        c.cm.repeated = None;
        drop(c.cm.resolver.take());
    }
}

pub(super) fn close(sk: &SdpSock, linger: usize) {
    let mut lock = sk.lock();
    {
        // the connection's lock orders all writers of the shutdown bits
        let _c = sk.connection();
        sk.add_shutdown(SHUTDOWN_MASK);
    }
    match sk.state() {
        State::Listen => listen::stop(sk),
        State::Close => {}
        State::SynSent => {
            sk.set_state(State::Close);
            release::release_transport(sk);
        }
        _ => {
            // bytes may have arrived without a notification
            sk.progress();
            let unread = {
                let mut c = sk.connection();
                let unread = c.queues().0 > 0 || c.holds_advert();
                c.rx.clear();
                unread
            };
            if unread || (sk.flag(Flag::Linger) && sk.linger_time() == 0) {
                // reset as on TCP: the peer must not assume that its bytes were read
                reset(sk);
            } else {
                sk.connection().close_on(CloseEvent::LocalFin, EPIPE);
                sk.progress();
                let mut left = isize::try_from(linger).unwrap_or(isize::MAX);
                while left > 0 {
                    let seq = sk.event_seq();
                    if !matches!(
                        sk.state(),
                        State::FinWait1 | State::Closing | State::LastAck
                    ) {
                        break;
                    }
                    match sk.wait(&mut lock, seq, left) {
                        Ok(l) => left = l,
                        Err(_) => break,
                    }
                }
            }
        }
    }
    {
        let mut c = sk.connection();
        c.closing.orphan();
        let linger2 = c.options.linger2;
        c.close_on(CloseEvent::Orphaned { linger2 }, ECONNRESET);
        // Unread bytes and advertised blocks reset the connection, as bytes that arrive later do.
        let unread = c.living_link().is_some_and(|l| l.stop_reading());
        if c.rx.unread.bytes() > 0 || unread || c.holds_advert() {
            c.rx.clear();
            if sk.state() != State::Close {
                c.close_on(CloseEvent::Reset, ECONNRESET);
            }
        }
    }
    sk.drop_local_end(&mut lock);
    drop(lock);
    release::finish(sk);
}

/// Closes a kernel user's socket when its network namespace is removed.
pub(super) fn namespace_ends(sk: &SdpSock) {
    if sk.state() == State::Listen {
        let _lock = sk.lock();
        listen::stop(sk);
    }
    release::lost(sk, |_| true);
}
