//! `allot_slab_handle`: a handle to one thread's cache of a slab. The fast paths are in the header;
//! the slow paths are here.
//!
//! # Invariants
//!
//! Those of lib.rs and handle.rs, and these:
//!
//! 1. The header's inline functions read `cache` and `tags`. `cache` is that of `handle`, or one
//!    that is empty and accepts nothing.
//! 2. `slab` is alive: it counts this handle.

use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use allotment::slab::RawSlabHandle;

use crate::calls::call_pair;
use crate::error::{FailedCall, check_abi, or_abort};
use crate::handle::{self, HandleBox, HandleTarget};
use crate::handle_kind::HandleKind;
use crate::slab::{CSlab, allot_slab};

/// `allot_slab_handle`.
pub type allot_slab_handle = HandleBox<CSlabHandle>;

/// A slab handle, and what inline functions read.
#[repr(C)]
pub struct CSlabHandle {
    /// The thread's cache of the slab.
    cache: *const (),
    /// The root of the map from addresses to the tags of slabs.
    tags: *const (),
    handle: ManuallyDrop<RawSlabHandle<'static>>,
    slab: &'static CSlab,
}

pub(crate) const HANDLE: &[(&str, usize)] = &[
    ("offsetof(struct allot_slab_handle, allot_cache)", core::mem::offset_of!(CSlabHandle, cache)),
    ("offsetof(struct allot_slab_handle, allot_tags)", core::mem::offset_of!(CSlabHandle, tags)),
];

// The numbers of the header.
const _: () = {
    assert!(core::mem::offset_of!(CSlabHandle, cache) == 0);
    assert!(core::mem::offset_of!(CSlabHandle, tags) == 8);
    assert!(RawSlabHandle::CACHE_BYTES == 384);
};

impl HandleTarget for CSlabHandle {
    const KIND: HandleKind = HandleKind::SlabHandle;
    const ONE_THREAD: bool = true;

    fn name(&self) -> Option<&str> {
        self.slab.name()
    }

    unsafe fn disable_fast_paths(value: *mut Self) {
        // SAFETY: the memory is valid. The cache is empty and accepts nothing.
        unsafe { (*value).cache = RawSlabHandle::empty_cache() };
    }
}

impl Drop for CSlabHandle {
    fn drop(&mut self) {
        // SAFETY: dropped only here.
        unsafe { ManuallyDrop::drop(&mut self.handle) };
        self.slab.drop_handle();
    }
}

unsafe fn create(
    abi: u32,
    slab: *mut allot_slab,
) -> Result<NonNull<allot_slab_handle>, FailedCall> {
    check_abi(HandleKind::SlabHandle, abi)?;
    // SAFETY: passed on to the caller. The slab is not destroyed before the handle (its invariant
    // 3).
    let (slab, hardened) = unsafe { (handle::get(slab)?, handle::is_hardened(slab)) };
    slab.add_handle();
    let handle = slab.raw().handle();
    let (cache, tags) = (handle.cache(), RawSlabHandle::tags());
    let handle = ManuallyDrop::new(handle);
    handle::create(CSlabHandle { cache, tags, handle, slab }, hardened)
}

unsafe fn alloc(handle: *mut allot_slab_handle) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller.
    let this = unsafe { handle::get(handle) }?;
    let slot = this.handle.try_alloc();
    slot.map_err(|error| this.failed(error))
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

call_pair! {
    unsafe fn allot_slab_handle_create_abi, allot_slab_handle_try_create_abi(
        abi: u32,
        slab: *mut allot_slab,
    ) -> *mut allot_slab_handle = create
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_handle_destroy(handle: *mut allot_slab_handle) {
    if !handle.is_null() {
        // SAFETY: as above. No other thread may access the cache, in any mode.
        or_abort(unsafe { handle::get_by_owner(handle) });
    }
    // SAFETY: as above.
    or_abort(unsafe { handle::destroy(handle) });
}

call_pair! {
    unsafe fn allot_slab_handle_alloc_slowly, allot_slab_handle_try_alloc_slowly(
        handle: *mut allot_slab_handle,
    ) -> *mut c_void = alloc
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_handle_free_slowly(
    handle: *mut allot_slab_handle,
    slot: *mut c_void,
) {
    let Some(slot) = NonNull::new(slot) else { return };
    // SAFETY: as above. With `ALLOT_OUT_OF_LINE` every slot is freed here.
    unsafe { or_abort(handle::get(handle)).handle.free(slot.cast()) }
}
