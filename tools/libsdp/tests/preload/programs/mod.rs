// SPDX-License-Identifier: GPL-2.0-only

//! Programs that know nothing of SDP: they call the C library as programs do, and print how it
//! went.

mod alone;
mod calls;
mod clients;
mod servers;

pub use alone::ALONE;
pub use clients::CLIENTS;
pub use servers::SERVERS;

use alone::alone;
use calls::accept;
use clients::client;
use libc::c_int;
use servers::{echo, serve, server};
use std::process::ExitCode;

fn name(e: c_int) -> String {
    match e {
        libc::ECONNREFUSED => "ECONNREFUSED".into(),
        e => format!("errno {e}"),
    }
}

pub fn run(what: &str) -> ExitCode {
    let port = || {
        let text = std::env::var("SDP_TEST_PORT").unwrap_or_default();
        text.parse().unwrap_or(1)
    };
    let done = if what == "echo" {
        echo()
    } else if what == "serve-inherited" {
        let fd = std::env::var("SDP_TEST_LISTENER").ok();
        let fd = fd.and_then(|f| f.parse().ok()).unwrap_or(-1);
        serve(fd, accept)
    } else if SERVERS.contains(&what) {
        server(what)
    } else {
        let done = if CLIENTS.contains(&what) {
            client(what, port())
        } else {
            alone(what)
        };
        match done {
            Ok(()) => println!("ok"),
            Err(e) => println!("{}", name(e)),
        }
        Ok(())
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{what}: {}", name(e));
            ExitCode::FAILURE
        }
    }
}
