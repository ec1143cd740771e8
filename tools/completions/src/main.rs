// SPDX-License-Identifier: GPL-2.0-only

//! `sdp-completions DIR` writes the completions of the tools' command lines for bash, zsh and fish,
//! generated from the tools' own definitions of their arguments. The program is not installed.

// This program uses only a part of the code that the tools share.
#[allow(dead_code)]
#[path = "../../sdp-check/src/options.rs"]
mod sdp_check;
#[allow(dead_code)]
#[path = "../../sdp-run/src/options.rs"]
mod sdp_run;
#[allow(dead_code)]
#[path = "../../sdpctl/src/options.rs"]
mod sdpctl;
#[allow(dead_code)]
#[path = "../../sdpstat/src/options.rs"]
mod sdpstat;

use clap::{Command, CommandFactory};
use clap_complete::{generate_to, Shell};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Returns a command without its subcommands and hidden options, which clap_complete would offer.
fn shown(name: &'static str, command: &Command) -> Command {
    let all = command.get_arguments().filter(|a| !a.is_hide_set());
    Command::new(name).version("").args(all.cloned())
}

fn tools() -> [(&'static str, Command); 4] {
    [
        ("sdp-run", sdp_run::Options::command()),
        (
            "sdp-check",
            shown("sdp-check", &sdp_check::Options::command()),
        ),
        ("sdpctl", sdpctl::Options::command()),
        ("sdpstat", sdpstat::Options::command()),
    ]
}

fn append(file: &Path, text: &[u8]) -> io::Result<()> {
    File::options().append(true).open(file)?.write_all(text)
}

/// Makes zsh offer services and mappings instead of files.
fn with_names(file: &Path) -> io::Result<()> {
    let text = std::fs::read_to_string(file)?;
    let Some((first, rest)) = text.split_once('\n') else {
        return Err(io::Error::other("no line #compdef"));
    };
    let rest: String = rest
        .split_inclusive('\n')
        .map(|line| {
            let function = match line {
                l if l.starts_with("'*::units ") => ":_sdpctl_units'",
                l if l.starts_with("'*::mapping ") => ":_sdpctl_mappings'",
                _ => return line.to_string(),
            };
            line.replace(":_default'", function)
        })
        .collect();
    let names = include_str!("sdpctl.zsh");
    std::fs::write(file, format!("{first}\n{names}{rest}"))
}

/// Writes `DIR/SHELL/FILE` for each tool, under the name by which the shell finds the file.
fn write(dir: &Path) -> io::Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let place = dir.join(shell.to_string());
        std::fs::create_dir_all(&place)?;
        for (name, mut command) in tools() {
            let written = generate_to(shell, &mut command, name, &place)?;
            if shell == Shell::Bash {
                // bash-completion loads the file with the name of the command.
                std::fs::rename(&written, place.join(name))?;
            }
            if name == "sdpctl" {
                match shell {
                    Shell::Zsh => with_names(&written)?,
                    Shell::Fish => append(&written, include_bytes!("sdpctl.fish"))?,
                    _ => append(&place.join(name), include_bytes!("sdpctl.bash"))?,
                }
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(dir), None) = (words.next(), words.next()) else {
        eprintln!("usage: sdp-completions DIR");
        return ExitCode::from(2);
    };
    match write(&dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("sdp-completions: {}: {e}", dir.display());
            ExitCode::FAILURE
        }
    }
}
