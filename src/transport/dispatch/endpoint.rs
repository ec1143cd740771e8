// SPDX-License-Identifier: GPL-2.0-only

//! The messages of a connection, whichever transport carries them.

use super::super::{
    local, rdma, Access, Arming, Completion, CopyJob, Key, LentSpan, Limits, Loan, NotifyOn,
    Pinned, Pinning, SendCompletion, SendWr, Transfer, Transport, Unacknowledged,
};
use crate::memory::spares::Spares;
use crate::sys::rdma::buffer::{Buffer, Sge};
use crate::sys::rdma::mapper::Mapper;
use kernel::prelude::*;
use kernel::sync::Arc;

/// One end of a connection for sending and receiving. May be dropped anywhere.
pub(crate) struct Endpoint {
    carrier: Carrier,
    /// Room for pinned memory that is not in use.
    spares: Spares,
}

/// Which transport's.
enum Carrier {
    /// By an RDMA device.
    Rdma(rdma::Endpoint),
    /// Within this kernel.
    Local(local::Endpoint),
}

/// Methods that do what the carrier's of that name do.
macro_rules! of_the_carrier {
    (&self: $($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> $result {
            match &self.carrier {
                Carrier::Rdma(c) => c.$name($($arg),*),
                Carrier::Local(c) => c.$name($($arg),*),
            }
        })*
    };
    (&mut self: $($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&mut self, $($arg: $type),*) -> $result {
            match &mut self.carrier {
                Carrier::Rdma(c) => c.$name($($arg),*),
                Carrier::Local(c) => c.$name($($arg),*),
            }
        })*
    };
}

impl Transport for Endpoint {
    of_the_carrier! { &self:
        limits() -> Limits;
        mapper() -> Option<&Arc<Mapper>>;
        posted_receives() -> u16;
        send_room() -> u16;
        in_flight() -> u16;
    }

    of_the_carrier! { &mut self:
        post_receive(b: Buffer) -> Result<(), Buffer>;
        post_send(s: &SendWr<'_>) -> Result;
        post_lent(s: &SendWr<'_>, payload: &LentSpan) -> Result;
        lent_payload(payload: &LentSpan) -> u32;
        flush() -> Result;
        poll_receive() -> Option<Completion>;
        poll_send() -> Option<SendCompletion>;
        arm_receive(of: NotifyOn) -> Arming;
        arm_send() -> Arming;
        lend(p: Pinned) -> Result<Loan, Pinned>;
        reclaim(loan: Loan) -> Result<Pinned>;
        register(loan: Loan, access: Access) -> Result<Key>;
        invalidate(loan: Loan, cookie: u64) -> Result;
        transfer(loan: Loan, t: &Transfer) -> Result<u32>;
    }
}

/// What only one of them does, or what does not depend on it.
impl Endpoint {
    pub(super) fn by_device(carrier: rdma::Endpoint) -> Self {
        Endpoint {
            carrier: Carrier::Rdma(carrier),
            spares: Spares::new(),
        }
    }

    pub(super) fn here(carrier: local::Endpoint) -> Self {
        Endpoint {
            carrier: Carrier::Local(carrier),
            spares: Spares::new(),
        }
    }

    /// Posts up to `n` buffers of `size` bytes that have no memory until a message comes. How many were posted: a device's
    /// buffers have theirs, so none there.
    pub(crate) fn post_without_memory(&mut self, size: usize, n: u16) -> u16 {
        match &mut self.carrier {
            Carrier::Rdma(_) => 0,
            Carrier::Local(c) => c.post_without_memory(size, n),
        }
    }

    /// Whether READs can be posted at all: neither device may be one that can have none in progress.
    pub(crate) fn can_read(&self) -> bool {
        match &self.carrier {
            Carrier::Local(_) => true,
            Carrier::Rdma(c) => c.can_read(),
        }
    }

    /// Drops it where one may sleep, without locks: what need not be left to a worker is done here.
    pub(crate) fn destroy(self) {
        match self.carrier {
            Carrier::Rdma(c) => drop(c),
            Carrier::Local(c) => c.destroy(),
        }
    }

    /// Whether [`Endpoint::exchange`] is worth while.
    pub(crate) fn exchanges(&self) -> bool {
        matches!(self.carrier, Carrier::Local(_))
    }

    /// Queues a message with the first `len` bytes of a buffer for payload, which may be exchanged
    /// for another one of its size: the caller does not look there again.
    pub(crate) fn exchange(&mut self, s: &SendWr<'_>, buffer: &mut Buffer, len: u32) -> Result {
        if let Carrier::Local(c) = &mut self.carrier {
            if c.exchange(s, buffer, len)? {
                return Ok(());
            }
        }
        let sge = Sge {
            buffer,
            offset: 0,
            len,
        };
        self.post_send(&SendWr {
            payload: &[sge],
            ..*s
        })
    }

    /// Tells the peer of what has come, though it is to be told of solicited messages only
    /// ([`Endpoint::knows_solicited`]).
    pub(crate) fn kick(&mut self) {
        match &mut self.carrier {
            // it is told of all
            Carrier::Rdma(_) => (),
            Carrier::Local(c) => c.kick(),
        }
    }

    /// Whether there is a copy job: part of what is queued here or by the peer, to be carried out by the
    /// caller itself. Never without memory that is lent.
    pub(crate) fn has_copy_job(&self) -> bool {
        match &self.carrier {
            Carrier::Rdma(_) => false,
            Carrier::Local(c) => c.has_copy_job(),
        }
    }

    /// The copy job. The caller lets go of the lock, runs it, and polls. Nobody else gets it meanwhile.
    pub(crate) fn copy_job(&mut self) -> Option<CopyJob> {
        match &mut self.carrier {
            Carrier::Rdma(_) => None,
            Carrier::Local(c) => c.copy_job(),
        }
    }

    /// The size of the peer's buffer if a message that is queued waits for its memory, which each [`Transport::flush`] asks
    /// for again. A device's buffers have theirs.
    pub(crate) fn lacks_memory(&self) -> Option<usize> {
        match &self.carrier {
            Carrier::Rdma(_) => None,
            Carrier::Local(c) => c.lacks_memory(),
        }
    }

    /// Puts a buffer in the place of one that lacks memory.
    pub(crate) fn supply(&mut self, buffer: Buffer) {
        match &mut self.carrier {
            Carrier::Rdma(_) => (),
            Carrier::Local(c) => c.supply(buffer),
        }
    }

    /// Whether something was sent to a peer that no program has any more.
    pub(crate) fn has_unattended(&self) -> bool {
        match &self.carrier {
            Carrier::Rdma(_) => false,
            Carrier::Local(c) => c.has_unattended(),
        }
    }

    /// That peer. The caller lets go of the lock and attends to it.
    pub(crate) fn take_unattended(&mut self) -> Option<local::Unattended> {
        match &mut self.carrier {
            Carrier::Rdma(_) => None,
            Carrier::Local(c) => c.take_unattended(),
        }
    }

    /// Whether there is an end of a receive, or else of a send, if that is asked for. Of no use where
    /// the peer tells by itself ([`Endpoint::knows_solicited`]).
    pub(crate) fn look(&mut self, sent: bool) -> bool {
        match &mut self.carrier {
            Carrier::Rdma(c) => c.look(sent),
            Carrier::Local(_) => false,
        }
    }

    /// Whether the peer has not taken all messages that have come to it, as far as that is known.
    pub(crate) fn is_behind(&self) -> bool {
        match &self.carrier {
            Carrier::Rdma(_) => false,
            Carrier::Local(c) => c.is_behind(),
        }
    }

    /// Has the peer's task attend to this end when it has taken all messages that have come to it; where
    /// [`Endpoint::is_behind`] does not know of that, only the ends of sends are told.
    pub(crate) fn arm_taking(&mut self) -> Arming {
        match &mut self.carrier {
            Carrier::Rdma(_) => Arming::Armed,
            Carrier::Local(c) => c.arm_taking(),
        }
    }

    /// Whether sends have ended that were not polled for, where they end at once, as a rule.
    pub(crate) fn has_ended_sends(&self) -> bool {
        match &self.carrier {
            Carrier::Rdma(_) => false,
            Carrier::Local(c) => c.has_ended_sends(),
        }
    }

    /// Whether the peer says of its messages which are solicited.
    pub(crate) fn knows_solicited(&self) -> bool {
        matches!(self.carrier, Carrier::Local(_))
    }

    /// Bytes of payload that have come and were not polled for, as far as that is known.
    pub(crate) fn unpolled(&self) -> usize {
        match &self.carrier {
            Carrier::Rdma(_) => 0,
            Carrier::Local(c) => c.unpolled(),
        }
    }

    /// Queues a probe: nothing comes of it unless the peer is gone, and then the connection fails.
    pub(crate) fn probe(&mut self) -> Result {
        match &mut self.carrier {
            Carrier::Rdma(c) => c.probe(),
            // the peer's kernel is this one, and here
            Carrier::Local(_) => Ok(()),
        }
    }

    /// Returns what the peer's adapter may not have acknowledged, if ours retries without end.
    pub(crate) fn unacknowledged(&self) -> Unacknowledged {
        match &self.carrier {
            Carrier::Rdma(c) => c.unacknowledged(),
            Carrier::Local(_) => Unacknowledged::Nothing,
        }
    }

    /// Probes that the peer has not answered yet, as far as [`Transport::poll_send`] knows.
    pub(crate) fn probes(&self) -> u16 {
        match &self.carrier {
            Carrier::Rdma(c) => c.probes(),
            Carrier::Local(_) => 0,
        }
    }

    /// What memory for [`Transport::lend`] is made from; `None` if the transport cannot do that.
    pub(crate) fn pinning(&self) -> Option<Pinning> {
        let pinning = match &self.carrier {
            Carrier::Rdma(c) => Pinning::new(Some(c.mapper()?.clone())),
            Carrier::Local(_) => Pinning::new(None),
        };
        (pinning.most_pages() != 0).then_some(pinning)
    }

    /// Returns the spare blocks.
    pub(crate) fn spares(&mut self) -> &mut Spares {
        &mut self.spares
    }
}
