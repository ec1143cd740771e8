// SPDX-License-Identifier: GPL-2.0-only

//! The address spaces in which memory is, or was a moment ago, protected.

use super::Room;
use crate::sys::protect::{Open, Protector, Workers};
use crate::sys::sync::late_mutex;
use kernel::prelude::*;
use kernel::sync::Arc;

late_mutex! {
    /// All of them.
    mod rooms, ROOMS: KVec<Open<Room>> = KVec::new()
}

/// The one of the calling process, made if there is none. Sleeps; a fatal signal ends it.
///
/// # Errors
///
/// `ENOMEM`, `EINTR`, or why there cannot be one.
pub(crate) fn current() -> Result<Arc<Protector<Room>>> {
    let room = {
        let mut all = rooms::lock()?;
        let usable = |r: &&Open<Room>| {
            let room = r.protector();
            room.is_mine() && !room.handler.is_closed()
        };
        let there = all.iter().find(usable).map(|r| r.protector().clone());
        match there {
            Some(room) => room,
            None => {
                // one that is there is not to be closed under the lock
                all.reserve(1, GFP_KERNEL)?;
                let open = Room::open()?;
                let room = open.protector().clone();
                all.push(open, GFP_KERNEL)?;
                room
            }
        }
    };
    room.wait()?;
    Ok(room)
}

/// Takes one out.
pub(super) fn forget(room: &Protector<Room>) -> Option<Open<Room>> {
    let mut all = rooms::lock().ok()?;
    let at = all
        .iter()
        .position(|r| core::ptr::eq(&**r.protector(), room))?;
    all.remove(at).ok()
}

/// The service while the module is loaded. Dropped when nobody has a block in flight any more.
pub(crate) struct Service {
    _workers: Workers,
}

impl Service {
    /// Once, when the module is loaded.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn start() -> Result<Self> {
        rooms::start();
        Ok(Service {
            _workers: Workers::start()?,
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // closing waits for workers, who take the lock
        while let Some(last) = rooms::lock().ok().and_then(|mut all| all.pop()) {
            drop(last);
        }
        // nothing drops the list itself
        let list = rooms::lock().map(|mut all| core::mem::replace(&mut *all, KVec::new()));
        drop(list);
    }
}
