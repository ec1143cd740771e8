// SPDX-License-Identifier: GPL-2.0-only

//! The socket calls.
//!
//! A [`Socket`] is the module's part of one `struct sock` ([`SdpSock`]). A socket is unconnected, a
//! listener, or a connection made by connect(2) or by a request to a listener.
//!
//! This file contains the tables of calls and of the transport's events. [`timer`] handles the
//! deadlines. [`release`] contains the common steps at the end of a connection. A socket of
//! `IPPROTO_SDP` also has a TCP socket, which may take over its descriptor: see [`ipproto`].
//!
//! **References.** The descriptor holds one reference, the namespace's list another until the
//! socket is destroyed, the [`CmLink`](crate::transport::CmLink) of a connection a third until its
//! drop, and each queued work item one more. A closed socket exists as long as its link.
//!
//! **Locks.** The socket lock serialises the socket calls. State that events change is in the
//! [`Connection`](crate::conn::Connection), under its own spinlock. Events take this spinlock
//! without the socket lock, whose holder may sleep in a page fault. docs/locking.md describes the
//! order of all locks, and the lock-free variables.
//!
//! **Waiting.** A caller sleeps until the event number changes (see
//! [`SockCore::sleep`](crate::sys::net::sock::SockCore::sleep)). A woken caller polls the
//! completion queues itself, as poll(2) does. A worker polls if no task waits or polls. Polling in
//! the caller saves a thread switch for each message. A reader whose bytes usually arrive soon
//! polls without sleeping (`conn/wait.rs`).

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod bind;
mod call;
mod close;
mod connect;
mod establish;
mod ipproto;
mod listen;
mod local;
mod local_receive;
mod local_send;
mod netns;
mod options;
mod poll;
mod receive;
mod receive_call;
mod release;
mod send;
mod seqpacket;
mod splice;
mod timer;

pub(crate) use netns::shed;

use self::netns::Netns;
use crate::conn::events::Queue;
use crate::conn::{
    keepalive, rx_buffers, zcopy, SdpSock, Socket, JOB_ADMIT, JOB_FALL_BACK, JOB_FINISH, JOB_MOVE,
    JOB_PROGRESS, JOB_RESIZE, JOB_WRITE_FAULT,
};
use crate::protocol::HELLO_ACK_LEN;
use crate::sys::net::family::{Family, Ops};
use crate::sys::net::message::{RecvMsg, SendMsg};
use crate::sys::net::netns::InNet;
use crate::transport::{LinkId, Upcalls};
use kernel::prelude::*;

impl InNet for Socket {
    type Net = Netns;
}

impl Family for Socket {
    fn init(netns: &Netns) -> impl PinInit<Self, Error> {
        Socket::new(netns.params.clone())
    }

    const OPS: Ops<Self> = Ops {
        opened: |sk| sk.netns().enter(sk),
        take_port: bind::take_port,
        give_port: bind::give_port,
        bound: bind::note_bind,
        connect: connect::connect,
        listen: ipproto::listen,
        accept: listen::accept,
        poll: poll::poll,
        send,
        splice_eof: send::announced_no_more,
        receive,
        splice: |sk, to, nowait| match sk.is_seqpacket() {
            true => Err(EINVAL),
            false => splice::splice(sk, to, nowait),
        },
        ioctl: options::ioctl,
        shutdown: close::shutdown,
        disconnect: close::disconnect,
        close: close::close,
        set_option: options::set,
        get_option: options::get,
        set_keepalive: keepalive::set_keepalive,
        set_rcvlowat: options::set_rcvlowat,
        work,
        timer: timer::expired,
        dual: ipproto::OPS,
    };
}

impl Upcalls for SdpSock {
    fn completed(&self, sent: bool) {
        self.event(match sent {
            true => Queue::Send,
            false => Queue::Receive,
        })
    }

    fn resolved(&self, search: LinkId, r: Result) {
        self.charged(|| connect::resolved(self, search, r))
    }

    fn replied(&self, link: LinkId, hello_ack: &[u8; HELLO_ACK_LEN]) -> Result {
        connect::replied(self, link, hello_ack)
    }

    fn established(&self, link: LinkId) {
        self.charged(|| establish::established(self, link))
    }

    fn refused(&self, link: LinkId, error: Error) {
        self.charged(|| connect::refused(self, link, error))
    }

    fn disconnected(&self, link: LinkId, by_peer: bool) {
        release::disconnected(self, link, by_peer)
    }

    fn device_removed(&self, of: LinkId) {
        release::lost(self, |c| c.cm.is_at(of))
    }
}

/// sendmsg(2) of a stream or of messages.
#[inline(always)] // as `send::send`
fn send(sk: &SdpSock, message: &mut SendMsg<'_>) -> Result<usize> {
    match sk.is_seqpacket() {
        true => sk.charged(|| seqpacket::send(sk, message)),
        false => send::send(sk, message),
    }
}

/// recvmsg(2) of a stream or of messages.
#[inline(always)] // as `receive::receive`
fn receive(sk: &SdpSock, to: &mut RecvMsg<'_>) -> Result<usize> {
    match sk.is_seqpacket() {
        true => sk.charged(|| seqpacket::receive(sk, to)),
        false => receive::receive(sk, to),
    }
}

fn work(sk: &SdpSock, jobs: u32) {
    if jobs & JOB_FALL_BACK != 0 {
        ipproto::fall_back(sk);
    }
    if jobs & JOB_ADMIT != 0 {
        establish::admit(sk);
    }
    if jobs & JOB_RESIZE != 0 {
        rx_buffers::resize(sk);
    }
    if jobs & JOB_WRITE_FAULT != 0 {
        zcopy::protected::on_write_fault(sk);
    }
    if jobs & JOB_MOVE != 0 {
        zcopy::protected::move_away(sk);
        zcopy::spliced::flush_closed(sk);
    }
    if jobs & JOB_PROGRESS != 0 {
        sk.progress();
    }
    if jobs & JOB_FINISH != 0 {
        release::finish(sk);
    }
}
