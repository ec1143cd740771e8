// SPDX-License-Identifier: GPL-2.0-only

//! What a socket and its transport share: the state under the connection's spinlock.
//!
//! A [`Connection`] belongs to one socket. Whoever comes with news (a completion, bytes from a send
//! call, room in the receive queue) takes the spinlock and calls [`Connection::progress`], which
//! polls the completion queues, lets the protocol decide, posts what may be posted and collects in
//! a [`Tell`] who is to be told; that is delivered after the lock was dropped.

mod ending;
mod options;
mod polling;
mod pump;
mod tell;
mod window;

pub(super) use self::options::{Options, Threshold};
pub(super) use self::tell::Tell;

use self::window::Shortage;
use super::connect::Destination;
use super::direct::Direct;
use super::ipproto::Fallback;
use super::listen::{Listener, Place};
use super::receive_buffers::Large;
use super::receive_queue::{ReceiveQueue, Urgent};
use super::send_queue::SendQueue;
use super::stats::Stats;
use super::{SdpSock, JOB_PROGRESS, JOB_RESIZE};
use crate::observe::debug::{debug, Ends};
use crate::observe::trace;
use crate::protocol::{self, Event, Hold, Mid, MAX_HEADER};
use crate::sys::errno::{ECONNRESET, ENOBUFS, EPROTO};
use crate::sys::net::sock::{Flag, State};
use crate::sys::rdma::buffer::Buffer;
use crate::sys::time::{jiffies, Jiffies};
use crate::transport::{
    Arming, Attempt, Channel, Completion, Interest, Link, LinkId, Resolver, SearchId,
    SendCompletion, Transport,
};
use kernel::prelude::*;

/// Receive buffers that a connection starts with.
pub(super) const FIRST_WINDOW: u16 = 8;
/// Completions that are handled under one hold of the lock.
const BUDGET: u32 = 64;
/// Marks the completion of the DisConn in a send's cookie.
const FIN: u64 = 1 << 63;

/// What there is of a connection below the socket.
pub(super) type Below = (
    Option<Channel>,
    Option<Resolver<SdpSock>>,
    Option<Link<SdpSock>>,
);

/// Everything of a socket that its transport's events change. Protected by `Socket::connection`.
pub(crate) struct Connection {
    /// Carries the messages; gone when the connection is lost or over.
    pub(super) channel: Option<Channel>,
    /// The connection manager's side; dropped when it has nothing more to do.
    pub(super) link: Option<Link<SdpSock>>,
    /// Finds address and route of the peer, until the request was sent.
    pub(super) resolver: Option<Resolver<SdpSock>>,
    /// Where the last connect(2) was to go.
    pub(super) destination: Destination,
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
    /// They could not be had.
    pub(super) shortage: Shortage,
    /// The right to have large receive buffers.
    pub(super) large: Option<Large>,
    /// Size that was asked for by ChRcvBuf, until JOB_RESIZE has answered.
    pub(super) wanted_size: Option<u32>,
    /// What listen(2) has made.
    pub(super) listener: Option<KBox<Listener>>,
    /// The place in a listener's queue that a new connection has, until it waits there for accept(2).
    pub(super) place: Option<Place>,
    /// When it does so although nothing has come (`TCP_DEFER_ACCEPT`).
    pub(super) admit_at: Option<Jiffies>,
    /// The choice between SDP and TCP (`IPPROTO_SDP`).
    pub(super) fallback: Fallback,
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
    /// Of which receives the channel has promised to tell ([`Arming::Armed`]), and has not since.
    interest: Option<Interest>,
    /// Callers who poll the completion queues in place of being told.
    polling: u32,
    /// Messages since the last that asked for a completion.
    unsignaled: u32,
    /// What the last message held was held for.
    pub(super) held: Option<Hold>,
    /// When corked bytes go nevertheless.
    pub(super) uncork_at: Option<Jiffies>,
    /// That time has come.
    pub(super) uncorked: bool,
    /// When the peer, which has given no credits, is roused.
    pub(super) rouse_at: Option<Jiffies>,
    /// Something was told that was not asked for: until the program next sends or receives, bytes are
    /// taken in as they come.
    pub(super) attends: bool,
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
            destination: Destination::new(),
            protocol: None,
            tx: SendQueue::new(),
            rx: ReceiveQueue::new(),
            spare: KVec::new(),
            buffer_size: 0,
            window: FIRST_WINDOW,
            shortage: Shortage::new(),
            large: None,
            wanted_size: None,
            listener: None,
            place: None,
            admit_at: None,
            fallback: Fallback::new(),
            options: Options::new(),
            direct: Direct::new(),
            stats: Stats::new(),
            orphaned: false,
            fin_arrived: false,
            failing: false,
            more: false,
            space_wanted: false,
            interest: None,
            polling: 0,
            unsignaled: 0,
            held: None,
            uncork_at: None,
            uncorked: false,
            rouse_at: None,
            attends: false,
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
        self.shortage = Shortage::new();
        self.wanted_size = None;
        (self.uncork_at, self.uncorked) = (None, false);
        (self.rouse_at, self.attends) = (None, false);
        self.large = None;
        self.direct.forget();
        (self.fin_arrived, self.failing, self.more) = (false, false, false);
        self.interest = None;
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
    pub(crate) fn link(&self) -> Option<Link<SdpSock>> {
        self.link.clone()
    }

    /// MSeq of the last messages sent and received.
    #[cfg(sdp_selftest)]
    pub(crate) fn sequence(&self) -> [u64; 2] {
        let protocol = self.protocol.as_ref();
        protocol.map_or([0; 2], |p| [p.mseq_sent().into(), p.mseq_received().into()])
    }

    /// What goes in place of the Hello or HelloAck.
    #[cfg(sdp_selftest)]
    pub(crate) fn set_private_data(&mut self, bytes: [u8; 196]) {
        self.options.private_data = Some(bytes);
    }

    /// Whether the program has closed the socket.
    #[cfg(sdp_selftest)]
    pub(crate) fn orphaned(&self) -> bool {
        self.orphaned
    }

    /// The longest message that fits a receive buffer of `size` bytes.
    pub(super) fn announced(&self, size: u32) -> u32 {
        let beside = self.channel.as_ref().map_or(0, |c| c.limits().beside);
        size.saturating_add(beside)
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
            None => self.rx.bytes() + self.channel.as_ref().map_or(0, |c| c.unpolled()),
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

    /// Whether a device's removal ends this connection or attempt, and not one before.
    pub(super) fn is_at(&self, attempt: Attempt) -> bool {
        match attempt {
            Attempt::Search(search) => self.is_by(search),
            Attempt::Link(link) => self.is_of(link),
        }
    }

    /// Gives away everything of the connection below the socket, to be dropped without the lock.
    #[must_use]
    pub(super) fn let_go(&mut self) -> Below {
        self.direct.lost();
        self.spare.clear();
        self.tx.clear();
        (self.uncork_at, self.rouse_at) = (None, None);
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
        let (receive, _) = sk.data().events.take();
        if receive {
            self.attends |= self.interest == Some(Interest::Solicited);
            self.interest = None;
        }
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
            // One look less where they end at once. What goes wrong goes wrong again in `pump`.
            let _ = self.end_access();
            while let Some(c) = self.channel.as_mut().and_then(|c| c.poll_send()) {
                self.completed(sk, c, tell);
            }
            self.refill(sk, tell);
            self.pump(sk, tell);
            self.advance_close(sk, tell);
            if budget == 0 {
                // let others have the lock, and the processor
                sk.schedule(JOB_PROGRESS);
                break;
            }
            if self.is_polled(sk) {
                break;
            }
            let (wait_sent, interest) = (self.waits_for_completion(sk), self.interest(sk));
            let Some(channel) = self.channel.as_mut() else {
                break;
            };
            if self.interest != Some(interest) {
                let armed = channel.arm_receive(interest) == Arming::Armed;
                self.interest = armed.then_some(interest);
            }
            let send_armed = !wait_sent || channel.arm_send() == Arming::Armed;
            if send_armed && self.interest.is_some() {
                break;
            }
            budget -= 1; // a device may say so for a while and give nothing
        }
    }

    /// A message has arrived, or a receive has failed.
    fn received(&mut self, sk: &SdpSock, c: Completion, tell: &mut Tell) {
        let (mut buffer, len, head) = match c {
            Completion::Received { buffer, len, head } => (buffer, len, head),
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
        // what of the message does not lie in the buffer
        let beside = head.as_ref().map_or(0, |h| h.bytes().len() as u32);
        let start = match &head {
            Some(h) => Some(h.bytes()),
            None => buffer.bytes().get(..(len as usize).min(MAX_HEADER)),
        };
        let message = match start {
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
            buffer.offset = message.payload.start - beside;
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
        let filled = match message.event {
            Event::SinkWritten { bytes } => self.sink_over(bytes, tell),
            _ if message.for_sink => self.sink_over(0, tell),
            _ => Ok(()),
        };
        if filled.is_err() {
            return self.lose(sk, ENOBUFS, tell);
        }
        // readers who wait may advertise now
        tell.direct |= message.mid == Mid::ModeChange;
        match message.event {
            Event::PeerClosed => {
                self.sinks_void(tell);
                self.peer_closed(sk, tell);
            }
            Event::PeerAborted => self.lose(sk, ECONNRESET, tell),
            Event::Suspended { .. } => {
                self.stats.suspended += 1;
                self.lose(sk, ECONNRESET, tell);
            }
            Event::SourceAdvert => self.advert_came(sk, tell),
            Event::SourceRead { bytes, finished } => self.source_read(bytes, finished, tell),
            Event::SourcesReturned { done } => self.sources_returned(done, tell),
            Event::SinkAdvert { returned: true } => self.sources_void(tell),
            Event::SinkAdvert { returned: false } => self.sink_came(tell),
            Event::SinksReturned => self.sinks_void(tell),
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
            SendCompletion::Moved { cookie, len } => self.moved(cookie, len, tell),
            SendCompletion::Ended { cookie } => self.access_ended(cookie, tell),
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
}
