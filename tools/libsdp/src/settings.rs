// SPDX-License-Identifier: GPL-2.0-only

//! Settings from the environment and the rules' file, read once.
//!
//! A program with more rights than its caller (AT_SECURE) ignores the environment.

use sdp_rules::{Destination, Mode, Rules};
use std::ffi::{CStr, OsStr};
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::*};

/// Default path of the rules.
const RULES: &str = match option_env!("SDP_RULES") {
    Some(path) => path,
    None => "/etc/libsdp.conf",
};

/// Maximum size of a rules file.
const LARGEST: u64 = 1 << 20;

/// Severity of a message. Messages of `min-level` and above are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// Level of the message that no rule matches.
    NoMatch = 3,
    /// Level of the message about the rule that matches.
    Match = 4,
    /// Level of the messages about the outcome of each listener and connection.
    Summary = 7,
    Warning = 8,
    Error = 9,
}

/// Settings of this program.
pub struct Settings {
    /// Rules that may match the program.
    pub rules: Rules,
    /// Name of the program for messages.
    pub name: String,
    pub program: Vec<u8>,
    pub destination: Destination,
    pub min_level: u32,
    /// Mode of all sockets of the program, if it is the same for every address and role.
    pub uniform: Option<Mode>,
    /// True if the program has more rights than its caller.
    pub secure: bool,
}

static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(ptr::null_mut());

/// Returns the settings, if they have been read.
pub fn known() -> Option<&'static Settings> {
    // SAFETY: settings are never freed.
    unsafe { SETTINGS.load(Acquire).as_ref() }
}

/// Reads the environment and the rules, for the constructor. Returns a description of faults.
pub fn load() -> Option<String> {
    let (settings, problem) = read();
    SETTINGS.store(Box::into_raw(Box::new(settings)), Release);
    problem
}

/// Returns the name by which rules match the program.
fn program() -> Vec<u8> {
    extern "C" {
        static program_invocation_short_name: *const libc::c_char;
    }
    // SAFETY: the C library sets this variable before any constructor runs.
    let name = unsafe { program_invocation_short_name };
    if name.is_null() {
        return Vec::new();
    }
    // SAFETY: the name is a string that ends with a zero.
    unsafe { CStr::from_ptr(name) }.to_bytes().to_vec()
}

fn read() -> (Settings, Option<String>) {
    // SAFETY: takes no pointer and cannot fail.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let variable = |name: &str| (!secure).then(|| std::env::var_os(name)).flatten();
    let program = program();
    let simple = variable("SIMPLE_LIBSDP").is_some() || variable("ALWAYS_USE_SDP").is_some();
    let named = variable("LIBSDP_CONFIG_FILE");
    let mut problem = None;
    let path = named.as_deref().unwrap_or(OsStr::new(RULES));
    let rules = match simple {
        true => Ok(Rules::only(Mode::Sdp)),
        false => read_rules(path, named.is_some()),
    };
    let rules = rules.map_err(|text| {
        let path = path.to_string_lossy();
        problem = Some(format!("{path}: {text}; every socket stays TCP"));
    });
    let mut settings = Settings {
        uniform: rules
            .as_ref()
            .map_or(Some(Mode::Tcp), |r| r.uniform(&program)),
        destination: Destination::Stderr,
        min_level: Level::Error as u32,
        rules: Rules::default(),
        name: String::from_utf8_lossy(&program).into_owned(),
        program,
        secure,
    };
    if let Ok(rules) = rules {
        settings.rules = rules.of_program(&settings.program);
        let log = &settings.rules.log;
        if let Some(destination) = &log.destination {
            settings.destination = destination.clone();
        }
        settings.min_level = log.min_level.unwrap_or(settings.min_level);
    }
    if let Some(wish) = variable("LIBSDP_LOG") {
        match parse_wish(wish.as_bytes()) {
            Some((destination, level)) => {
                settings.destination = destination;
                settings.min_level = level;
            }
            None => {
                problem.get_or_insert(format!(
                    "LIBSDP_LOG={} is not stderr, syslog or a path, with :LEVEL after it",
                    wish.to_string_lossy()
                ));
            }
        }
    }
    if variable("LIBSDP_WAIT").is_some() {
        problem.get_or_insert("LIBSDP_WAIT has no effect: see ipproto_wait in sdp(7)".into());
    }
    if variable("LD_PRELOAD").is_some_and(|l| is_relative(l.as_bytes())) {
        problem.get_or_insert(
            "LD_PRELOAD has a relative path: programs started in another directory stay TCP".into(),
        );
    }
    (settings, problem)
}

/// Returns true if LD_PRELOAD is a relative path, which finds the library from some directories
/// only.
fn is_relative(preload: &[u8]) -> bool {
    let mut libraries = preload.split(|&c| matches!(c, b' ' | b':'));
    libraries.any(|l| l.ends_with(b"/libsdp.so") && !l.starts_with(b"/") && !l.starts_with(b"$"))
}

/// Reads the rules of a file. A missing default file means SDP where it is available.
fn read_rules(path: &OsStr, named: bool) -> Result<Rules, String> {
    let text = match read_file(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound && !named => return Ok(Rules::default()),
        Err(e) => return Err(e.to_string()),
    };
    sdp_rules::parse(&text).map_err(|problems| {
        let more = match problems.len() {
            1 => String::new(),
            n => format!(" (and {} more: sdpctl check)", n - 1),
        };
        format!("{}{more}", problems[0])
    })
}

/// Reads a regular file of a bounded size.
fn read_file(path: &OsStr) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    if about.len() > LARGEST {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let mut text = Vec::new();
    file.take(LARGEST).read_to_end(&mut text)?;
    Ok(text)
}

/// Parses `LIBSDP_LOG`: `stderr`, `syslog` or a path, then `:LEVEL`.
fn parse_wish(wish: &[u8]) -> Option<(Destination, u32)> {
    let colon = wish.iter().rposition(|&c| c == b':')?;
    let level = std::str::from_utf8(&wish[colon + 1..]).ok()?.parse().ok()?;
    let destination = match &wish[..colon] {
        b"stderr" => Destination::Stderr,
        b"syslog" => Destination::Syslog,
        b"" => return None,
        path if path.ends_with(b"/") => return None,
        path => Destination::File(path.to_vec()),
    };
    Some((destination, level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths() {
        for path in ["./libsdp.so", "/a.so:b/libsdp.so", "x.so ../libsdp.so"] {
            assert!(is_relative(path.as_bytes()), "{path}");
        }
        for path in ["", "libsdp.so", "/a/libsdp.so ./b.so", "$LIB/libsdp.so"] {
            assert!(!is_relative(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn wishes() {
        let file = |p: &str| Destination::File(p.into());
        assert_eq!(parse_wish(b"stderr:7"), Some((Destination::Stderr, 7)));
        assert_eq!(parse_wish(b"/x:y:1"), Some((file("/x:y"), 1)));
        for bad in ["stderr", ":1", "stderr:", "x:high", "/x/:1"] {
            assert_eq!(parse_wish(bad.as_bytes()), None, "{bad}");
        }
    }
}
