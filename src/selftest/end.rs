// SPDX-License-Identifier: GPL-2.0-only

//! One end of a connection, taken away from its socket.

use crate::conn::{SdpSock, Socket};
use crate::memory::budget::Account;
use crate::sys::net::selftest::{destination, socket_of, source};
use crate::sys::pin::Hold;
use crate::transport::{
    Access, Channel, Completion, Key, Loan, Pinned, Pinning, SendCompletion, Sending, Status,
    Transport, Watch,
};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{new_spinlock, Arc, SpinLock};

/// A message that tells the other end that it is its turn.
const TOKEN: [u8; 33] = *b"this message is no message of SDP";

/// One end of the connection, taken away from its socket.
pub(super) struct End {
    pub(super) sk: ARef<SdpSock>,
    /// Under a spinlock, as a connection has it.
    pub(super) channel: Pin<KBox<SpinLock<Option<Channel>>>>,
    pub(super) account: Arc<Account>,
    pub(super) pinning: Pinning,
    /// Tokens that have come.
    pub(super) tokens: u32,
    /// Bytes of transfers that are complete.
    pub(super) moved: u32,
    /// Ends of access.
    pub(super) ended: u32,
    /// The first failure.
    pub(super) failed: Option<Status>,
    /// Messages that have come, if they are to be kept.
    pub(super) kept: Option<KVec<KVec<u8>>>,
    /// Messages that the other end has.
    pub(super) sent: u64,
    /// What a message came into is not posted again.
    pub(super) starving: bool,
    /// The other end is not told of the end.
    pub(super) silent: bool,
}

impl End {
    pub(super) fn of(fd: usize) -> Result<Self> {
        Self::of_socket(socket_of::<Socket>(i32::try_from(fd)?)?)
    }

    pub(super) fn of_socket(sk: ARef<SdpSock>) -> Result<Self> {
        let account = sk.account().ok_or(ENODEV)?.clone();
        let channel = sk.connection().take_channel().ok_or(ENODEV)?;
        let pinning = channel.pinning().ok_or(ENODEV)?;
        Ok(End {
            sk,
            channel: KBox::pin_init(new_spinlock!(Some(channel)), GFP_KERNEL)?,
            account,
            pinning,
            tokens: 0,
            moved: 0,
            ended: 0,
            failed: None,
            kept: None,
            sent: 0,
            starving: false,
            silent: false,
        })
    }

    /// Does something with the channel, under the lock.
    pub(super) fn on<R>(&self, f: impl FnOnce(&mut Channel) -> R) -> Result<R> {
        Option::as_mut(&mut *self.channel.lock())
            .map(f)
            .ok_or(ENODEV)
    }

    pub(super) fn poll(&mut self) -> Result {
        while let Some(c) = self.on(|c| c.poll_receive()).ok().flatten() {
            match c {
                Completion::Received { buffer, len, .. } => {
                    let whole = buffer.bytes().get(..len as usize).ok_or(EINVAL)?;
                    self.tokens += u32::from(whole == TOKEN);
                    if let Some(kept) = &mut self.kept {
                        let mut copy = KVec::with_capacity(whole.len(), GFP_KERNEL)?;
                        copy.extend_from_slice(whole, GFP_KERNEL)?;
                        kept.push(copy, GFP_KERNEL)?;
                    }
                    if !self.starving {
                        // The queue may be broken by now.
                        let _ = self.on(|c| c.post_receive(buffer))?;
                    }
                }
                Completion::Failed { status, .. } => {
                    self.note(status);
                }
            }
        }
        while let Some(c) = self.on(|c| c.poll_send()).ok().flatten() {
            match c {
                SendCompletion::Sent { cookie } => self.sent = cookie,
                SendCompletion::Moved { len, .. } => self.moved += len,
                SendCompletion::Ended { .. } => self.ended += 1,
                SendCompletion::Failed { status, .. } => {
                    self.note(status);
                }
            }
        }
        let _ = self.on(|c| c.flush());
        Ok(())
    }

    /// Keeps the reason of a failure, which what is flushed does not tell.
    pub(super) fn note(&mut self, status: Status) {
        if matches!(self.failed, None | Some(Status::Flushed)) {
            self.failed = Some(status);
        }
    }

    /// Whether something was refused. Now and then rxe's NAK does not come, and what is repeated is
    /// not answered by a queue pair that has failed.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.failed, Some(Status::Remote | Status::TransportRetry))
    }

    /// Says that it is the other end's turn.
    pub(super) fn token(&mut self) -> Result {
        let token = Sending {
            header: &TOKEN,
            payload: &[],
            signaled: true,
            solicited: false,
            cookie: 0,
        };
        self.on(|c| c.post_send(&token).and_then(|()| c.flush()))?
    }

    pub(super) fn room(&mut self, piece: Option<(usize, usize)>) -> Result<Pinned> {
        let piece = piece.ok_or(EFAULT)?;
        match self.on(|c| c.spare_for(piece))? {
            Some(p) => Ok(p),
            None => self.pinning.make(),
        }
    }

    /// Pins `len` bytes to be sent.
    pub(super) fn pin_source(&mut self, address: usize, len: usize, hold: Hold) -> Result<Pinned> {
        let mut p = self.room(source(address, len, |s| s.piece(len))?)?;
        let r = source(address, len, |s| {
            let r = p.pin_source(s, len, hold, &self.account);
            (r, s.remaining())
        })?;
        check!(r == (Ok(len), len));
        check!(p.len() == len);
        Ok(p)
    }

    /// Pins `len` bytes to be received.
    pub(super) fn pin_destination(
        &mut self,
        address: usize,
        len: usize,
        hold: Hold,
    ) -> Result<Pinned> {
        let mut p = self.room(destination(address, len, |d| d.piece(len))?)?;
        let r = destination(address, len, |d| {
            let r = p.pin_destination(d, len, hold, &self.account);
            (r, d.room())
        })?;
        check!(r == (Ok(len), len));
        Ok(p)
    }

    pub(super) fn lend(&mut self, p: Pinned) -> Result<(Loan, Watch)> {
        let watch = p.watch().ok_or(EINVAL)?;
        check!(watch.is_held());
        let loan = self.on(|c| c.lend(p))?.map_err(|_| EINVAL)?;
        Ok((loan, watch))
    }

    /// Lends memory and gives the peer access.
    pub(super) fn advertise(&mut self, p: Pinned, access: Access) -> Result<(Loan, Watch, Key)> {
        let (loan, watch) = self.lend(p)?;
        let key = self.on(|c| c.register(loan, access))??;
        check!(self.on(|c| c.register(loan, access))? == Err(EBUSY));
        check!(self.on(|c| c.reclaim(loan))?.is_err());
        Ok((loan, watch, key))
    }

    /// Takes memory back, and lets go of it.
    pub(super) fn give_up(&mut self, loan: Loan, watch: &Watch) -> Result {
        let mut p = self.on(|c| c.reclaim(loan))??;
        check!(watch.is_held());
        p.release();
        check!(!watch.is_held());
        check!(self.on(|c| c.reclaim(loan))?.is_err());
        self.on(|c| c.keep(p))?;
        Ok(())
    }

    /// Drops the channel, as the end of a connection does.
    pub(super) fn end(&mut self) {
        *self.channel.lock() = None;
    }
}

impl Drop for End {
    fn drop(&mut self) {
        *self.channel.lock() = None;
        if self.silent {
            return;
        }
        if let Some(link) = &self.sk.connection().link() {
            link.fail();
        }
    }
}
