// SPDX-License-Identifier: GPL-2.0-only

//! Writes messages to the destination that the rules choose: one line each, at once, without memory
//! or locks.
//!
//! A log file is opened for each message, so that the library never holds a descriptor among the
//! program's own. The path depends on the user that runs the program. No other user can place a
//! link or a file at a log's path:
//!
//! * root's log file is in `/var/log`, whatever directory the rules name;
//! * the file `NAME` of another user is `/tmp/NAME.UID/log`, and `DIR/NAME` is `DIR/NAME.UID/log`.
//!   The user has to own `NAME.UID`, and no other user may write to the directory;
//! * a program with more rights than its caller writes to no file: its messages go to syslog.

use crate::settings::{self, Level, Settings};
use crate::sys;
use libc::c_int;
use sdp_rules::Destination;
use std::ffi::CStr;
use std::fmt::{self, Write};

/// A line on the stack; a longer line is truncated.
struct Line {
    text: [u8; 512],
    length: usize,
}

impl Line {
    const fn new() -> Self {
        Line {
            text: [0; 512],
            length: 0,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[..self.length]
    }

    /// Appends bytes unchanged.
    fn push(&mut self, bytes: &[u8]) {
        let room = &mut self.text[self.length..];
        let n = bytes.len().min(room.len());
        room[..n].copy_from_slice(&bytes[..n]);
        self.length += n;
    }
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        // One byte is kept for the end of the line.
        let room = self.text.len() - 1 - self.length;
        for &c in s.as_bytes().iter().take(room) {
            // A message must be one line, and must not control a terminal.
            self.push(&[if c < b' ' || c == 0x7f { b'?' } else { c }]);
        }
        Ok(())
    }
}

/// Returns true if messages of a level are written.
pub fn wanted(level: Level) -> bool {
    settings::known().is_some_and(|s| level as u32 >= s.min_level)
}

/// Writes a message if its level is written. Preserves errno.
pub fn write(level: Level, message: fmt::Arguments<'_>) {
    let Some(settings) = settings::known().filter(|s| level as u32 >= s.min_level) else {
        return;
    };
    let mut line = Line::new();
    let name = &settings.name;
    let pid = sys::pid();
    let done = match &settings.destination {
        Destination::File(path) if !settings.secure => {
            let now = sys::clock(libc::CLOCK_REALTIME);
            let _ = write!(line, "{}.{:03} ", now.tv_sec, now.tv_nsec / 1_000_000);
            let _ = write!(line, "{name}[{pid}] libsdp: {message}");
            line.push(b"\n");
            to_file(path, line.as_bytes())
        }
        // in programs of inetd, descriptor 2 is the connection
        Destination::Stderr if !is_socket(2) => {
            let _ = write!(line, "libsdp: {name}[{pid}]: {message}");
            line.push(b"\n");
            sys::write(2, line.as_bytes()).map(drop)
        }
        _ => to_syslog(settings, level, pid, message),
    };
    if done.is_err() && level == Level::Error {
        // Checks that an error is written to some destination.
        if !matches!(settings.destination, Destination::Syslog) {
            let _ = to_syslog(settings, level, pid, message);
        }
    }
}

fn is_socket(fd: c_int) -> bool {
    sys::stat(fd).is_some_and(|s| s.st_mode & libc::S_IFMT == libc::S_IFSOCK)
}

fn to_syslog(
    settings: &Settings,
    level: Level,
    pid: i32,
    message: fmt::Arguments<'_>,
) -> sys::Result<()> {
    // facility user; error, warning, info or debug
    let severity = match level {
        Level::Error => 3,
        Level::Warning => 4,
        Level::Summary => 6,
        _ => 7,
    };
    let mut line = Line::new();
    let name = &settings.name;
    let _ = write!(line, "<{}>libsdp[{pid}]: {name}: {message}", 8 + severity);
    let fd = sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)?;
    let sent = sys::send_to_path(fd, b"/dev/log", line.as_bytes());
    sys::close(fd);
    sent.map(drop)
}

fn to_file(path: &[u8], line: &[u8]) -> sys::Result<()> {
    // SAFETY: takes no pointer and cannot fail.
    let user = unsafe { libc::geteuid() };
    let fd = open(path, user)?;
    let done = sys::write(fd, line);
    sys::close(fd);
    done.map(drop)
}

/// Returns the complete path in `line`, and ends it with a zero byte.
fn path(line: &mut Line) -> sys::Result<&CStr> {
    line.push(b"\0");
    CStr::from_bytes_with_nul(line.as_bytes()).map_err(|_| libc::ENAMETOOLONG)
}

/// Returns the log file of a user, by the name in the rules.
fn open(named: &[u8], user: u32) -> sys::Result {
    let (mut directory, mut name) = (Line::new(), Line::new());
    if user == 0 {
        name.push(named.rsplit(|&c| c == b'/').next().unwrap_or(named));
        return open_in(c"/var/log", path(&mut name)?, user);
    }
    if !named.contains(&b'/') {
        directory.push(b"/tmp/");
    }
    directory.push(named);
    let _ = write!(directory, ".{user}");
    let directory = path(&mut directory)?;
    match sys::mkdir(directory, 0o700) {
        Ok(_) | Err(libc::EEXIST) => open_in(directory, c"log", user),
        Err(e) => Err(e),
    }
}

/// Opens a regular file with one link that the user owns, in a directory that no other user can
/// write to. Owner and directory are checked after open(2), so that no other user can exchange the
/// file between check and open.
fn open_in(directory: &CStr, name: &CStr, user: u32) -> sys::Result {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_PATH;
    let directory = sys::open(libc::AT_FDCWD, directory, flags, 0)?;
    let others = if user == 0 { 0o002 } else { 0o077 };
    let safe = sys::stat(directory).is_some_and(|s| s.st_uid == user && s.st_mode & others == 0);
    let opened = if safe {
        let flags = libc::O_WRONLY
            | libc::O_APPEND
            | libc::O_CREAT
            | libc::O_NOFOLLOW
            | libc::O_NONBLOCK
            | libc::O_NOCTTY;
        sys::open(directory, name, flags, 0o600)
    } else {
        Err(libc::EPERM)
    };
    sys::close(directory);
    let file = opened?;
    let good = sys::stat(file).is_some_and(|s| {
        s.st_mode & libc::S_IFMT == libc::S_IFREG && s.st_uid == user && s.st_nlink == 1
    });
    if !good {
        sys::close(file);
        return Err(libc::EPERM);
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::fs::{symlink, DirBuilderExt, PermissionsExt};
    use std::{env, fs};

    #[test]
    fn lines_are_cut_and_clean() {
        let mut line = Line::new();
        let _ = write!(line, "a\nb\x1b{}", "x".repeat(1000));
        line.push(b"\n");
        assert_eq!(line.length, 512);
        assert!(line.as_bytes().starts_with(b"a?b?xx") && line.as_bytes().ends_with(b"x\n"));
        assert_eq!(path(&mut line), Err(libc::ENAMETOOLONG));
    }

    /// Returns a directory for one test.
    fn place(name: &str) -> std::path::PathBuf {
        let path = env::temp_dir().join(format!("libsdp-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        path
    }

    fn c(path: &std::path::Path) -> CString {
        CString::new(path.to_str().unwrap()).unwrap()
    }

    #[test]
    fn log_files_are_safe() {
        // SAFETY: takes no pointer and cannot fail.
        let user = unsafe { libc::geteuid() };
        let dir = place("log");
        let log =
            |name: &str| open_in(&c(&dir), &CString::new(name).unwrap(), user).map(sys::close);
        assert_eq!(log("new"), Ok(()));
        assert_eq!(log("new"), Ok(()));
        fs::write(dir.join("precious"), "x").unwrap();
        symlink("precious", dir.join("link")).unwrap();
        assert_eq!(log("link"), Err(libc::ELOOP));
        fs::hard_link(dir.join("precious"), dir.join("hard")).unwrap();
        assert_eq!(log("hard"), Err(libc::EPERM));
        fs::create_dir(dir.join("dir")).unwrap();
        assert_eq!(log("dir"), Err(libc::EISDIR));

        let link = dir.join("there");
        symlink(&dir, &link).unwrap();
        assert_eq!(open_in(&c(&link), c"new", user), Err(libc::ENOTDIR));
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(log("new"), Err(libc::EPERM));
        assert_eq!(
            open_in(&c(&dir), c"new", user + 1),
            Err(libc::EPERM),
            "the directory is another user's"
        );
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_users_log_is_in_a_directory_of_his() {
        let dir = place("user");
        // SAFETY: takes no pointer and cannot fail.
        let user = unsafe { libc::geteuid() };
        let name = dir.join("x.log");
        let name = c(&name);
        let path = name.as_bytes();
        if user != 0 {
            sys::close(open(path, user).unwrap());
            assert!(dir.join(format!("x.log.{user}/log")).is_file());
        } else {
            // Tries to open as another user, who does not own files of root.
            assert_eq!(open(path, 4242), Err(libc::EPERM));
            assert!(dir.join("x.log.4242").is_dir());
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
