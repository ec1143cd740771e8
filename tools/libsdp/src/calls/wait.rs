// SPDX-License-Identifier: GPL-2.0-only

//! poll(2), select(2), epoll_wait(2) and their kin.
//!
//! Two things are different for a program whose sockets may be SDP. A listener on both is ready
//! when either of its two is: in poll(2) and select(2) the joint epoll descriptor takes its place,
//! and an epoll descriptor is told of both listeners. And a connection whose SDP has failed is not
//! ready: what was seen of it is taken back, it goes on by TCP (see [`replace::settle`]), and the
//! call waits for the rest of its time.
//!
//! SDP that does not answer says nothing, so whatever waits wakes up when SDP has had its time
//! ([`replace::give_up_overdue`]), whether it waits for that connection or for something else. What slept
//! before another thread began the connection is not woken: there, SDP has all its own time.

use crate::replace::{self, Settled};
use crate::table::{self, Interest, Kind};
use crate::{arena, real, sys};
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use std::{mem, ptr, slice};

/// What is left of the time that a call may take.
#[derive(Clone, Copy)]
enum Time {
    Endless,
    /// Ends then, on the clock of [`sys::clock`].
    Until(timespec),
}

const SECOND: i64 = 1_000_000_000;

impl Time {
    /// From milliseconds as poll(2) has them.
    fn milliseconds(timeout: c_int) -> Self {
        if timeout < 0 {
            return Time::Endless;
        }
        Time::after(timespec {
            tv_sec: (timeout / 1000).into(),
            tv_nsec: i64::from(timeout % 1000) * 1_000_000,
        })
    }

    /// From now on.
    fn after(span: timespec) -> Self {
        let now = sys::clock(libc::CLOCK_MONOTONIC);
        let nanos = now.tv_nsec.saturating_add(span.tv_nsec);
        Time::Until(timespec {
            tv_sec: now
                .tv_sec
                .saturating_add(span.tv_sec)
                .saturating_add(nanos / SECOND),
            tv_nsec: nanos % SECOND,
        })
    }

    /// # Safety
    ///
    /// A pointer to a span, or null.
    unsafe fn span(at: *const timespec) -> Self {
        // SAFETY: by the caller.
        match unsafe { at.as_ref() } {
            Some(&span) => Time::after(span),
            None => Time::Endless,
        }
    }

    /// What is left; none without an end.
    fn left(&self) -> Option<timespec> {
        let Time::Until(end) = self else { return None };
        let now = sys::clock(libc::CLOCK_MONOTONIC);
        let mut seconds = end.tv_sec.saturating_sub(now.tv_sec);
        let mut nanos = end.tv_nsec - now.tv_nsec;
        if nanos < 0 {
            nanos += SECOND;
            seconds -= 1;
        }
        if seconds < 0 {
            (seconds, nanos) = (0, 0);
        }
        Some(timespec {
            tv_sec: seconds,
            tv_nsec: nanos,
        })
    }

    fn left_milliseconds(&self) -> c_int {
        self.left().map_or(-1, |t| {
            let all = t.tv_sec.saturating_mul(1000) + (t.tv_nsec + 999_999) / 1_000_000;
            all.min(i32::MAX.into()) as c_int
        })
    }
}

/// How long to wait before something has to be looked after: all the time, or less.
#[derive(Clone, Copy)]
struct Turn {
    time: Time,
    /// The call is not over when this time is.
    early: bool,
}

impl Turn {
    /// The next one of a call that has so much time.
    fn next(time: Time) -> Self {
        let next = table::any_under_way()
            .then(replace::give_up_overdue)
            .flatten();
        let whole = Turn { time, early: false };
        let Some(next) = next else { return whole };
        let span = next.saturating_sub(sys::now());
        let early = timespec {
            tv_sec: (span / 1000) as i64,
            tv_nsec: (span % 1000) as i64 * 1_000_000,
        };
        match time.left() {
            Some(left) if (left.tv_sec, left.tv_nsec) <= (early.tv_sec, early.tv_nsec) => whole,
            _ => Turn {
                time: Time::after(early),
                early: true,
            },
        }
    }
}

/// Whether what was seen of a descriptor is for the program.
fn is_true(fd: c_int) -> bool {
    if !matches!(table::kind(fd), Kind::Connecting | Kind::Following) {
        return true;
    }
    match table::lock() {
        Some(mut table) => replace::settle(&mut table, fd) == Settled::Yes,
        None => true,
    }
}

/// poll(2) and ppoll(2), by `wait`, which does it once, for that time.
///
/// # Safety
///
/// `fds` has `count` entries.
unsafe fn poll_with(
    fds: *mut pollfd,
    count: nfds_t,
    time: Time,
    wait: impl Fn(*mut pollfd, nfds_t, Time) -> c_int,
) -> c_int {
    /// So many entries are copied on the stack.
    const FEW: usize = 128;
    let length = count as usize;
    let mut few = [const { mem::MaybeUninit::<pollfd>::uninit() }; FEW];
    let mut mapped = None;
    let mut used = fds;
    if table::any_listening() && !fds.is_null() {
        // SAFETY: by the caller.
        let asked = unsafe { slice::from_raw_parts(fds, length) };
        if asked.iter().any(|f| table::kind(f.fd) == Kind::Listening) {
            used = few.as_mut_ptr().cast();
            if length > FEW {
                // A thread that is cancelled in this call leaves it behind.
                let at = arena::map(length * mem::size_of::<pollfd>()).cast::<pollfd>();
                if at.is_null() {
                    sys::set_errno(libc::ENOMEM);
                    return -1;
                }
                mapped = Some(at);
                used = at;
            }
            for (index, f) in asked.iter().enumerate() {
                let stands = pollfd {
                    fd: joint_of(f.fd),
                    ..*f
                };
                // SAFETY: there is room for as many as were asked for.
                unsafe { used.add(index).write(stands) };
            }
        }
    }
    let result = loop {
        let turn = Turn::next(time);
        let ready = wait(used, count, turn.time);
        if ready == 0 && turn.early {
            continue;
        }
        if ready <= 0 {
            break ready;
        }
        if !table::any_under_way() {
            break ready;
        }
        // SAFETY: `count` entries, the caller's or the copies.
        let seen = unsafe { slice::from_raw_parts_mut(used, length) };
        let mut left = ready;
        for f in seen.iter_mut().filter(|f| f.revents != 0) {
            if !is_true(f.fd) {
                f.revents = 0;
                left -= 1;
            }
        }
        if left > 0 {
            break left;
        }
    };
    if used != fds && result >= 0 {
        for index in 0..length {
            // SAFETY: both have as many entries.
            unsafe { (*fds.add(index)).revents = (*used.add(index)).revents };
        }
    }
    if let Some(at) = mapped {
        let errno = sys::errno();
        // SAFETY: mapped above, with this length.
        unsafe { libc::munmap(at.cast(), length * mem::size_of::<pollfd>()) };
        sys::set_errno(errno);
    }
    result
}

/// What stands for a descriptor in poll(2).
fn joint_of(fd: c_int) -> c_int {
    if table::kind(fd) != Kind::Listening {
        return fd;
    }
    let Some(table) = table::lock() else {
        return fd;
    };
    table.get(fd).1.joint.unwrap_or(fd)
}

/// poll(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let time = Time::milliseconds(timeout);
    // SAFETY: the caller's arguments.
    unsafe {
        poll_with(fds, count, time, |f, n, time| {
            real::poll(f, n, time.left_milliseconds())
        })
    }
}

/// ppoll(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let time = Time::span(timeout);
        poll_with(fds, count, time, |f, n, time| {
            let left = time.left();
            real::ppoll(f, n, left.as_ref().map_or(ptr::null(), |t| t), mask)
        })
    }
}

/// poll(2) of programs that are built to check their buffers.
///
/// # Safety
///
/// As [`poll`].
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: libc::size_t,
) -> c_int {
    if room / mem::size_of::<pollfd>() < count as usize {
        std::process::abort();
    }
    // SAFETY: the caller's arguments.
    unsafe { poll(fds, count, timeout) }
}

/// ppoll(2) of such programs.
///
/// # Safety
///
/// As [`ppoll`].
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: libc::size_t,
) -> c_int {
    if room / mem::size_of::<pollfd>() < count as usize {
        std::process::abort();
    }
    // SAFETY: the caller's arguments.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// The three sets of select(2), any of which may be null.
#[derive(Clone, Copy)]
struct Sets([*mut fd_set; 3]);

/// Which events of poll(2) each set asks for, and which it tells.
const EVENTS: [(i16, i16); 3] = [
    (
        libc::POLLIN,
        libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR,
    ),
    (
        libc::POLLOUT,
        libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR,
    ),
    (libc::POLLPRI, libc::POLLPRI),
];

impl Sets {
    fn has(&self, which: usize, fd: c_int) -> bool {
        let set = self.0[which];
        // SAFETY: a set of the caller's, and a number below his count and FD_SETSIZE.
        !set.is_null() && unsafe { libc::FD_ISSET(fd, set) }
    }

    /// Whether any of the descriptors would be looked at here.
    fn concern(&self, count: c_int) -> bool {
        (0..count).any(|fd| {
            matches!(
                table::kind(fd),
                Kind::Listening | Kind::Connecting | Kind::Following
            ) && (0..3).any(|which| self.has(which, fd))
        })
    }
}

/// select(2) by poll(2); none if the kernel's select will do. The time that is left comes back, too.
///
/// # Safety
///
/// As of select(2).
unsafe fn select_with(
    count: c_int,
    sets: Sets,
    time: Time,
    mask: *const sigset_t,
) -> Option<c_int> {
    const MOST: usize = libc::FD_SETSIZE;
    if (!table::any_listening() && !table::any_under_way())
        || !(0..=MOST as c_int).contains(&count)
        || !sets.concern(count)
    {
        return None;
    }
    let mut asked = [const { mem::MaybeUninit::<pollfd>::uninit() }; MOST];
    let mut length = 0;
    for fd in 0..count {
        let mut events = 0;
        for (which, (wanted, _)) in EVENTS.iter().enumerate() {
            if sets.has(which, fd) {
                events |= wanted;
            }
        }
        if events != 0 {
            asked[length].write(pollfd {
                fd,
                events,
                revents: 0,
            });
            length += 1;
        }
    }
    let first: *mut pollfd = asked.as_mut_ptr().cast();
    // SAFETY: so many have been written.
    let r = unsafe {
        poll_with(first, length as nfds_t, time, |f, n, time| {
            let left = time.left();
            real::ppoll(f, n, left.as_ref().map_or(ptr::null(), |t| t), mask)
        })
    };
    if r < 0 {
        return Some(r);
    }
    // SAFETY: as above.
    let seen = unsafe { slice::from_raw_parts(first, length) };
    if seen.iter().any(|f| f.revents & libc::POLLNVAL != 0) {
        return Some(sys::c_result(Err(libc::EBADF)));
    }
    let mut bits = 0;
    for f in seen {
        for (which, (wanted, tells)) in EVENTS.iter().enumerate() {
            if f.events & wanted == 0 {
                continue;
            }
            if f.revents & tells != 0 {
                bits += 1;
            } else {
                // SAFETY: the set is the caller's and has this descriptor.
                unsafe { libc::FD_CLR(f.fd, sets.0[which]) };
            }
        }
    }
    Some(bits)
}

/// select(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's arguments, here and below.
    let time = match unsafe { timeout.as_ref() } {
        Some(t) if t.tv_sec < 0 || t.tv_usec < 0 => return sys::c_result(Err(libc::EINVAL)),
        Some(t) => Time::after(timespec {
            tv_sec: t.tv_sec.saturating_add(t.tv_usec / 1_000_000),
            tv_nsec: t.tv_usec % 1_000_000 * 1000,
        }),
        None => Time::Endless,
    };
    let sets = Sets([read, write, except]);
    let Some(r) = (unsafe { select_with(count, sets, time, ptr::null()) }) else {
        return unsafe { real::select(count, read, write, except, timeout) };
    };
    // As the kernel's does.
    if let (Some(left), false) = (time.left(), timeout.is_null()) {
        unsafe {
            (*timeout).tv_sec = left.tv_sec;
            (*timeout).tv_usec = left.tv_nsec / 1000;
        }
    }
    r
}

/// pselect(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments, here and below.
    let sets = Sets([read, write, except]);
    match unsafe { select_with(count, sets, Time::span(timeout), mask) } {
        Some(r) => r,
        None => unsafe { real::pselect(count, read, write, except, timeout, mask) },
    }
}

/// epoll_ctl(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's arguments, here and below.
    let pass = || unsafe { real::epoll_ctl(epoll, operation, fd, event) };
    let Some(mut table) = table::knows(fd).then(table::lock).flatten() else {
        return pass();
    };
    let r = pass();
    if r != 0 || (event.is_null() && operation != libc::EPOLL_CTL_DEL) {
        return r;
    }
    let (events, data) = match operation {
        libc::EPOLL_CTL_DEL => (0, 0),
        _ => unsafe { ((*event).events, (*event).u64) },
    };
    let interest = Interest {
        epoll,
        events,
        data,
    };
    table.note_interest(fd, operation, interest);
    if table::kind(fd) == Kind::Listening {
        if let Some(sdp) = table.get(fd).1.shadow {
            let _ = sys::epoll_ctl(epoll, operation, sdp, events, data);
        }
    }
    r
}

/// Leaves out what is not for the program of `count` events; how many are left.
///
/// # Safety
///
/// `events` has `count` events.
unsafe fn keep_true(epoll: c_int, events: *mut epoll_event, count: c_int) -> c_int {
    // SAFETY: by the caller.
    let seen = unsafe { slice::from_raw_parts_mut(events, count as usize) };
    let mut kept = 0;
    for index in 0..seen.len() {
        let event = seen[index];
        if is_event_true(epoll, event.u64) {
            seen[kept] = event;
            kept += 1;
        }
    }
    kept as c_int
}

/// Whether an event is for the program. An epoll descriptor does not say whose event it is, only
/// what the program wants to be told with it.
fn is_event_true(epoll: c_int, data: u64) -> bool {
    let Some(mut table) = table::lock() else {
        return true;
    };
    for fd in table::known() {
        if !matches!(table::kind(fd), Kind::Connecting | Kind::Following) {
            continue;
        }
        let (_, entry) = table.get(fd);
        let told = |i: &&Interest| i.epoll == epoll && i.data == data;
        let Some(interest) = entry.interests.iter().flatten().find(told).copied() else {
            continue;
        };
        let before = table::kind(fd);
        if replace::settle(&mut table, fd) == Settled::NotYet {
            if before == Kind::Following && interest.events & libc::EPOLLONESHOT as u32 != 0 {
                // The event that was not for the program has used up its only one.
                let _ = sys::epoll_ctl(
                    epoll,
                    libc::EPOLL_CTL_MOD,
                    fd,
                    interest.events,
                    interest.data,
                );
            }
            return false;
        }
        return true;
    }
    true
}

/// epoll_wait(2) and its kin, by `wait`, which does it once, for that time.
///
/// # Safety
///
/// As of epoll_wait(2).
unsafe fn epoll_with(
    epoll: c_int,
    events: *mut epoll_event,
    time: Time,
    wait: impl Fn(Time) -> c_int,
) -> c_int {
    loop {
        let turn = Turn::next(time);
        let ready = wait(turn.time);
        if ready == 0 && turn.early {
            continue;
        }
        if ready <= 0 || !table::any_under_way() {
            return ready;
        }
        // SAFETY: the kernel has written so many.
        let left = unsafe { keep_true(epoll, events, ready) };
        if left > 0 {
            return left;
        }
    }
}

/// epoll_wait(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let time = Time::milliseconds(timeout);
    // SAFETY: the caller's arguments.
    unsafe {
        epoll_with(epoll, events, time, |time| {
            real::epoll_wait(epoll, events, most, time.left_milliseconds())
        })
    }
}

/// epoll_pwait(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let time = Time::milliseconds(timeout);
    // SAFETY: the caller's arguments.
    unsafe {
        epoll_with(epoll, events, time, |time| {
            real::epoll_pwait(epoll, events, most, time.left_milliseconds(), mask)
        })
    }
}

/// epoll_pwait2(2).
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let time = Time::span(timeout);
        epoll_with(epoll, events, time, |time| {
            let left = time.left();
            let left = left.as_ref().map_or(ptr::null(), |t| t);
            real::epoll_pwait2(epoll, events, most, left, mask)
        })
    }
}
