// SPDX-License-Identifier: GPL-2.0-only

//! The Sockets Direct Protocol as a socket family. The stream sockets of families 27
//! (`AF_INET_SDP`) and 28 (`AF_INET6_SDP`) behave like TCP's, with RDMA below. The protocol
//! `IPPROTO_SDP` of TCP's families uses SDP where possible, otherwise TCP.
//!
//! From top to bottom: [`socket`] has the socket calls, [`conn`] is one connection, [`protocol`]
//! decides about messages, [`transport`] carries them, [`memory`] holds them, and [`sys`] is the
//! kernel's C side.

use kernel::prelude::*;

mod conn;
mod memory;
pub mod protocol;
#[cfg(sdp_selftest)]
mod selftest;
mod socket;
mod sys;
mod transport;

use conn::{SdpSock, Socket};
use sys::net::registration::Families;

module! {
    type: IbSdp,
    name: "ib_sdp",
    authors: ["The ib_sdp authors"],
    description: "Sockets Direct Protocol",
    license: "GPL",
    alias: [
        "net-pf-27",
        "net-pf-28",
        "net-pf-2-proto-257-type-1",
        "net-pf-10-proto-257-type-1",
    ],
}

/// Objects of the loaded module, dropped in order: first sockets, then events from the network.
struct IbSdp {
    #[cfg(sdp_selftest)]
    _selftest: selftest::File,
    _family: Families<Socket>,
    _rdma: transport::Service,
    _protection: memory::protect::Service,
    _workqueues: sys::work::Workqueues,
}

impl kernel::Module for IbSdp {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let workqueues = sys::work::Workqueues::start(memory::spares::count, socket::shed)?;
        let protection = memory::protect::Service::start();
        let rdma = transport::start::<SdpSock>()?;
        let family = Families::new(module)?;
        Ok(IbSdp {
            #[cfg(sdp_selftest)]
            _selftest: selftest::file()?,
            _family: family,
            _rdma: rdma,
            _protection: protection,
            _workqueues: workqueues,
        })
    }
}
