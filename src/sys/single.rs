// SPDX-License-Identifier: GPL-2.0-only

//! Exclusive claims.

use kernel::prelude::*;
use kernel::sync::atomic::{AtomicFlag, Full};

/// Exclusive claim, held until its drop.
pub(super) struct Exclusive(&'static AtomicFlag);

impl Exclusive {
    /// Claims it. `taken`: flag of the claim.
    ///
    /// # Errors
    ///
    /// `EBUSY`: the flag is claimed already.
    pub(super) fn take(taken: &'static AtomicFlag) -> Result<Self> {
        match taken.xchg(true, Full) {
            true => Err(EBUSY),
            false => Ok(Exclusive(taken)),
        }
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        self.0.xchg(false, Full);
    }
}
