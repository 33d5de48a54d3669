//! `allot_slab_handle`: a handle to one thread's cache of a slab. The fast paths are in the header;
//! the slow paths are here.
//!
//! # Invariants
//!
//! Those of lib.rs and handle.rs, and these:
//!
//! 1. The header's inline functions read `front` and `tags`. `front` is that of `handle`, or one
//!    that is empty and accepts nothing.
//! 2. `slab` is alive: it counts this handle.

use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use allotment::RawSlabHandle;

use crate::error::{Noted, check_abi, note, or_null, or_stop, or_stop_pointer};
use crate::handle::{self, Held, Kept, Kind};
use crate::slab::{Slab, SlabPointer};

/// `allot_slab_handle`.
#[repr(C)]
pub struct SlabHandle {
    front: *const (),
    tags: *const (),
    handle: ManuallyDrop<RawSlabHandle<'static>>,
    slab: &'static Slab,
}

pub(crate) const HANDLE: &[(&str, usize)] = &[
    ("offsetof(struct allot_slab_handle, allot_front)", core::mem::offset_of!(SlabHandle, front)),
    ("offsetof(struct allot_slab_handle, allot_tags)", core::mem::offset_of!(SlabHandle, tags)),
];

// The numbers of the header.
const _: () = {
    assert!(core::mem::offset_of!(SlabHandle, front) == 0);
    assert!(core::mem::offset_of!(SlabHandle, tags) == 8);
    assert!(RawSlabHandle::CACHE_BYTES == 384);
};

type Pointer = *mut Held<SlabHandle>;

impl Kept for SlabHandle {
    const KIND: Kind = Kind::SlabHandle;
    const ONE_THREAD: bool = true;

    fn name(&self) -> Option<&str> {
        self.slab.name()
    }

    unsafe fn entomb(value: *mut Self) {
        // SAFETY: the memory is valid. The front is empty and accepts nothing.
        unsafe { (*value).front = RawSlabHandle::empty_cache() };
    }
}

impl Drop for SlabHandle {
    fn drop(&mut self) {
        // SAFETY: dropped only here.
        unsafe { ManuallyDrop::drop(&mut self.handle) };
        self.slab.drop_handle();
    }
}

unsafe fn create(abi: u32, slab: SlabPointer) -> Result<NonNull<Held<SlabHandle>>, Noted> {
    check_abi(Kind::SlabHandle, abi)?;
    // SAFETY: passed on to the caller. The slab is not destroyed before the handle (its invariant
    // 3).
    let (held, hardened) = unsafe { (handle::get(slab)?, handle::is_hardened(slab)) };
    held.add_handle();
    let handle = held.raw().handle();
    let (front, tags) = (handle.cache(), RawSlabHandle::tags());
    let made = SlabHandle { front, tags, handle: ManuallyDrop::new(handle), slab: held };
    handle::create(made, hardened)
}

unsafe fn alloc(handle: Pointer) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller.
    let held = unsafe { handle::get(handle) }?;
    let slot = held.handle.try_alloc();
    slot.map(NonNull::cast).map_err(|error| note(Kind::SlabHandle, held.name(), error))
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_handle_create_abi(abi: u32, slab: SlabPointer) -> Pointer {
    // SAFETY: as above.
    or_stop_pointer(unsafe { create(abi, slab) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_handle_try_create_abi(abi: u32, slab: SlabPointer) -> Pointer {
    // SAFETY: as above.
    or_null(unsafe { create(abi, slab) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_handle_destroy(handle: Pointer) {
    if !handle.is_null() {
        // SAFETY: as above. No other thread may access the front, in any mode.
        or_stop(unsafe { handle::get_by_owner(handle) });
    }
    // SAFETY: as above.
    or_stop(unsafe { handle::destroy(handle, |_| Ok(())) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_handle_alloc_slowly(handle: Pointer) -> *mut c_void {
    // SAFETY: as above.
    or_stop_pointer(unsafe { alloc(handle) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_handle_try_alloc_slowly(handle: Pointer) -> *mut c_void {
    // SAFETY: as above.
    or_null(unsafe { alloc(handle) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_slab_handle_free_slowly(handle: Pointer, slot: *mut c_void) {
    let Some(slot) = NonNull::new(slot) else { return };
    // SAFETY: as above. With `ALLOT_OUT_OF_LINE` every slot is freed here.
    unsafe { or_stop(handle::get(handle)).handle.free(slot.cast()) }
}
