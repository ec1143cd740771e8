// SPDX-License-Identifier: GPL-2.0-only

//! `sdp-run PROGRAM …` starts a program with libsdp.so, which turns its TCP sockets to SDP by the
//! rules.

mod elf;
mod options;

use clap::Parser;
use options::Options;
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

impl Options {
    fn program(&self) -> &OsStr {
        self.command.first().map_or(OsStr::new(""), |p| p)
    }
}

const FAILED: u8 = 125;
const NOT_STARTED: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Returns the library that was installed, or built, with this program.
fn library() -> Result<PathBuf, String> {
    let own = env::current_exe().map_err(|e| format!("cannot find the path of sdp-run: {e}"))?;
    let here = own.parent().unwrap_or(Path::new("/"));
    let arch = format!("{}-linux-gnu", env::consts::ARCH);
    let places = [
        here.join("../lib").join(&arch).join("libsdp.so"),
        here.join("../lib/libsdp.so"),
        here.join("../lib64/libsdp.so"),
        here.join("libsdp.so"),
    ];
    let found = places.iter().find_map(|p| p.canonicalize().ok());
    found.ok_or_else(|| {
        format!(
            "there is no libsdp.so in {} or beside {}",
            here.join("../lib").display(),
            own.display()
        )
    })
}

/// Returns the new LD_PRELOAD, with the library in front.
fn preload(library: &Path, before: Option<OsString>) -> Result<OsString, String> {
    // LD_PRELOAD cannot quote these bytes.
    let bytes = library.as_os_str().as_bytes();
    if bytes
        .iter()
        .any(|c| matches!(c, b' ' | b':' | b'\t' | b'$'))
    {
        return Err(format!(
            "{}: a library's path cannot have blanks, ':' or '$' in it",
            library.display()
        ));
    }
    let mut all = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|b| !b.is_empty()) {
        all.push(":");
        all.push(before);
    }
    Ok(all)
}

/// Returns the file that the shell would run as the program.
fn find(program: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let executable = |p: &PathBuf| {
        p.metadata()
            .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(path)
        .map(|d| d.join(program))
        .find(executable)
}

/// Returns true if the program gains rights that its caller lacks: set-user-ID, set-group-ID, or
/// file capabilities.
fn gives_rights(program: &Path) -> bool {
    let Ok(file) = program.metadata() else {
        return false;
    };
    // SAFETY: these calls take no pointers and cannot fail.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let bits = file.mode();
    let owner = bits & libc::S_ISUID != 0 && file.uid() != uid;
    let group = bits & libc::S_ISGID != 0 && file.gid() != gid;
    owner || group || uid != 0 && has_capabilities(program)
}

fn has_capabilities(program: &Path) -> bool {
    let Ok(path) = CString::new(program.as_os_str().as_bytes()) else {
        return false;
    };
    let name = c"security.capability";
    // SAFETY: two strings that end with a zero, and no buffer for the value.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Returns the reason why the library cannot work in a program, if one can be found.
fn beyond_reach(program: &Path) -> Option<&'static str> {
    if gives_rights(program) {
        return Some(
            "it runs with other rights than yours, so no library of yours is loaded into it",
        );
    }
    match elf::look(program) {
        elf::Kind::Static => Some("it is linked statically, so no library can be loaded into it"),
        elf::Kind::Foreign => Some("it is for another kind of processor than the library"),
        elf::Kind::Dynamic | elf::Kind::Other => None,
    }
}

fn complain(what: &str) {
    // The reader may have closed the pipe.
    let _ = writeln!(io::stderr(), "sdp-run: {what}");
}

fn main() -> ExitCode {
    let o = match Options::try_parse() {
        Ok(o) => o,
        Err(e) => {
            // the output for the message is closed
            let _ = e.print();
            return match e.use_stderr() {
                true => FAILED.into(),
                false => ExitCode::SUCCESS,
            };
        }
    };
    match prepare(&o) {
        Ok(mut command) => {
            let e = command.exec();
            complain(&format!("{}: {e}", o.program().to_string_lossy()));
            match e.kind() {
                io::ErrorKind::NotFound => NOT_FOUND.into(),
                _ => NOT_STARTED.into(),
            }
        }
        Err(what) => {
            complain(&what);
            FAILED.into()
        }
    }
}

fn prepare(o: &Options) -> Result<Command, String> {
    let library = match &o.library {
        Some(path) => path
            .canonicalize()
            .map_err(|e| format!("{}: {e}", path.display()))?,
        None => library()?,
    };
    let path = env::var_os("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin".into());
    if let Some(why) = find(o.program(), &path).and_then(|p| beyond_reach(&p)) {
        complain(&format!(
            "{} stays on TCP: {why}",
            o.program().to_string_lossy()
        ));
    }
    let mut command = Command::new(o.program());
    command
        .args(o.command.iter().skip(1))
        .env("LD_PRELOAD", preload(&library, env::var_os("LD_PRELOAD"))?);
    if let Some(config) = &o.config {
        // the program may change its directory before the library reads the rules
        let whole = config
            .canonicalize()
            .map_err(|e| format!("{}: {e}", config.display()))?;
        command.env("LIBSDP_CONFIG_FILE", whole);
        command
            .env_remove("SIMPLE_LIBSDP")
            .env_remove("ALWAYS_USE_SDP");
    }
    if o.simple {
        command.env("SIMPLE_LIBSDP", "1");
    }
    match (&o.log, o.verbose) {
        (Some(log), _) => command.env("LIBSDP_LOG", log),
        (None, 0) => &mut command,
        (None, 1) => command.env("LIBSDP_LOG", "stderr:7"),
        (None, _) => command.env("LIBSDP_LOG", "stderr:1"),
    };
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preloading() {
        let path = |p: &str| preload(Path::new(p), None);
        assert_eq!(path("/a/libsdp.so"), Ok("/a/libsdp.so".into()));
        assert!(path("/a b/libsdp.so").unwrap_err().contains("blanks"));
        assert!(path("/a:b/libsdp.so").is_err());
        let two = preload(Path::new("/a.so"), Some("b.so c.so".into()));
        assert_eq!(two, Ok("/a.so:b.so c.so".into()));
        assert_eq!(
            preload(Path::new("/a.so"), Some("".into())),
            Ok("/a.so".into())
        );
    }

    #[test]
    fn arguments_of_the_program_are_its_own() {
        let o = Options::try_parse_from(["sdp-run", "-v", "redis-server", "-v", "--help"]).unwrap();
        assert_eq!((o.verbose, o.command.len()), (1, 3));
        assert!(Options::try_parse_from(["sdp-run"]).is_err());
        assert!(Options::try_parse_from(["sdp-run", "-c", "x", "-s", "y"]).is_err());
        assert!(Options::try_parse_from(["sdp-run", "--log", "stderr", "y"]).is_err());
        assert!(Options::try_parse_from(["sdp-run", "--log", "stderr:7", "y"]).is_ok());
    }
}
