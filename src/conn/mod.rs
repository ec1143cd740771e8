// SPDX-License-Identifier: GPL-2.0-only

//! One connection: what its spinlock guards, and what goes with it.
//!
//! A [`Connection`] belongs to one [`Socket`], which is the module's part of a `struct sock`
//! ([`SdpSock`]). Whoever comes with news (a completion, bytes from a send call, room in the receive
//! queue) takes the spinlock ([`SdpSock::connection`]) and calls [`Guard::progress`](guard::Guard::progress), which polls the
//! completion queues, lets the protocol decide and posts what may be posted. Who is to be told of what
//! that has found is told when the guard goes.
//!
//! The socket calls, the upcalls of the transports and the timer are above this, in `socket/`; nothing of
//! that is known here.

mod accept_queue;
mod busy_poll;
mod close;
pub(crate) mod closing;
mod cm;
mod cork;
pub(crate) mod events;
pub(crate) mod fallback;
mod guard;
pub(crate) mod keepalive;
mod options;
mod outcome;
mod polling;
pub(crate) mod receive_queue;
pub(crate) mod room;
mod rx;
pub(crate) mod rx_buffers;
#[cfg(sdp_selftest)]
mod selftest;
pub(crate) mod send_queue;
pub(crate) mod setup;
pub(crate) mod stats;
mod taking;
pub(crate) mod timers;
mod tx;
pub(crate) mod wait;
mod wakeups;
pub(crate) mod zcopy;

pub(crate) use self::accept_queue::{BacklogSlot, Listener};
pub(crate) use self::close::FIN_TIME;
pub(crate) use self::options::{Options, Threshold};
pub(crate) use self::outcome::Outcome;

use self::busy_poll::BusyPoll;
use self::closing::Closing;
use self::cm::Cm;
use self::cork::Cork;
use self::events::{Events, Looker, Queue};
use self::fallback::Fallback;
use self::keepalive::Heard;
use self::polling::Polling;
use self::receive_queue::ReceiveQueue;
use self::rx_buffers::RxBuffers;
use self::send_queue::SendQueue;
use self::stats::Stats;
use self::taking::Taking;
use self::timers::{Timer, Timers};
use self::wakeups::Wakeups;
use self::zcopy::Direct;
use crate::memory::budget::Account;
use crate::memory::pressure;
use crate::protocol::{self, Stall};
use crate::sys::net::sock::{Flag, Sock};
use crate::sys::time::{jiffies, milliseconds, Jiffies};
use crate::transport::{Endpoint, SendCompletion, Transport};
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, SetOnce, SpinLock};

/// Receive buffers that a connection starts with.
pub(crate) const FIRST_WINDOW: u16 = 8;
/// Completions that are handled under one hold of the lock.
const BUDGET: u32 = 64;
/// Time after which a sender looks whether memory is there again; TCP's takes up to 200 ms.
const SPACE_PAUSE: Jiffies = milliseconds(100);
/// Longest time that `TCP_CORK` and `MSG_MORE` hold bytes back (tcp(7)).
const CORK_TIME: Jiffies = milliseconds(200);
/// How long those who poll may be busy elsewhere: then a worker looks, since the peer may have a call that
/// waits for an answer, and gives it up after [`zcopy`]'s `CANCEL_TIME`.
const POLLERS_TIME: Jiffies = milliseconds(500);
/// Marks the completion of the DisConn in a send's cookie.
const FIN: u64 = 1 << 63;

/// A socket of families 27 and 28.
pub(crate) type SdpSock = Sock<Socket>;

/// Look at the completion queues.
pub(crate) const JOB_PROGRESS: u32 = 1;
/// Answer the peer's wish for larger receive buffers.
pub(crate) const JOB_RESIZE: u32 = 2;
/// Give up what a closed socket still holds.
pub(crate) const JOB_FINISH: u32 = 4;
/// Go on with TCP.
pub(crate) const JOB_FALL_BACK: u32 = 8;
/// What accept(2) waits for has come (`TCP_DEFER_ACCEPT`).
pub(crate) const JOB_ADMIT: u32 = 16;
/// Somebody waits to write to a block that is in flight.
pub(crate) const JOB_TOUCHED: u32 = 32;
/// Bytes of such blocks are to be moved elsewhere, or collected pages of files are to go.
pub(crate) const JOB_MOVE: u32 = 64;

/// The module's part of a socket.
#[pin_data]
pub(crate) struct Socket {
    /// What its pinned memory counts for, from its entry into the namespace on.
    account: SetOnce<Arc<Account>>,
    /// What events change.
    #[pin]
    connection: SpinLock<Connection>,
    /// The peer has ended its stream. Written under `connection`.
    pub(crate) peer_ended: Atomic<bool>,
    /// What was told of the completion queues, and whether a caller waits who will look.
    events: Events,
    /// Who goes on when the peer has taken what came to it.
    taking: Taking,
    /// Of the callers who wait, those who have read everything.
    pub(crate) readers: Atomic<i32>,
    /// Callers who want room to write ([`wait::RoomWanted`]).
    writers: Atomic<i32>,
    /// Whether readers poll before they sleep.
    busy_poll: BusyPoll,
    /// Whether those poll before they sleep who wait for their memory to be read.
    busy_poll_adverts: BusyPoll,
}

impl Socket {
    /// Of a new socket.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Socket {
            account: SetOnce::new(),
            connection <- new_spinlock!(Connection::new()),
            peer_ended: Atomic::new(false),
            events: Events::new(),
            taking: Taking::new(),
            readers: Atomic::new(0),
            writers: Atomic::new(0),
            busy_poll: BusyPoll::new(),
            busy_poll_adverts: BusyPoll::new(),
        })
    }

    /// Says what its pinned memory counts for; once.
    pub(crate) fn enter(&self, account: Arc<Account>) {
        self.account.populate(account);
    }
}

impl SdpSock {
    /// What its pinned memory counts for: the account of the user who has made it, in its namespace.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.data().account.as_ref()
    }

    /// Whether the peer has ended its stream.
    pub(crate) fn peer_has_ended(&self) -> bool {
        self.data().peer_ended.load(Relaxed)
    }

    /// Whether callers wait who will look at the completion queues.
    pub(crate) fn is_awaited(&self) -> bool {
        self.data().events.are_awaited()
    }

    /// A completion queue has something: whoever waits looks, or whoever polls, or else a worker. In any
    /// context.
    pub(crate) fn event(&self, queue: Queue) {
        if self.needs_worker(queue) {
            self.schedule(JOB_PROGRESS);
        }
    }

    /// The same, told by a task that may look itself soon: whether it has to. So it is where no program has the
    /// socket any more, which a worker would look after else.
    pub(crate) fn event_by_task(&self, queue: Queue) -> bool {
        let needed = self.needs_worker(queue);
        let by_caller = needed && self.flag(Flag::Dead);
        if needed && !by_caller {
            self.schedule(JOB_PROGRESS);
        }
        by_caller
    }

    /// Tells whoever looks at the completion queues. Whether that has to be a worker.
    fn needs_worker(&self, queue: Queue) -> bool {
        match self.data().events.tell(queue, || self.has_pollers()) {
            Looker::Caller => self.wake(),
            Looker::Poller => {
                self.wake_pollers();
                self.set_timer(POLLERS_TIME);
            }
            Looker::Worker => return true,
            Looker::Taker => {}
        }
        false
    }
}

/// Everything of a socket that its transport's events change. Protected by `Socket::connection`.
pub(crate) struct Connection {
    /// Carries the messages; gone when the connection is lost or over.
    pub(crate) endpoint: Option<Endpoint>,
    /// The connection manager's side.
    pub(crate) cm: Cm,
    /// The protocol's state, once both Hello messages are known.
    pub(crate) protocol: Option<protocol::Connection>,
    /// Bytes to send.
    pub(crate) tx: SendQueue,
    /// Bytes received.
    pub(crate) rx: ReceiveQueue,
    /// Receive buffers.
    pub(crate) rx_buffers: RxBuffers,
    /// What listen(2) has made.
    pub(crate) listener: Option<KBox<Listener>>,
    /// The place in a listener's queue that a new connection has, until it waits there for accept(2).
    pub(crate) slot: Option<BacklogSlot>,
    /// The choice between SDP and TCP (`IPPROTO_SDP`).
    pub(crate) fallback: Fallback,
    /// Options.
    pub(crate) options: Options,
    /// Zero copy.
    pub(crate) direct: Direct,
    /// Counters.
    pub(crate) stats: Stats,
    /// How far its end is.
    pub(crate) closing: Closing,
    /// What holds back less than a message.
    pub(crate) cork: Cork,
    /// Somebody polls for room, or was told that there is none.
    pub(crate) space_wanted: bool,
    /// Who polls the completion queues.
    pub(crate) polling: Polling,
    /// Messages since the last that asked for a completion.
    unsignaled: u32,
    /// What the last message held was held for.
    pub(crate) held: Option<Stall>,
    /// What is to be done when.
    pub(crate) timers: Timers,
    /// When the peer was heard of.
    pub(crate) heard: Heard,
}

impl Connection {
    /// The state of a new socket.
    pub(crate) fn new() -> Self {
        Connection {
            endpoint: None,
            cm: Cm::new(),
            protocol: None,
            tx: SendQueue::new(),
            rx: ReceiveQueue::new(),
            rx_buffers: RxBuffers::new(),
            listener: None,
            slot: None,
            fallback: Fallback::new(),
            options: Options::new(),
            direct: Direct::new(),
            stats: Stats::new(),
            closing: Closing::new(),
            cork: Cork::new(),
            space_wanted: false,
            polling: Polling::new(),
            unsignaled: 0,
            held: None,
            timers: Timers::new(),
            heard: Heard::new(),
        }
    }

    /// Makes the socket as good as new for another connection; options and counters stay.
    pub(crate) fn reset(&mut self) {
        self.tx.clear();
        self.rx.clear();
        self.rx_buffers.reset();
        self.protocol = None;
        for timer in [
            Timer::Cork,
            Timer::Kick,
            Timer::Memory,
            Timer::Space,
            Timer::Close,
            Timer::Ack,
        ] {
            self.timers.clear(timer);
        }
        self.direct.forget();
        self.closing.renew();
        self.cork = Cork::new();
        self.polling.reset();
        (self.unsignaled, self.held) = (0, None);
        self.heard = Heard::new();
    }

    /// Starts with a new endpoint, on which the first receive buffers are posted.
    pub(crate) fn attach(&mut self, endpoint: Endpoint) {
        self.endpoint = Some(endpoint);
        self.heard.begin(jiffies());
    }

    /// The longest message that fits a receive buffer of `size` bytes.
    pub(crate) fn announced(&self, size: u32) -> u32 {
        let header_aside = self
            .endpoint
            .as_ref()
            .map_or(0, |c| c.limits().header_aside);
        size.saturating_add(header_aside)
    }

    /// Most payload bytes of a message to the peer.
    pub(crate) fn max_payload(&self) -> u32 {
        self.protocol.as_ref().map_or(0, |p| p.max_payload())
    }

    /// Bytes received and not read (of a listener: connections not accepted), and bytes sent and
    /// not known to have arrived.
    pub(crate) fn queues(&self) -> (usize, usize) {
        let rx = match &self.listener {
            Some(l) => l.ready(),
            None => self.rx.bytes() + self.endpoint.as_ref().map_or(0, |c| c.unpolled()),
        };
        (rx, self.outstanding())
    }

    /// Whether bytes can still be sent and received.
    pub(crate) fn connected(&self) -> bool {
        self.endpoint.is_some() && self.protocol.is_some()
    }

    /// Moves everything on that can be moved on.
    fn run(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        self.poll(sk, wakeups);
        sk.set_memory(self.rx.memory(), self.tx.queued());
    }

    fn poll(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        self.take_events(sk, wakeups);
        sk.data().taking.look();
        let mut budget = BUDGET;
        while self.connected() {
            while budget > 0 {
                let Some(c) = self.endpoint.as_mut().and_then(|c| c.poll_receive()) else {
                    break;
                };
                budget -= 1;
                self.stats.receive_completions += 1;
                self.received(sk, c, wakeups);
            }
            if self.direct.has_lent() {
                // One look less where they end at once. What goes wrong goes wrong again in `transmit`.
                let _ = self.end_access();
            }
            self.poll_send(sk, wakeups);
            self.retire_blocks(sk, wakeups);
            self.look_for_writers(sk);
            self.look_for_collection(sk);
            self.refill(sk, wakeups);
            self.transmit(sk, wakeups);
            let waits = self.waits_for_completion(sk);
            if !waits && self.has_ended_sends() {
                // left to the next look, they would wake the very caller who looks before it sleeps
                self.poll_send(sk, wakeups);
            }
            if budget == 0 {
                // let others have the lock, and the processor
                sk.schedule(JOB_PROGRESS);
                break;
            }
            if self.is_polled(sk) {
                break;
            }
            let armed = self.arm(sk, waits);
            let unfinished = waits || self.is_unfinished(sk);
            if sk.data().events.set_unfinished(unfinished) {
                self.take_events(sk, wakeups);
            } else if armed {
                break;
            }
            budget -= 1; // a device may say so for a while and give nothing
        }
    }

    /// Whether sends of a trickle have ended with which nothing goes on; what something waits for, `arm` finds,
    /// and the many of a flow are taken together.
    fn has_ended_sends(&self) -> bool {
        let ended = self.endpoint.as_ref().is_some_and(|e| e.has_ended_sends());
        ended && self.tx.queued() <= send_queue::SMALL_CHUNK
    }

    /// Takes the ends of sends.
    fn poll_send(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        while let Some(c) = self.endpoint.as_mut().and_then(|c| c.poll_send()) {
            self.completed(sk, c, wakeups);
        }
    }

    /// Sends were carried out, or have failed.
    #[inline(never)] // most looks find none, and do without its registers
    fn completed(&mut self, sk: &SdpSock, c: SendCompletion, wakeups: &mut Wakeups) {
        self.stats.send_completions += 1;
        match c {
            SendCompletion::Sent { cookie } => {
                self.tx.complete(cookie & !FIN);
                if cookie & FIN != 0 {
                    self.fin_acked(sk, wakeups);
                }
                self.heard.progress(jiffies());
                self.has_room_again(sk, wakeups);
            }
            SendCompletion::Failed { status } => self.failed(sk, status, wakeups),
            SendCompletion::Moved { cookie, len } => self.moved(cookie, len, wakeups),
            SendCompletion::Ended { cookie } => self.access_ended(cookie, wakeups),
        }
    }

    /// There may be room again: whoever wants some is told.
    fn has_room_again(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        let wanted = self.space_wanted || sk.is_room_wanted();
        if wanted && self.writable(sk) {
            wakeups.writable = true;
            self.space_wanted = false;
        }
    }

    /// Whether poll(2) calls the socket writable, by TCP's rule: a third of the buffer is free.
    pub(crate) fn writable(&self, sk: &SdpSock) -> bool {
        let queued = self.tx.queued();
        let unsent = self.options.not_sent_lowat;
        sk.sndbuf().saturating_sub(queued) >= queued / 2
            && queued < sk.sndbuf()
            && (self.tx.has_room() && self.direct.has_room() || !self.connected())
            && (unsent == 0 || self.tx.unsent() < unsent as usize)
            && !self.lacks_memory()
    }

    /// Whether the next bytes to send have to wait because all sockets together have too much memory.
    pub(crate) fn lacks_memory(&self) -> bool {
        pressure::is_exhausted() && !self.tx.needs_little()
    }

    /// If they do: looks again soon, since others may give it back of whom nothing is heard here.
    pub(crate) fn await_memory(&mut self, sk: &SdpSock) {
        if self.lacks_memory() && !self.timers.is_set(Timer::Space) {
            self.set_timer(sk, Timer::Space, SPACE_PAUSE);
        }
    }
}
