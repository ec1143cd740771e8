// SPDX-License-Identifier: GPL-2.0-only

//! State machine of closing: state and event determine the next state and the action.
//!
//! A stream ends with a DisConn after its last byte. When both directions have ended, the side that
//! closed first disconnects (DREQ). If no DREQ arrives, the side that closed last disconnects. Any
//! other end of a connection is a reset: a DREQ without an SDP message.
//!
//! The actions are in [`close`](super::close). The code does not depend on the kernel. The host
//! test `tests/host/conn` compares the state machine with a second copy of the table.

use crate::sys::net::sock::State;

/// Events that end a connection or advance its closing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CloseEvent {
    /// The program ends its stream by shutdown(2), or by close(2) without unread bytes.
    LocalFin,
    /// The peer's DisConn has arrived.
    PeerFin,
    /// The peer has acknowledged this side's DisConn.
    FinAcked {
        /// `TCP_LINGER2` in seconds, negative for none.
        linger2: i32,
    },
    /// close(2) has returned, so the program gets no more errors.
    Orphaned {
        /// `TCP_LINGER2` in seconds, negative for none.
        linger2: i32,
    },
    /// The program resets the connection: by close(2) with bytes unread, `SO_LINGER` of 0 s, or
    /// connect(2) to `AF_UNSPEC`.
    Reset,
    /// The connection has failed: a protocol violation of the peer, a work request that cannot be
    /// posted, no reply, or removal of the device or namespace.
    Failed,
    /// The queue pair is in the error state. The connection manager reports the reason separately.
    Flushed,
    /// The connection manager reports the end of the connection.
    LinkDown {
        /// True if the peer has ended the connection.
        by_peer: bool,
        both_ended: bool,
    },
    /// The timeout of closing has expired.
    Deadline {
        /// True if the peer has received bytes since the timeout was started.
        moving: bool,
    },
}

impl CloseEvent {
    /// Returns true if the event is the failure of an attempt to connect.
    pub(crate) fn fails(self) -> bool {
        matches!(
            self,
            CloseEvent::Failed | CloseEvent::LinkDown { .. } | CloseEvent::Deadline { .. }
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CloseAction {
    Nothing,
    /// Queue the DisConn after the last byte.
    SendFin,
    /// Disconnect (DREQ), since both streams have ended.
    Disconnect,
    AwaitDisconnect,
    /// Wait for the peer's DisConn (`TCP_LINGER2`).
    AwaitFin,
    /// Start the timeout of closing.
    Limit,
    /// Restart the timeout of closing: the peer is receiving bytes.
    Prolong,
    /// Drop unsent bytes and the queue pair. Received bytes stay readable.
    Cut,
    /// Drop unsent bytes and the queue pair ([`Self::Cut`]), and disconnect.
    Abort,
    /// Abort the connection ([`Self::Abort`]), and report the error to the program.
    Fail,
    /// Disconnect the CM link, which is all that is left.
    FailLink,
    /// Drop the CM link at once, since the peer will not reply.
    Detach,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transition {
    /// New state of the socket, if it changes.
    pub(crate) state: Option<State>,
    pub(crate) act: CloseAction,
}

/// State of closing that the socket's state does not show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closing {
    orphaned: bool,
    /// Set once the SEND of the DisConn has completed.
    pub(crate) fin_completed: bool,
    /// Set once the peer has acknowledged the DisConn.
    pub(crate) fin_acked: bool,
    /// Set by the step that begins the disconnect.
    teardown: bool,
}

impl Closing {
    pub(crate) fn renew(&mut self) {
        (self.fin_completed, self.fin_acked, self.teardown) = (false, false, false);
    }

    /// Records that the socket has no descriptor. Returns true at the first call.
    pub(crate) fn orphan(&mut self) -> bool {
        !core::mem::replace(&mut self.orphaned, true)
    }

    pub(crate) fn is_orphaned(&self) -> bool {
        self.orphaned
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.teardown
    }

    pub(crate) fn on(&mut self, state: State, event: CloseEvent) -> Transition {
        use CloseEvent::*;
        use State::{Close, CloseWait, Closing, Established, FinWait1, FinWait2, LastAck, SynRecv};
        let (next, act) = match (event, state) {
            (LocalFin, Established | SynRecv) => (FinWait1, CloseAction::SendFin),
            (LocalFin, CloseWait) => (LastAck, CloseAction::SendFin),
            (LocalFin, _) => (state, CloseAction::Nothing),

            (PeerFin, Established | SynRecv) => (CloseWait, CloseAction::Nothing),
            (PeerFin, FinWait1) => (Closing, CloseAction::Nothing),
            (PeerFin, FinWait2) => (Close, self.disconnect(CloseAction::Nothing)),
            (PeerFin, _) => (state, CloseAction::Nothing),

            (FinAcked { linger2 }, _) => {
                self.fin_acked = true;
                match state {
                    FinWait1 if self.orphaned => self.await_fin(linger2),
                    FinWait1 => (FinWait2, CloseAction::Nothing),
                    // this side has closed before the peer
                    Closing => (Close, self.disconnect(CloseAction::Nothing)),
                    LastAck => (Close, CloseAction::AwaitDisconnect),
                    _ => (state, CloseAction::Nothing),
                }
            }

            (Orphaned { linger2 }, FinWait2) => self.await_fin(linger2),
            (Orphaned { .. }, _) => (state, CloseAction::Limit),

            (Reset, Close) => (state, self.abort(CloseAction::FailLink)),
            (Reset, _) => (Close, self.abort(CloseAction::Abort)),

            (Failed, Close) => (state, self.abort(CloseAction::FailLink)),
            (Failed, _) => (Close, self.abort(CloseAction::Fail)),

            (Flushed, _) if self.teardown => (state, CloseAction::Nothing),
            // the CM link reports the reason of the failure, unless another error is set
            (Flushed, _) => (state, self.abort(CloseAction::FailLink)),

            (LinkDown { .. }, Close) => (state, CloseAction::Nothing),
            (
                LinkDown {
                    by_peer,
                    both_ended,
                },
                _,
            ) if both_ended || (!by_peer && self.orphaned) => (Close, CloseAction::Cut),
            (LinkDown { .. }, _) => (Close, self.abort(CloseAction::Fail)),

            // the peer did not end its stream, or did not disconnect
            (Deadline { .. }, FinWait2 | Close) => (state, self.disconnect(CloseAction::Detach)),
            (Deadline { moving: true }, FinWait1 | Closing | LastAck) => {
                (state, CloseAction::Prolong)
            }
            // the peer does not receive queued bytes, or does not answer the connection request
            (Deadline { .. }, _) => (Close, self.abort(CloseAction::Fail)),
        };
        Transition {
            state: (next != state).then_some(next),
            act,
        }
    }

    /// Waits for the peer's DisConn, the only step that a closed socket still lacks.
    fn await_fin(&mut self, linger2: i32) -> (State, CloseAction) {
        match linger2 {
            0.. => (State::FinWait2, CloseAction::AwaitFin),
            _ => (State::Close, self.abort(CloseAction::Abort)),
        }
    }

    /// Begins to disconnect. Returns `begun` if the disconnect has already begun.
    fn disconnect(&mut self, begun: CloseAction) -> CloseAction {
        match core::mem::replace(&mut self.teardown, true) {
            false => CloseAction::Disconnect,
            true => begun,
        }
    }

    fn abort(&mut self, act: CloseAction) -> CloseAction {
        self.teardown = true;
        act
    }
}
