// SPDX-License-Identifier: GPL-2.0-only

//! connect(2) to a socket of the same network namespace: one function makes both ends.

use super::establish::established;
use super::{listen, netns, release};
use crate::conn::local::{LocalEnd, LocalRequest};
use crate::conn::timers::Timer;
use crate::conn::{setup, BacklogSlot, Connection, SdpSock};
use crate::protocol::Records;
use crate::sys::errno::{ECONNABORTED, ECONNREFUSED, ENETUNREACH, ETIMEDOUT};
use crate::sys::net::sock::State;
use crate::sys::time::{milliseconds, Jiffies};
use crate::transport::{LinkId, Verdict};
use kernel::prelude::*;
use kernel::sync::aref::ARef;

/// Initial and maximum time until a request is repeated after a full backlog.
const FIRST_PAUSE: Jiffies = milliseconds(10);
const LONGEST_PAUSE: Jiffies = milliseconds(500);

/// Requests a local connection through the route's interface. Context: only the socket lock held.
pub(super) fn request(sk: &SdpSock, ifindex: u32) -> Result {
    let device = sk.connection().cm.device();
    if device != 0 && !sk.net().bound_dev_eq(device as i32, ifindex) {
        sk.connection().fallback.to = None;
        return Err(ENETUNREACH.into());
    }
    let patience = netns::timeout_for(sk);
    sk.connection().request_sent(sk, patience);
    let pause = FIRST_PAUSE;
    repeat(sk, LocalRequest { ifindex, pause });
    Ok(())
}

/// Requests the connection again, after a full backlog.
pub(super) fn repeat(sk: &SdpSock, mut request: LocalRequest) {
    if !is_current(sk, &sk.connection()) {
        return;
    }
    let fail = |error| release::fail(sk, |c| is_current(sk, c), error);
    match present(sk, request.ifindex) {
        Verdict::Accepted => {}
        Verdict::Drop => {
            let mut c = sk.connection();
            if !is_current(sk, &c) {
                return;
            }
            if c.cm.time_left(c.options.connect_time(sk)) == 0 {
                drop(c);
                return fail(ETIMEDOUT);
            }
            let pause = request.pause;
            request.pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
            c.cm.repeated = Some(request);
            c.set_timer(sk, Timer::Retry, pause);
        }
        Verdict::Reject | Verdict::Unknown => fail(ECONNREFUSED),
    }
}

/// Passes the request to a listener. If the listener accepts, both ends are connected.
fn present(sk: &SdpSock, ifindex: u32) -> Verdict {
    let [to, from] = [sk.remote(), sk.local()].map(|a| listen::scoped(a.ip, a.port, ifindex));
    let (mut made, messages) = (None, sk.is_seqpacket());
    let prepare = |child: &ARef<SdpSock>, slot: &BacklogSlot| {
        made = Some((child.clone(), join(sk, child, slot)?));
        Ok(())
    };
    let verdict = listen::accept_request(sk.net(), &to, &from, ifindex, messages, prepare);
    if let (Verdict::Accepted, Some((child, id))) = (&verdict, made) {
        established(&child, id);
        established(sk, id);
    }
    verdict
}

/// Connects both ends.
///
/// # Errors
///
/// `ECONNABORTED`: the requester has aborted this attempt. `ENOMEM`: out of memory.
fn join(sk: &SdpSock, child: &SdpSock, slot: &BacklogSlot) -> Result<LinkId> {
    let [mine, theirs] = LocalEnd::pair(sk, child)?;
    let id = mine.link.id;
    let (own_most, peer_most) = (setup::max_message(sk), setup::max_message(child));
    {
        let mut c = child.connection();
        c.records = Records::new(peer_most, own_most);
        c.slot = Some(slot.clone());
        c.begin_local(theirs);
        child.set_state(State::SynRecv);
    }
    let mut c = sk.connection();
    if !is_current(sk, &c) {
        return Err(ECONNABORTED.into());
    }
    c.records = Records::new(own_most, peer_most);
    c.begin_local(mine);
    Ok(id)
}

/// Returns true if the socket still waits for this connection.
fn is_current(sk: &SdpSock, c: &Connection) -> bool {
    sk.state() == State::SynSent && !c.has_fallen_back() && c.local.is_none()
}
