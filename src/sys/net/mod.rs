// SPDX-License-Identifier: GPL-2.0-only

//! Safe types for what the kernel's network stack gives to a socket family.
//!
//! One file per C object: [`sock::Sock`] is a `struct sock`, [`descriptor`] a `struct socket`;
//! [`family::Family`] is what `proto` and `proto_ops` call, by [`proto`] and [`calls`]; [`registration`] makes
//! them known; [`tcp`] is the `struct socket` beneath one of `IPPROTO_SDP`, [`message`] a `struct msghdr`,
//! [`notice`] a `struct ubuf_info`, [`netns`] the data
//! that each network namespace holds, with its files under `/proc/net`.

mod calls;
pub(crate) mod descriptor;
pub(crate) mod family;
pub(crate) mod ip_route;
mod life;
pub(crate) mod message;
pub(crate) mod netns;
pub(crate) mod notice;
pub(crate) mod options;
pub(crate) mod params;
mod proto;
pub(crate) mod registration;
#[cfg(sdp_selftest)]
pub(crate) mod selftest;
pub(crate) mod sock;
pub(crate) mod tcp;
pub(crate) mod trace;
pub(crate) mod unaccepted;
