// SPDX-License-Identifier: GPL-2.0-only

//! setsockopt(2), getsockopt(2) and ioctl(2), with the values, bounds and errnos of tcp(7).

use super::ipproto;
use crate::conn::{keepalive, SdpSock};
use crate::protocol::{Mid, Records, BSDH_LEN};
use crate::sys::address::{AF_INET6_SDP, AF_INET_SDP};
use crate::sys::bindings as c;
use crate::sys::errno::{EINVAL, ENOPROTOOPT, ENOTCONN};
use crate::sys::net::options::{NewValue, OldValue};
use crate::sys::net::sock::{Flag, State};
use crate::sys::time::{jiffies, seconds, Jiffies};
use kernel::prelude::*;
use kernel::transmute::AsBytes;

/// TCP's segment size before the peer's is known (RFC 9293), which programs see as the default.
const DEFAULT_MAXSEG: i32 = 536;
/// Maximum time between two retransmissions of TCP, in seconds.
const RTO_MAX: u32 = 120;

pub(super) fn set(sk: &SdpSock, level: i32, name: i32, value: &NewValue<'_>) -> Result {
    match level as u32 {
        c::SOL_TCP => set_tcp(sk, name as u32, value.int()?),
        l if is_keepalive(l, name) => {
            let on = value.int()? != 0;
            let _lock = sk.lock();
            keepalive::set_keepalive(sk, on);
            Ok(())
        }
        _ => value.forward(sk, level, name),
    }
}

/// Returns true for SO_KEEPALIVE at the level by which libsdp sets it.
fn is_keepalive(level: u32, name: i32) -> bool {
    [AF_INET_SDP, AF_INET6_SDP].map(u32::from).contains(&level) && name as u32 == c::SO_KEEPALIVE
}

fn set_tcp(sk: &SdpSock, name: u32, v: i32) -> Result {
    if name == c::SDP_ROUTE {
        return ipproto::set_route(sk, v);
    }
    let within = |low, high| match (low..=high).contains(&v) {
        true => Ok(v as u32),
        false => Err(EINVAL),
    };
    let _lock = sk.lock();
    {
        let mut c = sk.connection();
        let o = &mut c.options;
        match name {
            c::TCP_NODELAY => o.no_delay = v != 0,
            c::TCP_CORK => o.cork = v != 0,
            c::TCP_QUICKACK => o.quickack = v & 1 != 0,
            c::TCP_MAXSEG if v == 0 => o.maxseg = 0,
            c::TCP_MAXSEG => o.maxseg = within(88, 32767)?,
            c::TCP_KEEPIDLE => o.keep_idle = within(1, 32767)?,
            c::TCP_KEEPINTVL => o.keep_interval = within(1, 32767)?,
            c::TCP_KEEPCNT => o.keep_count = within(1, 127)?,
            c::TCP_SYNCNT => o.syn_count = within(1, 127)?,
            c::TCP_LINGER2 => o.linger2 = v.clamp(-1, RTO_MAX as i32),
            c::TCP_DEFER_ACCEPT => o.defer_accept = deferral(v),
            c::TCP_WINDOW_CLAMP if v == 0 && sk.state() != State::Close => {
                return Err(EINVAL.into())
            }
            c::TCP_WINDOW_CLAMP if v == 0 => o.window_clamp = 0,
            c::TCP_WINDOW_CLAMP => o.window_clamp = v.max(1152) as u32,
            c::TCP_USER_TIMEOUT => o.user_timeout = within(0, i32::MAX)?,
            c::TCP_NOTSENT_LOWAT => o.not_sent_lowat = v as u32,
            c::TCP_INQ => o.inq = within(0, 1)? != 0,
            // options that TCP does not have
            c::SDP_ZCOPY_THRESH if v == 0 => o.zcopy_thresh = 0,
            c::SDP_ZCOPY_THRESH => o.zcopy_thresh = within(4096, 1 << 20)? as i32,
            c::SDP_ASYNC_SEND => o.async_send = within(0, 1)? as i32,
            _ => return Err(ENOPROTOOPT.into()),
        }
        c.note_options();
    }
    if name == c::TCP_NODELAY && v != 0 || name == c::TCP_CORK && v == 0 {
        uncork(sk, name == c::TCP_NODELAY);
    }
    if name == c::TCP_NOTSENT_LOWAT {
        // the new limit may leave space
        sk.wake();
        sk.write_space();
    }
    keepalive::update(sk);
    Ok(())
}

/// Sends bytes that were held back. As on TCP, setting `TCP_NODELAY` sends bytes despite a cork.
fn uncork(sk: &SdpSock, nodelay: bool) {
    let mut c = sk.connection();
    c.no_more();
    let local = c.local.as_ref().map(|l| l.link.clone());
    if let Some(link) = local {
        drop(c);
        return link.uncork();
    }
    if nodelay {
        c.tx.uncork();
    }
    c.progress();
}

/// Returns the time of `TCP_DEFER_ACCEPT` in seconds, rounded up to a retransmission as TCP does.
fn deferral(wanted: i32) -> u32 {
    let wanted = wanted.max(0) as u32;
    if wanted == 0 {
        return 0;
    }
    let (mut period, mut step, mut more) = (1u32, 1u32, 1..255);
    while wanted > period && more.next().is_some() {
        step = step.saturating_mul(2).min(RTO_MAX);
        period = period.saturating_add(step);
    }
    period
}

pub(super) fn get(sk: &SdpSock, level: i32, name: i32, value: &OldValue<'_>) -> Result {
    match level as u32 {
        c::SOL_TCP => get_tcp(sk, name as u32, value),
        l if is_keepalive(l, name) => value.give_int(sk.flag(Flag::KeepOpen).into()),
        _ => {
            // for SO_MEMINFO
            sk.connection().note_memory(sk);
            value.forward(sk, level, name)
        }
    }
}

fn get_tcp(sk: &SdpSock, name: u32, value: &OldValue<'_>) -> Result {
    value.space()?;
    let or = |v: u32, default: i32| if v == 0 { default } else { v as i32 };
    match name {
        c::TCP_INFO => return value.give(tcp_info(sk).as_bytes()),
        // no upper layer protocol (`TCP_ULP`) is in use
        c::TCP_ULP => return value.give(&[]),
        c::SDP_INFO => return value.give(sdp_info(sk).as_bytes()),
        _ => {}
    }
    let (o, (max_payload, max_message), route) = {
        let c = sk.connection();
        let sizes = (c.max_payload(), c.records.as_ref().map(Records::peer_most));
        (c.options.clone(), sizes, c.fallback.route)
    };
    let timers = o.timers(sk);
    value.give_int(match name {
        c::TCP_NODELAY => o.no_delay.into(),
        c::TCP_CORK => o.cork.into(),
        c::TCP_QUICKACK => o.quickack.into(),
        c::TCP_MAXSEG if matches!(sk.state(), State::Close | State::Listen) => {
            or(o.maxseg, DEFAULT_MAXSEG)
        }
        c::TCP_MAXSEG => max_payload as i32,
        c::TCP_KEEPIDLE => timers.keep_idle as i32,
        c::TCP_KEEPINTVL => timers.keep_interval as i32,
        c::TCP_KEEPCNT => timers.keep_count as i32,
        c::TCP_SYNCNT => timers.syn_count as i32,
        c::TCP_LINGER2 if o.linger2 < 0 => o.linger2,
        c::TCP_LINGER2 => timers.fin_timeout as i32,
        c::TCP_DEFER_ACCEPT => o.defer_accept as i32,
        c::TCP_WINDOW_CLAMP => o.window_clamp as i32,
        c::TCP_USER_TIMEOUT => o.user_timeout as i32,
        c::TCP_NOTSENT_LOWAT => o.not_sent_lowat as i32,
        c::TCP_INQ => o.inq.into(),
        c::SDP_ZCOPY_THRESH => o.zcopy_threshold().bytes().unwrap_or(0) as i32,
        c::SDP_LAST_BIND_ERR => o.last_bind_error,
        c::SDP_ASYNC_SEND => o.sends_async().into(),
        c::SDP_ROUTE => route.ok_or(ENOPROTOOPT)? as i32,
        c::SDP_MAX_MESSAGE if sk.is_seqpacket() => max_message.ok_or(ENOTCONN)? as i32,
        _ => return Err(ENOPROTOOPT.into()),
    })
}

fn tcp_info(sk: &SdpSock) -> c::tcp_info {
    const SECOND: Jiffies = seconds(1);
    let mut c = sk.connection();
    c.counters();
    let mut i = c::tcp_info {
        tcpi_state: sk.state() as u8,
        ..Default::default()
    };
    if c.connected() || c.living_link().is_some() {
        let idle = jiffies().wrapping_sub(c.alive.last) / SECOND;
        i.tcpi_snd_mss = c.max_payload();
        i.tcpi_advmss = match c.local {
            Some(_) => c.max_payload(),
            None => c.rx_buffers.size().saturating_sub(BSDH_LEN as u32),
        };
        i.tcpi_rcv_mss = i.tcpi_advmss;
        i.tcpi_pmtu = c.max_payload();
        i.tcpi_snd_cwnd = c.protocol.as_ref().map_or(0, |p| p.credits().into());
        i.tcpi_unacked = c.endpoint.as_ref().map_or(0, |c| c.in_flight().into());
        i.tcpi_last_data_recv = u32::try_from(idle.saturating_mul(1000)).unwrap_or(u32::MAX);
        i.tcpi_last_ack_recv = i.tcpi_last_data_recv;
        i.tcpi_rcv_space = u32::try_from(sk.rcvbuf()).unwrap_or(u32::MAX);
    }
    i.tcpi_probes = c.alive.probes.min(255) as u8;
    let (unsent, in_flight) = match &c.local {
        Some(local) => (local.link.queued(), 0),
        None => (c.tx.unsent(), c.tx.queued().saturating_sub(c.tx.unsent())),
    };
    i.tcpi_notsent_bytes = u32::try_from(unsent).unwrap_or(u32::MAX);
    i.tcpi_bytes_received = c.stats.bytes_received.0;
    i.tcpi_bytes_sent = c.stats.bytes_sent.0;
    i.tcpi_bytes_acked = i.tcpi_bytes_sent.saturating_sub(in_flight as u64);
    let data = Mid::Data.index();
    i.tcpi_segs_out = c.stats.sent.iter().sum::<u64>() as u32;
    i.tcpi_segs_in = c.stats.received.iter().sum::<u64>() as u32;
    i.tcpi_data_segs_out = c.stats.sent.get(data).map_or(0, |n| *n as u32);
    i.tcpi_data_segs_in = c.stats.received.get(data).map_or(0, |n| *n as u32);
    i
}

/// Returns `SDP_INFO` (`include/uapi/sdp.h`).
fn sdp_info(sk: &SdpSock) -> c::sdp_info {
    let mut connection = sk.connection();
    connection.counters();
    let transport = match &connection.endpoint {
        None if connection.living_link().is_some() => c::SDP_TRANSPORT_LOCAL,
        None => c::SDP_TRANSPORT_NONE,
        Some(_) => c::SDP_TRANSPORT_RDMA,
    };
    let mut i = c::sdp_info {
        transport: transport.into(),
        ..Default::default()
    };
    i.ipproto = connection.fallback.info().into();
    i.route = connection.fallback.route.map_or(0, |r| (r as u32).into());
    let s = &connection.stats;
    (i.tx_bytes, i.tx_read, i.tx_written) = (s.bytes_sent.0, s.direct_sent.0, s.direct_written.0);
    (i.rx_bytes, i.rx_read, i.rx_written) =
        (s.bytes_received.0, s.direct_received.0, s.direct_filled.0);
    let count = |counts: &[u64], mid: Mid| counts.get(mid.index()).copied().unwrap_or(0);
    i.src_avail_sent = count(&s.sent, Mid::SrcAvail);
    i.src_avail_returned = s.direct_returned.0;
    i.src_avail_received = count(&s.received, Mid::SrcAvail);
    i.src_avail_refused = s.direct_refused.0;
    i.sink_avail_sent = count(&s.sent, Mid::SinkAvail);
    i.sink_avail_received = count(&s.received, Mid::SinkAvail);
    (i.crossed, i.unpinnable) = (s.direct_void.0, s.unpinnable.0);
    i.credit_stalls = s.credit_stalls.0;
    i
}

pub(super) fn ioctl(sk: &SdpSock, command: u32) -> Result<i32> {
    let _lock = sk.lock();
    let state = sk.state();
    match command {
        c::SIOCATMARK => {}
        c::SIOCINQ | c::SIOCOUTQ | c::SIOCOUTQNSD => match state {
            State::Listen => return Err(EINVAL.into()),
            State::SynSent | State::SynRecv => return Ok(0),
            _ => {}
        },
        _ => return Err(ENOIOCTLCMD),
    }
    sk.progress();
    let c = sk.connection();
    let n = match command {
        c::SIOCATMARK => c.unread().at_mark().into(),
        c::SIOCINQ => c.unread().readable(sk.flag(Flag::UrgInline)),
        c::SIOCOUTQ => c.outstanding(),
        _ => match &c.local {
            Some(local) => local.link.queued(),
            None => c.tx.unsent(),
        },
    };
    Ok(i32::try_from(n).unwrap_or(i32::MAX))
}

pub(super) fn set_rcvlowat(sk: &SdpSock, bytes: i32) -> Result {
    // The reader would never wake up if the value exceeded the receive buffer. At least half of the
    // memory of a full receive buffer contains data, see `receive_queue`.
    let bytes = bytes.min(sk.most_rcvlowat()).max(1);
    sk.grow_rcvbuf((bytes as usize).saturating_mul(2));
    sk.set_rcvlowat(bytes);
    if sk.connection().unread().bytes() > 0 {
        sk.data_ready();
    }
    if let Some(link) = sk.with(|c| c.living_link().cloned()) {
        // the peer may use the space of the larger buffer
        link.has_read();
    }
    Ok(())
}
