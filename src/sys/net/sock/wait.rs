// SPDX-License-Identifier: GPL-2.0-only

//! Waiting for a socket, and waking its waiters: sleeping calls, pollers, owners of `O_ASYNC`
//! descriptors, workers and the timer.

use super::{seq, SockCore};
use crate::sys::bindings as c;
use crate::sys::errno::ETIMEDOUT;
use crate::sys::time::Jiffies;
use kernel::bindings::{TASK_INTERRUPTIBLE, TASK_KILLABLE, TASK_UNINTERRUPTIBLE};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full};

/// A timeout that never ends (`MAX_SCHEDULE_TIMEOUT`).
pub(crate) const FOREVER: isize = isize::MAX;

impl SockCore {
    /// Wakes all waiters in [`SockCore::sleep`]. Context: any.
    pub(crate) fn wake(&self) {
        seq::count(self.events());
        // SAFETY: By the invariants the wait queue is initialised.
        unsafe { c::sdp_h_wake(self.raw_helper(), true) }
    }

    /// Wakes all waiters in [`SockCore::sleep`], and one waiter in [`SockCore::sleep_in_turn`].
    /// Context: any.
    pub(crate) fn wake_one(&self) {
        seq::count(self.events());
        // SAFETY: By the invariants the wait queue is initialised.
        unsafe { c::sdp_h_wake(self.raw_helper(), false) }
    }

    /// Returns the event number for [`SockCore::sleep`]; the caller then checks the condition.
    pub(crate) fn event_seq(&self) -> i32 {
        seq::last(self.events())
    }

    fn events(&self) -> &Atomic<i32> {
        // SAFETY: `events` is an initialised atomic_t, which has the layout of an `Atomic`.
        unsafe { Atomic::from_ptr(&raw mut (*self.raw_helper()).events.counter) }
    }

    /// Sleeps until [`SockCore::wake`] is called after `seq` was read.
    ///
    /// Returns the remaining time of `timeout`, in jiffies.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` or `EINTR`: interrupted by a signal, as in all socket calls.
    pub(crate) fn sleep(&self, seq: i32, timeout: isize) -> Result<isize> {
        slept(
            self.sleep_in(seq, timeout, TASK_INTERRUPTIBLE, false),
            timeout,
        )
    }

    /// Sleeps like [`SockCore::sleep`], as one of several waiters of which an event wakes only one.
    pub(crate) fn sleep_in_turn(&self, seq: i32, timeout: isize) -> Result<isize> {
        slept(
            self.sleep_in(seq, timeout, TASK_INTERRUPTIBLE, true),
            timeout,
        )
    }

    /// Sleeps like [`SockCore::sleep`], but only a fatal signal interrupts the sleep.
    ///
    /// `EINTR`: a fatal signal. `ETIMEDOUT`: time-out.
    pub(crate) fn sleep_killably(&self, seq: i32, timeout: Jiffies) -> Result {
        match self.sleep_in(seq, timeout as isize, TASK_KILLABLE, false) {
            0 => Err(ETIMEDOUT.into()),
            ..0 => Err(EINTR),
            _ => Ok(()),
        }
    }

    /// Sleeps like [`SockCore::sleep`] for a short time, but no signal interrupts the sleep.
    pub(crate) fn sleep_through(&self, seq: i32, timeout: Jiffies) {
        self.sleep_in(seq, timeout as isize, TASK_UNINTERRUPTIBLE, false);
    }

    fn sleep_in(&self, seq: i32, timeout: isize, state: u32, in_turn: bool) -> isize {
        // SAFETY: By the invariants the wait queue is initialised; a socket call may sleep.
        unsafe { c::sdp_h_sleep(self.raw_helper(), seq, timeout, state, in_turn) }
    }

    /// Sets the job bits `jobs` and queues the work function. Context: any.
    pub(crate) fn schedule(&self, jobs: u32) {
        // SAFETY: By the invariants work and jobs are initialised, and the sock is alive.
        unsafe { c::sdp_h_schedule(self.raw_helper(), jobs as i32) }
    }

    /// Returns and clears all scheduled job bits.
    pub(in crate::sys) fn take_jobs(&self) -> u32 {
        // SAFETY: `jobs` is an initialised atomic_t; the kernel's atomic exchange is used through
        // a reference to it as an `Atomic`, which has the same layout.
        let jobs: &Atomic<i32> =
            unsafe { Atomic::from_ptr(&raw mut (*self.raw_helper()).jobs.counter) };
        jobs.xchg(0, Full) as u32
    }

    /// Queues the timer function after at most `delay`. An earlier deadline stays: the function
    /// then runs early and sets the timer again.
    pub(crate) fn set_timer(&self, delay: Jiffies) {
        // SAFETY: By the invariants the timer is initialised and the sock is alive.
        unsafe { c::sdp_h_arm_timer(self.raw_helper(), delay as kernel::ffi::c_ulong) }
    }

    /// Cancels the timer, unless its function already runs.
    pub(crate) fn clear_timer(&self) {
        // SAFETY: By the invariants the timer is initialised and the sock is alive.
        unsafe { c::sdp_h_cancel_timer(self.raw_helper()) }
    }

    /// Wakes pollers and calls a kernel user's callback after a change of state.
    pub(crate) fn state_changed(&self) {
        self.call_back(c::sdp_h_callback_SDP_H_STATE_CHANGE)
    }

    pub(crate) fn data_ready(&self) {
        self.call_back(c::sdp_h_callback_SDP_H_DATA_READY)
    }

    pub(crate) fn write_space(&self) {
        self.call_back(c::sdp_h_callback_SDP_H_WRITE_SPACE)
    }

    pub(crate) fn error_report(&self) {
        self.call_back(c::sdp_h_callback_SDP_H_ERROR_REPORT)
    }

    fn call_back(&self, which: c::sdp_h_callback) {
        // SAFETY: By the invariants the sock is alive, and its callbacks are set.
        unsafe { c::sdp_h_call_back(self.raw(), which) }
    }

    /// Sends SIGURG to the socket's owner, because the peer has announced urgent data.
    pub(crate) fn send_sigurg(&self) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sk_send_sigurg(self.raw()) }
    }

    /// Sends SIGIO to the owner of an `O_ASYNC` descriptor, since the peer has hung up.
    pub(crate) fn sigio_hup(&self) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sk_wake_async(self.raw(), c::SOCK_WAKE_WAITD as i32, c::POLL_HUP as i32) }
    }

    /// Sends SIGIO to the owner of an `O_ASYNC` descriptor, since the socket is connected.
    pub(crate) fn sigio_out(&self) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sk_wake_async(self.raw(), c::SOCK_WAKE_IO as i32, c::POLL_OUT as i32) }
    }

    /// Requests a call of [`SockCore::write_space`] once space is free. The caller then checks for
    /// space again.
    pub(crate) fn want_space(&self) {
        // SAFETY: By the invariants the sock is alive; a socket in a socket call is not orphaned.
        unsafe { c::sdp_h_nospace(self.raw()) }
    }

    /// Returns true if [`SockCore::want_space`] was called since the last call of this function.
    pub(crate) fn take_want_space(&self) -> bool {
        // SAFETY: By the invariants the sock is alive; the callback lock keeps `sk_socket` valid.
        unsafe { c::sdp_h_clear_nospace(self.raw()) }
    }

    /// Returns true if data has to be reported to other tasks than those in receive calls.
    pub(crate) fn is_watched(&self) -> bool {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_watchers(self.raw()) != c::sdp_h_watchers_SDP_H_NONE }
    }

    /// Returns true if the socket has pollers and [`SockCore::wake_pollers`] reaches every waiter:
    /// no owner gets signals, and no callback belongs to a kernel user.
    ///
    /// Context: any.
    pub(crate) fn has_pollers(&self) -> bool {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_watchers(self.raw()) == c::sdp_h_watchers_SDP_H_POLLERS }
    }

    /// Wakes the pollers without an event mask, so that all poll the socket again.
    ///
    /// Context: any.
    pub(crate) fn wake_pollers(&self) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_wake_pollers(self.raw()) }
    }
}

/// Returns the result of a sleep that ended by a signal (`left` < 0) or with `left` jiffies left.
pub(in crate::sys::net) fn slept(left: isize, timeout: isize) -> Result<isize> {
    match left {
        ..0 => Err(interrupted(timeout)),
        left => Ok(left),
    }
}

/// Returns the error of a call with `timeout` after a signal.
pub(crate) fn interrupted(timeout: isize) -> Error {
    match timeout {
        FOREVER => ERESTARTSYS,
        _ => EINTR,
    }
}

/// Returns true if other tasks are waiting for the current processor.
pub(crate) fn cpu_contended() -> bool {
    // SAFETY: The function only reads state of the current processor.
    unsafe { c::sdp_h_is_crowded() }
}

pub(crate) fn signal_pending() -> bool {
    kernel::current!().signal_pending()
}
