// SPDX-License-Identifier: GPL-2.0-only

//! What there is one of at a time.

use kernel::prelude::*;
use kernel::sync::atomic::{AtomicFlag, Full};

/// The right to something, while it lives.
pub(super) struct Single(&'static AtomicFlag);

impl Single {
    /// `taken`: the thing's own.
    ///
    /// # Errors
    ///
    /// `EBUSY` if somebody else has it.
    pub(super) fn take(taken: &'static AtomicFlag) -> Result<Self> {
        match taken.xchg(true, Full) {
            true => Err(EBUSY),
            false => Ok(Single(taken)),
        }
    }
}

impl Drop for Single {
    fn drop(&mut self) {
        self.0.xchg(false, Full);
    }
}
