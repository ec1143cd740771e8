// SPDX-License-Identifier: GPL-2.0-only

//! Runs the simulator from the command line: for any number of steps, or for one seed.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use sdp_protocol::Mid;

/// Simulate SDP connections and check every rule.
#[derive(Parser)]
#[command(about)]
struct Arguments {
    /// Seed of the first connection; later connections count up from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop after this number of events.
    #[arg(long, default_value_t = 10_000_000)]
    steps: u64,
    /// Stop after this number of connections.
    #[arg(long, default_value_t = u64::MAX)]
    connections: u64,
    /// Print every message.
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let start = Instant::now();
    let result = sdp_sim::run(
        arguments.seed,
        arguments.steps,
        arguments.connections,
        arguments.trace,
    );
    match result {
        Ok(summary) => {
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "{} steps in {} connections, {:.1} s ({:.0} steps/s)",
                summary.steps,
                summary.connections,
                seconds,
                summary.steps as f64 / seconds
            );
            let [data, updates, others] = summary.messages;
            println!(
                "messages: {data} with stream bytes, {updates} credit updates, {others} others"
            );
            let [read, sent, written, moved, back] = summary.ways;
            println!("blocks: {read} read, {sent} sent, {written} written, {moved} moved, {back} given back");
            for (mid, count) in Mid::ALL.into_iter().zip(summary.kinds) {
                if count > 0 {
                    println!("message {}: {count}", mid.name());
                }
            }
            for (name, count) in summary.violations {
                println!("violation {name}: {count}");
            }
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}
