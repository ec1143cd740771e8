// SPDX-License-Identifier: GPL-2.0-only

//! The paths to try, and the requirements of each at both ends.

use crate::sock::Kind;

/// Paths that bytes can take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Path {
    /// Sent and received by copy.
    Copied,
    /// Read by the receiver from the memory of send calls.
    Read,
    /// Written by the sender to the memory of receive calls.
    Write,
    /// Send calls that signals interrupt while their memory may be read.
    Cancel,
    /// One direction ends, the other continues.
    HalfClose,
    /// An urgent byte.
    Urgent,
    /// Many connections at a time.
    Many,
    /// IPPROTO_SDP to a server that has SDP.
    Either,
    /// IPPROTO_SDP to a server that has TCP alone.
    Fallback,
    /// A stream whose bytes are not checked, to be timed: by copy, without copies, by TCP.
    Stream,
    StreamZero,
    StreamTcp,
    /// Small messages in both directions, by SDP and by TCP.
    Pong,
    PongTcp,
}

/// Number of connections of `Path::Many`.
const MANY: usize = 32;

impl Path {
    pub const ALL: [(&'static str, Path); 14] = [
        ("copied", Path::Copied),
        ("read", Path::Read),
        ("write", Path::Write),
        ("cancel", Path::Cancel),
        ("half-close", Path::HalfClose),
        ("urgent", Path::Urgent),
        ("many", Path::Many),
        ("either", Path::Either),
        ("fallback", Path::Fallback),
        ("stream", Path::Stream),
        ("stream-zero", Path::StreamZero),
        ("stream-tcp", Path::StreamTcp),
        ("pong", Path::Pong),
        ("pong-tcp", Path::PongTcp),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, p)| *p == self)
            .map_or("", |p| p.0)
    }

    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|p| p.1)
    }

    /// Returns the kinds of sockets that the server listens with and the client connects with.
    pub fn kinds(self) -> (Kind, Kind) {
        match self {
            Path::Either => (Kind::Either, Kind::Either),
            Path::Fallback => (Kind::Tcp, Kind::Either),
            Path::StreamTcp | Path::PongTcp => (Kind::Tcp, Kind::Tcp),
            _ => (Kind::Sdp, Kind::Sdp),
        }
    }

    pub fn connections(self) -> usize {
        if self == Path::Many {
            MANY
        } else {
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_to_one() {
        for (name, path) in Path::ALL {
            assert_eq!((path.name(), Path::of(name)), (name, Some(path)));
        }
        assert_eq!(Path::of("../copied"), None);
    }
}
