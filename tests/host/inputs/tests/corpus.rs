// SPDX-License-Identifier: GPL-2.0-only

//! The corpus of the fuzz targets: no input, and no prefix of one, causes a panic, and together
//! they reach every result that a peer can cause.

use sdp_inputs::connection::{play, Saw};
use sdp_protocol::{Mid, Stall, Violation};
use std::collections::HashSet;
use std::path::Path;

/// Returns the inputs of a target.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let files = std::fs::read_dir(folder.join(target)).expect("the corpus");
    let inputs: Vec<_> = files
        .map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect();
    assert!(inputs.len() > 9, "{target} has only {}", inputs.len());
    inputs
}

/// Calls `f` with every input and every prefix of it.
fn each(target: &str, mut f: impl FnMut(&[u8])) {
    for input in inputs(target) {
        for len in 0..=input.len() {
            f(&input[..len]);
        }
    }
}

#[test]
fn hellos() {
    each("hello", sdp_inputs::hello);
}

#[test]
fn messages() {
    each("message", sdp_inputs::message);
}

#[test]
fn records() {
    each("records", sdp_inputs::records);
}

#[test]
fn connections() {
    let mut seen = HashSet::new();
    each("connection", |input| {
        play(input, |saw| {
            seen.insert(saw);
        });
    });
    let mut missing: Vec<Saw> = Vec::new();
    // Malformed Hello messages do not arrive over the queue pair, and records are in the payload.
    let others = [
        "version",
        "ip_version",
        "max_adverts",
        "receive_size",
        "record",
    ];
    let reasons = Violation::all().filter(|v| !others.contains(&v.name()));
    missing.extend(reasons.map(Saw::Violated));
    // A SuspCommAck is never expected, and so is not accepted.
    let mids = Mid::ALL.into_iter().skip(2);
    missing.extend(
        mids.clone()
            .filter(|m| *m != Mid::SuspCommAck)
            .map(Saw::Received),
    );
    // The code under test never aborts or suspends.
    let never = [Mid::AbortConn, Mid::SuspComm, Mid::SuspCommAck];
    missing.extend(mids.filter(|m| !never.contains(m)).map(Saw::Sent));
    missing.extend(
        [
            Stall::Credits,
            Stall::Wire,
            Stall::InFlight,
            Stall::Corked,
            Stall::Adverts,
        ]
        .map(Saw::Held),
    );
    missing.retain(|saw| !seen.contains(saw));
    assert!(missing.is_empty(), "the corpus reaches none of {missing:?}");
}
