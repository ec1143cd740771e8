// SPDX-License-Identifier: GPL-2.0-only

//! Receive buffers with pages that a pipe got (splice(2)).
//!
//! An empty buffer stays charged (`max_buffer_memory`) and mapped. The buffer is posted again once
//! nothing else uses its pages. When the connection ends, the pages belong to the pipe alone.

use super::Connection;
use crate::memory::pressure;
use crate::sys::rdma::buffer::Buffer;
use crate::sys::vec;
use kernel::prelude::*;

/// Maximum number of given buffers: those of a pipe, and as many on their way to another socket.
const MOST: usize = 32;

impl Connection {
    /// Takes back an empty receive buffer.
    pub(crate) fn recycle(&mut self, buffer: Buffer) {
        let _ = match buffer.given {
            // `may_give` has made space
            true => vec::push(&mut self.rx_buffers.given, MOST, buffer, GFP_NOWAIT).is_ok(),
            false => self.keep(buffer),
        };
    }

    /// Returns true if a pipe may get the pages of the first unread buffer.
    pub(crate) fn may_give(&mut self) -> bool {
        self.reclaim_given();
        let given = &mut self.rx_buffers.given;
        !pressure::is_tight() && vec::reserve(given, MOST, GFP_NOWAIT).is_ok()
    }

    /// Recycles the buffers whose pages no pipe uses any more.
    pub(super) fn reclaim_given(&mut self) {
        let mut i = 0;
        while let Some(buffer) = self.rx_buffers.given.get(i) {
            if buffer.block().is_some_and(|b| b.is_shared()) {
                i = i.saturating_add(1);
            } else if let Ok(mut buffer) = self.rx_buffers.given.remove(i) {
                buffer.given = false;
                self.recycle(buffer);
            }
        }
    }
}
