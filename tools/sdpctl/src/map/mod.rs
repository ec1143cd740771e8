// SPDX-License-Identifier: GPL-2.0-only

//! `sdpctl map`: TCP sockets of chosen programs become sockets of the protocol IPPROTO_SDP, which
//! use SDP if the peer supports SDP, and TCP otherwise.
//!
//! A mapping consists of a BPF program in socket(2) and four other BPF programs. The other four
//! keep sockets TCP while the kernel has no IPPROTO_SDP. The programs stay attached as long as
//! their links are held: by the descriptors of the `sdpctl` that created them, or by pins below
//! `/sys/fs/bpf`. The programs are in bpf/map.bpf.c.

mod links;
mod pinned;
mod program;
mod selector;
mod shared;

use crate::options::{MapAdd, MapCommand, MapRemove};
use crate::Error;
use links::Mapping;
use pinned::Pinned;
use selector::Selector;
use serde_json::Value;
use shared::Shared;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

const MODULE: &str = "/sys/module/ib_sdp";
/// Kernel function whose result becomes a socket's protocol.
const FUNCTION: &str = "update_socket_protocol";
const AF_INET_SDP: i32 = 27;

pub fn run(command: &MapCommand, out: &mut impl Write) -> Result<(), Error> {
    program::keep_log();
    match command {
        MapCommand::Add(o) => add(o),
        MapCommand::List(o) => list(o.json, out),
        MapCommand::Remove(o) => remove(o),
    }
}

/// Returns the errno of an error. libbpf-rs returns only its text, in the words of the standard
/// library.
fn errno(e: &libbpf_rs::Error) -> io::Error {
    let words = format!("{e:#}");
    let number = words.rsplit_once("(os error ").map(|(_, end)| end);
    match number.and_then(|end| end.strip_suffix(')')?.parse().ok()) {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::other(words),
    }
}

/// Explains why the kernel refused something.
fn refused(what: &str, e: io::Error) -> String {
    /// libc lacks ENOTSUPP, because system calls should not return it; bpf(2) does.
    const ENOTSUPP: i32 = 524;
    let why = match e.raw_os_error() {
        Some(libc::EPERM) => {
            "not permitted: it takes root, with CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN, and a kernel \
             that is not locked down for confidentiality"
        }
        Some(libc::ENOSYS) => "this kernel has no bpf(2)",
        Some(libc::E2BIG) => "too many programs are attached there",
        Some(ENOTSUPP) => {
            "this kernel attaches no programs to functions \
             (CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS and CONFIG_BPF_JIT are needed)"
        }
        _ => return format!("{what}: {e}"),
    };
    format!("{what}: {why}")
}

fn socket(family: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: passes three numbers only.
    let fd = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, protocol) };
    match fd {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the descriptor is new, and has no other owner.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// Returns the number of IPPROTO_SDP.
fn protocol() -> Result<u16, String> {
    if !Path::new(MODULE).exists() {
        // creating a socket of the family loads the module, where it is installed
        let _ = socket(AF_INET_SDP, 0);
    }
    if !Path::new(MODULE).exists() {
        return Err("the module ib_sdp is not loaded (modprobe ib_sdp)".into());
    }
    let path = format!("{MODULE}/parameters/ipproto");
    let text = fs::read_to_string(&path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => "the module ib_sdp that is loaded has no IPPROTO_SDP".into(),
        _ => format!("{path}: {e}"),
    })?;
    match text.trim().parse() {
        Ok(0) => Err("IPPROTO_SDP is switched off (the module's parameter ipproto is 0)".into()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("{path}: {:?} is no number", text.trim())),
    }
}

fn add(o: &MapAdd) -> Result<(), Error> {
    let selector = Selector::new(o)?;
    let pins = o.pin.as_deref().map(Pinned::new).transpose()?;
    // Signals stay blocked until the end of an unpinned mapping; a pinned mapping appears as a
    // whole.
    let signals = Signals::block();
    let protocol = protocol()?;
    let mut shared = Shared::new(protocol, selector.to_string());
    if !shared.fits() {
        return Err(Error::from("that is too much for one mapping".to_string()));
    }
    let (map, mut links) = program::attach(&shared, &selector)?;
    // While the two sockets exist the protocol cannot be unregistered, so the recorded state is
    // right. The BPF programs record a later removal of the protocol.
    let there = [libc::AF_INET, libc::AF_INET6].map(|f| socket(f, protocol.into()));
    if let [Err(e), Err(_)] = &there {
        return Err(Error::from(format!(
            "protocol {protocol} (IPPROTO_SDP) makes no sockets: {e}"
        )));
    }
    for (known, socket) in shared.there.iter_mut().zip(&there) {
        *known = socket.is_ok().into();
    }
    shared
        .write(&map)
        .map_err(|e| refused("starting the mapping", errno(&e)))?;
    drop(there);
    if let Some(pins) = pins {
        pins.pin(&mut links)?;
        return Ok(());
    }
    let mut out = io::stdout();
    writeln!(out, "{selector}: TCP sockets become SDP's until this ends")?;
    out.flush()?;
    signals.wait();
    Ok(())
}

/// Blocked signals that end a program, received by sigwait. An ignored signal, as under nohup(1),
/// stays ignored: sigwait would return it if it were blocked.
struct Signals(libc::sigset_t);

impl Signals {
    fn block() -> Self {
        // SAFETY: a set is plain numbers, and is made empty before it is used.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                let mut now: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut now);
                if now.sa_sigaction != libc::SIG_IGN {
                    libc::sigaddset(&mut set, signal);
                }
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Signals(set)
        }
    }

    fn wait(&self) {
        let mut signal = 0;
        // SAFETY: both pointers are to local variables.
        while unsafe { libc::sigwait(&self.0, &mut signal) } != 0 {}
    }
}

fn list(json: bool, out: &mut impl Write) -> Result<(), Error> {
    let all = links::find().map_err(|e| refused("looking for mappings", e))?;
    if json {
        writeln!(
            out,
            "{}",
            all.iter().map(Mapping::to_json).collect::<Value>()
        )?;
        return Ok(());
    }
    let rows: Vec<[String; 4]> = all
        .iter()
        .map(|m| {
            let none = match m.shared.there {
                [0, 0] => format!(" (there is no protocol {} now: TCP)", m.shared.protocol),
                [1, 0] => " (IPv4 only)".into(),
                [0, 1] => " (IPv6 only)".into(),
                _ => String::new(),
            };
            [
                m.id.to_string(),
                m.kept_by(),
                m.shared.mapped.to_string(),
                m.shared.selector.clone() + &none,
            ]
        })
        .collect();
    write_table(&rows, out)?;
    Ok(())
}

fn write_table(rows: &[[String; 4]], out: &mut impl Write) -> io::Result<()> {
    let heading = ["Number", "Kept by", "Sockets", "Whose"].map(String::from);
    let all = || std::iter::once(&heading).chain(rows);
    let width = |n: usize| all().map(|row| row[n].chars().count()).max().unwrap_or(0);
    let (number, kept, sockets) = (width(0), width(1), width(2));
    for [a, b, c, d] in all() {
        writeln!(out, "{a:>number$}  {b:<kept$}  {c:>sockets$}  {d}")?;
    }
    Ok(())
}

/// Returns the names of all pins.
pub fn pins() -> Vec<String> {
    Pinned::all().iter().map(Pinned::name).collect()
}

/// Ends the mappings with these pins.
pub fn remove_pinned(mapping: Vec<String>) -> Result<(), Error> {
    program::keep_log();
    match mapping.is_empty() {
        true => Ok(()),
        false => remove(&MapRemove {
            mapping,
            all: false,
        }),
    }
}

fn remove(o: &MapRemove) -> Result<(), Error> {
    let mut all = links::find().map_err(|e| refused("looking for mappings", e))?;
    let mut wrong = vec![];
    let chosen: Vec<Mapping> = if o.all {
        all
    } else {
        let names = o.mapping.iter();
        let found = names.filter_map(|name| {
            let found = all.iter().position(|m| m.is_called(name));
            if found.is_none() {
                wrong.push(format!("there is no mapping {name} (sdpctl map list)"));
            }
            found.map(|n| all.swap_remove(n))
        });
        found.collect()
    };
    if wrong.is_empty() {
        wrong.extend(chosen.into_iter().filter_map(|m| m.end().err()));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Error::Told(wrong)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        let row = |words: [&str; 4]| words.map(String::from);
        let rows = [
            row(["12", "pin redis", "14", "program redis-*"]),
            row(["1015", "process 4711", "0", "every program"]),
        ];
        let mut text = Vec::new();
        write_table(&rows, &mut text).unwrap();
        let wanted = "\
Number  Kept by       Sockets  Whose
    12  pin redis          14  program redis-*
  1015  process 4711        0  every program
";
        assert_eq!(String::from_utf8(text).unwrap(), wanted);
    }

    #[test]
    fn refusals_in_words() {
        let told = |code| refused("x", io::Error::from_raw_os_error(code));
        assert!(told(libc::EPERM).starts_with("x: not permitted: it takes root"));
        assert!(told(524).contains("DIRECT_CALLS"));
        assert!(told(libc::ENOMEM).starts_with("x: Cannot allocate memory"));
    }

    #[test]
    fn what_libbpf_rs_answers() {
        use libbpf_rs::{Error, ErrorExt};
        let e = Error::from_raw_os_error(524);
        assert_eq!(errno(&e).raw_os_error(), Some(524));
        assert_eq!(errno(&e.context("attaching")).raw_os_error(), Some(524));
        let other = libbpf_rs::Link::open("a\0b").unwrap_err();
        assert_eq!(errno(&other).raw_os_error(), None);
    }
}
