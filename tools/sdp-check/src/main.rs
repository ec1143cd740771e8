// SPDX-License-Identifier: GPL-2.0-only

//! `sdp-check` finds out in one run which RDMA devices two hosts have and whether SDP works between
//! them. The program tries every path, checks each byte, and proves the path by SDP's own counters.

mod client;
mod control;
mod counters;
mod devices;
mod facts;
mod judge;
mod link;
mod listen;
mod local;
mod log;
mod numbers;
mod options;
mod path;
mod paths;
mod pattern;
mod perftest;
mod report;
mod serve;
mod signal;
mod sock;
mod speeds;
mod streams;
mod trial;
mod verdict;

use clap::Parser;
use options::Options;
use report::Report;
use std::io::{self, Write};
use std::process::{self, ExitCode};
use std::sync::{Arc, Mutex};

fn main() -> ExitCode {
    let options = Options::parse();
    if options.serve {
        signal::on_end(|signal| {
            log::quiet();
            complain("interrupted");
            process::exit(128 + signal);
        });
        return match serve::run(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => complain(&e),
        };
    }
    let report = match Report::create(&options.report, options.json) {
        Ok(report) => Arc::new(Mutex::new(report)),
        Err(e) => return complain(&e),
    };
    let interrupted = report.clone();
    signal::on_end(move |signal| {
        log::quiet();
        let _ = client::lock(&interrupted).end("; it was interrupted");
        complain("interrupted");
        process::exit(128 + signal);
    });
    let done = client::run(&options, &report);
    log::quiet();
    let mut report = client::lock(&report);
    if let Err(why) = &done {
        report.text(&format!("\nIt ended early: {why}\n"));
        complain(why);
    }
    match report.end(if done.is_err() {
        "; it ended early"
    } else {
        ""
    }) {
        Err(e) => complain(&e),
        Ok(good) => {
            let path = report.path().display();
            if !options.json {
                let _ = writeln!(io::stdout(), "the report is in {path}");
            }
            if good && done.is_ok() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn complain(what: &str) -> ExitCode {
    // The reader may have closed the pipe.
    let _ = writeln!(io::stderr(), "sdp-check: {what}");
    ExitCode::FAILURE
}
