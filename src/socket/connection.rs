// SPDX-License-Identifier: GPL-2.0-only

//! What a socket and its transport share: the state under the connection's spinlock.
//!
//! A [`Connection`] belongs to one socket. Whoever comes with news (a completion, bytes from a send
//! call, room in the receive queue) takes the spinlock and calls [`Connection::progress`], which
//! polls the completion queues, lets the protocol decide, posts what may be posted and collects in
//! a [`Tell`] who is to be told; that is delivered after the lock was dropped.

use super::direct::Direct;
use super::receive::Large;
use super::receive_queue::{ReceiveQueue, Urgent};
use super::send_queue::{SendQueue, LARGE_CHUNK};
use super::stats::Stats;
use super::{listen::Listener, SdpSock, JOB_DISCONNECT, JOB_PROGRESS, JOB_RESIZE};
use crate::memory::buffer::Buffer;
use crate::observe::debug::{debug, Ends};
use crate::observe::trace;
use crate::protocol::{self, Event, Hold, Mid, Offer, Transmit, MAX_HEADER};
use crate::sys::errno::{Errno, ECONNRESET, ENOBUFS, EPROTO};
use crate::sys::net::params;
use crate::sys::net::sock::{Flag, State, RCV_SHUTDOWN, SHUTDOWN_MASK};
use crate::sys::time::{jiffies, milliseconds, seconds, Jiffies};
use crate::transport::verbs::{Channel, Link, LinkId, Resolver, SearchId};
use crate::transport::{Completion, SendCompletion, Sending, Status, Transport};
use kernel::alloc::flags::*;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

/// Receive buffers that a connection starts with.
pub(super) const FIRST_WINDOW: u16 = 8;
/// Receive buffers that are posted whatever the program leaves unread: the peer's last credits,
/// which only its control messages may use.
const LAST_BUFFERS: u16 = 2;
/// Receive buffers that are posted while nothing lies unread, however small `SO_RCVBUF` is.
const LEAST_BUFFERS: u16 = 4;
/// Completions that are handled under one hold of the lock.
const BUDGET: u32 = 64;
/// One in so many messages asks for a completion, besides the last of a run.
const SIGNAL_EVERY: u32 = 8;
/// Longest time that `TCP_CORK` and `MSG_MORE` hold bytes back (tcp(7)).
const CORK_TIME: Jiffies = milliseconds(200);
/// Marks the completion of the DisConn in a send's cookie.
const FIN: u64 = 1 << 63;

/// Who is to be told of what [`Connection::progress`] has found.
#[derive(Clone, Copy, Default)]
pub(super) struct Tell {
    /// There is something to read, or the end of it.
    pub(super) readable: bool,
    /// There is room to write.
    pub(super) writable: bool,
    /// The state has changed.
    pub(super) state: bool,
    /// An error is to be reported.
    pub(super) error: bool,
    /// Urgent data is on its way.
    pub(super) urgent: bool,
    /// The peer has hung up.
    pub(super) hup: bool,
    /// What accept(2) waits for has come (`TCP_DEFER_ACCEPT`).
    pub(super) admit: bool,
    /// Zero copy has come on.
    pub(super) direct: bool,
}

impl Tell {
    /// Adds what another one says.
    pub(super) fn merge(&mut self, o: Tell) {
        self.readable |= o.readable;
        self.writable |= o.writable;
        self.state |= o.state;
        self.error |= o.error;
        self.urgent |= o.urgent;
        self.hup |= o.hup;
        self.admit |= o.admit;
        self.direct |= o.direct;
    }

    /// Tells them. The connection's lock is not held.
    pub(super) fn deliver(self, sk: &SdpSock) {
        if self.readable || self.writable || self.state || self.error || self.direct {
            sk.wake();
        }
        if self.admit {
            super::listen::admit(sk);
        }
        if self.urgent {
            sk.send_sigurg();
        }
        if self.state {
            sk.state_changed();
        }
        if self.readable {
            sk.data_ready();
        }
        if self.writable && sk.take_want_space() {
            sk.write_space();
        }
        if self.error {
            sk.error_report();
        }
        if self.hup {
            sk.sigio_hup();
        }
    }
}

/// Options of the socket that matter under the lock.
#[derive(Clone)]
pub(super) struct Options {
    /// `TCP_NODELAY`.
    pub(super) no_delay: bool,
    /// `TCP_CORK`.
    pub(super) cork: bool,
    /// `TCP_QUICKACK`, which has no effect.
    pub(super) quickack: bool,
    /// `TCP_KEEPIDLE` in seconds.
    pub(super) keep_idle: u32,
    /// `TCP_KEEPINTVL` in seconds.
    pub(super) keep_interval: u32,
    /// `TCP_KEEPCNT`.
    pub(super) keep_count: u32,
    /// `TCP_USER_TIMEOUT` in milliseconds, 0 for none.
    pub(super) user_timeout: u32,
    /// `TCP_SYNCNT`.
    pub(super) syn_count: u32,
    /// `TCP_LINGER2` in seconds, negative for none.
    pub(super) linger2: i32,
    /// `TCP_DEFER_ACCEPT` in seconds.
    pub(super) defer_accept: u32,
    /// `TCP_WINDOW_CLAMP`.
    pub(super) window_clamp: u32,
    /// `TCP_NOTSENT_LOWAT` in bytes, 0 for none.
    pub(super) not_sent_lowat: u32,
    /// `TCP_MAXSEG` as set, 0 for the connection's own.
    pub(super) maxseg: u32,
    /// `SDP_ZCOPY_THRESH`, negative for the module's.
    pub(super) zcopy_thresh: i32,
    /// `SDP_LAST_BIND_ERR`.
    pub(super) last_bind_error: i32,
}

/// What there is of a connection below the socket.
pub(super) type Below = (
    Option<Channel>,
    Option<Arc<Resolver<SdpSock>>>,
    Option<Arc<Link<SdpSock>>>,
);

/// Everything of a socket that its transport's events change. Protected by `Socket::connection`.
pub(crate) struct Connection {
    /// Carries the messages; gone when the connection is lost or over.
    pub(super) channel: Option<Channel>,
    /// The connection manager's side; dropped when it has nothing more to do.
    pub(super) link: Option<Arc<Link<SdpSock>>>,
    /// Finds address and route of the peer, until the request was sent.
    pub(super) resolver: Option<Arc<Resolver<SdpSock>>>,
    /// The protocol's state, once both Hello messages are known.
    pub(super) protocol: Option<protocol::Connection>,
    /// Bytes to send.
    pub(super) tx: SendQueue,
    /// Bytes received.
    pub(super) rx: ReceiveQueue,
    /// Unused receive buffers, of the current size.
    pub(super) spare: KVec<KBox<Buffer>>,
    /// Size of the receive buffers.
    pub(super) buffer_size: u32,
    /// Receive buffers to have posted while the reader keeps up.
    pub(super) window: u16,
    /// The right to have large receive buffers.
    pub(super) large: Option<Large>,
    /// Size that was asked for by ChRcvBuf, until JOB_RESIZE has answered.
    pub(super) wanted_size: Option<u32>,
    /// What listen(2) has made.
    pub(super) listener: Option<KBox<Listener>>,
    /// The listener that a new connection belongs to, until it waits for accept(2).
    pub(super) parent: Option<ARef<SdpSock>>,
    /// When it does so although nothing has come (`TCP_DEFER_ACCEPT`).
    pub(super) admit_at: Option<Jiffies>,
    /// Options.
    pub(super) options: Options,
    /// Zero copy.
    pub(super) direct: Direct,
    /// Counters.
    pub(super) stats: Stats,
    /// The program has closed the socket.
    pub(super) orphaned: bool,
    /// The DisConn has arrived at the peer.
    fin_arrived: bool,
    /// A failure was reported to the link.
    pub(super) failing: bool,
    /// MSG_MORE is in effect.
    pub(super) more: bool,
    /// Somebody polls for room, or was told that there is none.
    pub(super) space_wanted: bool,
    /// The receive queue's next completion will be told.
    receive_armed: bool,
    /// The send queue's next completion will be told.
    send_armed: bool,
    /// Messages since the last that asked for a completion.
    unsignaled: u32,
    /// What the last message held was held for.
    pub(super) held: Option<Hold>,
    /// When corked bytes go nevertheless.
    pub(super) uncork_at: Option<Jiffies>,
    /// That time has come.
    pub(super) uncorked: bool,
    /// When the peer was last heard of.
    pub(super) last_heard: Jiffies,
    /// When bytes last were known to have arrived, or began to wait.
    pub(super) last_progress: Jiffies,
    /// When the socket has to be done with closing.
    pub(super) deadline: Option<Jiffies>,
    /// Keepalive probes that were sent since the peer was last heard of.
    pub(super) probes: u32,
}

impl Connection {
    /// The state of a new socket.
    pub(super) fn new() -> Self {
        Connection {
            channel: None,
            link: None,
            resolver: None,
            protocol: None,
            tx: SendQueue::new(),
            rx: ReceiveQueue::new(),
            spare: KVec::new(),
            buffer_size: 0,
            window: FIRST_WINDOW,
            large: None,
            wanted_size: None,
            listener: None,
            parent: None,
            admit_at: None,
            options: Options::new(),
            direct: Direct::new(),
            stats: Stats::new(),
            orphaned: false,
            fin_arrived: false,
            failing: false,
            more: false,
            space_wanted: false,
            receive_armed: false,
            send_armed: false,
            unsignaled: 0,
            held: None,
            uncork_at: None,
            uncorked: false,
            last_heard: 0,
            last_progress: 0,
            deadline: None,
            probes: 0,
        }
    }

    /// Makes the socket as good as new for another connection; options and counters stay.
    pub(super) fn reset(&mut self) {
        self.tx.clear();
        self.rx.clear();
        self.spare.clear();
        self.protocol = None;
        self.window = FIRST_WINDOW;
        self.wanted_size = None;
        (self.uncork_at, self.uncorked) = (None, false);
        self.large = None;
        self.direct.forget();
        (self.fin_arrived, self.failing, self.more) = (false, false, false);
        (self.receive_armed, self.send_armed) = (false, false);
        (self.unsignaled, self.held, self.deadline, self.probes) = (0, None, None, 0);
    }

    /// Starts with a new channel, on which the first receive buffers are posted.
    pub(super) fn attach(&mut self, channel: Channel) {
        self.channel = Some(channel);
        self.last_heard = jiffies();
        self.last_progress = self.last_heard;
    }

    /// Takes the channel away.
    #[cfg(sdp_selftest)]
    pub(crate) fn take_channel(&mut self) -> Option<Channel> {
        self.channel.take()
    }

    /// The link.
    #[cfg(sdp_selftest)]
    pub(crate) fn link(&self) -> Option<Arc<Link<SdpSock>>> {
        self.link.clone()
    }

    /// Most payload bytes of a message to the peer.
    pub(super) fn max_payload(&self) -> u32 {
        self.protocol.as_ref().map_or(0, |p| p.max_payload())
    }

    /// Bytes received and not read (of a listener: connections not accepted), and bytes sent and
    /// not known to have arrived.
    pub(crate) fn queues(&self) -> (usize, usize) {
        let rx = match &self.listener {
            Some(l) => l.ready(),
            None => self.rx.bytes(),
        };
        (rx, self.tx.queued())
    }

    /// Whether news of a link are of this connection, and not of one that the socket had before.
    pub(super) fn is_of(&self, link: LinkId) -> bool {
        self.link.as_ref().is_some_and(|l| l.id() == link)
    }

    /// Whether what a resolver has found is for this attempt to connect, and not for one before.
    pub(super) fn is_by(&self, search: SearchId) -> bool {
        self.resolver.as_ref().is_some_and(|r| r.id() == search)
    }

    /// Gives away everything of the connection below the socket, to be dropped without the lock.
    #[must_use]
    pub(super) fn let_go(&mut self) -> Below {
        self.direct.lost();
        self.rx.unmap();
        self.spare.clear();
        self.tx.clear();
        (self.channel.take(), self.resolver.take(), self.link.take())
    }

    /// Whether bytes can still be sent and received.
    pub(super) fn connected(&self) -> bool {
        self.channel.is_some() && self.protocol.is_some()
    }

    /// Moves everything on that can be moved on.
    pub(super) fn progress(&mut self, sk: &SdpSock) -> Tell {
        let mut tell = Tell::default();
        self.run(sk, &mut tell);
        tell
    }

    fn run(&mut self, sk: &SdpSock, tell: &mut Tell) {
        self.poll(sk, tell);
        sk.set_memory(self.rx.memory(), self.tx.queued());
    }

    fn poll(&mut self, sk: &SdpSock, tell: &mut Tell) {
        let (receive, send) = sk.data().take_events();
        self.receive_armed &= !receive;
        self.send_armed &= !send;
        let mut budget = BUDGET;
        while self.connected() {
            while budget > 0 {
                let Some(c) = self.channel.as_mut().and_then(|c| c.poll_receive()) else {
                    break;
                };
                budget -= 1;
                self.stats.receive_completions += 1;
                self.received(sk, c, tell);
            }
            while let Some(c) = self.channel.as_mut().and_then(|c| c.poll_send()) {
                self.completed(sk, c, tell);
            }
            self.refill(sk);
            self.pump(sk, tell);
            self.advance_close(sk, tell);
            if budget == 0 {
                // let others have the lock, and the processor
                sk.schedule(JOB_PROGRESS);
                break;
            }
            let wait_sent = self.waits_for_completion(sk);
            let Some(channel) = self.channel.as_mut() else {
                break;
            };
            if !self.receive_armed {
                self.receive_armed = true;
                if channel.arm_receive() {
                    continue;
                }
            }
            if wait_sent && !self.send_armed {
                self.send_armed = true;
                if channel.arm_send() {
                    continue;
                }
            }
            break;
        }
    }

    /// Whether the completion of a send moves something on, so that it has to be told.
    fn waits_for_completion(&self, sk: &SdpSock) -> bool {
        let closing = self.protocol.as_ref().is_some_and(|p| p.send_closed()) && !self.fin_arrived;
        let writers = sk.data().writers.load(Relaxed) > 0;
        let held = self.held == Some(Hold::Wire);
        held || writers || self.space_wanted || closing || self.direct.is_busy()
    }

    /// A message has arrived, or a receive has failed.
    fn received(&mut self, sk: &SdpSock, c: Completion, tell: &mut Tell) {
        let (mut buffer, len) = match c {
            Completion::Received { buffer, len } => (buffer, len),
            Completion::Failed { status, .. } => return self.failed(sk, status, tell),
        };
        if sk.state() == State::SynRecv {
            if let Some(link) = &self.link {
                link.heard();
            }
        }
        self.last_heard = jiffies();
        self.probes = 0;
        let Some(protocol) = self.protocol.as_mut() else {
            return;
        };
        let head = (len as usize).min(MAX_HEADER);
        let message = match buffer.bytes().get(..head) {
            Some(bytes) => {
                let message = protocol.receive(bytes, len);
                trace::receive(sk, bytes, protocol.credits());
                message
            }
            None => return,
        };
        let message = match message {
            Ok(m) => m,
            Err(violation) => {
                self.stats.violation(violation);
                debug!(
                    "{}: the peer broke the protocol: {}",
                    Ends(sk),
                    violation.name()
                );
                return self.lose(sk, EPROTO, tell);
            }
        };
        self.stats.received[message.mid.index()] += 1;
        if message.urgent_pending {
            // as on TCP: an old urgent byte that the reader stands at is gone
            if !sk.flag(Flag::UrgInline) {
                if let Some(empty) = self.rx.skip_mark() {
                    self.recycle(empty);
                }
            }
            self.rx.urgent = Urgent::Pending;
            tell.urgent = true;
        }
        if message.payload.is_empty() {
            self.recycle(buffer);
        } else {
            if self.orphaned {
                // as TCP: bytes that nobody can read any more are answered with a reset
                return self.lose(sk, ECONNRESET, tell);
            }
            buffer.offset = message.payload.start;
            buffer.len = message.payload.end - message.payload.start;
            self.stats.bytes_received += u64::from(buffer.len);
            match self.rx.push(buffer, message.urgent) {
                Ok(Some(spare)) => self.recycle(spare),
                Ok(None) => {}
                Err(_) => return self.lose(sk, ENOBUFS, tell),
            }
            tell.readable = true;
            tell.admit |= self.admit_at.is_some();
        }
        match message.event {
            Event::PeerClosed => self.peer_closed(sk, tell),
            Event::PeerAborted => self.lose(sk, ECONNRESET, tell),
            Event::Suspended { .. } => {
                self.stats.suspended += 1;
                self.lose(sk, ECONNRESET, tell);
            }
            Event::SourceAdvert => self.advert_came(sk, tell),
            Event::SourceRead { bytes, finished } => self.source_read(bytes, finished, tell),
            Event::SourcesReturned { done } => self.source_returned(done, tell),
            Event::ReceiveSizeRequested(size) => {
                self.wanted_size = Some(size);
                sk.schedule(JOB_RESIZE);
            }
            _ => {}
        }
    }

    /// Sends were carried out, or have failed.
    fn completed(&mut self, sk: &SdpSock, c: SendCompletion, tell: &mut Tell) {
        self.stats.send_completions += 1;
        match c {
            SendCompletion::Sent { cookie } => {
                self.fin_arrived |= cookie & FIN != 0;
                self.tx.complete(cookie & !FIN);
                self.last_progress = jiffies();
                tell.writable |= self.writable(sk);
                self.space_wanted &= !tell.writable;
            }
            SendCompletion::Failed { status, .. } => self.failed(sk, status, tell),
            SendCompletion::Moved { len, .. } => self.read_done(len, tell),
            SendCompletion::Ended { .. } => self.access_ended(tell),
        }
    }

    /// Whether poll(2) calls the socket writable, by TCP's rule: a third of the buffer is free.
    pub(super) fn writable(&self, sk: &SdpSock) -> bool {
        let queued = self.tx.queued();
        let unsent = self.options.not_sent_lowat;
        sk.sndbuf().saturating_sub(queued) >= queued / 2
            && queued < sk.sndbuf()
            && (self.tx.has_room() || !self.connected())
            && (unsent == 0 || self.tx.unsent() < unsent as usize)
    }

    /// The queue pair has failed, or is being taken down.
    fn failed(&mut self, sk: &SdpSock, status: Status, tell: &mut Tell) {
        if matches!(status, Status::Flushed) {
            // What comes first tells the reason: the completion that failed, or the connection
            // manager. If nothing did, the link finds out.
            if !self.failing {
                self.failing = true;
                if let Some(link) = &self.link {
                    link.fail();
                }
            }
            return;
        }
        let over = self
            .protocol
            .as_ref()
            .is_some_and(|p| p.send_closed() && p.receive_closed());
        if over {
            // The peer may take its side down before it has acknowledged our DisConn.
            self.fin_arrived = true;
            return;
        }
        self.stats.transport_errors += 1;
        debug!("{}: the transport failed: {:?}", Ends(sk), status);
        self.lose(sk, Errno::of(status.error()), tell);
    }

    /// The peer's DisConn has come: no more bytes from it.
    fn peer_closed(&mut self, sk: &SdpSock, tell: &mut Tell) {
        sk.add_shutdown(RCV_SHUTDOWN);
        sk.set_flag(Flag::Done, true);
        match sk.state() {
            State::SynRecv | State::Established => sk.set_state(State::CloseWait),
            State::FinWait1 => sk.set_state(State::Closing),
            State::FinWait2 => self.over(sk, true),
            _ => {}
        }
        if let Urgent::Pending = self.rx.urgent {
            self.rx.urgent = Urgent::None;
        }
        (tell.state, tell.readable, tell.hup) = (true, true, true);
        tell.admit |= self.admit_at.is_some();
    }

    /// Takes the steps of closing that what has arrived allows.
    fn advance_close(&mut self, sk: &SdpSock, tell: &mut Tell) {
        if !self.fin_arrived {
            return;
        }
        match sk.state() {
            State::FinWait1 => sk.set_state(State::FinWait2),
            State::Closing => self.over(sk, true),
            State::LastAck => self.over(sk, false),
            _ => return,
        }
        tell.state = true;
        if sk.state() == State::FinWait2 && self.orphaned {
            self.await_end(sk);
        }
    }

    /// Of a closed socket only the peer's end is missing: waits for it as `TCP_LINGER2` says.
    pub(super) fn await_end(&mut self, sk: &SdpSock) {
        match u32::try_from(self.options.linger2) {
            Ok(0) => self.set_deadline(sk, super::close::FIN_TIME),
            Ok(n) => self.set_deadline(sk, seconds(n)),
            Err(_) => {
                self.end(sk);
                self.failing = true;
                if let Some(link) = &self.link {
                    link.fail();
                }
            }
        }
    }

    /// Both streams have ended and arrived: for the program the connection is closed. The side that
    /// closed first takes it down; if it does not, the other one does.
    fn over(&mut self, sk: &SdpSock, first: bool) {
        trace::close(sk);
        sk.set_state(State::Close);
        sk.add_shutdown(SHUTDOWN_MASK);
        if first {
            self.take_down(sk);
        } else {
            self.set_deadline(sk, super::close::LAST_ACK_TIME);
        }
    }

    /// Has the link disconnect; false if that was done before.
    pub(super) fn take_down(&mut self, sk: &SdpSock) -> bool {
        if core::mem::replace(&mut self.failing, true) {
            return false;
        }
        self.set_deadline(sk, super::close::FIN_TIME);
        sk.schedule(JOB_DISCONNECT);
        true
    }

    /// The connection is lost: the program gets `error`, the peer a DREQ.
    pub(super) fn lose(&mut self, sk: &SdpSock, error: Errno, tell: &mut Tell) {
        if sk.state() != State::Close {
            sk.set_error(error);
            self.end(sk);
            (tell.state, tell.error) = (true, true);
        }
        self.failing = true;
        if let Some(link) = &self.link {
            link.fail();
        }
    }

    /// Ends the connection on this side: no more bytes either way. What was received stays.
    pub(super) fn end(&mut self, sk: &SdpSock) {
        trace::close(sk);
        sk.set_state(State::Close);
        sk.add_shutdown(SHUTDOWN_MASK);
        self.rx.unmap();
        self.spare.clear();
        self.tx.clear();
        self.held = None;
        self.direct.lost();
        self.channel = None;
        self.set_deadline(sk, super::close::FIN_TIME);
    }

    /// Has [`super::Socket`]'s timer look after this connection in `delay` at the latest.
    pub(super) fn set_deadline(&mut self, sk: &SdpSock, delay: Jiffies) {
        self.deadline = Some(jiffies().wrapping_add(delay));
        sk.set_timer(delay);
    }

    /// Takes back a receive buffer that is empty.
    pub(super) fn recycle(&mut self, buffer: KBox<Buffer>) {
        if self.channel.is_some() && buffer.capacity() == self.buffer_size as usize {
            let _ = self.spare.push_within_capacity(buffer);
        }
    }

    /// Receive buffers to have posted, by the window and the program's buffer size.
    fn target(&self, sk: &SdpSock) -> u16 {
        let unread = self.rx.memory();
        let room = sk.rcvbuf().saturating_sub(unread) / (self.buffer_size as usize).max(1);
        // a peer that has advertised sends no Data, and may need credits to take that back
        let least = if unread == 0 || self.holds_advert() {
            LEAST_BUFFERS
        } else {
            LAST_BUFFERS
        };
        self.window
            .min(u16::try_from(room).unwrap_or(u16::MAX))
            .max(least)
    }

    /// Whether so many receive buffers are missing that it is time to post them: a quarter, since
    /// it costs the same for one as for all of them.
    pub(super) fn wants_refill(&self, sk: &SdpSock) -> bool {
        let Some(channel) = self.channel.as_ref() else {
            return false;
        };
        let target = self.target(sk);
        channel.posted_receives() <= target - target / 4
    }

    /// Posts the receive buffers that are missing, if it is time to.
    pub(super) fn refill(&mut self, sk: &SdpSock) {
        if !self.wants_refill(sk) {
            return;
        }
        let Some(channel) = self.channel.as_mut() else {
            return;
        };
        let size = self.buffer_size as usize;
        let posted = channel.posted_receives();
        let keeps_up = self.rx.memory() == 0;
        if posted < self.window / 2 && keeps_up && self.spare.len() < usize::from(posted) {
            // the peer has sent half of what it may in one go, and the reader keeps up
            self.window = wider(self.window, channel);
        }
        let target = self.target(sk);
        let Some(channel) = self.channel.as_mut() else {
            return;
        };
        for _ in posted..target {
            if !self
                .rx
                .make_room(usize::from(channel.posted_receives()) + 1)
            {
                break;
            }
            let buffer = match self.spare.pop() {
                Some(b) => b,
                None => {
                    let Ok(mut b) = Buffer::new(size, GFP_NOWAIT) else {
                        break;
                    };
                    if channel.map_receive(&mut b).is_err() {
                        break;
                    }
                    b
                }
            };
            if channel.post_receive(buffer).is_err() {
                break;
            }
        }
    }

    /// Sends what may be sent.
    pub(super) fn pump(&mut self, sk: &SdpSock, tell: &mut Tell) {
        let mut failed = self.end_access().and_then(|()| self.read_on()).err();
        let (Some(channel), Some(protocol)) = (self.channel.as_mut(), self.protocol.as_mut())
        else {
            return;
        };
        let held = loop {
            if channel.send_room() == 0 {
                break Some(Hold::Wire);
            }
            let source = self.direct.offered();
            let unsent = match source {
                // what is queued behind the block goes after it
                Some((_, at)) => at.saturating_sub(self.tx.sent()) as usize,
                None => self.tx.unsent(),
            };
            let contiguous = self.tx.contiguous();
            let offer = Offer {
                queued: u32::try_from(unsent).unwrap_or(u32::MAX),
                urgent: self.tx.urgent(),
                posted: channel.posted_receives(),
                // Only messages with payload count, the last of which asks for a completion; one of
                // those without that nobody is told of must not hold anything back.
                in_flight: u16::from(self.tx.in_flight()),
                // What does not fit one message for the way it lies in memory is not held back:
                // so only the last bytes are, and the message before them asks for a completion.
                no_delay: self.options.no_delay || unsent > contiguous || source.is_some(),
                cork: (self.options.cork || self.more) && !self.uncorked && source.is_none(),
                limit: u32::try_from(contiguous).unwrap_or(u32::MAX),
                reader_waits: sk.data().readers.load(Relaxed) > 0 && self.rx.bytes() == 0,
                source: source.map(|(block, _)| block),
                sink: None,
            };
            let message = match protocol.transmit(&offer) {
                Transmit::Send(m) => m,
                Transmit::Held(h) => break Some(h),
                Transmit::Idle => break None,
            };
            if message.kind == Mid::SrcAvail {
                trace::send(sk, &message.header, protocol.credits());
                self.stats.sent[message.kind.index()] += 1;
                self.stats.bytes_sent += u64::from(message.payload);
                if let Err(e) = self.direct.advertise(channel, &message, self.tx.sent()) {
                    failed = Some(e);
                    break None;
                }
                continue;
            }
            let n = message.payload as usize;
            let fin = message.kind == Mid::DisConn;
            let after = self.tx.sent() + n as u64;
            self.unsignaled += 1;
            // the peer's buffers may grow before the rest is sent
            let full = LARGE_CHUNK.max(protocol.max_payload() as usize);
            let last = n > 0 && unsent - n < full;
            let signaled = last || fin || self.unsignaled >= SIGNAL_EVERY;
            if signaled {
                self.unsignaled = 0;
            }
            let (spans, count) = self.tx.spans(n);
            let mut list = spans.into_iter().flatten();
            let mut post = |payload: &[_]| {
                channel.post_send(&Sending {
                    header: message
                        .header
                        .get(..message.header_len.into())
                        .unwrap_or_default(),
                    payload,
                    signaled,
                    solicited: message.urgent,
                    cookie: after | if fin { FIN } else { 0 },
                })
            };
            let r = match (count, list.next(), list.next()) {
                (2, Some(a), Some(b)) => post(&[a, b]),
                (1, Some(a), _) => post(&[a]),
                _ => post(&[]),
            };
            drop(list);
            if let Err(e) = r {
                failed = Some(e);
                break None;
            }
            trace::send(sk, &message.header, protocol.credits());
            if n == 0 && message.kind == Mid::Data && self.rx.memory() == 0 {
                // a credit update: most goes one way, and a wider window needs fewer of them
                self.window = wider(self.window, channel);
            }
            self.stats.sent[message.kind.index()] += 1;
            self.stats.bytes_sent += n as u64;
            self.tx.advance(n, message.urgent);
        };
        if held == Some(Hold::Credits) && self.held != held {
            self.stats.credit_stalls += 1;
            trace::credit_stall(sk, protocol.credits(), self.tx.unsent());
        }
        self.held = held;
        self.uncorked = false;
        if held != Some(Hold::Corked) {
            self.uncork_at = None;
        } else if self.uncork_at.is_none() {
            self.uncork_at = Some(jiffies().wrapping_add(CORK_TIME));
            sk.set_timer(CORK_TIME);
        }
        if let Err(e) = channel.flush() {
            failed = Some(e);
        }
        if let Some(e) = failed {
            self.stats.transport_errors += 1;
            self.lose(sk, Errno::of(e), tell);
        }
    }
}

/// Twice the window, as far as the receive queue allows.
fn wider(window: u16, channel: &Channel) -> u16 {
    window.saturating_mul(2).min(channel.limits().receive_slots)
}

impl Options {
    /// Bytes from which a send is offered to the peer's reader, 0 for never.
    pub(super) fn zcopy_threshold(&self) -> i32 {
        match self.zcopy_thresh {
            ..0 => params::sdp_zcopy_thresh(),
            own => own,
        }
    }

    fn new() -> Self {
        Options {
            no_delay: false,
            cork: false,
            quickack: true,
            keep_idle: 0,
            keep_interval: 75,
            keep_count: 9,
            user_timeout: 0,
            syn_count: 0,
            linger2: 0,
            defer_accept: 0,
            window_clamp: 0,
            not_sent_lowat: 0,
            maxseg: 0,
            zcopy_thresh: -1,
            last_bind_error: 0,
        }
    }
}
