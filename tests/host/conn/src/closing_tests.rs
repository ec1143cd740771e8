// SPDX-License-Identifier: GPL-2.0-only

//! Table of states and events that close a connection, written independently of the code, and
//! properties of every path through it.

use crate::closing::{CloseAction, CloseEvent, Closing as End, Transition};
use crate::state::State::{self, *};
use std::collections::HashSet;

const STATES: [State; 11] = [
    Established,
    SynSent,
    SynRecv,
    FinWait1,
    FinWait2,
    TimeWait,
    Close,
    CloseWait,
    LastAck,
    Listen,
    Closing,
];

const EVENTS: [CloseEvent; 16] = [
    CloseEvent::LocalFin,
    CloseEvent::PeerFin,
    CloseEvent::FinAcked { linger2: 0 },
    CloseEvent::FinAcked { linger2: 7 },
    CloseEvent::FinAcked { linger2: -1 },
    CloseEvent::Orphaned { linger2: 0 },
    CloseEvent::Orphaned { linger2: 7 },
    CloseEvent::Orphaned { linger2: -1 },
    CloseEvent::Reset,
    CloseEvent::Failed,
    CloseEvent::Flushed,
    down(true, false),
    down(false, false),
    down(false, true),
    CloseEvent::Deadline { moving: false },
    CloseEvent::Deadline { moving: true },
];

const fn down(by_peer: bool, both_ended: bool) -> CloseEvent {
    CloseEvent::LinkDown {
        by_peer,
        both_ended,
    }
}

/// Sockets that a row applies to: open, closed, or both; likewise for connections whose disconnect
/// has begun or not.
#[derive(Clone, Copy, PartialEq)]
enum If {
    Any,
    No,
    Yes,
}

impl If {
    fn holds(self, what: bool) -> bool {
        self == If::Any || (self == If::Yes) == what
    }
}

struct Row {
    event: CloseEvent,
    orphaned: If,
    begun: If,
    states: &'static [State],
    /// Next state; `None` if the state does not change.
    next: Option<State>,
    act: CloseAction,
}

const fn row(
    event: CloseEvent,
    states: &'static [State],
    next: Option<State>,
    act: CloseAction,
) -> Row {
    Row {
        event,
        orphaned: If::Any,
        begun: If::Any,
        states,
        next,
        act,
    }
}

impl Row {
    const fn open(self) -> Row {
        Row {
            orphaned: If::No,
            ..self
        }
    }

    const fn orphaned(self) -> Row {
        Row {
            orphaned: If::Yes,
            ..self
        }
    }

    const fn not_begun(self) -> Row {
        Row {
            begun: If::No,
            ..self
        }
    }
}

/// All states except `Close`.
const ALIVE: &[State] = &[
    Established,
    SynSent,
    SynRecv,
    FinWait1,
    FinWait2,
    TimeWait,
    CloseWait,
    LastAck,
    Listen,
    Closing,
];

/// The first matching row applies; a state without a row does not change and has no action.
const TABLE: &[Row] = &[
    // the program ends its stream
    row(
        CloseEvent::LocalFin,
        &[SynRecv, Established],
        Some(FinWait1),
        CloseAction::SendFin,
    ),
    row(
        CloseEvent::LocalFin,
        &[CloseWait],
        Some(LastAck),
        CloseAction::SendFin,
    ),
    // the peer ends its stream
    row(
        CloseEvent::PeerFin,
        &[SynRecv, Established],
        Some(CloseWait),
        CloseAction::Nothing,
    ),
    row(
        CloseEvent::PeerFin,
        &[FinWait1],
        Some(Closing),
        CloseAction::Nothing,
    ),
    row(
        CloseEvent::PeerFin,
        &[FinWait2],
        Some(Close),
        CloseAction::Disconnect,
    )
    .not_begun(),
    row(
        CloseEvent::PeerFin,
        &[FinWait2],
        Some(Close),
        CloseAction::Nothing,
    ),
    // the peer has received this side's whole stream
    row(
        CloseEvent::FinAcked { linger2: 0 },
        &[FinWait1],
        Some(FinWait2),
        CloseAction::AwaitFin,
    )
    .orphaned(),
    row(
        CloseEvent::FinAcked { linger2: 7 },
        &[FinWait1],
        Some(FinWait2),
        CloseAction::AwaitFin,
    )
    .orphaned(),
    row(
        CloseEvent::FinAcked { linger2: -1 },
        &[FinWait1],
        Some(Close),
        CloseAction::Abort,
    )
    .orphaned(),
    row(
        CloseEvent::FinAcked { linger2: 0 },
        &[FinWait1],
        Some(FinWait2),
        CloseAction::Nothing,
    )
    .open(),
    row(
        CloseEvent::FinAcked { linger2: 7 },
        &[FinWait1],
        Some(FinWait2),
        CloseAction::Nothing,
    )
    .open(),
    row(
        CloseEvent::FinAcked { linger2: -1 },
        &[FinWait1],
        Some(FinWait2),
        CloseAction::Nothing,
    )
    .open(),
    row(
        CloseEvent::FinAcked { linger2: 0 },
        &[Closing],
        Some(Close),
        CloseAction::Disconnect,
    )
    .not_begun(),
    row(
        CloseEvent::FinAcked { linger2: 7 },
        &[Closing],
        Some(Close),
        CloseAction::Disconnect,
    )
    .not_begun(),
    row(
        CloseEvent::FinAcked { linger2: -1 },
        &[Closing],
        Some(Close),
        CloseAction::Disconnect,
    )
    .not_begun(),
    row(
        CloseEvent::FinAcked { linger2: 0 },
        &[Closing],
        Some(Close),
        CloseAction::Nothing,
    ),
    row(
        CloseEvent::FinAcked { linger2: 7 },
        &[Closing],
        Some(Close),
        CloseAction::Nothing,
    ),
    row(
        CloseEvent::FinAcked { linger2: -1 },
        &[Closing],
        Some(Close),
        CloseAction::Nothing,
    ),
    // the side that closes last does not disconnect: the other side does
    row(
        CloseEvent::FinAcked { linger2: 0 },
        &[LastAck],
        Some(Close),
        CloseAction::AwaitDisconnect,
    ),
    row(
        CloseEvent::FinAcked { linger2: 7 },
        &[LastAck],
        Some(Close),
        CloseAction::AwaitDisconnect,
    ),
    row(
        CloseEvent::FinAcked { linger2: -1 },
        &[LastAck],
        Some(Close),
        CloseAction::AwaitDisconnect,
    ),
    // the descriptor is closed
    row(
        CloseEvent::Orphaned { linger2: 0 },
        &[FinWait2],
        None,
        CloseAction::AwaitFin,
    ),
    row(
        CloseEvent::Orphaned { linger2: 7 },
        &[FinWait2],
        None,
        CloseAction::AwaitFin,
    ),
    row(
        CloseEvent::Orphaned { linger2: -1 },
        &[FinWait2],
        Some(Close),
        CloseAction::Abort,
    ),
    row(
        CloseEvent::Orphaned { linger2: 0 },
        &STATES,
        None,
        CloseAction::Limit,
    ),
    row(
        CloseEvent::Orphaned { linger2: 7 },
        &STATES,
        None,
        CloseAction::Limit,
    ),
    row(
        CloseEvent::Orphaned { linger2: -1 },
        &STATES,
        None,
        CloseAction::Limit,
    ),
    // resets and failures
    row(CloseEvent::Reset, &[Close], None, CloseAction::FailLink),
    row(CloseEvent::Reset, ALIVE, Some(Close), CloseAction::Abort),
    row(CloseEvent::Failed, &[Close], None, CloseAction::FailLink),
    row(CloseEvent::Failed, ALIVE, Some(Close), CloseAction::Fail),
    row(CloseEvent::Flushed, &STATES, None, CloseAction::FailLink).not_begun(),
    // the connection manager's report decides the outcome
    row(down(true, false), ALIVE, Some(Close), CloseAction::Fail),
    row(down(false, false), ALIVE, Some(Close), CloseAction::Cut).orphaned(),
    row(down(false, false), ALIVE, Some(Close), CloseAction::Fail),
    row(down(false, true), ALIVE, Some(Close), CloseAction::Cut),
    // time
    row(
        CloseEvent::Deadline { moving: false },
        &[FinWait2, Close],
        None,
        CloseAction::Disconnect,
    )
    .not_begun(),
    row(
        CloseEvent::Deadline { moving: true },
        &[FinWait2, Close],
        None,
        CloseAction::Disconnect,
    )
    .not_begun(),
    row(
        CloseEvent::Deadline { moving: false },
        &[FinWait2, Close],
        None,
        CloseAction::Detach,
    ),
    row(
        CloseEvent::Deadline { moving: true },
        &[FinWait2, Close],
        None,
        CloseAction::Detach,
    ),
    row(
        CloseEvent::Deadline { moving: true },
        &[FinWait1, Closing, LastAck],
        None,
        CloseAction::Prolong,
    ),
    row(
        CloseEvent::Deadline { moving: true },
        ALIVE,
        Some(Close),
        CloseAction::Fail,
    ),
    row(
        CloseEvent::Deadline { moving: false },
        ALIVE,
        Some(Close),
        CloseAction::Fail,
    ),
];

/// Returns a connection in one of four situations.
fn end(orphaned: bool, begun: bool) -> End {
    let mut end = End::default();
    if begun {
        end.on(Established, CloseEvent::Failed);
        assert!(end.has_begun());
    }
    if orphaned {
        assert!(end.orphan());
        assert!(!end.orphan());
    }
    end
}

const SITUATIONS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

#[test]
fn every_step_is_in_the_table() {
    for (orphaned, begun) in SITUATIONS {
        for state in STATES {
            for event in EVENTS {
                let Transition { state: next, act } = end(orphaned, begun).on(state, event);
                let row = TABLE.iter().find(|r| {
                    r.event == event
                        && r.orphaned.holds(orphaned)
                        && r.begun.holds(begun)
                        && r.states.contains(&state)
                });
                let expected = row.map_or((None, CloseAction::Nothing), |r| (r.next, r.act));
                assert_eq!(
                    (next, act),
                    expected,
                    "{state:?}, {event:?}, orphaned {orphaned}, begun {begun}"
                );
            }
        }
    }
}

#[test]
fn each_row_is_of_use() {
    for (i, row) in TABLE.iter().enumerate() {
        let first = |state: &State| {
            SITUATIONS.iter().any(|(orphaned, begun)| {
                let fits = |r: &Row| {
                    r.event == row.event
                        && r.orphaned.holds(*orphaned)
                        && r.begun.holds(*begun)
                        && r.states.contains(state)
                };
                TABLE.iter().position(fits) == Some(i)
            })
        };
        assert!(row.states.iter().any(first), "row {i}, {:?}", row.event);
    }
}

/// Returns every reachable (state, end), by any events from a connection or an attempt to connect.
fn reachable() -> Vec<(State, End)> {
    let mut seen = HashSet::new();
    let mut todo: Vec<_> = [Established, SynSent, SynRecv]
        .into_iter()
        .flat_map(|state| [false, true].map(|orphaned| (state, end(orphaned, false))))
        .collect();
    let mut all = Vec::new();
    while let Some((state, end)) = todo.pop() {
        if !seen.insert((state as u8, format!("{end:?}"))) {
            continue;
        }
        for event in EVENTS {
            let mut next = end.clone();
            let to = next.on(state, event).state.unwrap_or(state);
            todo.push((to, next));
        }
        all.push((state, end));
    }
    all
}

#[test]
fn nothing_comes_back_to_life() {
    // distance of a state from the initial one
    let far = |state| match state {
        SynSent | SynRecv => 0,
        Established => 1,
        FinWait1 | CloseWait => 2,
        FinWait2 | Closing | LastAck => 3,
        Close => 4,
        TimeWait | Listen => panic!("{state:?} is no state of a connection that ends"),
    };
    for (state, end) in reachable() {
        for event in EVENTS {
            if let Some(next) = end.clone().on(state, event).state {
                assert!(far(next) > far(state), "{state:?} to {next:?} by {event:?}");
            }
        }
    }
}

#[test]
fn our_end_is_sent_once() {
    for (state, end) in reachable() {
        let mut end = end.clone();
        let step = end.on(state, CloseEvent::LocalFin);
        if step.act == CloseAction::SendFin {
            let state = step.state.unwrap();
            let again = end.on(state, CloseEvent::LocalFin);
            assert_eq!(again.act, CloseAction::Nothing, "{state:?}");
        }
    }
}

#[test]
fn the_link_is_asked_once_to_end_in_order() {
    for (state, end) in reachable() {
        for event in EVENTS {
            let mut next = end.clone();
            if next.on(state, event).act == CloseAction::Disconnect {
                assert!(!end.has_begun() && next.has_begun(), "{state:?}, {event:?}");
            }
        }
    }
}

#[test]
fn an_orphan_ends_by_time_alone() {
    // the peer neither replies nor reads: each deadline ends the connection, or sets a deadline
    // that does
    for (mut state, end) in reachable() {
        let mut end = end.clone();
        end.orphan();
        let mut steps = 0;
        loop {
            let step = end.on(state, CloseEvent::Deadline { moving: false });
            state = step.state.unwrap_or(state);
            if step.act == CloseAction::Detach {
                break;
            }
            // both events set another deadline
            assert!(
                matches!(step.act, CloseAction::Fail | CloseAction::Disconnect),
                "{state:?}"
            );
            steps += 1;
            assert!(steps < 3, "{state:?}");
        }
    }
}

#[test]
fn nobody_is_told_of_an_error_twice() {
    for (state, end) in reachable() {
        for event in EVENTS {
            let step = end.clone().on(state, event);
            if step.act == CloseAction::Fail {
                assert_eq!(step.state, Some(Close), "{state:?}, {event:?}");
            }
        }
    }
}
