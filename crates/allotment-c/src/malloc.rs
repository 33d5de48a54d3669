//! `allot_malloc` and its family: blocks that store their size, from the thread's current pool.
//!
//! The invariants are those of sized_blocks.rs and lib.rs.

use core::ffi::c_void;
use core::ptr::NonNull;

use allotment::PoolRef;
use allotment::pool::current;

use crate::calls::call_pair;
use crate::error::{FailedCall, fail};
use crate::handle_kind::HandleKind;
use crate::layouts::{DEFAULT_ALIGN, bytes_of_many};
use crate::pool_ref::{alloc_sized, kind_of};
use crate::sized_blocks::{self, BlockShape, OwnerKey, not_a_block};

/// A block of the thread's current pool, if the fast path finds one.
#[inline(always)]
fn malloc_fast(size: usize) -> Option<NonNull<c_void>> {
    let shape = BlockShape::fast(size)?;
    let start = PoolRef::alloc_fast_in_current(shape.layout())?;
    // SAFETY: allocated above.
    Some(unsafe { shape.write_header(start, OwnerKey::SHARED) })
}

fn malloc(size: usize) -> Result<NonNull<c_void>, FailedCall> {
    alloc_sized(current(), size, DEFAULT_ALIGN)
}

fn calloc(count: usize, size: usize) -> Result<NonNull<c_void>, FailedCall> {
    let pool = current();
    let bytes = bytes_of_many(count, size).map_err(|error| fail(kind_of(pool), None, error))?;
    let block = match malloc_fast(bytes) {
        Some(block) => block,
        None => alloc_sized(pool, bytes, DEFAULT_ALIGN)?,
    };
    // SAFETY: a new block of `bytes` bytes.
    unsafe { block.cast::<u8>().write_bytes(0, bytes) };
    Ok(block)
}

fn aligned_alloc(align: usize, size: usize) -> Result<NonNull<c_void>, FailedCall> {
    alloc_sized(current(), size, align)
}

unsafe fn realloc(block: *mut c_void, size: usize) -> Result<NonNull<c_void>, FailedCall> {
    let pool = current();
    let Some(block) = NonNull::new(block) else { return alloc_sized(pool, size, DEFAULT_ALIGN) };
    // SAFETY: passed on to the caller. The header shows that the memory is a pool's or malloc's.
    let resized = unsafe {
        sized_blocks::resize(block, size, OwnerKey::SHARED, |start, old, new| {
            pool.try_resize(start, old, new.layout())
        })
    };
    match resized {
        Some(block) => block.map_err(|error| fail(kind_of(pool), None, error)),
        None => Err(not_a_block(HandleKind::Memory, None, block)),
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_slow(block: *mut c_void) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: passed on to the caller. The header shows that the memory is a pool's or malloc's.
    unsafe {
        match sized_blocks::retire(block, OwnerKey::SHARED) {
            Some((start, layout)) => PoolRef::free_anywhere(start, layout),
            None => not_a_block(HandleKind::Memory, None, block).abort(),
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn free_large(start: NonNull<u8>, shape: BlockShape) {
    // SAFETY: passed on to the caller.
    unsafe { PoolRef::free_anywhere(start, shape.layout()) }
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

call_pair! { fn allot_malloc, allot_try_malloc(size: usize) -> *mut c_void = malloc_fast else malloc }

call_pair! {
    fn allot_calloc, allot_try_calloc(count: usize, size: usize) -> *mut c_void = calloc
}

call_pair! {
    fn allot_aligned_alloc, allot_try_aligned_alloc(align: usize, size: usize) -> *mut c_void
        = aligned_alloc
}

call_pair! {
    unsafe fn allot_realloc, allot_try_realloc(block: *mut c_void, size: usize) -> *mut c_void
        = realloc
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free(block: *mut c_void) {
    let Some(live) = NonNull::new(block) else { return };
    // SAFETY: as above. The header shows that the memory is a pool's or malloc's.
    unsafe {
        let Some((start, shape)) = sized_blocks::retire_default_aligned(live, OwnerKey::SHARED)
        else {
            return free_slow(block);
        };
        match BlockShape::fast(shape.size()) {
            Some(shape) => PoolRef::free_anywhere(start, shape.layout()),
            None => free_large(start, shape),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_usable_size(block: *const c_void) -> usize {
    let Some(block) = NonNull::new(block.cast_mut()) else { return 0 };
    // SAFETY: as above.
    match unsafe { sized_blocks::size_of_block(block, OwnerKey::SHARED) } {
        Some(size) => size,
        None => not_a_block(HandleKind::Memory, None, block).abort(),
    }
}
