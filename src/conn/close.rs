// SPDX-License-Identifier: GPL-2.0-only

//! How a connection ends, as seen from under its lock. The calls and events that lead here are in
//! `socket/close.rs`, `socket/upcalls.rs` and `socket/timer.rs`.

use super::receive_queue::Urgent;
use super::{Connection, SdpSock, Wakeups, JOB_DISCONNECT};
use crate::observe::debug::{debug, Ends};
use crate::observe::trace;
use crate::sys::errno::Errno;
use crate::sys::net::sock::{State, RCV_SHUTDOWN, SHUTDOWN_MASK};
use crate::sys::time::{jiffies, seconds, Jiffies};
use crate::transport::Status;
use kernel::sync::atomic::Relaxed;

/// How long a closed socket waits for the peer's end (as the OFED line has it), and for each step by which
/// its last bytes get there.
pub(crate) const FIN_TIME: Jiffies = seconds(60);
/// How long the side that closed last waits for the other to take the connection down.
pub(crate) const LAST_ACK_TIME: Jiffies = seconds(3);

impl Connection {
    /// The queue pair has failed, or is being taken down.
    pub(super) fn failed(&mut self, sk: &SdpSock, status: Status, wakeups: &mut Wakeups) {
        if matches!(status, Status::Flushed) {
            // What comes first tells the reason: the completion that failed, or the connection
            // manager. If nothing did, the link finds out.
            if !self.failing {
                self.failing = true;
                if let Some(link) = &self.link {
                    link.fail();
                }
            }
            return;
        }
        let over = self
            .protocol
            .as_ref()
            .is_some_and(|p| p.send_closed() && p.receive_closed());
        if over {
            // The peer may take its side down before it has acknowledged our DisConn.
            self.fin_arrived = true;
            return;
        }
        self.stats.transport_errors += 1;
        debug!("{}: the transport failed: {:?}", Ends(sk), status);
        self.lose(sk, Errno::of(status.error()), wakeups);
    }

    /// The peer's DisConn has come: no more bytes from it.
    pub(super) fn peer_closed(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        sk.add_shutdown(RCV_SHUTDOWN);
        sk.data().peer_ended.store(true, Relaxed);
        match sk.state() {
            State::SynRecv | State::Established => sk.set_state(State::CloseWait),
            State::FinWait1 => sk.set_state(State::Closing),
            State::FinWait2 => self.over(sk, true),
            _ => {}
        }
        if let Urgent::Pending = self.rx.urgent {
            self.rx.urgent = Urgent::None;
        }
        (wakeups.state, wakeups.readable) = (true, true);
        wakeups.hup |= sk.shutdown() == SHUTDOWN_MASK;
        wakeups.admit |= self.admit_at.is_some();
    }

    /// Takes the steps of closing that what has arrived allows.
    pub(super) fn advance_close(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        if !self.fin_arrived {
            return;
        }
        match sk.state() {
            State::FinWait1 => sk.set_state(State::FinWait2),
            State::Closing => self.over(sk, true),
            State::LastAck => self.over(sk, false),
            _ => return,
        }
        wakeups.state = true;
        if sk.state() == State::FinWait2 && self.orphaned {
            self.await_end(sk);
        }
    }

    /// Of a closed socket only the peer's end is missing: waits for it as `TCP_LINGER2` says.
    pub(crate) fn await_end(&mut self, sk: &SdpSock) {
        match u32::try_from(self.options.linger2) {
            Ok(0) => self.set_deadline(sk, FIN_TIME),
            Ok(n) => self.set_deadline(sk, seconds(n)),
            Err(_) => {
                self.end(sk);
                self.failing = true;
                if let Some(link) = &self.link {
                    link.fail();
                }
            }
        }
    }

    /// Both streams have ended and arrived: for the program the connection is closed. The side that
    /// closed first takes it down; if it does not, the other one does.
    pub(super) fn over(&mut self, sk: &SdpSock, first: bool) {
        trace::close(sk);
        sk.set_state(State::Close);
        sk.add_shutdown(SHUTDOWN_MASK);
        if first {
            self.take_down(sk);
        } else {
            self.set_deadline(sk, LAST_ACK_TIME);
        }
    }

    /// Has the link disconnect; false if that was done before.
    pub(crate) fn take_down(&mut self, sk: &SdpSock) -> bool {
        if core::mem::replace(&mut self.failing, true) {
            return false;
        }
        self.set_deadline(sk, FIN_TIME);
        sk.schedule(JOB_DISCONNECT);
        true
    }

    /// The connection is lost: the program gets `error`, the peer a DREQ.
    pub(crate) fn lose(&mut self, sk: &SdpSock, error: Errno, wakeups: &mut Wakeups) {
        if sk.state() == State::SynSent && self.falls(sk, error) {
            return;
        }
        if sk.state() != State::Close {
            sk.set_error(error);
            self.end(sk);
            (wakeups.state, wakeups.error) = (true, true);
        }
        self.failing = true;
        if let Some(link) = &self.link {
            link.fail();
        }
    }

    /// Ends the connection on this side: no more bytes either way. What was received stays.
    pub(crate) fn end(&mut self, sk: &SdpSock) {
        trace::close(sk);
        sk.set_state(State::Close);
        sk.add_shutdown(SHUTDOWN_MASK);
        self.spare.clear();
        self.tx.clear();
        self.held = None;
        (self.uncork_at, self.rouse_at) = (None, None);
        self.direct.lost();
        self.channel = None;
        self.set_deadline(sk, FIN_TIME);
    }

    /// Has [`Socket`](super::Socket)'s timer look after this connection in `delay` at the latest.
    pub(crate) fn set_deadline(&mut self, sk: &SdpSock, delay: Jiffies) {
        self.deadline = Some(jiffies().wrapping_add(delay));
        sk.set_timer(delay);
    }
}
