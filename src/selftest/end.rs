// SPDX-License-Identifier: GPL-2.0-only

//! Endpoints of connections that are detached from their sockets.

use crate::conn::SdpSock;
use crate::memory::budget::Account;
use crate::memory::pinned::Pinning;
use crate::sys::net::selftest::{destination, source};
use crate::sys::pin::PinTerm;
use crate::transport::{BlockId, Endpoint, Key, SendCompletion, Status};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{new_spinlock, Arc, SpinLock};

/// One end of a connection, detached from its socket.
pub(super) struct End {
    pub(super) sk: ARef<SdpSock>,
    /// Under a spinlock, as in a connection.
    endpoint: Pin<KBox<SpinLock<Option<Endpoint>>>>,
    account: Arc<Account>,
    pinning: Pinning,
    /// Bytes of complete transfers.
    pub(super) moved: u32,
    /// Invalidations completed.
    pub(super) ended: u32,
    /// First failure.
    pub(super) failed: Option<Status>,
    pub(super) kept: KVec<KVec<u8>>,
    /// Number of messages that the peer has acknowledged.
    pub(super) sent: u64,
    /// Set if receive buffers are not posted again.
    pub(super) starving: bool,
    /// Set if dropping the end does not notify the peer.
    pub(super) silent: bool,
}

impl End {
    pub(super) fn of(sk: ARef<SdpSock>) -> Result<Self> {
        let account = sk.account().ok_or(ENODEV)?.clone();
        let mut endpoint = sk.connection().take_endpoint().ok_or(ENODEV)?;
        let pinning = endpoint.spares().pinning().clone();
        Ok(End {
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
        })
    }

    /// Calls a function with the endpoint, under the lock.
    pub(super) fn on<R>(&self, f: impl FnOnce(&mut Endpoint) -> R) -> Result<R> {
        Option::as_mut(&mut *self.endpoint.lock())
            .map(f)
            .ok_or(ENODEV)
    }

    pub(super) fn poll(&mut self) -> Result {
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

    /// Stores the reason of a failure; flushed requests have none.
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
    pub(super) fn post_block(
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
            false => source(address, len, |s| p.pin_source(s, len, term, &self.account))?,
        };
        if pinned? != len {
            return Err(EFAULT);
        }
        self.on(|c| c.post_block(p))?.map_err(|_| ENOSPC)
    }

    /// Posts a block and gives the peer access.
    pub(super) fn advertise(
        &mut self,
        what: (usize, usize),
        written: bool,
    ) -> Result<(BlockId, Key)> {
        let block = self.post_block(what, written, PinTerm::Long)?;
        let key = self.on(|c| {
            c.register(block)
                .and_then(|key| c.flush().map(|()| key))
        })??;
        Ok((block, key))
    }

    /// Takes memory back for reuse.
    pub(super) fn take_back(&mut self, block: BlockId) -> Result {
        let spare = self.on(|c| c.take_back(block))??.into_spare();
        self.on(|c| c.spares().keep(spare))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        *self.endpoint.lock() = None;
        if self.silent {
            return;
        }
        if let Some(link) = &self.sk.connection().link() {
            link.fail();
        }
    }
}
