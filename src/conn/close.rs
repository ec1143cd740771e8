// SPDX-License-Identifier: GPL-2.0-only

//! Executes the steps that close a connection, under the connection's lock.
//! [`closing`](super::closing) selects the step for each event. The calls and events that close a
//! connection are in `socket/close.rs`, `socket/release.rs` and `socket/timer.rs`.

use super::closing::{CloseAction, CloseEvent, Transition};
use super::timers::Timer;
use super::unread::Urgent;
use super::zcopy::Zcopy;
use super::{Connection, SdpSock, Wakeup, Wakeups};
use crate::sys::debug::debug;
use crate::sys::errno::{Errno, ECONNRESET};
use crate::sys::net::sock::{Ends, State, RCV_SHUTDOWN, SHUTDOWN_MASK};
use crate::sys::net::trace;
use crate::sys::time::{jiffies, seconds, Jiffies};
use crate::transport::Status;
use kernel::sync::atomic::Relaxed;

/// Time that a closed socket waits for the arrival of its last bytes, and for a disconnect.
pub(crate) const FIN_TIME: Jiffies = seconds(60);
/// Time that the side that closed last waits for the other side's DREQ.
pub(crate) const LAST_ACK_TIME: Jiffies = seconds(3);

impl Connection {
    /// Handles an event that ends the connection or advances its closing. If the event ends the
    /// connection, the program gets `error`. Returns the action; the caller has to execute
    /// [`CloseAction::Detach`].
    pub(crate) fn close_on(
        &mut self,
        sk: &SdpSock,
        event: CloseEvent,
        error: Errno,
        wakeups: &mut Wakeups,
    ) -> CloseAction {
        let state = sk.state();
        if state == State::SynSent && event.fails() && self.falls_back(sk, error) {
            return CloseAction::Nothing;
        }
        let Transition { state: next, act } = self.closing.on(state, event);
        if act == CloseAction::Fail {
            sk.set_error(error);
            wakeups.add(Wakeup::State);
            wakeups.add(Wakeup::Error);
        }
        if let Some(next) = next {
            if next == State::Close {
                trace::close(sk);
                sk.add_shutdown(SHUTDOWN_MASK);
            }
            sk.set_state(next);
        }
        match act {
            CloseAction::Nothing | CloseAction::Detach => {}
            CloseAction::SendFin => {
                self.no_more();
                if let Some(p) = self.protocol.as_mut() {
                    p.shutdown_send();
                }
                if let Some(link) = self.living_link() {
                    link.finish();
                    wakeups.add(Wakeup::Fin);
                }
            }
            CloseAction::Disconnect => {
                self.set_timer(sk, Timer::Close, FIN_TIME);
                wakeups.add(Wakeup::Disconnect);
            }
            CloseAction::AwaitDisconnect => self.set_timer(sk, Timer::Close, LAST_ACK_TIME),
            CloseAction::AwaitFin => {
                let time = seconds(self.options.timers(sk).fin_timeout);
                self.set_timer(sk, Timer::Close, time);
            }
            CloseAction::Limit => {
                let connected = self.cm.link.is_some() || self.living_link().is_some();
                if connected && !self.timers.is_set(Timer::Close) {
                    self.set_timer(sk, Timer::Close, FIN_TIME)
                }
            }
            CloseAction::Prolong => {
                let due = self.alive.last_progress.wrapping_add(FIN_TIME);
                self.set_timer(sk, Timer::Close, due.wrapping_sub(jiffies()));
            }
            CloseAction::Cut => self.cut(sk),
            CloseAction::Abort | CloseAction::Fail => {
                self.cut(sk);
                if let Some(local) = &self.local {
                    local.link.drop_blocks();
                }
                self.fail_link(wakeups);
            }
            CloseAction::FailLink => self.fail_link(wakeups),
        }
        act
    }

    /// Handles the loss of the connection: reports `error` to the program and sends a DREQ.
    pub(crate) fn done_with_error(&mut self, sk: &SdpSock, error: Errno, wakeups: &mut Wakeups) {
        self.close_on(sk, CloseEvent::Failed, error, wakeups);
    }

    /// Handles a work request that has failed or was flushed.
    pub(super) fn failed(&mut self, sk: &SdpSock, status: Status, wakeups: &mut Wakeups) {
        let error = Errno::of(status.error());
        if matches!(status, Status::Flushed) {
            self.close_on(sk, CloseEvent::Flushed, error, wakeups);
        } else if self.both_ended() {
            // a peer may disconnect before it has acknowledged this end's DisConn
            self.fin_acked(sk, wakeups);
        } else {
            self.stats.transport_errors += 1;
            debug!("{}: the transport failed: {:?}", Ends(sk), status);
            self.done_with_error(sk, error, wakeups);
        }
    }

    pub(crate) fn both_ended(&self) -> bool {
        match &self.local {
            Some(local) => local.link.both_ended(),
            None => self.protocol.as_ref().is_some_and(|p| p.finished()),
        }
    }

    /// Handles the end of a local peer's stream. Repeated calls have no effect.
    pub(crate) fn take_fin(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        let link = self.living_link();
        if link.is_some_and(|l| l.peer_has_finished()) && !sk.peer_has_ended() {
            self.peer_closed(sk, wakeups);
        }
    }

    /// Handles the peer's DisConn, which ends the peer's stream.
    pub(super) fn peer_closed(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        sk.add_shutdown(RCV_SHUTDOWN);
        sk.data().peer_ended.store(true, Relaxed);
        self.close_on(sk, CloseEvent::PeerFin, ECONNRESET, wakeups);
        if let (true, Some(p)) = (self.needs_ack(), &mut self.protocol) {
            p.owe_message();
        }
        if let Urgent::Pending = self.rx.unread.urgent {
            self.rx.unread.urgent = Urgent::None;
        }
        wakeups.add(Wakeup::State);
        wakeups.add(Wakeup::Readable);
        wakeups.add_if(sk.shutdown() == SHUTDOWN_MASK, Wakeup::Hup);
        wakeups.add_if(self.timers.is_set(Timer::DeferAccept), Wakeup::Admit);
    }

    /// Returns true if a completed SEND may not have arrived yet: MSeqAck shows its arrival.
    fn needs_ack(&self) -> bool {
        matches!(&self.endpoint, Some(e) if !e.qp().completes_on_arrival())
    }

    /// Handles a completed or acknowledged DisConn of this end. Two ends that close at the same
    /// time send no acknowledgement, and disconnect once their messages have completed.
    pub(super) fn check_fin(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        let by_message = self.needs_ack() && sk.state() != State::Closing;
        let acked = match by_message {
            true => self.protocol.as_ref().is_some_and(|p| p.fin_is_acked()),
            false => self.closing.fin_completed,
        };
        if acked && !self.closing.fin_acked {
            self.fin_acked(sk, wakeups);
        }
    }

    /// Handles the peer's acknowledgement of this end's DisConn.
    pub(super) fn fin_acked(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        let linger2 = self.options.linger2;
        let before = sk.state();
        self.close_on(sk, CloseEvent::FinAcked { linger2 }, ECONNRESET, wakeups);
        wakeups.add_if(sk.state() != before, Wakeup::State);
    }

    /// Drops unsent data and the queue pair. Received data stays readable.
    fn cut(&mut self, sk: &SdpSock) {
        self.rx_buffers.clear();
        self.tx.clear();
        self.held = None;
        self.timers.clear(Timer::Cork);
        self.zcopy.with(Zcopy::lost);
        self.endpoint = None;
        self.set_timer(sk, Timer::Close, FIN_TIME);
    }

    fn fail_link(&self, wakeups: &mut Wakeups) {
        if let Some(link) = &self.cm.link {
            link.fail();
        }
        wakeups.add_if(self.living_link().is_some(), Wakeup::Disconnect);
    }
}
