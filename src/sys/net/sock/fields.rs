// SPDX-License-Identifier: GPL-2.0-only

//! Fields of a socket: state, errors, options, owner and namespace. setsockopt(2)'s generic code
//! changes most of these fields, so each use reads the field again.

use super::{Flag, SockCore, State};
use crate::sys::bindings as c;
use crate::sys::errno::Errno;
use crate::sys::netns::Net;
use core::ptr;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;

impl SockCore {
    pub(crate) fn state(&self) -> State {
        State::from_raw(read_once!(self.__sk_common.skc_state))
    }

    /// Returns true if the socket has an SDP connection by which it can still send.
    #[inline]
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.state(), State::Established | State::CloseWait)
    }

    /// Changes the state and triggers the kernel's `inet_sock_set_state` tracepoint.
    pub(crate) fn set_state(&self, s: State) {
        // SAFETY: `raw` is an inet_sock by the invariants, as the function requires.
        unsafe { c::inet_sk_set_state(self.raw(), s as i32) }
    }

    /// `RCV_SHUTDOWN` and `SEND_SHUTDOWN` bits.
    pub(crate) fn shutdown(&self) -> u8 {
        read_once!(self.sk_shutdown)
    }

    /// Returns true for a socket of messages (`SOCK_SEQPACKET`).
    #[inline]
    pub(crate) fn is_seqpacket(&self) -> bool {
        // SAFETY: By the invariants the sock is alive; its type never changes.
        unsafe { u32::from((*self.raw()).sk_type) == c::sock_type_SOCK_SEQPACKET }
    }

    /// Adds bits to [`SockCore::shutdown`]. The caller holds the lock that serialises all writers;
    /// the kernel's writers set their bits again under that lock.
    pub(crate) fn add_shutdown(&self, how: u8) {
        write_once!(self.sk_shutdown = self.shutdown() | how)
    }

    /// Clears all shutdown bits, so that the socket can be used again.
    pub(crate) fn clear_shutdown(&self) {
        write_once!(self.sk_shutdown = 0)
    }

    pub(crate) fn has_error(&self) -> bool {
        read_once!(self.sk_err) != 0
    }

    /// Returns true if the error queue is not empty.
    pub(crate) fn has_notices(&self) -> bool {
        // SAFETY: By the invariants the sock is alive.
        unsafe { !c::skb_queue_empty_lockless(&raw const (*self.raw()).sk_error_queue) }
    }

    pub(crate) fn set_error(&self, e: Errno) {
        write_once!(self.sk_err = e.0)
    }

    pub(crate) fn take_error(&self) -> Result {
        // SAFETY: By the invariants the sock is alive; sk_err is exchanged atomically.
        let e = unsafe { c::sock_error(self.raw()) };
        if e < 0 {
            Err(Error::from_errno(e))
        } else {
            Ok(())
        }
    }

    /// Returns the error of a send call that fails with `e`: the pending error instead of `EPIPE`,
    /// with SIGPIPE (`sk_stream_error`).
    pub(crate) fn stream_error(&self, e: Error, flags: u32) -> Error {
        // SAFETY: By the invariants the sock is alive; the caller is a send call.
        Error::from_errno(unsafe { c::sk_stream_error(self.raw(), flags as i32, e.to_errno()) })
    }

    /// Returns `SO_RCVBUF` in bytes (doubled, as in getsockopt(2)).
    pub(crate) fn rcvbuf(&self) -> usize {
        read_once!(self.sk_rcvbuf).max(0) as usize
    }

    /// Returns `SO_SNDBUF` in bytes (doubled, as in getsockopt(2)).
    pub(crate) fn sndbuf(&self) -> usize {
        read_once!(self.sk_sndbuf).max(0) as usize
    }

    /// Returns true if the program has set `SO_RCVBUF`.
    pub(crate) fn rcvbuf_is_fixed(&self) -> bool {
        self.user_lock(c::SOCK_RCVBUF_LOCK)
    }

    /// Raises the size of the receive buffer, unless the program has set `SO_RCVBUF`.
    pub(crate) fn grow_rcvbuf(&self, bytes: usize) {
        if !self.user_lock(c::SOCK_RCVBUF_LOCK) && self.rcvbuf() < bytes {
            write_once!(self.sk_rcvbuf = i32::try_from(bytes).unwrap_or(i32::MAX))
        }
    }

    /// Raises the size of the send buffer, unless the program has set `SO_SNDBUF`.
    pub(crate) fn grow_sndbuf(&self, bytes: usize) {
        if !self.user_lock(c::SOCK_SNDBUF_LOCK) && self.sndbuf() < bytes {
            write_once!(self.sk_sndbuf = i32::try_from(bytes).unwrap_or(i32::MAX))
        }
    }

    /// Returns true if the program has set the size or address of `bit` (`SOCK_*_LOCK`).
    pub(super) fn user_lock(&self, bit: u32) -> bool {
        // setsockopt(2) and bind(2) change these bits; a stale value only acts like an earlier read
        u32::from(read_once!(self.sk_userlocks)) & bit != 0
    }

    /// Returns the minimum number of unread bytes that wakes a receiver (`SO_RCVLOWAT`).
    pub(crate) fn rcvlowat(&self) -> usize {
        read_once!(self.sk_rcvlowat).max(1) as usize
    }

    /// Returns the maximum of `SO_RCVLOWAT`, by TCP's rule.
    pub(crate) fn most_rcvlowat(&self) -> i32 {
        if self.user_lock(c::SOCK_RCVBUF_LOCK) {
            return i32::try_from(self.rcvbuf() / 2).unwrap_or(i32::MAX);
        }
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_most_rmem(self.raw()) / 2 }
    }

    /// Calls `f`, whose allocations use `sk_allocation` and the socket's memory cgroup. Context:
    /// not in interrupts.
    pub(crate) fn charged<R>(&self, f: impl FnOnce() -> R) -> R {
        let mut before = c::sdp_h_memory::default();
        // SAFETY: By the invariants the sock is alive, and keeps its memory cgroup alive.
        unsafe { c::sdp_h_memory_begin(self.raw(), &mut before) };
        let r = f();
        // SAFETY: This task has filled in `memory` above.
        unsafe { c::sdp_h_memory_end(&mut before) };
        r
    }

    /// Sets the size of the queues for `SO_MEMINFO`. The caller serialises calls.
    pub(crate) fn set_memory(&self, receive: usize, send: usize) {
        let clamp = |n| i32::try_from(n).unwrap_or(i32::MAX);
        write_once!(self.sk_wmem_queued = clamp(send));
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_set_rmem(self.raw(), clamp(receive)) };
    }

    pub(crate) fn set_rcvlowat(&self, bytes: i32) {
        write_once!(self.sk_rcvlowat = bytes)
    }

    /// Returns the time of `SO_LINGER` in jiffies.
    pub(crate) fn linger_time(&self) -> usize {
        read_once!(self.sk_lingertime) as usize
    }

    pub(crate) fn flag(&self, f: Flag) -> bool {
        // SAFETY: By the invariants the sock is alive; flags are read atomically.
        unsafe { c::sock_flag(self.raw(), f as u32) }
    }

    /// Sets or clears a flag that the kernel only changes under the socket lock.
    pub(crate) fn set_flag(&self, f: Flag, on: bool) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_sock_set_flag(self.raw(), f as i32, on) }
    }

    /// Returns true if a kernel user has disabled Nagle's algorithm by `tcp_sock_set_nodelay()`.
    pub(crate) fn cast_nodelay(&self) -> bool {
        // SAFETY: By the invariants the sock is alive, and its object is as large as a `tcp_sock`.
        unsafe { (*self.raw()).sk_kern_sock() != 0 && c::sdp_h_cast_nodelay(self.raw()) }
    }

    /// Returns TCP's times from the namespace's sysctls.
    pub(crate) fn tcp_timers(&self) -> c::sdp_h_tcp_timers {
        let mut t = c::sdp_h_tcp_timers::default();
        // SAFETY: By the invariants the sock is alive; `t` is writable.
        unsafe { c::sdp_h_tcp_timers(self.raw(), &mut t) };
        t
    }

    /// Returns the time-out of receive calls in jiffies, 0 if they must not wait.
    pub(crate) fn receive_timeout(&self, non_blocking: bool) -> isize {
        match non_blocking {
            true => 0,
            false => read_once!(self.sk_rcvtimeo),
        }
    }

    /// Returns the time-out of send and connect calls in jiffies, 0 if they must not wait.
    pub(crate) fn send_timeout(&self, non_blocking: bool) -> isize {
        match non_blocking {
            true => 0,
            false => read_once!(self.sk_sndtimeo),
        }
    }

    /// Returns the offset of `MSG_PEEK` in the unread bytes (`SO_PEEK_OFF`), negative if unset.
    pub(crate) fn peek_offset(&self) -> i32 {
        read_once!(self.sk_peek_off)
    }

    /// Moves the peek offset, if it is set, but not below 0. Context: socket lock held.
    pub(crate) fn move_peek_offset(&self, by: isize) {
        let old = self.peek_offset();
        if old >= 0 {
            let new = (old as isize)
                .saturating_add(by)
                .clamp(0, i32::MAX as isize);
            self.set_peek_offset(new as i32);
        }
    }

    pub(crate) fn set_peek_offset(&self, to: i32) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sk_set_peek_off(self.raw(), to) };
    }

    /// Returns the owner, as a number of the initial user namespace.
    pub(crate) fn uid(&self) -> u32 {
        read_once!(self.sk_uid.val)
    }

    /// Returns the owner, as a number of the reader's user namespace.
    pub(crate) fn uid_for(&self, reader: &SeqFile) -> u32 {
        // SAFETY: By the invariants the sock is alive; a `SeqFile` is an open `seq_file`.
        unsafe { c::sdp_h_uid_for(ptr::from_ref(reader).cast_mut().cast(), self.raw()) }
    }

    /// Returns the inode number of the descriptor, 0 once it is closed.
    pub(crate) fn inode(&self) -> u64 {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sock_i_ino(self.raw()) as u64 }
    }

    /// Returns `SO_PRIORITY` unless it was only derived from the traffic class.
    pub(crate) fn priority(&self) -> Option<i32> {
        // SAFETY: By the invariants the sock is alive.
        let p = unsafe { c::sdp_h_priority(self.raw()) };
        (p >= 0).then_some(p)
    }

    /// Returns the type of service or traffic class of packets to the peer.
    pub(crate) fn traffic_class(&self) -> u8 {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_tos(self.raw()) }
    }

    pub(crate) fn net(&self) -> &Net {
        // SAFETY: By the invariants the sock is alive. A program's sock keeps its namespace alive.
        // A kernel user closes its socket before the namespace ends.
        unsafe { Net::from_raw((*self.raw()).__sk_common.skc_net.net) }
    }

    /// Returns true if the socket holds its namespace.
    pub(crate) fn keeps_namespace(&self) -> bool {
        // SAFETY: By the invariants the sock is alive.
        unsafe { (*self.raw()).__sk_common.skc_net_refcnt() != 0 }
    }

    /// Returns the maximum number of connections that wait for accept(2) (listen(2)).
    pub(crate) fn backlog(&self) -> u32 {
        read_once!(self.sk_max_ack_backlog)
    }

    pub(crate) fn set_backlog(&self, n: u32) {
        write_once!(self.sk_max_ack_backlog = n)
    }

    /// Returns the number of connections that wait for accept(2).
    pub(crate) fn waiting(&self) -> u32 {
        read_once!(self.sk_ack_backlog)
    }

    pub(crate) fn set_waiting(&self, n: u32) {
        write_once!(self.sk_ack_backlog = n)
    }
}
