// SPDX-License-Identifier: GPL-2.0-only

//! Models transport and socket at one end: receive buffers, SENDs, and the two streams.

use std::collections::VecDeque;
use std::fmt;

use crate::packet::{stream_byte, Packet};

/// Receive buffers and SENDs of one queue pair.
pub struct Port {
    /// Sizes of the empty receive buffers, in the order of posting.
    posted: VecDeque<u32>,
    /// Received messages that were not processed.
    arrived: VecDeque<Packet>,
    /// Number of buffers that contain unread bytes.
    held: u16,
    /// Total number of buffers.
    pub budget: u16,
    /// Number of buffers that stay posted even if the reader does not read.
    pub least: u16,
    /// Size in bytes of buffers posted from now on.
    pub size: u32,
    /// Number of posted SENDs whose completion was not polled.
    pub in_flight: u16,
    /// Number of posted SENDs that have completed.
    completed: u16,
    /// Maximum number of posted SENDs.
    pub depth: u16,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} posted, {} arrived, {} held of {}, {} of {} in flight",
            self.posted.len(),
            self.arrived.len(),
            self.held,
            self.budget,
            self.in_flight,
            self.depth
        )
    }
}

impl Port {
    /// Makes a queue pair with `budget` buffers of `size` bytes, all posted.
    pub fn new(budget: u16, size: u32, depth: u16) -> Self {
        Port {
            posted: std::iter::repeat_n(size, usize::from(budget)).collect(),
            arrived: VecDeque::new(),
            held: 0,
            budget,
            least: 0,
            size,
            in_flight: 0,
            completed: 0,
            depth,
        }
    }

    /// Returns the number of posted buffers as the software counts them: an unprocessed message
    /// still occupies its buffer.
    pub fn posted(&self) -> u16 {
        (self.posted.len() + self.arrived.len()) as u16
    }

    /// Handles a message from the wire.
    pub fn arrive(&mut self, packet: Packet) -> Result<(), String> {
        let size = self
            .posted
            .pop_front()
            .ok_or("a message came and no receive buffer was posted")?;
        if packet.length() > size {
            return Err(format!(
                "a message of {} bytes came for a buffer of {size}",
                packet.length()
            ));
        }
        self.arrived.push_back(packet);
        Ok(())
    }

    /// Returns the next message to process. The message's buffer is free at once if it has no
    /// payload, otherwise after [`Port::release`].
    pub fn next_arrived(&mut self) -> Option<Packet> {
        self.arrived.pop_front()
    }

    /// Counts another buffer with bytes for the reader.
    pub fn hold(&mut self) {
        self.held += 1;
    }

    /// Frees buffers that the reader has emptied.
    pub fn release(&mut self, buffers: u16) {
        self.held -= buffers;
    }

    /// Posts up to `most` free buffers; returns their number.
    pub fn repost(&mut self, most: u16) -> u16 {
        let free = self.budget.saturating_sub(self.posted() + self.held);
        let least = self.least.saturating_sub(self.posted());
        let count = free.max(least).min(most);
        for _ in 0..count {
            self.posted.push_back(self.size);
        }
        count
    }

    /// Completes one of this end's SENDs (or an attacker's copy of one).
    pub fn carried(&mut self) {
        self.completed = self.in_flight.min(self.completed + 1);
    }

    /// Polls up to `most` completions of SENDs; returns their number.
    pub fn complete(&mut self, most: u16) -> u16 {
        let count = self.completed.min(most);
        self.completed -= count;
        self.in_flight -= count;
        count
    }
}

/// A stream at its sending end.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Bytes written by the application.
    pub written: u64,
    /// Number of bytes passed to the protocol.
    pub sent: u64,
    /// Set if the application will write no more.
    pub closed: bool,
    /// Position after the urgent byte, until that is sent.
    pub urgent: Option<u64>,
    /// Positions after the sent urgent bytes, until the world has checked them.
    pub marks: VecDeque<u64>,
}

impl Outbox {
    /// Returns the number of bytes not yet passed to the protocol.
    pub fn queued(&self) -> u32 {
        (self.written - self.sent) as u32
    }

    /// Lets the application write; the last byte may be urgent. A later urgent byte replaces an
    /// earlier unsent one, as on TCP.
    pub fn write(&mut self, bytes: u32, urgent: bool) {
        self.written += u64::from(bytes);
        if urgent && bytes > 0 {
            self.urgent = Some(self.written);
        }
    }

    /// Returns the number of queued bytes up to and including the urgent one.
    pub fn urgent_at(&self) -> Option<u32> {
        self.urgent.map(|at| (at - self.sent) as u32)
    }

    /// Sends a number of bytes, the last of them marked as urgent or not.
    pub fn advance(&mut self, payload: u32, urgent: bool) -> Result<(), String> {
        self.sent += u64::from(payload);
        match self.urgent {
            Some(at) if urgent && at == self.sent => {
                self.marks.push_back(at);
                self.urgent = None;
            }
            Some(at) if !urgent && self.sent < at => {}
            None if !urgent => {}
            other => {
                return Err(format!(
                    "sent up to {}, urgent {urgent}, while the urgent byte is {other:?}",
                    self.sent
                ))
            }
        }
        Ok(())
    }
}

/// A stream at its receiving end.
#[derive(Debug)]
pub struct Inbox {
    /// Side that sends the stream.
    from: usize,
    /// Number of received bytes.
    pub received: u64,
    /// Bytes that the application has read.
    pub read: u64,
    /// Unread bytes in each buffer.
    segments: VecDeque<u32>,
    /// Set at the end of the stream.
    pub closed: bool,
    /// Positions after the received urgent bytes, until the world has checked them.
    pub marks: VecDeque<u64>,
    /// Set if an urgent byte is announced and has not arrived.
    pub pending: bool,
}

impl Inbox {
    /// Makes the receiving end of the stream from side `from`.
    pub fn new(from: usize) -> Self {
        Inbox {
            from,
            received: 0,
            read: 0,
            segments: VecDeque::new(),
            closed: false,
            marks: VecDeque::new(),
            pending: false,
        }
    }

    /// Handles received stream bytes, in a separate buffer.
    pub fn take(&mut self, payload: &[u8], check: bool) -> Result<(), String> {
        if self.closed && check {
            return Err(format!("{} bytes after the end", payload.len()));
        }
        if check {
            for (at, byte) in (self.received..).zip(payload) {
                if *byte != stream_byte(self.from, at) {
                    return Err(format!(
                        "byte {at} of the stream from side {} is wrong",
                        self.from
                    ));
                }
            }
        }
        self.received += payload.len() as u64;
        self.segments.push_back(payload.len() as u32);
        Ok(())
    }

    /// Handles stream bytes written by RDMA to the application's memory, after the application has
    /// read all earlier bytes.
    pub fn direct(&mut self, bytes: &[u8], check: bool) -> Result<(), String> {
        if check && self.read != self.received {
            return Err("bytes came by RDMA before others were read".into());
        }
        self.take(bytes, check)?;
        self.segments.pop_back();
        self.read = self.received;
        Ok(())
    }

    /// Lets the application read up to `most` bytes; returns the number of emptied buffers.
    pub fn read(&mut self, most: u32) -> u16 {
        let mut left = most;
        let mut emptied = 0;
        while let Some(front) = self.segments.front_mut() {
            let count = left.min(*front);
            *front -= count;
            left -= count;
            self.read += u64::from(count);
            if *front > 0 {
                break;
            }
            self.segments.pop_front();
            emptied += 1;
        }
        emptied
    }

    /// Handles the announcement and arrival of urgent bytes.
    pub fn urgent(&mut self, pending: bool, present: bool) -> Result<(), String> {
        if pending && self.pending {
            return Err("an urgent byte was announced twice".into());
        }
        self.pending |= pending;
        if present {
            if !self.pending {
                return Err("an urgent byte came that was not announced".into());
            }
            self.pending = false;
            self.marks.push_back(self.received);
        }
        Ok(())
    }
}
