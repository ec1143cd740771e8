// SPDX-License-Identifier: GPL-2.0-only

//! Handles received messages.

use super::stats;
use super::timers::Timer;
use super::unread::Urgent;
use super::wakeups::{Wakeup, Wakeups};
use super::{Connection, SdpSock, JOB_RESIZE};
use crate::protocol::{Event, Mid, Received, Violation, MAX_HEADER};
use crate::sys::debug::debug;
use crate::sys::errno::{Errno, ECONNRESET, ENOBUFS, EPROTO};
use crate::sys::net::sock::{Ends, Flag, State};
use crate::sys::net::trace;
use crate::sys::rdma::buffer::Buffer;
use crate::sys::time::jiffies;
use crate::transport::Status;
use kernel::prelude::*;

impl Connection {
    /// Handles an arrived message or a failed receive.
    pub(super) fn received(
        &mut self,
        sk: &SdpSock,
        c: Result<(Buffer, u32), Status>,
        wakeups: &mut Wakeups,
    ) {
        let (buffer, len) = match c {
            Ok(received) => received,
            Err(status) => return self.failed(sk, status, wakeups),
        };
        if sk.state() == State::SynRecv {
            if let Some(link) = &self.cm.link {
                link.message_arrived();
            }
        }
        self.alive.received(jiffies());
        let Some(protocol) = self.protocol.as_mut() else {
            return;
        };
        let header = buffer.bytes().get(..(len as usize).min(MAX_HEADER));
        let header = header.unwrap_or_default();
        let message = protocol.receive(header, len);
        trace::receive(sk, header, protocol.credits());
        let message = message.and_then(|message| {
            stats::count(&mut self.stats.received, message.mid.index());
            self.follow_records(&buffer, &message).map(|()| message)
        });
        let message = match message {
            Ok(message) => message,
            Err(violation) => return self.violated(sk, violation, wakeups),
        };
        if message.urgent_pending {
            self.urgent_pending(sk, wakeups);
        }
        let taken = match message.payload.is_empty() {
            true => {
                self.recycle(buffer);
                Ok(())
            }
            false => self.payload(buffer, &message, wakeups),
        };
        match taken {
            Ok(()) => self.event(sk, &message, wakeups),
            Err(e) => self.done_with_error(sk, e, wakeups),
        }
        if sk.state() != State::Established {
            self.check_fin(sk, wakeups);
        }
    }

    /// Ends the connection, since the peer has violated the protocol.
    fn violated(&mut self, sk: &SdpSock, violation: Violation, wakeups: &mut Wakeups) {
        stats::count(&mut self.stats.violations, violation.index());
        debug!(
            "{}: the peer broke the protocol: {}",
            Ends(sk),
            violation.name()
        );
        self.done_with_error(sk, EPROTO, wakeups);
    }

    /// Counts the `SOCK_SEQPACKET` messages that an SDP message contains.
    fn follow_records(&mut self, buffer: &Buffer, message: &Received) -> Result<(), Violation> {
        let Some(records) = &mut self.records else {
            return Ok(());
        };
        let payload = message.payload.start as usize..message.payload.end as usize;
        let ends = message.event == Event::PeerClosed && records.is_within();
        match ends || message.urgent_pending {
            true => Err(Violation::Record),
            false => records.arrived(buffer.bytes().get(payload).unwrap_or_default()),
        }
    }

    /// Handles the announcement of an urgent byte.
    fn urgent_pending(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        // as in TCP, an old urgent byte at the read position is dropped
        if !sk.flag(Flag::UrgInline) {
            if let Some(empty) = self.rx.skip_mark() {
                self.recycle(empty);
            }
        }
        self.rx.unread.urgent = Urgent::Pending;
        wakeups.add(Wakeup::Urgent);
    }

    /// Queues the payload of a message. After an error, the caller aborts the connection.
    fn payload(
        &mut self,
        mut buffer: Buffer,
        message: &Received,
        wakeups: &mut Wakeups,
    ) -> Result<(), Errno> {
        if self.closing.is_orphaned() {
            // as in TCP, bytes that the program can no longer read cause a reset
            return Err(ECONNRESET);
        }
        let payload = &message.payload;
        buffer.len = payload.end.checked_sub(payload.start).ok_or(EPROTO)?;
        buffer.offset = payload.start;
        self.stats.bytes_received += u64::from(buffer.len);
        match self.rx.push(buffer, message.urgent) {
            Ok(Some(spare)) => self.recycle(spare),
            Ok(None) => {}
            Err(_) => return Err(ENOBUFS),
        }
        let is_part = self.records.as_ref().is_some_and(|r| !r.has_arrived());
        wakeups.add_if(!is_part, Wakeup::Readable);
        wakeups.add_if(self.timers.is_set(Timer::DeferAccept), Wakeup::Admit);
        Ok(())
    }

    /// Handles everything in a message except the payload.
    fn event(&mut self, sk: &SdpSock, message: &Received, wakeups: &mut Wakeups) {
        let filled = match message.event {
            Event::SinkWritten { bytes } => self.sink_over(bytes, wakeups),
            Event::PeerClosed | Event::SinksReturned => self.sink_over(0, wakeups),
            _ if message.for_sink => self.sink_over(0, wakeups),
            _ => Ok(()),
        };
        if filled.is_err() {
            return self.done_with_error(sk, EPROTO, wakeups);
        }
        // waiting readers may advertise now
        wakeups.add_if(message.mid == Mid::ModeChange, Wakeup::Zcopy);
        match message.event {
            Event::PeerClosed => self.peer_closed(sk, wakeups),
            Event::PeerAborted => {
                self.stats.resets += 1;
                self.done_with_error(sk, ECONNRESET, wakeups);
            }
            Event::Suspended => {
                self.stats.suspended += 1;
                self.done_with_error(sk, ECONNRESET, wakeups);
            }
            Event::SourceAdvert => self.advert_came(sk, wakeups),
            Event::SourceRead { bytes, finished } => self.source_read(bytes, finished, wakeups),
            Event::SourcesReturned { done } => self.sources_refused(done, wakeups),
            Event::SinkAdvert { returned } => self.sink_came(returned, wakeups),
            Event::ReceiveSizeRequested(size) => {
                self.rx_buffers.wanted = Some(size);
                sk.schedule(JOB_RESIZE);
            }
            _ => {}
        }
    }
}
