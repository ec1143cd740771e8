// SPDX-License-Identifier: GPL-2.0-only

//! Error numbers of the socket calls that the `kernel` crate does not define.
//!
//! Each constant is the [`Error`] of the errno of the same name (errno(3)).

use super::bindings as c;
use kernel::error::Error;

macro_rules! errnos {
    ($($name:ident)*) => {
        $(
            #[doc = concat!("errno ", stringify!($name), ".")]
            pub(crate) const $name: Errno = Errno(c::$name as i32);
        )*
    };
}

/// A positive errno; `into()` makes it an [`Error`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) i32);

impl From<Errno> for Error {
    fn from(e: Errno) -> Error {
        Error::from_errno(e.0.wrapping_neg())
    }
}

impl Errno {
    /// Returns the errno of an error.
    pub(crate) fn of(e: Error) -> Self {
        Errno(e.to_errno().wrapping_neg())
    }
}

errnos! {
    EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EALREADY ECONNABORTED ECONNREFUSED
    ECONNRESET EFAULT EHOSTUNREACH EINPROGRESS EINVAL EISCONN EMSGSIZE ENETDOWN
    ENETRESET ENETUNREACH ENOBUFS ENODEV ENOENT ENOMEM ENOPROTOOPT ENOTCONN EOPNOTSUPP EPIPE
    EPROTO EPROTONOSUPPORT ESOCKTNOSUPPORT ESTALE ETIMEDOUT
}
