//! A reap's options.

use super::Reap;
use crate::error::{Abort, AllocError, OnFailure, always};
use crate::memory::budget::Budget;
use crate::memory::release::Release;
use crate::memory::source::SharedSource;

/// The first chunk of a reap that was not told otherwise.
const INITIAL: usize = 64 << 10;

/// What a reap was made with.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub name: Option<Box<str>>,
    pub source: SharedSource,
    pub release: Release,
    pub budget: Option<Budget>,
    pub initial: usize,
    pub increment: Option<usize>,
    pub reserved: usize,
    pub hardened: bool,
}

/// Makes a [`Reap`] with options; [`Reap::builder`] begins one.
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
    settings: Settings,
}

impl ReapBuilder {
    pub(super) const fn new() -> Self {
        let settings = Settings {
            name: None,
            source: SharedSource::DEFAULT,
            release: Release::Adaptive,
            budget: None,
            initial: INITIAL,
            increment: None,
            reserved: 0,
            hardened: false,
        };
        Self { settings }
    }

    /// Names the reap, for [`report`](crate::report()) and for messages. At most
    /// [`MAX_NAME_LEN`](crate::MAX_NAME_LEN) bytes. Names need not be unique.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Where chunks come from; anonymous mappings if this is not called.
    pub fn source(mut self, source: impl Into<SharedSource>) -> Self {
        self.settings.source = source.into();
        self
    }

    /// What becomes of chunks at a [`reset`](Reap::reset), and where they go at the end: [`Release::AtOnce`] to the
    /// system, past the recycler, and none is taken from there either; the others to the recycler.
    pub fn release(mut self, release: Release) -> Self {
        self.settings.release = release;
        self
    }

    /// Caps the bytes held. A refused charge is [`ErrorKind::BudgetExceeded`](crate::ErrorKind).
    pub fn budget(mut self, budget: &Budget) -> Self {
        self.settings.budget = Some(budget.clone());
        self
    }

    /// Caps the bytes that this reap holds, within its budget if it has one that was set before: a [`Budget`] of its own.
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

    /// The bytes of each further chunk, at least. If this is not called, chunks double up to 1 MiB, and are of huge pages
    /// from there on where the source has them.
    pub fn increment(mut self, bytes: usize) -> Self {
        self.settings.increment = (bytes > 0).then_some(bytes);
        self
    }

    /// Takes a chunk for so many bytes of blocks at once, and faults its pages in (see [`Reap::with_reserved`]).
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

    /// The reap.
    ///
    /// # Panics
    /// Aborts where [`try_build`](Self::try_build) returns an error.
    #[must_use]
    pub fn build(self) -> Reap {
        always(Reap::make(self.settings).map_err(Abort::fail))
    }

    /// The reap.
    ///
    /// # Errors
    /// A name that is too long; a record or the reserved bytes that can't be had.
    pub fn try_build(self) -> Result<Reap, AllocError> {
        Reap::make(self.settings)
    }
}
