// SPDX-License-Identifier: GPL-2.0-only

//! Simulator of SDP connections.
//!
//! A seed determines a [`World`]: two ends of one connection with their transports and
//! applications. One end is always the code under test, the other the same code or a model of
//! another implementation. Some worlds have an attacker on the wire that changes messages. Events
//! happen in random order: bytes are written and read, messages are delivered, completions are
//! late, blocks are advertised, read, written to, refused and taken back (also blocks without a
//! waiting call), buffers grow, modes and options change, streams end, an end dies. The simulator
//! checks continuously that
//!
//! * every byte arrives once, in its place, and the end of the stream after the last of them;
//! * urgent bytes are marked at their position, and announced once;
//! * no message arrives without a receive buffer that is large enough;
//! * MSeq, MSeqAck and Bufs are right, and each reserved credit is spent only on the messages that
//!   it is reserved for;
//! * no end accesses memory that its owner has taken back, and an end that has advertised memory
//!   gets it back on request;
//! * whenever all messages have arrived, readers have all bytes that they wait for, even if the
//!   other end does not read, and before any timeout; and the ends send nothing more;
//! * tampering leads to a violation or to nothing, never to a panic.

pub mod audit;
pub mod fabric;
pub mod foreign;
pub mod hostile;
pub mod node;
pub mod ours;
pub mod packet;
pub mod port;
pub mod rng;
pub mod world;
mod zcopy;

// The module's files use the protocol by this name.
use sdp_protocol as protocol;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};

use sdp_protocol::Mid;
use world::World;

/// Statistics of a run of the simulator.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Events.
    pub steps: u64,
    /// Connections.
    pub connections: u64,
    /// Numbers of messages with stream bytes, credit updates, and others, of both sides.
    pub messages: [u64; 3],
    /// Messages by their MID's index.
    pub kinds: [u64; Mid::ALL.len()],
    /// Numbers of blocks by result: read completely, sent in messages, written to a reader, moved,
    /// returned to a call.
    pub ways: [u64; 5],
    /// Detected tampering, counted by the violation's name.
    pub violations: BTreeMap<String, u64>,
}

/// A violated rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The connection's seed.
    pub seed: u64,
    /// Number of the event.
    pub step: u64,
    /// The rule, and the state of both ends.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}, step {}: {}\nto see it again: cargo run -p sdp-sim -- --seed {} --connections 1 --trace",
            self.seed, self.step, self.what, self.seed
        )
    }
}

/// Simulates the connections of `seed`, `seed + 1`, … until `steps` events or `connections`
/// connections are done.
///
/// # Errors
///
/// Returns the first violated rule.
pub fn run(seed: u64, steps: u64, connections: u64, trace: bool) -> Result<Summary, Failure> {
    let mut summary = Summary::default();
    while summary.steps < steps && summary.connections < connections {
        let seed = seed.wrapping_add(summary.connections);
        let mut world = World::new(seed, trace);
        let result = catch_unwind(AssertUnwindSafe(|| world.run()))
            .unwrap_or_else(|_| Err("panic, see above".into()));
        if let Err(what) = result {
            let step = world.steps;
            return Err(Failure { seed, step, what });
        }
        summary.steps += world.steps;
        summary.connections += 1;
        for counts in world.counts() {
            for (sum, count) in summary.messages.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        for ways in world.ways() {
            for (sum, count) in summary.ways.iter_mut().zip(ways) {
                *sum += count;
            }
        }
        for (sum, count) in summary.kinds.iter_mut().zip(world.kinds) {
            *sum += count;
        }
        if let Some(name) = world.violation() {
            *summary.violations.entry(name).or_default() += 1;
        }
    }
    Ok(summary)
}
