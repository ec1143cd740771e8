// SPDX-License-Identifier: GPL-2.0-only

//! The Sockets Direct Protocol as a socket family.

use kernel::prelude::*;

mod sys;

module! {
    type: IbSdp,
    name: "ib_sdp",
    description: "Sockets Direct Protocol",
    license: "GPL",
    alias: ["net-pf-27", "net-pf-28"],
}

struct IbSdp;

impl kernel::Module for IbSdp {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        sys::layout::check_layout()?;
        Ok(IbSdp)
    }
}
