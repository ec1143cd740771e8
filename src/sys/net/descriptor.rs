// SPDX-License-Identifier: GPL-2.0-only

//! Descriptors of sockets (`struct socket`) in calls.

use super::super::bindings as c;
use super::netns::InNet;
use super::sock::Sock;
use core::ptr;

/// A socket and its descriptor (`struct socket`), both in use by a call.
pub(crate) struct Descriptor<'a, T: InNet> {
    pub(super) socket: *mut c::socket,
    pub(crate) sk: &'a Sock<T>,
}

/// State of a descriptor (`socket_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Progress {
    Unconnected = c::socket_state_SS_UNCONNECTED,
    Connecting = c::socket_state_SS_CONNECTING,
    Connected = c::socket_state_SS_CONNECTED,
    Disconnecting = c::socket_state_SS_DISCONNECTING,
}

impl<T: InNet> Descriptor<'_, T> {
    pub(crate) fn progress(&self) -> Progress {
        // SAFETY: The descriptor is in use by a call, so it is alive.
        match unsafe { ptr::read_volatile(&raw const (*self.socket).state) } {
            c::socket_state_SS_UNCONNECTED => Progress::Unconnected,
            c::socket_state_SS_CONNECTING => Progress::Connecting,
            c::socket_state_SS_CONNECTED => Progress::Connected,
            _ => Progress::Disconnecting,
        }
    }

    /// Changes the descriptor's state. Context: socket lock held.
    pub(crate) fn set_progress(&self, p: Progress) {
        // SAFETY: A call uses the descriptor; the socket lock serialises changes.
        unsafe { ptr::write_volatile(&raw mut (*self.socket).state, p as u32) }
    }
}
