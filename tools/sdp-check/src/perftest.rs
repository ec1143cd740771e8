// SPDX-License-Identifier: GPL-2.0-only

//! Measures the adapter without SDP by perftest's `ib_send_bw` and `ib_send_lat`, where both hosts
//! have them.

use std::io::Read;
use std::net::{IpAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Index of a GID in the table of a device's port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gid {
    pub device: String,
    pub port: String,
    pub index: String,
}

/// Maximum time from a program's start until it is ready.
const READY: Duration = Duration::from_secs(30);
/// Maximum number of messages.
pub const MOST: u64 = 200_000;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Test {
    Throughput,
    Latency,
}

impl Test {
    pub fn program(self) -> &'static str {
        match self {
            Test::Throughput => "ib_send_bw",
            Test::Latency => "ib_send_lat",
        }
    }

    pub fn of(program: &str) -> Option<Self> {
        [Test::Throughput, Test::Latency]
            .into_iter()
            .find(|t| t.program() == program)
    }

    /// Returns the bytes of a message.
    fn size(self) -> &'static str {
        match self {
            Test::Throughput => "65536",
            Test::Latency => "64",
        }
    }
}

/// Returns the path of a program, if it is installed.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&path).map(|dir| dir.join(program));
    all.find(|p| p.is_file())
}

/// Parameters of a measurement, the same at both ends.
#[derive(Clone, Copy)]
pub struct Job {
    pub test: Test,
    /// Messages to send.
    pub count: u64,
    /// TCP port by which client and server find each other.
    pub port: u16,
    /// Local address, for its family.
    pub here: IpAddr,
}

/// A running program that ends with this program, or when it is dropped.
pub struct Running(Child);

impl Running {
    /// Starts a server, or the client of a server. `gid` selects the entry of the device's GID
    /// table. Without `gid` (InfiniBand) rdma_cm finds the path.
    pub fn start(job: &Job, gid: Option<&Gid>, to: Option<IpAddr>) -> Result<Self, String> {
        let program = job.test.program();
        let path = find(program).ok_or_else(|| format!("{program} is not installed"))?;
        let mut command = Command::new(path);
        // perftest waits for events, as SDP does
        command.args(["-F", "-e", "-s", job.test.size()]);
        command.args(["-n", &job.count.to_string(), "-p", &job.port.to_string()]);
        match gid {
            Some(g) => command.args(["-d", &g.device, "-i", &g.port, "-x", &g.index]),
            None => command.arg("-R"),
        };
        command.args(job.here.is_ipv6().then_some("--ipv6-addr"));
        command.args(to.map(|to| to.to_string()));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // SAFETY: the child makes one system call between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let child = command.spawn();
        child.map(Running).map_err(|e| format!("{program}: {e}"))
    }

    /// Starts a server, and returns when it listens.
    pub fn serve(job: &Job, gid: Option<&Gid>) -> Result<Self, String> {
        let mut running = Self::start(job, gid, None)?;
        let end = Instant::now() + READY;
        // a program that uses rdma_cm does not listen on a TCP port, and is not detected
        while gid.is_some() && !listens(job.port) {
            if Instant::now() > end || !matches!(running.0.try_wait(), Ok(None)) {
                return Err(running
                    .output(Duration::ZERO)
                    .err()
                    .unwrap_or("the program does not listen".into()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(running)
    }

    /// Returns the output if the program ends successfully within `time`. The output is smaller
    /// than a pipe's buffer.
    pub fn output(&mut self, time: Duration) -> Result<String, String> {
        let end = Instant::now() + time;
        let status = loop {
            match self.0.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() > end => return Err("the program does not end".into()),
                Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                Err(e) => return Err(e.to_string()),
            }
        };
        let mut text = String::new();
        let _ = self
            .0
            .stdout
            .take()
            .map(|mut out| out.read_to_string(&mut text));
        if status.success() {
            return Ok(text);
        }
        let _ = self
            .0
            .stderr
            .take()
            .map(|mut out| out.read_to_string(&mut text));
        Err(complaint(&text))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns true if a socket listens at a TCP port of this network namespace.
fn listens(port: u16) -> bool {
    let files =
        ["tcp", "tcp6"].map(|f| std::fs::read_to_string(format!("/proc/thread-self/net/{f}")));
    files.iter().flatten().any(|text| is_listed(text, port))
}

fn is_listed(text: &str, port: u16) -> bool {
    let end = format!(":{port:04X}");
    text.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(1).is_some_and(|at| at.ends_with(&end)) && words.get(3) == Some(&"0A")
    })
}

/// Returns an unused port.
pub fn free_port(at: IpAddr) -> Option<u16> {
    let listener = TcpListener::bind((at, 0)).ok()?;
    listener.local_addr().ok().map(|a| a.port())
}

/// Returns the error text of a failed program: the status of a work request, or else its last line
/// that is not a counter.
fn complaint(text: &str) -> String {
    let lines = || text.lines().map(str::trim).filter(|l| !l.is_empty());
    let status = lines().find(|l| l.starts_with("Failed status"));
    let last = || lines().rev().find(|l| !l.starts_with("scnt="));
    let said = status
        .or_else(last)
        .unwrap_or("the program failed without a message");
    match said.starts_with("Failed status 12:") {
        true => format!("{said} (the other adapter did not answer, after all retries)"),
        false => said.into(),
    }
}

/// Parses the result: bytes a second, or microseconds.
pub fn result(test: Test, text: &str) -> Option<f64> {
    let mut lines = text
        .lines()
        .skip_while(|l| !l.trim_start().starts_with("#bytes"));
    let heading = lines.next()?;
    let row: Vec<&str> = lines.next()?.split_whitespace().collect();
    // of a heading of two words, the second is the unit
    let words = heading.split_whitespace();
    let columns: Vec<&str> = words
        .filter(|w| !["BW", "tps", "99%", "99.9%"].contains(w))
        .collect();
    let wanted = |c: &str| match test {
        Test::Throughput => c.starts_with("average["),
        Test::Latency => c.starts_with("t_typical") || c.starts_with("t_avg"),
    };
    let at = columns.iter().position(|c| wanted(c))?;
    let value: f64 = row.get(at)?.parse().ok()?;
    let unit = match test {
        Test::Throughput if columns[at].contains("MiB") || columns[at].contains("MB") => 1048576.0,
        Test::Throughput => 1e9 / 8.0,
        Test::Latency => 1.0,
    };
    (value > 0.0).then_some(value * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BW: &str = "----\n RDMA_CM QPs : ON\n----\n #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 65536      1700             0.00               52.50  \t\t     0.000840\n----\n";
    const LAT: &str = " #bytes        #iterations       t_avg[usec]    tps average\n 64            3000              310.55          1610.00\n";

    #[test]
    fn results() {
        assert_eq!(result(Test::Throughput, BW), Some(52.5 * 1048576.0));
        let gbits = BW.replace("MB/sec", "Gb/sec");
        assert_eq!(result(Test::Throughput, &gbits), Some(52.5e9 / 8.0));
        assert_eq!(result(Test::Latency, LAT), Some(310.55));
        let each = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n 64      1000          1.0            9.0          1.5 2.0\n";
        assert_eq!(result(Test::Latency, each), Some(1.5));
        for wrong in [
            "",
            "#bytes\n",
            " #bytes  BW average[MB/sec]\n 5 x\n",
            " #bytes  BW average[MB/sec]\n 5 0.00\n",
        ] {
            assert_eq!(result(Test::Throughput, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn complaints() {
        let lost = " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=200, ccnt=100\n Failed to complete run_iter_bw function successfully\n";
        assert!(complaint(lost).starts_with("Failed status 12: wr_id 0 syndrom 0x81 (the other"));
        let wait = "Couldn't connect to 10.77.0.2:18515\n\nscnt=1, ccnt=0\n";
        assert_eq!(complaint(wait), "Couldn't connect to 10.77.0.2:18515");
        assert_eq!(complaint("\n"), "the program failed without a message");
    }

    #[test]
    fn who_listens() {
        let rows = "  sl  local_address rem_address   st\n   0: 0100007F:4853 00000000:0000 0A 0\n   1: 0100007F:0016 00000000:0000 01 0\n";
        assert!(is_listed(rows, 0x4853) && !is_listed(rows, 0x16) && !is_listed(rows, 0x853));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listens(listener.local_addr().unwrap().port()));
    }

    #[test]
    fn programs_that_are_not_there() {
        assert_eq!(find("ib_send_nothing"), None);
        assert_eq!(Test::of("rm"), None);
        assert_eq!(Test::of("ib_send_lat"), Some(Test::Latency));
    }
}
