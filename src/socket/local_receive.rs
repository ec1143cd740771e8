// SPDX-License-Identifier: GPL-2.0-only

//! Implements recvmsg(2) on a local connection, which copies from the queue under the socket lock.

use super::receive_call::{Call, NextBytes};
use crate::conn::local::{LocalEnd, Special};
use crate::conn::unread::Urgent;
use crate::conn::SdpSock;
use crate::sys::bindings as c;
use crate::sys::byte_queue::Found;
use crate::sys::errno::EFAULT;
use crate::sys::net::message::RecvMsg;
use crate::sys::net::sock::{Flag, Locked};
use kernel::prelude::*;

/// Flags of calls that [`at_once`] does not receive.
const NOT_AT_ONCE: u32 = c::MSG_OOB | c::MSG_PEEK | c::MSG_TRUNC;

/// Counts the call, and receives its bytes at once, if they are in one segment and no option or
/// flag needs more. `None`: the call has to be received by [`Call::take`].
#[inline]
pub(super) fn at_once(sk: &SdpSock, end: &mut LocalEnd, to: &mut RecvMsg<'_>) -> Option<usize> {
    end.link.count_call(false);
    let (flags, len) = (to.flags(), to.space());
    let has_option = sk.peek_offset() >= 0 || to.wants_rest() || end.link.has(Special::Inq);
    if flags & NOT_AT_ONCE != 0 || has_option {
        return None;
    }
    let Found::Bytes(bytes) = end.reader.at(0) else {
        return None;
    };
    let bytes = bytes.get(..len).unwrap_or(bytes);
    let n = bytes.len();
    let is_all = || flags & c::MSG_WAITALL == 0 && n >= sk.rcvlowat() && n == end.link.readable();
    if n == 0 || n < len && !is_all() || end.link.mark() != 0 {
        return None;
    }
    let given = to.give(bytes);
    if given > 0 {
        end.consume(given);
    }
    (given > 0).then_some(given)
}

impl Call<'_> {
    /// Copies the available bytes, up to the urgent mark.
    pub(super) fn take(&mut self, end: &mut LocalEnd, to: &mut RecvMsg<'_>) -> Result<NextBytes> {
        self.inq |= end.link.has(Special::Inq);
        while self.left() > 0 {
            let position = end.reader.position() as u64;
            let ahead = self.peeked.saturating_sub(position) as usize;
            if self.copy(end, to, (ahead, 0), |n| (n, 0))? > 0 {
                continue;
            }
            let mark = end.link.mark();
            if mark == 0 {
                break;
            }
            match self.take_urgent(end, to, mark)? {
                None => return Ok(NextBytes::Mark),
                Some(0) if end.link.mark() == mark => break,
                Some(_) => {}
            }
        }
        Ok(NextBytes::Nothing)
    }

    /// Copies bytes up to the urgent mark, if any. `None`: the mark ends the call.
    #[cold]
    fn take_urgent(
        &mut self,
        end: &mut LocalEnd,
        to: &mut RecvMsg<'_>,
        mark: i64,
    ) -> Result<Option<usize>> {
        let inline = self.sk.flag(Flag::UrgInline);
        if !self.peek && !inline && end.link.drops_next() {
            end.consume(1);
            return Ok(Some(1));
        }
        let unread = end.link.unread();
        let got = self.copied > 0;
        let Some(next) = unread.next(self.peeked, self.left(), got, inline) else {
            return Ok(None);
        };
        let ahead = next.at.wrapping_sub(unread.position()) as usize;
        // an urgent byte that is announced but has not arrived is behind all unread bytes
        let known = unread.bytes().saturating_sub(ahead);
        let part = |n: usize| (next.len_of(n.min(known)), next.skip);
        let n = self.copy(end, to, (ahead, mark), part)?;
        Ok(Some(n))
    }

    /// Copies bytes from `ahead` bytes behind the next one on. `part` returns how many bytes to
    /// copy, and how many to skip before them. Returns the sum of copied and skipped bytes; 0 if
    /// none are available, or if a newer urgent byte than `mark` has arrived.
    #[inline]
    fn copy(
        &mut self,
        end: &mut LocalEnd,
        to: &mut RecvMsg<'_>,
        (ahead, mark): (usize, i64),
        part: impl FnOnce(usize) -> (usize, usize),
    ) -> Result<usize> {
        let left = self.left();
        let at = (end.reader.position() as u64).wrapping_add(ahead as u64);
        let found = end.reader.at(ahead);
        if end.link.mark() != mark {
            return Ok(0);
        }
        let (read, n) = match found {
            Found::Bytes(bytes) => {
                let (n, skip) = part(bytes.len());
                let bytes = bytes.get(skip..).unwrap_or_default();
                let bytes = bytes.get(..n.min(left)).unwrap_or(bytes);
                let n = bytes.len().saturating_add(skip);
                if n == 0 {
                    return Ok(0);
                }
                (self.give(to, bytes, (at, skip)), n)
            }
            Found::Block { start, offset, len } => {
                let (n, how) = (part(len).0.min(left), (self.peek, self.discard));
                if n == 0 {
                    // the block arrived after the check for the urgent byte
                    return Ok(0);
                }
                let given = end.give_block(to, (start, offset), n, how)?;
                self.copied = self.copied.saturating_add(given);
                if self.peek {
                    let behind = (offset as u64).wrapping_add(given as u64);
                    self.peeked = (start as u64).wrapping_add(behind);
                }
                return Ok(given);
            }
            Found::Nothing => return Ok(0),
        };
        if !self.peek {
            end.consume(read);
        }
        match read < n {
            true => Err(EFAULT.into()),
            false => Ok(read),
        }
    }
}

/// Returns the urgent byte of a local connection. Marks the byte as read unless `peek` is set.
pub(super) fn urgent(sk: &SdpSock, lock: &mut Locked<'_>, peek: bool) -> Option<Urgent> {
    let LocalEnd { link, reader, .. } = sk.local_end(lock)?;
    let unread = link.unread();
    let Urgent::Valid(_, at) = unread.urgent else {
        return Some(unread.urgent);
    };
    let ahead = at.wrapping_sub(unread.position()) as usize;
    let byte = match reader.at(ahead) {
        Found::Bytes(bytes) => bytes.first().copied(),
        // a reset has dropped the block
        _ => None,
    };
    if !peek {
        link.urgent_is_read(at.wrapping_add(1) as i64);
    }
    Some(byte.map_or(Urgent::None, |byte| Urgent::Valid(byte, at)))
}
