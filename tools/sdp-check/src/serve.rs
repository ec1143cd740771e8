// SPDX-License-Identifier: GPL-2.0-only

//! `sdp-check --serve`. Clients are not trusted: the server serves one at a time, for a bounded
//! time, and each choice of a client is from a fixed list.

use crate::control::Control;
use crate::counters::Counters;
use crate::facts::Facts;
use crate::listen::Listener;
use crate::log;
use crate::options::{Options, MOST_SECONDS};
use crate::path::Path;
use crate::perftest::{self, Gid, Job, Running, Test};
use crate::trial::Trial;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time that a client may take besides the paths.
const BESIDES: Duration = Duration::from_secs(300);
/// Time that a client may be silent.
const IDLE: Duration = Duration::from_secs(120);
/// Time that a trial may take beyond the duration that the client requests.
const GRACE: Duration = Duration::from_secs(90);

type Result<T> = std::result::Result<T, String>;

/// Options that a session needs.
#[derive(Clone, Copy)]
struct Settings {
    names: bool,
    perftest: bool,
    corrupt: bool,
}

pub fn run(o: &Options) -> Result<()> {
    let listener = listen(o).map_err(|e| {
        let why = match e.kind() {
            io::ErrorKind::AddrInUse => {
                " (another program has it; choose one by --port, at both ends)"
            }
            _ => "",
        };
        format!("cannot listen at port {}: {e}{why}", o.port)
    })?;
    let settings = Settings {
        names: o.names,
        perftest: !o.no_perftest,
        corrupt: o.corrupt,
    };
    log::ask();
    say(&format!(
        "listening at TCP port {}; on the other host run: sdp-check HOST",
        o.port
    ));
    let busy = Arc::new(AtomicBool::new(false));
    loop {
        let Ok((mut stream, from)) = listener.accept() else {
            // for example a lack of descriptors, which other programs may release
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if busy.swap(true, Ordering::AcqRel) {
            // the server neither needs nor awaits the client's remaining bytes
            let _ = stream.set_nonblocking(true);
            let _ = stream.write_all(b"sdp-check busy\n");
            continue;
        }
        let busy = busy.clone();
        thread::spawn(move || {
            let host = from.ip().to_canonical();
            say(&format!("{host}: is served"));
            match Session::new(stream, settings).and_then(Session::run) {
                Ok(()) => say(&format!("{host}: is done")),
                Err(e) => say(&format!("{host}: {e}")),
            }
            busy.store(false, Ordering::Release);
        });
    }
}

/// Listens at all addresses of both families, unless one was chosen.
fn listen(o: &Options) -> io::Result<TcpListener> {
    match o.listen {
        Some(at) => TcpListener::bind((at, o.port)),
        None => TcpListener::bind((Ipv6Addr::UNSPECIFIED, o.port)).or_else(|e| match e.kind() {
            io::ErrorKind::AddrInUse => Err(e),
            _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, o.port)),
        }),
    }
}

fn say(line: &str) {
    // a closed output does not stop the server
    let _ = writeln!(io::stdout(), "sdp-check: {line}");
}

struct Session {
    control: Control,
    settings: Settings,
    counters: Counters,
    gid: Option<Gid>,
    /// Time when the client's session ends.
    until: Instant,
    /// This host's address, and the client's.
    here: SocketAddr,
    there: IpAddr,
}

impl Session {
    fn new(stream: TcpStream, settings: Settings) -> Result<Self> {
        let until = Instant::now() + Duration::from_secs(MOST_SECONDS) + BESIDES;
        let control = Control::new(stream, until)?;
        let unknown = |e: io::Error| e.to_string();
        // a socket for both families has an IPv4 client's address as IPv6
        let mut here = control.local().map_err(unknown)?;
        here.set_ip(here.ip().to_canonical());
        let there = control.peer().map_err(unknown)?.ip().to_canonical();
        Ok(Session {
            control,
            settings,
            counters: Counters::now(),
            gid: None,
            until,
            here,
            there,
        })
    }

    fn run(mut self) -> Result<()> {
        loop {
            let line = self.control.line(IDLE)?;
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["facts"] => {
                    let s = self.settings;
                    let facts = Facts::find(Some(self.here.ip()), s.names, s.perftest);
                    facts.tell(&mut self.control)?;
                    self.gid = facts.gid;
                }
                ["counters"] => {
                    let text = |(name, n): (String, u64)| format!("{n} {name}");
                    for line in self.counters.gained().into_iter().map(text) {
                        self.control.say(&line)?;
                    }
                    self.control.say("end")?;
                }
                ["log"] => log::find(self.settings.names).tell(&mut self.control)?,
                ["run", path, role, time] => {
                    let path = Path::of(path).ok_or("a path that is not known")?;
                    self.trial(path, role == "send", duration(time)?)?;
                }
                ["perftest", program, count] => {
                    let test = Test::of(program).ok_or("a program that is not known")?;
                    let count = count.parse().map_err(|_| "a count that is no number")?;
                    self.perftest(test, count)?;
                }
                ["bye"] => return Ok(()),
                _ => {
                    self.control.say("failed the command is unknown")?;
                    return Err("the client sent an unknown command".into());
                }
            }
        }
    }

    fn trial(&mut self, path: Path, sends: bool, time: Duration) -> Result<()> {
        self.control.begin();
        let until = self.until.min(Instant::now() + time + GRACE);
        let (listener, port) = match Listener::new(path.kinds().0, &self.here) {
            Ok(made) => made,
            Err(e) => return self.control.say(&format!("failed listen: {e}")),
        };
        self.control.say(&format!("port {port}"))?;
        let fd = self.control.fd();
        let accept = |_| listener.accept(self.there, until, fd);
        let data: io::Result<Vec<_>> = (0..path.connections()).map(accept).collect();
        let data = data.map_err(|e| format!("accept: {e}"));
        let data = data.and_then(|data| self.control.say("go").map(|()| data));
        let done = data.and_then(|data| {
            Trial {
                path,
                data,
                control: &mut self.control,
                time,
                corrupt: self.settings.corrupt,
            }
            .run(sends)
        });
        self.control.end(&done, GRACE).map_or(Ok(()), |_| Ok(()))
    }

    fn start(&self, test: Test, count: u64) -> Result<(Running, u16)> {
        if !self.settings.perftest {
            return Err("--no-perftest disables it".into());
        }
        let here = self.here.ip();
        let port = perftest::free_port(here).ok_or("no port is free")?;
        let job = Job {
            test,
            count: count.min(perftest::MOST),
            port,
            here,
        };
        Ok((Running::serve(&job, self.gid.as_ref())?, port))
    }

    fn perftest(&mut self, test: Test, count: u64) -> Result<()> {
        let started = self.start(test, count);
        match started {
            Err(e) => self.control.say(&format!("failed {e}")),
            Ok((running, port)) => {
                self.control.say(&format!("port {port}"))?;
                let said = self.control.line(IDLE);
                drop(running);
                match said?.as_str() {
                    "stop" => self.control.say("end"),
                    _ => Err("the client sent an unknown command".into()),
                }
            }
        }
    }
}

/// Parses the milliseconds that a client requests, and bounds them.
fn duration(text: &str) -> Result<Duration> {
    let asked = text.parse().map_err(|_| "a time that is no number")?;
    Ok(Duration::from_millis(asked).min(Duration::from_secs(MOST_SECONDS / 6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_bounded() {
        assert_eq!(duration("1500"), Ok(Duration::from_millis(1500)));
        assert_eq!(
            duration("18446744073709551615"),
            Ok(Duration::from_secs(100))
        );
        assert!(duration("-1").is_err() && duration("x").is_err());
    }
}
