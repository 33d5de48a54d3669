//! A pool's options.

use super::LocalPool;
use crate::error::{Abort, AllocError, OnFailure, always};
use crate::memory::budget::Budget;
use crate::memory::release::Release;

/// The first chunk of a pool that was not told otherwise.
const INITIAL: usize = 64 << 10;

/// What a pool was made with.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub name: Option<Box<str>>,
    pub release: Release,
    pub budget: Option<Budget>,
    pub initial: usize,
    pub increment: Option<usize>,
    pub reserved: usize,
    pub hardened: bool,
    pub report_live: Option<bool>,
}

/// Makes a [`LocalPool`] with options; [`LocalPool::builder`] begins one.
///
/// ```
/// use allotment::{Budget, LocalPool};
///
/// let pool = LocalPool::builder().name("requests").initial(64 << 10).maximum(8 << 20).build();
/// # drop(pool);
/// ```
#[derive(Clone, Debug)]
#[must_use = "`build` makes the pool"]
pub struct LocalPoolBuilder {
    settings: Settings,
}

impl LocalPoolBuilder {
    pub(super) const fn new() -> Self {
        let settings = Settings {
            name: None,
            release: Release::Adaptive,
            budget: None,
            initial: INITIAL,
            increment: None,
            reserved: 0,
            hardened: false,
            report_live: None,
        };
        Self { settings }
    }

    /// Names the pool, for [`report`](crate::report()) and for messages. At most
    /// [`MAX_NAME_LEN`](crate::MAX_NAME_LEN) bytes. Names need not be unique.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// What becomes of memory that holds nothing when the thread has left the pool: [`Release::AtOnce`] gives it back,
    /// [`Release::Keep`] keeps so many bytes; the others keep 1 MiB, and give back what is more once it was that for the time of
    /// [`Release::Decay`], or a second. Freed large blocks, up to 4 MiB or what `Keep` says, wait for the next ones until then. An
    /// ended pool leaves at most 256 KiB to the next one.
    pub fn release(mut self, release: Release) -> Self {
        self.settings.release = release;
        self
    }

    /// Caps the bytes held. A refused charge is [`ErrorKind::BudgetExceeded`](crate::ErrorKind).
    pub fn budget(mut self, budget: &Budget) -> Self {
        self.settings.budget = Some(budget.clone());
        self
    }

    /// Caps the bytes that this pool holds, within its budget if it has one that was set before: a [`Budget`] of its own.
    pub fn maximum(mut self, bytes: usize) -> Self {
        self.settings.budget = Some(match &self.settings.budget {
            Some(budget) => budget.child(bytes),
            None => Budget::new(bytes),
        });
        self
    }

    /// The bytes of the first chunk, at least; 64 KiB if this is not called. A wish: less is taken where the budget has
    /// less.
    pub fn initial(mut self, bytes: usize) -> Self {
        self.settings.initial = bytes;
        self
    }

    /// The bytes of each further chunk, at least. If this is not called, chunks double up to 1 MiB. Chunks are
    /// multiples of 64 KiB.
    pub fn increment(mut self, bytes: usize) -> Self {
        self.settings.increment = (bytes > 0).then_some(bytes);
        self
    }

    /// Takes a chunk for so many bytes of blocks at once, and faults its pages in (see [`LocalPool::with_reserved`]).
    pub fn reserved(mut self, bytes: usize) -> Self {
        self.settings.reserved = bytes;
        self
    }

    /// Hardened mode: double frees, stale frees (while the block rests), foreign pointers, wrong sizes, overruns and writes
    /// after free are caught, named on standard error and stopped by an abort. Every call takes a slow path, a block takes
    /// 16 to 31 bytes more, and a freed one rests until 1024 more were freed.
    pub fn hardened(mut self, hardened: bool) -> Self {
        self.settings.hardened = hardened;
        self
    }

    /// Whether dropping the pool with live objects says so on standard error; it does not unless it is told so here. Such a pool
    /// takes nothing over that an ended one left in use. Their
    /// memory stays until they are freed either way.
    pub fn report_live(mut self, report: bool) -> Self {
        self.settings.report_live = Some(report);
        self
    }

    /// The pool.
    ///
    /// # Panics
    /// Aborts where [`try_build`](Self::try_build) returns an error.
    #[must_use]
    pub fn build(self) -> LocalPool {
        always(LocalPool::make(self.settings).map_err(Abort::fail))
    }

    /// The pool.
    ///
    /// # Errors
    /// A name that is too long; a record or the reserved bytes that can't be had.
    pub fn try_build(self) -> Result<LocalPool, AllocError> {
        LocalPool::make(self.settings)
    }
}
