// SPDX-License-Identifier: GPL-2.0-only

//! How a connection ends: for each state and each event, the next state and what is to be done.
//!
//! A stream ends with a DisConn behind its last byte. When both directions have ended, the side that
//! closed first takes the connection down (DREQ); the other does so if that does not come. Everything
//! else is a reset: the connection manager's DREQ without a word of SDP.
//!
//! What is done is in [`close`](super::close). This file needs nothing of the kernel; `tests/host/conn`
//! compiles it and has the table once more.

use crate::sys::net::sock::State;

/// What ends a connection, or brings its end nearer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// The program ends its stream: shutdown(2), or close(2) with everything read.
    LocalFin,
    /// The peer has ended its stream: its DisConn has come.
    PeerFin,
    /// Our DisConn has arrived at the peer.
    FinAcked {
        /// `TCP_LINGER2` in seconds, negative for none.
        linger2: i32,
    },
    /// close(2) has done what it could; nobody will see an error any more.
    Orphaned {
        /// The same.
        linger2: i32,
    },
    /// The program does not want what the peer sends: close(2) with bytes unread, `SO_LINGER` of 0 s,
    /// connect(2) to `AF_UNSPEC`.
    Reset,
    /// It cannot go on: the peer has broken the protocol, no work request can be posted, nothing is
    /// answered, the device or the namespace goes.
    Failed,
    /// The queue pair is in the error state. Who has put it there tells the reason, or has.
    Flushed,
    /// The connection manager says that the connection is over.
    LinkDown {
        /// The peer has said so.
        by_peer: bool,
        /// Both streams had ended before.
        both_ended: bool,
    },
    /// The time is over that was given to it.
    Deadline {
        /// Bytes have arrived at the peer since.
        moving: bool,
    },
}

impl Event {
    /// Whether an attempt to connect has failed by it.
    pub(crate) fn fails(self) -> bool {
        matches!(
            self,
            Event::Failed | Event::LinkDown { .. } | Event::Deadline { .. }
        )
    }
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// Nothing.
    Nothing,
    /// Queue our DisConn behind the last byte.
    SendFin,
    /// Take the connection down in order: both streams have ended.
    Disconnect,
    /// Wait for the peer to do that.
    AwaitDisconnect,
    /// Wait for the peer's end: so many seconds, or as long as the namespace says for 0.
    AwaitFin(u32),
    /// See to it that there is an end to waiting.
    Limit,
    /// Wait once more: the peer takes what waits.
    Prolong,
    /// Drop what was not sent, and the queue pair: no more bytes either way. What was received stays.
    Cut,
    /// The same, and have the link end the connection.
    Abort,
    /// The same, and tell the program the error.
    Fail,
    /// Have the link end the connection; there is nothing else left of it.
    FailLink,
    /// Drop the link without waiting for an answer: the peer does not give one.
    Detach,
}

/// A step towards the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// The socket's new state, if it has one.
    pub(crate) state: Option<State>,
    /// What is to be done then.
    pub(crate) act: Act,
}

/// How far a connection's end is, besides what the socket's state says.
#[derive(Clone, Debug)]
pub(crate) struct Closing {
    /// The program has closed the socket.
    orphaned: bool,
    /// The DisConn has arrived at the peer.
    fin_acked: bool,
    /// The link was asked to end the connection, or is about to be.
    teardown: bool,
}

impl Closing {
    /// Of a new socket.
    pub(crate) const fn new() -> Self {
        Closing {
            orphaned: false,
            fin_acked: false,
            teardown: false,
        }
    }

    /// Another connection begins.
    pub(crate) fn renew(&mut self) {
        (self.fin_acked, self.teardown) = (false, false);
    }

    /// The program has closed the socket, or never had it. Whether that is new.
    pub(crate) fn orphan(&mut self) -> bool {
        !core::mem::replace(&mut self.orphaned, true)
    }

    /// Whether the program has closed the socket.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.orphaned
    }

    /// Whether our DisConn has arrived at the peer.
    pub(crate) fn fin_is_acked(&self) -> bool {
        self.fin_acked
    }

    /// Whether the link was asked to end the connection, or is about to be.
    pub(crate) fn has_begun(&self) -> bool {
        self.teardown
    }

    /// The step that an event leads to in a state.
    pub(crate) fn on(&mut self, state: State, event: Event) -> Step {
        use State::{CloseWait, Closing, Established, FinWait1, FinWait2, LastAck, SynRecv};
        let (next, act) = match (event, state) {
            (Event::LocalFin, Established | SynRecv) => (FinWait1, Act::SendFin),
            (Event::LocalFin, CloseWait) => (LastAck, Act::SendFin),
            (Event::LocalFin, _) => (state, Act::Nothing),

            (Event::PeerFin, Established | SynRecv) => (CloseWait, Act::Nothing),
            (Event::PeerFin, FinWait1) => (Closing, Act::Nothing),
            (Event::PeerFin, FinWait2) => (State::Close, self.disconnect(Act::Nothing)),
            (Event::PeerFin, _) => (state, Act::Nothing),

            (Event::FinAcked { linger2 }, _) => {
                self.fin_acked = true;
                match state {
                    FinWait1 if self.orphaned => self.await_fin(linger2),
                    FinWait1 => (FinWait2, Act::Nothing),
                    // we closed first
                    Closing => (State::Close, self.disconnect(Act::Nothing)),
                    LastAck => (State::Close, Act::AwaitDisconnect),
                    _ => (state, Act::Nothing),
                }
            }

            (Event::Orphaned { linger2 }, FinWait2) => self.await_fin(linger2),
            (Event::Orphaned { .. }, _) => (state, Act::Limit),

            (Event::Reset, State::Close) => (state, self.abort(Act::FailLink)),
            (Event::Reset, _) => (State::Close, self.abort(Act::Abort)),

            (Event::Failed, State::Close) => (state, self.abort(Act::FailLink)),
            (Event::Failed, _) => (State::Close, self.abort(Act::Fail)),

            (Event::Flushed, _) if self.teardown => (state, Act::Nothing),
            // if nobody else tells the reason, the link finds out
            (Event::Flushed, _) => (state, self.abort(Act::FailLink)),

            (Event::LinkDown { .. }, State::Close) => (state, Act::Nothing),
            (
                Event::LinkDown {
                    by_peer,
                    both_ended,
                },
                _,
            ) if both_ended || (!by_peer && self.orphaned) => (State::Close, Act::Cut),
            (Event::LinkDown { .. }, _) => (State::Close, self.abort(Act::Fail)),

            // the peer did not end its stream, or did not take the connection down
            (Event::Deadline { .. }, FinWait2 | State::Close) => {
                (state, self.disconnect(Act::Detach))
            }
            (Event::Deadline { moving: true }, FinWait1 | Closing | LastAck) => {
                (state, Act::Prolong)
            }
            // bytes wait for a peer that takes none, or a connection is not answered
            (Event::Deadline { .. }, _) => (State::Close, self.abort(Act::Fail)),
        };
        Step {
            state: (next != state).then_some(next),
            act,
        }
    }

    /// Of a closed socket only the peer's end is missing.
    fn await_fin(&mut self, linger2: i32) -> (State, Act) {
        match u32::try_from(linger2) {
            Ok(seconds) => (State::FinWait2, Act::AwaitFin(seconds)),
            Err(_) => (State::Close, self.abort(Act::Abort)),
        }
    }

    /// Takes the connection down, if that was not begun before.
    fn disconnect(&mut self, begun: Act) -> Act {
        match core::mem::replace(&mut self.teardown, true) {
            false => Act::Disconnect,
            true => begun,
        }
    }

    fn abort(&mut self, act: Act) -> Act {
        self.teardown = true;
        act
    }
}
