// SPDX-License-Identifier: GPL-2.0-only

//! connect(2): tries SDP first.

use super::bind::{follows_route, take_port};
use super::to_tcp::hand_to_tcp;
use crate::conn::fallback::Phase;
use crate::conn::timers::Timer;
use crate::conn::{FallbackReason, SdpSock, Socket};
use crate::socket::bind::give_port;
use crate::socket::netns::patience;
use crate::socket::release::unreachable_error;
use crate::socket::{close, connect as sdp};
use crate::sys::address::Address;
use crate::sys::bindings as c;
use crate::sys::errno::{Errno, EALREADY, ECONNABORTED, EINPROGRESS, EINVAL, EISCONN};
use crate::sys::net::descriptor::{Descriptor, Progress};
use crate::sys::net::family::FallbackState;
use crate::sys::net::sock::State;
use crate::sys::net::tcp::{Name, Tcp};
use kernel::prelude::*;

/// Time limit for resolving the peer, in units of `ipproto_wait`.
const SEARCH: u32 = 4;

/// Implements connect(2), with the flags of the file.
pub(super) fn connect(call: &Descriptor<'_, Socket>, name: &Name, flags: u32) -> Result {
    let sk = call.sk;
    let non_blocking = flags & c::O_NONBLOCK != 0;
    if name.is_unspecified() {
        return disconnect(call, name, flags);
    }
    let mut timeout = sk.send_timeout(non_blocking);
    let (mut unfinished, mut waited) = (EALREADY, false);
    loop {
        let seq = sk.event_seq();
        match super::phase(sk) {
            phase @ (Phase::Settled | Phase::Sdp) => {
                let mut name = *name;
                if phase == Phase::Settled && call.progress() == Progress::Unconnected {
                    if let Some(tcp) = call.tcp() {
                        tcp.pre_connect(&mut name)?;
                    }
                }
                let to = name.destination(sk.is_v6())?;
                return sdp::connect(call, Some(&to), non_blocking);
            }
            Phase::Tcp => {
                return finish(&call.tcp().ok_or(EINVAL)?, name, flags, unfinished, timeout);
            }
            Phase::Open if waited => {
                // another call has cancelled the attempt
                return Err(sk.take_error().err().unwrap_or(ECONNABORTED.into()));
            }
            Phase::Open => {
                let begun = begin(call, name)?;
                if begun != ConnectStart::Else {
                    unfinished = EINPROGRESS;
                }
                if begun == ConnectStart::Trying {
                    waited = true;
                    if timeout == 0 {
                        // as on TCP, `EINPROGRESS` is returned even if the reply has arrived
                        return Err(EINPROGRESS.into());
                    }
                }
            }
            // The TCP socket may report a reply before the phase changes to TCP; the woken caller
            // must get the result. As TCP waits for the socket lock, this call waits for the mutex.
            Phase::Crossing => drop(sk.decide()),
            _ if timeout == 0 => return Err(unfinished.into()),
            _ => {
                waited = true;
                timeout = sk.sleep(seq, timeout)?;
            }
        }
    }
}

/// Implements connect(2) of a socket that uses TCP, for a call that has `timeout` left.
fn finish(tcp: &Tcp<'_>, name: &Name, flags: u32, unfinished: Errno, timeout: isize) -> Result {
    let connect = |flags| match tcp.connect(name, flags).map_err(Errno::of) {
        // TCP reports an attempt in progress, which this call itself may have begun by SDP
        Err(EALREADY) => Err(unfinished),
        r => r,
    };
    if unfinished != EINPROGRESS {
        return Ok(connect(flags)?);
    }
    match connect(flags | c::O_NONBLOCK) {
        Err(EINPROGRESS) if timeout != 0 => {
            tcp.wait_connected(timeout)?;
            Ok(connect(flags | c::O_NONBLOCK)?)
        }
        r => Ok(r?),
    }
}

/// First step of connect(2).
#[derive(PartialEq, Eq)]
enum ConnectStart {
    Trying,
    Tcp,
    /// SDP was not started: another event was first, or TCP will connect.
    Else,
}

fn begin(call: &Descriptor<'_, Socket>, name: &Name) -> Result<ConnectStart> {
    let sk = call.sk;
    let decision = sk.decide();
    let tcp = decision.tcp().ok_or(EINVAL)?;
    if super::phase(sk) != Phase::Open {
        return Ok(ConnectStart::Else);
    }
    if call.progress() != Progress::Unconnected || sk.state() != State::Close {
        return Err(EISCONN.into());
    }
    let to = name.destination(sk.is_v6())?;
    if follows_route(sk, &tcp)? {
        return Ok(ConnectStart::Else);
    }
    sk.connection().fallback.to = Some(to);
    if sk.netns().peer_cache.lock().knows(&to.ip, to.port) {
        hand_to_tcp(sk, &tcp, FallbackReason::Remembered, None);
        return Ok(ConnectStart::Else);
    }
    let mut name = *name;
    tcp.pre_connect(&mut name)?;
    let to = name.destination(sk.is_v6())?;
    let had_port = tcp.port() != 0;
    if let Err(e) = take_port(sk, &tcp, Some(&to)) {
        // the BPF hooks have run, so TCP connects without them
        hand_to_tcp(sk, &tcp, FallbackReason::of_port(e), Some(&name));
        return Ok(ConnectStart::Tcp);
    }
    {
        let mut c = sk.connection();
        c.fallback.phase = Phase::Trying;
        (c.fallback.name, c.fallback.to, c.fallback.requested) = (name, Some(to), false);
    }
    let started = start(call, &to);
    let mut c = sk.connection();
    match (started, c.fallback.phase) {
        // in other phases, the request is already sent
        (Ok(()), Phase::Trying) if !c.timers.is_set(Timer::Close) => {
            c.set_timer(sk, Timer::Close, patience(sk, SEARCH))
        }
        (Err(e), Phase::Trying) => {
            c.fallback.phase = Phase::Open;
            drop(c);
            if !had_port {
                release_port(sk, &tcp);
            }
            // not remembered: the failure took no time, and may concern this socket alone
            let why = FallbackReason::of(unreachable_error(e));
            hand_to_tcp(sk, &tcp, why, Some(&name));
            return Ok(ConnectStart::Tcp);
        }
        // the protocol has been decided meanwhile, or a worker will decide it
        _ => {}
    }
    Ok(ConnectStart::Trying)
}

/// Releases the attempt's port: TCP chooses its own port when it has a route.
fn release_port(sk: &SdpSock, tcp: &Tcp<'_>) {
    {
        let _lock = sk.lock();
        give_port(sk);
    }
    tcp.leave_port();
}

fn start(call: &Descriptor<'_, Socket>, to: &Address) -> Result {
    let sk = call.sk;
    let mut lock = sk.lock();
    sdp::start(sk, to)?;
    if super::phase(sk) == Phase::Open {
        // the attempt was cancelled before it started, so no event ends it
        close::disconnect(sk, &mut lock);
    } else {
        call.set_progress(Progress::Connecting);
    }
    Ok(())
}

/// Handles connect(2) to `AF_UNSPEC`, which disconnects.
fn disconnect(call: &Descriptor<'_, Socket>, name: &Name, flags: u32) -> Result {
    let sk = call.sk;
    let side = super::given_up(sk)?;
    if side != FallbackState::Tcp {
        sdp::connect(call, None, false)?;
    }
    if let Some(tcp) = call.tcp() {
        tcp.connect(name, flags)?;
    }
    leave_port(sk);
    Ok(())
}

/// Releases TCP's port, unless bind(2) has chosen it, once the SDP socket has no port.
pub(super) fn leave_port(sk: &SdpSock) {
    if super::phase(sk) != Phase::Open {
        return;
    }
    let decision = sk.decide();
    if let Some(tcp) = decision.tcp() {
        if super::phase(sk) == Phase::Open && sk.state() == State::Close && sk.port() == 0 {
            tcp.leave_port();
        }
    }
}
