//! Free lists.
//!
//! The invariants are those of `handle.rs` and `lib.rs`. A `RawFreeList` begins with the fields
//! that the header's inline functions use.

use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr::NonNull;

use allotment::{AllocError, RawFreeList};

use crate::calls::{call, call_pair};
use crate::error::{FailedCall, fail, or_abort};
use crate::handle::{self, HandleBox, HandleTarget};
use crate::handle_kind::HandleKind;
use crate::layouts::layout_of;
use crate::options::{self, CheckedOptions, allot_options, option_bits, with_requested};
use crate::statistics::allot_statistics;

/// `allot_free_list`.
pub type allot_free_list = HandleBox<RawFreeList>;

impl HandleTarget for RawFreeList {
    const KIND: HandleKind = HandleKind::FreeList;
    const ONE_THREAD: bool = true;

    fn name(&self) -> Option<&str> {
        self.name()
    }
}

/// The options besides name, budget and maximum.
const SUPPORTED: u32 = option_bits::SOURCE
    | option_bits::RELEASE
    | option_bits::HARDENED
    | option_bits::REPORT_LIVE
    | option_bits::OBJECTS_PER_CHUNK;

/// # Safety
/// As for [`options::read`].
unsafe fn create(
    abi: u32,
    size: usize,
    align: usize,
    options: *const allot_options,
) -> Result<NonNull<allot_free_list>, FailedCall> {
    // SAFETY: passed on to the caller.
    let options = unsafe { options::read(HandleKind::FreeList, abi, options, SUPPORTED)? };
    let (name, hardened) = (options.name, options.hardened);
    let list = layout_of(size, align).and_then(|layout| build(layout, options));
    handle::create(list.map_err(|error| fail(HandleKind::FreeList, name, error))?, hardened)
}

fn build(layout: Layout, options: CheckedOptions<'_>) -> Result<RawFreeList, AllocError> {
    let builder = RawFreeList::builder(layout)
        .release(options.release)
        .objects_per_chunk(options.objects_per_chunk)
        .hardened(options.hardened);
    with_requested!(builder, options: source, report_live).try_build()
}

/// # Safety
/// As for [`handle::get`].
unsafe fn alloc(list: *const allot_free_list) -> Result<NonNull<c_void>, FailedCall> {
    // SAFETY: passed on to the caller.
    let list = unsafe { handle::get(list)? };
    list.try_alloc().map(NonNull::cast).map_err(|error| list.failed(error))
}

/// # Safety
/// As for [`handle::get`].
unsafe fn alloc_run(
    list: *const allot_free_list,
    objects: usize,
) -> Result<NonNull<c_void>, FailedCall> {
    // SAFETY: passed on to the caller.
    let list = unsafe { handle::get(list)? };
    list.try_alloc_run(objects).map(NonNull::cast).map_err(|error| list.failed(error))
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

call_pair! {
    unsafe fn allot_free_list_create_abi, allot_free_list_try_create_abi(
        abi: u32,
        size: usize,
        align: usize,
        options: *const allot_options,
    ) -> *mut allot_free_list = create
}

call! { fn allot_free_list_destroy(list: *mut allot_free_list) = handle::destroy }

call_pair! {
    unsafe fn allot_free_list_alloc_slowly, allot_free_list_try_alloc_slowly(
        list: *mut allot_free_list,
    ) -> *mut c_void = alloc
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_list_free_slowly(
    list: *mut allot_free_list,
    object: *mut c_void,
) {
    // Freeing NULL does not access the list.
    if let Some(object) = NonNull::new(object.cast::<u8>()) {
        // SAFETY: as above.
        unsafe { or_abort(handle::get(list)).free(object) };
    }
}

call_pair! {
    unsafe fn allot_free_list_alloc_run, allot_free_list_try_alloc_run(
        list: *mut allot_free_list,
        objects: usize,
    ) -> *mut c_void = alloc_run
}

call! { fn allot_free_list_stride(list: *const allot_free_list) -> usize => list.stride() }

call! { fn allot_free_list_live(list: *const allot_free_list) -> usize => list.live() }

call! { fn allot_free_list_trim(list: *mut allot_free_list) -> usize => list.trim() }

call! { fn allot_free_list_adopt(list: *mut allot_free_list) = handle::adopt }

call! {
    fn allot_free_list_statistics(list: *const allot_free_list) -> allot_statistics
        => list.statistics().into()
}
