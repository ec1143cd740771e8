// SPDX-License-Identifier: GPL-2.0-only

//! Per-namespace state of the module: data, and files under `/proc/net`.

use super::super::bindings as c;
use super::super::netns::Net;
use super::super::sync::Exclusive;
use super::params::Params;
use core::any::TypeId;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use core::slice;
use kernel::ffi::c_void;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::str::CStr;
use kernel::sync::aref::{ARef, AlwaysRefCounted};
use kernel::sync::atomic::{Acquire, AtomicFlag, Release};
use kernel::sync::Arc;

/// State of a namespace: made with the namespace (or when the module is loaded), dropped at its end
/// (or when the module is unloaded). Sockets of kernel users do not hold their namespace, so each
/// socket holds a reference to the namespace's state.
pub(crate) trait PerNet: Sized + Send + Sync + 'static {
    /// Object with rows in [`ProcFile::Rows`].
    type Row: AlwaysRefCounted + 'static;
    /// Names and contents of the files.
    const FILES: &'static [(&'static CStr, ProcFile<Self>)];
    fn params(&self) -> &Params;
    fn init() -> impl PinInit<Self, Error>;
    /// Handles the completed setup of the namespace.
    fn start(this: &Arc<Self>) -> Result;
    /// Handles the end of the namespace, when only kernel users may have sockets in it.
    fn stop(this: &Arc<Self>);
}

/// A file of a namespace's data in `/proc/net`.
pub(crate) enum ProcFile<P: PerNet> {
    /// Text that is generated at each read; `write` handles a line written.
    Text {
        show: fn(&P, &SeqFile),
        write: fn(&P, &[u8]) -> Result,
    },
    /// A heading and a row for each object. No lock is held between two rows: objects may appear
    /// and disappear while the file is read.
    Rows {
        heading: fn(&SeqFile),
        /// Returns the object with the lowest address that is not below the given address.
        next: fn(&P, usize) -> Option<ARef<P::Row>>,
        /// Writes a row; may write nothing. The number is the index of the object, from 0 on.
        show: fn(&P::Row, i64, &SeqFile),
    },
}

/// Socket type with a per-namespace state, which each socket holds.
pub(crate) trait InNet {
    type Net: PerNet;
}

/// Contents of the module's area in a namespace.
#[repr(C)]
struct Held<P> {
    /// Type of the data. The first field, so that it can be read for any type.
    of: TypeId,
    data: Arc<P>,
    sysctls: *mut c::ctl_table_header,
}

/// Set while a registration exists.
static REGISTERED: AtomicFlag = AtomicFlag::new(false);
/// Set while the registration is complete: all namespaces have their data.
static READY: AtomicFlag = AtomicFlag::new(false);

/// Registration of per-namespace data: while it exists, [`of`] works for every namespace.
pub(super) struct Registration<P: PerNet> {
    _single: Exclusive,
    _data: PhantomData<P>,
}

impl<P: PerNet> Registration<P> {
    /// Makes the data of all namespaces.
    ///
    /// # Safety
    ///
    /// When the registration is dropped, no caller is in [`of`] or holds a result of it.
    ///
    /// Errors: `EBUSY`: another registration exists. Errors of `register_pernet_subsys()`.
    pub(super) unsafe fn new() -> Result<Self> {
        let single = Exclusive::take(&REGISTERED)?;
        // SAFETY: The functions have the required signatures and live as long as the module; `drop`
        // unregisters them. The area has the size of `Held<P>`; the kernel aligns it like kmalloc.
        let e =
            unsafe { c::sdp_h_netns_start(size_of::<Held<P>>(), Some(init::<P>), Some(exit::<P>)) };
        if e < 0 {
            return Err(Error::from_errno(e));
        }
        READY.store(true, Release);
        Ok(Registration {
            _single: single,
            _data: PhantomData,
        })
    }
}

impl<P: PerNet> Drop for Registration<P> {
    fn drop(&mut self) {
        READY.store(false, Release);
        // SAFETY: Registered by `new`.
        unsafe { c::sdp_h_netns_stop() };
    }
}

/// Returns the data of `net`, if a registration exists.
///
/// # Panics
///
/// Returns `None` if the existing registration is of another type: only one can exist.
pub(crate) fn of<P: PerNet>(net: &Net) -> Option<&Arc<P>> {
    // SAFETY: The registration is complete, so `init` has run for each namespace that a caller can
    // reach. `exit` runs only when no reference to the namespace exists, but this caller holds a
    // reference. At the end of the registration `exit` also runs, when no callers exist.
    READY.load(Acquire).then(|| unsafe { held(net) })
}

/// Returns the data of `net`.
///
/// # Safety
///
/// `init` has written the data, and `exit` does not remove it while the result is in use.
unsafe fn held<P: PerNet>(net: &Net) -> &Arc<P> {
    // SAFETY: By the requirements.
    let held = unsafe { area::<P>(ptr::from_ref(net).cast()) };
    // SAFETY: By the requirements. `of` is the first field for every `P`.
    let of = unsafe { (&raw const (*held).of).read() };
    assert!(of == TypeId::of::<P>(), "data of another type");
    // SAFETY: By the requirements the data exists and is for this `P`.
    unsafe { &(*held).data }
}

/// Returns the module's area in a namespace.
///
/// # Safety
///
/// `net` is a namespace whose area exists: between `init` and `exit`.
unsafe fn area<P>(net: *const c::net) -> *mut Held<P> {
    // SAFETY: By the requirements.
    unsafe { c::net_generic(net, c::sdp_h_netns_id).cast() }
}

/// # Safety
///
/// The C side calls `init` once for each namespace, before any other function for the namespace.
unsafe extern "C" fn init<P: PerNet>(net: *mut c::net) -> i32 {
    let made = match Arc::pin_init(P::init(), GFP_KERNEL) {
        Ok(p) => p,
        Err(e) => return e.to_errno(),
    };
    // SAFETY: `init` was called for this namespace.
    let slot = unsafe { area::<P>(net) };
    let held = Held {
        of: TypeId::of::<P>(),
        data: made,
        sysctls: ptr::null_mut(),
    };
    // SAFETY: `slot` is zeroed memory of the right size, which does not move until `exit`.
    unsafe { slot.write(held) };
    // SAFETY: The data was initialised above, and is dropped later. The namespace is alive.
    let (data, net) = unsafe { (&(*slot).data, Net::from_raw(net)) };
    // SAFETY: The namespace is alive; `exit` or the cleanup below removes the files.
    let started = unsafe { create::<P>(net) }.and_then(|()| {
        // SAFETY: `data` was made above. The parameters live until `exit` has removed the sysctls.
        unsafe {
            (*slot).sysctls = c::sdp_h_sysctls_start(net.as_raw(), data.params().as_raw());
            let sysctls = NonNull::new((*slot).sysctls).ok_or(ENOMEM);
            let started = sysctls.and_then(|sysctls| {
                P::start(data).inspect_err(|_| c::sdp_h_sysctls_stop(sysctls.as_ptr()))
            });
            started.inspect_err(|_| remove(net, P::FILES))
        }
    });
    if let Err(e) = started {
        // SAFETY: The slot was initialised above, and is not published.
        unsafe { ptr::drop_in_place(slot) };
        return e.to_errno();
    }
    0
}

/// Makes files.
///
/// # Safety
///
/// [`held`] works for the namespace while its files exist; they are removed before the unload.
unsafe fn create<P: PerNet>(net: &Net) -> Result {
    for (i, (name, file)) in P::FILES.iter().enumerate() {
        // SAFETY: The namespace is alive, and name and functions live as long as the module.
        let made = unsafe {
            let (net, name) = (net.as_raw(), name.as_char_ptr());
            let data = ptr::from_ref(file).cast_mut().cast();
            let rows = const {
                &c::seq_operations {
                    start: Some(start::<P>),
                    stop: Some(stop::<P>),
                    next: Some(next::<P>),
                    show: Some(row::<P>),
                }
            };
            match file {
                ProcFile::Text { .. } => {
                    c::sdp_h_proc_text(net, name, Some(show::<P>), Some(write::<P>), data)
                }
                ProcFile::Rows { .. } => c::sdp_h_proc_rows(net, name, rows, data),
            }
        };
        if made.is_null() {
            // SAFETY: `create` has made these files.
            unsafe { remove(net, P::FILES.get(..i).unwrap_or(P::FILES)) };
            return Err(ENOMEM);
        }
    }
    Ok(())
}

/// Removes files and waits for their readers.
///
/// # Safety
///
/// The files were made by [`create`].
unsafe fn remove<P: PerNet>(net: &Net, files: &[(&CStr, ProcFile<P>)]) {
    for (name, _) in files.iter().rev() {
        // SAFETY: The namespace is alive and the name is a C string.
        unsafe { c::sdp_h_proc_remove(net.as_raw(), name.as_char_ptr()) }
    }
}

/// # Safety
///
/// `file` is an open file that `create` has made.
unsafe fn contents<P: PerNet>(file: *const c::file) -> &'static ProcFile<P> {
    // SAFETY: `create` has passed a static `ProcFile<P>`, which proc keeps in the inode.
    unsafe { &*(*(*file).f_inode).i_private.cast() }
}

/// # Safety
///
/// Called by the C side with a seq_file of a file that `create` has made.
unsafe extern "C" fn show<P: PerNet>(seq: *mut c::seq_file, _: *mut c_void) -> i32 {
    // SAFETY: The caller in C passes a seq_file of a file from `create`. The file is open
    // for this call, and its removal waits for the call.
    unsafe {
        if let ProcFile::Text { show, .. } = contents::<P>((*seq).file) {
            let net = Net::from_raw(c::seq_file_single_net(seq));
            show(held(net), SeqFile::from_raw(seq))
        }
    }
    0
}

/// # Safety
///
/// Called by the C side with an open file that `create` has made; `line` points to `len` bytes.
unsafe extern "C" fn write<P: PerNet>(file: *mut c::file, line: *mut u8, len: usize) -> i32 {
    // SAFETY: The C side passes an open file from `create`, and a copy of the bytes.
    let (of, line) = unsafe {
        let net = Net::from_raw(c::seq_file_single_net((*file).private_data.cast()));
        (held(net), slice::from_raw_parts(line, len))
    };
    // SAFETY: As above.
    match unsafe { contents::<P>(file) } {
        // 0: the C code returns the number of bytes
        ProcFile::Text { write, .. } => write(of, line).map_or_else(|e| e.to_errno(), |()| 0),
        ProcFile::Rows { .. } => 0,
    }
}

/// The heading, `SEQ_START_TOKEN`. A row is an object's address, with a reference.
const HEADING: *mut c_void = ptr::without_provenance_mut(1);

/// Returns the row at the cursor, or the next one if its object was destroyed.
///
/// # Safety
///
/// Called by the C side with a seq_file of a file that `create` has made.
unsafe fn current<P: PerNet>(seq: *mut c::seq_file) -> *mut c_void {
    // SAFETY: The C side passes a seq_file of a file made by `create`. The file is open for this
    // call, and its removal waits for the call. The private data is an `sdp_h_rows` of one call.
    let (rows, of, contents) = unsafe {
        let rows = &mut *(*seq).private.cast::<c::sdp_h_rows>();
        let of = held::<P>(Net::from_raw(c::seq_file_net(seq)));
        (rows, of, contents::<P>((*seq).file))
    };
    let row = match contents {
        ProcFile::Rows { next, .. } => next(of, rows.at),
        ProcFile::Text { .. } => None,
    };
    let row = row.map_or(ptr::null_mut(), |row| ARef::into_raw(row).as_ptr());
    rows.at = if row.is_null() {
        usize::MAX
    } else {
        row.addr()
    };
    row.cast()
}

/// # Safety
///
/// Called by the C side with a seq_file of a file that `create` has made.
unsafe extern "C" fn start<P: PerNet>(seq: *mut c::seq_file, pos: *mut i64) -> *mut c_void {
    // SAFETY: The C side passes a seq_file of a file from `create`, and a number.
    unsafe {
        if *pos > 0 {
            return current::<P>(seq);
        }
        (*(*seq).private.cast::<c::sdp_h_rows>()).at = 0;
    }
    HEADING
}

/// # Safety
///
/// Called by the C side with a seq_file from `create`; consumes `v`, a result of `start` or `next`.
unsafe extern "C" fn next<P: PerNet>(
    seq: *mut c::seq_file,
    v: *mut c_void,
    pos: *mut i64,
) -> *mut c_void {
    // SAFETY: The C side passes a seq_file from `create`, and an object, which `stop` drops.
    unsafe {
        *pos = (*pos).saturating_add(1);
        if v != HEADING {
            (*(*seq).private.cast::<c::sdp_h_rows>()).at = v.addr().wrapping_add(1);
        }
        stop::<P>(seq, v);
        current::<P>(seq)
    }
}

/// # Safety
///
/// `v` came from `start` or `next`, and is consumed.
unsafe extern "C" fn stop<P: PerNet>(_: *mut c::seq_file, v: *mut c_void) {
    if let Some(row) = NonNull::new(v).filter(|_| v != HEADING) {
        // SAFETY: `current` has returned `row` with a reference.
        drop(unsafe { ARef::<P::Row>::from_raw(row.cast()) });
    }
}

/// # Safety
///
/// Called by the C side with a seq_file from `create`; `v` is a result of `start` or `next`.
unsafe extern "C" fn row<P: PerNet>(seq: *mut c::seq_file, v: *mut c_void) -> i32 {
    // SAFETY: The C side passes a seq_file of a file from `create`. `current` has taken the
    // reference, and `stop` drops it. `index` is the number of the row, and 0 for the heading.
    unsafe {
        let to = SeqFile::from_raw(seq);
        if let ProcFile::Rows { heading, show, .. } = contents::<P>((*seq).file) {
            match v {
                HEADING => heading(to),
                row => show(&*row.cast(), (*seq).index.saturating_sub(1), to),
            }
        }
    }
    0
}

/// # Safety
///
/// The C side calls `exit` last, once for each namespace that `init` has prepared.
unsafe extern "C" fn exit<P: PerNet>(net: *mut c::net) {
    // SAFETY: The C side passes a namespace, not freed yet, whose files `init` has made.
    unsafe {
        remove(Net::from_raw(net), P::FILES);
        c::sdp_h_sysctls_stop((*area::<P>(net)).sysctls);
    }
    // SAFETY: `init` has initialised the data. No code accesses the data any longer, because no
    // file and no reference to the namespace exist.
    let last = unsafe { area::<P>(net).read() };
    P::stop(&last.data);
}
