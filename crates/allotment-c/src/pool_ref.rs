//! `allot_pool_ref`: an object's reference to its pool.
//!
//! # Invariant
//!
//! The number that a C caller passes is a reference that it got from this library, unless the
//! caller is wrong. While handles are looked up, the number is checked before it is followed.

use core::ffi::c_void;
use core::ptr::NonNull;

use allotment::pool::current;
use allotment::{AllocError, PoolRef};

use crate::blocks::resize_in;
use crate::calls::call_pair;
use crate::error::{CallError, FailedCall, fail, or_abort};
use crate::handle_kind::HandleKind;
use crate::handle_table;
use crate::layouts::{DEFAULT_ALIGN, fast_layout, layout_of};
use crate::sized_blocks::{BlockShape, OwnerKey};

/// The reference that a number stands for.
///
/// # Safety
/// The module's invariant.
#[inline(always)]
unsafe fn from_bits(bits: u64) -> Result<PoolRef, FailedCall> {
    if !handle_table::lookup_is_off() {
        check_bits(bits)?;
    }
    // SAFETY: passed on to the caller.
    Ok(unsafe { PoolRef::from_bits(bits) })
}

#[cold]
fn check_bits(bits: u64) -> Result<(), FailedCall> {
    if handle_table::all_hardened() && !PoolRef::are_valid_bits(bits) {
        let text = "the reference is not that of a pool; allot_pool_reference() returns one";
        return Err(fail(HandleKind::Pool, None, CallError::BadArgument(text)));
    }
    Ok(())
}

/// What an error of an allocation from this pool names.
pub(crate) fn kind_of(pool: PoolRef) -> HandleKind {
    if pool == PoolRef::GLOBAL { HandleKind::Memory } else { HandleKind::Pool }
}

fn failed(pool: PoolRef, error: AllocError) -> FailedCall {
    fail(kind_of(pool), None, error)
}

/// A block, if the fast path finds one and handles are not looked up.
#[inline(always)]
unsafe fn alloc_fast(bits: u64, size: usize, align: usize) -> Option<NonNull<u8>> {
    if !handle_table::lookup_is_off() {
        return None;
    }
    // SAFETY: passed on to the caller.
    unsafe { PoolRef::from_bits(bits) }.alloc_fast(fast_layout(size, align)?)
}

unsafe fn alloc(bits: u64, size: usize, align: usize) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller.
    let pool = unsafe { from_bits(bits) }?;
    let block = layout_of(size, align).and_then(|layout| pool.try_alloc_layout(layout));
    block.map_err(|error| failed(pool, error))
}

/// A block that stores its size, of the pool that a reference refers to, or of malloc.
pub(crate) fn alloc_sized(
    pool: PoolRef,
    size: usize,
    align: usize,
) -> Result<NonNull<c_void>, FailedCall> {
    let block = BlockShape::new(size, align).and_then(|shape| {
        let start = pool.try_alloc_layout(shape.layout())?;
        // SAFETY: allocated above.
        Ok(unsafe { shape.write_header(start, OwnerKey::SHARED) })
    });
    block.map_err(|error| failed(pool, error))
}

unsafe fn malloc(bits: u64, size: usize) -> Result<NonNull<c_void>, FailedCall> {
    // SAFETY: passed on to the caller.
    alloc_sized(unsafe { from_bits(bits) }?, size, DEFAULT_ALIGN)
}

unsafe fn resize(
    bits: u64,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
    align: usize,
) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller.
    unsafe {
        let pool = from_bits(bits)?;
        let resized = resize_in(&pool, block, old_size, new_size, align);
        resized.map_err(|error| failed(pool, error))
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_slow(block: *mut c_void, size: usize, align: usize) {
    let Some(block) = NonNull::new(block) else { return };
    let layout = layout_of(size, align).map_err(|error| failed(PoolRef::GLOBAL, error));
    // SAFETY: passed on to the caller.
    unsafe { PoolRef::free_anywhere(block.cast(), or_abort(layout)) }
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

#[unsafe(no_mangle)]
pub extern "C" fn allot_current() -> u64 {
    current().to_bits()
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_global() -> u64 {
    PoolRef::GLOBAL.to_bits()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_ref_is_usable(bits: u64) -> bool {
    // SAFETY: as above.
    or_abort(unsafe { from_bits(bits) }).is_usable()
}

call_pair! {
    unsafe fn allot_ref_alloc, allot_ref_try_alloc(bits: u64, size: usize, align: usize)
        -> *mut c_void = alloc_fast else alloc
}

call_pair! {
    unsafe fn allot_ref_resize, allot_ref_try_resize(
        bits: u64,
        block: *mut c_void,
        old_size: usize,
        new_size: usize,
        align: usize,
    ) -> *mut c_void = resize
}

call_pair! {
    unsafe fn allot_ref_malloc, allot_ref_try_malloc(bits: u64, size: usize) -> *mut c_void = malloc
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_sized(block: *mut c_void, size: usize, align: usize) {
    // SAFETY: as above.
    unsafe {
        if let Some(layout) = fast_layout(size, align) {
            if let Some(block) = NonNull::new(block) {
                return PoolRef::free_anywhere(block.cast(), layout);
            }
        }
        free_slow(block, size, align);
    }
}
