// SPDX-License-Identifier: GPL-2.0-only

//! Tests the library in a program on a kernel without SDP. The test itself is the program that
//! preloads the library. The program gets TCP, and one log line with the reason. Guests test the
//! library with SDP.
//!
//! The output has the format of cargo's own tests.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Runs a server and two clients of it in one process; each has to use TCP.
fn program() {
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"question").unwrap();
        let mut got = [0; 8];
        far.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"question");
        let mut protocol = 0i32;
        let mut length = 4;
        for fd in [listener.as_raw_fd(), near.as_raw_fd(), far.as_raw_fd()] {
            // SAFETY: the value is an integer, with its length.
            let r = unsafe {
                let to = (&raw mut protocol).cast();
                libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL, to, &mut length)
            };
            assert_eq!((r, protocol), (0, libc::IPPROTO_TCP));
        }
    }
    assert!(TcpStream::connect("127.0.0.1:1").is_err());
    println!("ok");
}

/// Returns the path of the library that was built with this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let deps = own.parent().unwrap();
    let places = [deps.join("libsdp.so"), deps.join("../libsdp.so")];
    let time = |p: &PathBuf| p.metadata().and_then(|m| m.modified()).ok();
    let newest = places.into_iter().filter(|p| p.exists()).max_by_key(time);
    newest.expect("libsdp.so").canonicalize().unwrap()
}

/// Returns the program's standard error when it runs with these variables and a file `rules`.
fn said(preload: &str, rules: &str, more: &[(&str, &str)]) -> String {
    let own = std::env::current_exe().unwrap();
    let name = format!("libsdp-preload-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("rules"), rules).unwrap();
    fs::copy(library(), dir.join("libsdp.so")).unwrap();
    let done = Command::new(own)
        .arg("--program")
        .current_dir(&dir)
        .env("LD_PRELOAD", preload)
        .env("LIBSDP_CONFIG_FILE", "rules")
        .envs(more.iter().copied())
        .output()
        .unwrap();
    fs::remove_dir_all(dir).unwrap();
    let err = String::from_utf8(done.stderr).unwrap();
    let out = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{err}");
    assert_eq!(out, "ok\n");
    err
}

fn absolute() -> String {
    library().to_str().unwrap().into()
}

const QUIET: &str = "log destination stderr\n";

/// Requires that the output is one line that contains `what`.
fn one(err: &str, what: &str) {
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.contains(what), "{err}");
}

const ABSENT: &str = "the kernel has no SDP (the module ib_sdp is not loaded: ";

/// One log line appears, however many sockets are made.
fn absent() {
    assert!(!Path::new("/sys/module/ib_sdp").exists(), "not here");
    one(&said(&absolute(), QUIET, &[]), ABSENT);
    let simple = [("SIMPLE_LIBSDP", "1"), ("LIBSDP_LOG", "stderr:9")];
    one(&said(&absolute(), QUIET, &simple), ABSENT);
}

/// A program whose rules are all TCP gets no message.
fn tcp_only() {
    let rules = "use tcp server * *:*\nuse tcp client * *:*\n";
    let all = [("LIBSDP_LOG", "stderr:1")];
    assert_eq!(said(&absolute(), rules, &all), "");
}

/// A mistake in the rules leaves all sockets TCP and is logged.
fn mistake() {
    let rules = "use sdp client * *:*\nuse sdp somebody * *:*\n";
    let found =
        "line 2, column 9: expected 'server', 'listen', 'client' or 'connect', found 'somebody'";
    let err = said(&absolute(), rules, &[]);
    one(&err, found);
    assert!(err.ends_with("; every socket stays TCP\n"), "{err}");
    let missing = [("LIBSDP_CONFIG_FILE", "missing")];
    one(&said(&absolute(), "", &missing), "missing: No such file");
    let rules = format!("{QUIET}use tcp server * *:*\nuse tcp client * *:*\n");
    let wish = [("LIBSDP_LOG", "loudly")];
    one(
        &said(&absolute(), &rules, &wish),
        "LIBSDP_LOG=loudly is not",
    );
}

/// LIBSDP_WAIT, a variable of former versions, has no effect.
fn wait() {
    let rules = format!("{QUIET}use tcp server * *:*\nuse tcp client * *:*\n");
    let wait = [("LIBSDP_WAIT", "500")];
    one(
        &said(&absolute(), &rules, &wait),
        "LIBSDP_WAIT has no effect",
    );
}

/// A relative LD_PRELOAD is found from the current directory, but not from every other directory.
fn relative() {
    let rules = format!("{QUIET}use tcp server * *:*\nuse tcp client * *:*\n");
    let err = said("./libsdp.so", &rules, &[]);
    one(&err, "LD_PRELOAD has a relative path");
}

/// A program started by inetd: no message of the library gets into its connection.
fn connection() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let done = Command::new(std::env::current_exe().unwrap())
        .arg("--program")
        .env("LD_PRELOAD", absolute())
        .env("LIBSDP_CONFIG_FILE", "/no/such/file")
        .stderr(OwnedFd::from(theirs))
        .output()
        .unwrap();
    assert_eq!(
        (done.status.success(), done.stdout),
        (true, b"ok\n".to_vec())
    );
    let mut err = String::new();
    ours.read_to_string(&mut err).unwrap();
    assert_eq!(err, "");
}

/// The library is loaded twice from two places; the dynamic linker reports a missing one.
fn others() {
    let twice = format!("{}:./libsdp.so", absolute());
    let err = said(&twice, QUIET, &[]);
    assert_eq!(err.matches(ABSENT).count(), 2, "{err}");
    let missing = format!("/no/such/library.so {}", absolute());
    let err = said(&missing, QUIET, &[]);
    assert_eq!(err.matches(ABSENT).count(), 1, "{err}");
    assert!(err.contains("/no/such/library.so"), "{err}");
}

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("absent", absent),
    ("tcp_only", tcp_only),
    ("mistake", mistake),
    ("wait", wait),
    ("relative", relative),
    ("connection", connection),
    ("others", others),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["--program"] {
        program();
        return ExitCode::SUCCESS;
    }
    if arguments.iter().any(|a| a == "--list") {
        for (name, _) in TESTS {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with("--")).collect();
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    let tests: Vec<&Test> = TESTS.iter().filter(|(name, _)| chosen(name)).collect();
    println!("\nrunning {} tests", tests.len());
    let mut failed = 0;
    for (name, test) in &tests {
        let good = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if good { "ok" } else { "FAILED" });
        failed += usize::from(!good);
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    let passed = tests.len() - failed;
    println!("\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out\n");
    ExitCode::from(u8::from(failed != 0))
}
