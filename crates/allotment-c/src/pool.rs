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

use core::alloc::Layout;
use core::cell::RefCell;
use core::ffi::c_void;
use core::ptr::NonNull;

use allotment::pool::current;
use allotment::{AllocError, ErrorKind, LocalPool};

use crate::blocks::{BlockTarget, alloc, alloc_fast, block_target, free_sized, malloc, resize};
use crate::calls::{call, call_pair};
use crate::error::{CallError, FailedCall, fail, or_abort};
use crate::handle::{self, HandleBox, HandleTarget};
use crate::handle_kind::HandleKind;
use crate::options::{self, CheckedOptions, allot_options, option_bits, with_requested};
use crate::sized_blocks::OwnerKey;
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

// A block that stores its size belongs to the pool, never to malloc.
block_target!(CPool, pool: LocalPool, _this => OwnerKey::SHARED);

impl CPool {
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

/// The options besides name, budget and maximum.
const SUPPORTED: u32 = option_bits::RELEASE
    | option_bits::HARDENED
    | option_bits::REPORT_LIVE
    | option_bits::RESERVED
    | option_bits::INITIAL
    | option_bits::INCREMENT;

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
    with_requested!(builder, options: report_live, initial).try_build()
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
pub unsafe extern "C" fn allot_pool_free_sized(
    pool: *mut allot_pool,
    block: *mut c_void,
    size: usize,
    align: usize,
) {
    // SAFETY: as above.
    unsafe { free_sized(pool, block, size, align) }
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

call! { fn allot_pool_trim(pool: *mut allot_pool) -> usize => pool.pool.trim() }

call! {
    fn allot_pool_statistics(pool: *const allot_pool) -> allot_statistics
        => pool.pool.statistics().into()
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_pool_any_holds(address: *const c_void) -> bool {
    LocalPool::any_holds(address)
}

call! { fn allot_pool_enter(pool: *mut allot_pool) -> allot_entered = enter }

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_pool_try_enter(
    pool: *mut allot_pool,
    entered: *mut allot_entered,
) -> bool {
    // SAFETY: as above. The pointer is valid for a write.
    unsafe { enter(pool).map(|made| entered.write(made)).is_ok() }
}

call! { fn allot_pool_leave(entered: allot_entered) = leave }

call! { fn allot_pool_reference(pool: *const allot_pool) -> u64 => pool.pool.reference().to_bits() }
