// SPDX-License-Identifier: GPL-2.0-only

//! The library in programs: this test itself is the program, started again with the library, in a
//! network namespace of its own. TCP of a second namespace stands in for SDP (see `stand_in` in
//! `replace.rs`): it has ports of its own, and who is reached there has been reached by "SDP".
//!
//! The tests print what cargo's own do.

#[path = "preload/programs/mod.rs"]
mod programs;

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A program that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two namespaces: where programs are, and the one that stands in for SDP.
struct Bed {
    dir: PathBuf,
    sdp: File,
    /// What programs are told to wait for "SDP": a slow machine does not count.
    wait: Cell<&'static str>,
}

const PATIENT: &str = "60000";

fn unshare() {
    // SAFETY: numbers only; no other thread runs yet.
    let r = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(r, 0, "this test needs the right to make network namespaces");
    // SAFETY: an ioctl with a request that is filled in.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as _;
        request.ifr_name[1] = b'o' as _;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
        assert_eq!(libc::ioctl(fd, libc::SIOCSIFFLAGS, &request), 0);
        libc::close(fd);
    }
}

impl Bed {
    fn new() -> Self {
        unshare();
        let sdp = File::open("/proc/thread-self/ns/net").unwrap();
        unshare();
        let dir = std::env::temp_dir().join(format!("libsdp-preload-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let wait = Cell::new(PATIENT);
        Bed { dir, sdp, wait }
    }

    /// A program under the library.
    fn program(&self, name: &str, rules: &str) -> Program {
        Program::new(self, name, Some(rules), true)
    }
}

/// The library that was built with this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let deps = own.parent().unwrap();
    let places = [deps.join("libsdp.so"), deps.join("../libsdp.so")];
    let time = |p: &PathBuf| p.metadata().and_then(|m| m.modified()).ok();
    let newest = places.into_iter().filter(|p| p.exists()).max_by_key(time);
    newest.expect("libsdp.so").canonicalize().unwrap()
}

/// One of [`programs`], started.
struct Program {
    name: String,
    child: Child,
    lines: mpsc::Receiver<String>,
    log: mpsc::Receiver<String>,
}

fn pass_on(from: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (to, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

impl Program {
    fn new(bed: &Bed, name: &str, rules: Option<&str>, sdp: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--program", name])
            .env_remove("LIBSDP_CONFIG_FILE")
            .env("LIBSDP_WAIT", bed.wait.get())
            .env("LIBSDP_LOG", "stderr:7")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(rules) = rules {
            let file = bed.dir.join(format!("rules-{name}"));
            fs::write(&file, rules).unwrap();
            command.env("LD_PRELOAD", library());
            command.env("LIBSDP_CONFIG_FILE", file);
        }
        if sdp {
            let pid = std::process::id();
            let namespace = format!("/proc/{pid}/fd/{}", bed.sdp.as_raw_fd());
            command.env("SDP_STAND_IN", namespace);
        }
        let mut child = command.spawn().unwrap();
        let lines = pass_on(child.stdout.take().unwrap());
        let log = pass_on(child.stderr.take().unwrap());
        let name = name.to_string();
        Program {
            name,
            child,
            lines,
            log,
        }
    }

    /// The next line that it prints.
    fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(e) => {
                let _ = self.child.kill();
                let log: Vec<_> = self.log.iter().collect();
                panic!("no line ({e}), and on stderr: {}", log.join("\n"));
            }
        }
    }

    /// All that it printed, and its log, once it has ended well.
    fn end(mut self) -> (Vec<String>, Vec<String>) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let log: Vec<_> = self.log.iter().collect();
                let lines: Vec<_> = self.lines.iter().collect();
                let said = log.join("\n");
                panic!("{} hangs; printed {lines:?}; on stderr: {said}", self.name);
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let (lines, log): (Vec<_>, Vec<_>) =
            (self.lines.iter().collect(), self.log.iter().collect());
        assert!(status.success(), "{status}: {}", log.join("\n"));
        (lines, log)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const BOTH: &str = "use both server * *:*\nuse both client * *:*\n";
const SERVE_SDP: &str = "use sdp server * *:*\n";
const SERVE_TCP: &str = "use tcp server * *:*\nuse tcp client * *:*\n";

/// How the log says a call went.
fn told(log: &[String], call: &str) -> Vec<String> {
    let call = format!("]: {call} ");
    let of = log.iter().filter_map(|l| l.split_once(&call));
    of.map(|(_, rest)| rest.rsplit_once(": ").map_or(rest, |(_, r)| r).to_string())
        .collect()
}

/// Runs a client program against a server of that kind; the client's lines and log.
fn against(bed: &Bed, server: &str, name: &str, rules: &str) -> (Vec<String>, Vec<String>) {
    let mut echo = bed.program("echo", server);
    let port = echo.line();
    let mut command = bed.dir.join("port");
    command.set_extension(name);
    fs::write(bed.dir.join("port"), port).unwrap();
    std::env::set_var(
        "SDP_TEST_PORT",
        fs::read_to_string(bed.dir.join("port")).unwrap(),
    );
    bed.program(name, rules).end()
}

type Test = (&'static str, fn(&Bed));

/// A client of each kind that reaches a server by SDP.
fn by_sdp(bed: &Bed) {
    for name in programs::CLIENTS {
        let (lines, log) = against(bed, SERVE_SDP, name, BOTH);
        assert_eq!(lines, ["ok"], "{name}: {log:?}");
        assert_eq!(told(&log, "connect"), ["SDP"], "{name}: {log:?}");
    }
}

/// The same clients, where only TCP listens.
fn by_tcp(bed: &Bed) {
    for name in programs::CLIENTS {
        let (lines, log) = against(bed, SERVE_TCP, name, BOTH);
        assert_eq!(lines, ["ok"], "{name}: {log:?}");
        let said = log
            .iter()
            .any(|l| l.contains("TCP (SDP: connection refused)"));
        assert!(said, "{name}: {log:?}");
    }
}

/// The same clients, where nobody listens: they see TCP's errno.
fn refused(bed: &Bed) {
    for name in programs::CLIENTS {
        std::env::set_var("SDP_TEST_PORT", "1");
        let (lines, log) = bed.program(name, BOTH).end();
        assert_eq!(lines, ["ECONNREFUSED"], "{name}: {log:?}");
    }
}

/// A listener of "SDP" on that port which takes no connection, and what fills its queue: who
/// connects there hears nothing.
fn silence(bed: &Bed, port: u16) -> Vec<OwnedFd> {
    let namespace = bed.sdp.as_raw_fd();
    let made = std::thread::spawn(move || {
        // SAFETY: numbers, and an address that is there.
        unsafe {
            assert_eq!(libc::setns(namespace, libc::CLONE_NEWNET), 0);
            let mut to: libc::sockaddr_in = std::mem::zeroed();
            to.sin_family = libc::AF_INET as _;
            to.sin_port = port.to_be();
            to.sin_addr.s_addr = u32::from(Ipv4Addr::LOCALHOST).to_be();
            let (to, length) = ((&raw const to).cast(), std::mem::size_of_val(&to) as u32);
            let socket = || {
                let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0);
                OwnedFd::from_raw_fd(fd)
            };
            let mut all = vec![socket()];
            assert_eq!(libc::bind(all[0].as_raw_fd(), to, length), 0);
            assert_eq!(libc::listen(all[0].as_raw_fd(), 0), 0);
            for _ in 0..3 {
                all.push(socket());
                libc::connect(all[all.len() - 1].as_raw_fd(), to, length);
            }
            all
        }
    });
    made.join().unwrap()
}

/// The same clients, where SDP does not answer and TCP listens; some of them do not wait for long.
fn silent(bed: &Bed) {
    bed.wait.set("500");
    for name in programs::CLIENTS {
        let mut echo = bed.program("echo", SERVE_TCP);
        let port = echo.line();
        let _silence = silence(bed, port.parse().unwrap());
        std::env::set_var("SDP_TEST_PORT", port);
        let (lines, log) = bed.program(name, BOTH).end();
        assert_eq!(lines, ["ok"], "{name}: {log:?}");
        let how = match *name {
            "twice" => "TCP (no SDP lately)",
            _ => "TCP (SDP: timed out)",
        };
        assert!(log.iter().any(|l| l.contains(how)), "{name}: {log:?}");
    }
    bed.wait.set(PATIENT);
}

/// A time to wait that is none is told, and the usual one holds.
fn bad_wait(bed: &Bed) {
    bed.wait.set("soon");
    let (lines, log) = against(bed, SERVE_SDP, "blocking", BOTH);
    bed.wait.set(PATIENT);
    assert_eq!(lines, ["ok"], "{log:?}");
    let told = |l: &String| l.contains("LIBSDP_WAIT=soon is no number of milliseconds");
    assert!(log.iter().any(told), "{log:?}");
}

/// SDP only: there is no second try.
fn sdp_only(bed: &Bed) {
    let (lines, _) = against(bed, SERVE_TCP, "blocking", "use sdp client * *:*\n");
    assert_eq!(lines, ["ECONNREFUSED"]);
    let (lines, log) = against(bed, SERVE_SDP, "nonblocking-epoll", "# no rules\n");
    assert_eq!(
        (lines, told(&log, "connect")),
        (vec!["ok".to_string()], vec![])
    );
}

/// TCP only: the library has no part in it.
fn tcp_only(bed: &Bed) {
    let (lines, log) = against(bed, BOTH, "blocking", "use tcp client * 127.0.0.0/8:*\n");
    assert_eq!((lines, log), (vec!["ok".to_string()], vec![]));
}

/// A server of each kind takes connections of both kinds.
fn servers(bed: &Bed) {
    for name in programs::SERVERS {
        let mut server = bed.program(name, BOTH);
        let port = server.line();
        std::env::set_var("SDP_TEST_PORT", port);
        for (rules, how) in [
            ("use sdp client * *:*\n", "SDP"),
            (SERVE_TCP, "TCP"),
            ("use sdp client * *:*\n", "SDP"),
        ] {
            let (lines, log) = bed.program("blocking", rules).end();
            assert_eq!(lines, ["ok"], "{name} by {how}: {log:?}");
        }
        let (lines, log) = server.end();
        assert_eq!(lines, ["served 3"], "{name}: {log:?}");
        assert_eq!(
            told(&log, "accept"),
            ["SDP", "TCP", "SDP"],
            "{name}: {log:?}"
        );
    }
}

/// Without SDP in the kernel all is TCP, and that is said once.
fn absent(bed: &Bed) {
    let mut echo = Program::new(bed, "echo", Some(BOTH), false);
    let port = echo.line();
    std::env::set_var("SDP_TEST_PORT", port);
    for name in programs::CLIENTS {
        let (lines, log) = Program::new(bed, name, Some("log destination stderr\n"), false).end();
        assert_eq!(lines, ["ok"], "{name}: {log:?}");
        assert_eq!(log.len(), 1, "{log:?}");
        assert!(
            log[0].contains("the kernel has no SDP (address family not supported)"),
            "{log:?}"
        );
    }
}

/// A file with a mistake means TCP, and the mistake is told.
fn bad_rules(bed: &Bed) {
    let (lines, log) = against(
        bed,
        SERVE_TCP,
        "blocking",
        "use sdp client * *:*\nuse sdp somebody * *:*\n",
    );
    assert_eq!(lines, ["ok"], "{log:?}");
    assert_eq!(log.len(), 1, "{log:?}");
    let told =
        "line 2, column 9: expected 'server', 'listen', 'client' or 'connect', found 'somebody'";
    assert!(
        log[0].contains(told) && log[0].ends_with("every socket stays TCP"),
        "{log:?}"
    );
}

/// Programs that do one thing and check it themselves.
fn alone(bed: &Bed) {
    for name in programs::ALONE {
        let (lines, log) = bed.program(name, BOTH).end();
        assert_eq!(lines, ["ok"], "{name}: {log:?}");
    }
}

const TESTS: &[Test] = &[
    ("by_sdp", by_sdp),
    ("by_tcp", by_tcp),
    ("refused", refused),
    ("silent", silent),
    ("bad_wait", bad_wait),
    ("sdp_only", sdp_only),
    ("tcp_only", tcp_only),
    ("servers", servers),
    ("absent", absent),
    ("bad_rules", bad_rules),
    ("alone", alone),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, name] = &arguments[..] {
        if word == "--program" {
            return programs::run(name);
        }
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
    if !tests.is_empty() {
        let bed = Bed::new();
        for (name, test) in &tests {
            let bed = std::panic::AssertUnwindSafe(&bed);
            let good = std::panic::catch_unwind(|| test(&bed)).is_ok();
            println!("test {name} ... {}", if good { "ok" } else { "FAILED" });
            failed += usize::from(!good);
        }
        let _ = fs::remove_dir_all(&bed.dir);
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    let passed = tests.len() - failed;
    println!("\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out\n");
    ExitCode::from(u8::from(failed != 0))
}
