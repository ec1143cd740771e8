// SPDX-License-Identifier: GPL-2.0-only

//! Zero-copy receive calls: the peer writes to the call's advertised memory, or the call READs the
//! peer's advert. [`super::rx`] contains the state in the connection.

use super::super::{Connection, SdpSock};
use super::advert::AdvertState;
use super::memory::PinnedCall;
use super::transfer::Transfer;
use super::waiting::{AfterSleep, FatalSignal, Waiting};
use super::{by_read, CANCEL_TIME, LEAST_TRANSFER, MOST_ADVERT_TIME};
use crate::protocol::Records;
use crate::sys::net::message::RecvMsg;
use crate::sys::net::sock::{Locked, State, FOREVER, RCV_SHUTDOWN};
use crate::sys::net::trace::{self, ZeroCopy};
use crate::sys::pin::PinTerm;

/// Advertises the next `size` bytes of a receive call's buffer and waits. Returns the number of
/// bytes that the peer has written, which count as received. If the result is 0, the call continues
/// as without an advert. A call with `MSG_WAITALL` advertises again for the next block.
pub(crate) fn be_written_to(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    to: &mut RecvMsg<'_>,
    size: usize,
    timeout: &mut isize,
) -> usize {
    if !offer(sk, to, size) {
        return 0;
    }
    let withdrawn = wait_written(sk, lock, timeout);
    let (n, memory) = {
        let mut c = sk.connection();
        let Some((sink, z)) = c.zcopy.get_mut().and_then(|z| Some((z.sink.take()?, z))) else {
            return 0;
        };
        trace::zero_copy(sk, ZeroCopy::WrittenByPeer, sink.segment.size, sink.done);
        match sink.done {
            // bytes that arrived before the advert was sent say nothing about the peer
            0 if withdrawn => {}
            // without READs, the sender may be waiting for an advert, so skip none
            0 if by_read() => z.sink_skips.failed(),
            _ => z.sink_skips.worked(),
        }
        let lost = sink.state == AdvertState::Lost;
        (sink.done as usize, c.take_back(sink.memory, lost))
    };
    sk.taken_back(lock, memory);
    to.skip(n);
    n
}

/// Pins up to the next `size` bytes of the call's buffer and advertises them. Returns false if no
/// advert is possible, or none now because bytes have arrived or another call was first.
fn offer(sk: &SdpSock, to: &mut RecvMsg<'_>, size: usize) -> bool {
    let piece = to.piece(size).filter(|_| sk.prepare_zcopy());
    let pin = PinnedCall::pin(sk, piece, 1, |block, account| {
        block.pin_destination(to, size, PinTerm::Long, account)
    });
    let Some(mut memory) = pin else {
        sk.connection().zcopy.with(|z| z.sink_skips.failed());
        return false;
    };
    let mut c = sk.connection();
    let pinned = u32::try_from(memory.len()).unwrap_or(0);
    let fits = c.sink_fits(pinned) && c.zcopy.sink.is_none();
    let Connection {
        endpoint, zcopy, ..
    } = &mut *c;
    let parts = endpoint.as_mut().zip(zcopy.get_mut()).filter(|_| fits);
    let sink = parts.and_then(|(endpoint, z)| {
        z.sink = memory.advertise(endpoint, z.next_cookie());
        z.sink.as_ref()
    });
    let offered = sink.is_some();
    if offered {
        c.progress();
    } else if c.sink_fits(u32::try_from(size).unwrap_or(0)) {
        // too few bytes were pinned, so the call must not retry at once
        c.zcopy.with(|z| z.sink_skips.failed());
    }
    drop(c);
    offered
}

/// Waits until the peer returns the memory, or the connection is lost. Returns true if the advert
/// was cancelled unsent, because bytes arrived first.
fn wait_written(sk: &SdpSock, lock: &mut Locked<'_>, timeout: &mut isize) -> bool {
    let mut waiting = Waiting::new(MOST_ADVERT_TIME);
    let mut withdrawn = false;
    loop {
        let seq = sk.event_seq();
        {
            let mut c = sk.connection();
            let fits = c.offered_sink().is_some();
            match c.zcopy.get_mut().and_then(|z| z.sink.as_mut()) {
                Some(sink) if sink.state == AdvertState::Queued && !fits => {
                    sink.finish();
                    withdrawn = true;
                }
                Some(sink) if !sink.is_back() => {}
                _ => return withdrawn,
            }
        }
        let closed = sk.has_error()
            || sk.shutdown() & RCV_SHUTDOWN != 0
            || sk.peer_has_ended()
            || sk.state() == State::Close;
        let turn = waiting.sleep(sk, lock, seq, closed, timeout, |lock, limit| {
            sk.wait_to_read(lock, seq, limit)
        });
        // the caller checks for signals again
        if turn != AfterSleep::Look {
            let mut c = sk.connection();
            let sink = c.zcopy.get_mut().and_then(|z| z.sink.as_mut());
            if let Some(sink) = sink.filter(|s| s.is_unsent()) {
                sink.finish();
            }
            if let Some(p) = &mut c.protocol {
                p.cancel_sinks();
            }
            c.progress();
        }
    }
}

/// Requests the bytes of the peer's advert as Data, for a call that only peeks, or must not wait.
pub(crate) fn refuse(sk: &SdpSock) {
    let mut c = sk.connection();
    if !c.holds_advert() || c.zcopy.reading.is_some() {
        return;
    }
    c.refuse_advert();
    c.progress();
    drop(c);
}

/// Reads the peer's advert into the call's buffer, if the advert is next in the stream. Returns the
/// number of bytes read, or 0 if the connection was lost, with the error pending. Returns `None`
/// without an advert, or after refusing the advert, whose bytes then arrive as Data.
///
/// An advert of a whole message is read with its header. If the peer then cancels the advert, the
/// rest of the message is in the queue when this function returns, unless the connection was lost.
pub(crate) fn read(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    to: &mut RecvMsg<'_>,
    most: usize,
) -> Option<usize> {
    let (there, can_read, whole) = {
        let c = sk.connection();
        let there = c.next_advert()?;
        let can = by_read() && c.endpoint.as_ref().is_some_and(|e| e.can_read());
        (there, can, c.records.is_some())
    };
    let little = match whole {
        true => there as usize,
        false => LEAST_TRANSFER.min(there as usize),
    };
    let want = most.min(there as usize);
    let memory = match can_read && want >= little {
        true => {
            let piece = to.piece(want).filter(|_| sk.prepare_zcopy());
            PinnedCall::pin(sk, piece, little, |block, account| {
                block.pin_destination(to, want, PinTerm::Short, account)
            })
        }
        false => None,
    };
    let Some(memory) = memory else {
        refuse(sk);
        return None;
    };
    if !begin(sk, memory) {
        return None;
    }
    wait_read(sk, lock);
    let (done, lost, memory) = {
        let mut c = sk.connection();
        let reading = c.zcopy.get_mut().and_then(|z| z.reading.take())?;
        let lost = !reading.is_complete();
        trace::zero_copy(sk, ZeroCopy::Read, reading.len, reading.done);
        let memory = c.take_back(reading.memory, reading.lost);
        c.leave_advert();
        (reading.done as usize, lost, memory)
    };
    sk.taken_back(lock, memory);
    // the program gets the bytes that were read before a loss, like bytes of Data
    to.skip(done);
    (done > 0 || lost || whole).then_some(done)
}

/// Waits until the READs are complete and a `SOCK_SEQPACKET` message has arrived, or the connection
/// is lost. Only a fatal signal ends the wait earlier, after a delay. The connection is lost if the
/// peer sends nothing of a cancelled message for [`CANCEL_TIME`].
fn wait_read(sk: &SdpSock, lock: &mut Locked<'_>) {
    let mut dying = FatalSignal::default();
    loop {
        let seq = sk.event_seq();
        let limit = sk.with(|c| {
            let rest = c.records.as_ref().is_some_and(Records::awaits_end);
            match c.zcopy.reading.as_ref().filter(|r| !r.lost)?.is_complete() {
                false => Some(FOREVER as usize),
                true => rest.then_some(CANCEL_TIME),
            }
        });
        let Some(limit) = limit else {
            return;
        };
        if !dying.sleep(sk, lock, seq, limit) {
            sk.give_up();
        }
    }
}

/// Starts READs of the peer's advert into pinned memory. Returns false if the peer has cancelled
/// the advert, or another call was first.
fn begin(sk: &SdpSock, mut memory: PinnedCall<'_>) -> bool {
    let mut c = sk.connection();
    let there = c.next_advert();
    let Connection {
        endpoint, zcopy, ..
    } = &mut *c;
    let (Some(there), Some(endpoint), Some(z)) = (there, endpoint, zcopy.get_mut()) else {
        return false;
    };
    let len = there.min(u32::try_from(memory.len()).unwrap_or(0));
    let Some(posted) = memory.post(endpoint) else {
        return false;
    };
    z.reading = Some(Transfer::new(posted, len, z.next_cookie()));
    c.take_header();
    c.progress();
    drop(c);
    true
}
