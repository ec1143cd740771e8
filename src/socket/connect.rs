// SPDX-License-Identifier: GPL-2.0-only

//! connect(2): the active side.
//!
//! connect(2) starts the [`Resolver`] for address and route. [`resolved`] handles the resolver's
//! result, posts the first receive buffers and sends the Hello in the connection manager's request.
//! [`replied`] handles the HelloAck, [`refused`] an errno.

use super::release::{connecting, fail, release_transport, unreachable_error};
use super::{bind, close, local, netns};
use crate::conn::setup::{self, Prepared, MAX_ADVERTS};
use crate::conn::timers::Timer;
use crate::conn::{rx_buffers, Connection, SdpSock, Socket};
use crate::protocol::{self, Hello, HelloAck, IpVersion, Records, CAP_MESSAGES};
use crate::sys::address::Address;
use crate::sys::debug::debug;
use crate::sys::errno::{
    Errno, EADDRINUSE, EADDRNOTAVAIL, EAGAIN, EALREADY, ECONNABORTED, ECONNREFUSED, EINPROGRESS,
    EINVAL, EISCONN, EMSGSIZE, ENETDOWN, ENETUNREACH, ENOBUFS, EPROTO, ESTALE, ETIMEDOUT,
};
use crate::sys::net::descriptor::{Descriptor, Progress};
use crate::sys::net::params;
use crate::sys::net::sock::{Ends, State};
use crate::transport::{LinkId, Resolver};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use kernel::prelude::*;
use kernel::sync::Arc;

/// Time limit (ms) for resolving the peer's hardware address, and again for the route.
const RESOLVE_TIME: u32 = 2000;

/// Time before another request to a peer whose backlog is full, or that is silent (ms).
const BACKLOG_PAUSE: u32 = 1500;

/// Implements connect(2), with the errnos and descriptor states of TCP.
pub(super) fn connect(
    call: &Descriptor<'_, Socket>,
    to: Option<&Address>,
    non_blocking: bool,
) -> Result {
    let sk = call.sk;
    let mut lock = sk.lock();
    let Some(to) = to else {
        close::disconnect(sk, &mut lock);
        call.set_progress(Progress::Unconnected);
        return Ok(());
    };
    let unfinished = match call.progress() {
        Progress::Unconnected => {
            if sk.state() != State::Close {
                return Err(EISCONN.into());
            }
            start(sk, to)?;
            call.set_progress(Progress::Connecting);
            EINPROGRESS
        }
        Progress::Connecting => EALREADY,
        Progress::Connected => return Err(EISCONN.into()),
        Progress::Disconnecting => return Err(EINVAL.into()),
    };
    let mut timeout = sk.send_timeout(non_blocking);
    if timeout == 0 && unfinished == EINPROGRESS {
        // On TCP, a non-blocking call does not see the reply, which waits for the socket lock.
        return Err(EINPROGRESS.into());
    }
    loop {
        let seq = sk.event_seq();
        if !connecting(sk.state()) {
            break;
        }
        if timeout == 0 {
            return Err(unfinished.into());
        }
        timeout = sk.wait(&mut lock, seq, timeout)?;
    }
    if sk.state() == State::Close {
        let e = sk.take_error().err().unwrap_or(ECONNABORTED.into());
        call.set_progress(Progress::Unconnected);
        close::disconnect(sk, &mut lock);
        return Err(e);
    }
    // A later owner of the file does not get this connection's SIGIO.
    drop(sk.connection());
    call.set_progress(Progress::Connected);
    Ok(())
}

/// Begins to connect. Context: socket lock held.
pub(super) fn start(sk: &SdpSock, to: &Address) -> Result {
    if !sk.netns().admits() {
        return Err(ENOBUFS.into());
    }
    let mut to = *to;
    let only_v6 = sk.is_v6() && sk.v6_only();
    match to.ip {
        // as on TCP, the unspecified address is this host
        IpAddr::V4(a) if a.is_unspecified() && params::local_transport() != 0 && !only_v6 => {
            to.ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        }
        IpAddr::V4(a) if a.is_multicast() || sk.is_broadcast(&to) => return Err(ENETUNREACH.into()),
        IpAddr::V4(_) if only_v6 => return Err(ENETUNREACH.into()),
        IpAddr::V6(a) if a.is_multicast() => return Err(ENETUNREACH.into()),
        IpAddr::V6(a) if a.is_unspecified() => to.ip = IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(a) if a.is_unicast_link_local() => sk.bind_scope(to.scope)?,
        _ => {}
    }
    let local = sk.local();
    if !local.ip.is_unspecified() && local.ip.is_ipv4() != to.ip.is_ipv4() {
        return Err(EINVAL.into());
    }
    let source = (!local.ip.is_unspecified()).then_some(local);
    // as on TCP, the route is checked before a port is chosen
    let way = way(sk, source.as_ref(), &to).map_err(unreachable_error)?;
    let ours = sk.port() == 0;
    if ours {
        let port = bind::choose_port(sk, Some(&to), None).map_err(|e| match Errno::of(e) {
            EADDRINUSE => EADDRNOTAVAIL.into(),
            _ => e,
        })?;
        sk.set_port(port);
    }
    sk.set_remote(&to);
    let r = resolve(sk, source.as_ref(), way);
    if let Err(e) = r {
        sk.set_state(State::Close);
        sk.set_local(&local);
        sk.set_remote(&Address::any(sk.is_v6()));
        release_transport(sk);
        if ours {
            sk.netns().ports.lock().release(sk.id());
            sk.set_port(0);
        }
        return Err(unreachable_error(e).into());
    }
    Ok(())
}

/// Path of one connect attempt: the peer, its address, and the source address by the routes.
struct Way {
    /// `None`: the peer is in this namespace.
    resolver: Option<Arc<Resolver<SdpSock>>>,
    ifindex: u32,
    to: Address,
    source: Address,
}

/// Returns the path that IP's rules and routes select for the socket's packets.
///
/// # Errors
///
/// Errors are those of TCP's connect(2). `ENETUNREACH`: rules route a local address elsewhere.
fn way(sk: &SdpSock, source: Option<&Address>, to: &Address) -> Result<Way> {
    // as on TCP, the scope of a link-local address sets the bound interface
    let scope = sk.bound_interface() as u32;
    let mut to = Address { scope, ..*to };
    let route = sk.route(source, &to)?;
    if !route.is_local {
        if sk.is_own_address(&to) {
            return Err(ENETUNREACH.into());
        }
        to.scope = route.ifindex;
    }
    let resolver = match route.is_local && params::local_transport() != 0 {
        true => None,
        false => Some(Resolver::new(sk.net(), sk.into())?),
    };
    Ok(Way {
        resolver,
        ifindex: route.ifindex,
        to,
        source: route.source,
    })
}

fn resolve(sk: &SdpSock, source: Option<&Address>, way: Way) -> Result {
    {
        let mut c = sk.connection();
        c.reset();
        sk.begins_anew();
        c.cm.search(way.to, way.resolver.clone());
    }
    // Clears the state of the last connection.
    let _ = sk.take_error();
    sk.set_state(State::SynSent);
    if source.is_none() {
        // As on TCP, getsockname(2) returns the local address before the connection is established.
        let port = sk.local().port;
        sk.set_local(&Address { port, ..way.source });
    }
    search(sk, source, &way, 0)
}

/// Starts the resolver after `pause` ms. The resolver passes its result to [`resolved`].
fn search(sk: &SdpSock, source: Option<&Address>, way: &Way, pause: u32) -> Result {
    let Some(resolver) = &way.resolver else {
        return local::request(sk, way.ifindex);
    };
    let class = sk.traffic_class();
    let class = (class != 0).then_some(class);
    resolver.start(source, &way.to, RESOLVE_TIME, class, pause)
}

/// Handles the result of a resolver: address and route are known, or cannot be found.
pub(super) fn resolved(sk: &SdpSock, search: LinkId, r: Result) {
    let Some(resolver) = sk.connection().cm.resolver(search) else {
        return;
    };
    if let Err(e) = r.and_then(|()| request(sk, &resolver)) {
        fail(sk, |c| c.cm.is_by(search), unreachable_error(e));
    }
}

/// Sends the connection request.
fn request(sk: &SdpSock, resolver: &Resolver<SdpSock>) -> Result {
    if sk.state() != State::SynSent {
        return Ok(());
    }
    let device = sk.connection().cm.device();
    if device != 0 && !sk.net().bound_dev_eq(device as i32, resolver.ifindex()) {
        // `rdma_cm` ignores the socket's routing rules: other sockets may reach the host
        sk.connection().fallback.to = None;
        return Err(ENETUNREACH.into());
    }
    if params::sdp_link_layer_ib_only() != 0 && !resolver.is_infiniband()? {
        return Err(ENETUNREACH.into());
    }
    let (endpoint, link) = resolver.create(&setup::connect_config(sk), sk.into())?;
    let source = resolver.source()?;
    let mut local = sk.local();
    if !sk.address_is_bound() {
        local = Address {
            ip: source.ip,
            ..local
        };
        sk.set_local(&local);
    }
    let never_asks = sk.netns().fixed_buffer_peers.lock().has(&sk.remote());
    let (size, large) = rx_buffers::first_size(sk, never_asks);
    let parts = Prepared::new(endpoint, size)?;
    let (v4, messages) = (local.ip.is_ipv4(), sk.is_seqpacket());
    let hello = Hello {
        bufs: parts.posted,
        version: protocol::VERSION,
        ip_version: if v4 { IpVersion::V4 } else { IpVersion::V6 },
        cap: if messages { CAP_MESSAGES } else { 0 },
        max_adverts: MAX_ADVERTS,
        desired_remote_receive_size: parts.size,
        local_receive_size: parts.size,
        local_port: sk.port(),
        src: setup::hello_address(&local.ip),
        dst: setup::hello_address(&sk.remote().ip),
        ext_max_adverts: 0,
        max_message: setup::max_message(sk),
    };
    let private_data = {
        let mut c = sk.connection();
        if !c.cm.is_by(resolver.id()) || sk.state() != State::SynSent || c.has_fallen_back() {
            return Ok(());
        }
        parts.install(&mut c);
        c.records = Records::new(hello.max_message, 0);
        c.begin_with(sk, large);
        c.cm.link = Some(link.clone());
        if link.is_removing() {
            return Err(ENETDOWN.into());
        }
        c.options.private_data(hello.encode())
    };
    resolver.connect(&link, sk.remote().port, sk.priority(), &private_data)?;
    let patience = netns::timeout_for(sk);
    let done = {
        let mut c = sk.connection();
        // The reply may have arrived and another attempt may have started meanwhile.
        let ours = c.cm.is_by(resolver.id());
        if ours {
            c.request_sent(sk, patience);
        }
        ours.then(|| c.cm.resolver.take())
    };
    drop(done);
    Ok(())
}

/// Handles the HelloAck.
///
/// `EPROTO`: the reply is not a HelloAck. `ECONNREFUSED`: the peer offers a stream, not messages.
/// Refuses the connection on error.
pub(super) fn replied(sk: &SdpSock, link: LinkId, hello_ack: &[u8]) -> Result {
    let Ok(ack) = HelloAck::parse(hello_ack) else {
        refused(sk, link, EPROTO.into());
        return Err(EPROTO.into());
    };
    if sk.is_seqpacket() && ack.max_message == 0 {
        // OFED and older versions of this module ignore the capability in the Hello
        refused(sk, link, ECONNREFUSED.into());
        return Err(ECONNREFUSED.into());
    }
    let service = sk.remote();
    let mut c = sk.connection();
    if sk.state() != State::SynSent || !c.cm.is_of(link) {
        return Err(ECONNABORTED.into());
    }
    sk.netns()
        .fixed_buffer_peers
        .lock()
        .record(&service, ack.max_adverts);
    let endpoint = c.endpoint.as_ref().ok_or(ECONNABORTED)?;
    let peer = (ack.actual_receive_size, ack.max_adverts, ack.bufs);
    let mut protocol = setup::protocol(endpoint, c.rx_buffers.size(), peer);
    if endpoint.qp().connector_sends_first() {
        protocol.owe_message();
    }
    c.protocol = Some(protocol);
    let own_most = c.records.as_ref().map_or(0, Records::own_most);
    c.records = Records::new(own_most, ack.max_message);
    Ok(())
}

/// Handles a reject or a missing reply; on the passive side, the peer's reject of the reply.
pub(super) fn refused(sk: &SdpSock, link: LinkId, error: Error) {
    let why = Errno::of(error);
    let error = match why {
        ESTALE | EMSGSIZE | EAGAIN | ECONNABORTED | ETIMEDOUT => match retry_with(sk, link, why) {
            Ok(()) => return,
            Err(e) => e,
        },
        _ => error,
    };
    fail(sk, |c| c.cm.is_of(link), unreachable_error(error));
}

/// Sends another connection request, as TCP repeats its SYN. `ESTALE`: the peer has a connection
/// with the same QP number, from before a crash of this host. `EMSGSIZE`: the peer's port does not
/// support the path MTU. `EAGAIN`: the peer's backlog is full, and the CM does not retry.
/// `ECONNABORTED`: the connection ended without a reply. `ETIMEDOUT`: silence.
///
/// # Errors
///
/// `ECONNREFUSED`, `ETIMEDOUT`: too many retries, the namespace is being removed, or another
/// attempt has begun. Other errors: the resolver's. On error the socket keeps its link.
fn retry_with(sk: &SdpSock, link: LinkId, why: Errno) -> Result {
    let (end, pause) = match why {
        EAGAIN | ETIMEDOUT => (ETIMEDOUT, BACKLOG_PAUSE),
        _ => (ECONNREFUSED, 0),
    };
    let is_current =
        |c: &Connection| c.cm.is_of(link) && sk.state() == State::SynSent && !c.has_fallen_back();
    let to = {
        let mut c = sk.connection();
        if !is_current(&c) || !sk.keeps_namespace() {
            return Err(end.into());
        }
        let time = c.options.connect_time(sk);
        c.cm.retry_with(why, time).ok_or(end)?
    };
    let source = sk.address_is_bound().then(|| sk.local());
    let way = way(sk, source.as_ref(), &to)?;
    let resolver = way.resolver.as_ref().ok_or(ENETUNREACH)?;
    let below = {
        let mut c = sk.connection();
        if !is_current(&c) {
            return Err(end.into());
        }
        let below = c.detach();
        let end = c.timers.get(Timer::Close);
        c.reset();
        if let Some(end) = end {
            c.timers.set(Timer::Close, end);
        }
        c.cm.resolver = Some(resolver.clone());
        below
    };
    below.destroy();
    debug!("{}: new request, after errno {}", Ends(sk), why.0);
    if let Err(e) = search(sk, source.as_ref(), &way, pause) {
        fail(sk, |c| c.cm.is_by(resolver.id()), unreachable_error(e));
    }
    Ok(())
}
