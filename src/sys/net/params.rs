// SPDX-License-Identifier: GPL-2.0-only

//! Parameters, with the meaning and bounds of `params.def`. Root may change the module's parameters
//! at any time under `/sys/module/ib_sdp/parameters`. The owner of a network namespace may change
//! the namespace's parameters under `/proc/sys/net/sdp`.

use super::super::bindings as c;
use core::ptr;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::Opaque;

/// Parameters of a network namespace; the module's parameters apply where the owner has set none.
pub(crate) struct Params(Opaque<c::sdp_h_params>);

// SAFETY: Each access to an integer is a single volatile access.
unsafe impl Sync for Params {}

impl Params {
    pub(super) fn as_raw(&self) -> *mut c::sdp_h_params {
        self.0.get()
    }

    /// Returns how many times 0 was written to `ipproto_memory`.
    pub(crate) fn forgotten(&self) -> i32 {
        // SAFETY: The field is an integer that may change at any time, and lives as long as `self`.
        let own = unsafe { ptr::read_volatile(&raw const (*self.as_raw()).forgotten) };
        forgotten().wrapping_add(own)
    }
}

macro_rules! of_module {
    ($($name:ident)*) => {
        $(pub(crate) fn $name() -> i32 {
            // SAFETY: The struct lives as long as the module. The fields are aligned integers that
            // may change at any time, so the read is volatile.
            unsafe { ptr::read_volatile(&raw const c::sdp_h_params.$name) }
        })*
    };
}

macro_rules! of_namespace {
    ($($name:ident)*) => {
        of_module! { $($name)* }

        impl Params {
            pub(crate) fn new() -> Result<Arc<Self>> {
                let unset = c::sdp_h_params { $($name: i32::MIN,)* ..Default::default() };
                Ok(Arc::new(Params(Opaque::new(unset)), GFP_KERNEL)?)
            }

            $(pub(crate) fn $name(&self) -> i32 {
                // SAFETY: The parameters live as long as `self`.
                match unsafe { ptr::read_volatile(&raw const (*self.as_raw()).$name) } {
                    i32::MIN => $name(),
                    own => own,
                }
            })*
        }
    };
}

of_namespace! {
    recv_poll sdp_zcopy_thresh async_send rcvbuf_initial_size sdp_keepalive_time sdp_rx_size
    max_sockets_per_user max_sockets_per_net max_pinned_send_user max_pinned_receive_user
    ipproto_wait ipproto_memory
}

of_module! {
    zcopy_ways spare_queues sdp_retry_count ack_time sdp_link_layer_ib_only max_large_sockets
    sdp_inline_thresh max_buffer_memory max_pinned_send max_pinned_receive pin_cache
    local_transport iwarp_port_xor ipproto forgotten
}
