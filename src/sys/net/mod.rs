// SPDX-License-Identifier: GPL-2.0-only

//! Safe types for the objects of the kernel's network stack.
//!
//! Each C object has one file: [`sock::Sock`] is a `struct sock`, [`descriptor`] a `struct socket`,
//! [`message`] a `struct msghdr`, [`notice`] a `struct ubuf_info`. [`family::Family`] contains the
//! functions that `proto` and `proto_ops` call through [`proto`] and [`calls`]; [`registration`]
//! registers them. [`tcp`] is the TCP socket of an `IPPROTO_SDP` descriptor. [`netns`] contains the
//! data of each network namespace and its files in `/proc/net`.

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
mod splice;
pub(crate) mod tcp;
pub(crate) mod trace;
