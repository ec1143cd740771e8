// SPDX-License-Identifier: GPL-2.0-only

//! Putting one socket in the place of another.

use crate::log::{self, Level};
use crate::options;
use crate::real;
use crate::settings;
use crate::sys;
use crate::table::{self, Entry, Interest, Kind, Table};
use libc::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// The families of `include/uapi/sdp.h`.
pub const AF_INET_SDP: c_int = 27;
pub const AF_INET6_SDP: c_int = 28;

/// After the kernel had no SDP, it is not asked again for so many milliseconds: each time it would
/// look for the module.
const ABSENT_TIME: u64 = 30_000;
/// Until when SDP counts as absent.
static ABSENT_UNTIL: AtomicU64 = AtomicU64::new(0);
/// That it is absent has been said.
static ABSENCE_TOLD: AtomicBool = AtomicBool::new(false);

/// Why there is no SDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The kernel has none.
    Absent,
    /// The program has set an option that SDP does not have.
    Option(c_int, c_int),
}

/// A new socket of SDP's family.
fn new_socket(six: bool) -> sys::Result {
    #[cfg(debug_assertions)]
    if let Some(result) = stand_in::socket(six) {
        return result;
    }
    let family = if six { AF_INET6_SDP } else { AF_INET_SDP };
    sys::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)
}

/// An SDP socket that is like a descriptor's TCP socket: options, flags.
pub fn sdp_like(fd: c_int, entry: &Entry) -> Result<c_int, Why> {
    if let Some((level, name)) = entry.foreign {
        return Err(Why::Option(level, name));
    }
    if ABSENT_UNTIL.load(Relaxed) > sys::now() {
        return Err(Why::Absent);
    }
    let new = match new_socket(entry.six) {
        Ok(new) => new,
        Err(e @ (libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)) => {
            log::write(Level::Warning, format_args!("no SDP socket: {}", Errno(e)));
            return Err(Why::Absent);
        }
        Err(e) => {
            ABSENT_UNTIL.store(sys::now() + ABSENT_TIME, Relaxed);
            if !ABSENCE_TOLD.swap(true, Relaxed) {
                log::write(
                    Level::Error,
                    format_args!(
                        "the kernel has no SDP ({}): is the module ib_sdp there? Using TCP",
                        Errno(e)
                    ),
                );
            }
            return Err(Why::Absent);
        }
    };
    if let Err((level, name)) = options::carry(entry.options, fd, new) {
        sys::close(new);
        return Err(Why::Option(level, name));
    }
    options::carry_flags(fd, new);
    Ok(new)
}

/// Puts socket `new` under the number of `fd`, and under those of its duplicates. `new` is closed.
/// What epoll descriptors wanted of the old socket they want of the new one.
///
/// # Errors
///
/// That of dup3(2); nothing has changed then.
pub fn install(table: &mut Table, fd: c_int, new: c_int) -> sys::Result<()> {
    put(table, fd, new)?;
    for &other in table.duplicates(fd).iter() {
        let _ = put(table, other, new);
    }
    sys::close(new);
    Ok(())
}

fn put(table: &mut Table, fd: c_int, new: c_int) -> sys::Result<()> {
    let flags = sys::fcntl(fd, libc::F_GETFD, 0)?;
    let on_exec = if flags & libc::FD_CLOEXEC != 0 {
        libc::O_CLOEXEC
    } else {
        0
    };
    let (_, entry) = table.get(fd);
    // An epoll descriptor that has been closed, or given up the socket, since, says so.
    let held = entry
        .interests
        .map(|i| i.filter(|i| sys::epoll_ctl(i.epoll, libc::EPOLL_CTL_DEL, fd, 0, 0).is_ok()));
    let done = sys::dup3(new, fd, on_exec);
    for Interest {
        epoll,
        events,
        data,
    } in held.into_iter().flatten()
    {
        if let Err(e) = sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, events, data) {
            log::write(
                Level::Warning,
                format_args!("epoll {epoll} has lost descriptor {fd}: {}", Errno(e)),
            );
        }
    }
    table.update(fd, |e| e.interests = held);
    log::write(
        Level::All,
        format_args!("descriptor {fd} stands for another socket"),
    );
    done.map(drop)
}

/// What a look at a socket under way has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is what it seems: events and errors are the program's.
    Yes,
    /// It goes on, by SDP or by TCP; what was seen is not for the program.
    NotYet,
}

/// Looks at a socket that is [`Kind::Connecting`] or [`Kind::Following`], and goes on by TCP if
/// SDP has failed.
pub fn settle(table: &mut Table, fd: c_int) -> Settled {
    if !table.verify(fd) {
        return Settled::Yes;
    }
    let (kind, entry) = table.get(fd);
    let seen = sys::look(fd);
    match kind {
        Kind::Following if seen == 0 => return Settled::NotYet,
        Kind::Connecting if seen == 0 && !is_overdue(&entry) => return Settled::NotYet,
        Kind::Following => {
            forget_all(table, fd);
            return Settled::Yes;
        }
        Kind::Connecting => {}
        _ => return Settled::Yes,
    }
    let error = if seen == 0 {
        libc::ETIMEDOUT
    } else if seen & (libc::POLLERR | libc::POLLHUP) != 0 {
        sys::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR).unwrap_or(0)
    } else {
        0
    };
    match error {
        0 => {
            log::write(Level::Summary, format_args!("connect {}: SDP", entry.to));
            remember_answer(&entry.to);
            forget_all(table, fd);
            return Settled::Yes;
        }
        // It was connected, and has been reset since.
        libc::ECONNRESET | libc::EPIPE => {
            log::write(Level::Summary, format_args!("connect {}: SDP", entry.to));
            fail(table, fd, error);
            return Settled::Yes;
        }
        _ => {}
    }
    remember_timeout(&entry.to, error);
    let Some(tcp) = entry.shadow else {
        fail(table, fd, error);
        return Settled::Yes;
    };
    match sys::connect(tcp, &entry.to) {
        Ok(_) | Err(libc::EINPROGRESS | libc::EALREADY | libc::EISCONN) => {}
        Err(e) => {
            log::write(
                Level::Summary,
                format_args!(
                    "connect {}: neither SDP ({}) nor TCP ({})",
                    entry.to,
                    Errno(error),
                    Errno(e)
                ),
            );
            fail(table, fd, e);
            return Settled::Yes;
        }
    }
    options::carry_flags(fd, tcp);
    let copy = match sys::dup(tcp) {
        Ok(copy) => copy,
        Err(_) => {
            fail(table, fd, error);
            return Settled::Yes;
        }
    };
    if install(table, fd, copy).is_err() {
        sys::close(copy);
        fail(table, fd, error);
        return Settled::Yes;
    }
    log::write(
        Level::Summary,
        format_args!("connect {}: TCP (SDP: {})", entry.to, Errno(error)),
    );
    for_all(table, fd, |table, fd| {
        let (_, mut entry) = table.get(fd);
        if let Some(hidden) = entry.shadow.take() {
            table.drop_hidden(hidden, fd);
        }
        entry.inode = sys::inode(fd).unwrap_or(0);
        table.set(fd, Kind::Following, entry);
    });
    Settled::NotYet
}

/// The same for a descriptor and its duplicates.
fn for_all(table: &mut Table, fd: c_int, mut f: impl FnMut(&mut Table, c_int)) {
    for &other in table.duplicates(fd).iter() {
        f(table, other);
    }
    f(table, fd);
}

/// A settled socket is of no concern any more, under any number.
pub fn forget_all(table: &mut Table, fd: c_int) {
    for_all(table, fd, Table::forget);
}

/// A failure that SO_ERROR will tell, since looking at it has taken it from the socket.
fn fail(table: &mut Table, fd: c_int, error: c_int) {
    // Whoever waits for a socket that says nothing is to wake up.
    if sys::look(fd) == 0 {
        // SAFETY: no memory is involved.
        unsafe { real::shutdown(fd, libc::SHUT_RDWR) };
    }
    for_all(table, fd, |table, fd| {
        let (_, mut entry) = table.get(fd);
        if let Some(hidden) = entry.shadow.take() {
            table.drop_hidden(hidden, fd);
        }
        entry.error = error;
        table.set(fd, Kind::Failed, entry);
    });
}

/// Whether SDP has had its time, and TCP is there to go on.
fn is_overdue(entry: &Entry) -> bool {
    entry.until <= sys::now() && entry.shadow.is_some()
}

/// How long SDP has to answer, in milliseconds; none for one that has answered lately, which has
/// all the time that SDP takes to repeat a request.
pub fn patience(to: &sys::Address) -> Option<u64> {
    (!ANSWERING.knows(to)).then(|| settings::known().map_or(settings::WAIT, |s| s.wait))
}

/// Goes on by TCP wherever SDP has had its time; when the next one has, by [`sys::now`].
pub fn give_up_overdue() -> Option<u64> {
    let mut table = table::lock()?;
    let mut next = None;
    for fd in table::known() {
        let (kind, entry) = table.get(fd);
        if kind != Kind::Connecting {
            continue;
        }
        if is_overdue(&entry) {
            settle(&mut table, fd);
        } else if entry.until != u64::MAX && entry.shadow.is_some() {
            next = Some(next.map_or(entry.until, |n: u64| n.min(entry.until)));
        }
    }
    next
}

/// Before the program closes a descriptor: SDP of the destination is silent if the program has
/// waited for it, and its next try is by TCP at once.
pub fn closes(table: &mut Table, fd: c_int) {
    let (kind, entry) = table.get(fd);
    if kind != Kind::Connecting || entry.shared || !table.verify(fd) {
        return;
    }
    let waited = sys::now().saturating_sub(entry.asked);
    if waited >= NOTABLE && sys::look(fd) == 0 {
        remember_timeout(&entry.to, libc::ETIMEDOUT);
    }
}

/// Who has waited for so many milliseconds has not just changed its mind.
pub const NOTABLE: u64 = 100;

/// Destinations whose SDP has not answered, for which the next connections do not wait.
static SILENT: Hosts = Hosts::new();
/// Those whose SDP has.
static ANSWERING: Hosts = Hosts::new();
/// What is known of a destination holds for so many milliseconds.
const KNOWN_TIME: u64 = 60_000;

/// Some destinations, without their ports. Changed under the table's lock or without, and read
/// without: a torn reading costs one wait, or spares it.
struct Hosts([Host; 16]);

struct Host {
    address: [AtomicU64; 2],
    until: AtomicU64,
}

impl Host {
    const fn new() -> Self {
        Host {
            address: [const { AtomicU64::new(0) }; 2],
            until: AtomicU64::new(0),
        }
    }

    fn is(&self, own: [u64; 2]) -> bool {
        [self.address[0].load(Relaxed), self.address[1].load(Relaxed)] == own
    }
}

impl Hosts {
    const fn new() -> Self {
        Hosts([const { Host::new() }; 16])
    }

    fn knows(&self, to: &sys::Address) -> bool {
        let (own, now) = (halves(to), sys::now());
        self.0
            .iter()
            .any(|h| h.until.load(Relaxed) > now && h.is(own))
    }

    /// Until then; a time that is over forgets it.
    fn note(&self, to: &sys::Address, until: u64) {
        let own = halves(to);
        let known = self.0.iter().find(|h| h.is(own));
        let oldest = || self.0.iter().min_by_key(|h| h.until.load(Relaxed));
        if let Some(h) = known.or_else(oldest) {
            h.address[0].store(own[0], Relaxed);
            h.address[1].store(own[1], Relaxed);
            h.until.store(until, Relaxed);
        }
    }
}

fn halves(to: &sys::Address) -> [u64; 2] {
    let bits = match to.ip() {
        std::net::IpAddr::V4(a) => a.to_ipv6_mapped().to_bits(),
        std::net::IpAddr::V6(a) => a.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

/// Whether a destination's SDP did not answer lately.
pub fn is_silent(to: &sys::Address) -> bool {
    SILENT.knows(to)
}

/// Notes a destination that took all the time it was given.
pub fn remember_timeout(to: &sys::Address, error: c_int) {
    if matches!(error, libc::ETIMEDOUT | libc::EHOSTUNREACH) {
        SILENT.note(to, sys::now() + KNOWN_TIME);
        if ANSWERING.knows(to) {
            ANSWERING.note(to, 0);
        }
    }
}

/// Notes a destination to which there is a connection by SDP.
pub fn remember_answer(to: &sys::Address) {
    ANSWERING.note(to, sys::now() + KNOWN_TIME);
}

/// An errno by its text.
pub struct Errno(pub c_int);

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // strerror(3) may need memory; these are what connect(2) and bind(2) say.
        f.write_str(match self.0 {
            libc::ECONNREFUSED => "connection refused",
            libc::ENETUNREACH => "network unreachable",
            libc::EHOSTUNREACH => "no route to host",
            libc::ETIMEDOUT => "timed out",
            libc::EADDRNOTAVAIL => "address not available",
            libc::EADDRINUSE => "address in use",
            libc::ECONNRESET => "connection reset",
            libc::EAFNOSUPPORT => "address family not supported",
            libc::EACCES | libc::EPERM => "not permitted",
            libc::EMFILE | libc::ENFILE => "too many open files",
            libc::ENOBUFS | libc::ENOMEM => "out of memory",
            libc::EINTR => "interrupted",
            e => return write!(f, "errno {e}"),
        })
    }
}

/// For tests of the library where there is no SDP: TCP sockets of another network namespace, which
/// has ports of its own, stand in for SDP's. In builds for debugging only.
#[cfg(debug_assertions)]
mod stand_in {
    use crate::sys;
    use libc::c_int;
    use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

    /// A descriptor of the namespace, 0 before it was looked for, -1 if there is none.
    static NAMESPACE: AtomicI32 = AtomicI32::new(0);

    fn namespace() -> c_int {
        let known = NAMESPACE.load(Relaxed);
        if known != 0 {
            return known;
        }
        let found = std::env::var("SDP_STAND_IN").ok().and_then(|path| {
            let path = [path.as_bytes(), b"\0"].concat();
            sys::open(libc::AT_FDCWD, &path, libc::O_RDONLY, 0)
                .and_then(|fd| {
                    let hidden = sys::hide(fd, 900, true);
                    sys::close(fd);
                    hidden
                })
                .ok()
        });
        NAMESPACE.store(found.unwrap_or(-1), Relaxed);
        found.unwrap_or(-1)
    }

    pub fn socket(six: bool) -> Option<sys::Result> {
        let there = namespace();
        if there < 0 {
            return None;
        }
        let here = match sys::open(libc::AT_FDCWD, b"/proc/thread-self/ns/net\0", 0, 0) {
            Ok(here) => here,
            Err(e) => return Some(Err(e)),
        };
        let enter = |fd| {
            // SAFETY: numbers only.
            match unsafe { libc::setns(fd, libc::CLONE_NEWNET) } {
                0 => Ok(()),
                _ => Err(sys::errno()),
            }
        };
        let family = if six { libc::AF_INET6 } else { libc::AF_INET };
        let made = enter(there).and_then(|()| {
            let made = sys::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            enter(here).and(made)
        });
        sys::close(here);
        Some(made)
    }
}
