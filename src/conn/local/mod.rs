// SPDX-License-Identifier: GPL-2.0-only

//! Connections between two sockets of one network namespace: one byte stream in each direction,
//! without SDP messages.
//!
//! A [`LocalEnd`] represents one end for the calls of its socket, under the socket lock alone. A
//! [`LocalLink`] represents one end for poll(2), ioctl(2), timers, and closing. A call that writes
//! or reads notifies the other socket. No worker empties the queue of a closed socket.
//!
//! **References.** Each end holds a reference to the other socket until its own socket is closed.

pub(crate) mod blocks;
mod link;
mod transfer;

pub(crate) use self::link::{LocalLink, Special};

use self::blocks::Offered;
use self::link::Direction;
use super::stats::Stats;
use super::unread::Unread;
use super::{Connection, SdpSock};
use crate::sys::byte_queue::{ByteQueue, Reader, Writer};
use crate::sys::net::sock::Locked;
use crate::sys::time::{jiffies, Jiffies};
use crate::transport::LinkId;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Local connection request to repeat, since the listener's backlog was full.
#[derive(Clone, Copy)]
pub(crate) struct LocalRequest {
    pub(crate) ifindex: u32,
    /// Time until the request is repeated.
    pub(crate) pause: Jiffies,
}

/// One end of a local connection, for calls of its socket.
pub(crate) struct LocalEnd {
    pub(crate) link: Arc<LocalLink>,
    pub(crate) writer: Writer<Offered>,
    pub(crate) reader: Reader<Offered>,
}

impl LocalEnd {
    /// Consumes the next `n` bytes, and notifies the peer of the space.
    #[inline(always)] // in a small receive
    pub(crate) fn consume(&mut self, n: usize) {
        if self.reader.consume(n) {
            self.link.has_read();
        }
    }

    /// Makes both ends of a connection.
    pub(crate) fn pair(active: &SdpSock, passive: &SdpSock) -> Result<[KBox<Self>; 2]> {
        let (to, writer, far_reader) = ByteQueue::new()?;
        let (from, far_writer, reader) = ByteQueue::new()?;
        let (to, from) = (Direction::new(to)?, Direction::new(from)?);
        let id = LinkId::of(&*to);
        let end = |directions, peer, writer, reader| -> Result<_> {
            let end = LocalEnd {
                link: LocalLink::new(id, directions, peer)?,
                writer,
                reader,
            };
            Ok(KBox::new(end, GFP_KERNEL)?)
        };
        Ok([
            end([&to, &from], passive, writer, reader)?,
            end([&from, &to], active, far_writer, far_reader)?,
        ])
    }
}

/// Local end of a socket, under the socket lock.
pub(crate) enum LocalCell {
    /// No call has checked for a local end since the last connect(2).
    Unknown,
    /// The connection uses a device.
    None,
    End(KBox<LocalEnd>),
}

impl Connection {
    pub(crate) fn begin_local(&mut self, end: KBox<LocalEnd>) {
        self.local = Some(Local {
            link: end.link.clone(),
            end: Some(end),
            over: false,
            seen: 0,
            counted: [0; 6],
        });
        self.alive.begin(jiffies());
        self.note_options();
    }

    /// After a change, copies to the link the options that calls on a local connection check.
    pub(crate) fn note_options(&self) {
        let Some(Local { link, .. }) = &self.local else {
            return;
        };
        let o = &self.options;
        link.set(Special::Cork, o.cork);
        link.set(Special::Send, o.not_sent_lowat != 0 || o.user_timeout != 0);
        link.set(Special::Inq, o.inq);
    }

    /// Restarts `TCP_USER_TIMEOUT` if the peer has read more bytes, or if bytes `begin` to wait.
    pub(crate) fn note_progress(&mut self, begin: bool) {
        let Some(local) = &mut self.local else {
            return;
        };
        let read = local.link.arrived();
        if core::mem::replace(&mut local.seen, read) != read || begin {
            self.alive.progress(jiffies());
        }
    }

    /// Updates the counters with the calls and bytes of a local connection, and returns them.
    pub(crate) fn counters(&mut self) -> &mut Stats {
        if let Some(Local { link, counted, .. }) = &mut self.local {
            let now = link.counts();
            let s = &mut self.stats;
            let counters = [
                &mut s.send_calls,
                &mut s.receive_calls,
                &mut s.bytes_sent,
                &mut s.bytes_received,
                &mut s.direct_sent,
                &mut s.direct_received,
            ];
            for ((to, now), counted) in counters.into_iter().zip(now).zip(counted) {
                *to += now.wrapping_sub(core::mem::replace(counted, now));
            }
        }
        &mut self.stats
    }

    /// Removes the local connection. The counters keep the connection's calls and bytes.
    pub(crate) fn take_local(&mut self) -> Option<Local> {
        self.counters();
        self.local.take()
    }

    /// Drops the memory kept for the next bytes to send.
    pub(crate) fn shed(&mut self) {
        self.tx.shed();
        if let Some(local) = &self.local {
            local.link.outgoing.queue.shed();
        }
    }

    /// Returns the positions of the bytes that can be read.
    pub(crate) fn unread(&self) -> Unread {
        match &self.local {
            Some(local) => local.link.unread(),
            None => self.rx.unread,
        }
    }
}

impl SdpSock {
    #[inline]
    pub(crate) fn local_end<'a>(&'a self, lock: &'a mut Locked<'_>) -> Option<&'a mut LocalEnd> {
        let cell = self.under_lock(lock, &self.data().local);
        if let LocalCell::Unknown = cell {
            self.find_local(cell);
        }
        match cell {
            LocalCell::End(end) => Some(end),
            _ => None,
        }
    }

    /// Moves the local end of a new connection to `cell`.
    #[cold]
    fn find_local(&self, cell: &mut LocalCell) {
        self.with(|c| {
            *cell = match &mut c.local {
                Some(local) => local.end.take().map_or(LocalCell::Unknown, LocalCell::End),
                None if c.endpoint.is_some() => LocalCell::None,
                None => LocalCell::Unknown,
            };
        });
    }

    /// Drops the local end, since the closed socket reads no more bytes.
    pub(crate) fn drop_local_end(&self, lock: &mut Locked<'_>) {
        let cell = self.under_lock(lock, &self.data().local);
        let end = core::mem::replace(cell, LocalCell::Unknown);
        let unused = self.with(|c| c.local.as_mut().and_then(|l| l.end.take()));
        if let LocalCell::End(end) = &end {
            let pool = end.link.outgoing.blocks.pool.lock().take();
            drop(pool);
        }
        drop((end, unused));
    }

    /// Removes the local connection, so that the socket can connect again.
    pub(crate) fn leave_local(&self, lock: &mut Locked<'_>) {
        self.drop_local_end(lock);
        let local = self.with(|c| c.take_local());
        drop(local);
    }
}

/// Local connection of a socket.
pub(crate) struct Local {
    pub(crate) link: Arc<LocalLink>,
    /// Local end, until the first call moves it to the [`LocalCell`].
    end: Option<KBox<LocalEnd>>,
    /// Set once the connection has ended. Unread bytes stay readable.
    over: bool,
    /// Position up to which the peer had read at the last [`Connection::note_progress`].
    seen: i64,
    /// Calls and bytes of both directions that the connection's counters already include.
    counted: [u64; 6],
}

impl Local {
    /// Returns the link until the connection has ended.
    pub(crate) fn living(&self) -> Option<&Arc<LocalLink>> {
        (!self.over).then_some(&self.link)
    }

    /// Marks the connection as ended. The first call returns the link, to notify the peer.
    pub(crate) fn end(&mut self) -> Option<Arc<LocalLink>> {
        let was = core::mem::replace(&mut self.over, true);
        (!was).then(|| self.link.clone())
    }
}
