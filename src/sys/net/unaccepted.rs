// SPDX-License-Identifier: GPL-2.0-only

//! Sockets of new connections, before accept(2) makes descriptors for them.

use super::super::bindings as c;
use super::netns::InNet;
use super::sock::Sock;
use kernel::sync::aref::ARef;

/// A new socket that may get a descriptor.
///
/// # Invariants
///
/// The sock has no descriptor, and at most one `Unaccepted` of that sock ever exists.
pub(crate) struct Unaccepted<T: InNet>(ARef<Sock<T>>);

impl<T: InNet> Unaccepted<T> {
    /// Wraps a socket of [`Sock::child`], once.
    pub(crate) fn new(sk: &Sock<T>) -> Option<Self> {
        // SAFETY: `sk` is alive, and a sock of the family.
        let is_first = unsafe { c::sdp_h_child_take(sk.raw()) };
        // INVARIANT: Created without a descriptor, and `is_first` is true only once.
        is_first.then(|| Unaccepted(sk.into()))
    }

    /// Returns the socket. From now on only the caller can give it a descriptor.
    pub(crate) fn into_sock(self) -> ARef<Sock<T>> {
        self.0
    }
}
