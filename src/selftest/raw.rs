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

use crate::conn::{SdpSock, Socket};
use crate::memory::budget::Account;
use crate::memory::pinned::Pinning;
use crate::sys::errno::EAGAIN;
use crate::sys::net::selftest::{destination, socket_of, source};
use crate::sys::pin::PinTerm;
use crate::sys::rdma::buffer::{Buffer, Sge};
use crate::transport::{BlockId, Endpoint, SendCompletion, SendWr, Status, Transfer};
use core::str::SplitAsciiWhitespace;
use kernel::dma::DataDirection as Direction;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{new_spinlock, Arc, Mutex, SpinLock};

/// Maximum number of messages queued for the program; with more, no receive buffers are posted.
const MOST_KEPT: usize = 4096;

pub(super) type Raws = Mutex<KVec<Raw>>;

/// One end of a connection, detached from its socket.
pub(super) struct Raw {
    sk: ARef<SdpSock>,
    /// The endpoint is under a spinlock, as in a connection.
    endpoint: Pin<KBox<SpinLock<Option<Endpoint>>>>,
    account: Arc<Account>,
    pinning: Pinning,
    /// Bytes of complete transfers.
    moved: u32,
    /// Invalidations completed.
    ended: u32,
    /// First failure.
    failed: Option<Status>,
    kept: KVec<KVec<u8>>,
    /// Number of messages that the peer has acknowledged.
    sent: u64,
    /// Set if receive buffers are not posted again.
    starving: bool,
    /// Set if the drop of the raw peer does not notify the peer.
    silent: bool,
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
    raws.retain(|raw| !raw.sk.connection().closing.is_orphaned());
    let command = words.next().ok_or(EINVAL)?;
    if command == "tidy" {
        return Ok(());
    }
    let sk = socket_of::<Socket>(i32::try_from(number(&mut words)?)?)?;
    match command {
        "private" => return private(&sk, number(&mut words)?, number(&mut words)?),
        "take" => {
            let numbers = sk
                .connection()
                .protocol
                .as_ref()
                .map_or([0; 2], |p| [p.mseq_sent().into(), p.mseq_received().into()]);
            let raw = Raw::of(sk)?;
            give(number(&mut words)?, &numbers)?;
            return Ok(raws.push(raw, GFP_KERNEL)?);
        }
        _ => {}
    }
    let at = raws.iter().position(|raw| core::ptr::eq(&*raw.sk, &*sk));
    let at = at.ok_or(ENOENT)?;
    match command {
        "drop" | "fail" => {
            let mut raw = raws.remove(at).map_err(|_| ENOENT)?;
            raw.silent = command == "drop";
            Ok(())
        }
        _ => {
            let raw = raws.get_mut(at).ok_or(ENOENT)?;
            // Without an endpoint no completion can arrive.
            let _ = raw.poll();
            raw.starving |= raw.kept.len() > MOST_KEPT;
            raw.run(command, &mut words)
        }
    }
}

fn private(sk: &ARef<SdpSock>, from: usize, len: usize) -> Result {
    let mut bytes = [0; 196];
    take_bytes(from, bytes.get_mut(..len).ok_or(EINVAL)?)?;
    sk.connection().options.private_data = Some(bytes);
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
    fn of(sk: ARef<SdpSock>) -> Result<Self> {
        let account = sk.account().ok_or(ENODEV)?.clone();
        let mut endpoint = sk.connection().endpoint.take().ok_or(ENODEV)?;
        let pinning = endpoint.spares().pinning().clone();
        Ok(Raw {
            sk,
            endpoint: KBox::pin_init(new_spinlock!(Some(endpoint)), GFP_KERNEL)?,
            account,
            pinning,
            moved: 0,
            ended: 0,
            failed: None,
            kept: KVec::new(),
            sent: 0,
            starving: false,
            silent: false,
            entries: KVec::new(),
            handles: 0,
            posted: 0,
        })
    }

    /// Calls a function with the endpoint, under the lock.
    fn on<R>(&self, f: impl FnOnce(&mut Endpoint) -> R) -> Result<R> {
        Option::as_mut(&mut *self.endpoint.lock())
            .map(f)
            .ok_or(ENODEV)
    }

    fn poll(&mut self) -> Result {
        while let Some(c) = self.on(|c| c.poll_receive()).ok().flatten() {
            match c {
                Ok((buffer, len)) => {
                    let whole = buffer.bytes().get(..len as usize).ok_or(EINVAL)?;
                    let mut copy = KVec::with_capacity(whole.len(), GFP_KERNEL)?;
                    copy.extend_from_slice(whole, GFP_KERNEL)?;
                    self.kept.push(copy, GFP_KERNEL)?;
                    if !self.starving {
                        // The queue may already be in the error state.
                        let _ = self.on(|c| c.post_receive(buffer))?;
                    }
                }
                Err(status) => self.note(status),
            }
        }
        while let Some(c) = self.on(|c| c.poll_send()).ok().flatten() {
            match c {
                SendCompletion::Sent { cookie } => self.sent = cookie,
                SendCompletion::Moved { len, .. } => self.moved += len,
                SendCompletion::Ended { .. } => self.ended += 1,
                SendCompletion::Failed { status } => self.note(status),
            }
        }
        let _ = self.on(|c| c.flush());
        Ok(())
    }

    /// Stores the reason of a failure; flushed requests have no reason of their own.
    fn note(&mut self, status: Status) {
        if matches!(self.failed, None | Some(Status::Flushed)) {
            self.failed = Some(status);
        }
    }

    /// Pins `len` bytes, posted as a block for the device to write (`written`) or read.
    ///
    /// # Errors
    ///
    /// `EFAULT`. `ENOBUFS`: the memory exceeds the limit. `EPERM`: RLIMIT_MEMLOCK. `ENOSPC`: too
    /// many blocks are posted.
    fn post_block(
        &mut self,
        (address, len): (usize, usize),
        written: bool,
        term: PinTerm,
    ) -> Result<BlockId> {
        let piece = match written {
            true => destination(address, len, |d| d.piece(len))?,
            false => source(address, len, |s| s.piece(len))?,
        };
        let piece = piece.ok_or(EFAULT)?;
        let mut p = match self.on(|c| c.spares().best_for(piece))? {
            Some(p) => p,
            None => self.pinning.make()?,
        };
        let pinned = match written {
            true => destination(address, len, |d| {
                p.pin_destination(d, len, term, &self.account)
            })?,
            false => source(address, len, |s| p.pin_source(s, len, &self.account))?,
        };
        if pinned? != len {
            return Err(EFAULT);
        }
        self.on(|c| c.post_block(p))?.map_err(|_| ENOSPC)
    }

    fn run(&mut self, command: &str, words: &mut SplitAsciiWhitespace<'_>) -> Result {
        match command {
            "send" => self.send(number(words)?, number(words)?),
            "next" => self.next(number(words)?, number(words)?),
            "state" => give(number(words)?, &self.state()),
            "starve" => {
                self.starving = number(words)? != 0;
                Ok(())
            }
            "advertise" => self.pin(words, PinTerm::Long),
            "withdraw" => {
                let (_, block) = self.find(number(words)?)?;
                self.on(|c| c.invalidate(block, 0).and_then(|()| c.flush()))?
            }
            "pin" => self.pin(words, PinTerm::Short),
            "read" | "write" => self.transfer(command == "read", words),
            "back" => {
                let handle = number(words)?;
                let (at, block) = self.find(handle)?;
                let spare = self.on(|c| c.take_back(block))??.into_spare();
                let _ = self.entries.remove(at);
                self.on(|c| c.spares().keep(spare))
            }
            "leave" => {
                let link = self.sk.connection().cm.link.clone();
                link.inspect(|link| link.disconnect());
                Ok(())
            }
            _ => Err(EINVAL),
        }
    }

    /// Posts a block, and gives the peer access with [`PinTerm::Long`].
    fn pin(&mut self, words: &mut SplitAsciiWhitespace<'_>, term: PinTerm) -> Result {
        let what = (number(words)?, number(words)?);
        let written = match words.next() {
            Some("read" | "from") => false,
            Some("write" | "into") => true,
            _ => return Err(EINVAL),
        };
        let block = self.post_block(what, written, term)?;
        if term == PinTerm::Short {
            let handle = self.keep(block)?;
            return give(number(words)?, &[handle]);
        }
        let key = self.on(|c| c.register(block).and_then(|key| c.flush().map(|()| key)))??;
        let handle = self.keep(block)?;
        give(number(words)?, &[key.address, key.rkey.into(), handle])
    }

    fn transfer(&mut self, read: bool, words: &mut SplitAsciiWhitespace<'_>) -> Result {
        let (_, block) = self.find(number(words)?)?;
        let t = Transfer {
            read,
            offset: number(words)? as u32,
            len: number(words)? as u32,
            address: number(words)? as u64,
            rkey: number(words)? as u32,
            cookie: 0,
        };
        let queued = self.on(|c| {
            let n = c.transfer(block, &t)?;
            c.flush()?;
            Ok(n)
        })?;
        give(number(words)?, &[queued.map_err(again)?.into()])
    }

    fn send(&mut self, from: usize, len: usize) -> Result {
        let mut buffer = Buffer::new(len.next_power_of_two().max(512), GFP_KERNEL)?;
        take_bytes(from, buffer.bytes_mut().get_mut(..len).ok_or(EINVAL)?)?;
        let mapper = self.on(|c| c.mapper().clone())?;
        buffer.map(&mapper, Direction::ToDevice, GFP_KERNEL)?;
        // siw dereferences a null pointer if the first segment is empty and another one is not.
        let (header, _) = buffer.bytes().split_at(len.min(16));
        let r = self.on(|c| {
            let sge = Sge {
                buffer: &buffer,
                offset: header.len() as u32,
                len: (len - header.len()) as u32,
            };
            c.post_send(&SendWr {
                header,
                payload: [Some(sge), None],
                signaled: true,
                solicited: false,
                cookie: self.posted + 1,
            })?;
            c.flush()
        })?;
        r.map_err(again)?;
        self.posted += 1;
        Ok(())
    }

    fn next(&mut self, out: usize, space: usize) -> Result {
        let message = self.kept.remove(0).map_err(|_| Error::from(EAGAIN))?;
        let shown = message.get(..message.len().min(space)).unwrap_or_default();
        give(out, &[message.len() as u64])?;
        give_bytes(out + 8, shown)
    }

    /// Returns the error (0: none; otherwise its number in [`Status`], from 1 on), messages posted,
    /// messages received, messages waiting for the program, bytes moved by transfers, ends of
    /// access, and posted receive buffers.
    fn state(&self) -> [u64; 7] {
        [
            self.failed.map_or(0, |status| status as u64 + 1),
            self.posted,
            self.sent,
            self.kept.len() as u64,
            self.moved.into(),
            self.ended.into(),
            self.on(|c| c.posted_receives()).unwrap_or(0).into(),
        ]
    }

    fn keep(&mut self, block: BlockId) -> Result<u64> {
        self.handles += 1;
        self.entries.push((self.handles, block), GFP_KERNEL)?;
        Ok(self.handles)
    }

    /// Returns the place of a block in `entries`, and the block.
    fn find(&self, handle: usize) -> Result<(usize, BlockId)> {
        let mut entries = self.entries.iter().enumerate();
        let found = entries.find(|(_, (n, _))| *n == handle as u64);
        found.map(|(at, (_, block))| (at, *block)).ok_or(ENOENT)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        *self.endpoint.lock() = None;
        if self.silent {
            return;
        }
        if let Some(link) = &self.sk.connection().cm.link {
            link.fail();
        }
    }
}
