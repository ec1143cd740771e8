// SPDX-License-Identifier: GPL-2.0-only

//! Table of the address spaces that have protected memory, or recently had some.

use super::ProtectedMm;
use crate::sys::protect::{current_mm, Open, Protector, Workers};
use crate::sys::sync::late_mutex;
use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNodeReservation};
use kernel::sync::Arc;

/// Addresses of an `mm_struct` and its entry: an entry that is being closed may exist together with
/// its successor.
type Key = (usize, usize);

late_mutex! {
    /// The table.
    mod table, TABLE: Option<RBTree<Key, Open<ProtectedMm>>> = None
}

fn key(mm: &Protector<ProtectedMm>) -> Key {
    (mm.mm(), core::ptr::from_ref(mm).addr())
}

/// Returns the entry of the calling process, created if missing. Context: process, may sleep. A
/// fatal signal ends the wait.
///
/// # Errors
///
/// `ENOMEM`, `EINTR`. Other errors: the process cannot have an entry.
pub(crate) fn current() -> Result<Arc<Protector<ProtectedMm>>> {
    let mm = {
        let mut table = table::lock()?;
        let all = table.get_or_insert_with(RBTree::new);
        let mut at = all.cursor_lower_bound_mut(&(current_mm(), 0));
        loop {
            let Some(next) = at.filter(|at| at.current().1.protector().is_mine()) else {
                // an existing one must not be closed under the lock
                let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
                let open = ProtectedMm::open()?;
                let mm = open.protector().clone();
                all.insert(node.into_node(key(&mm), open));
                break mm;
            };
            let mm = next.current().1.protector();
            if !mm.handler.is_closed() {
                break mm.clone();
            }
            at = next.move_next();
        }
    };
    mm.wait()?;
    Ok(mm)
}

pub(super) fn forget(mm: &Protector<ProtectedMm>) -> Option<Open<ProtectedMm>> {
    table::lock().ok()?.as_mut()?.remove(&key(mm))
}

/// Registration of the table while the module is loaded. Dropped once no block is in flight.
pub(crate) struct Service {
    _workers: Workers,
}

impl Service {
    /// Starts the service when the module is loaded.
    pub(crate) fn start() -> Result<Self> {
        table::start();
        Ok(Service {
            _workers: Workers::start()?,
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // closing waits for workers, which take the lock
        while let Some(last) = first() {
            drop(last);
        }
    }
}

/// Removes the first entry.
fn first() -> Option<Open<ProtectedMm>> {
    let mut table = table::lock().ok()?;
    let at = table.as_mut()?.cursor_front_mut()?;
    Some(at.remove_current().1.to_key_value().1)
}
