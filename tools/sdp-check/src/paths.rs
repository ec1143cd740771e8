// SPDX-License-Identifier: GPL-2.0-only

//! Steps of both ends on each path: one end sends, the other receives and checks each byte. The
//! ends read SDP_INFO instead of waiting for fixed times, so that slow and fast adapters take the
//! same path.

use crate::numbers::Numbers;
use crate::path::Path;
use crate::pattern;
use crate::sock::Data;
use crate::streams::{BLOCK, SMALL};
use crate::trial::{buffer, check, told, Result, Trial};
use std::time::Instant;

/// Bytes of each of many connections.
const EACH: usize = 4096;
const THERE: usize = 300_000;
const BACK: usize = 200_000;

impl Trial<'_> {
    /// Runs one end of the trial. Reads the transport at the beginning, because a closed connection
    /// no longer has one.
    pub fn run(mut self, sends: bool) -> Result<Numbers> {
        let begun = self.data().info().ok();
        let numbers = match sends {
            true => self.send(),
            false => self.receive(),
        }?;
        Ok(numbers.with_info(begun.as_ref(), self.data().info().ok().as_ref()))
    }

    fn send(&mut self) -> Result<Numbers> {
        let sent = told("send");
        match self.path {
            Path::Copied | Path::Either | Path::Fallback => self.send_stream(0, SMALL, ""),
            Path::Read => self.send_stream(SMALL, BLOCK, "tx_read"),
            Path::Write => self.send_stream(SMALL, BLOCK, "tx_written"),
            Path::Cancel => self.send_interrupted(),
            Path::HalfClose => self.send_half(),
            Path::Urgent => self.send_urgent(),
            Path::Many => {
                for (n, data) in self.data.iter().enumerate() {
                    let mut block = (n as u64).to_le_bytes().to_vec();
                    block.resize(EACH, 0);
                    self.fill(&mut block[8..], (n * EACH) as u64);
                    data.send_all(&block).map_err(&sent)?;
                }
                check_back(&self.data)
            }
            Path::Stream | Path::StreamTcp => self.flood(0, SMALL),
            Path::StreamZero => self.flood(SMALL, BLOCK),
            Path::Pong | Path::PongTcp => self.ping(),
        }
    }

    fn receive(&mut self) -> Result<Numbers> {
        match self.path {
            Path::Cancel => self.receive_told(),
            Path::HalfClose => self.receive_half(),
            Path::Urgent => self.receive_urgent(),
            Path::Many => check_each(&self.data),
            Path::Stream | Path::StreamZero | Path::StreamTcp => self.drain(),
            Path::Pong | Path::PongTcp => self.pong(),
            _ => self.receive_stream(),
        }
    }

    fn send_half(&mut self) -> Result<Numbers> {
        let mut bytes = buffer(THERE);
        self.fill(&mut bytes, 0);
        self.data().send_all(&bytes).map_err(told("send"))?;
        self.data().end_sending().map_err(told("shutdown"))?;
        self.whole(BACK)
    }

    fn receive_half(&mut self) -> Result<Numbers> {
        let numbers = self.whole(THERE)?;
        let mut bytes = buffer(BACK);
        pattern::fill(&mut bytes, 0);
        let answer = "send after the other end's shutdown";
        self.data().send_all(&bytes).map_err(told(answer))?;
        self.data().end_sending().map_err(told("shutdown"))?;
        Ok(numbers)
    }

    /// Receives a number of bytes, and the end of the stream behind them.
    fn whole(&self, size: usize) -> Result<Numbers> {
        let mut bytes = buffer(size + 1);
        let n = self.data().recv_all(&mut bytes).map_err(told("recv"))?;
        if n != size {
            return Err(format!(
                "{size} bytes and the end were sent, {n} bytes arrived"
            ));
        }
        check(&bytes[..n], 0).map(|place| Numbers::new("bytes", place))
    }

    fn send_urgent(&mut self) -> Result<Numbers> {
        let mut bytes = buffer(2000);
        self.fill(&mut bytes, 0);
        let (before, behind) = bytes.split_at(1000);
        self.data().send_all(before).map_err(told("send"))?;
        let urgent = self.data().send(b"!", libc::MSG_OOB);
        urgent.map_err(told("send of an urgent byte"))?;
        self.data().send_all(behind).map_err(told("send"))?;
        self.data().end_sending().map_err(told("shutdown"))?;
        Ok(Numbers::new("bytes", 2001))
    }

    fn receive_urgent(&mut self) -> Result<Numbers> {
        let data = self.data();
        let waited = "poll for the urgent byte";
        data.wait(libc::POLLPRI).map_err(told(waited))?;
        let mut urgent = [0];
        let got = data.recv(&mut urgent, libc::MSG_OOB);
        got.map_err(told("recv of the urgent byte"))?;
        if urgent != *b"!" {
            return Err("the urgent byte is wrong".into());
        }
        let mut bytes = buffer(3000);
        let n = data.recv_all(&mut bytes[..1000]).map_err(told("recv"))?;
        if n != 1000 || !data.at_mark().map_err(told("SIOCATMARK"))? {
            return Err(format!("the urgent byte is not behind byte 1000 of {n}"));
        }
        let n = n + data.recv_all(&mut bytes[1000..]).map_err(told("recv"))?;
        if n != 2000 {
            return Err(format!(
                "2000 bytes besides the urgent byte were sent, {n} arrived"
            ));
        }
        check(&bytes[..n], 0).map(|place| Numbers::new("bytes", place + 1))
    }

    /// Measures the median time of 64 bytes one way.
    fn ping(&mut self) -> Result<Numbers> {
        let data = self.data();
        data.no_delay().map_err(told("TCP_NODELAY"))?;
        let (start, mut message, mut times) = (Instant::now(), [7; 64], vec![]);
        data.bound().map_err(told("send"))?;
        while times.is_empty() || (start.elapsed() < self.time && times.len() < 200_000) {
            let sent = Instant::now();
            data.send(&message, 0).map_err(told("send"))?;
            let n = data
                .recv(&mut message, libc::MSG_WAITALL)
                .map_err(told("recv"))?;
            if n != message.len() {
                return Err(format!("{n} of 64 bytes came back"));
            }
            times.push(sent.elapsed() / 2);
        }
        data.end_sending().map_err(told("shutdown"))?;
        times.sort_unstable();
        let median = times[times.len() / 2].as_nanos() as u64;
        Ok(Numbers::new("nanos", median).with("rounds", times.len() as u64))
    }

    fn pong(&mut self) -> Result<Numbers> {
        let data = self.data();
        data.no_delay().map_err(told("TCP_NODELAY"))?;
        let mut message = [0; 64];
        data.bound().map_err(told("recv"))?;
        while data
            .recv(&mut message, libc::MSG_WAITALL)
            .map_err(told("recv"))?
            == 64
        {
            data.send(&message, 0).map_err(told("send"))?;
        }
        Ok(Numbers::default())
    }
}

/// Receives the bytes of each of many connections, which arrive in any order, and replies.
fn check_each(data: &[Data]) -> Result<Numbers> {
    let mut block = buffer(EACH);
    let mut seen = vec![false; data.len()];
    for one in data {
        if one.recv_all(&mut block).map_err(told("recv"))? < EACH {
            return Err(format!("one of {} connections ended early", data.len()));
        }
        let (number, bytes) = block.split_at(8);
        let n = number.iter().rev().fold(0, |n, b| (n << 8) | u64::from(*b));
        match usize::try_from(n).ok().and_then(|n| seen.get_mut(n)) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err("WRONG DATA: a connection has another's number".into()),
        }
        check(bytes, n * EACH as u64)?;
        one.send_all(number).map_err(told("send"))?;
    }
    Ok(Numbers::new("connections", data.len() as u64))
}

fn check_back(data: &[Data]) -> Result<Numbers> {
    for (n, one) in data.iter().enumerate() {
        let mut answer = [0; 8];
        if one.recv_all(&mut answer).map_err(told("recv"))? < answer.len() {
            return Err(format!("one of {} connections ended early", data.len()));
        }
        if u64::from_le_bytes(answer) != n as u64 {
            return Err(format!(
                "WRONG DATA: connection {n} has the answer of another"
            ));
        }
    }
    Ok(Numbers::new("connections", data.len() as u64))
}
