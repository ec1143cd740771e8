// SPDX-License-Identifier: GPL-2.0-only

//! What goes out.

use super::super::send_queue::LARGE_CHUNK;
use super::super::SdpSock;
use super::window::wider;
use super::{Connection, Tell, FIN};
use crate::observe::debug::{debug, Ends};
use crate::observe::trace;
use crate::protocol::{Hold, Mid, Offer, Transmit, PAYLOAD_CREDITS};
use crate::sys::errno::Errno;
use crate::sys::time::{jiffies, milliseconds, Jiffies};
use crate::transport::{Sending, Status, Transport};
use kernel::sync::atomic::Relaxed;

/// One in so many messages asks for a completion, besides the last of a run.
const SIGNAL_EVERY: u32 = 8;
/// Bytes of a message from which its buffer is given away, where that is possible, and not copied.
const LEAST_EXCHANGE: usize = 4096;
/// Longest time that `TCP_CORK` and `MSG_MORE` hold bytes back (tcp(7)).
const CORK_TIME: Jiffies = milliseconds(200);
/// How long bytes wait for credits of a peer that looks only when its program calls: it may not call for
/// long, and what its kernel has room for is taken without.
const ROUSE_TIME: Jiffies = milliseconds(10);

impl Connection {
    /// Sends what may be sent.
    pub(in crate::socket) fn pump(&mut self, sk: &SdpSock, tell: &mut Tell) {
        let mut failed = self.end_access().and_then(|()| self.move_on(tell)).err();
        let mut sink = self.offered_sink();
        let (Some(channel), Some(protocol)) = (self.channel.as_mut(), self.protocol.as_mut())
        else {
            return;
        };
        let mut posted = false;
        let held = loop {
            if channel.send_room() == 0 {
                break Some(Hold::Wire);
            }
            let source = self.direct.offered();
            let unsent = match source {
                // what is queued behind the block goes after it
                Some((_, at)) => at.saturating_sub(self.tx.sent()) as usize,
                None => self.tx.unsent(),
            };
            let contiguous = self.tx.contiguous();
            let offer = Offer {
                queued: u32::try_from(unsent).unwrap_or(u32::MAX),
                urgent: self.tx.urgent(),
                posted: channel.posted_receives(),
                // Only messages with payload count, the last of which asks for a completion; one of
                // those without that nobody is told of must not hold anything back.
                in_flight: u16::from(self.tx.small_in_flight()),
                // What does not fit one message for the way it lies in memory is not held back:
                // so only the last bytes are, and the message before them asks for a completion.
                no_delay: self.options.no_delay || unsent > contiguous || source.is_some(),
                cork: (self.options.cork || self.more) && !self.uncorked && source.is_none(),
                limit: u32::try_from(contiguous).unwrap_or(u32::MAX),
                reader_waits: sk.data().readers.load(Relaxed) > 0 && self.rx.bytes() == 0,
                source: source.map(|(block, _)| block),
                sink,
            };
            let message = match protocol.transmit(&offer) {
                Transmit::Send(m) => m,
                Transmit::Held(h) => break Some(h),
                Transmit::Idle => break None,
            };
            posted = true;
            if message.kind == Mid::SrcAvail {
                trace::send(sk, &message.header, protocol.credits());
                self.stats.sent[message.kind.index()] += 1;
                self.stats.bytes_sent += u64::from(message.payload);
                if let Err(e) = self.direct.advertise(channel, &message, self.tx.sent()) {
                    failed = Some(e);
                    break None;
                }
                continue;
            }
            if message.kind == Mid::SinkAvail {
                trace::send(sk, &message.header, protocol.credits());
                self.stats.sent[message.kind.index()] += 1;
                match self
                    .direct
                    .advertise_sink(channel, &message, self.tx.sent())
                {
                    Ok(behind) => self.stats.direct_ahead += u64::from(behind),
                    Err(e) => {
                        failed = Some(e);
                        break None;
                    }
                }
                sink = self.direct.next_sink();
                continue;
            }
            let n = message.payload as usize;
            let fin = message.kind == Mid::DisConn;
            let after = self.tx.sent() + n as u64;
            self.unsignaled += 1;
            // the peer's buffers may grow before the rest is sent
            let full = LARGE_CHUNK.max(protocol.max_payload() as usize);
            // what is behind it has to wait for the peer, perhaps for long
            let stalls = protocol.credits() < PAYLOAD_CREDITS;
            let last = n > 0 && (unsent - n < full || stalls);
            let signaled = last || fin || self.unsignaled >= SIGNAL_EVERY;
            if signaled {
                self.unsignaled = 0;
            }
            let mut sending = Sending {
                header: message
                    .header
                    .get(..message.header_len.into())
                    .unwrap_or_default(),
                payload: &[],
                signaled,
                solicited: message.solicited,
                cookie: after | if fin { FIN } else { 0 },
            };
            let exchange = n >= LEAST_EXCHANGE && channel.exchanges();
            let r = if let Some(whole) = exchange.then(|| self.tx.whole(n)).flatten() {
                channel.exchange(&sending, whole, message.payload)
            } else {
                let (spans, count) = self.tx.spans(n);
                let mut list = spans.into_iter().flatten();
                let (two, one);
                sending.payload = match (count, list.next(), list.next()) {
                    (2, Some(a), Some(b)) => {
                        two = [a, b];
                        &two
                    }
                    (1, Some(a), _) => {
                        one = [a];
                        &one
                    }
                    _ => &[],
                };
                channel.post_send(&sending)
            };
            if let Err(e) = r {
                failed = Some(e);
                break None;
            }
            trace::send(sk, &message.header, protocol.credits());
            if n == 0 && message.kind == Mid::Data && self.rx.memory() == 0 {
                // a credit update: most goes one way, and a wider window needs fewer of them
                self.window = wider(self.window, channel);
            }
            self.stats.sent[message.kind.index()] += 1;
            self.stats.bytes_sent += n as u64;
            self.tx.advance(n, message.urgent);
            if n > 0 && n == unsent && n < protocol.max_payload() as usize {
                self.tx.was_small();
            }
        };
        if held != Some(Hold::Credits) {
            self.rouse_at = None;
        } else if self.held != held || posted {
            if self.held != held {
                self.stats.credit_stalls += 1;
                trace::credit_stall(sk, protocol.credits(), self.tx.unsent());
            }
            if channel.knows_solicited() {
                self.rouse_at = Some(jiffies().wrapping_add(ROUSE_TIME));
                sk.set_timer(ROUSE_TIME);
            }
        }
        self.held = held;
        self.uncorked = false;
        if held != Some(Hold::Corked) {
            self.uncork_at = None;
        } else if self.uncork_at.is_none() {
            self.uncork_at = Some(jiffies().wrapping_add(CORK_TIME));
            sk.set_timer(CORK_TIME);
        }
        if let Err(e) = channel.flush() {
            failed = Some(e);
        }
        tell.errand |= self.direct.has_lent() && channel.has_errand();
        if let Some(e) = failed {
            self.stats.transport_errors += 1;
            // What a device says of a work request would tell a program something else.
            debug!("{}: nothing can be posted: {:?}", Ends(sk), e);
            self.lose(sk, Errno::of(Status::Local.error()), tell);
        }
    }
}
