// SPDX-License-Identifier: GPL-2.0-only

//! Lists the existing mappings, whatever created them, and the holder of each.

use super::errno;
use super::pinned::Pinned;
use super::program::NAME;
use super::shared::Shared;
use libbpf_rs::query::{
    LinkInfo, LinkTypeInfo, ProgInfoIter, ProgInfoQueryOptions, TracingLinkInfo,
};
use libbpf_rs::{MapHandle, ProgramAttachType};
use serde_json::{json, Value};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// A process that holds a mapping's link.
struct Process {
    id: i32,
    name: String,
}

pub struct Mapping {
    /// ID of the link in socket(2).
    pub id: u32,
    pub shared: Shared,
    map: MapHandle,
    pins: Vec<Pinned>,
    processes: Vec<Process>,
}

/// Returns all mappings, the oldest first.
pub fn find() -> io::Result<Vec<Mapping>> {
    let mut all = Vec::new();
    let mut id = 0;
    while let Some(next) = next_link(id)? {
        id = next;
        match mapping(id) {
            Ok(found) => all.extend(found),
            // the link has ended since its number was read
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
            Err(e) => return Err(e),
        }
    }
    if all.is_empty() {
        return Ok(all);
    }
    for pins in Pinned::all() {
        let id = pins.link_id();
        if let Some(mapping) = all.iter_mut().find(|m| Some(m.id) == id) {
            mapping.pins.push(pins);
        }
    }
    find_processes(&mut all);
    Ok(all)
}

/// Returns the next link ID, if there is one. (The iterator of libbpf-rs ends without an error if
/// the caller lacks the right, and at a link of unknown type.)
fn next_link(id: u32) -> io::Result<Option<u32>> {
    let mut next = 0;
    // SAFETY: the call writes the number, a local variable.
    match unsafe { libbpf_sys::bpf_link_get_next_id(id, &mut next) } {
        0 => Ok(Some(next)),
        e if -e == libc::ENOENT => Ok(None),
        e => Err(io::Error::from_raw_os_error(-e)),
    }
}

/// Returns the properties of a link, if its type is known.
fn link_info(id: u32) -> io::Result<Option<LinkInfo>> {
    // SAFETY: passes only a number.
    match unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) } {
        fd if fd >= 0 => {
            // SAFETY: the descriptor is new, and has no other owner.
            let link = unsafe { OwnedFd::from_raw_fd(fd) };
            Ok(LinkInfo::from_fd(link.as_fd()).ok())
        }
        e => Err(io::Error::from_raw_os_error(-e)),
    }
}

/// Returns the mapping to which a link belongs, if any.
fn mapping(id: u32) -> io::Result<Option<Mapping>> {
    let Some(link) = link_info(id)? else {
        return Ok(None);
    };
    let LinkTypeInfo::Tracing(TracingLinkInfo {
        attach_type: ProgramAttachType::ModifyReturn,
        ..
    }) = link.info
    else {
        return Ok(None);
    };
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let mut programs = ProgInfoIter::with_query_opts(options);
    let Some(program) = programs.find(|p| p.id == link.prog_id) else {
        return Ok(None);
    };
    if program.name.to_bytes() != NAME.as_bytes() {
        return Ok(None);
    }
    for map in program.map_ids {
        let map = MapHandle::from_map_id(map).map_err(|e| errno(&e))?;
        if let Some(shared) = Shared::read(&map).map_err(|e| errno(&e))? {
            return Ok(Some(Mapping {
                id,
                shared,
                map,
                pins: vec![],
                processes: vec![],
            }));
        }
    }
    Ok(None)
}

/// Searches the descriptors of all processes. Processes that start or end during the search are
/// left out.
fn find_processes(all: &mut [Mapping]) {
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let process = entry.path();
        let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten();
        for descriptor in descriptors.flatten() {
            let target = fs::read_link(descriptor.path()).unwrap_or_default();
            if !target.to_string_lossy().starts_with("anon_inode:bpf") {
                continue;
            }
            let info = process.join("fdinfo").join(descriptor.file_name());
            let link = fs::read_to_string(info).ok().and_then(|t| link_id(&t));
            let Some(mapping) = all.iter_mut().find(|m| Some(m.id) == link) else {
                continue;
            };
            if mapping.processes.iter().all(|p| p.id != id) {
                let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
                let name = name.trim_end().into();
                mapping.processes.push(Process { id, name });
            }
        }
    }
}

/// Parses the link ID from a descriptor's fdinfo.
fn link_id(text: &str) -> Option<u32> {
    let value = text.lines().find_map(|l| l.strip_prefix("link_id:"));
    value?.trim().parse().ok()
}

impl Mapping {
    pub fn to_json(&self) -> Value {
        let pins: Vec<_> = self.pins.iter().map(Pinned::name).collect();
        let processes: Vec<_> = self.processes.iter().map(|p| p.id).collect();
        let shared = &self.shared;
        let [v4, v6] = shared.there.map(|there| there != 0);
        json!({"number": self.id, "pins": pins, "processes": processes, "sockets": shared.mapped,
            "whose": shared.selector, "protocol": shared.protocol, "ipv4": v4, "ipv6": v6})
    }

    pub fn kept_by(&self) -> String {
        let pins = self.pins.iter().map(|p| format!("pin {}", p.name()));
        let processes = self.processes.iter().map(|p| format!("process {}", p.id));
        let all: Vec<_> = pins.chain(processes).collect();
        match all.is_empty() {
            true => "a pin elsewhere".into(),
            false => all.join(", "),
        }
    }

    pub fn is_called(&self, name: &str) -> bool {
        name.parse() == Ok(self.id) || self.pins.iter().any(|p| p.name() == name)
    }

    /// Ends the mapping: the mapping covers no more sockets from now on, and its holder is sent a
    /// signal, or its pin removed.
    pub fn end(self) -> Result<(), String> {
        let id = self.id;
        let mut off = self.shared.clone();
        off.there = [0; 2];
        off.write(&self.map)
            .map_err(|e| super::refused(&format!("ending mapping {id}"), errno(&e)))?;
        for pins in &self.pins {
            pins.remove()
                .map_err(|e| format!("mapping {}: {e}", pins.name()))?;
        }
        for process in &self.processes {
            let Process { id: pid, name } = process;
            if name != "sdpctl" {
                return Err(format!(
                    "mapping {id} is held by process {pid} ({name}), and maps nothing any more"
                ));
            }
            terminate(*pid).map_err(|e| format!("process {pid}, which holds mapping {id}: {e}"))?;
        }
        match self.pins.is_empty() && self.processes.is_empty() {
            true => Err(format!(
                "mapping {id} is kept by a name that is not below /sys/fs/bpf/sdp, and maps nothing any more"
            )),
            false => Ok(()),
        }
    }
}

/// Sends a process SIGTERM and waits until it has exited.
fn terminate(pid: i32) -> io::Result<()> {
    let result = |n: i64| match n {
        -1 => Err(io::Error::last_os_error()),
        n => Ok(n),
    };
    let gone = |e: io::Error| match e.raw_os_error() {
        Some(libc::ESRCH) => Ok(()),
        _ => Err(e),
    };
    // SAFETY: passes two numbers only.
    let process = match result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }) {
        // SAFETY: the descriptor is new, and has no other owner.
        Ok(fd) => unsafe { OwnedFd::from_raw_fd(fd as i32) },
        Err(e) => return gone(e),
    };
    // SAFETY: passes a descriptor and numbers, and a null pointer as siginfo.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            libc::SIGTERM,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if let Err(e) = result(sent) {
        return gone(e);
    }
    let mut ends = libc::pollfd {
        fd: process.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    loop {
        // SAFETY: the structure is local, and the count is one.
        match result(unsafe { libc::poll(&mut ends, 1, -1) }.into()) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors() {
        let text = "pos:\t0\nflags:\t02000000\nlink_type:\ttracing\nlink_id:\t12\nprog_id:\t30\n";
        assert_eq!(link_id(text), Some(12));
        assert_eq!(link_id("map_id:\t12\n"), None);
        assert_eq!(link_id("link_id:\tx\n"), None);
    }
}
