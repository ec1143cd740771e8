// SPDX-License-Identifier: GPL-2.0-only

//! A raw peer: one end of a connection, controlled by a program without SDP's rules.
//!
//! The program connects or accepts a socket, writes `take`, and acts as the peer from then on. A
//! raw peer receives each message as it arrives, and posts any bytes as messages. A raw peer also
//! advertises its memory, and READs or WRITEs the memory of its peer.
//!
//! * `private FD ADDRESS LENGTH`: sets the private data of the socket's request, or of a listener's
//!   replies, instead of Hello or HelloAck.
//! * `take FD OUT`: takes the endpoint. OUT: MSeq of the last sent and last received message.
//! * `send FD ADDRESS LENGTH`: posts a message. `EAGAIN`: retry after a completion.
//! * `next FD OUT ROOM`: returns length and bytes of the next received message. `EAGAIN`: none.
//! * `state FD OUT`: returns the numbers of [`state`].
//! * `starve FD 0/1`: stops or continues posting receive buffers.
//! * `advertise FD ADDRESS LENGTH read/write OUT`: pins memory and grants access. OUT: address, key
//!   and handle. `EFAULT`, `ENOSPC`. `ENOBUFS`: the memory exceeds the limit. `EPERM`:
//!   RLIMIT_MEMLOCK.
//! * `withdraw FD HANDLE`: ends the access.
//! * `pin FD ADDRESS LENGTH from/into OUT`: pins memory for transfers. OUT: handle. Same errors.
//! * `read/write FD HANDLE OFFSET LENGTH ADDRESS RKEY OUT`: posts a transfer or its first part.
//!   OUT: number of bytes posted. `EAGAIN`: retry after a completion.
//! * `back FD HANDLE`: releases memory. `EBUSY`: the device may still access the memory.
//! * `drop FD`: destroys the queue pair without notifying the peer.
//! * `fail FD`: destroys the queue pair and sends DREQ.
//! * `leave FD`: sends DREQ; the queue pair stays for a while.
//! * `tidy`: drops the raw peers of closed sockets, as every command does.
//!
//! OUT and ADDRESS are addresses in the program's memory. Results are numbers of 64 bits.

use super::end::End;
use crate::conn::{SdpSock, Socket};
use crate::sys::errno::EAGAIN;
use crate::sys::net::selftest::{destination, socket_of, source};
use crate::sys::pin::PinTerm;
use crate::sys::rdma::buffer::{Buffer, Sge};
use crate::sys::rdma::dma::Direction;
use crate::transport::{BlockId, SendWr, Status, Transfer};
use core::str::SplitAsciiWhitespace;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Mutex;

/// Maximum number of messages queued for the program; with more, no receive buffers are posted.
const MOST_KEPT: usize = 4096;

pub(super) type Raws = Mutex<KVec<Raw>>;

pub(super) struct Raw {
    end: End,
    /// Posted memory blocks, each with the program's number.
    entries: KVec<(u64, BlockId)>,
    handles: u64,
    posted: u64,
}

/// Returns the next word as a number.
fn number(words: &mut SplitAsciiWhitespace<'_>) -> Result<usize> {
    let word = words.next().ok_or(EINVAL)?;
    word.parse().map_err(|_| EINVAL)
}

/// Copies numbers to the program.
fn give(out: usize, numbers: &[u64]) -> Result {
    for (i, n) in numbers.iter().enumerate() {
        give_bytes(out + 8 * i, &n.to_ne_bytes())?;
    }
    Ok(())
}

fn give_bytes(out: usize, bytes: &[u8]) -> Result {
    match destination(out, bytes.len(), |d| d.give(bytes))? {
        n if n == bytes.len() => Ok(()),
        _ => Err(EFAULT),
    }
}

fn take_bytes(from: usize, to: &mut [u8]) -> Result {
    match source(from, to.len(), |s| s.take(to))? {
        n if n == to.len() => Ok(()),
        _ => Err(EFAULT),
    }
}

/// Executes a command.
pub(super) fn run(raws: &Raws, mut words: SplitAsciiWhitespace<'_>) -> Result {
    let mut raws = raws.lock();
    raws.retain(|raw| !raw.end.sk.connection().orphaned());
    let command = words.next().ok_or(EINVAL)?;
    if command == "tidy" {
        return Ok(());
    }
    let sk = socket_of::<Socket>(i32::try_from(number(&mut words)?)?)?;
    match command {
        "private" => return private(&sk, number(&mut words)?, number(&mut words)?),
        "take" => {
            let numbers = sk.connection().sequence();
            let end = End::of(sk)?;
            give(number(&mut words)?, &numbers)?;
            let raw = Raw {
                end,
                entries: KVec::new(),
                handles: 0,
                posted: 0,
            };
            return Ok(raws.push(raw, GFP_KERNEL)?);
        }
        _ => {}
    }
    let at = raws
        .iter()
        .position(|raw| core::ptr::eq(&*raw.end.sk, &*sk));
    let at = at.ok_or(ENOENT)?;
    match command {
        "drop" | "fail" => {
            let mut raw = raws.remove(at).map_err(|_| ENOENT)?;
            raw.end.silent = command == "drop";
            Ok(())
        }
        _ => {
            let raw = raws.get_mut(at).ok_or(ENOENT)?;
            // Without an endpoint no completion can arrive.
            let _ = raw.end.poll();
            raw.end.starving |= raw.end.kept.len() > MOST_KEPT;
            raw.run(command, &mut words)
        }
    }
}

fn private(sk: &ARef<SdpSock>, from: usize, len: usize) -> Result {
    let mut bytes = [0; 196];
    take_bytes(from, bytes.get_mut(..len).ok_or(EINVAL)?)?;
    sk.connection().set_private_data(bytes);
    Ok(())
}

/// `ENOSPC` would look like a real failure to the program.
fn again(e: Error) -> Error {
    match e {
        e if e == ENOSPC => EAGAIN.into(),
        e => e,
    }
}

impl Raw {
    fn run(&mut self, command: &str, words: &mut SplitAsciiWhitespace<'_>) -> Result {
        match command {
            "send" => self.send(number(words)?, number(words)?),
            "next" => self.next(number(words)?, number(words)?),
            "state" => give(number(words)?, &self.state()),
            "starve" => {
                self.end.starving = number(words)? != 0;
                Ok(())
            }
            "advertise" => self.advertise(words),
            "withdraw" => {
                let block = self.block(number(words)?)?;
                self.end
                    .on(|c| c.invalidate(block, 0).and_then(|()| c.flush()))?
            }
            "pin" => self.pin(words),
            "read" | "write" => self.transfer(command == "read", words),
            "back" => {
                let handle = number(words)?;
                let (block, at) = (self.block(handle)?, self.place(handle)?);
                self.end.take_back(block)?;
                let _ = self.entries.remove(at);
                Ok(())
            }
            "leave" => {
                let link = self.end.sk.connection().link();
                if let Some(link) = link {
                    link.disconnect();
                }
                Ok(())
            }
            _ => Err(EINVAL),
        }
    }

    fn advertise(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Result {
        let what = (number(words)?, number(words)?);
        let written = match words.next() {
            Some("read") => false,
            Some("write") => true,
            _ => return Err(EINVAL),
        };
        let (block, key) = self.end.advertise(what, written)?;
        let handle = self.keep(block)?;
        give(number(words)?, &[key.address, key.rkey.into(), handle])
    }

    fn pin(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Result {
        let what = (number(words)?, number(words)?);
        let written = match words.next() {
            Some("from") => false,
            Some("into") => true,
            _ => return Err(EINVAL),
        };
        let block = self.end.post_block(what, written, PinTerm::Short)?;
        let handle = self.keep(block)?;
        give(number(words)?, &[handle])
    }

    fn transfer(&mut self, read: bool, words: &mut SplitAsciiWhitespace<'_>) -> Result {
        let block = self.block(number(words)?)?;
        let t = Transfer {
            read,
            offset: number(words)? as u32,
            len: number(words)? as u32,
            address: number(words)? as u64,
            rkey: number(words)? as u32,
            cookie: 0,
        };
        let queued = self.end.on(|c| {
            let n = c.transfer(block, &t)?;
            c.flush()?;
            Ok(n)
        })?;
        give(number(words)?, &[queued.map_err(again)?.into()])
    }

    fn send(&mut self, from: usize, len: usize) -> Result {
        let mut buffer = Buffer::new(len.next_power_of_two().max(512), GFP_KERNEL)?;
        take_bytes(from, buffer.bytes_mut().get_mut(..len).ok_or(EINVAL)?)?;
        let posted = self.posted + 1;
        let mapper = self.end.on(|c| c.mapper().clone())?;
        buffer.map(&mapper, Direction::ToDevice, GFP_KERNEL)?;
        let r = self.end.on(|c| {
            let sge = Sge {
                buffer: &buffer,
                offset: 0,
                len: len as u32,
            };
            c.post_send(&SendWr {
                header: &[],
                payload: &[sge],
                signaled: true,
                solicited: false,
                cookie: posted,
            })?;
            c.flush()
        })?;
        r.map_err(again)?;
        self.posted = posted;
        Ok(())
    }

    fn next(&mut self, out: usize, space: usize) -> Result {
        let message = self.end.kept.remove(0);
        let message = message.map_err(|_| Error::from(EAGAIN))?;
        let shown = message.get(..message.len().min(space)).unwrap_or_default();
        give(out, &[message.len() as u64])?;
        give_bytes(out + 8, shown)
    }

    /// Error (0: none; otherwise the code defined here), messages posted, messages received,
    /// messages waiting for the program, bytes moved by transfers, ends of access, and posted
    /// receive buffers.
    fn state(&self) -> [u64; 7] {
        let failed = match self.end.failed {
            None => 0,
            Some(Status::Flushed) => 1,
            Some(Status::TransportRetry) => 2,
            Some(Status::RnrRetry) => 3,
            Some(Status::Remote) => 4,
            Some(Status::Protocol) => 5,
            Some(Status::Local) => 6,
        };
        [
            failed,
            self.posted,
            self.end.sent,
            self.end.kept.len() as u64,
            self.end.moved.into(),
            self.end.ended.into(),
            self.end.on(|c| c.posted_receives()).unwrap_or(0).into(),
        ]
    }

    fn keep(&mut self, block: BlockId) -> Result<u64> {
        self.handles += 1;
        self.entries.push((self.handles, block), GFP_KERNEL)?;
        Ok(self.handles)
    }

    fn place(&self, handle: usize) -> Result<usize> {
        let found = self.entries.iter().position(|(n, ..)| *n == handle as u64);
        found.ok_or(ENOENT)
    }

    fn block(&self, handle: usize) -> Result<BlockId> {
        let at = self.place(handle)?;
        self.entries.get(at).map(|(_, block)| *block).ok_or(ENOENT)
    }
}
