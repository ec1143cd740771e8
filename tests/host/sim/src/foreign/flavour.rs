// SPDX-License-Identifier: GPL-2.0-only

//! Properties in which implementations differ.

/// Properties of an implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavour {
    /// MaxAdverts that the implementation announces.
    pub max_adverts: u16,
    /// Set if the number of buffers is in the first message, and 0 in Hello (RHEL 5).
    pub silent_hello: bool,
    /// Set if a credit update needs two credits, and is due when twice the peer's credits are less
    /// than the posted buffers (RHEL 5); otherwise one credit, and one and a half times (later
    /// OFED).
    pub early: bool,
    /// Set if a partial message waits until the previous message is acknowledged.
    pub nagle: bool,
    /// Set if the implementation supports adverts.
    pub zero_copy: bool,
    /// Minimum size in bytes of an advert; 0: none.
    pub advert: u32,
    /// Number of adverts in Pipelined mode; 0: sending stays Combined.
    pub pipelined: u16,
    /// Buffer size that the implementation requests under load; 0: never.
    pub wish: u32,
    /// Payload size that buffers may grow to on request.
    pub grows: u32,
    /// Set if the implementation replies to ChRcvBuf while smaller buffers are still posted (later
    /// OFED).
    pub hasty: bool,
    /// Set if the implementation announces no buffers while it waits for its advert, nor after the
    /// peer has closed (later OFED).
    pub silent: bool,
    /// Set if the implementation keeps two buffers once the peer has closed (later OFED, with a
    /// small `SO_RCVBUF`).
    pub stingy: bool,
}

impl Flavour {
    /// Returns true if the implementation does not support sink adverts.
    pub(super) fn ofed(&self) -> bool {
        self.max_adverts == 1
    }
}
