// SPDX-License-Identifier: GPL-2.0-only

//! The port of a socket, for bind(2), listen(2) and connect(2).

use crate::conn::SdpSock;
use crate::sys::errno::{Errno, EADDRNOTAVAIL, ENOENT, ENOMEM};
use crate::sys::net::address::Address;
use crate::sys::net::tcp;
use crate::transport::usable_address;
use kernel::prelude::*;

/// Gives the socket a port, any for 0. The socket lock is held.
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

/// Undoes that, and has the socket at no address again. The socket lock is held.
pub(super) fn give_port(sk: &SdpSock) {
    sk.netns().ports.lock().release(sk.id(), sk.port());
    sk.set_port(0);
    sk.set_local(&Address::any(sk.is_v6()));
}

/// Chooses a port, which the caller is to set: for a connection, if it says where that goes to, which
/// may share it with others, and by TCP as well, if the TCP socket is given.
pub(super) fn choose_port(
    sk: &SdpSock,
    to: Option<&Address>,
    tcp: Option<&tcp::Ports<'_>>,
) -> Result<u16> {
    check_address(sk)?;
    sk.netns().ports.lock().choose(sk, to, tcp)
}

/// An address of this machine that is on no RDMA port could never be reached; one that is not of
/// this machine got here by `IP_FREEBIND` and may come to be.
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

/// Keeps what `SDP_LAST_BIND_ERR` tells: a negative errno, `ENOENT` for an address that is on no
/// RDMA port.
pub(super) fn note_bind(sk: &SdpSock, to: &Address, result: Result) {
    let e = match result {
        Ok(()) => 0,
        Err(e) if Errno::of(e) == ENOMEM => e.to_errno(),
        Err(_) if !to.ip.is_unspecified() && usable_address(sk.net(), to).is_err() => -ENOENT.0,
        Err(e) => e.to_errno(),
    };
    sk.connection().options.last_bind_error = e;
}
