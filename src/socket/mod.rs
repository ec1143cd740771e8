// SPDX-License-Identifier: GPL-2.0-only

//! The sockets: what each socket call does.
//!
//! # Implementation notes
//!
//! A [`Socket`] is the module's part of one `struct sock` ([`SdpSock`]). It is of one of three
//! kinds, as its state tells: not connected, a listener, or a connection, made by connect(2)
//! or by a request that came to a listener.
//!
//! **References.** The descriptor holds one reference, the namespace's list another until nothing
//! is left of the socket, the [`Link`](crate::transport::Link) of a connection a third until
//! it is dropped, and each queued work item one more. A closed socket lives on while its link does.
//!
//! **`IPPROTO_SDP`.** A socket of that protocol is one of these with a TCP socket beside it, which may
//! take its descriptor over: see [`ipproto`].
//!
//! **Locks.** The socket lock serialises the socket calls. Everything that events change is in the
//! [`Connection`] under a spinlock of its own, which events take without the socket lock, because
//! a caller may sleep in a page fault while it holds that. Who holds several has taken them in this
//! order:
//!
//! 1. the right to decide between SDP and TCP (`Sock::decide`, a mutex of `IPPROTO_SDP` sockets);
//! 2. the socket lock;
//! 3. a mutex of the transports: the list of devices (`transport::rdma::registry`), or what a search has
//!    found, or the connection manager's part of a link, with or without whether its queue pair is
//!    alive after that. Nothing of this layer is called under them;
//! 4. the mutexes of the [`Namespace`]: ports, sockets, totals, in this order. Never with one of 3;
//! 5. the spinlock of one connection;
//! 6. a spinlock under which no other one of the module's is taken: of the wire of a local
//!    connection, of a link's state, of a search's wish, of memory that is kept pinned, of what a
//!    namespace remembers for `IPPROTO_SDP`, of what its connections have found out about zero copy.
//!
//! Of two sockets, also of an `IPPROTO_SDP` socket and the TCP socket beneath it, the locks of one
//! kind are never held together. No user memory is touched under a spinlock. lockdep watches this in
//! the guest tests on the debug kernel (`make test SUITES=debug:short`).
//!
//! What goes without a lock: who looks at the completion queues ([`events`]) and who still uses a
//! device (`sys::rdma::uses`), both under a model checker in `tests/host/loom`; flags that say what
//! work there is, which are set before it is queued (the workqueue orders that) or which one thread
//! can take; totals of which each change is one access, as of pinned pages; and numbers that may be
//! out of date, which nothing is decided by but how long to watch ([`wait`]). Who waits for what
//! ([`Socket`]'s `readers` and `writers`) is counted before the waiter takes the connection's lock, so
//! that whoever has it later knows.
//!
//! **Waiting.** A caller who has to wait sleeps by a mark (see [`SdpSock::sleep`](crate::sys::net::sock::SockCore::sleep)) and polls the
//! completion queues itself when it is woken; a worker does so when nobody waits. That spares a
//! change of threads for each message. A reader whose bytes tend to come soon does not even sleep
//! (see [`wait`]).

mod bind;
mod close;
mod connect;
pub(crate) mod connection;
mod direct;
mod events;
mod info;
pub(crate) mod ipproto;
mod listen;
pub(crate) mod namespace;
mod never_ask;
mod options;
mod patience;
mod poll;
mod ports;
mod proc;
mod receive;
mod receive_buffers;
mod receive_queue;
mod send;
mod send_queue;
pub(crate) mod stats;
mod timer;
mod wait;

use crate::memory::budget::Account;
use crate::protocol::HELLO_ACK_LEN;
use crate::sys::errno::{Errno, EADDRNOTAVAIL, ENETDOWN, ENETUNREACH, ENODEV};
use crate::sys::net::address::{Address, Named};
use crate::sys::net::descriptor::Descriptor;
use crate::sys::net::family::Family;
use crate::sys::net::message::{Destination, Source};
use crate::sys::net::netns::{InNet, PerNet};
use crate::sys::net::options::{NewValue, OldValue};
use crate::sys::net::sock::{Sock, SockCore};
use crate::sys::rdma::Net;
use crate::transport::{Attempt, Gone, LinkId, Owner, SearchId};
use connection::Connection;
use events::{Events, Queue};
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, SetOnce, SpinLock};
use patience::Patience;

pub(crate) use listen::Incoming;
pub(crate) use namespace::Namespace;

/// A socket of families 27 and 28.
pub(crate) type SdpSock = Sock<Socket>;

/// Look at the completion queues.
const JOB_PROGRESS: u32 = 1;
/// Answer the peer's wish for larger receive buffers.
const JOB_RESIZE: u32 = 2;
/// Take the connection down.
const JOB_DISCONNECT: u32 = 4;
/// Give up what a closed socket still holds.
const JOB_FINISH: u32 = 8;
/// Go on with TCP.
const JOB_FALL_BACK: u32 = 16;

/// The module's part of a socket.
#[pin_data]
pub(crate) struct Socket {
    /// What its pinned memory counts for, from its entry into the namespace on.
    account: SetOnce<Arc<Account>>,
    /// What events change.
    #[pin]
    pub(crate) connection: SpinLock<Connection>,
    /// The peer has ended its stream. Written under `connection`.
    peer_ended: Atomic<bool>,
    /// What was told of the completion queues, and whether a caller waits who will look.
    events: Events,
    /// Of the callers who wait, those who have read everything.
    readers: Atomic<i32>,
    /// Of the callers who wait, those who want room to write.
    writers: Atomic<i32>,
    /// Whether readers poll before they sleep.
    patience: Patience,
    /// Whether those poll before they sleep who wait for their memory to be read.
    takers: Patience,
}

impl SdpSock {
    /// Polls the completion queues and moves everything on that can be.
    fn progress(&self) {
        let tell = self.data().connection.lock().progress(self);
        tell.deliver(self);
    }

    /// What its pinned memory counts for: the account of the user who has made it, in its namespace.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.data().account.as_ref()
    }

    /// Whether the peer has ended its stream.
    fn peer_has_ended(&self) -> bool {
        self.data().peer_ended.load(Relaxed)
    }

    /// A completion queue has something: whoever waits looks, else a worker.
    fn event(&self, queue: Queue) {
        if self.data().events.tell(queue) {
            self.wake();
        } else {
            self.schedule(JOB_PROGRESS);
        }
    }
}

impl PerNet for Namespace {
    fn init() -> impl PinInit<Self, Error> {
        Namespace::new()
    }

    fn start(net: &Net) -> Result {
        proc::create(net)
    }

    fn stop(&self, net: &Net) {
        proc::remove(net);
        self.end();
    }
}

impl InNet for Socket {
    type Net = Namespace;
}

impl Family for Socket {
    fn init() -> impl PinInit<Self, Error> {
        try_pin_init!(Socket {
            account: SetOnce::new(),
            connection <- new_spinlock!(Connection::new()),
            peer_ended: Atomic::new(false),
            events: Events::new(),
            readers: Atomic::new(0),
            writers: Atomic::new(0),
            patience: Patience::new(),
            takers: Patience::new(),
        })
    }

    fn opened(sk: &SdpSock) -> Result {
        sk.netns().enter(sk)
    }

    fn take_port(sk: &SdpSock, port: u16) -> Result {
        bind::take_port(sk, port)
    }

    fn bound(sk: &SdpSock, to: &Address, result: Result) {
        bind::note_bind(sk, to, result)
    }

    fn connect(call: &Descriptor<'_, Self>, to: &Named, non_blocking: bool) -> Result {
        connect::connect(call, to, non_blocking)
    }

    fn listen(call: &Descriptor<'_, Self>, backlog: u32) -> Result {
        listen::listen(call, backlog)
    }

    fn accept(sk: &SdpSock, non_blocking: bool) -> Result<ARef<SdpSock>> {
        listen::accept(sk, non_blocking)
    }

    fn poll(sk: &SdpSock) -> u32 {
        poll::poll(sk)
    }

    fn send(sk: &SdpSock, message: &mut Source<'_>) -> Result<usize> {
        send::send(sk, message)
    }

    fn splice_eof(sk: &SdpSock) {
        send::announced_no_more(sk)
    }

    fn receive(sk: &SdpSock, to: &mut Destination<'_>) -> Result<usize> {
        receive::receive(sk, to)
    }

    fn ioctl(sk: &SdpSock, command: u32) -> Result<i32> {
        options::ioctl(sk, command)
    }

    fn shutdown(sk: &SdpSock, how: u8) {
        close::shutdown(sk, how)
    }

    fn disconnect(sk: &SdpSock) -> Result {
        close::disconnect(sk);
        Ok(())
    }

    fn close(sk: &SdpSock, linger: usize) {
        close::close(sk, linger)
    }

    fn set_option(sk: &SdpSock, level: i32, name: i32, value: &NewValue<'_>) -> Result {
        options::set(sk, level, name, value)
    }

    fn get_option(sk: &SdpSock, level: i32, name: i32, value: &OldValue<'_>) -> Result {
        options::get(sk, level, name, value)
    }

    fn set_keepalive(sk: &SdpSock, on: bool) {
        timer::set_keepalive(sk, on)
    }

    fn set_rcvlowat(sk: &SdpSock, bytes: i32) -> Result {
        options::set_rcvlowat(sk, bytes)
    }

    fn work(sk: &SdpSock, jobs: u32) {
        if jobs & JOB_FALL_BACK != 0 {
            ipproto::fall_back(sk);
        }
        if jobs & JOB_RESIZE != 0 {
            receive_buffers::resize(sk);
        }
        if jobs & JOB_PROGRESS != 0 {
            sk.progress();
        }
        if jobs & JOB_DISCONNECT != 0 {
            close::take_down(sk);
        }
        if jobs & JOB_FINISH != 0 {
            close::finish(sk);
        }
    }

    fn timer(sk: &SdpSock) {
        timer::expired(sk)
    }
}

impl Owner for SdpSock {
    type Acceptor = Incoming;

    fn receive_ready(&self) {
        self.event(Queue::Receive)
    }

    fn is_watched(&self) -> bool {
        SockCore::is_watched(self)
    }

    fn lend_a_hand(&self) {
        if self.data().events.are_awaited() {
            self.event(Queue::Send);
        }
    }

    fn send_ready(&self) {
        self.event(Queue::Send)
    }

    fn resolved(&self, search: SearchId, r: Result) {
        self.charged(|| connect::resolved(self, search, r))
    }

    fn replied(&self, link: LinkId, hello_ack: &[u8; HELLO_ACK_LEN]) -> Result {
        connect::replied(self, link, hello_ack)
    }

    fn established(&self, link: LinkId) {
        self.charged(|| listen::established(self, link))
    }

    fn refused(&self, link: LinkId, error: Error) {
        self.charged(|| connect::refused(self, link, error))
    }

    fn disconnected(&self, link: LinkId, how: Gone) {
        close::disconnected(self, link, how)
    }

    fn device_removed(&self, of: Attempt) {
        close::device_removed(self, of)
    }
}

/// Hands on an error of the transport or the kernel that means that a destination is out of reach.
fn unreachable_error(e: Error) -> Errno {
    match Errno::of(e) {
        ENODEV | EADDRNOTAVAIL | ENETDOWN => ENETUNREACH,
        e => e,
    }
}
