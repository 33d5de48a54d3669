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

use crate::call_pair::call_pair;
use crate::error::{CallError, FailedCall, fail, or_abort};
use crate::handle::{self, HandleBox, HandleTarget};
use crate::handle_kind::HandleKind;
use crate::layouts::{fast_layout, layout_of};
use crate::options::{self, CheckedOptions, allot_options, option_bits, with_requested};
use crate::sized_blocks::{BlockShape, OwnerKey};
use crate::statistics::allot_statistics;
use crate::struct_numbers::struct_numbers;

/// `allot_pool`.
pub type allot_pool = HandleBox<CPool>;

/// A pool, and what was current before each time that its thread entered it. In this order: fast
/// paths add no offset to find the pool.
#[repr(C)]
pub struct CPool {
    pool: LocalPool,
    entered: RefCell<Vec<*const ()>>,
}

/// `allot_entered`.
#[repr(C)]
pub struct allot_entered {
    pool: *mut allot_pool,
    before: *const (),
}

struct_numbers!(ENTERED: allot_entered { pool, before });

impl HandleTarget for CPool {
    const KIND: HandleKind = HandleKind::Pool;
    const ONE_THREAD: bool = true;

    fn name(&self) -> Option<&str> {
        self.pool.name()
    }
}

impl CPool {
    #[cold]
    fn failed(&self, error: AllocError) -> FailedCall {
        fail(HandleKind::Pool, self.name(), error)
    }

    fn in_use(&self, text: &str) -> FailedCall {
        fail(HandleKind::Pool, self.name(), CallError::InUse(text))
    }

    fn check_left(&self) -> Result<(), FailedCall> {
        match self.entered.borrow().is_empty() {
            true => Ok(()),
            false => Err(self.in_use("destroyed while its thread is in it; leave it first")),
        }
    }

    /// Whether the thread may leave the pool, with this value of what was current before.
    fn check_entered(&self, before: *const ()) -> Result<(), FailedCall> {
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

/// The options besides name and budget.
const SUPPORTED: u32 = option_bits::RELEASE
    | option_bits::HARDENED
    | option_bits::REPORT_LIVE
    | option_bits::RESERVED
    | option_bits::INITIAL
    | option_bits::INCREMENT
    | option_bits::MAXIMUM;

unsafe fn create(
    abi: u32,
    options: *const allot_options,
) -> Result<NonNull<allot_pool>, FailedCall> {
    // SAFETY: passed on to the caller.
    let options = unsafe { options::read(HandleKind::Pool, abi, options, SUPPORTED) }?;
    let (name, hardened) = (options.name, options.hardened);
    let pool = build(options).map_err(|error| fail(HandleKind::Pool, name, error))?;
    handle::create(CPool { pool, entered: RefCell::default() }, hardened)
}

fn build(options: CheckedOptions<'_>) -> Result<LocalPool, AllocError> {
    let builder = LocalPool::builder()
        .release(options.release)
        .hardened(options.hardened)
        .increment(options.increment)
        .reserved(options.reserved);
    with_requested!(builder, options: report_live, initial, maximum).try_build()
}

/// A block, if the fast path finds one.
#[inline(always)]
unsafe fn alloc_fast(pool: *mut allot_pool, size: usize, align: usize) -> Option<NonNull<u8>> {
    // SAFETY: passed on to the caller.
    let this = unsafe { handle::get_fast(pool) }?;
    this.pool.alloc_fast(fast_layout(size, align)?)
}

unsafe fn alloc(
    pool: *mut allot_pool,
    size: usize,
    align: usize,
) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller.
    let this = unsafe { handle::get(pool) }?;
    let block = layout_of(size, align).and_then(|layout| this.pool.try_alloc_layout(layout));
    block.map_err(|error| this.failed(error))
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_slow(
    pool: *mut allot_pool,
    block: *mut c_void,
    size: usize,
    align: usize,
) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: passed on to the caller.
    unsafe {
        let this = or_abort(handle::get(pool));
        let layout = or_abort(layout_of(size, align).map_err(|error| this.failed(error)));
        this.pool.free_layout(block.cast(), layout);
    }
}

unsafe fn resize(
    pool: *mut allot_pool,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
    align: usize,
) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller.
    unsafe {
        let this = handle::get(pool)?;
        let new = layout_of(new_size, align).map_err(|error| this.failed(error))?;
        let resized = match NonNull::new(block) {
            None => this.pool.try_alloc_layout(new),
            Some(block) => layout_of(old_size, align)
                .and_then(|old| this.pool.try_resize(block.cast(), old, new.size())),
        };
        resized.map_err(|error| this.failed(error))
    }
}

/// A block that stores its size, of this pool and never of malloc.
unsafe fn malloc(pool: *mut allot_pool, size: usize) -> Result<NonNull<c_void>, FailedCall> {
    // SAFETY: passed on to the caller. The block has the layout that `write_header` needs.
    unsafe {
        let this = handle::get(pool)?;
        let shape = BlockShape::with_default_align(size).map_err(|error| this.failed(error))?;
        let start = match this.pool.alloc_fast(shape.layout()) {
            Some(start) => start,
            None => {
                this.pool.try_alloc_layout(shape.layout()).map_err(|error| this.failed(error))?
            }
        };
        Ok(shape.write_header(start, OwnerKey::SHARED))
    }
}

unsafe fn enter(pool: *mut allot_pool) -> Result<allot_entered, FailedCall> {
    // SAFETY: passed on to the caller.
    let this = unsafe { handle::get_by_owner(pool) }?;
    let mut entered = this.entered.borrow_mut();
    let refused = AllocError::new(ErrorKind::SourceRefused, size_of::<*const ()>());
    entered.try_reserve(1).map_err(|_| this.failed(refused))?;
    // SAFETY: passed on to the caller. `leave` checks the order, and a pool that is entered is not
    // destroyed.
    let before = unsafe { this.pool.enter_unguarded() };
    entered.push(before);
    Ok(allot_entered { pool, before })
}

unsafe fn leave(entered: allot_entered) -> Result<(), FailedCall> {
    // SAFETY: passed on to the caller. The pool was entered and is the current one.
    unsafe {
        let this = handle::get_by_owner(entered.pool)?;
        this.check_entered(entered.before)?;
        this.entered.borrow_mut().pop();
        this.pool.leave_to(entered.before);
    }
    Ok(())
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

call_pair! {
    unsafe fn allot_pool_create_abi, allot_pool_try_create_abi(
        abi: u32,
        options: *const allot_options,
    ) -> *mut allot_pool = create
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_destroy(pool: *mut allot_pool) {
    if !pool.is_null() {
        // SAFETY: as above.
        or_abort(unsafe { handle::get_by_owner(pool) });
    }
    // SAFETY: as above.
    or_abort(unsafe { handle::destroy_if(pool, CPool::check_left) });
}

call_pair! {
    unsafe fn allot_pool_alloc, allot_pool_try_alloc(
        pool: *mut allot_pool,
        size: usize,
        align: usize,
    ) -> *mut c_void = alloc_fast else alloc
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_free(
    pool: *mut allot_pool,
    block: *mut c_void,
    size: usize,
    align: usize,
) {
    // SAFETY: as above.
    unsafe {
        if let Some(this) = handle::get_fast(pool) {
            if let Some(layout) = fast_layout(size, align) {
                if let Some(block) = NonNull::new(block) {
                    return this.pool.free_layout(block.cast(), layout);
                }
            }
        }
        free_slow(pool, block, size, align);
    }
}

call_pair! {
    unsafe fn allot_pool_resize, allot_pool_try_resize(
        pool: *mut allot_pool,
        block: *mut c_void,
        old_size: usize,
        new_size: usize,
        align: usize,
    ) -> *mut c_void = resize
}

call_pair! {
    unsafe fn allot_pool_malloc, allot_pool_try_malloc(pool: *mut allot_pool, size: usize)
        -> *mut c_void = malloc
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_trim(pool: *mut allot_pool) -> usize {
    // SAFETY: as above.
    or_abort(unsafe { handle::get(pool) }).pool.trim()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_statistics(pool: *const allot_pool) -> allot_statistics {
    // SAFETY: as above.
    or_abort(unsafe { handle::get(pool) }).pool.statistics().into()
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_pool_any_holds(address: *const c_void) -> bool {
    LocalPool::any_holds(address)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_enter(pool: *mut allot_pool) -> allot_entered {
    // SAFETY: as above.
    or_abort(unsafe { enter(pool) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_leave(entered: allot_entered) {
    // SAFETY: as above.
    or_abort(unsafe { leave(entered) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_reference(pool: *const allot_pool) -> u64 {
    // SAFETY: as above.
    or_abort(unsafe { handle::get(pool) }).pool.reference().to_bits()
}
