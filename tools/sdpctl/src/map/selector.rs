// SPDX-License-Identifier: GPL-2.0-only

//! Selects the processes whose sockets a mapping covers.

use crate::options::MapAdd;
use std::ffi::CString;
use std::fmt;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Number of bytes that the kernel keeps of a program's name, without the terminating zero.
const NAME: usize = 15;
const CGROUPS: &str = "/sys/fs/cgroup";

/// A name, or the beginning of names.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    name: String,
    open: bool,
}

impl Program {
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, open) = match text.strip_suffix('*') {
            Some(start) => (start, true),
            None => (text, false),
        };
        if text.contains('/') {
            return Err(format!(
                "{text}: a program is known by its name without a directory"
            ));
        }
        if name.is_empty() || name.contains('*') {
            return Err(format!(
                "{text:?}: a name, with a * at most at its end (every program is --all)"
            ));
        }
        if name.contains(char::is_control) {
            return Err(format!("{text:?} is no name of a program"));
        }
        Ok(Program {
            name: name.into(),
            open,
        })
    }

    /// Returns the 16 bytes to compare with the kernel's name, and the number of them that count.
    pub fn prefix(&self) -> ([u8; 16], usize) {
        let name = self.name.as_bytes();
        let mut bytes = [0; 16];
        let kept = name.len().min(NAME);
        bytes[..kept].copy_from_slice(&name[..kept]);
        match self.open && name.len() < NAME {
            true => (bytes, kept),
            false => (bytes, bytes.len()),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.open { "*" } else { "" })
    }
}

/// A process is mapped if its program is in `programs`, its user in `users` and its cgroup in
/// `cgroups`; an empty list matches every process.
#[derive(Default)]
pub struct Selector {
    pub programs: Vec<Program>,
    pub users: Vec<u32>,
    pub cgroups: Vec<(PathBuf, OwnedFd)>,
}

impl Selector {
    pub fn new(o: &MapAdd) -> Result<Self, String> {
        let programs = o.program.iter().map(|name| Program::parse(name));
        let users = o.user.iter().map(|name| user(name));
        let own = o.own_cgroup.then(own_cgroup).transpose()?;
        let cgroups = o.cgroup.iter().chain(&own).map(|path| cgroup(path));
        Ok(Selector {
            programs: programs.collect::<Result<_, _>>()?,
            users: users.collect::<Result<_, _>>()?,
            cgroups: cgroups.collect::<Result<_, _>>()?,
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            list("program", self.programs.iter()),
            list("user", self.users.iter()),
            list(
                "cgroup",
                self.cgroups.iter().map(|(path, _)| path.display()),
            ),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        match parts.is_empty() {
            true => f.write_str("every program"),
            false => f.write_str(&parts.join(", ")),
        }
    }
}

fn list<T: fmt::Display>(what: &str, all: impl Iterator<Item = T>) -> Option<String> {
    let all: Vec<_> = all.map(|one| one.to_string()).collect();
    (!all.is_empty()).then(|| format!("{what} {}", all.join(" or ")))
}

/// Returns a user's number.
fn user(name: &str) -> Result<u32, String> {
    // the largest number is not a user: it means "no change" in chown(2) and similar calls
    if let Ok(number) = name.parse::<u32>() {
        return match number {
            u32::MAX => Err(format!("{name} is no user")),
            number => Ok(number),
        };
    }
    let unknown = || format!("there is no user {name}");
    let c_name = CString::new(name).map_err(|_| unknown())?;
    // SAFETY: the name ends with a zero, and no other thread calls getpwnam.
    let found = unsafe { libc::getpwnam(c_name.as_ptr()) };
    // SAFETY: a pointer that is not null is valid until the next getpwnam.
    unsafe { found.as_ref() }
        .map(|entry| entry.pw_uid)
        .ok_or_else(unknown)
}

/// Returns the cgroup of this process.
fn own_cgroup() -> Result<PathBuf, String> {
    let file = "/proc/self/cgroup";
    let text = fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    path_in(&text).ok_or_else(|| format!("{file}: this process is in no cgroup2"))
}

/// Returns the path in a line `0::/PATH`. systemd runs the commands of a delegated unit in a cgroup
/// `.control` below the cgroup of the unit.
fn path_in(text: &str) -> Option<PathBuf> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = path.strip_suffix(".control").unwrap_or(path);
    Some(path.trim_end_matches('/').into())
}

/// Returns a cgroup's path from the root, and its descriptor.
fn cgroup(path: &Path) -> Result<(PathBuf, OwnedFd), String> {
    let path = Path::new(CGROUPS).join(path);
    let directory = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(&path)
        .map_err(|e| format!("cgroup {}: {e}", path.display()))?;
    if path.join("cgroup.controllers").exists() {
        Ok((path, directory.into()))
    } else {
        Err(format!(
            "{} is no cgroup: no directory of a cgroup2 file system",
            path.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn matches(pattern: &str, name: &str) -> bool {
        let (bytes, length) = Program::parse(pattern).unwrap().prefix();
        // as the kernel stores a name: truncated, and padded with zeros
        let mut comm = [0; 16];
        for (to, from) in comm[..NAME].iter_mut().zip(name.bytes()) {
            *to = from;
        }
        comm[..length] == bytes[..length]
    }

    #[test]
    fn names() {
        for (pattern, name, wanted) in [
            ("redis-server", "redis-server", true),
            ("redis-server", "redis-server2", false),
            ("redis-server", "redis-serve", false),
            ("redis-*", "redis-server", true),
            ("redis-*", "redis-", true),
            ("redis-*", "redis", false),
            ("a*", "a", true),
            ("a*", "b", false),
            ("a_name_of_15_len", "a_name_of_15_length", true),
            ("a_name_of_15_le", "a_name_of_15_length", true),
            ("a_name_of_15_len*", "a_name_of_15_length", true),
            ("a_name_of_15_le*", "a_name_of_15_length", true),
            ("a_name_of_15_l*", "a_name_of_15_length", true),
            ("a_name_of_15_l", "a_name_of_15_length", false),
            ("nämlich", "nämlich", true),
        ] {
            assert_eq!(matches(pattern, name), wanted, "{pattern} and {name}");
        }
        for bad in ["", "*", "a*b", "**", "/usr/bin/x", "a\nb"] {
            assert!(Program::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn users() {
        assert_eq!(user("0"), Ok(0));
        assert_eq!(user("root"), Ok(0));
        assert_eq!(user("4294967294"), Ok(u32::MAX - 1));
        for bad in ["4294967295", "-1", "no such user", "a\0b", ""] {
            assert!(user(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_own_cgroup() {
        let path = |text| path_in(text).map(|p| p.to_str().unwrap().to_string());
        let unit = Some("system.slice/a.service".to_string());
        assert_eq!(path("1:cpu:/x\n0::/system.slice/a.service\n"), unit);
        assert_eq!(path("0::/system.slice/a.service/.control\n"), unit);
        assert_eq!(path("0::/\n").as_deref(), Some(""));
        assert_eq!(path("1:cpu:/x\n"), None);
    }

    #[test]
    fn cgroups_are_directories_of_cgroup2() {
        let e = cgroup(Path::new("no/such/group")).unwrap_err();
        assert!(
            e.starts_with("cgroup /sys/fs/cgroup/no/such/group: "),
            "{e}"
        );
        let e = cgroup(Path::new("/proc")).unwrap_err();
        assert_eq!(
            e,
            "/proc is no cgroup: no directory of a cgroup2 file system"
        );
        let e = cgroup(Path::new("/proc/version")).unwrap_err();
        let reason = io::Error::from_raw_os_error(libc::ENOTDIR).to_string();
        assert!(e.ends_with(&reason), "{e}");
    }

    #[test]
    fn in_words() {
        let mut selector = Selector::default();
        assert_eq!(selector.to_string(), "every program");
        selector.users = vec![0, 1000];
        assert_eq!(selector.to_string(), "user 0 or 1000");
        selector.programs = vec![Program::parse("redis-*").unwrap()];
        assert_eq!(selector.to_string(), "program redis-*, user 0 or 1000");
    }
}
