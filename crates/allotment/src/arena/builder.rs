//! Options of an arena.

use super::Arena;
use super::raw::RawArena;
use super::retain::Retain;
use crate::error::{Abort, AllocError, OnFailure, always};
use crate::memory::budget::Budget;
use crate::memory::release::Release;
use crate::memory::source::{Mmap, SharedSource};

/// The options of an arena, except for its hint.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub name: Option<Box<str>>,
    pub source: SharedSource,
    pub retain: Retain,
    pub release: Release,
    pub budget: Option<Budget>,
    pub hardened: bool,
}

impl Settings {
    pub(super) const fn new() -> Self {
        Self {
            name: None,
            source: SharedSource::DEFAULT,
            retain: Retain::Newest,
            release: Release::Adaptive,
            budget: None,
            hardened: false,
        }
    }
}

/// Makes an [`Arena`] with options; [`Arena::builder`] begins one.
///
/// ```
/// use allotment::{Arena, Budget, Retain};
///
/// let arena = Arena::builder()
///     .name("requests")
///     .hint(64 << 10)
///     .budget(&Budget::new(8 << 20))
///     .retain(Retain::UpTo(1 << 20))
///     .build();
/// # drop(arena);
/// ```
#[derive(Clone, Debug)]
#[must_use = "`build` makes the arena"]
pub struct ArenaBuilder<const MIN_ALIGN: usize = 8> {
    hint: usize,
    settings: Settings,
}

impl<const MIN_ALIGN: usize> ArenaBuilder<MIN_ALIGN> {
    pub(super) const fn new() -> Self {
        Self { hint: 0, settings: Settings::new() }
    }

    /// Names the arena, for [`report`](crate::report()) and for the messages of the hardened mode.
    /// A name has at most [`MAX_NAME_LEN`](crate::MAX_NAME_LEN) bytes. Names need not be unique.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// The number of bytes that the first chunk has room for. With a hint above 0, the arena takes
    /// that chunk when it is built. With 0 (the default), it takes its first chunk with the first
    /// object: one hardware page, or more if the object needs more.
    pub fn hint(mut self, bytes: usize) -> Self {
        self.hint = bytes;
        self
    }

    /// The source of the arena's chunks. The default is anonymous mappings ([`Mmap`]).
    pub fn source(mut self, source: impl Into<SharedSource>) -> Self {
        self.settings.source = source.into();
        self
    }

    /// Takes chunks of 2 MiB and more, and advises the system to use huge pages. Short for
    /// `source(Mmap::huge_pages())`.
    pub fn huge_pages(self) -> Self {
        self.source(Mmap::huge_pages())
    }

    /// Which chunks a reset keeps.
    pub fn retain(mut self, retain: Retain) -> Self {
        self.settings.retain = retain;
        self
    }

    /// Where chunks go when the arena gives them back. With [`Release::AtOnce`], chunks go straight
    /// to the system, and the arena takes none from the recycler. With every other value, chunks go
    /// to the recycler, whose own policy decides how long they are kept.
    pub fn release(mut self, release: Release) -> Self {
        self.settings.release = release;
        self
    }

    /// Caps the bytes that the arena holds. An allocation above the cap fails with
    /// [`ErrorKind::BudgetExceeded`](crate::ErrorKind).
    pub fn budget(mut self, budget: &Budget) -> Self {
        self.settings.budget = Some(budget.clone());
        self
    }

    /// Hardened mode: detects double frees, foreign pointers, wrong sizes, overruns, and writes
    /// after a free or a reset. It prints what it found to standard error and aborts.
    ///
    /// A double free, a foreign pointer or a wrong size is found in the call of
    /// [`free`](Arena::free). The other errors are found when the object's memory is freed,
    /// rewound, reset, used again or dropped.
    ///
    /// Every allocation takes a slow path and 16 to 31 bytes more. On [`Mmap`], chunks are at least
    /// 64 KiB. No memory is used again before a reset or a rewind. Chunks bypass the recycler, so
    /// an access to a chunk that was given back faults.
    pub fn hardened(mut self, hardened: bool) -> Self {
        self.settings.hardened = hardened;
        self
    }

    /// Builds the arena.
    ///
    /// # Panics
    /// Aborts where [`try_build`](Self::try_build) returns an error.
    #[must_use]
    pub fn build(self) -> Arena<MIN_ALIGN> {
        always(self.build_or::<Abort>())
    }

    /// Builds the arena, or returns the reason why that failed.
    ///
    /// # Errors
    /// If the name is too long, or the hint overflows, or the source or the budget refuses the
    /// first chunk.
    pub fn try_build(self) -> Result<Arena<MIN_ALIGN>, AllocError> {
        self.build_or::<crate::error::Report>()
    }

    fn build_or<F: OnFailure>(self) -> Result<Arena<MIN_ALIGN>, F::Error> {
        let raw = RawArena::new(self.hint, Some(Box::new(self.settings)));
        raw.map(Arena::from_raw).map_err(F::fail)
    }
}
