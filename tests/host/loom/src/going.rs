// SPDX-License-Identifier: GPL-2.0-only

//! A device is removed while others use it: no use may begin after the removal, and the removal
//! must not wait for ever.
//!
//! [`Device`] models `sys::rdma::device`: clone, drop and `of` of `DeviceRef`, and `remove`, with
//! the same steps.

use crate::use_count::UseCount;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

struct Device {
    uses: UseCount,
    /// The completion.
    unused: AtomicBool,
    /// Owned by the driver, which frees it after the removal. loom reports any later access.
    raw: UnsafeCell<()>,
    /// List of devices, in which connections find the device until its removal.
    listed: Mutex<bool>,
}

/// `DeviceRef`.
struct Use(Arc<Device>);

impl Use {
    fn of(device: &Arc<Device>) -> Option<Self> {
        device.uses.any_more().then(|| Use(device.clone()))
    }

    fn another(&self) -> Self {
        self.0.uses.more();
        Use(self.0.clone())
    }

    fn work(&self) {
        self.0.raw.with(|_| ());
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if self.0.uses.end() {
            let completed = self.0.unused.swap(true, Ordering::AcqRel);
            assert!(!completed, "completed by two users");
        }
    }
}

impl Device {
    /// `registry`: returns a use of a device in the list.
    fn find(device: &Arc<Self>) -> Option<Use> {
        let listed = device.listed.lock().unwrap();
        listed.then(|| Use::of(device)).flatten()
    }

    /// Models `remove`, called by the core with the use that exists since the beginning.
    fn go(first: Use) {
        let device = first.0.clone();
        *device.listed.lock().unwrap() = false;
        drop(first);
        while !device.unused.load(Ordering::Acquire) {
            thread::yield_now();
        }
        assert!(Use::of(&device).is_none(), "a use after the last");
        device.raw.with_mut(|_| ());
    }
}

fn all_orders(users: &'static [fn(&Arc<Device>)], changes: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(changes);
    model.check(move || {
        let device = Arc::new(Device {
            uses: UseCount::one(),
            unused: AtomicBool::new(false),
            raw: UnsafeCell::new(()),
            listed: Mutex::new(true),
        });
        let users: Vec<_> = users
            .iter()
            .map(|user| {
                let device = device.clone();
                thread::spawn(move || user(&device))
            })
            .collect();
        Device::go(Use(device));
        for user in users {
            user.join().unwrap();
        }
    });
}

/// A connection that finds the device in the list, passes a use on, and ends.
fn connects(device: &Arc<Device>) {
    if let Some(mine) = Device::find(device) {
        let another = mine.another();
        drop(mine);
        another.work();
    }
}

/// A task that has kept a pointer to the device, like the expedited removal.
fn hurries(device: &Arc<Device>) {
    if let Some(mine) = Use::of(device) {
        mine.work();
    }
}

#[test]
fn nobody_uses_it() {
    all_orders(&[], 4);
}

#[test]
fn one_uses_it() {
    all_orders(&[connects], 4);
    all_orders(&[hurries], 4);
}

#[test]
fn two_use_it() {
    all_orders(&[connects, hurries], 3);
    all_orders(&[hurries, hurries], 3);
}
