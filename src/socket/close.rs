// SPDX-License-Identifier: GPL-2.0-only

//! shutdown(2), close(2) and the end of a connection by connect(2): what a program does to end one. What
//! else ends it is in [`upcalls`](super::upcalls) and [`timer`](super::timer), and the steps that all of
//! them take in [`crate::conn`].

use super::{listen, release};
use crate::conn::closing::Event;
use crate::conn::SdpSock;
use crate::sys::errno::{ECONNRESET, EPIPE};
use crate::sys::net::address::Address;
use crate::sys::net::sock::{Flag, State, RCV_SHUTDOWN, SEND_SHUTDOWN, SHUTDOWN_MASK};
use kernel::sync::atomic::Relaxed;

/// Ends our stream behind the bytes that are queued. The socket lock is held.
pub(super) fn shutdown(sk: &SdpSock, how: u8) {
    {
        // the bits were added without what orders that and the peer's end
        let _c = sk.connection();
        let theirs = if sk.peer_has_ended() { RCV_SHUTDOWN } else { 0 };
        sk.add_shutdown(how | theirs);
    }
    if how & SEND_SHUTDOWN != 0 {
        sk.connection().close_on(Event::LocalFin, EPIPE);
        sk.progress();
    }
    // whoever waits in a receive or send call sees the end
    sk.wake();
}

/// Makes the socket unconnected at once (connect(2) to `AF_UNSPEC`, or a failed connect). The socket
/// lock is held.
pub(super) fn disconnect(sk: &SdpSock) {
    let old = sk.state();
    sk.connection().fallback.dissolve();
    match old {
        State::Listen => listen::stop(sk),
        State::Close => {}
        _ => reset(sk),
    }
    release::release_transport(sk);
    sk.connection().reset();
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
    let mut c = sk.connection();
    c.close_on(Event::Reset, ECONNRESET);
    if c.cm.link().is_none() {
        // not asked yet
        drop(c.cm.end_search());
    }
}

/// close(2).
pub(super) fn close(sk: &SdpSock, linger: usize) {
    let mut lock = sk.lock();
    {
        // which orders all who add
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
            // bytes may have come that nobody was told of
            sk.progress();
            let unread = {
                let mut c = sk.connection();
                let unread = c.rx.bytes() > 0 || c.holds_advert();
                c.rx.clear();
                unread
            };
            if unread || (sk.flag(Flag::Linger) && sk.linger_time() == 0) {
                // as TCP: the peer must not believe that we have read what it sent
                reset(sk);
            } else {
                sk.connection().close_on(Event::LocalFin, EPIPE);
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
        c.close_on(Event::Orphaned { linger2 }, ECONNRESET);
        // Bytes that came in the meantime, or blocks that were advertised, are answered like all that
        // come from now on.
        if c.rx.bytes() > 0 || c.holds_advert() {
            c.rx.clear();
            if sk.state() != State::Close {
                c.close_on(Event::Reset, ECONNRESET);
            }
        }
    }
    drop(lock);
    release::finish(sk);
}

/// The network namespace ends, and a kernel user's socket is left in it: nothing of it may go on.
pub(super) fn namespace_ends(sk: &SdpSock) {
    if sk.state() == State::Listen {
        let _lock = sk.lock();
        listen::stop(sk);
    }
    release::lost(sk, |_| true);
}
