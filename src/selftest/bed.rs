// SPDX-License-Identifier: GPL-2.0-only

//! Two ends, and what is moved between them.

use super::end::End;
use crate::sys::pin::Hold;
use crate::transport::{Access, Key, Loan, Transfer, Transport};
use kernel::prelude::*;
use kernel::sync::atomic::{AtomicFlag, Full};
use kernel::time::delay::fsleep;
use kernel::time::{Delta, Instant, Monotonic};

/// How long anything may take, in milliseconds.
const PATIENCE: i64 = 100_000;

/// Both ends, and what is to be moved.
pub(super) struct Bed {
    /// Where the bytes are.
    pub(super) a: End,
    /// Where they are to go.
    pub(super) b: End,
    pub(super) source: usize,
    pub(super) destination: usize,
    pub(super) len: usize,
    /// Work requests that the last move took.
    pub(super) requests: u32,
    /// Wait for `go` when the memory is advertised.
    pub(super) pause: bool,
}

/// The program has written `go`.
pub(super) static GO: AtomicFlag = AtomicFlag::new(false);

impl Bed {
    /// Waits for the program, if it wants that.
    pub(super) fn pause(&mut self) -> Result {
        if !self.pause {
            return Ok(());
        }
        pr_info!("selftest: ready\n");
        self.until(|_| Ok(GO.xchg(false, Full)))
    }

    /// Polls both ends until something holds.
    pub(super) fn until(&mut self, mut what: impl FnMut(&mut Self) -> Result<bool>) -> Result {
        let start = Instant::<Monotonic>::now();
        loop {
            self.a.poll()?;
            self.b.poll()?;
            if what(self)? {
                return Ok(());
            }
            if start.elapsed().as_millis() > PATIENCE {
                let (a, b) = (self.a.failed, self.b.failed);
                pr_info!("selftest: waited in vain, with {:?} and {:?}\n", a, b);
                return Err(ETIMEDOUT);
            }
            fsleep(Delta::from_micros(100));
        }
    }

    /// Moves all bytes, by READs of `b` or WRITEs of `a`.
    pub(super) fn move_all(&mut self, read: bool, loan: Loan, key: Key) -> Result {
        let len = self.len as u32;
        let mut queued = 0;
        self.requests = 0;
        self.until(|bed| {
            let end = match read {
                true => &mut bed.b,
                false => &mut bed.a,
            };
            if end.is_refused() {
                return Err(EPIPE);
            }
            while queued < len {
                let t = Transfer {
                    read,
                    offset: queued,
                    len: len - queued,
                    address: key.address + u64::from(queued),
                    rkey: key.rkey,
                    cookie: 7,
                };
                match end.on(|c| c.transfer(loan, &t))? {
                    Ok(n) => {
                        queued += n;
                        bed.requests += 1;
                    }
                    Err(e) if e == ENOSPC => break,
                    Err(e) => return Err(e),
                }
            }
            end.on(|c| c.flush())??;
            // A WRITE's report goes behind it, without a wait.
            Ok(queued == len && (!read || end.moved == len))
        })
    }

    /// `b` READs what `a` advertises. Gives the key.
    pub(super) fn read(&mut self) -> Result<Key> {
        let (tokens_a, tokens_b, ended) = (self.a.tokens, self.b.tokens, self.a.ended);
        let p = self.a.pin_source(self.source, self.len, Hold::Long)?;
        let (loan, watch, key) = self.a.advertise(p, Access::Read)?;
        check!(key.len as usize == self.len);
        check!(key.address as usize % 4096 == self.source % 4096);
        check!(key.address >> 62 == 0);
        self.a.token()?;
        self.until(|bed| Ok(bed.b.tokens == tokens_b + 1))?;
        self.pause()?;

        self.b.moved = 0;
        let p = self
            .b
            .pin_destination(self.destination, self.len, Hold::Briefly)?;
        let (into, watch_b) = self.b.lend(p)?;
        self.move_all(true, into, key)?;
        self.b.give_up(into, &watch_b)?;
        self.b.token()?;
        self.until(|bed| Ok(bed.a.tokens == tokens_a + 1))?;

        self.a.on(|c| c.invalidate(loan, 3))??;
        check!(self.a.on(|c| c.invalidate(loan, 3))?.is_err());
        self.a.on(|c| c.flush())??;
        self.until(|bed| Ok(bed.a.ended == ended + 1))?;
        self.a.give_up(loan, &watch)?;
        Ok(key)
    }

    /// `a` WRITEs to what `b` advertises. Gives the key.
    pub(super) fn write(&mut self) -> Result<Key> {
        let (tokens_a, tokens_b, ended) = (self.a.tokens, self.b.tokens, self.b.ended);
        let p = self
            .b
            .pin_destination(self.destination, self.len, Hold::Long)?;
        let (loan, watch, key) = self.b.advertise(p, Access::Write)?;
        self.b.token()?;
        self.until(|bed| Ok(bed.a.tokens == tokens_a + 1))?;
        self.pause()?;

        self.a.moved = 0;
        let p = self.a.pin_source(self.source, self.len, Hold::Briefly)?;
        let (from, watch_a) = self.a.lend(p)?;
        self.move_all(false, from, key)?;
        self.a.token()?;
        self.until(|bed| Ok(bed.b.tokens == tokens_b + 1))?;

        self.b.on(|c| c.invalidate(loan, 4))??;
        self.b.on(|c| c.flush())??;
        self.until(|bed| Ok(bed.b.ended == ended + 1))?;
        self.b.give_up(loan, &watch)?;
        let len = self.len as u32;
        self.until(|bed| Ok(bed.a.moved == len))?;
        self.a.give_up(from, &watch_a)?;
        Ok(key)
    }

    /// `b` does what the key does not allow: it and the connection fail, and all memory is let go
    /// of, on either side.
    pub(super) fn refused(
        &mut self,
        access: Access,
        read: bool,
        bend: impl FnOnce(Key) -> Key,
    ) -> Result {
        let (p, into) = (
            match access {
                Access::Read => self.a.pin_source(self.source, self.len, Hold::Long)?,
                Access::Write => self.a.pin_destination(self.source, self.len, Hold::Long)?,
            },
            match read {
                true => self
                    .b
                    .pin_destination(self.destination, self.len, Hold::Briefly)?,
                false => self
                    .b
                    .pin_source(self.destination, self.len, Hold::Briefly)?,
            },
        );
        let (loan, watch, key) = self.a.advertise(p, access)?;
        self.a.token()?;
        self.until(|bed| Ok(bed.b.tokens == 1))?;
        let (into, watch_b) = self.b.lend(into)?;
        let key = bend(key);
        let t = Transfer {
            read,
            offset: 0,
            len: key.len,
            address: key.address,
            rkey: key.rkey,
            cookie: 1,
        };
        let queued = self.b.on(|c| c.transfer(into, &t))??;
        check!(queued == key.len || key.len > 50001);
        self.b.on(|c| c.flush())??;
        self.until(|bed| Ok(bed.b.is_refused()))?;
        check!(self.b.moved == 0);
        self.b.give_up(into, &watch_b)?;
        check!(self.a.on(|c| c.reclaim(loan))?.is_err());
        check!(watch.is_held());
        self.a.end();
        self.until(|_| Ok(!watch.is_held()))
    }
}
