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

use crate::blocks;
use crate::error::{Noted, Problem, note, or_null, or_stop, or_stop_pointer};
use crate::handle::Kind;
use crate::known;
use crate::layouts::{DEFAULT_ALIGN, common_layout, layout_of};

/// The reference of a number.
///
/// # Safety
/// The module's invariant.
#[inline(always)]
unsafe fn of(bits: u64) -> Result<PoolRef, Noted> {
    if !known::none_looked_up() {
        look_up(bits)?;
    }
    // SAFETY: passed on to the caller.
    Ok(unsafe { PoolRef::from_bits(bits) })
}

#[cold]
fn look_up(bits: u64) -> Result<(), Noted> {
    if known::all_hardened() && !PoolRef::are_valid_bits(bits) {
        let text = "the reference is not that of a pool; allot_pool_reference() returns one";
        return Err(note(Kind::Pool, None, Problem::Bad(text)));
    }
    Ok(())
}

fn failed(pool: PoolRef, error: AllocError) -> Noted {
    let kind = if pool == PoolRef::GLOBAL { Kind::Memory } else { Kind::Pool };
    note(kind, None, error)
}

unsafe fn alloc(bits: u64, size: usize, align: usize) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller.
    let pool = unsafe { of(bits) }?;
    let block = layout_of(size, align).and_then(|layout| pool.try_alloc_layout(layout));
    block.map(NonNull::cast).map_err(|error| failed(pool, error))
}

unsafe fn malloc(bits: u64, size: usize) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller.
    blocks::alloc(unsafe { of(bits) }?, size, DEFAULT_ALIGN)
}

unsafe fn resize(
    bits: u64,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
    align: usize,
) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller.
    unsafe {
        let pool = of(bits)?;
        let new = layout_of(new_size, align).map_err(|error| failed(pool, error))?;
        let resized = match NonNull::new(block) {
            None => pool.try_alloc_layout(new),
            Some(block) => layout_of(old_size, align)
                .and_then(|old| pool.try_resize(block.cast(), old, new.size())),
        };
        resized.map(NonNull::cast).map_err(|error| failed(pool, error))
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn alloc_slowly(bits: u64, size: usize, align: usize) -> *mut c_void {
    // SAFETY: passed on to the caller.
    or_stop_pointer(unsafe { alloc(bits, size, align) })
}

#[cold]
#[inline(never)]
unsafe extern "C" fn try_alloc_slowly(bits: u64, size: usize, align: usize) -> *mut c_void {
    // SAFETY: passed on to the caller.
    or_null(unsafe { alloc(bits, size, align) })
}

/// A block, if the fast path finds one and handles are not looked up.
#[inline(always)]
unsafe fn at_hand(bits: u64, size: usize, align: usize) -> Option<NonNull<u8>> {
    if !known::none_looked_up() {
        return None;
    }
    // SAFETY: passed on to the caller.
    unsafe { PoolRef::from_bits(bits) }.alloc_fast(common_layout(size, align)?)
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
    or_stop(unsafe { of(bits) }).is_usable()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_ref_alloc(bits: u64, size: usize, align: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe {
        match at_hand(bits, size, align) {
            Some(block) => block.as_ptr().cast(),
            None => alloc_slowly(bits, size, align),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_ref_try_alloc(bits: u64, size: usize, align: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe {
        match at_hand(bits, size, align) {
            Some(block) => block.as_ptr().cast(),
            None => try_alloc_slowly(bits, size, align),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_ref_resize(
    bits: u64,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: as above.
    or_stop_pointer(unsafe { resize(bits, block, old_size, new_size, align) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_ref_try_resize(
    bits: u64,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: as above.
    or_null(unsafe { resize(bits, block, old_size, new_size, align) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_ref_malloc(bits: u64, size: usize) -> *mut c_void {
    // SAFETY: as above.
    or_stop_pointer(unsafe { malloc(bits, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_ref_try_malloc(bits: u64, size: usize) -> *mut c_void {
    // SAFETY: as above.
    or_null(unsafe { malloc(bits, size) })
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_slowly(block: *mut c_void, size: usize, align: usize) {
    let Some(block) = NonNull::new(block) else { return };
    let layout = layout_of(size, align).map_err(|error| failed(PoolRef::GLOBAL, error));
    // SAFETY: passed on to the caller.
    unsafe { PoolRef::free_anywhere(block.cast(), or_stop(layout)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free_sized(block: *mut c_void, size: usize, align: usize) {
    // SAFETY: as above.
    unsafe {
        if let Some(layout) = common_layout(size, align) {
            if let Some(block) = NonNull::new(block) {
                return PoolRef::free_anywhere(block.cast(), layout);
            }
        }
        free_slowly(block, size, align);
    }
}
