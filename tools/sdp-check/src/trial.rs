// SPDX-License-Identifier: GPL-2.0-only

//! One end of a trial of a path.

use crate::control::Control;
use crate::path::Path;
use crate::pattern;
use crate::sock::Data;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// One end of a trial.
pub struct Trial<'a> {
    pub path: Path,
    /// Connections of the path, in the order in which they were made.
    pub data: Vec<Data>,
    pub control: &'a mut Control,
    /// Duration of sending.
    pub time: Duration,
    /// Send a wrong byte, as a test of the checks.
    pub corrupt: bool,
}

pub type Result<T> = std::result::Result<T, String>;

pub fn told(what: &str) -> impl Fn(io::Error) -> String + '_ {
    move |e| match e.kind() {
        ErrorKind::TimedOut => format!("{what}: no byte was transferred for too long"),
        _ => format!("{what}: {e}"),
    }
}

/// Returns a page-aligned buffer.
pub fn buffer(size: usize) -> Vec<u8> {
    vec![0; size]
}

impl Trial<'_> {
    pub fn data(&self) -> &Data {
        &self.data[0]
    }

    pub fn count(&self, name: &str) -> u64 {
        self.data().info().map_or(0, |info| info.get(name))
    }

    /// Waits for a short time until a counter of SDP_INFO exceeds `before`.
    pub fn more_than(&self, name: &str, before: u64, time: Duration) {
        let end = Instant::now() + time;
        while self.count(name) <= before && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub fn fill(&self, to: &mut [u8], place: u64) {
        pattern::fill(to, place);
        if let (true, Some(byte)) = (self.corrupt, to.first_mut()) {
            *byte ^= 1;
        }
    }
}

/// Returns the offset behind the bytes, if the bytes are right.
pub fn check(bytes: &[u8], place: u64) -> Result<u64> {
    match pattern::wrong(bytes, place) {
        Some(at) => Err(format!(
            "WRONG DATA: byte {at} is not the one that was sent"
        )),
        None => Ok(place + bytes.len() as u64),
    }
}
