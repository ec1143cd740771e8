// SPDX-License-Identifier: GPL-2.0-only

//! Ports of sockets, for bind(2), listen(2) and connect(2).

use crate::conn::SdpSock;
use crate::sys::address::Address;
use crate::sys::errno::{Errno, EADDRNOTAVAIL, ENOENT, ENOMEM};
use crate::sys::net::{params, tcp};
use crate::sys::netns::Net;
use kernel::prelude::*;

/// Assigns a port to the socket; 0: any free one. Context: socket lock held.
pub(super) fn take_port(sk: &SdpSock, port: u16) -> Result {
    let port = match port {
        0 => choose_port(sk, None, None)?,
        port => {
            check_address(sk)?;
            sk.netns().ports.lock().take(sk, port)?;
            port
        }
    };
    sk.set_port(port);
    Ok(())
}

/// Releases the port and the address of the socket. Context: socket lock held.
pub(super) fn give_port(sk: &SdpSock) {
    sk.netns().ports.lock().release(sk.id());
    sk.set_port(0);
    sk.set_local(&Address::any(sk.is_v6()));
}

/// Chooses a port, which the caller sets. For a connection to `to`, the port may be shared with
/// other connections. If the TCP socket is given, chooses a port that is free in TCP as well.
pub(super) fn choose_port(
    sk: &SdpSock,
    to: Option<&Address>,
    tcp: Option<&tcp::Ports<'_>>,
) -> Result<u16> {
    check_address(sk)?;
    sk.netns().ports.lock().choose(sk, to, tcp)
}

/// Refuses a local address without an RDMA device: no peer could reach it. With `IP_FREEBIND`, a
/// socket may have an address that the machine gets later.
fn check_address(sk: &SdpSock) -> Result {
    let mut a = sk.local();
    a.scope = sk.bound_interface() as u32;
    if !sk.is_own_address(&a) {
        return Ok(());
    }
    usable_address(sk.net(), &a).map_err(|e| match Errno::of(e) {
        ENOMEM => e,
        _ => EADDRNOTAVAIL.into(),
    })
}

/// Checks that connections can be made from and to this address of the machine. Sleeps.
///
/// # Errors
///
/// `ENODEV`, `EADDRNOTAVAIL`: no RDMA device has the address. `ENOMEM`: out of memory.
fn usable_address(net: &Net, address: &Address) -> Result {
    if params::local_transport() != 0 && net.is_local(address)? {
        return Ok(());
    }
    net.has_rdma(address)
}

/// Sets `SDP_LAST_BIND_ERR`: a negative errno, `ENOENT` for an address that no RDMA device has.
pub(super) fn note_bind(sk: &SdpSock, to: &Address, result: Result) {
    let e = match result {
        Ok(()) => 0,
        Err(e) if Errno::of(e) == ENOMEM => e.to_errno(),
        Err(_) if !to.ip.is_unspecified() && usable_address(sk.net(), to).is_err() => -ENOENT.0,
        Err(e) => e.to_errno(),
    };
    sk.connection().options.last_bind_error = e;
}
