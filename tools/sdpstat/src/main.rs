// SPDX-License-Identifier: GPL-2.0-only

//! `sdpstat` shows the SDP sockets of a network namespace and its SDP counters, from
//! `/proc/net/sdp` and `/proc/net/sdpstats`.

mod devices;
mod info;
mod openmetrics;
mod options;
mod peers;
mod processes;
mod sockets;
mod statistics;
mod table;

use clap::Parser;
use options::{Options, What};
use processes::Processes;
use sdp_info::Statistics;
use serde_json::{json, Map, Value};
use sockets::{Socket, View};
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

/// Directory that exists while the module is loaded.
const MODULE: &str = "/sys/module/ib_sdp";

/// Reason why there is no output.
#[derive(Debug)]
enum Error {
    /// Error message.
    Told(String),
    /// The output could not be written.
    Output(io::Error),
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Self {
        Error::Output(e)
    }
}

impl Options {
    /// Returns the content of a file of the namespace's `/proc/net`, and its path for messages.
    fn read(&self, name: &str) -> Result<(String, PathBuf), Error> {
        let process = self.pid.map_or("thread-self".into(), |pid| pid.to_string());
        let path = self.proc.join(process).join("net").join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok((text, path)),
            Err(e) => Err(Error::Told(format!(
                "{}: {e}{}",
                path.display(),
                self.reason(&path)
            ))),
        }
    }

    /// Returns the likely reason why a file is missing.
    fn reason(&self, path: &Path) -> &'static str {
        if path.parent().is_some_and(Path::exists) {
            match Path::new(MODULE).exists() {
                true => " (the module ib_sdp that is loaded has no such file)",
                false => " (is the module ib_sdp loaded?)",
            }
        } else if self.pid.is_some() {
            " (is there such a process?)"
        } else {
            ""
        }
    }

    fn shows(&self, what: What) -> bool {
        match (self.what, what) {
            (None, _) => true,
            // devices need the counters of pinned memory, and local addresses
            (Some(What::Devices), _) => true,
            (Some(What::Peers), what) => what == What::Sockets,
            (Some(shown), what) => shown == what,
        }
    }
}

/// Values that were read at the same time.
struct Sample {
    at: Instant,
    sockets: Option<Vec<Socket>>,
    statistics: Option<Statistics>,
}

fn sample(o: &Options) -> Result<Sample, Error> {
    let told = |path: &Path, e: String| Error::Told(format!("{}: {e}", path.display()));
    let mut s = Sample {
        at: Instant::now(),
        sockets: None,
        statistics: None,
    };
    if o.shows(What::Sockets) {
        let (text, path) = o.read("sdp")?;
        let mut list = sockets::parse(&text).map_err(|e| told(&path, e))?;
        // an older module does not have this file
        if let Ok((choices, path)) = o.read("sdp_ipproto") {
            let tcp =
                ["tcp", "tcp6"].map(|name| o.read(name).map_or_else(|_| String::new(), |r| r.0));
            sockets::add_choices(&mut list, &choices, &tcp.concat()).map_err(|e| told(&path, e))?;
        }
        s.sockets = Some(list);
    }
    if o.shows(What::Statistics) {
        let (text, path) = o.read("sdpstats")?;
        s.statistics = Some(Statistics::parse(&text).map_err(|e| told(&path, e))?);
    }
    Ok(s)
}

fn show(
    o: &Options,
    now: &Sample,
    before: Option<&Sample>,
    out: &mut impl Write,
) -> io::Result<()> {
    if let Some(format) = o.prometheus {
        return openmetrics::write(now.sockets.as_deref(), now.statistics.as_ref(), format, out);
    }
    let grouped = matches!(o.what, Some(What::Devices | What::Peers));
    let known = o.processes || o.details || grouped;
    let known = known.then(|| Processes::find(&o.proc)).unwrap_or_default();
    if grouped {
        return show_groups(o, now, &known, out);
    }
    let view = View {
        processes: o.processes.then_some(&known),
        details: o.details.then_some(&known),
    };
    let rates = match (&now.statistics, before.and_then(|b| b.statistics.as_ref())) {
        (Some(new), Some(old)) => {
            let time = before.map_or(0.0, |b| now.at.duration_since(b.at).as_secs_f64());
            Some(new.rates(old, time))
        }
        _ => None,
    };
    if o.json {
        let mut all = Map::new();
        if let Some(s) = &now.sockets {
            let list = s.iter().map(|s| s.to_json(&view)).collect();
            all.insert("sockets".into(), Value::Array(list));
        }
        if let Some(s) = &now.statistics {
            all.insert("statistics".into(), s.to_json());
        }
        if let (Some(s), Some(rates)) = (&now.statistics, &rates) {
            all.insert("per_second".into(), s.rates_to_json(rates));
        }
        return writeln!(out, "{}", Value::Object(all));
    }
    if let Some(s) = &now.sockets {
        sockets::table(s, &view).write(out)?;
    }
    if now.sockets.is_some() && now.statistics.is_some() {
        writeln!(out)?;
    }
    if let Some(s) = &now.statistics {
        statistics::table(s, rates.as_deref(), o.all).write(out)?;
    }
    Ok(())
}

/// Shows devices, or peers.
fn show_groups(
    o: &Options,
    now: &Sample,
    known: &Processes,
    out: &mut impl Write,
) -> io::Result<()> {
    let view = View {
        processes: None,
        details: Some(known),
    };
    let sockets = now.sockets.as_deref().unwrap_or_default();
    if o.what == Some(What::Peers) {
        // an older module does not have this file
        let cache = o.read("sdp_peers").map_or_else(|_| String::new(), |r| r.0);
        let peers = peers::of(sockets, &view, &cache);
        return match o.json {
            true => writeln!(out, "{}", json!({ "peers": peers::to_json(&peers) })),
            false => peers::table(&peers).write(out),
        };
    }
    let by_device = |s: &&Socket| {
        let tcp = s.choice.as_deref().is_some_and(|c| c.starts_with("TCP"));
        let local = || view.info(s.inode).is_some_and(|i| i.transport() == "local");
        !s.remote.ip().is_unspecified() && !tcp && !local()
    };
    let local = sockets.iter().filter(by_device);
    let local: Vec<_> = local.map(|s| s.local.ip().to_canonical()).collect();
    let mut ports = devices::find(devices::CLASS.as_ref(), &local);
    if let (Some(pairs), Some(regions)) = (devices::resource("qp"), devices::resource("mr")) {
        devices::add_objects(&mut ports, &pairs, &regions);
    }
    let pinned = ["send", "recv"].map(|way| {
        let name = format!("pinned pages {way}");
        let counters = now.statistics.iter().flat_map(|s| &s.0);
        let pages: u64 = counters.filter(|c| c.name == name).map(|c| c.value).sum();
        // SAFETY: passes only a number.
        pages.saturating_mul(unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64)
    });
    if o.json {
        let all = json!({ "devices": devices::to_json(&ports), "pinned_send_bytes": pinned[0],
            "pinned_receive_bytes": pinned[1] });
        return writeln!(out, "{all}");
    }
    devices::table(&ports).write(out)?;
    let [send, receive] = pinned;
    writeln!(
        out,
        "\nPinned by this namespace: {send} bytes to send from, {receive} bytes to receive to"
    )
}

/// Replaces a file as a whole: a reader finds the old text or the new text.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let done = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    if done.is_err() {
        let _ = fs::remove_file(&new);
    }
    done
}

fn run(o: &Options) -> Result<(), Error> {
    let mut out = io::stdout();
    if o.prometheus.is_some() && matches!(o.what, Some(What::Devices | What::Peers)) {
        let what = "--prometheus is for sockets and statistics";
        return Err(Error::Told(what.into()));
    }
    let clear = !o.json && o.watch.is_some() && out.is_terminal();
    let mut before = None;
    loop {
        let now = sample(o)?;
        // The text is written in one call, so that a reader sees all of it.
        let mut text = Vec::new();
        if clear {
            text.extend_from_slice(b"\x1b[H\x1b[2J");
        } else if before.is_some() && !o.json {
            text.push(b'\n');
        }
        show(o, &now, before.as_ref(), &mut text)?;
        if let Some(path) = &o.output {
            return replace(path, &text)
                .map_err(|e| Error::Told(format!("{}: {e}", path.display())));
        }
        out.write_all(&text)?;
        out.flush()?;
        let Some(pause) = o.watch else { return Ok(()) };
        thread::sleep(pause);
        before = Some(now);
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // the reader has closed the pipe
        Err(Error::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Error::Output(e)) => complain(&format!("cannot write: {e}")),
        Err(Error::Told(what)) => complain(&what),
    }
}

fn complain(what: &str) -> ExitCode {
    // The reader may have closed the pipe.
    let _ = writeln!(io::stderr(), "sdpstat: {what}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::seconds;
    use std::time::Duration;

    fn options(words: &[&str]) -> Options {
        Options::try_parse_from([&["sdpstat"], words].concat()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Creates a directory like a procfs with these two files.
    fn procfs(name: &str, sdp: &str, sdpstats: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("sdpstat-{name}-{}", std::process::id()));
        let net = dir.join("thread-self/net");
        fs::create_dir_all(&net).unwrap();
        fs::write(net.join("sdp"), sdp).unwrap();
        fs::write(net.join("sdpstats"), sdpstats).unwrap();
        dir
    }

    fn shown(o: &Options) -> String {
        let s = sample(o).unwrap_or_else(|e| panic!("{e:?}"));
        let mut text = Vec::new();
        show(o, &s, None, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn intervals() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "NaN", "inf", "1e9", "x", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn both_files_or_one() {
        let dir = procfs("both", sockets::tests::SAMPLE, statistics::tests::SAMPLE);
        let dir = dir.to_str().unwrap();
        let both = shown(&options(&["--proc", dir]));
        assert!(
            both.contains("10.77.0.1:40001") && both.contains("tx_bytes"),
            "{both}"
        );
        let one = shown(&options(&["sockets", "--proc", dir]));
        assert!(one.contains("LISTEN") && !one.contains("tx_bytes"), "{one}");
        let json = shown(&options(&["--json", "--proc", dir]));
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["sockets"][1]["local"]["port"], 40001);
        assert_eq!(json["statistics"]["tx_bytes"], 83916800);
        let file = Path::new(dir).join("sdp.prom");
        let words = ["--prometheus=text", "--output", file.to_str().unwrap()];
        for _ in 0..2 {
            run(&options(&[&words[..], &["--proc", dir]].concat())).unwrap();
            let text = fs::read_to_string(&file).unwrap();
            assert!(
                text.contains("# TYPE sdp_sent_bytes_total counter\n") && !text.contains("# EOF"),
                "{text}"
            );
        }
        assert_eq!(fs::read_dir(dir).unwrap().count(), 2);
        let nowhere = ["statistics", "-o", "/nonexistent/file", "--proc", dir];
        assert!(run(&options(&nowhere)).is_err());
        let metrics = shown(&options(&["sockets", "--prometheus", "--proc", dir]));
        assert!(
            metrics.contains("sdp_sockets{") && metrics.ends_with("# EOF\n"),
            "{metrics}"
        );
        let net = Path::new(dir).join("thread-self/net");
        fs::write(net.join("sdp_ipproto"), sockets::tests::CHOICES).unwrap();
        fs::write(net.join("tcp6"), sockets::tests::TCP).unwrap();
        let all = shown(&options(&["sockets", "--proc", dir]));
        assert!(all.contains("10.77.0.1:40004"), "{all}");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_missing_is_named() {
        let dir = procfs("missing", "", "");
        fs::remove_file(dir.join("thread-self/net/sdp")).unwrap();
        let text = |words: &[&str]| match sample(&options(words)) {
            Err(Error::Told(text)) => text,
            _ => panic!("no complaint"),
        };
        let dir = dir.to_str().unwrap();
        let missing = text(&["--proc", dir]);
        assert!(
            missing.contains("net/sdp: ") && missing.ends_with("(is the module ib_sdp loaded?)"),
            "{missing}"
        );
        let nobody = text(&["--proc", dir, "--pid", "4194305"]);
        assert!(nobody.ends_with("(is there such a process?)"), "{nobody}");
        let empty = text(&["statistics", "--proc", dir]);
        assert!(
            empty.contains("net/sdpstats: ") && empty.contains("empty"),
            "{empty}"
        );
        fs::remove_dir_all(dir).unwrap();
    }
}
