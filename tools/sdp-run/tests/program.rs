// SPDX-License-Identifier: GPL-2.0-only

//! Tests the whole program: the started program, its environment, and the status.

use std::fs;
use std::os::unix::fs::{chown, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory of this test, with a file that stands for the library.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("sdp-run-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("rules"), "use both server * *:*\n").unwrap();
        Place(dir.canonicalize().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }

    /// Runs sdp-run with an existing library: the C library, which is loaded anyway.
    fn run(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let mut all = vec!["--library", library()];
        all.extend(words);
        let done = Command::new(env!("CARGO_BIN_EXE_sdp-run"))
            .args(all)
            .current_dir(&self.0)
            .env_remove("LD_PRELOAD")
            .env("ALWAYS_USE_SDP", "from before")
            .output()
            .unwrap();
        (
            done.status.code(),
            String::from_utf8(done.stdout).unwrap(),
            String::from_utf8(done.stderr).unwrap(),
        )
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn library() -> &'static str {
    ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"]
        .into_iter()
        .find(|p| Path::new(p).exists())
        .expect("a C library")
}

#[test]
fn the_environment_of_the_program() {
    let place = Place::new("environment");
    let show =
        "echo \"$LD_PRELOAD|$LIBSDP_CONFIG_FILE|$SIMPLE_LIBSDP|$ALWAYS_USE_SDP|$LIBSDP_LOG|$1\"";
    let library = fs::canonicalize(library()).unwrap();
    let library = library.to_str().unwrap();
    let of = |words: &[&str]| {
        let (status, out, err) = place.run(&[words, &["sh", "-c", show, "sh", "-x"]].concat());
        assert_eq!((status, err.as_str()), (Some(0), ""));
        out.trim_end().strip_prefix(library).unwrap().to_string()
    };
    assert_eq!(of(&[]), "|||from before||-x");
    assert_eq!(
        of(&["-c", "rules", "-v"]),
        format!("|{}|||stderr:7|-x", place.path("rules"))
    );
    assert_eq!(of(&["--simple", "-vv"]), "||1|from before|stderr:1|-x");
    assert_eq!(of(&["--log", "/x:3", "--"]), "|||from before|/x:3|-x");
}

#[test]
fn statuses() {
    let place = Place::new("statuses");
    assert_eq!(place.run(&["sh", "-c", "exit 7"]).0, Some(7));
    let (status, _, err) = place.run(&["no-such-program"]);
    assert_eq!(status, Some(127));
    assert!(err.starts_with("sdp-run: no-such-program: "), "{err}");
    assert_eq!(place.run(&["./rules"]).0, Some(126));
    let (status, _, err) = place.run(&["-c", "missing", "true"]);
    assert_eq!(status, Some(125));
    assert!(err.starts_with("sdp-run: missing: "), "{err}");
    assert_eq!(place.run(&["--no-such-option"]).0, Some(125));
    assert_eq!(place.run(&["--version"]).0, Some(0));
}

#[test]
fn a_static_program_is_named() {
    let place = Place::new("static");
    // The least content of a program for this processor without a dynamic linker.
    let own = fs::read("/proc/self/exe").unwrap();
    let mut head = own[..64].to_vec();
    head[56..58].copy_from_slice(&[0, 0]);
    fs::write(place.path("static"), head).unwrap();
    let (_, _, err) = place.run(&["./static"]);
    assert!(
        err.contains("./static stays on TCP: it is linked statically"),
        "{err}"
    );
}

#[test]
fn a_setuid_program_is_named_once() {
    let place = Place::new("setuid");
    let path = place.path("setuid");
    let setuid = || fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    // cp(1) creates the file, because a test in another thread may fork meanwhile, and its child
    // would hold the file open for writing (ETXTBSY)
    let copied = Command::new("cp").arg("/bin/true").arg(&path).status();
    assert!(copied.unwrap().success());
    setuid();
    // a set-user-ID program of the caller gives no other rights
    let (status, _, err) = place.run(&["./setuid"]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    if chown(&path, Some(65534), None).is_err() {
        // only root can change the owner of a file
        return;
    }
    setuid();
    let (status, _, err) = place.run(&["./setuid"]);
    assert_eq!((status, err.lines().count()), (Some(0), 1), "{err}");
    assert!(
        err.contains("./setuid stays on TCP: it runs with other rights than yours"),
        "{err}"
    );
}
