// SPDX-License-Identifier: GPL-2.0-only

//! Calls of iWARP's connection manager (`iw_cm`), for [`super::cm`] and [`super::listen`].
//!
//! iWARP has no service IDs: a connection has a TCP port, which the transport chooses. Private data
//! has a length of at most 251 bytes; shorter data is padded with zeros, as `ib_cm` does.

use super::super::bindings as c;
use super::device::DeviceRef;
use super::netns;
use crate::sys::address::Address;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ptr::NonNull;
use kernel::error::from_err_ptr;
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;

/// An id of `iw_cm`.
pub(super) type Id = NonNull<c::iw_cm_id>;
/// Its callback.
pub(super) type Handler = extern "C" fn(*mut c::iw_cm_id, *mut c::iw_cm_event) -> c_int;

/// Reason of a reject that means "send another request later": `iw_cm` repeats no request by
/// itself. Reject reasons of `ib_cm` have only 16 bits.
pub(crate) const BUSY: u32 = 0x1_0000;

/// Returns the parameters of an MPA request or reply. The parameters refer to the private data.
pub(super) fn parameters(qp: u32, reads_in: u8, reads_out: u8, data: &[u8]) -> c::iw_cm_conn_param {
    c::iw_cm_conn_param {
        private_data: data.as_ptr().cast(),
        private_data_len: data.len() as u16,
        ord: reads_out.into(),
        ird: reads_in.into(),
        qpn: qp,
    }
}

/// Makes an id.
pub(super) fn create(device: &DeviceRef, handler: Handler, context: *mut c_void) -> Result<Id> {
    // SAFETY: The device is in use; the caller keeps the context as long as the id.
    let id = unsafe { c::iw_create_cm_id(device.raw(), Some(handler), context) };
    NonNull::new(from_err_ptr(id)?).ok_or(ENOMEM)
}

/// Sets the addresses of an id that has not been used.
///
/// # Safety
///
/// The id is alive, and no other task uses the id.
pub(super) unsafe fn set_addresses(id: Id, local: &Address, remote: &Address) {
    // SAFETY: The caller guarantees that the id is alive and unused.
    let id = unsafe { &mut *id.as_ptr() };
    id.local_addr = netns::sockaddr_with_port(local);
    id.remote_addr = netns::sockaddr_with_port(remote);
    id.set_afonly(remote.ip.is_ipv6());
}

/// Addresses to listen at, since one id listens at addresses of one IP version only.
pub(super) const ANY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    IpAddr::V6(Ipv6Addr::UNSPECIFIED),
];

/// Listens at a TCP port. The context of the requests' ids is the port of SDP. `None`: listening is
/// not possible at the address; the kernel log contains the reason.
///
/// # Errors
///
/// `ENOMEM`.
pub(super) fn listen(
    device: &DeviceRef,
    handler: Handler,
    ip: IpAddr,
    port: u16,
    tcp_port: u16,
) -> Result<Option<Id>> {
    let context = core::ptr::without_provenance_mut(port.into());
    let id = create(device, handler, context)?;
    let local = Address {
        ip,
        port: tcp_port,
        scope: 0,
    };
    // SAFETY: The id was made above, and is destroyed here only if it does not listen.
    unsafe {
        set_addresses(id, &local, &local);
        if c::sdp_h_iw_listen(id.as_ptr()) != 0 {
            c::iw_destroy_cm_id(id.as_ptr());
            return Ok(None);
        }
    }
    Ok(Some(id))
}

/// Returns the private data of an event, padded with zeros.
pub(super) fn data<const N: usize>(event: &c::iw_cm_event) -> [u8; N] {
    let mut all = [0; N];
    let len = usize::from(event.private_data_len).min(N);
    if event.private_data.is_null() {
        return all;
    }
    // SAFETY: `iw_cm` passes an event with `private_data_len` bytes of private data.
    let bytes = unsafe { core::slice::from_raw_parts(event.private_data.cast::<u8>(), len) };
    if let Some(to) = all.get_mut(..len) {
        to.copy_from_slice(bytes);
    }
    all
}
