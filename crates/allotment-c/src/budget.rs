//! Budgets: hard limits that nest.
//!
//! The invariants are those of `handle.rs` and `lib.rs`.

use core::ptr::NonNull;

use allotment::Budget;

use crate::error::{Noted, or_null, or_stop, or_stop_pointer};
use crate::handle::{self, Held, Kept, Kind};
use crate::known;

/// `allot_budget`.
pub type allot_budget = Held<Budget>;

impl Kept for Budget {
    const KIND: Kind = Kind::Budget;
    const ONE_THREAD: bool = false;

    fn name(&self) -> Option<&str> {
        None
    }
}

fn make(budget: Budget) -> Result<NonNull<allot_budget>, Noted> {
    handle::create(budget, known::all_hardened())
}

/// # Safety
/// As for [`handle::get`].
unsafe fn make_child(
    parent: *const allot_budget,
    cap: usize,
) -> Result<NonNull<allot_budget>, Noted> {
    // SAFETY: passed on to the caller.
    make(unsafe { handle::get(parent)? }.child(cap))
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_budget_create(cap: usize) -> *mut allot_budget {
    or_stop_pointer(make(Budget::new(cap)))
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_budget_try_create(cap: usize) -> *mut allot_budget {
    or_null(make(Budget::new(cap)))
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_budget_child(
    parent: *mut allot_budget,
    cap: usize,
) -> *mut allot_budget {
    // SAFETY: passed on to the caller.
    or_stop_pointer(unsafe { make_child(parent, cap) })
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_budget_try_child(
    parent: *mut allot_budget,
    cap: usize,
) -> *mut allot_budget {
    // SAFETY: passed on to the caller.
    or_null(unsafe { make_child(parent, cap) })
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_budget_cap(budget: *const allot_budget) -> usize {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { handle::get(budget) }).cap()
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_budget_used(budget: *const allot_budget) -> usize {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { handle::get(budget) }).used()
}

/// # Safety
/// As for [`handle::destroy`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_budget_destroy(budget: *mut allot_budget) {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { handle::destroy(budget, |_| Ok(())) });
}
