// SPDX-License-Identifier: GPL-2.0-only

//! Parser of `libsdp.conf`.
//!
//! A line has one statement; `#` begins a comment. Blanks separate words, and keywords may be in
//! capitals:
//!
//! ```text
//! log [destination stderr | syslog | file PATH] [min-level NUMBER]
//! use tcp|sdp|both  server|listen|client|connect  PROGRAM  ADDRESS[/PREFIX]:PORT[-PORT]
//! ```
//!
//! PROGRAM is a [`Glob`]; ADDRESS and ports may each be `*`.

use crate::{Destination, Glob, Log, Mode, Network, Ports, Role, Rule, Rules};
use std::fmt;
use std::net::IpAddr;

/// Error at a position of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// From 1.
    pub line: u32,
    /// Position in characters, from 1.
    pub column: u32,
    /// Text that would have been valid at this position.
    pub expected: &'static str,
    /// Text at this position; empty at the end of a line.
    pub found: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column, expected) = (self.line, self.column, self.expected);
        write!(f, "line {line}, column {column}: expected {expected}, ")?;
        match self.found.as_str() {
            "" => f.write_str("but the line ends"),
            found => write!(f, "found '{found}'"),
        }
    }
}

/// Maximum number of problems reported for a file.
pub const MAX_PROBLEMS: usize = 20;
/// Number of characters of a word that a message quotes.
const QUOTED: usize = 40;

/// Parses a file.
///
/// # Errors
///
/// Returns each line's first problem, at most [`MAX_PROBLEMS`]; no rule of the file then applies.
pub fn parse(text: &[u8]) -> Result<Rules, Vec<Problem>> {
    let mut rules = Rules::default();
    let mut problems = Vec::new();
    for (index, line) in text.split(|&c| c == b'\n').enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        if let Err(wrong) = Line::new(line).statement(number, &mut rules) {
            problems.push(Problem {
                line: number,
                column: column(line, wrong.at),
                expected: wrong.expected,
                found: quote(wrong.found),
            });
            if problems.len() == MAX_PROBLEMS {
                break;
            }
        }
    }
    if problems.is_empty() {
        Ok(rules)
    } else {
        Err(problems)
    }
}

/// Returns the column of a byte of a line, in characters from 1.
fn column(line: &[u8], at: usize) -> u32 {
    let characters = line[..at.min(line.len())]
        .iter()
        .filter(|&&c| c & 0xc0 != 0x80);
    u32::try_from(characters.count() + 1).unwrap_or(u32::MAX)
}

/// Returns a word with only printable characters.
fn quote(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(word);
    let mut shown: String = text.chars().take(QUOTED).collect();
    if text.chars().nth(QUOTED).is_some() {
        shown.push('…');
    }
    shown
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// A problem without its line number.
struct Wrong<'a> {
    at: usize,
    expected: &'static str,
    found: &'a [u8],
}

type Parsed<'a, T> = Result<T, Wrong<'a>>;

/// A part of a line, and its offset.
#[derive(Clone, Copy)]
struct Piece<'a> {
    at: usize,
    text: &'a [u8],
}

impl<'a> Piece<'a> {
    fn is(&self, keyword: &str) -> bool {
        self.text.eq_ignore_ascii_case(keyword.as_bytes())
    }

    fn wrong(&self, expected: &'static str) -> Wrong<'a> {
        Wrong {
            at: self.at,
            expected,
            found: self.text,
        }
    }

    /// Returns the text without blanks at its ends.
    fn trim(&self) -> Piece<'a> {
        let start = self.text.len() - self.text.trim_ascii_start().len();
        Piece {
            at: self.at + start,
            text: self.text.trim_ascii(),
        }
    }

    /// Splits the text at the last `mark`.
    fn split_last(&self, mark: u8) -> Option<(Piece<'a>, Piece<'a>)> {
        let place = self.text.iter().rposition(|&c| c == mark)?;
        let before = Piece {
            at: self.at,
            text: &self.text[..place],
        };
        let after = Piece {
            at: self.at + place + 1,
            text: &self.text[place + 1..],
        };
        Some((before.trim(), after.trim()))
    }

    /// Returns the decimal number, unless it is above `most`.
    fn number(&self, most: u32) -> Option<u32> {
        if self.text.is_empty() {
            return None;
        }
        let mut value = 0u32;
        for &c in self.text {
            let digit = char::from(c).to_digit(10)?;
            value = value.checked_mul(10)?.checked_add(digit)?;
        }
        (value <= most).then_some(value)
    }
}

/// Unparsed rest of a line.
struct Line<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Line<'a> {
    fn new(line: &'a [u8]) -> Self {
        let end = line.iter().position(|&c| c == b'#').unwrap_or(line.len());
        Line {
            text: &line[..end],
            at: 0,
        }
    }

    /// Returns the unparsed part of the line, without blanks at its ends.
    fn rest(&self) -> Piece<'a> {
        let rest = Piece {
            at: self.at,
            text: &self.text[self.at..],
        };
        rest.trim()
    }

    /// Returns the next word, empty at the end of the line.
    fn word(&mut self) -> Piece<'a> {
        let rest = self.rest();
        let length = rest
            .text
            .iter()
            .position(u8::is_ascii_whitespace)
            .unwrap_or(rest.text.len());
        self.at = rest.at + length;
        Piece {
            text: &rest.text[..length],
            ..rest
        }
    }

    fn statement(mut self, number: u32, rules: &mut Rules) -> Parsed<'a, ()> {
        let word = self.word();
        if word.text.is_empty() {
            Ok(())
        } else if word.is("log") {
            self.log(&mut rules.log)
        } else if word.is("use") {
            let rule = self.rule(number)?;
            rules.rules.push(rule);
            Ok(())
        } else {
            Err(word.wrong("'use' or 'log'"))
        }
    }

    fn log(&mut self, log: &mut Log) -> Parsed<'a, ()> {
        loop {
            let word = self.word();
            if word.text.is_empty() {
                return Ok(());
            } else if word.is("destination") {
                log.destination = Some(self.destination()?);
            } else if word.is("min-level") {
                let level = self.word();
                let level = level.number(u32::MAX).ok_or(level.wrong("a number"))?;
                log.min_level = Some(level);
            } else {
                return Err(word.wrong("'destination' or 'min-level'"));
            }
        }
    }

    fn destination(&mut self) -> Parsed<'a, Destination> {
        let word = self.word();
        if word.is("stderr") {
            Ok(Destination::Stderr)
        } else if word.is("syslog") {
            Ok(Destination::Syslog)
        } else if word.is("file") {
            let path = self.word();
            // '.', '..' and a directory cannot be log files
            let name = path.text.rsplit(|&c| c == b'/').next().unwrap_or(b"");
            if matches!(name, b"" | b"." | b"..") || name.contains(&0) {
                return Err(path.wrong("the name of a file"));
            }
            Ok(Destination::File(path.text.to_vec()))
        } else {
            Err(word.wrong("'stderr', 'syslog' or 'file'"))
        }
    }

    fn rule(&mut self, line: u32) -> Parsed<'a, Rule> {
        let word = self.word();
        let mode = match () {
            () if word.is("tcp") => Mode::Tcp,
            () if word.is("sdp") => Mode::Sdp,
            () if word.is("both") => Mode::Both,
            () => return Err(word.wrong("'tcp', 'sdp' or 'both'")),
        };
        let word = self.word();
        let role = match () {
            () if word.is("server") || word.is("listen") => Role::Server,
            () if word.is("client") || word.is("connect") => Role::Client,
            () => return Err(word.wrong("'server', 'listen', 'client' or 'connect'")),
        };
        let word = self.word();
        if word.text.is_empty() {
            return Err(word.wrong("a program's name or '*'"));
        }
        let program = Glob::new(word.text);
        let target = self.rest();
        if target.text.is_empty() {
            return Err(target.wrong("an address or '*'"));
        }
        let Some((address, ports)) = target.split_last(b':') else {
            let end = Piece {
                at: target.at + target.text.len(),
                text: b"",
            };
            return Err(end.wrong("':' and ports after the address"));
        };
        Ok(Rule {
            line,
            mode,
            role,
            program,
            network: network(address)?,
            ports: self::ports(ports)?,
        })
    }
}

fn network(piece: Piece<'_>) -> Parsed<'_, Network> {
    if piece.text == b"*" {
        return Ok(Network::Any);
    }
    let (address, prefix) = match piece.split_last(b'/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (piece, None),
    };
    let wrong = || address.wrong("an IPv4 or IPv6 address or '*'");
    let text = std::str::from_utf8(address.text).map_err(|_| wrong())?;
    let ip: IpAddr = text.parse().map_err(|_| wrong())?;
    let bits = |most: u8, expected| match prefix {
        None => Ok(most),
        Some(p) => match p.number(most.into()) {
            // not above `most`
            Some(n) => Ok(n as u8),
            None => Err(p.wrong(expected)),
        },
    };
    Ok(match ip {
        IpAddr::V4(address) => Network::V4 {
            address,
            prefix: bits(32, "a prefix length from 0 to 32")?,
        },
        IpAddr::V6(address) => Network::V6 {
            address,
            prefix: bits(128, "a prefix length from 0 to 128")?,
        },
    })
}

fn ports(piece: Piece<'_>) -> Parsed<'_, Ports> {
    if piece.text == b"*" {
        return Ok(Ports::ANY);
    }
    let one = |p: Piece<'_>| {
        p.number(u16::MAX.into())
            .and_then(|n| u16::try_from(n).ok())
    };
    let wrong = |p: Piece<'_>| Wrong {
        at: p.at,
        expected: "a port from 0 to 65535, two with '-' between, or '*'",
        found: piece.text,
    };
    let (low, high) = piece.split_last(b'-').unwrap_or((piece, piece));
    let first = one(low).ok_or_else(|| wrong(low))?;
    let last = one(high).ok_or_else(|| wrong(high))?;
    if last < first {
        return Err(Wrong {
            at: high.at,
            expected: "a last port that is not below the first",
            found: high.text,
        });
    }
    Ok(Ports { first, last })
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
