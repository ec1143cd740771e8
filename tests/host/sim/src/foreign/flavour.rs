// SPDX-License-Identifier: GPL-2.0-only

//! Properties in which implementations differ.

/// Properties of an implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavour {
    /// MaxAdverts it announces.
    pub max_adverts: u16,
    /// Its first message has the number of its buffers; its Hello has 0 (RHEL 5).
    pub silent_hello: bool,
    /// A credit update needs two credits, and is due when twice the peer's credits are less than
    /// what is posted; else one credit, and one and a half (RHEL 5; later OFED).
    pub early: bool,
    /// A message that could be fuller waits until the one before is acknowledged.
    pub nagle: bool,
    /// Knows adverts.
    pub zero_copy: bool,
    /// Least size in bytes that it advertises; 0: never.
    pub advert: u32,
    /// Number of adverts in Pipelined mode; 0: sends stay Combined.
    pub pipelined: u16,
    /// Buffer size that it requests under load; 0: never.
    pub wish: u32,
    /// Payload that its buffers may grow to on request.
    pub grows: u32,
    /// Says that they have grown while smaller ones are still posted (later OFED).
    pub hasty: bool,
    /// Announces no buffers while it waits for its advert, nor after the peer has closed (later
    /// OFED).
    pub silent: bool,
    /// Keeps two buffers from when the peer has closed (later OFED, with a small `SO_RCVBUF`).
    pub stingy: bool,
}

impl Flavour {
    /// Knows no sink adverts.
    pub(super) fn ofed(&self) -> bool {
        self.max_adverts == 1
    }
}
