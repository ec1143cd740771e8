// SPDX-License-Identifier: GPL-2.0-only

//! `sdp-check HOST`: all checks of both hosts and of the paths between them.

use crate::control::Control;
use crate::counters::{self, Counters};
use crate::devices;
use crate::facts::{self, Facts};
use crate::judge;
use crate::log;
use crate::numbers::Numbers;
use crate::options::Options;
use crate::path::Path;
use crate::report::Report;
use crate::sock::Data;
use crate::trial::Trial;
use crate::verdict::{clean, Check};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time limit of the whole run. The loss of the other host is detected long before this limit.
const WHOLE: Duration = Duration::from_secs(3600);
/// Time that the other host may take for steps other than trials.
pub const ANSWER: Duration = Duration::from_secs(60);
/// Time that a trial may take beyond the requested duration.
const GRACE: Duration = Duration::from_secs(90);
/// Number of parts into which the trials divide the time.
const PARTS: u32 = 24;

/// Headings of the report.
const HOST: &str = "The host";
const LOG: &str = "The kernel's log of SDP and RDMA";

pub type Outcome<T> = Result<T, String>;

/// Returns the first address of the host that accepts a connection.
fn connect(host: &str, port: u16) -> Outcome<TcpStream> {
    let all = (host, port).to_socket_addrs();
    let all = all.map_err(|e| format!("{host}: {e}"))?;
    let mut last = "the name has no address".to_string();
    for address in all {
        match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
            Ok(stream) => return Ok(stream),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                last = format!("no server listens at TCP port {port}: run sdp-check --serve there, with the same --port");
            }
            Err(e) => {
                last = format!(
                    "{e} (TCP port {port}; is the host up, and does a firewall allow the port?)"
                )
            }
        }
    }
    Err(format!("{host}: {last}"))
}

pub struct Client<'a> {
    pub control: Control,
    report: &'a Mutex<Report>,
    pub options: &'a Options,
    /// Address of the other host.
    pub to: SocketAddr,
    pub part: Duration,
    /// Values of `zcopy_ways` at this host and at the other host.
    ways: [Option<u64>; 2],
}

pub fn lock(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the local address of a route to the other host.
fn source(host: &str) -> Option<IpAddr> {
    let to = (host, 9).to_socket_addrs().ok()?.next()?;
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // sends nothing
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip().to_canonical())
}

/// Adds the facts about one host, or its log, and the checks on them to the report.
fn tell(report: &Mutex<Report>, heading: &str, name: &str, facts: &Facts) {
    let mut report = lock(report);
    report.heading(&format!("{heading} {name}"));
    for line in &facts.text {
        report.text(&format!("{line}\n"));
    }
    report.text("\n");
    report.checks(name, &facts.checks);
}

/// # Errors
///
/// Returns an error, in a sentence, if the run was aborted.
pub fn run(options: &Options, report: &Mutex<Report>) -> Outcome<()> {
    log::ask();
    let done = all(options, report);
    // reads the log also after an error, because it may contain the cause
    tell(report, LOG, "here", &log::find(options.names));
    done
}

fn all(options: &Options, report: &Mutex<Report>) -> Outcome<()> {
    let hide = |name: String| {
        if !options.names {
            lock(report).hide(name);
        }
    };
    hide(devices::line("/proc/sys/kernel/hostname").unwrap_or_default());
    let Some(host) = options.host.as_deref() else {
        let ours = Facts::find(None, options.names, false);
        tell(report, HOST, "here", &ours);
        lock(report).check(&Check::skip(
            "paths of SDP",
            "no other host was named: sdp-check --serve there, then sdp-check HOST here",
        ));
        return Ok(());
    };
    hide(host.into());
    let stream = connect(host, options.port);
    let unknown = |e: io::Error| e.to_string();
    let here = match &stream {
        Ok(stream) => Some(stream.local_addr().map_err(unknown)?.ip().to_canonical()),
        Err(_) => source(host),
    };
    here.iter().for_each(|here| hide(here.to_string()));
    let counters = Counters::now();
    // the facts about this host go into the report even if the other host does not reply
    let ours = Facts::find(here, options.names, !options.no_perftest);
    tell(report, HOST, "here", &ours);
    let stream = stream?;
    let to = stream.peer_addr().map_err(unknown)?;
    hide(to.ip().to_canonical().to_string());
    let mut control =
        Control::new(stream, Instant::now() + WHOLE).map_err(|e| format!("{host}: {e}"))?;
    control.say("facts")?;
    let theirs = Facts::hear(&mut control)?;
    tell(report, HOST, "there", &theirs);
    lock(report).heading("Between the hosts");
    lock(report).check(&facts::mtu(ours.mtu, theirs.mtu));
    let mut client = Client {
        control,
        report,
        options,
        to,
        part: Duration::from_secs(options.seconds) / PARTS,
        ways: [ours.zcopy_ways, theirs.zcopy_ways],
    };
    if client.paths(&ours, &theirs)? {
        client.speeds(&ours, &theirs)?;
    }
    client.counters(&counters)?;
    client.control.say("log")?;
    let theirs = Facts::hear(&mut client.control)?;
    tell(report, LOG, "there", &theirs);
    client.control.say("bye")
}

impl Client<'_> {
    pub fn check(&self, check: &Check) {
        lock(self.report).check(check);
    }

    /// Runs one trial. Returns the numbers of the sender and of the receiver. The inner error
    /// belongs to the trial. The outer error belongs to the control connection and ends the run.
    pub fn trial(
        &mut self,
        path: Path,
        sends: bool,
        parts: u32,
    ) -> Outcome<Outcome<(Numbers, Numbers)>> {
        let time = self.part * parts;
        let role = if sends { "receive" } else { "send" };
        self.control.begin();
        self.control
            .say(&format!("run {} {role} {}", path.name(), time.as_millis()))?;
        let port = match self.control.expect("port", ANSWER) {
            Ok(port) => port
                .parse()
                .map_err(|_| "the other end's port is no number")?,
            // the server cannot listen, and continues with the next trial
            Err(e) if e.starts_with("listen") => return Ok(Err(format!("there: {e}"))),
            Err(e) => return Err(e),
        };
        let mut to = self.to;
        to.set_port(port);
        let until = Instant::now() + time + GRACE;
        let connect = |_| Data::connect(path.kinds().1, &to, until);
        let data: io::Result<Vec<_>> = (0..path.connections()).map(connect).collect();
        let data = data.map_err(|e| format!("connect: {e}"));
        // until the server has all connections, it treats a line as the end of the trial
        let data = data.and_then(|data| self.control.expect("go", ANSWER).map(|_| data));
        let mine = data.and_then(|data| {
            Trial {
                path,
                data,
                control: &mut self.control,
                time,
                corrupt: self.options.corrupt,
            }
            .run(sends)
        });
        let theirs = self.control.end(&mine, GRACE);
        Ok(match (mine, theirs) {
            (Ok(mine), Ok(theirs)) if sends => Ok((mine, theirs)),
            (Ok(mine), Ok(theirs)) => Ok((theirs, mine)),
            (Err(e), _) if e.starts_with("connect:") => Err(e),
            // reports the error of this end rather than the loss of the control connection
            (Err(mine), Err(theirs)) if theirs.contains("WRONG") && !mine.contains("WRONG") => {
                Err(format!("there: {theirs}; here: {mine}"))
            }
            (Err(mine), Err(theirs)) => Err(format!("here: {mine}; there: {theirs}")),
            (Err(e), Ok(_)) => Err(format!("here: {e}")),
            (Ok(_), Err(e)) => Err(format!("there: {e}")),
        })
    }

    /// Tries all paths. Returns true if SDP connects at all.
    fn paths(&mut self, ours: &Facts, theirs: &Facts) -> Outcome<bool> {
        let both = [true, false].as_slice();
        // the smallest size comes first: its success shows that a path exists at all
        let plan = [
            (Path::HalfClose, "half close", both, 0),
            (Path::Copied, "copied", both, 2),
            (Path::Read, "zero copy by RDMA READ", both, 2),
            (Path::Write, "zero copy by RDMA WRITE", both, 2),
            (Path::Cancel, "interrupted sends", both, 1),
            (Path::Urgent, "urgent byte", both, 0),
            (Path::Many, "many connections", &[true], 0),
            (Path::Either, "IPPROTO_SDP", &[true], 1),
            (Path::Fallback, "IPPROTO_SDP to a server of TCP", &[true], 1),
        ];
        let mut why_not = match (ours.sdp, theirs.sdp) {
            (true, true) => "",
            (false, _) => "no SDP here",
            (true, false) => "no SDP there",
        };
        for (path, name, ways, parts) in plan {
            for &sends in ways {
                let name = match (ways.len(), sends) {
                    (1, _) => name.to_string(),
                    (_, true) => format!("{name}, here to there"),
                    (_, false) => format!("{name}, there to here"),
                };
                if !why_not.is_empty() && (path != Path::Fallback || !ours.sdp) {
                    self.check(&Check::skip(name, why_not));
                    continue;
                }
                let before = Counters::now();
                match self.trial(path, sends, parts)? {
                    Ok((sender, receiver)) => {
                        lock(self.report).text(&format!(
                            "      sender {}\n      receiver {}\n",
                            sender.to_line(),
                            receiver.to_line()
                        ));
                        let check = match path {
                            Path::Either if judge::is_tcp(&sender) => {
                                judge::by_tcp(&name, &before.gained())
                            }
                            _ => judge::path(path, &name, &sender, &receiver, self.ways),
                        };
                        self.check(&check);
                    }
                    Err(e) => {
                        self.check(&judge::failure(&name, &e));
                        if path == Path::HalfClose && e.starts_with("connect:") {
                            why_not = "SDP does not connect";
                        }
                    }
                }
            }
        }
        Ok(why_not.is_empty())
    }

    fn counters(&mut self, before: &Counters) -> Outcome<()> {
        let ours = before.gained();
        self.control.say("counters")?;
        let mut theirs = vec![];
        loop {
            let line = self.control.line(ANSWER)?;
            match line.split_once(' ') {
                None if line == "end" => break,
                Some((n, name)) if theirs.len() < 1000 => {
                    theirs.push((
                        clean(name),
                        n.parse().map_err(|_| "a counter that is no number")?,
                    ));
                }
                _ => return Err("the other end's counters are not understood".into()),
            }
        }
        for (name, gained) in [("here", &ours), ("there", &theirs)] {
            lock(self.report).heading(&format!("What SDP and the devices have counted {name}"));
            for (counter, n) in gained {
                lock(self.report).text(&format!("{counter}: {n}\n"));
            }
            self.check(&counters::faults(&format!("counters {name}"), gained));
        }
        Ok(())
    }
}
