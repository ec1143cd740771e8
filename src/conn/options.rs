// SPDX-License-Identifier: GPL-2.0-only

//! Socket options of a connection.

use super::zcopy::policy::SMALLEST as SMALLEST_ZCOPY;
use super::SdpSock;
use crate::sys::bindings as c;
use crate::sys::net::params::{self, Params};
use crate::sys::time::{seconds, Jiffies};
use kernel::sync::Arc;

/// Minimum size of zero-copy sends (`SDP_ZCOPY_THRESH`, `sdp_zcopy_thresh`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threshold {
    Never,
    /// Zero copy for sends of at least this many bytes.
    From(usize),
    /// Zero copy for sends of at least [`SMALLEST_ZCOPY`] bytes, if measurements show a gain.
    Adaptive,
}

impl Threshold {
    /// Returns the minimum size of zero-copy sends in bytes, if any.
    pub(crate) fn bytes(self) -> Option<usize> {
        match self {
            Threshold::Never => None,
            Threshold::From(n) => Some(n),
            Threshold::Adaptive => Some(SMALLEST_ZCOPY),
        }
    }
}

/// Socket options, protected by the connection's lock.
#[derive(Clone)]
pub(crate) struct Options {
    /// Parameters of the network namespace, which apply where no option is set.
    params: Arc<Params>,
    pub(crate) no_delay: bool,
    pub(crate) cork: bool,
    /// `TCP_QUICKACK`, which has no effect.
    pub(crate) quickack: bool,
    /// `TCP_KEEPIDLE` in seconds, 0 for the default of the module or the namespace.
    pub(crate) keep_idle: u32,
    /// `TCP_KEEPINTVL` in seconds, 0 for the namespace's value.
    pub(crate) keep_interval: u32,
    /// `TCP_KEEPCNT`, 0 for the namespace's value.
    pub(crate) keep_count: u32,
    /// `TCP_USER_TIMEOUT` in milliseconds, 0 for none.
    pub(crate) user_timeout: u32,
    /// `TCP_SYNCNT`, 0 for the namespace's value.
    pub(crate) syn_count: u32,
    /// `TCP_LINGER2` in seconds, 0 for the namespace's value, negative for none.
    pub(crate) linger2: i32,
    /// `TCP_DEFER_ACCEPT` in seconds.
    pub(crate) defer_accept: u32,
    pub(crate) window_clamp: u32,
    /// `TCP_NOTSENT_LOWAT` in bytes, 0 for none.
    pub(crate) not_sent_lowat: u32,
    pub(crate) inq: bool,
    /// `TCP_MAXSEG` as the program set it, 0 for the connection's own value.
    pub(crate) maxseg: u32,
    /// `SDP_ZCOPY_THRESH`, negative for the value of the module parameter.
    pub(crate) zcopy_thresh: i32,
    /// `SDP_ASYNC_SEND`, negative for the value of the module parameter.
    pub(crate) async_send: i32,
    pub(crate) last_bind_error: i32,
    /// Replaces the Hello, or the HelloAck of connections that a listener accepts.
    #[cfg(sdp_selftest)]
    pub(crate) private_data: Option<[u8; 196]>,
}

impl Options {
    pub(crate) fn zcopy_threshold(&self) -> Threshold {
        let bytes = match self.zcopy_thresh {
            ..0 => self.params.sdp_zcopy_thresh(),
            own => own,
        };
        match usize::try_from(bytes) {
            Ok(0) => Threshold::Never,
            Ok(n) => Threshold::From(n),
            Err(_) => Threshold::Adaptive,
        }
    }

    /// Returns true if blocking sends of large blocks return before the bytes are sent.
    pub(crate) fn sends_async(&self) -> bool {
        match (self.params.async_send(), self.async_send) {
            _ if params::async_send() < 0 => false,
            (..0, _) => false,
            (all, ..0) => all != 0,
            (_, own) => own != 0,
        }
    }

    /// Returns the effective times and counts: of the socket, else of the module or namespace.
    pub(crate) fn timers(&self, sk: &SdpSock) -> c::sdp_h_tcp_timers {
        let t = sk.tcp_timers();
        let idle = match self.params.sdp_keepalive_time() {
            ..0 => t.keep_idle,
            all => all as u32,
        };
        let or = |own: u32, other| if own == 0 { other } else { own };
        c::sdp_h_tcp_timers {
            keep_idle: or(self.keep_idle, idle).max(1),
            keep_interval: or(self.keep_interval, t.keep_interval),
            keep_count: or(self.keep_count, t.keep_count),
            syn_count: or(self.syn_count, t.syn_count),
            fin_timeout: or(self.linger2.max(0) as u32, t.fin_timeout).max(1),
        }
    }

    /// Returns the time after which TCP's connect(2) gives up: the first retry follows after 1 s,
    /// each later one after twice the time before, at most 120 s.
    pub(crate) fn connect_time(&self, sk: &SdpSock) -> Jiffies {
        let retries = self.timers(sk).syn_count;
        let doubled = (2u32 << retries.min(6)).saturating_sub(1);
        seconds(doubled.saturating_add(retries.saturating_sub(6).saturating_mul(120)))
    }

    pub(super) fn new(params: Arc<Params>) -> Self {
        Options {
            params,
            no_delay: false,
            cork: false,
            quickack: true,
            keep_idle: 0,
            keep_interval: 0,
            keep_count: 0,
            user_timeout: 0,
            syn_count: 0,
            linger2: 0,
            defer_accept: 0,
            window_clamp: 0,
            not_sent_lowat: 0,
            inq: false,
            maxseg: 0,
            zcopy_thresh: -1,
            async_send: -1,
            last_bind_error: 0,
            #[cfg(sdp_selftest)]
            private_data: None,
        }
    }

    /// Returns the private data of a request or reply: `hello`, or the bytes that a test has set.
    pub(crate) fn private_data<const N: usize>(&self, hello: [u8; N]) -> [u8; N] {
        #[cfg(sdp_selftest)]
        if let Some(other) = self.private_data.as_ref().and_then(|d| d.first_chunk()) {
            return *other;
        }
        hello
    }
}
