//! Hard limits on the bytes that allocators take from their sources. Limits nest.

use super::fallible::Shared;
use crate::error::{AllocError, or_fail};
use crate::sync::{AtomicUsize, Ordering, mutant};

/// A limit on the bytes that the allocators under it hold. It is exact, and threads can share it.
///
/// A chunk or page is charged before it is taken, at its full size with headers, and credited after
/// it was given back. Memory in the recycler belongs to no budget. Budgets nest: a charge on a
/// [`child`](Budget::child) is also a charge on its parent, and so on upwards. It succeeds on all
/// of them or on none.
///
/// The limit is never exceeded, not even for a moment. If a parent refuses a charge that its child
/// had room for, the charge takes the child's room until the call returns. A charge by another
/// thread during that time may be refused although it would fit a moment later.
///
/// A call without `try_` panics if a budget refuses, and drops the values that it was given. So a
/// server that catches the panics of its requests loses the request that went over its limit, and
/// no other. See [`AllocError`].
///
/// Cloning returns another handle to the same budget. A charge costs one locked instruction for
/// each level; there is one charge for each chunk or page, and none for an object. Any thread can
/// use a budget.
///
/// ```
/// use allotment::{Arena, Budget};
///
/// let server = Budget::new(64 << 20);
/// let request = server.child(1 << 20);
/// let arena = Arena::builder().budget(&request).build();
/// arena.alloc_slice_copy(&[7u8; 1000]);
/// assert_eq!(server.used(), request.used());
/// assert!(arena.try_alloc_slice_copy(&[7u8; 2 << 20]).is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Budget {
    level: Shared<BudgetLevel>,
}

#[derive(Debug)]
struct BudgetLevel {
    limit: usize,
    used: AtomicUsize,
    parent: Option<Budget>,
}

impl Drop for BudgetLevel {
    /// Drops the levels in a loop: recursion over a long chain of children would overflow the
    /// stack.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(budget) = above {
            above = budget.level.into_inner().and_then(|mut level| level.parent.take());
        }
    }
}

impl Budget {
    /// A budget of `limit` bytes. A limit of zero refuses every charge.
    ///
    /// # Panics
    /// Ends the process if there is no memory for it: see [`AllocError`].
    #[must_use]
    #[track_caller]
    pub fn new(limit: usize) -> Self {
        or_fail(Self::try_new(limit))
    }

    /// Fallible version of [`new`](Self::new).
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn try_new(limit: usize) -> Result<Self, AllocError> {
        Self::with_parent(limit, None)
    }

    /// A budget of `limit` bytes inside this one.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    #[track_caller]
    pub fn child(&self, limit: usize) -> Self {
        or_fail(self.try_child(limit))
    }

    /// Fallible version of [`child`](Self::child).
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn try_child(&self, limit: usize) -> Result<Self, AllocError> {
        Self::with_parent(limit, Some(self.clone()))
    }

    fn with_parent(limit: usize, parent: Option<Self>) -> Result<Self, AllocError> {
        let level = BudgetLevel { limit, used: AtomicUsize::new(0), parent };
        Shared::try_new(level).map(|level| Self { level })
    }

    /// The limit, in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.level.limit
    }

    /// The bytes currently charged.
    #[must_use]
    pub fn used(&self) -> usize {
        self.level.used.load(Ordering::Relaxed)
    }

    /// Whether this is the only handle to the budget, and to every budget above it: only its holder
    /// can charge them.
    #[cfg(system_memory)]
    pub(crate) fn is_exclusive(&self) -> bool {
        let mut levels = core::iter::successors(Some(self), |budget| budget.level.parent.as_ref());
        levels.all(|budget| budget.level.has_one_owner())
    }

    /// Charges `bytes` to this budget and to every budget above it, or to none of them.
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        let mut next = Some(self);
        while let Some(budget) = next {
            if !budget.level.add(bytes) {
                self.credit_below(budget, bytes);
                return Err(AllocError::over_budget(bytes, budget.limit()));
            }
            next = budget.level.parent.as_ref();
        }
        Ok(())
    }

    /// Takes back a charge of `bytes` to this budget and to every budget above it.
    pub(crate) fn credit(&self, bytes: usize) {
        let mut next = Some(self);
        while let Some(budget) = next {
            budget.level.subtract(bytes);
            next = budget.level.parent.as_ref();
        }
    }

    /// Undoes the charges on the levels below `refused`.
    fn credit_below(&self, refused: &Self, bytes: usize) {
        let mut budget = self;
        while !budget.level.ptr_eq(&refused.level) {
            budget.level.subtract(bytes);
            budget = budget.level.parent.as_ref().expect("the level that refused is above");
        }
    }
}

impl BudgetLevel {
    /// Charges this level alone. Returns whether its limit allowed it.
    fn add(&self, bytes: usize) -> bool {
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            match used.checked_add(bytes) {
                Some(sum) if sum <= self.limit => {
                    if mutant("charge: checked and added in two steps") {
                        self.used.fetch_add(bytes, Ordering::Relaxed);
                        return true;
                    }
                    // Relaxed: the count is only a number. It does not publish memory.
                    match self.used.compare_exchange_weak(
                        used,
                        sum,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    ) {
                        Ok(_) => return true,
                        Err(now) => used = now,
                    }
                }
                _ => return false,
            }
        }
    }

    fn subtract(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more credited than was charged");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_charge_fits_exactly_up_to_the_limit() {
        let budget = Budget::new(100);
        budget.charge(60).unwrap();
        budget.charge(40).unwrap();
        assert_eq!(budget.charge(1).unwrap_err().kind(), ErrorKind::BudgetExceeded);
        budget.credit(40);
        budget.charge(40).unwrap();
        assert_eq!(budget.used(), 100);
    }

    #[test]
    fn a_parents_refusal_leaves_no_level_charged() {
        let server = Budget::new(100);
        let tenant = server.child(80);
        let request = tenant.child(usize::MAX);
        request.charge(70).unwrap();
        assert!(request.charge(20).is_err());
        assert_eq!(request.charge(20).unwrap_err().budget_limit(), Some(80));
        let error = server.child(usize::MAX).charge(31).unwrap_err();
        assert_eq!(error.budget_limit(), Some(100), "the level that refused");
        assert_eq!((server.used(), tenant.used(), request.used()), (70, 70, 70));
        request.credit(70);
        assert_eq!((server.used(), tenant.used(), request.used()), (0, 0, 0));
    }

    #[test]
    fn a_budget_of_zero_refuses_one_byte_and_a_sum_that_overflows_is_refused() {
        assert!(Budget::new(0).charge(1).is_err());
        let all = Budget::new(usize::MAX);
        all.charge(10).unwrap();
        assert_eq!(all.charge(usize::MAX).unwrap_err().budget_limit(), None);
        assert_eq!(all.used(), 10);
    }

    #[test]
    fn a_long_chain_of_children_is_dropped_without_a_deep_stack() {
        let links = if cfg!(miri) { 1_000 } else { 200_000 };
        let mut budget = Budget::new(usize::MAX);
        for _ in 0..links {
            budget = budget.child(usize::MAX);
        }
        drop(budget);
    }

    #[test]
    fn sixteen_threads_never_pass_the_limit() {
        let server = Budget::new(1000);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                let request = server.child(300);
                let server = &server;
                scope.spawn(move || {
                    for round in 0..2000 {
                        let bytes = 50 + round % 100;
                        if request.charge(bytes).is_ok() {
                            assert!(server.used() <= 1000);
                            request.credit(bytes);
                        }
                    }
                });
            }
        });
        assert_eq!(server.used(), 0);
    }
}
