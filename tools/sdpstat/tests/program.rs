// SPDX-License-Identifier: GPL-2.0-only

//! Tests the whole program: its outputs and its status.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A directory like a procfs, deleted at the end.
struct Procfs(PathBuf);

impl Procfs {
    fn new(name: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("sdpstat-program-{name}-{}", std::process::id()));
        let net = dir.join("thread-self/net");
        fs::create_dir_all(&net).unwrap();
        fs::write(
            net.join("sdp"),
            "  sl  local_address rem_address\n   0: 0100007F:2455 00000000:0000 0 7\t00000001:00000000 A\n",
        )
        .unwrap();
        fs::write(
            net.join("sdpstats"),
            "SDP statistics:\nrx_bytes\t\t: 5\ntx_bytes\t\t: 0\n",
        )
        .unwrap();
        Procfs(dir)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_sdpstat"));
        c.arg("--proc").arg(&self.0).args(words);
        c
    }

    fn run(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = self.command(words).output().unwrap();
        (
            status.code(),
            String::from_utf8(stdout).unwrap(),
            String::from_utf8(stderr).unwrap(),
        )
    }
}

impl Drop for Procfs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn tables() {
    let proc = Procfs::new("tables");
    let (status, out, err) = proc.run(&[]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    let wanted = "\
State   Recv-Q  Send-Q  Local           Remote     User  Inode
LISTEN       1       0  127.0.0.1:9301  0.0.0.0:*     0      7

Counter   Total
rx_bytes      5
";
    assert_eq!(out, wanted);
}

/// A reader of the file finds the old text or the new text, even if the file cannot be written.
#[test]
fn a_file_that_is_replaced() {
    let proc = Procfs::new("file");
    let folder = proc.0.join("textfile");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("sdp.prom");
    fs::write(&file, "old").unwrap();
    let old = fs::File::open(&file).unwrap();
    let write = |to: &str| proc.run(&["--prometheus=text", "-o", to]);
    assert_eq!(
        write(file.to_str().unwrap()),
        (Some(0), String::new(), String::new())
    );
    assert_eq!(std::io::read_to_string(old).unwrap(), "old");
    let text = fs::read_to_string(&file).unwrap();
    for line in [
        "# TYPE sdp_received_bytes_total counter",
        "sdp_received_bytes_total 5",
    ] {
        assert!(text.lines().any(|l| l == line), "{text}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    let (status, _, err) = write(folder.to_str().unwrap());
    assert_eq!(status, Some(1));
    assert!(err.starts_with("sdpstat: "), "{err}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    assert_eq!(fs::read_dir(&proc.0).unwrap().count(), 2);
}

#[test]
fn complaints() {
    let proc = Procfs::new("complaints");
    fs::write(
        proc.0.join("thread-self/net/sdp"),
        "  sl  heading\n  what is this\n",
    )
    .unwrap();
    let (status, out, err) = proc.run(&["sockets"]);
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert!(
        err.starts_with("sdpstat: ") && err.contains("line 2: 3 columns instead of 7"),
        "{err}"
    );
    let (status, _, err) = proc.run(&["--watch", "0"]);
    assert_eq!(status, Some(2));
    assert!(err.contains("must be from 0.1"), "{err}");
}

#[test]
fn watching_goes_on_until_nobody_reads() {
    let proc = Procfs::new("watching");
    let mut child = proc
        .command(&["--json", "--watch", "0.1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(
        first.contains("\"rx_bytes\":5") && !first.contains("per_second"),
        "{first}"
    );
    let second = lines.next().unwrap().unwrap();
    assert!(
        second.contains("\"per_second\":{\"rx_bytes\":0.0"),
        "{second}"
    );
    drop(lines);
    assert!(child.wait().unwrap().success());
}
