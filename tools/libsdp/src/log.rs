// SPDX-License-Identifier: GPL-2.0-only

//! Messages to whom the rules say: a line each, written at once, without memory or locks.
//!
//! A log file is opened for each message, so that no descriptor of it lies among the program's.
//! Where it is depends on who runs the program, and nobody else can put a link or a file of theirs
//! in its way:
//!
//! * root's is in `/var/log`, whatever directory the rules name;
//! * another user's `NAME` is `/tmp/NAME.UID/log`, `DIR/NAME` is `DIR/NAME.UID/log`. That directory
//!   has to be the user's and nobody else's;
//! * a program with more rights than its caller writes to no file: its messages go to syslog.

use crate::settings::{self, Level, Settings};
use crate::sys;
use sdp_rules::Destination;
use std::fmt::{self, Write};

/// A line on the stack; what does not fit is cut off.
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
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        // One byte is kept for the end of the line.
        let room = self.text.len() - 1 - self.length;
        let part = &s.as_bytes()[..s.len().min(room)];
        for (to, &c) in self.text[self.length..].iter_mut().zip(part) {
            // A message is one line, and no terminal's command.
            *to = if c < b' ' || c == 0x7f { b'?' } else { c };
        }
        self.length += part.len();
        Ok(())
    }
}

/// Whether messages of a level are written.
pub fn wanted(level: Level) -> bool {
    settings::known().is_some_and(|s| level as u32 >= s.min_level)
}

/// Writes a message, if it is wanted. errno stays.
pub fn write(level: Level, message: fmt::Arguments<'_>) {
    let Some(settings) = settings::known().filter(|s| level as u32 >= s.min_level) else {
        return;
    };
    let mut line = Line::new();
    let name = &settings.name;
    let pid = sys::pid();
    let done = match &settings.destination {
        Destination::File(path) if !settings.secure => {
            let _ = time(&mut line);
            let _ = write!(line, " {name}[{pid}] libsdp: {message}");
            finish(&mut line);
            to_file(path, line.as_bytes())
        }
        Destination::Stderr => {
            let _ = write!(line, "libsdp: {name}[{pid}]: {message}");
            finish(&mut line);
            sys::write(2, line.as_bytes()).map(drop)
        }
        Destination::Syslog | Destination::File(_) => to_syslog(settings, level, pid, message),
    };
    if done.is_err() && level == Level::Error {
        // An error is told somewhere.
        if !matches!(settings.destination, Destination::Syslog) {
            let _ = to_syslog(settings, level, pid, message);
        }
    }
}

fn finish(line: &mut Line) {
    line.text[line.length] = b'\n';
    line.length += 1;
}

/// The time, in UTC: what a signal handler can know.
fn time(line: &mut Line) -> fmt::Result {
    let t = sys::clock(libc::CLOCK_REALTIME);
    let (days, second) = (t.tv_sec.div_euclid(86400), t.tv_sec.rem_euclid(86400));
    let (year, month, day) = date(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    write!(
        line,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{:03}Z",
        second % 60,
        t.tv_nsec / 1_000_000
    )
}

/// Year, month and day, from days since 1970.
fn date(days: i64) -> (i64, i64, i64) {
    let leap = |y: i64| (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    let (mut year, mut left) = (1970, days.max(0));
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
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
    // SAFETY: asks for a number.
    let user = unsafe { libc::geteuid() };
    let fd = open(path, user)?;
    let done = sys::write(fd, line);
    sys::close(fd);
    done.map(drop)
}

/// A path on the stack, with a zero at its end.
struct Path([u8; 512]);

impl Path {
    fn new(parts: &[&[u8]]) -> sys::Result<Self> {
        let mut path = Path([0; 512]);
        let mut room = &mut path.0[..511];
        for part in parts {
            if part.len() > room.len() {
                return Err(libc::ENAMETOOLONG);
            }
            let (to, rest) = room.split_at_mut(part.len());
            to.copy_from_slice(part);
            room = rest;
        }
        Ok(path)
    }

    fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&c| c == 0).unwrap_or(511);
        &self.0[..=end]
    }
}

/// The log file of a user, by the name that the rules give it.
fn open(path: &[u8], user: u32) -> sys::Result {
    let name = path.rsplit(|&c| c == b'/').next().unwrap_or(path);
    let (directory, name) = if user == 0 {
        (Path::new(&[b"/var/log"])?, Path::new(&[name])?)
    } else {
        let mut number = Line::new();
        let _ = write!(number, ".{user}");
        let before: &[u8] = if path.contains(&b'/') { b"" } else { b"/tmp/" };
        let directory = Path::new(&[before, path, number.as_bytes()])?;
        match sys::mkdir(directory.as_bytes(), 0o700) {
            Ok(_) | Err(libc::EEXIST) => {}
            Err(e) => return Err(e),
        }
        (directory, Path::new(&[b"log"])?)
    };
    open_in(directory.as_bytes(), name.as_bytes(), user)
}

/// A regular file with one name that is the user's, in a directory that nobody else can write to.
/// Both are looked at once they are open, so that nobody can change them between.
fn open_in(directory: &[u8], name: &[u8], user: u32) -> sys::Result {
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
    use std::os::unix::fs::{symlink, DirBuilderExt, PermissionsExt};
    use std::{env, fs};

    #[test]
    fn dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(59), (1970, 3, 1));
        assert_eq!(date(11016), (2000, 2, 29));
        assert_eq!(date(20778), (2026, 11, 21));
        assert_eq!(date(47540), (2100, 2, 28));
        assert_eq!(date(47541), (2100, 3, 1));
    }

    #[test]
    fn lines_are_cut_and_clean() {
        let mut line = Line::new();
        let _ = write!(line, "a\nb\x1b{}", "x".repeat(1000));
        finish(&mut line);
        assert_eq!(line.length, 512);
        assert!(line.as_bytes().starts_with(b"a?b?xx") && line.as_bytes().ends_with(b"x\n"));
    }

    /// A directory of this test's own.
    fn place(name: &str) -> std::path::PathBuf {
        let path = env::temp_dir().join(format!("libsdp-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        path
    }

    fn c(path: &std::path::Path) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt;
        [path.as_os_str().as_bytes(), b"\0"].concat()
    }

    #[test]
    fn log_files_are_safe() {
        // SAFETY: asks for a number.
        let user = unsafe { libc::geteuid() };
        let dir = place("log");
        let log = |name: &str| {
            open_in(&c(&dir), &[name.as_bytes(), b"\0"].concat(), user).map(sys::close)
        };
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
        assert_eq!(open_in(&c(&link), b"new\0", user), Err(libc::ENOTDIR));
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(log("new"), Err(libc::EPERM));
        assert_eq!(
            open_in(&c(&dir), b"new\0", user + 1),
            Err(libc::EPERM),
            "the directory is another user's"
        );
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_users_log_is_in_a_directory_of_his() {
        let dir = place("user");
        // SAFETY: asks for a number.
        let user = unsafe { libc::geteuid() };
        let name = dir.join("x.log");
        let bytes = c(&name);
        let path = &bytes[..bytes.len() - 1];
        if user != 0 {
            sys::close(open(path, user).unwrap());
            assert!(dir.join(format!("x.log.{user}/log")).is_file());
        } else {
            // As somebody else: what root makes is not his.
            assert_eq!(open(path, 4242), Err(libc::EPERM));
            assert!(dir.join("x.log.4242").is_dir());
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
