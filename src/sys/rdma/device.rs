// SPDX-License-Identifier: GPL-2.0-only

//! RDMA devices.
//!
//! A [`DeviceRef`] is a use of one `struct ib_device`: while it exists, the device may be removed
//! but is not freed. A [`Client`] is notified of added and removed devices. On a removal the client
//! ends all uses, and the removal waits for that. On a removal, connections first get time to
//! disconnect; then all uses are ended unconditionally.

use super::super::bindings as c;
use super::super::sync::Exclusive;
use super::use_count::UseCount;
use crate::sys::netns::Net;
use crate::sys::time::milliseconds;
use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::NonNull;
use kernel::bindings::{complete_all, completion, init_completion, wait_for_completion_timeout};
use kernel::error::to_result;
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, AtomicFlag, Relaxed, Release};
use kernel::sync::{new_mutex, Arc, Mutex, MutexGuard};
use kernel::types::Opaque;

/// Time for connections to disconnect when their device is removed (ms).
const PATIENCE: u32 = 250;
/// Time after which a waiting removal of a device is logged (s).
const LONG: u32 = 10;

/// State of a device, and the number of its uses.
///
/// # Invariants
///
/// `raw` is registered and its driver is bound while `uses` is not zero.
#[pin_data]
struct Device {
    raw: NonNull<c::ib_device>,
    driver: c::rdma_driver_id,
    virt: bool,
    iwarp: bool,
    removing: AtomicFlag,
    removal_overdue: AtomicFlag,
    vector: Atomic<u32>,
    /// Held while a software device resets a QP. rxe polls until the QP's tasks have finished. Many
    /// resets at once, or one in a rescuer thread, would keep these tasks from running.
    #[pin]
    resets: Mutex<()>,
    uses: UseCount,
    /// Completed when the last use is dropped.
    #[pin]
    unused: Opaque<completion>,
}

impl Device {
    /// Waits for the end of all uses. Returns false if the uses last longer than `ms`. Context:
    /// process, uninterruptible: `ib_core` does not let a removal fail.
    fn wait_unused(&self, ms: u32) -> bool {
        // SAFETY: The completion was initialised with the device, and is pinned.
        unsafe { wait_for_completion_timeout(self.unused.get(), milliseconds(ms)) != 0 }
    }
}

// SAFETY: An `ib_device` may be used by any thread.
unsafe impl Send for Device {}
// SAFETY: An `ib_device` may be used by any thread.
unsafe impl Sync for Device {}

/// A use of a device.
///
/// # Invariants
///
/// Each `DeviceRef` counts as one of `uses`.
pub(crate) struct DeviceRef(Arc<Device>);

impl Clone for DeviceRef {
    fn clone(&self) -> Self {
        // INVARIANT: Counted. `self` counts as well, so this is not the first use.
        self.0.uses.more();
        DeviceRef(self.0.clone())
    }
}

impl Drop for DeviceRef {
    fn drop(&mut self) {
        if self.0.uses.end() {
            // SAFETY: The completion was initialised with the device, which `self` keeps.
            unsafe { complete_all(self.0.unused.get()) }
        }
    }
}

impl PartialEq for DeviceRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl DeviceRef {
    /// Adds a use, unless the last use has ended.
    fn of(device: &Arc<Device>) -> Option<Self> {
        // INVARIANT: Counted.
        let counted = device.uses.any_more();
        counted.then(|| DeviceRef(device.clone()))
    }

    /// Returns the C object.
    pub(super) fn raw(&self) -> *mut c::ib_device {
        self.0.raw.as_ptr()
    }

    /// Returns true if `raw`, which is only compared, is this device.
    pub(super) fn is(&self, raw: *const c::ib_device) -> bool {
        core::ptr::eq(self.0.raw.as_ptr(), raw)
    }

    pub(crate) fn is_removing(&self) -> bool {
        self.0.removing.load(Acquire)
    }

    /// Returns true if it is too late to end uses of the device gracefully.
    pub(crate) fn removal_is_overdue(&self) -> bool {
        self.0.removal_overdue.load(Acquire)
    }

    /// Returns true if DMA addresses are kernel addresses, so that no sync is needed.
    pub(super) fn is_virtual(&self) -> bool {
        self.0.virt
    }

    pub(super) fn is_rxe(&self) -> bool {
        self.0.driver == c::rdma_driver_id_RDMA_DRIVER_RXE
    }

    /// Returns true for soft iWARP, whose completions of sends are unreliable
    /// (docs/kernel-notes.md).
    pub(super) fn is_siw(&self) -> bool {
        self.0.driver == c::rdma_driver_id_RDMA_DRIVER_SIW
    }

    /// Returns true if connections are iWARP's: over TCP, by `iw_cm`.
    pub(crate) fn is_iwarp(&self) -> bool {
        self.0.iwarp
    }

    /// Takes the lock for resetting a QP of a software device.
    pub(super) fn lock_resets(&self) -> MutexGuard<'_, ()> {
        self.0.resets.lock()
    }

    /// Returns the attributes that `ib_core` has read from the driver.
    pub(super) fn attributes(&self) -> &c::ib_device_attr {
        // SAFETY: By the invariants the device is registered, so its attributes are constant.
        unsafe { &(*self.raw()).attrs }
    }

    /// Returns the completion vectors, one after another.
    pub(super) fn next_vector(&self) -> u32 {
        // SAFETY: By the invariants the device is registered, so the number is constant.
        let n = unsafe { (*self.raw()).num_comp_vectors };
        let turn = self.0.vector.fetch_add(1, Relaxed);
        turn.checked_rem(u32::try_from(n).unwrap_or(0)).unwrap_or(0)
    }

    /// Returns true if a port supports connections in the given network namespace.
    pub(crate) fn can_connect(&self, port: u32, net: &Net) -> bool {
        // SAFETY: By the invariants the device is registered and has the port; the namespace is
        // alive.
        self.has_port(port) && unsafe { c::sdp_h_can_connect(self.raw(), port, net.as_raw()) }
    }

    /// Returns true if the link of a port is InfiniBand, false for Ethernet.
    pub(crate) fn port_is_infiniband(&self, port: u32) -> bool {
        // SAFETY: By the invariants the device is registered, and it has the port.
        self.has_port(port) && unsafe { c::rdma_protocol_ib(self.raw(), port) }
    }

    fn has_port(&self, port: u32) -> bool {
        // SAFETY: By the invariants the device is registered.
        unsafe { c::rdma_is_port_valid(self.raw(), port) != 0 }
    }

    /// Returns the code of the port's MTU: 1 stands for 256 bytes, 5 for 4096.
    pub(crate) fn port_mtu(&self, port: u32) -> Result<u8> {
        let mut attr = c::ib_port_attr::default();
        // SAFETY: By the invariants the device is registered. The function checks the port.
        to_result(unsafe { c::ib_query_port(self.raw(), port, &mut attr) })?;
        Ok(attr.active_mtu as u8)
    }

    /// Returns the index of a P_Key in the table of a port.
    pub(crate) fn find_pkey(&self, port: u32, pkey: u16) -> Result<u16> {
        let mut index = 0;
        // SAFETY: By the invariants the device is registered; `index` is writable.
        to_result(unsafe { c::ib_find_cached_pkey(self.raw(), port, pkey, &mut index) })?;
        Ok(index)
    }

    /// Returns the maximum number of RDMA READs in flight per QP: at most 4 in each direction.
    pub(crate) fn max_reads(&self) -> u8 {
        let a = self.attributes();
        u8::try_from(a.max_qp_rd_atom.min(a.max_qp_init_rd_atom).clamp(0, 4)).unwrap_or(0)
    }
}

/// Logs the device and its limits, which no single sysfs file shows. Does not print the name of the
/// device, which may change during the call.
impl fmt::Display for DeviceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let a = self.attributes();
        write!(
            f,
            "device {:x}:{:x}, requests {}, completions {}, pieces {}, of a READ {}, READs {} and {}, \
             pages of a registration {}, of {} bytes at least, capabilities {:#x} {:#x}",
            a.vendor_id,
            a.vendor_part_id,
            a.max_qp_wr,
            a.max_cqe,
            a.max_send_sge,
            a.max_sge_rd,
            a.max_qp_init_rd_atom,
            a.max_qp_rd_atom,
            a.max_fast_reg_page_list_len,
            a.page_size_cap & a.page_size_cap.wrapping_neg(),
            a.device_cap_flags,
            a.kernel_cap_flags
        )
    }
}

/// Receiver of device events. Context: process.
pub(crate) trait Client: 'static {
    /// Handles an added device. After an error all uses have to end, as in [`Client::removed`].
    fn added(device: &DeviceRef) -> Result;

    /// Handles the removal of a device. The removal waits until all uses have ended. Called again
    /// if the removal takes too long: the uses must then end unconditionally.
    fn removed(device: &DeviceRef);
}

#[repr(transparent)]
struct ClientCell(UnsafeCell<c::ib_client>);

// SAFETY: The thread that set `REGISTERED` writes the contents before it registers the client.
// After the registration only `ib_core` accesses the contents, by its own rules.
unsafe impl Sync for ClientCell {}

static CLIENT: ClientCell = ClientCell(UnsafeCell::new({
    // SAFETY: All-zero is a valid `ib_client`: null pointers, no functions, numbers.
    unsafe { core::mem::zeroed() }
}));
static REGISTERED: AtomicFlag = AtomicFlag::new(false);

/// Registration of a client. Dropping the client removes all devices from the client, and waits
/// until the uses of the devices have ended.
pub(crate) struct Registration {
    _single: Exclusive,
}

impl Registration {
    /// Registers the client. `ib_core` first notifies the client of all existing devices.
    ///
    /// # Errors
    ///
    /// `EBUSY`: another client is registered. Other errors: those of `ib_register_client()`.
    pub(crate) fn new<C: Client>() -> Result<Self> {
        let single = Exclusive::take(&REGISTERED)?;
        let client = CLIENT.0.get();
        // SAFETY: This thread has set the flag, so no other thread writes the client or has
        // registered it. The contents are zeros except for the following fields.
        unsafe {
            client.write(core::mem::zeroed());
            (*client).name = super::name();
            (*client).add = Some(add::<C>);
            (*client).remove = Some(remove::<C>);
        }
        // SAFETY: The client is a static, and both functions have the signature that `ib_core`
        // requires. `Drop` unregisters the client, before the module is unloaded.
        to_result(unsafe { c::ib_register_client(client) })?;
        Ok(Registration { _single: single })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: `new` has registered the client, once.
        unsafe { c::ib_unregister_client(CLIENT.0.get()) };
    }
}

extern "C" fn add<C: Client>(raw: *mut c::ib_device) -> c_int {
    let Some(raw) = NonNull::new(raw) else {
        return EINVAL.to_errno();
    };
    let Err(e) = begin::<C>(raw) else { return 0 };
    // SAFETY: `ib_core` passes a device that is being registered.
    unsafe { c::sdp_h_ib_warn_add(raw.as_ptr(), e.to_errno()) };
    e.to_errno()
}

/// Adds a new device to the client.
fn begin<C: Client>(raw: NonNull<c::ib_device>) -> Result {
    let device = Arc::pin_init(
        pin_init!(Device {
            raw,
            // SAFETY: `ib_core` passes a device that is being registered.
            virt: unsafe { c::ib_uses_virt_dma(raw.as_ptr()) },
            // SAFETY: The device is valid.
            driver: unsafe { (*raw.as_ptr()).ops.driver_id },
            // SAFETY: The device is valid, and each device has a port 1.
            iwarp: unsafe { c::rdma_cap_iw_cm(raw.as_ptr(), 1) },
            removing: AtomicFlag::new(false),
            removal_overdue: AtomicFlag::new(false),
            vector: Atomic::new(0),
            resets <- new_mutex!((), "ib_sdp_resets"),
            uses: UseCount::one(),
            // SAFETY: The function initialises its argument, which the device pins.
            unused <- Opaque::ffi_init(|c| unsafe { init_completion(c) }),
        }),
        GFP_KERNEL,
    )?;
    // INVARIANT: `uses` begins with 1, for this `DeviceRef`. `ib_core` calls `remove` before it
    // frees the device.
    let device = DeviceRef(device);
    if let Err(e) = C::added(&device) {
        end::<C>(device);
        return Err(e);
    }
    // The device keeps the use until `remove`, so the use must not be dropped before.
    let device = core::mem::ManuallyDrop::new(device);
    // SAFETY: The field is moved out of a value that is neither used nor dropped again.
    let data = Arc::into_raw(unsafe { core::ptr::read(&device.0) });
    // SAFETY: Called for the registered client and the device that `ib_core` adds.
    unsafe { c::ib_set_client_data(raw.as_ptr(), CLIENT.0.get(), data.cast_mut().cast()) };
    Ok(())
}

extern "C" fn remove<C: Client>(_: *mut c::ib_device, data: *mut c_void) {
    if !data.is_null() {
        // SAFETY: The data is what `add` stored, and `ib_core` calls `remove` once for each `add`.
        // INVARIANT: `data` has held one use since `add`.
        end::<C>(DeviceRef(unsafe { Arc::from_raw(data.cast::<Device>()) }));
    }
}

/// Removes a device from the client, and waits until all uses have ended, `remove`'s included.
fn end<C: Client>(device: DeviceRef) {
    let state = device.0.clone();
    state.removing.store(true, Release);
    C::removed(&device);
    drop(device);
    if !state.wait_unused(PATIENCE) {
        state.removal_overdue.store(true, Release);
        if let Some(device) = DeviceRef::of(&state) {
            C::removed(&device);
        }
    }
    if !state.wait_unused(LONG * 1000) {
        // SAFETY: `ib_core` waits for the caller, so the device is (being) registered.
        unsafe { c::sdp_h_ib_warn_removal(state.raw.as_ptr(), LONG) };
    }
    while !state.wait_unused(LONG * 1000) {}
}
