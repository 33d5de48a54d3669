//! `allot_reap`: blocks of any size for one thread at a time.
//!
//! The invariants are those of lib.rs, handle.rs and, for blocks that store their size, blocks.rs.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use allotment::AllocError;

use crate::blocks::{self, Key};
use crate::error::{Noted, note, or_null, or_stop, or_stop_pointer};
use crate::handle::{self, Held, Kept, Kind};
use crate::layouts::{common_layout, layout_of};
use crate::options::{self, Options, allot_options, has};
use crate::statistics::allot_statistics;

/// `allot_reap`.
#[repr(C)]
pub struct Reap {
    reap: allotment::Reap,
    /// The key of the blocks that store their size. A reset changes it.
    key: Cell<Key>,
}

/// The options of a reap besides its name and budget.
const OPTIONS: u32 = has::SOURCE
    | has::RELEASE
    | has::HARDENED
    | has::RESERVED
    | has::INITIAL
    | has::INCREMENT
    | has::MAXIMUM;

type Pointer = *mut Held<Reap>;

impl Kept for Reap {
    const KIND: Kind = Kind::Reap;
    const ONE_THREAD: bool = true;

    fn name(&self) -> Option<&str> {
        self.reap.name()
    }
}

impl Reap {
    fn failed(&self, error: AllocError) -> Noted {
        note(Kind::Reap, self.name(), error)
    }
}

/// A new key, which neither another reap nor this reap before a reset had.
fn next_key() -> Key {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Key::numbered(NEXT.fetch_add(1, Ordering::Relaxed))
}

unsafe fn create(abi: u32, options: *const allot_options) -> Result<NonNull<Held<Reap>>, Noted> {
    // SAFETY: passed on to the caller.
    let options = unsafe { options::read(Kind::Reap, abi, options, OPTIONS) }?;
    let reap = build(&options).map_err(|error| note(Kind::Reap, options.name, error))?;
    handle::create(Reap { reap, key: Cell::new(next_key()) }, options.hardened)
}

fn build(options: &Options<'_>) -> Result<allotment::Reap, AllocError> {
    let mut builder = allotment::Reap::builder()
        .release(options.release)
        .hardened(options.hardened)
        .increment(options.increment)
        .reserved(options.reserved);
    if let Some(name) = options.name {
        builder = builder.name(name);
    }
    if let Some(budget) = &options.budget {
        builder = builder.budget(budget);
    }
    if options.maximum > 0 {
        builder = builder.maximum(options.maximum);
    }
    if let Some(source) = &options.source {
        builder = builder.source(source.clone());
    }
    if options.initial > 0 {
        builder = builder.initial(options.initial);
    }
    builder.try_build()
}

// ---- blocks by size ----

/// A block, if the fast path finds one.
#[inline(always)]
unsafe fn at_hand(reap: Pointer, size: usize, align: usize) -> Option<NonNull<u8>> {
    // SAFETY: passed on to the caller.
    let held = unsafe { handle::at_once(reap) }?;
    held.reap.alloc_fast(common_layout(size, align)?)
}

unsafe fn alloc(reap: Pointer, size: usize, align: usize) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller.
    let held = unsafe { handle::get(reap) }?;
    let block = layout_of(size, align).and_then(|layout| held.reap.try_alloc_layout(layout));
    block.map(NonNull::cast).map_err(|error| held.failed(error))
}

#[cold]
#[inline(never)]
unsafe extern "C" fn alloc_slowly(reap: Pointer, size: usize, align: usize) -> *mut c_void {
    // SAFETY: passed on to the caller.
    or_stop_pointer(unsafe { alloc(reap, size, align) })
}

#[cold]
#[inline(never)]
unsafe extern "C" fn try_alloc_slowly(reap: Pointer, size: usize, align: usize) -> *mut c_void {
    // SAFETY: passed on to the caller.
    or_null(unsafe { alloc(reap, size, align) })
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_slowly(reap: Pointer, block: *mut c_void, size: usize, align: usize) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: passed on to the caller.
    unsafe {
        let held = or_stop(handle::get(reap));
        let layout = or_stop(layout_of(size, align).map_err(|error| held.failed(error)));
        held.reap.free_layout(block.cast(), layout);
    }
}

unsafe fn resize(
    reap: Pointer,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
    align: usize,
) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller.
    unsafe {
        let held = handle::get(reap)?;
        let new = layout_of(new_size, align).map_err(|error| held.failed(error))?;
        let resized = match NonNull::new(block) {
            None => held.reap.try_alloc_layout(new),
            Some(block) => layout_of(old_size, align)
                .and_then(|old| held.reap.try_resize(block.cast(), old, new.size())),
        };
        resized.map(NonNull::cast).map_err(|error| held.failed(error))
    }
}

// ---- blocks that store their size ----

unsafe fn malloc(reap: Pointer, size: usize) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller. The block has the layout that `begin` needs.
    unsafe {
        let held = handle::get(reap)?;
        let form = blocks::usual(size).map_err(|error| held.failed(error))?;
        let start = match held.reap.alloc_fast(form.layout()) {
            Some(start) => start,
            None => {
                held.reap.try_alloc_layout(form.layout()).map_err(|error| held.failed(error))?
            }
        };
        Ok(form.begin(start, held.key.get()))
    }
}

unsafe fn realloc(
    reap: Pointer,
    block: *mut c_void,
    size: usize,
) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller. The block's header shows that it is of this reap.
    unsafe {
        let Some(block) = NonNull::new(block) else { return malloc(reap, size) };
        let held = handle::get(reap)?;
        let key = held.key.get();
        let resized = blocks::resize(block, size, key, |start, old, new| {
            held.reap.try_resize(start, old, new)
        });
        match resized {
            Some(block) => block.map_err(|error| held.failed(error)),
            None => Err(blocks::no_block(Kind::Reap, held.name(), block)),
        }
    }
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_create_abi(abi: u32, options: *const allot_options) -> Pointer {
    // SAFETY: as above.
    or_stop_pointer(unsafe { create(abi, options) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_try_create_abi(
    abi: u32,
    options: *const allot_options,
) -> Pointer {
    // SAFETY: as above.
    or_null(unsafe { create(abi, options) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_destroy(reap: Pointer) {
    // SAFETY: as above.
    or_stop(unsafe { handle::destroy(reap, |_| Ok(())) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_alloc(reap: Pointer, size: usize, align: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe {
        match at_hand(reap, size, align) {
            Some(block) => block.as_ptr().cast(),
            None => alloc_slowly(reap, size, align),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_try_alloc(
    reap: Pointer,
    size: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: as above.
    unsafe {
        match at_hand(reap, size, align) {
            Some(block) => block.as_ptr().cast(),
            None => try_alloc_slowly(reap, size, align),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_free(
    reap: Pointer,
    block: *mut c_void,
    size: usize,
    align: usize,
) {
    // SAFETY: as above.
    unsafe {
        if let Some(held) = handle::at_once(reap) {
            if let Some(layout) = common_layout(size, align) {
                if let Some(block) = NonNull::new(block) {
                    return held.reap.free_layout(block.cast(), layout);
                }
            }
        }
        free_slowly(reap, block, size, align);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_resize(
    reap: Pointer,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: as above.
    or_stop_pointer(unsafe { resize(reap, block, old_size, new_size, align) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_try_resize(
    reap: Pointer,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: as above.
    or_null(unsafe { resize(reap, block, old_size, new_size, align) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_reset(reap: Pointer) {
    // SAFETY: as above.
    let held = or_stop(unsafe { handle::get_mut(reap) });
    held.key.set(next_key());
    held.reap.reset();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_trim(reap: Pointer) -> usize {
    // SAFETY: as above.
    or_stop(unsafe { handle::get(reap) }).reap.trim()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_adopt(reap: Pointer) {
    // SAFETY: as above.
    or_stop(unsafe { handle::adopt(reap) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_statistics(reap: *const Held<Reap>) -> allot_statistics {
    // SAFETY: as above.
    or_stop(unsafe { handle::get(reap) }).reap.statistics().into()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_malloc(reap: Pointer, size: usize) -> *mut c_void {
    // SAFETY: as above.
    or_stop_pointer(unsafe { malloc(reap, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_try_malloc(reap: Pointer, size: usize) -> *mut c_void {
    // SAFETY: as above.
    or_null(unsafe { malloc(reap, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_realloc(
    reap: Pointer,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: as above.
    or_stop_pointer(unsafe { realloc(reap, block, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_try_realloc(
    reap: Pointer,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: as above.
    or_null(unsafe { realloc(reap, block, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_reap_free_known(reap: Pointer, block: *mut c_void) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: as above. The block's header shows that it is of this reap.
    unsafe {
        let held = or_stop(handle::get(reap));
        match blocks::end(block, held.key.get()) {
            Some((start, layout)) => held.reap.free_layout(start, layout),
            None => blocks::no_block(Kind::Reap, held.name(), block).stop(),
        }
    }
}
