// SPDX-License-Identifier: GPL-2.0-only

//! Table of the address spaces with protected memory, now or a moment ago.

use super::ProtectedMm;
use crate::sys::protect::{Open, Protector, Workers};
use crate::sys::sync::late_mutex;
use kernel::prelude::*;
use kernel::sync::Arc;

late_mutex! {
    /// The table.
    mod rooms, ROOMS: KVec<Open<ProtectedMm>> = KVec::new()
}

/// Returns the entry of the calling process, made if missing. Sleeps; a fatal signal ends it.
///
/// # Errors
///
/// `ENOMEM`, `EINTR`. Others: the process cannot have one.
pub(crate) fn current() -> Result<Arc<Protector<ProtectedMm>>> {
    let mm = {
        let mut all = rooms::lock()?;
        let usable = |r: &&Open<ProtectedMm>| {
            let mm = r.protector();
            mm.is_mine() && !mm.handler.is_closed()
        };
        let there = all.iter().find(usable).map(|r| r.protector().clone());
        match there {
            Some(mm) => mm,
            None => {
                // an existing one must not be closed under the lock
                all.reserve(1, GFP_KERNEL)?;
                let open = ProtectedMm::open()?;
                let mm = open.protector().clone();
                all.push(open, GFP_KERNEL)?;
                mm
            }
        }
    };
    mm.wait()?;
    Ok(mm)
}

pub(super) fn forget(mm: &Protector<ProtectedMm>) -> Option<Open<ProtectedMm>> {
    let mut all = rooms::lock().ok()?;
    let at = all
        .iter()
        .position(|r| core::ptr::eq(&**r.protector(), mm))?;
    all.remove(at).ok()
}

/// The service while the module is loaded. Dropped once no block is in flight.
pub(crate) struct Service {
    _workers: Workers,
}

impl Service {
    /// Starts it, once, when the module is loaded.
    pub(crate) fn start() -> Result<Self> {
        rooms::start();
        Ok(Service {
            _workers: Workers::start()?,
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // closing waits for workers, which take the lock
        while let Some(last) = rooms::lock().ok().and_then(|mut all| all.pop()) {
            drop(last);
        }
        // nothing drops the list itself
        let list = rooms::lock().map(|mut all| core::mem::replace(&mut *all, KVec::new()));
        drop(list);
    }
}
