// SPDX-License-Identifier: GPL-2.0-only

//! Tests the whole program: its explanation of rules.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sdpctl-{name}-{}", std::process::id()));
        fs::write(&path, text).unwrap();
        File(path)
    }

    fn check(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let done = Command::new(env!("CARGO_BIN_EXE_sdpctl"))
            .arg("check")
            .arg(&self.0)
            .args(words)
            .output()
            .unwrap();
        let text = |raw| {
            let text = String::from_utf8(raw).unwrap();
            text.replace(self.0.to_str().unwrap(), "FILE")
        };
        (done.status.code(), text(done.stdout), text(done.stderr))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

const RULES: &str = "\
# programs of ours
log min-level 7 destination file /var/tmp/sdp.log
use tcp client * 127.0.0.0/8:*
use sdp server redis-* 10.0.0.1:6379
use both connect * *:1024-65535
use tcp client ssh 10.0.0.0/8:2000
use tcp server /usr/sbin/sshd *:22
";

#[test]
fn what_rules_mean() {
    let file = File::new("means", RULES);
    let (status, out, err) = file.check(&[]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert_eq!(
        out,
        "\
FILE: 5 rules, the first that matches decides
  line 3: any program that connects to 127.0.0.0/8, any port: TCP only
  line 4: redis-* that listens on 10.0.0.1, port 6379: SDP only
  line 5: any program that connects to any address, ports 1024-65535: SDP, or TCP where that fails
  line 6: ssh that connects to 10.0.0.0/8, port 2000: TCP only
    note: never decides: line 5 matches all its sockets
  line 7: /usr/sbin/sshd that listens on any address, port 22: TCP only
    note: matches nothing: a program is known by its name without a directory
  otherwise: servers SDP and TCP, clients SDP, or TCP where that fails
  log: messages from level 7 up, to /var/log/sdp.log for root, /var/tmp/sdp.log.UID/log for others
"
    );
}

#[test]
fn what_they_mean_for_a_program() {
    let file = File::new("program", RULES);
    let (_, out, _) = file.check(&["--program", "redis-server"]);
    assert_eq!(out.lines().count(), 5, "{out}");
    let (status, out, _) = file.check(&[
        "--program",
        "redis-server",
        "--listen",
        "10.0.0.1:6379",
        "--listen",
        "[::]:6379",
        "--connect",
        "127.0.0.1:6379",
    ]);
    assert_eq!(status, Some(0));
    assert_eq!(
        out,
        "\
redis-server listens on 10.0.0.1:6379: SDP only (line 4: use sdp server redis-* 10.0.0.1/32:6379)
redis-server listens on [::]:6379: SDP and TCP (no rule matches)
redis-server connects to 127.0.0.1:6379: TCP only (line 3: use tcp client * 127.0.0.0/8:*)
"
    );
    assert_eq!(file.check(&["--listen", "10.0.0.1:6379"]).0, Some(2));
}

#[test]
fn as_json() {
    let file = File::new("json", RULES);
    let json = |words: &[&str]| {
        let (status, out, err) = file.check(&[words, &["--json"]].concat());
        assert_eq!((status, err.as_str()), (Some(0), ""));
        serde_json::from_str::<serde_json::Value>(&out).unwrap()
    };
    let all = json(&[]);
    assert_eq!(all["rules"].as_array().unwrap().len(), 5);
    assert_eq!(all["rules"][3]["hidden_by"], 5);
    assert_eq!(all["otherwise"], "both");
    let redis = json(&["-p", "redis-server", "-l", "10.0.0.1:6379", "-c", "[::1]:1"]);
    let first = &redis["decisions"][0];
    assert_eq!((&first["mode"], &first["line"]), (&"sdp".into(), &4.into()));
    assert!(redis["decisions"][1]["line"].is_null());
    assert_eq!(json(&["-p", "ssh"])["rules"].as_array().unwrap().len(), 3);
}

#[test]
fn no_rules() {
    let file = File::new("none", "# nothing yet\n");
    let (_, out, _) = file.check(&[]);
    assert!(
        out.contains("FILE: no rules\n  otherwise: servers SDP and TCP, clients "),
        "{out}"
    );
}

#[test]
fn problems() {
    let file = File::new(
        "bad",
        "use both server * *:*\nuse sdp client * 10.0.0.1\nlog loudly\n",
    );
    let (status, out, err) = file.check(&[]);
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert_eq!(
        err,
        "\
sdpctl: FILE: line 2, column 26: expected ':' and ports after the address, but the line ends
sdpctl: FILE: line 3, column 5: expected 'destination' or 'min-level', found 'loudly'
sdpctl: no rule of this file applies: every socket stays TCP
"
    );
    let missing = File(PathBuf::from("/nonexistent/rules"));
    let (status, _, err) = missing.check(&[]);
    assert_eq!(status, Some(1));
    assert!(err.starts_with("sdpctl: FILE: No such file"), "{err}");
}

/// Below another root, the drop-in is written, rewritten, and removed with its directory.
#[test]
fn units() {
    let root = std::env::temp_dir().join(format!("sdpctl-units-{}", std::process::id()));
    let run = |words: &[&str]| {
        let mut c = Command::new(env!("CARGO_BIN_EXE_sdpctl"));
        let done = c.args(words).arg("--root").arg(&root).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let folder = root.join("etc/systemd/system");
    let files = ["nginx.service.d/sdp.conf", "pg@.service.d/sdp.conf"].map(|f| folder.join(f));
    for _ in 0..2 {
        assert_eq!(
            run(&["enable", "nginx", "pg@.service"]),
            (Some(0), String::new())
        );
        let text = files.each_ref().map(|f| fs::read_to_string(f).unwrap());
        let sdpctl = env!("CARGO_BIN_EXE_sdpctl");
        let line = format!("\nExecStartPre=-+{sdpctl} map add --pin unit-nginx --own-cgroup\n");
        assert!(text[0].contains(&line), "{}", text[0]);
        assert!(text[1].contains("unit-pg@%i"), "{}", text[1]);
    }
    // the drop-in of an earlier sdpctl
    let old = fs::read_to_string(&files[1]).unwrap();
    fs::write(&files[1], old.replace("unit-pg@%i", "unit-pg_%i")).unwrap();
    assert_eq!(run(&["enable", "pg@"]), (Some(0), String::new()));
    assert_eq!(fs::read_to_string(&files[1]).unwrap(), old);
    fs::write(folder.join("nginx.service.d/own.conf"), "").unwrap();
    assert_eq!(run(&["disable", "nginx", "pg@"]), (Some(0), String::new()));
    assert!(folder.join("nginx.service.d/own.conf").exists());
    assert!(!files[0].exists() && !folder.join("pg@.service.d").exists());
    let (status, err) = run(&["disable", "nginx"]);
    assert_eq!(status, Some(1));
    assert!(err.contains("sdp.conf: No such file"), "{err}");
    let (status, err) = run(&["enable", "../x"]);
    assert_eq!(status, Some(1));
    assert!(err.contains("is no name of a service"), "{err}");
    fs::remove_dir_all(root).unwrap();
}
