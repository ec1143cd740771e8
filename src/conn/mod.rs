// SPDX-License-Identifier: GPL-2.0-only

//! State of one connection, protected by a spinlock, and the functions on this state.
//!
//! A [`Connection`] belongs to one [`Socket`], the module's part of a `struct sock` ([`SdpSock`]).
//! Each event (a completion, bytes from a send call, space in the receive queue) takes the
//! spinlock ([`SdpSock::connection`]) and calls [`Guard::progress`](guard::Guard::progress), which
//! polls the completion queues, lets the protocol decide and posts requests. The drop of the guard
//! delivers the wakeups.
//!
//! The layer above, `socket/`, contains the socket calls, the upcalls of the transport and the
//! timer. The code in `conn/` does not depend on `socket/`.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod accept_queue;
mod close;
pub(crate) mod closing;
mod cm;
pub(crate) mod events;
pub(crate) mod fallback;
mod guard;
pub(crate) mod keepalive;
pub(crate) mod local;
mod options;
mod polling;
pub(crate) mod receive_queue;
mod rx;
pub(crate) mod rx_buffers;
pub(crate) mod send_queue;
pub(crate) mod setup;
pub(crate) mod stats;
pub(crate) mod timers;
mod tx;
pub(crate) mod unread;
pub(crate) mod wait;
mod wakeups;
pub(crate) mod zcopy;

pub(crate) use self::accept_queue::{BacklogSlot, Listener};
pub(crate) use self::close::FIN_TIME;
pub(crate) use self::fallback::FallbackReason;
pub(crate) use self::guard::Guard;
pub(crate) use self::options::{Options, Threshold};

use self::closing::Closing;
use self::cm::Cm;
use self::events::{Events, Notify, Queue};
use self::fallback::Fallback;
use self::keepalive::Liveness;
use self::local::{Local, LocalCell};
use self::polling::Polling;
use self::receive_queue::ReceiveQueue;
use self::rx_buffers::RxBuffers;
use self::send_queue::SendQueue;
use self::stats::Stats;
use self::timers::{Timer, Timers};
use self::wait::BusyPoll;
use self::wakeups::{Wakeup, Wakeups};
use self::zcopy::{Zcopy, ZcopyBox};
use crate::memory::budget::Account;
use crate::memory::pressure;
use crate::protocol::{self, Records, Stall};
use crate::sys::net::netns::PerNet;
use crate::sys::net::params::Params;
use crate::sys::net::sock::{Sock, UnderLock};
use crate::sys::time::{milliseconds, Jiffies};
use crate::transport::Endpoint;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, SetOnce, SpinLock};

/// Initial number of receive buffers of a connection.
pub(crate) const FIRST_WINDOW: u16 = 8;
/// Time after which a sender without memory retries; TCP waits up to 200 ms.
const SPACE_PAUSE: Jiffies = milliseconds(100);
/// Longest time that `TCP_CORK` and `MSG_MORE` hold bytes back (tcp(7)).
const CORK_TIME: Jiffies = milliseconds(200);
/// Time that woken pollers have to poll the completion queues. Afterwards a worker polls, since a
/// call of the peer waits for a reply for at most [`zcopy`]'s `CANCEL_TIME`.
const POLLERS_TIME: Jiffies = milliseconds(500);
/// Flag in the cookie of a send that marks the message as the DisConn.
const FIN: u64 = 1 << 63;

/// A socket of families 27 and 28.
pub(crate) type SdpSock = Sock<Socket>;

/// Poll the completion queues.
pub(crate) const JOB_PROGRESS: u32 = 1;
/// Reply to the peer's request for larger receive buffers.
pub(crate) const JOB_RESIZE: u32 = 2;
/// Release the remaining objects of a closed socket.
pub(crate) const JOB_FINISH: u32 = 4;
/// Switch the socket to TCP.
pub(crate) const JOB_FALL_BACK: u32 = 8;
/// Queue the connection for accept(2), since its first data has arrived (`TCP_DEFER_ACCEPT`).
pub(crate) const JOB_ADMIT: u32 = 16;
/// Handle a write fault on a block in flight.
pub(crate) const JOB_WRITE_FAULT: u32 = 32;
/// Move bytes of blocks with a write fault, or send collected pages of files.
pub(crate) const JOB_MOVE: u32 = 64;

/// The module's part of a socket.
#[pin_data]
pub(crate) struct Socket {
    /// Account that pinned pages are charged to, set when the socket enters the namespace.
    account: SetOnce<Arc<Account>>,
    /// State of the connection, which events change.
    #[pin]
    connection: SpinLock<Connection>,
    /// True once the peer has ended its stream. Written under the lock of `connection`.
    pub(crate) peer_ended: Atomic<bool>,
    /// Pending events of the completion queues, and number of waiting callers that poll.
    events: Events,
    /// Number of waiting callers that have read everything.
    pub(crate) readers: Atomic<i32>,
    /// Number of callers that wait for send space ([`wait::SpaceWanted`]).
    writers: Atomic<i32>,
    /// Measurements for readers that poll before they sleep.
    busy_poll: BusyPoll,
    /// Measurements for senders that poll while the peer reads their memory.
    busy_poll_adverts: BusyPoll,
    /// End of a local connection.
    local: UnderLock<LocalCell>,
}

impl Socket {
    pub(crate) fn new(params: Arc<Params>) -> impl PinInit<Self, Error> {
        try_pin_init!(Socket {
            account: SetOnce::new(),
            connection <- new_spinlock!(Connection::new(params)),
            peer_ended: Atomic::new(false),
            events: Events::new(),
            readers: Atomic::new(0),
            writers: Atomic::new(0),
            busy_poll: BusyPoll::new(),
            busy_poll_adverts: BusyPoll::new(),
            local: UnderLock::new(LocalCell::Unknown),
        })
    }

    /// Sets the account that pinned pages are charged to, once.
    pub(crate) fn enter(&self, account: Arc<Account>) {
        self.account.populate(account);
    }
}

impl SdpSock {
    /// Returns the account that pinned pages are charged to: one per user and network namespace.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.data().account.as_ref()
    }

    pub(crate) fn params(&self) -> &Params {
        self.netns().params()
    }

    pub(crate) fn peer_has_ended(&self) -> bool {
        self.data().peer_ended.load(Relaxed)
    }

    /// Returns true if unpolled completions may exist.
    pub(crate) fn may_have_completions(&self) -> bool {
        self.data().events.are_noted()
    }

    /// Handles an event of a completion queue: selects and wakes the task that polls the queue.
    pub(crate) fn event(&self, queue: Queue) {
        match self.data().events.notify(queue, || self.has_pollers()) {
            Notify::Caller => self.wake(),
            Notify::Poller => {
                self.wake_pollers();
                self.set_timer(POLLERS_TIME);
            }
            Notify::Worker => self.schedule(JOB_PROGRESS),
            Notify::Taker => {}
        }
    }
}

/// State of a socket that transport events change, protected by `Socket::connection`.
pub(crate) struct Connection {
    /// Endpoint of the transport; `None` once the connection is lost or closed.
    pub(crate) endpoint: Option<Endpoint>,
    /// State of a local connection, kept until the socket is closed.
    pub(crate) local: Option<Local>,
    pub(crate) cm: Cm,
    /// State of the protocol; `None` until both Hello messages are exchanged.
    pub(crate) protocol: Option<protocol::Connection>,
    /// Boundaries of received messages, on a `SOCK_SEQPACKET` socket.
    pub(crate) records: Option<Records>,
    pub(crate) tx: SendQueue,
    pub(crate) rx: ReceiveQueue,
    pub(crate) rx_buffers: RxBuffers,
    /// Queue for accept(2), after listen(2).
    pub(crate) listener: Option<KBox<Listener>>,
    /// Place of a connection in a listener's backlog, until the connection is queued for accept(2).
    pub(crate) slot: Option<BacklogSlot>,
    /// Choice between SDP and TCP (`IPPROTO_SDP`).
    pub(crate) fallback: Fallback,
    pub(crate) options: Options,
    pub(crate) zcopy: ZcopyBox,
    pub(crate) stats: Stats,
    pub(crate) closing: Closing,
    /// Set while a poller waits for space, or after a call has returned EAGAIN for lack of space.
    pub(crate) space_wanted: bool,
    /// State of polling the completion queues.
    pub(crate) polling: Polling,
    /// Number of messages posted since the last signaled message.
    unsignaled: u32,
    /// Reason why the last message was held back.
    pub(crate) held: Option<Stall>,
    pub(crate) timers: Timers,
    pub(crate) alive: Liveness,
}

impl Connection {
    pub(crate) fn new(params: Arc<Params>) -> Self {
        Connection {
            endpoint: None,
            local: None,
            cm: Cm::default(),
            protocol: None,
            records: None,
            tx: SendQueue::new(),
            rx: ReceiveQueue::new(),
            rx_buffers: RxBuffers::new(),
            listener: None,
            slot: None,
            fallback: Fallback::new(),
            options: Options::new(params),
            zcopy: ZcopyBox::new(),
            stats: Stats::new(),
            closing: Closing::default(),
            space_wanted: false,
            polling: Polling::default(),
            unsignaled: 0,
            held: None,
            timers: Timers::new(),
            alive: Liveness::new(),
        }
    }

    /// Resets the socket for another connection, but keeps options and counters.
    pub(crate) fn reset(&mut self) {
        self.tx.clear();
        self.rx.clear();
        self.rx_buffers.reset();
        (self.protocol, self.records) = (None, None);
        for timer in [
            Timer::Cork,
            Timer::Memory,
            Timer::Space,
            Timer::Close,
            Timer::Ack,
            Timer::Retry,
        ] {
            self.timers.clear(timer);
        }
        self.zcopy.with(Zcopy::forget);
        self.closing.renew();
        self.polling.armed = false;
        (self.unsignaled, self.held) = (0, None);
        self.alive = Liveness::new();
    }

    /// Returns the maximum payload of a message to the peer.
    pub(crate) fn max_payload(&self) -> u32 {
        match &self.protocol {
            Some(p) => p.max_payload(),
            None if self.local.is_some() => send_queue::LARGE_CHUNK as u32,
            None => 0,
        }
    }

    /// Sets the size of the queues for `SO_MEMINFO`.
    pub(crate) fn note_memory(&self, sk: &SdpSock) {
        match &self.local {
            Some(local) => sk.set_memory(local.link.readable(), local.link.queued()),
            None => sk.set_memory(self.rx.memory(), self.tx.queued()),
        }
    }

    /// Returns the numbers of unread bytes received and of unacknowledged bytes sent. For a
    /// listener, the first number counts connections ready for accept(2).
    pub(crate) fn queues(&self) -> (usize, usize) {
        if let Some(Local { link, .. }) = &self.local {
            return (link.readable(), link.outstanding());
        }
        let rx = match &self.listener {
            Some(l) => l.ready(),
            None => self.rx.unread.bytes(),
        };
        (rx, self.outstanding())
    }

    /// Returns true if a whole message is unread.
    pub(crate) fn has_message(&self) -> bool {
        match &self.local {
            Some(local) => local.link.readable() > 0,
            None => self.records.as_ref().is_some_and(Records::has_whole),
        }
    }

    /// Returns true if bytes can still be sent and received.
    pub(crate) fn connected(&self) -> bool {
        self.endpoint.is_some() && self.protocol.is_some()
    }

    /// Notifies waiting callers and pollers once the send queue has space again.
    fn has_space_again(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        let wanted = self.space_wanted || sk.is_space_wanted();
        if wanted && self.writable(sk) {
            wakeups.add(Wakeup::Writable);
            self.space_wanted = false;
        }
    }

    /// Returns true if the socket is writable, by TCP's rule: a third of the buffer is free.
    pub(crate) fn writable(&self, sk: &SdpSock) -> bool {
        let unsent = self.options.not_sent_lowat;
        if let Some(Local { link, .. }) = &self.local {
            let queued = link.queued();
            return sk.sndbuf().saturating_sub(queued) >= queued / 2
                && queued < sk.sndbuf()
                && link.has_entries()
                && (unsent == 0 || queued < unsent as usize)
                && self.has_block_space()
                && !(pressure::is_exhausted() && link.unsent() > 0);
        }
        let queued = self.tx.queued();
        sk.sndbuf().saturating_sub(queued) >= queued / 2
            && queued < sk.sndbuf()
            && (self.tx.has_space() && self.has_block_space() || !self.connected())
            && (unsent == 0 || self.tx.unsent() < unsent as usize)
            && !self.lacks_memory()
    }

    /// Returns true if the next bytes have to wait because all sockets exceed the memory limit.
    pub(crate) fn lacks_memory(&self) -> bool {
        pressure::is_exhausted() && !self.tx.needs_little()
    }

    /// Starts a timer if memory is missing, since other sockets may free memory without an event.
    pub(crate) fn await_memory(&mut self, sk: &SdpSock) {
        if self.lacks_memory() && !self.timers.is_set(Timer::Space) {
            self.set_timer(sk, Timer::Space, SPACE_PAUSE);
        }
    }
}
