//! The options of a reap.

use super::Reap;
use crate::error::{Abort, AllocError, OnFailure, always};
use crate::memory::budget::Budget;
use crate::memory::release::Release;
use crate::memory::source::SharedSource;

/// Default size of a reap's first chunk.
const DEFAULT_INITIAL_BYTES: usize = 64 << 10;

/// The options that a reap was built with.
#[derive(Clone, Debug)]
pub(super) struct ReapSettings {
    pub name: Option<Box<str>>,
    pub source: SharedSource,
    pub release: Release,
    pub budget: Option<Budget>,
    pub initial: usize,
    pub increment: Option<usize>,
    pub reserved: usize,
    pub hardened: bool,
}

/// Builds a [`Reap`] with options. [`Reap::builder`] returns one.
///
/// ```
/// use allotment::{Budget, Reap};
///
/// let reap = Reap::builder().name("requests").initial(64 << 10).maximum(8 << 20).build();
/// # drop(reap);
/// ```
#[derive(Clone, Debug)]
#[must_use = "`build` makes the reap"]
pub struct ReapBuilder {
    settings: ReapSettings,
}

impl ReapBuilder {
    pub(super) const fn new() -> Self {
        let settings = ReapSettings {
            name: None,
            source: SharedSource::DEFAULT,
            release: Release::Adaptive,
            budget: None,
            initial: DEFAULT_INITIAL_BYTES,
            increment: None,
            reserved: 0,
            hardened: false,
        };
        Self { settings }
    }

    /// Names the reap, for [`report`](crate::report()) and for messages. A name has at most
    /// [`MAX_NAME_LEN`](crate::MAX_NAME_LEN) bytes. Names need not be unique.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Where chunks come from; anonymous mappings by default.
    pub fn source(mut self, source: impl Into<SharedSource>) -> Self {
        self.settings.source = source.into();
        self
    }

    /// Which chunks a [`reset`](Reap::reset) keeps, and where chunks go when they are given back.
    /// With [`Release::AtOnce`] they go to the system; the reap neither gives to the recycler nor
    /// takes from it. With the other policies they go to the recycler.
    pub fn release(mut self, release: Release) -> Self {
        self.settings.release = release;
        self
    }

    /// Caps the bytes held. A charge beyond the budget fails with
    /// [`ErrorKind::BudgetExceeded`](crate::ErrorKind).
    pub fn budget(mut self, budget: &Budget) -> Self {
        self.settings.budget = Some(budget.clone());
        self
    }

    /// Caps the bytes that this reap holds, with a [`Budget`] of its own. If a budget was set
    /// before, the new one is its child, and both limits hold.
    pub fn maximum(mut self, bytes: usize) -> Self {
        self.settings.budget = Some(match &self.settings.budget {
            Some(budget) => budget.child(bytes),
            None => Budget::new(bytes),
        });
        self
    }

    /// Minimum size of the first chunk in bytes; 64 KiB by default. The reap takes a smaller chunk
    /// if this size is refused.
    pub fn initial(mut self, bytes: usize) -> Self {
        self.settings.initial = bytes;
        self
    }

    /// Minimum size of each further chunk in bytes. By default chunks double up to 1 MiB, and from
    /// there on use huge pages where the source has them.
    pub fn increment(mut self, bytes: usize) -> Self {
        self.settings.increment = (bytes > 0).then_some(bytes);
        self
    }

    /// Allocates a chunk for `bytes` bytes of blocks when the reap is built, and faults its pages
    /// in (see [`Reap::with_reserved`]).
    pub fn reserved(mut self, bytes: usize) -> Self {
        self.settings.reserved = bytes;
        self
    }

    /// Turns hardened mode on or off. Hardened mode catches double frees, stale frees (while the
    /// freed block is in quarantine), foreign pointers, wrong sizes, overruns and writes after free,
    /// names them on standard error, and aborts. Every call takes a slow path, each block takes 16
    /// to 31 bytes more before it is rounded up to its size class, and a freed block stays in
    /// quarantine until 1024 more blocks have been freed.
    pub fn hardened(mut self, hardened: bool) -> Self {
        self.settings.hardened = hardened;
        self
    }

    /// Builds the reap.
    ///
    /// # Panics
    /// Aborts where [`try_build`](Self::try_build) returns an error.
    #[must_use]
    pub fn build(self) -> Reap {
        always(Reap::make(self.settings).map_err(Abort::fail))
    }

    /// Builds the reap.
    ///
    /// # Errors
    /// When the name is too long, or a statistics record or the reserved memory is not available.
    pub fn try_build(self) -> Result<Reap, AllocError> {
        Reap::make(self.settings)
    }
}
