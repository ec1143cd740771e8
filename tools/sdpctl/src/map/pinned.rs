// SPDX-License-Identifier: GPL-2.0-only

//! Mappings that stay without a process: a directory for each, with the pins of its links.

use super::errno;
use super::program::Links;
use libbpf_rs::Link;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const BPF: &CStr = c"/sys/fs/bpf";
const ALL: &str = "/sys/fs/bpf/sdp";
/// `BPF_FS_MAGIC` of linux/magic.h.
const BPF_FILE_SYSTEM: i64 = 0xcafe_4a11;

/// A name for a mapping, and its directory.
pub struct Pinned(PathBuf);

/// Returns the directory of a name, by the rule of systemd-escape(1): the BPF file system refuses
/// dots.
fn escaped(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            '.' | '\\' => format!("\\x{:02x}", c as u32),
            c => c.into(),
        })
        .collect()
}

/// Returns the name that a directory stands for.
fn unescaped(directory: &str) -> String {
    directory.replace("\\x2e", ".").replace("\\x5c", "\\")
}

impl Pinned {
    pub fn new(name: &str) -> Result<Self, String> {
        let mut characters = name.chars();
        let letter = characters.next().is_some_and(|c| c.is_ascii_alphabetic());
        if !letter || !characters.all(|c| c.is_ascii_alphanumeric() || "-_:.@\\".contains(c)) {
            return Err(format!(
                "{name:?}: a name is a letter and then letters, digits, and - _ : . @ \\"
            ));
        }
        Ok(Pinned(Path::new(ALL).join(escaped(name))))
    }

    /// Gives each link a name. Pins all links, or none of them.
    pub fn pin(&self, links: &mut Links) -> Result<(), String> {
        // SAFETY: the path ends with a zero, and the result is a structure of numbers.
        let kind = unsafe {
            let mut found: libc::statfs = std::mem::zeroed();
            match libc::statfs(BPF.as_ptr(), &mut found) {
                0 => Some(found.f_type),
                _ => None,
            }
        };
        // the type of f_type differs between machines
        if kind.map(|kind| kind as u32 as i64) != Some(BPF_FILE_SYSTEM) {
            return Err(
                "there is no BPF file system at /sys/fs/bpf (mount -t bpf bpf /sys/fs/bpf)".into(),
            );
        }
        let made = match fs::create_dir(ALL) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => fs::create_dir(&self.0),
        };
        made.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => format!(
                "there is a mapping of that name already ({}; sdpctl map remove ends it)",
                self.0.display()
            ),
            _ => format!("{}: {e}", self.0.display()),
        })?;
        // The link in socket(2) is pinned last, so it never exists without the others.
        for (name, link) in links {
            let path = self.0.join(name);
            if let Err(e) = link.pin(&path) {
                let _ = self.remove();
                return Err(format!("{}: {}", path.display(), errno(&e)));
            }
        }
        Ok(())
    }

    /// Returns the number of the link in socket(2).
    pub fn link_id(&self) -> Option<u32> {
        let link = Link::open(self.0.join(super::FUNCTION)).ok()?;
        link.info().ok().map(|info| info.id)
    }

    pub fn name(&self) -> String {
        let name = self.0.file_name().unwrap_or_default();
        unescaped(&name.to_string_lossy())
    }

    pub fn remove(&self) -> io::Result<()> {
        // the link in socket(2) is removed first
        let first = self.0.join(super::FUNCTION);
        if first.exists() {
            fs::remove_file(first)?;
        }
        for entry in fs::read_dir(&self.0)? {
            fs::remove_file(entry?.path())?;
        }
        fs::remove_dir(&self.0)?;
        // other users may have mappings in the directory
        let _ = fs::remove_dir(ALL);
        Ok(())
    }

    /// Returns all pinned mappings.
    pub fn all() -> Vec<Self> {
        let entries = fs::read_dir(ALL).into_iter().flatten().flatten();
        let mut all: Vec<_> = entries.map(|entry| Pinned(entry.path())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in [
            "redis",
            "Web-1_b",
            "pg@17.a",
            "a\\x2eb",
            "a\\b",
            "a\\\\.x5c",
        ] {
            assert_eq!(Pinned::new(good).map(|p| p.name()), Ok(good.into()));
        }
        let directory = |name| Pinned::new(name).unwrap().0;
        assert_eq!(directory("a.b").file_name().unwrap(), "a\\x2eb");
        assert_eq!(directory("a\\x2eb").file_name().unwrap(), "a\\x5cx2eb");
        for bad in ["", "1a", "12", ".a", "a/b", "..", "-a", "a b", "ä"] {
            assert!(Pinned::new(bad).is_err(), "{bad:?}");
        }
    }
}
