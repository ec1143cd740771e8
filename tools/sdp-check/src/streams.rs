// SPDX-License-Identifier: GPL-2.0-only

//! Paths that are byte streams: one end sends until its time is over, the other checks the bytes.

use crate::numbers::Numbers;
use crate::path::Path;
use crate::signal::Interrupter;
use crate::trial::{buffer, check, told, Result, Trial};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// Size of a send or receive call on the zero-copy paths: less than one SDP transfer.
pub const BLOCK: usize = 1 << 20;
/// Minimum size for zero copy, and size of calls that must not use it.
pub const SMALL: usize = 64 << 10;
/// Time beyond the requested one for at least one block to take the path.
const PATIENCE: Duration = Duration::from_secs(40);
/// Time that each end waits for a line of the other end.
const ANSWER: Duration = Duration::from_secs(60);

impl Trial<'_> {
    /// Sends blocks until the time is over and some of them have taken the path. Returns the number
    /// of bytes.
    pub fn send_stream(&mut self, zero_copy: usize, block: usize, path: &str) -> Result<Numbers> {
        // a connection that has fallen back to TCP lacks the option
        let _ = self.data().zero_copy(zero_copy as i32);
        let (start, mut place, mut adverts) = (Instant::now(), 0, 0);
        let mut bytes = buffer(block);
        while place == 0
            || start.elapsed() < self.time
            || (!path.is_empty() && self.count(path) == 0 && start.elapsed() < self.time + PATIENCE)
        {
            if self.path == Path::Write && place > 0 {
                // the receiver advertises again for each block; the sender does not wait for an
                // advert that does not come
                self.more_than("sink_avail_received", adverts, Duration::from_millis(800));
            }
            adverts = self.count("sink_avail_received");
            self.fill(&mut bytes, place);
            self.data().send_all(&bytes).map_err(told("send"))?;
            place += block as u64;
        }
        self.data().end_sending().map_err(told("shutdown"))?;
        self.control.say(&format!("sent {place}"))?;
        // when the other end has received all bytes and closes, all counters are final
        self.data().recv_all(&mut [0]).map_err(told("recv"))?;
        Ok(Numbers::new("bytes", place))
    }

    pub fn receive_stream(&mut self) -> Result<Numbers> {
        let mut bytes = buffer(BLOCK);
        let (mut place, mut adverts) = (0, 0);
        loop {
            let got = match self.path {
                Path::Read => {
                    // poll(2) would refuse the sender's advert; recv(2) reads it by RDMA
                    self.more_than("src_avail_received", adverts, Duration::from_secs(1));
                    adverts = self.count("src_avail_received");
                    self.data().recv_all(&mut bytes)
                }
                Path::Write if place >= BLOCK as u64 => self.data().recv_all(&mut bytes),
                Path::Write => {
                    // first receives by copy: that shows the sender that this end accepts adverts
                    let left = BLOCK - place as usize;
                    self.data().wait(libc::POLLIN).map_err(told("recv"))?;
                    match self.data().recv(&mut bytes[..left], libc::MSG_DONTWAIT) {
                        Err(e) if e.kind() == ErrorKind::TimedOut => continue,
                        other => other,
                    }
                }
                _ => {
                    self.data().bound().map_err(told("recv"))?;
                    self.data().recv(&mut bytes, 0)
                }
            };
            match got.map_err(told("recv"))? {
                0 => break,
                n => place = check(&bytes[..n], place)?,
            }
        }
        let sent = self.control.expect("sent", ANSWER)?;
        if sent != place.to_string() {
            return Err(format!("{sent} bytes were sent, {place} arrived"));
        }
        Ok(Numbers::new("bytes", place))
    }

    /// Sends large blocks that signals interrupt. The receiver reads only after the sender has
    /// reported the return values.
    pub fn send_interrupted(&mut self) -> Result<Numbers> {
        let _ = self.data().zero_copy(SMALL as i32);
        let (start, mut place, mut rounds) = (Instant::now(), 0, 0);
        let mut bytes = buffer(4 * BLOCK);
        while rounds == 0 || start.elapsed() < self.time {
            self.fill(&mut bytes, place);
            self.data().bound().map_err(told("send"))?;
            let before = self.count("src_avail_sent");
            let done = {
                let _interrupter = Interrupter::start(self.data(), before);
                self.data().send(&bytes, 0)
            };
            match done {
                Ok(n) => place += n as u64,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(told("send")(e)),
            }
            rounds += 1;
            self.control.say(&format!("sent {place}"))?;
            self.control.expect("read", ANSWER)?;
        }
        self.control.say("sent over")?;
        Ok(Numbers::new("bytes", place).with("rounds", rounds))
    }

    pub fn receive_told(&mut self) -> Result<Numbers> {
        let mut bytes = buffer(BLOCK);
        let mut place: u64 = 0;
        loop {
            let sent = self.control.expect("sent", ANSWER)?;
            if sent == "over" {
                return Ok(Numbers::new("bytes", place));
            }
            let sent: u64 = sent.parse().map_err(|_| "a count that is no number")?;
            while place < sent {
                let size = (sent - place).min(BLOCK as u64) as usize;
                let n = self
                    .data()
                    .recv_all(&mut bytes[..size])
                    .map_err(told("recv"))?;
                if n == 0 {
                    return Err(format!("{sent} bytes were sent, {place} arrived"));
                }
                place = check(&bytes[..n], place)?;
            }
            self.control.say("read")?;
        }
    }

    /// Sends without a pause; the other end counts the bytes.
    pub fn flood(&mut self, zero_copy: usize, block: usize) -> Result<Numbers> {
        let _ = self.data().zero_copy(zero_copy as i32);
        let bytes = buffer(block);
        let start = Instant::now();
        while start.elapsed() < self.time {
            self.data().send_all(&bytes).map_err(told("send"))?;
        }
        self.data().end_sending().map_err(told("shutdown"))?;
        Ok(Numbers::default())
    }

    /// Receives to the end of the stream. Returns the number of bytes, and the microseconds since
    /// the first byte.
    pub fn drain(&mut self) -> Result<Numbers> {
        let mut bytes = buffer(BLOCK);
        self.data().wait(libc::POLLIN).map_err(told("recv"))?;
        let (start, mut place) = (Instant::now(), 0);
        loop {
            match self.data().recv_all(&mut bytes).map_err(told("recv"))? {
                0 => break,
                n => place += n as u64,
            }
        }
        let micros = start.elapsed().as_micros().max(1) as u64;
        Ok(Numbers::new("bytes", place).with("micros", micros))
    }
}
