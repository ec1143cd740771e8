// SPDX-License-Identifier: GPL-2.0-only

//! Zero copy: adverts of both ends, in both halves of a connection (IBA Annex A4).
//!
//! |            | half we send (we are the source) | half we receive (we are the sink) |
//! |------------|----------------------------------|-----------------------------------|
//! | **RDMA READ by the sink** | [`OwnSources`]: SrcAvail, SrcAvailCancel | [`PeerSources`]: RdmaRdCompl, SendSm |
//! | **RDMA WRITE by the source** | [`PeerSinks`]: RdmaWrCompl, SinkCancelAck | [`OwnSinks`]: SinkAvail, SinkAvailCancel |
//!
//! Each half has source adverts or sink adverts outstanding, not both. If they cross, the sink
//! adverts win: the sink drops the source adverts without a reply, and the source, when it sees a
//! sink advert that is good, knows that this happened to all that it had sent.
//!
//! How the owner of a connection uses them: see [`super::connection`].
//!
//! # Other implementations
//!
//! A peer that announces MaxAdverts 1 is taken to be of OFED's line: it gets one source advert at
//! a time, and none at all before it has shown that it knows them. It gets none while it has one of
//! its own outstanding, or may take ours for Data ([`StaleRecord`]). It gets no sink advert and no
//! ModeChange. Its own messages are taken as from any peer: with any number of inline bytes, several
//! reports, refusals at any time.
//!
//! GEN2 ignores a SendSm that does not answer a cancel. (It cannot connect: its major version is
//! 1.) We send one unasked only if the owner refuses, or cannot read at all; everything else ends
//! in reports. The flag REQ_PIPE, which GEN2 sets on all reports, means nothing to us: the owner
//! knows by itself when it has large blocks to send.

mod own_sinks;
mod own_sources;
mod peer_sinks;
mod peer_sources;
mod ring;
mod stale_record;

pub(super) use self::own_sinks::OwnSinks;
pub(super) use self::own_sources::OwnSources;
pub(super) use self::peer_sinks::PeerSinks;
pub(super) use self::peer_sources::PeerSources;
pub(super) use self::stale_record::StaleRecord;

/// Most adverts of the peer, of each kind, that are kept at a time: what an owner with zero copy
/// should announce as MaxAdverts.
pub const MAX_ADVERTS: usize = 16;

/// Most adverts of our own, of each kind, that are outstanding at a time.
pub(super) const OWN_ADVERTS: usize = 8;

/// A block of our memory, to be advertised to the peer: pinned, and registered with a key of its
/// own that allows the peer just what the advert is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Bytes of it.
    pub size: u32,
    /// The key.
    pub r_key: u32,
    /// Address of its first byte under that key.
    pub address: u64,
}

/// Memory of the peer that may be read or written by RDMA now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address of the next byte to read or write.
    pub address: u64,
    /// The peer's key.
    pub r_key: u32,
    /// Bytes from there to the end of what was advertised.
    pub size: u32,
}

/// What the owner of a connection can do with adverts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Nothing: adverts of the peer are refused as they come, and none are made.
    #[default]
    Off,
    /// Everything, with peers that are known to understand it.
    On,
    /// The same, and the peer is taken to know SrcAvail although it has not shown that it does:
    /// only for peers about which the administrator knows better.
    Forced,
}
