// SPDX-License-Identifier: GPL-2.0-only

//! listen(2) and accept(2), and the passive side of connection setup.
//!
//! [`Acceptor::request`] handles a request with the peer's Hello. If a listener has space in its
//! backlog, a socket is created and the HelloAck sent. The socket is established once the peer has
//! received the HelloAck; then it waits in the listener's queue for accept(2). If the backlog is
//! full, no reply is sent, and the peer retries, as after a lost SYN.

use super::{bind, release};
use crate::conn::setup::{self, Prepared, MAX_ADVERTS};
use crate::conn::timers::Timer;
use crate::conn::{rx_buffers, BacklogSlot, Listener, SdpSock, Socket, FIN_TIME};
use crate::protocol::{self, Hello, HelloAck, IpVersion, Records};
use crate::sys::address::Address;
use crate::sys::debug::debug;
use crate::sys::errno::{EADDRINUSE, EAGAIN, EINVAL, ENETDOWN, ENOBUFS};
use crate::sys::net::descriptor::{Descriptor, Progress};
use crate::sys::net::sock::{State, Unaccepted};
use crate::sys::net::{family, params};
use crate::sys::netns::Net;
use crate::sys::random::hash;
use crate::transport::{self, Acceptor, Request, Verdict};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use kernel::prelude::*;
use kernel::sync::aref::ARef;

pub(super) fn listen(call: &Descriptor<'_, Socket>, backlog: u32) -> Result {
    let sk = call.sk;
    let _lock = sk.lock();
    if call.progress() != Progress::Unconnected {
        return Err(EINVAL.into());
    }
    match sk.state() {
        State::Listen => {
            sk.set_backlog(backlog);
            return Ok(());
        }
        State::Close => {}
        _ => return Err(EINVAL.into()),
    }
    if sk.port() == 0 {
        bind::take_port(sk, 0)?;
    }
    check_tcp(sk)?;
    let listener = Listener::new(transport::listen(sk.port())?)?;
    sk.set_backlog(backlog);
    sk.clear_shutdown();
    sk.connection().listener = Some(listener);
    sk.set_state(State::Listen);
    let r = sk.netns().ports.lock().listening(sk);
    if r.is_err() {
        stop(sk);
    }
    r
}

/// Checks that no other user listens on TCP: clients of `IPPROTO_SDP` expect the TCP service.
///
/// # Errors
///
/// `EADDRINUSE`: TCP has a listener of another user at this address. TCP listeners at an address
/// included in a wildcard, or started later, are found when a request arrives.
fn check_tcp(sk: &SdpSock) -> Result {
    let local = sk.local();
    let takes_ipv4 = local.ip.is_ipv6() && local.ip.is_unspecified() && !sk.v6_only();
    let any_ipv4 = Address {
        port: local.port,
        ..Address::any(false)
    };
    let is_anothers =
        |at: &Address| sk.tcp_is_anothers(at, &Address::any(at.ip.is_ipv6()), sk.bound_interface());
    if is_anothers(&local) || (takes_ipv4 && is_anothers(&any_ipv4)) {
        return Err(EADDRINUSE.into());
    }
    Ok(())
}

/// Ends listening: resets connections that were not accepted. Context: socket lock held.
pub(super) fn stop(sk: &SdpSock) {
    sk.set_state(State::Close);
    let _ = sk.netns().ports.lock().listening(sk);
    let listener = sk.connection().listener.take();
    let Some(mut listener) = listener else { return };
    listener.end();
    while let Some(child) = listener.take() {
        release::destroy_unaccepted(child.into_sock());
    }
    sk.set_waiting(0);
}

pub(super) fn accept(sk: &SdpSock, non_blocking: bool) -> Result<Unaccepted<Socket>> {
    let mut lock = sk.lock();
    let mut timeout = sk.receive_timeout(non_blocking);
    loop {
        let seq = sk.event_seq();
        if sk.state() != State::Listen {
            return Err(EINVAL.into());
        }
        let next = {
            let mut c = sk.connection();
            let Some(l) = c.listener.as_mut() else {
                return Err(EINVAL.into());
            };
            let next = l.take();
            sk.set_waiting(l.ready() as u32);
            next
        };
        if let Some(child) = next {
            return Ok(child);
        }
        if timeout == 0 {
            return Err(EAGAIN.into());
        }
        timeout = lock.unlocked(|| sk.sleep_in_turn(seq, timeout))?;
    }
}

impl Acceptor for SdpSock {
    fn request(request: &Request<'_, Self>) -> Verdict {
        let Some(namespace) = family::netns_of::<Socket>(&request.net) else {
            return Verdict::Unknown;
        };
        // without the peer's port, getpeername(2) and accept(2) would fail
        let hello = Hello::parse(request.incoming.data).ok();
        let is_valid = |h: &Hello| h.local_port != 0 && h.messages().is_some();
        let Some(hello) = hello.filter(is_valid) else {
            namespace.count(|s| s.bad_hellos += 1);
            debug!(
                "a request to connect to port {} has no valid Hello",
                request.port
            );
            return Verdict::Reject;
        };
        if params::sdp_link_layer_ib_only() != 0 && !request.is_infiniband() {
            return Verdict::Unknown;
        }
        let local = address(&hello, &hello.dst, request.port, request);
        let remote = address(&hello, &hello.src, hello.local_port, request);
        if !request.plausible(&local, &remote) {
            return Verdict::Reject;
        }
        accept_request(
            &request.net,
            &local,
            &remote,
            request.ifindex,
            hello.messages() != Some(0),
            |child, slot| prepare(child, slot, request, &hello),
        )
    }
}

/// Creates a connection's socket for a listener with space in its backlog; `prepare` sets it up.
/// `messages`: the connection is of `SOCK_SEQPACKET`.
pub(super) fn accept_request(
    net: &Net,
    local: &Address,
    remote: &Address,
    ifindex: u32,
    messages: bool,
    prepare: impl FnOnce(&ARef<SdpSock>, &BacklogSlot) -> Result,
) -> Verdict {
    let Some(namespace) = family::netns_of::<Socket>(net) else {
        return Verdict::Unknown;
    };
    let log = |why| debug!("a request to connect to port {} {why}", local.port);
    // a peer cannot predict this choice among several listeners
    let hash = hash([local.bytes(), remote.bytes()].as_flattened());
    let takes = |bound| net.bound_dev_eq(bound, ifindex);
    let listener = namespace
        .ports
        .lock()
        .listener(*local, messages, takes, hash);
    let Some(listener) = listener else {
        return Verdict::Unknown;
    };
    if listener.tcp_is_anothers(local, remote, ifindex as i32) {
        log("is refused: another user has a TCP listener at the port");
        return Verdict::Unknown;
    }
    let Some(slot) = BacklogSlot::reserve(&listener) else {
        namespace.count(|s| s.backlog_drops += 1);
        log("has to wait: the backlog is full");
        return Verdict::Drop;
    };
    match begin(&slot, local, remote, prepare) {
        Ok(()) => Verdict::Accepted,
        Err(e) => {
            debug!(
                "a request to connect to port {} failed: {:?}",
                local.port, e
            );
            slot.give_back();
            Verdict::Drop
        }
    }
}

fn address(hello: &Hello, ip: &[u8; 16], port: u16, request: &Request<'_, SdpSock>) -> Address {
    let ip = match hello.ip_version {
        IpVersion::V4 => IpAddr::V4(Ipv4Addr::from(Hello::as_ipv4(*ip))),
        IpVersion::V6 => IpAddr::V6(Ipv6Addr::from(*ip)),
    };
    scoped(ip, port, request.ifindex)
}

/// Returns an address of the passive end, with the scope of interface `ifindex` if link-local.
pub(super) fn scoped(ip: IpAddr, port: u16, ifindex: u32) -> Address {
    let scope = match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => ifindex,
        _ => 0,
    };
    Address { ip, port, scope }
}

/// Creates the socket of a new connection.
fn begin(
    slot: &BacklogSlot,
    local: &Address,
    remote: &Address,
    prepare: impl FnOnce(&ARef<SdpSock>, &BacklogSlot) -> Result,
) -> Result {
    if !slot.listener.netns().admits() {
        return Err(ENOBUFS.into());
    }
    // accept(2) has not returned the connection yet
    let (child, r) = slot.listener.charged(|| {
        let child = slot.listener.child()?;
        let options = slot.listener.connection().options.clone();
        child.connection().options = options;
        let r = enter(&child, local, remote).and_then(|()| prepare(&child, slot));
        Ok::<_, Error>((child, r))
    })?;
    let Err(e) = r else { return Ok(()) };
    let (begun, slot) = {
        let mut c = child.connection();
        (c.protocol.is_some() || c.local.is_some(), c.slot.take())
    };
    if begun && slot.is_none() {
        // `refused` was first, and has removed the connection
        return Ok(());
    }
    release::destroy_unaccepted(child);
    Err(e)
}

/// Sets the addresses of a new socket, and enters the socket in the namespace.
fn enter(child: &ARef<SdpSock>, local: &Address, remote: &Address) -> Result {
    child.set_local(local);
    child.set_port(local.port);
    child.set_remote(remote);
    if remote.scope != 0 {
        child.bind_scope(remote.scope)?;
    }
    let namespace = child.netns();
    namespace.enter(child)?;
    namespace.ports.lock().join(child, local.port)
}

/// Creates the endpoint of a new connection and answers the request.
fn prepare(
    child: &ARef<SdpSock>,
    slot: &BacklogSlot,
    request: &Request<'_, SdpSock>,
    hello: &Hello,
) -> Result {
    let (endpoint, link) = request.create(&setup::config(child.params()), child.clone())?;
    let (size, large) = rx_buffers::first_size(child, hello.adverts() == 1);
    let parts = Prepared::new(endpoint, size)?;
    let ack = HelloAck {
        bufs: parts.posted,
        version: protocol::VERSION,
        max_adverts: MAX_ADVERTS.into(),
        actual_receive_size: parts.size,
        max_message: setup::max_message(child),
    };
    let private_data = {
        let mut c = child.connection();
        // no credits if the connector sends the first message, since that message grants credits
        let credits = match parts.endpoint.qp().connector_sends_first() {
            true => 0,
            false => hello.bufs,
        };
        let peer = (hello.local_receive_size, hello.adverts(), credits);
        c.protocol = Some(setup::protocol(&parts.endpoint, parts.size, peer));
        c.records = Records::new(ack.max_message, hello.max_message);
        c.slot = Some(slot.clone());
        parts.install(&mut c);
        c.begin_with(child, large);
        // From now on the child receives upcalls of the link. The peer's REQ sets the time until
        // the peer retries; this timer limits the wait for the RTU to the closing timeout.
        child.set_state(State::SynRecv);
        c.set_timer(child, Timer::Close, FIN_TIME);
        c.cm.link = Some(link.clone());
        if link.is_removing() {
            return Err(ENETDOWN.into());
        }
        c.options.private_data(ack.encode())
    };
    link.reply(&private_data)?;
    // arms the receive queue: a message replaces a lost RTU
    child.progress();
    Ok(())
}
