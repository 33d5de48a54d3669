//! Free lists.
//!
//! The invariants are those of `handle.rs` and `lib.rs`. A `RawFreeList` begins with the fields
//! that the header's inline functions use.

use core::ffi::c_void;
use core::ptr::NonNull;

use allotment::{AllocError, RawFreeList};

use crate::error::{Noted, note, or_null, or_stop, or_stop_pointer};
use crate::handle::{self, Held, Kept, Kind};
use crate::layouts::layout_of;
use crate::options::{self, allot_options, has};
use crate::statistics::allot_statistics;

/// `allot_free_list`.
pub type allot_free_list = Held<RawFreeList>;

impl Kept for RawFreeList {
    const KIND: Kind = Kind::FreeList;
    const ONE_THREAD: bool = true;

    fn name(&self) -> Option<&str> {
        self.name()
    }
}

const HAS: u32 =
    has::SOURCE | has::RELEASE | has::HARDENED | has::REPORT_LIVE | has::OBJECTS_PER_CHUNK;

/// # Safety
/// As for [`options::read`].
unsafe fn make(
    abi: u32,
    size: usize,
    align: usize,
    options: *const allot_options,
) -> Result<NonNull<allot_free_list>, Noted> {
    // SAFETY: passed on to the caller.
    let options = unsafe { options::read(Kind::FreeList, abi, options, HAS)? };
    let refused = |error| note(Kind::FreeList, options.name, error);
    let mut builder = RawFreeList::builder(layout_of(size, align).map_err(refused)?)
        .release(options.release)
        .objects_per_chunk(options.objects_per_chunk)
        .hardened(options.hardened);
    if let Some(name) = options.name {
        builder = builder.name(name);
    }
    if let Some(budget) = &options.budget {
        builder = builder.budget(budget);
    }
    if let Some(source) = options.source {
        builder = builder.source(source);
    }
    if let Some(report) = options.report_live {
        builder = builder.report_live(report);
    }
    handle::create(builder.try_build().map_err(refused)?, options.hardened)
}

#[cold]
fn failed(list: &RawFreeList, error: AllocError) -> Noted {
    note(Kind::FreeList, list.name(), error)
}

/// # Safety
/// As for [`handle::get`].
unsafe fn alloc(list: *const allot_free_list) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller.
    let list = unsafe { handle::get(list)? };
    list.try_alloc().map(NonNull::cast).map_err(|error| failed(list, error))
}

/// # Safety
/// As for [`handle::get`].
unsafe fn alloc_run(
    list: *const allot_free_list,
    objects: usize,
) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller.
    let list = unsafe { handle::get(list)? };
    list.try_alloc_run(objects).map(NonNull::cast).map_err(|error| failed(list, error))
}

/// # Safety
/// As for [`options::read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_list_create_abi(
    abi: u32,
    size: usize,
    align: usize,
    options: *const allot_options,
) -> *mut allot_free_list {
    // SAFETY: passed on to the caller.
    or_stop_pointer(unsafe { make(abi, size, align, options) })
}

/// # Safety
/// As for [`options::read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_list_try_create_abi(
    abi: u32,
    size: usize,
    align: usize,
    options: *const allot_options,
) -> *mut allot_free_list {
    // SAFETY: passed on to the caller.
    or_null(unsafe { make(abi, size, align, options) })
}

/// # Safety
/// As for [`handle::destroy`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_list_destroy(list: *mut allot_free_list) {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { handle::destroy(list, |_| Ok(())) });
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_list_alloc_slowly(list: *mut allot_free_list) -> *mut c_void {
    // SAFETY: passed on to the caller.
    or_stop_pointer(unsafe { alloc(list) })
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_list_try_alloc_slowly(
    list: *mut allot_free_list,
) -> *mut c_void {
    // SAFETY: passed on to the caller.
    or_null(unsafe { alloc(list) })
}

/// # Safety
/// As for [`handle::get`]. The object is NULL, or a live object of this list that is not used any
/// more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_list_free_slowly(
    list: *mut allot_free_list,
    object: *mut c_void,
) {
    if let Some(object) = NonNull::new(object.cast::<u8>()) {
        // SAFETY: passed on to the caller.
        unsafe { or_stop(handle::get(list)).free(object) };
    }
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_list_alloc_run(
    list: *mut allot_free_list,
    objects: usize,
) -> *mut c_void {
    // SAFETY: passed on to the caller.
    or_stop_pointer(unsafe { alloc_run(list, objects) })
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_list_try_alloc_run(
    list: *mut allot_free_list,
    objects: usize,
) -> *mut c_void {
    // SAFETY: passed on to the caller.
    or_null(unsafe { alloc_run(list, objects) })
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_list_stride(list: *const allot_free_list) -> usize {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { handle::get(list) }).stride()
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_list_live(list: *const allot_free_list) -> usize {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { handle::get(list) }).live()
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_list_trim(list: *mut allot_free_list) -> usize {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { handle::get(list) }).trim()
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_list_adopt(list: *mut allot_free_list) {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { handle::adopt(list) });
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_list_statistics(
    list: *const allot_free_list,
) -> allot_statistics {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { handle::get(list) }).statistics().into()
}
