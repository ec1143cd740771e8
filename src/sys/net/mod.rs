// SPDX-License-Identifier: GPL-2.0-only

//! Safe types for what the kernel's network stack gives to a socket family.
//!
//! One file per C object: [`sock::Sock`] is a `struct sock`, [`family::Family`] the registration of
//! `proto`, `proto_ops` and `net_proto_family`, [`ipproto`] that of `inet_protosw`, [`tcp`] the
//! `struct socket` beneath such a socket, [`message`] a `struct msghdr`, [`netns`] the data
//! that each network namespace holds, [`proc`] its files under `/proc/net`.

pub(crate) mod address;
pub(crate) mod family;
pub(crate) mod ipproto;
pub(crate) mod message;
pub(crate) mod netns;
pub(crate) mod options;
pub(crate) mod params;
pub(crate) mod proc;
#[cfg(sdp_selftest)]
pub(crate) mod selftest;
pub(crate) mod sock;
pub(crate) mod tcp;
pub(crate) mod way;
