// SPDX-License-Identifier: GPL-2.0-only

//! Addresses and ports of a socket, and the limits on choosing them.

use super::SockCore;
use crate::sys::address::{Address, AF_INET, AF_INET6, AF_INET6_SDP};
use crate::sys::bindings as c;
use core::fmt;
use kernel::error::to_result;
use kernel::prelude::*;

impl SockCore {
    /// Returns true for a socket of an IPv6 family: family 28, or `AF_INET6` with `IPPROTO_SDP`.
    pub(crate) fn is_v6(&self) -> bool {
        let family = read_once!(self.__sk_common.skc_family);
        matches!(family, AF_INET6 | AF_INET6_SDP)
    }

    /// Returns true for a socket of `IPPROTO_SDP`, or one accepted from an `IPPROTO_SDP` listener.
    pub(crate) fn is_either(&self) -> bool {
        let family = read_once!(self.__sk_common.skc_family);
        matches!(family, AF_INET | AF_INET6)
    }

    pub(crate) fn local(&self) -> Address {
        self.name(false)
    }

    pub(crate) fn remote(&self) -> Address {
        self.name(true)
    }

    fn name(&self, remote: bool) -> Address {
        let mut a = c::sdp_h_addr::default();
        // SAFETY: By the invariants the sock is alive; `a` is writable.
        unsafe { c::sdp_h_name(self.raw(), remote, &mut a) };
        Address::from_c(&a, self.is_v6())
    }

    pub(crate) fn set_local(&self, a: &Address) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_set_local(self.raw(), &a.to_c()) }
    }

    pub(crate) fn set_remote(&self, a: &Address) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_set_remote(self.raw(), &a.to_c()) }
    }

    /// Returns true for an address of this machine, in the socket's namespace.
    pub(crate) fn is_own_address(&self, a: &Address) -> bool {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_address_type(self.raw(), &a.to_c()) == c::RTN_LOCAL }
    }

    /// Returns true if the address is an IPv4 broadcast address of one of this machine's networks.
    pub(crate) fn is_broadcast(&self, a: &Address) -> bool {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_address_type(self.raw(), &a.to_c()) == c::RTN_BROADCAST }
    }

    /// Binds the socket to the interface `scope` of a link-local peer; 0 selects the socket's own
    /// interface. `EINVAL`: no interface is given, or the socket is bound to another one. Context:
    /// socket lock held, or the socket has no other users.
    pub(crate) fn bind_scope(&self, scope: u32) -> Result {
        // SAFETY: By the invariants the sock is alive.
        to_result(unsafe { c::sdp_h_bind_scope(self.raw(), scope as i32) })
    }

    /// Returns true if another user has a TCP listener for connections from `remote` to `local`
    /// through `interface` (0: any). Returns false for root's sockets, and for listeners whose own
    /// TCP socket listens.
    pub(crate) fn tcp_is_anothers(
        &self,
        local: &Address,
        remote: &Address,
        interface: i32,
    ) -> bool {
        let (local, remote) = (local.to_c(), remote.to_c());
        // SAFETY: By the invariants the sock is alive; the function only reads the addresses.
        unsafe { c::sdp_h_tcp_is_anothers(self.raw(), &local, &remote, interface) }
    }

    /// Returns the port that the socket holds, 0 if none.
    pub(crate) fn port(&self) -> u16 {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_num(self.raw()) }
    }

    pub(crate) fn set_port(&self, port: u16) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_set_num(self.raw(), port) }
    }

    /// Returns true if an IPv6 socket accepts no IPv4 connections (`IPV6_V6ONLY`).
    pub(crate) fn v6_only(&self) -> bool {
        // SAFETY: By the invariants the sock is alive.
        unsafe { (*self.raw()).__sk_common.skc_ipv6only() != 0 }
    }

    /// Returns the range of ephemeral ports (`IP_LOCAL_PORT_RANGE` or the sysctl).
    pub(crate) fn port_range(&self) -> (u16, u16) {
        let (mut low, mut high) = (0, 0);
        // SAFETY: By the invariants the sock is alive; both results are writable.
        unsafe { c::inet_sk_get_local_port_range(self.raw(), &mut low, &mut high) };
        (low.clamp(1, 65535) as u16, high.clamp(1, 65535) as u16)
    }

    /// Returns true if the administrator has reserved the port (`ip_local_reserved_ports`).
    pub(crate) fn port_is_reserved(&self, port: u16) -> bool {
        // SAFETY: By the invariants the sock is alive, and so is its namespace.
        unsafe { c::inet_is_local_reserved_port(self.net().as_raw(), port) }
    }

    /// Returns true if bind(2) has chosen the local address.
    pub(crate) fn address_is_bound(&self) -> bool {
        self.user_lock(c::SOCK_BINDADDR_LOCK)
    }

    /// Returns true if bind(2) has chosen the local port.
    pub(crate) fn port_is_bound(&self) -> bool {
        self.user_lock(c::SOCK_BINDPORT_LOCK)
    }

    pub(crate) fn reuse_address(&self) -> bool {
        // SAFETY: By the invariants the sock is alive; only setsockopt(2) changes this bit field.
        unsafe { (*self.raw()).__sk_common.skc_reuse() != 0 }
    }

    pub(crate) fn reuse_port(&self) -> bool {
        // SAFETY: By the invariants the sock is alive; only setsockopt(2) changes this bit field.
        unsafe { (*self.raw()).__sk_common.skc_reuseport() != 0 }
    }

    /// Returns the interface of `SO_BINDTODEVICE`, 0 for any.
    pub(crate) fn bound_interface(&self) -> i32 {
        read_once!(self.__sk_common.skc_bound_dev_if)
    }
}

/// Formats both addresses of a socket.
pub(crate) struct Ends<'a>(pub(crate) &'a SockCore);

impl fmt::Display for Ends<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (local, remote) = (self.0.local(), self.0.remote());
        write!(
            f,
            "{} port {}, {} port {}",
            local.ip, local.port, remote.ip, remote.port
        )
    }
}
