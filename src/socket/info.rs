// SPDX-License-Identifier: GPL-2.0-only

//! Information about a connection: `TCP_INFO` and `SDP_INFO`.

use crate::conn::SdpSock;
use crate::protocol::{Mid, BSDH_LEN};
use crate::sys::bindings as c;
use crate::sys::net::options::Answer;
use crate::sys::time::{jiffies, seconds, Jiffies};

const SECOND: Jiffies = seconds(1);

/// Returns `TCP_INFO`, for the fields with an SDP equivalent.
pub(super) fn tcp(sk: &SdpSock) -> Answer<c::tcp_info> {
    let mut c = sk.connection();
    c.counters();
    let mut info = Answer::<c::tcp_info>::new();
    let i = info.fields();
    i.tcpi_state = sk.state() as u8;
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
    info
}

/// Returns `SDP_INFO` (`include/uapi/sdp.h`).
pub(super) fn sdp(sk: &SdpSock) -> Answer<c::sdp_info> {
    let mut connection = sk.connection();
    connection.counters();
    let mut info = Answer::<c::sdp_info>::new();
    let i = info.fields();
    i.transport = match &connection.endpoint {
        None if connection.living_link().is_some() => c::SDP_TRANSPORT_LOCAL,
        None => c::SDP_TRANSPORT_NONE,
        Some(_) => c::SDP_TRANSPORT_RDMA,
    }
    .into();
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
    info
}
