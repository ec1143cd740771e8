// SPDX-License-Identifier: GPL-2.0-only

//! Signals that interrupt a send call, and signals that end the program.

use crate::sock::Data;
use sdp_info::Info;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

extern "C" fn nothing(_: i32) {}

/// Interrupts system calls of the thread that created it. The thread begins when the socket has
/// sent a SrcAvail, or after two seconds, and stops when it is dropped.
pub struct Interrupter {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Interrupter {
    /// `before` is the number of SrcAvails that the socket had sent.
    pub fn start(data: &Data, before: u64) -> Self {
        // SAFETY: a handler that does nothing, without SA_RESTART: calls return EINTR.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(i32) as libc::sighandler_t;
            libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut());
        }
        let over = Arc::new(AtomicBool::new(false));
        // SAFETY: passes only a number.
        let caller = unsafe { libc::pthread_self() };
        let (seen, fd) = (over.clone(), data.fd());
        let start = Instant::now();
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::Acquire) {
                if adverts(fd) > before || start.elapsed() > Duration::from_secs(2) {
                    // SAFETY: the creating thread waits for this thread in drop, so the creating
                    // thread still exists.
                    unsafe { libc::pthread_kill(caller, libc::SIGUSR1) };
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        Interrupter {
            over,
            thread: Some(thread),
        }
    }
}

/// Returns the number of SrcAvail messages that a socket has sent.
fn adverts(fd: RawFd) -> u64 {
    // SAFETY: the socket outlives the Interrupter, which borrows nothing beyond its thread's end.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    Info::of(&fd).map_or(0, |info| info.get("src_avail_sent"))
}

impl Drop for Interrupter {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts a thread that calls `then` with the number of each SIGINT, SIGTERM and SIGHUP. Must be
/// called before other threads start, because they inherit the blocked signals.
pub fn on_end(then: impl Fn(i32) + Send + 'static) {
    // SAFETY: the set is a local variable, which the calls fill and read.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut());
        set
    };
    thread::spawn(move || {
        let mut signal = 0;
        // SAFETY: both are local variables.
        while unsafe { libc::sigwait(&set, &mut signal) } != 0 {}
        then(signal);
    });
}
