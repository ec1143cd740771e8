// SPDX-License-Identifier: GPL-2.0-only

//! Tests the program without SDP: its messages when something is missing, and its status. Tests of
//! this program with SDP are in tests/guest/suites/programs/sdp_check.py.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

const HELLO: &str = "sdp-check 2\n";

fn program() -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_sdp-check"));
    c.stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    c
}

/// Path of a report, which is deleted at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let name = format!("sdp-check-program-{name}-{}", std::process::id());
        File(std::env::temp_dir().join(name))
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn client(port: u16, report: &Path) -> Command {
    let mut c = program();
    c.args(["--no-perftest", "--seconds", "5", "--port"])
        .arg(port.to_string())
        .arg("--report")
        .arg(report)
        .arg("127.0.0.1");
    c
}

/// Runs a command to its end, and returns its status, output and errors.
fn run(mut c: Command) -> (Option<i32>, String, String) {
    let done = c.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

/// A server that is ended with the test.
struct Server(Child, u16);

impl Server {
    fn start() -> Self {
        loop {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            let mut c = program();
            c.args(["--serve", "--listen", "127.0.0.1", "--port"]);
            let mut child = c.arg(port.to_string()).spawn().unwrap();
            let mut line = String::new();
            let mut out = BufReader::new(child.stdout.take().unwrap());
            out.read_line(&mut line).unwrap();
            // the port may have gone to another process
            if line.contains("listening") {
                thread::spawn(move || out.read_to_string(&mut String::new()));
                return Server(child, port);
            }
            child.wait().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server that sends `says` to one client, and then reads until the client closes. Returns
/// its port.
fn somebody(says: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.write_all(says.as_bytes()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    port
}

#[test]
fn both_ends_tell_what_is_there() {
    let (server, report) = (Server::start(), File::new("both"));
    let (status, out, err) = run(client(server.1, &report.0));
    // no RDMA device has 127.0.0.1
    assert_eq!((status, err.as_str()), (Some(1), ""), "{out}");
    for line in [
        "FAIL  here, address: no RDMA device has the address of lo",
        "FAIL  there, address",
        "PASS  here, link lo: up",
        "PASS  MTU of both hosts",
        "passed, ",
    ] {
        assert!(out.contains(line), "{line} is not in {out}");
    }
    let text = report.text();
    assert!(
        text.contains("The host there") && text.contains("kernel "),
        "{text}"
    );
    assert!(!text.contains("127.0.0.1"), "{text}");
    // the server continues after a bad client
    let (status, ..) = run(client(server.1, &report.0));
    assert_eq!(status, Some(1));
}

#[test]
fn one_client_at_a_time() {
    let (server, report) = (Server::start(), File::new("busy"));
    let mut first = TcpStream::connect(("127.0.0.1", server.1)).unwrap();
    first.read_exact(&mut [0; HELLO.len()]).unwrap();
    let (status, _, err) = run(client(server.1, &report.0));
    assert_eq!(status, Some(1));
    assert!(err.contains("serves another client"), "{err}");
    // a client that sends garbage is disconnected, and the next client is served
    first
        .write_all(b"sdp-check 2\nrun ../../etc receive 5\n")
        .unwrap();
    let _ = first.read_to_end(&mut Vec::new());
    while run(client(server.1, &report.0))
        .2
        .contains("another client")
    {}
    assert!(report.text().contains("The host there"));
}

#[test]
fn servers_that_are_none() {
    let report = File::new("none");
    let (status, _, err) = run(client(somebody("sdp-check 3\n"), &report.0));
    assert_eq!(status, Some(1));
    assert!(err.contains("another version"), "{err}");
    let (_, _, err) = run(client(somebody("220 mail\r\n"), &report.0));
    assert!(err.contains("unlike sdp-check --serve"), "{err}");
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let (status, out, err) = run(client(port, &report.0));
    assert_eq!(status, Some(1), "{out}");
    assert!(err.contains("run sdp-check --serve there"), "{err}");
    // the report contains this host's part nevertheless
    assert!(out.contains("FAIL  here, address: no RDMA device"), "{out}");
    let text = report.text();
    for told in ["It ended early: (hidden): no server listens", "\nkernel "] {
        assert!(text.contains(told), "{told} is not in {text}");
    }
}

#[test]
fn this_host_alone() {
    let report = File::new("alone");
    let mut c = program();
    c.arg("--report").arg(&report.0);
    let (_, out, err) = run(c);
    assert_eq!(err, "");
    assert!(out.contains("here, RLIMIT_MEMLOCK"), "{out}");
    assert!(
        out.contains("SKIP  paths of SDP: no other host was named"),
        "{out}"
    );
    assert!(!out.contains("  there, "), "{out}");
    assert!(report.text().contains("\nkernel "), "{}", report.text());
}

#[test]
fn as_json() {
    let report = File::new("json");
    let mut c = program();
    c.args(["--json", "--report"]).arg(&report.0);
    let (_, out, err) = run(c);
    assert_eq!((err.as_str(), out.lines().count()), ("", 1), "{out}");
    let all: serde_json::Value = serde_json::from_str(&out).unwrap();
    let checks = all["checks"].as_array().unwrap();
    let skipped = checks.iter().filter(|c| c["verdict"] == "SKIP").count();
    assert_eq!(all["skipped"], skipped);
    assert!(checks.iter().any(|c| c["name"] == "paths of SDP"), "{out}");
    assert_eq!(all["complete"], true);
    assert!(report.text().contains("SKIP  paths of SDP"));
}

#[test]
fn a_peer_that_dies() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.write_all(HELLO.as_bytes()).unwrap();
        let mut asked = vec![0; HELLO.len() + "facts\n".len()];
        stream.read_exact(&mut asked).unwrap();
        stream.write_all(b"text kernel x\n").unwrap();
    });
    let report = File::new("dies");
    let (status, out, err) = run(client(port, &report.0));
    assert_eq!(status, Some(1), "{out}");
    assert!(
        err.contains("the other end has closed the connection"),
        "{err}"
    );
}

#[test]
fn interrupted() {
    let report = File::new("interrupted");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut child = client(port, &report.0).spawn().unwrap();
    let mut stream = listener.accept().unwrap().0;
    // the program waits for a reply
    stream.read_exact(&mut [0; HELLO.len()]).unwrap();
    // SAFETY: the process is not waited for yet, so the PID is still its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(report.text().contains("it was interrupted"));
}

#[test]
fn ports_and_files() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut c = program();
    c.args(["--serve", "--listen", "127.0.0.1", "--port"]);
    c.arg(port.to_string());
    let (status, _, err) = run(c);
    assert_eq!(status, Some(1));
    assert!(err.contains("another program has it"), "{err}");
    let (status, _, err) = run(client(port, "/nowhere/report".as_ref()));
    assert_eq!(status, Some(1));
    assert!(
        err.contains("cannot write the report /nowhere/report"),
        "{err}"
    );
    let (status, _, err) = run(client(somebody("x\n"), "/dev/full".as_ref()));
    assert_eq!(status, Some(1));
    assert!(
        err.contains("/dev/full is not whole: No space left"),
        "{err}"
    );
    for wrong in [
        &["--serve", "host"][..],
        &["host", "--seconds", "4"],
        &["host", "--port", "0"],
    ] {
        let mut c = program();
        c.args(wrong);
        assert_eq!(run(c).0, Some(2), "{wrong:?}");
    }
}

/// A closed pipe or a full disk affects only the output.
#[test]
fn outputs_that_take_nothing() {
    let full = || {
        Stdio::from(
            fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap(),
        )
    };
    let closed = || {
        let mut reader = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
        let pipe = reader.stdin.take().unwrap();
        reader.wait().unwrap();
        Stdio::from(pipe)
    };
    for (name, out, err) in [("closed", closed(), closed()), ("full", full(), full())] {
        let report = File::new(name);
        let mut c = program();
        c.args(["--no-perftest", "--report"]).arg(&report.0);
        let status = c.stdout(out).stderr(err).status().unwrap();
        // 101 means a panic, and a signal has no code
        assert!(matches!(status.code(), Some(0 | 1)), "{name}: {status}");
        assert!(report.text().contains(" skipped\n"), "{name}");
    }
    let mut c = program();
    let (status, _, err) = {
        c.args(["--no-perftest", "--report", "/dev/full"]);
        run(c)
    };
    assert_eq!(status, Some(1), "{err}");
    assert!(err.contains("/dev/full is not whole"), "{err}");
}
