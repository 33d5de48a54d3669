//! Budgets: hard limits that nest.
//!
//! The invariants are those of `handle.rs` and `lib.rs`.

use core::ptr::NonNull;

use allotment::Budget;

use crate::calls::{call, call_pair};
use crate::error::{FailedCall, fail};
use crate::handle::{self, HandleBox, HandleTarget};
use crate::handle_kind::HandleKind;
use crate::handle_table;

/// `allot_budget`.
pub type allot_budget = HandleBox<Budget>;

impl HandleTarget for Budget {
    const KIND: HandleKind = HandleKind::Budget;
    const ONE_THREAD: bool = false;

    fn name(&self) -> Option<&str> {
        None
    }
}

fn create(limit: usize) -> Result<NonNull<allot_budget>, FailedCall> {
    let budget = Budget::try_new(limit).map_err(|error| fail(HandleKind::Budget, None, error))?;
    handle::create(budget, handle_table::all_hardened())
}

/// # Safety
/// As for [`handle::get`].
unsafe fn create_child(
    parent: *const allot_budget,
    limit: usize,
) -> Result<NonNull<allot_budget>, FailedCall> {
    // SAFETY: passed on to the caller.
    let child = unsafe { handle::get(parent)? }.try_child(limit);
    let child = child.map_err(|error| fail(HandleKind::Budget, None, error))?;
    handle::create(child, handle_table::all_hardened())
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

call_pair! {
    fn allot_budget_create, allot_budget_try_create(limit: usize) -> *mut allot_budget = create
}

call_pair! {
    unsafe fn allot_budget_child, allot_budget_try_child(parent: *mut allot_budget, limit: usize)
        -> *mut allot_budget = create_child
}

call! { fn allot_budget_limit(budget: *const allot_budget) -> usize => budget.limit() }

call! { fn allot_budget_used(budget: *const allot_budget) -> usize => budget.used() }

call! { fn allot_budget_destroy(budget: *mut allot_budget) = handle::destroy }
