// SPDX-License-Identifier: GPL-2.0-only

//! Who is to be told of news.
//!
//! A [`Tell`] collects that under the connection's lock and is delivered without it.

use super::super::{listen, receive_buffers, SdpSock};
use crate::transport::Transport;
use kernel::alloc::flags::GFP_NOWAIT;

/// Who is to be told of what [`Connection::progress`](super::Connection::progress) has found.
#[derive(Clone, Copy, Default)]
pub(in crate::socket) struct Tell {
    /// There is something to read, or the end of it.
    pub(in crate::socket) readable: bool,
    /// There is room to write.
    pub(in crate::socket) writable: bool,
    /// The state has changed.
    pub(in crate::socket) state: bool,
    /// An error is to be reported.
    pub(in crate::socket) error: bool,
    /// Urgent data is on its way.
    pub(in crate::socket) urgent: bool,
    /// The peer has hung up.
    pub(in crate::socket) hup: bool,
    /// What accept(2) waits for has come (`TCP_DEFER_ACCEPT`).
    pub(in crate::socket) admit: bool,
    /// Zero copy has come on.
    pub(in crate::socket) direct: bool,
    /// The transport has an errand for whoever tells.
    pub(in crate::socket) errand: bool,
    /// Receive buffers are to be made.
    pub(in crate::socket) buffers: bool,
}

impl Tell {
    /// Adds what another one says.
    pub(in crate::socket) fn merge(&mut self, o: Tell) {
        self.readable |= o.readable;
        self.writable |= o.writable;
        self.state |= o.state;
        self.error |= o.error;
        self.urgent |= o.urgent;
        self.hup |= o.hup;
        self.admit |= o.admit;
        self.direct |= o.direct;
        self.errand |= o.errand;
        self.buffers |= o.buffers;
    }

    /// Tells them, makes receive buffers, and runs the transport's errands. The connection's lock is not
    /// held.
    pub(in crate::socket) fn deliver(mut self, sk: &SdpSock) {
        while self.errand || self.buffers {
            if core::mem::take(&mut self.buffers) {
                // the program, or a worker, may be what memory is wanted for
                self.merge(receive_buffers::stock(sk, GFP_NOWAIT));
            }
            if !core::mem::take(&mut self.errand) {
                continue;
            }
            let errand = {
                let mut c = sk.data().connection.lock();
                c.channel.as_mut().and_then(|c| c.errand())
            };
            if let Some(errand) = errand {
                // who is on an errand looks afterwards: no worker is needed for what is told meanwhile
                let events = &sk.data().events;
                events.enter();
                let helped = errand.run();
                events.leave();
                let mut c = sk.data().connection.lock();
                c.stats.direct_helped += helped;
                let found = c.progress(sk);
                drop(c);
                self.merge(found);
            }
        }
        self.tell(sk);
    }

    fn tell(self, sk: &SdpSock) {
        if self.readable || self.writable || self.state || self.error || self.direct {
            sk.wake();
        }
        if self.admit {
            listen::admit(sk);
        }
        if self.urgent {
            sk.send_sigurg();
        }
        if self.state {
            sk.state_changed();
        }
        if self.readable {
            sk.data_ready();
        }
        if self.writable && sk.take_want_space() {
            sk.write_space();
        }
        if self.error {
            sk.error_report();
        }
        if self.hup {
            sk.sigio_hup();
        }
    }
}
