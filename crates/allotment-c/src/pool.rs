//! `allot_pool`: the memory of one thread, for all code that it runs.
//!
//! # Invariants
//!
//! Those of lib.rs and handle.rs, and these:
//!
//! 1. The thread that created a pool enters, leaves and destroys it. This is checked in every mode.
//! 2. `entered` has one entry for each time that the thread is in the pool: what was current
//!    before. The pool is not destroyed while there are entries. The thread can only leave its
//!    current pool, with the newest entry, so what was current before still exists.

use core::cell::RefCell;
use core::ffi::c_void;
use core::ptr::NonNull;

use allotment::pool::current;
use allotment::{AllocError, ErrorKind, LocalPool};

use crate::blocks;
use crate::error::{Noted, Problem, note, or_null, or_stop, or_stop_pointer};
use crate::handle::{self, Held, Kept, Kind};
use crate::layouts::{common_layout, layout_of};
use crate::options::{self, Options, allot_options, has};
use crate::statistics::allot_statistics;

/// `allot_pool`.
#[repr(C)]
pub struct Pool {
    pool: LocalPool,
    entered: RefCell<Vec<*const ()>>,
}

/// The options of a pool besides its name and budget.
const OPTIONS: u32 = has::RELEASE
    | has::HARDENED
    | has::REPORT_LIVE
    | has::RESERVED
    | has::INITIAL
    | has::INCREMENT
    | has::MAXIMUM;

type Pointer = *mut Held<Pool>;

impl Kept for Pool {
    const KIND: Kind = Kind::Pool;
    const ONE_THREAD: bool = true;

    fn name(&self) -> Option<&str> {
        self.pool.name()
    }
}

impl Pool {
    fn failed(&self, error: AllocError) -> Noted {
        note(Kind::Pool, self.name(), error)
    }

    fn in_use(&self, text: &str) -> Noted {
        note(Kind::Pool, self.name(), Problem::InUse(text))
    }

    fn check_left(&self) -> Result<(), Noted> {
        match self.entered.borrow().is_empty() {
            true => Ok(()),
            false => Err(self.in_use("destroyed while its thread is in it; leave it first")),
        }
    }

    /// Whether the thread may leave the pool, with this value of what was current before.
    fn check_entered(&self, before: *const ()) -> Result<(), Noted> {
        let Some(&newest) = self.entered.borrow().last() else {
            return Err(
                self.in_use("left more often than it was entered; leave it once for each enter")
            );
        };
        if current() != self.pool.reference() {
            return Err(
                self.in_use("left before a pool that was entered after it; leave that pool first")
            );
        }
        if newest != before {
            return Err(self.in_use(
                "left with the result of an earlier allot_pool_enter(); pass the last one first",
            ));
        }
        Ok(())
    }
}

unsafe fn create(abi: u32, options: *const allot_options) -> Result<NonNull<Held<Pool>>, Noted> {
    // SAFETY: passed on to the caller.
    let options = unsafe { options::read(Kind::Pool, abi, options, OPTIONS) }?;
    let pool = build(&options).map_err(|error| note(Kind::Pool, options.name, error))?;
    handle::create(Pool { pool, entered: RefCell::default() }, options.hardened)
}

fn build(options: &Options<'_>) -> Result<LocalPool, AllocError> {
    let mut builder = LocalPool::builder()
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
    if let Some(report) = options.report_live {
        builder = builder.report_live(report);
    }
    if options.initial > 0 {
        builder = builder.initial(options.initial);
    }
    builder.try_build()
}

/// A block, if the fast path finds one.
#[inline(always)]
unsafe fn at_hand(pool: Pointer, size: usize, align: usize) -> Option<NonNull<u8>> {
    // SAFETY: passed on to the caller.
    let held = unsafe { handle::at_once(pool) }?;
    held.pool.alloc_fast(common_layout(size, align)?)
}

unsafe fn alloc(pool: Pointer, size: usize, align: usize) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller.
    let held = unsafe { handle::get(pool) }?;
    let block = layout_of(size, align).and_then(|layout| held.pool.try_alloc_layout(layout));
    block.map(NonNull::cast).map_err(|error| held.failed(error))
}

#[cold]
#[inline(never)]
unsafe extern "C" fn alloc_slowly(pool: Pointer, size: usize, align: usize) -> *mut c_void {
    // SAFETY: passed on to the caller.
    or_stop_pointer(unsafe { alloc(pool, size, align) })
}

#[cold]
#[inline(never)]
unsafe extern "C" fn try_alloc_slowly(pool: Pointer, size: usize, align: usize) -> *mut c_void {
    // SAFETY: passed on to the caller.
    or_null(unsafe { alloc(pool, size, align) })
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_slowly(pool: Pointer, block: *mut c_void, size: usize, align: usize) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: passed on to the caller.
    unsafe {
        let held = or_stop(handle::get(pool));
        let layout = or_stop(layout_of(size, align).map_err(|error| held.failed(error)));
        held.pool.free_layout(block.cast(), layout);
    }
}

unsafe fn resize(
    pool: Pointer,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
    align: usize,
) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller.
    unsafe {
        let held = handle::get(pool)?;
        let new = layout_of(new_size, align).map_err(|error| held.failed(error))?;
        let resized = match NonNull::new(block) {
            None => held.pool.try_alloc_layout(new),
            Some(block) => layout_of(old_size, align)
                .and_then(|old| held.pool.try_resize(block.cast(), old, new.size())),
        };
        resized.map(NonNull::cast).map_err(|error| held.failed(error))
    }
}

unsafe fn malloc(pool: Pointer, size: usize) -> Result<NonNull<c_void>, Noted> {
    // SAFETY: passed on to the caller.
    let held = unsafe { handle::get(pool) }?;
    blocks::alloc_in(&held.pool, size).map_err(|error| held.failed(error))
}

unsafe fn enter(pool: Pointer) -> Result<allot_entered, Noted> {
    // SAFETY: passed on to the caller.
    let held = unsafe { handle::get_by_owner(pool) }?;
    let mut entered = held.entered.borrow_mut();
    let refused = AllocError::new(ErrorKind::SourceRefused, size_of::<*const ()>());
    entered.try_reserve(1).map_err(|_| held.failed(refused))?;
    let before = held.pool.enter_unguarded();
    entered.push(before);
    Ok(allot_entered { pool, before })
}

unsafe fn leave(entered: allot_entered) -> Result<(), Noted> {
    // SAFETY: passed on to the caller. The pool was entered and is the current one.
    unsafe {
        let held = handle::get_by_owner(entered.pool)?;
        held.check_entered(entered.before)?;
        held.entered.borrow_mut().pop();
        held.pool.leave_to(entered.before);
    }
    Ok(())
}

/// `allot_entered`.
#[repr(C)]
pub struct allot_entered {
    pool: Pointer,
    before: *const (),
}

crate::numbers::numbers!(ENTERED: allot_entered { pool, before });

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_create_abi(abi: u32, options: *const allot_options) -> Pointer {
    // SAFETY: as above.
    or_stop_pointer(unsafe { create(abi, options) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_try_create_abi(
    abi: u32,
    options: *const allot_options,
) -> Pointer {
    // SAFETY: as above.
    or_null(unsafe { create(abi, options) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_destroy(pool: Pointer) {
    if !pool.is_null() {
        // SAFETY: as above.
        or_stop(unsafe { handle::get_by_owner(pool) });
    }
    // SAFETY: as above.
    or_stop(unsafe { handle::destroy(pool, Pool::check_left) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_alloc(pool: Pointer, size: usize, align: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe {
        match at_hand(pool, size, align) {
            Some(block) => block.as_ptr().cast(),
            None => alloc_slowly(pool, size, align),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_try_alloc(
    pool: Pointer,
    size: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: as above.
    unsafe {
        match at_hand(pool, size, align) {
            Some(block) => block.as_ptr().cast(),
            None => try_alloc_slowly(pool, size, align),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_free(
    pool: Pointer,
    block: *mut c_void,
    size: usize,
    align: usize,
) {
    // SAFETY: as above.
    unsafe {
        if let Some(held) = handle::at_once(pool) {
            if let Some(layout) = common_layout(size, align) {
                if let Some(block) = NonNull::new(block) {
                    return held.pool.free_layout(block.cast(), layout);
                }
            }
        }
        free_slowly(pool, block, size, align);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_resize(
    pool: Pointer,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: as above.
    or_stop_pointer(unsafe { resize(pool, block, old_size, new_size, align) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_try_resize(
    pool: Pointer,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: as above.
    or_null(unsafe { resize(pool, block, old_size, new_size, align) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_malloc(pool: Pointer, size: usize) -> *mut c_void {
    // SAFETY: as above.
    or_stop_pointer(unsafe { malloc(pool, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_try_malloc(pool: Pointer, size: usize) -> *mut c_void {
    // SAFETY: as above.
    or_null(unsafe { malloc(pool, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_trim(pool: Pointer) -> usize {
    // SAFETY: as above.
    or_stop(unsafe { handle::get(pool) }).pool.trim()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_statistics(pool: *const Held<Pool>) -> allot_statistics {
    // SAFETY: as above.
    or_stop(unsafe { handle::get(pool) }).pool.statistics().into()
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_pool_any_holds(address: *const c_void) -> bool {
    LocalPool::any_holds(address)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_enter(pool: Pointer) -> allot_entered {
    // SAFETY: as above.
    or_stop(unsafe { enter(pool) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_leave(entered: allot_entered) {
    // SAFETY: as above.
    or_stop(unsafe { leave(entered) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_reference(pool: *const Held<Pool>) -> u64 {
    // SAFETY: as above.
    or_stop(unsafe { handle::get(pool) }).pool.reference().to_bits()
}
