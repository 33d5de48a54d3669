//! An arena's options.

use super::Arena;
use super::raw::RawArena;
use super::retain::Retain;
use crate::error::{Abort, AllocError, OnFailure, always};
use crate::memory::budget::Budget;
use crate::memory::release::Release;
use crate::memory::source::{Mmap, SharedSource};

/// What an arena was made with, apart from its hint.
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

    /// Names the arena, for [`report`](crate::report()) and for the messages of the hardened mode. At most
    /// [`MAX_NAME_LEN`](crate::MAX_NAME_LEN) bytes. Names need not be unique.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// The bytes that the first chunk should have room for; it is taken when the arena is made. 0 (the
    /// default) takes one hardware page when the first object comes.
    pub fn hint(mut self, bytes: usize) -> Self {
        self.hint = bytes;
        self
    }

    /// Where chunks come from; anonymous mappings if this is not called.
    pub fn source(mut self, source: impl Into<SharedSource>) -> Self {
        self.settings.source = source.into();
        self
    }

    /// Chunks of 2 MiB and more with huge-page advice: `source(Mmap::huge_pages())` in a word.
    pub fn huge_pages(self) -> Self {
        self.source(Mmap::huge_pages())
    }

    /// What a reset keeps.
    pub fn retain(mut self, retain: Retain) -> Self {
        self.settings.retain = retain;
        self
    }

    /// Where chunks go: [`Release::AtOnce`] to the system, past the recycler, and none is taken from there
    /// either. Every other value to the recycler, whose own policy then says how long.
    pub fn release(mut self, release: Release) -> Self {
        self.settings.release = release;
        self
    }

    /// Caps the bytes held. A refused charge is [`ErrorKind::BudgetExceeded`](crate::ErrorKind).
    pub fn budget(mut self, budget: &Budget) -> Self {
        self.settings.budget = Some(budget.clone());
        self
    }

    /// Hardened mode: double frees, foreign pointers, wrong sizes, overruns, writes after free and after
    /// reset are caught, named on standard error and stopped by an abort: misuse of pointers when it is
    /// told to [`free`](Arena::free), the rest when the object's memory is freed, rewound, reset, used again
    /// or dropped. Every allocation takes a slow path and 16 to 31 bytes more, chunks are at least 64 KiB,
    /// nothing is used again before a reset, and chunks bypass the recycler, so that a touch after they went
    /// faults.
    pub fn hardened(mut self, hardened: bool) -> Self {
        self.settings.hardened = hardened;
        self
    }

    /// The arena.
    ///
    /// # Panics
    /// Aborts where [`try_build`](Self::try_build) returns an error.
    #[must_use]
    pub fn build(self) -> Arena<MIN_ALIGN> {
        always(self.build_or::<Abort>())
    }

    /// The arena.
    ///
    /// # Errors
    /// A name that is too long; a hint that overflows or can't be had from the source or the budget.
    pub fn try_build(self) -> Result<Arena<MIN_ALIGN>, AllocError> {
        self.build_or::<crate::error::Report>()
    }

    fn build_or<F: OnFailure>(self) -> Result<Arena<MIN_ALIGN>, F::Error> {
        let raw = RawArena::new(self.hint, Some(Box::new(self.settings)));
        raw.map(Arena::from_raw).map_err(F::fail)
    }
}
