// SPDX-License-Identifier: GPL-2.0-only

//! The rules of `libsdp.conf`: parses them, and finds their decision for a socket.
//!
//! [`parse()`] returns either all [`Rules`] of a file or all its [`Problem`]s, never a part of the
//! rules. [`Rules::decide`] finds the first rule that matches a program, a [`Role`], an address and
//! a port.

mod glob;
mod net;
mod parse;

pub use glob::Glob;
pub use net::{Network, Ports};
pub use parse::{parse, Problem, MAX_PROBLEMS};

use std::fmt;
use std::net::IpAddr;

/// Protocols that a socket may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// TCP only.
    Tcp,
    /// SDP only.
    Sdp,
    /// A server accepts connections of SDP and TCP; a client tries SDP, then TCP.
    Both,
}

/// End of a connection that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A listener; rules match the address of its bind(2).
    Server,
    /// A client; rules match the address of its connect(2).
    Client,
}

/// A `use` statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Line number in the file, from 1.
    pub line: u32,
    pub mode: Mode,
    pub role: Role,
    pub program: Glob,
    pub network: Network,
    pub ports: Ports,
}

/// Destination of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    Stderr,
    Syslog,
    /// A file of this name; the directory depends on the user.
    File(Vec<u8>),
}

/// Values of the `log` statements. `None`: the file has no such statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    pub destination: Option<Destination>,
    pub min_level: Option<u32>,
}

/// Mode of a socket that no rule matches, also if the file has no rules.
pub const DEFAULT: Mode = Mode::Both;

/// Content of a rules file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub log: Log,
    pub rules: Vec<Rule>,
}

/// Decision of the rules for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict<'a> {
    pub mode: Mode,
    /// The deciding rule; `None` for the default.
    pub rule: Option<&'a Rule>,
}

impl Rules {
    /// Returns rules with one mode for every socket.
    pub fn only(mode: Mode) -> Self {
        let any = |role| Rule {
            line: 0,
            mode,
            role,
            program: Glob::any(),
            network: Network::Any,
            ports: Ports::ANY,
        };
        Rules {
            rules: vec![any(Role::Server), any(Role::Client)],
            ..Rules::default()
        }
    }

    /// Returns the decision for a program that binds to, or connects to, an address.
    pub fn decide(&self, program: &[u8], role: Role, address: IpAddr, port: u16) -> Verdict<'_> {
        let rule = self.rules.iter().find(|r| {
            r.role == role
                && r.ports.contains(port)
                && r.network.contains(address)
                && r.program.matches(program)
        });
        Verdict {
            mode: rule.map_or(DEFAULT, |r| r.mode),
            rule,
        }
    }

    /// Keeps the rules that can match a program.
    pub fn of_program(mut self, program: &[u8]) -> Self {
        self.rules.retain(|r| r.program.matches(program));
        self
    }

    /// Returns the mode of all sockets of a program, if it depends neither on the role nor on
    /// addresses. May return `None` if only several rules together give all sockets one mode.
    pub fn uniform(&self, program: &[u8]) -> Option<Mode> {
        let server = self.uniform_in(program, Role::Server)?;
        (self.uniform_in(program, Role::Client)? == server).then_some(server)
    }

    fn uniform_in(&self, program: &[u8], role: Role) -> Option<Mode> {
        let mut mode = None;
        let own = self.rules.iter();
        for rule in own.filter(|r| r.role == role && r.program.matches(program)) {
            if *mode.get_or_insert(rule.mode) != rule.mode {
                return None;
            }
            if rule.network == Network::Any && rule.ports == Ports::ANY {
                return mode;
            }
        }
        (mode.unwrap_or(DEFAULT) == DEFAULT).then_some(DEFAULT)
    }

    /// Returns the first earlier rule that matches everything that rule `index` matches, so that
    /// rule `index` never decides.
    pub fn hidden_by(&self, index: usize) -> Option<&Rule> {
        let rule = self.rules.get(index)?;
        self.rules[..index].iter().find(|r| r.covers(rule))
    }
}

impl Rule {
    /// Returns true if this rule matches every socket that the other rule matches. May return false
    /// if globs overlap.
    fn covers(&self, other: &Rule) -> bool {
        self.role == other.role
            && (self.program.is_any() || self.program == other.program)
            && self.network.covers(&other.network)
            && self.ports.covers(&other.ports)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mode::Tcp => "tcp",
            Mode::Sdp => "sdp",
            Mode::Both => "both",
        })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Role::Server => "server",
            Role::Client => "client",
        })
    }
}

/// Writes the rule as a statement that [`parse()`] reads.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "use {} {} {} {}:{}",
            self.mode, self.role, self.program, self.network, self.ports
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        parse(text.as_bytes()).unwrap_or_else(|p| panic!("{p:?}"))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_match_decides() {
        let r = rules(
            "use tcp server redis* *:6379\nuse sdp client * 10.0.0.0/8:*\nuse tcp client * *:*\n",
        );
        let of = |p: &str, role, a, port| r.decide(p.as_bytes(), role, ip(a), port);
        let hit = of("redis-server", Role::Server, "0.0.0.0", 6379);
        assert_eq!((hit.mode, hit.rule.unwrap().line), (Mode::Tcp, 1));
        let hit = of("x", Role::Client, "10.1.2.3", 80);
        assert_eq!((hit.mode, hit.rule.unwrap().line), (Mode::Sdp, 2));
        assert_eq!(of("x", Role::Client, "11.1.2.3", 80).mode, Mode::Tcp);
        let none = of("redis-server", Role::Server, "::", 6380);
        assert_eq!((none.mode, none.rule), (Mode::Both, None));
    }

    #[test]
    fn a_mapped_address_is_ipv4() {
        let r = rules("use tcp client * 10.0.0.0/8:*\nuse sdp client * ::/0:*");
        let of = |a| r.decide(b"x", Role::Client, ip(a), 1).mode;
        assert_eq!(of("::ffff:10.1.1.1"), Mode::Tcp);
        assert_eq!(of("::10.1.1.1"), Mode::Sdp);
        assert_eq!(of("11.1.1.1"), Mode::Both);
    }

    #[test]
    fn without_rules_all_is_both() {
        for text in [
            "",
            "# nothing\n\n",
            "log min-level 1\n",
            "use sdp server other *:*",
        ] {
            let r = rules(text).of_program(b"x");
            let server = r.decide(b"x", Role::Server, ip("1.2.3.4"), 1);
            assert_eq!((server.mode, server.rule), (Mode::Both, None), "{text}");
            assert_eq!(r.uniform(b"x"), Some(Mode::Both), "{text}");
        }
    }

    #[test]
    fn programs_whose_sockets_are_all_the_same() {
        let r = rules("use tcp server a *:*\nuse tcp client a 10.0.0.1:*\nuse tcp client a *:*\n");
        assert_eq!(
            (r.uniform(b"a"), r.uniform(b"b")),
            (Some(Mode::Tcp), Some(Mode::Both))
        );
        let r = rules("use tcp server a *:*\nuse both client a 10.0.0.1:*\nuse tcp client a *:*\n");
        assert_eq!(r.uniform(b"a"), None);
        let r = rules("use tcp server a *:*\nuse tcp client a *:1-65535\n");
        assert_eq!(r.uniform(b"a"), None);
        let r = rules("use sdp server a *:*\nuse tcp client a *:*\n");
        assert_eq!(r.uniform(b"a"), None);
        let r = rules("use both client a *:80\n");
        assert_eq!(r.uniform(b"a"), Some(Mode::Both));
        assert_eq!(Rules::only(Mode::Sdp).uniform(b"a"), Some(Mode::Sdp));
    }

    #[test]
    fn hidden_rules() {
        let r = rules(
            "use tcp client * 10.0.0.0/8:1-100\nuse sdp client ssh 10.9.0.0/16:50\nuse sdp client ssh 10.9.0.0/16:50-101\n\
             use sdp server ssh 10.9.0.0/16:50\nuse both client ssh *:*\n",
        );
        let by = |i| r.hidden_by(i).map(|r| r.line);
        assert_eq!(
            [by(0), by(1), by(2), by(3), by(4), by(5)],
            [None, Some(1), None, None, None, None]
        );
    }
}
