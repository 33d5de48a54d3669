//! Options of an arena.

use super::checked::CheckedObjects;
use super::raw::{ArenaChecks, RawArena};
use super::retain::Retain;
use super::settings::ArenaSettings;
use super::typed::Arena;
use crate::error::{Abort, AllocError, OnFailure, Report, always};
use crate::memory::budget::Budget;
use crate::memory::release::Release;
use crate::memory::source::{Mmap, SharedSource};
use crate::statistics::{AllocatorKind, Record};

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
    settings: ArenaSettings,
}

impl<const MIN_ALIGN: usize> ArenaBuilder<MIN_ALIGN> {
    pub(super) const fn new() -> Self {
        Self { hint: 0, settings: ArenaSettings::DEFAULT }
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

    /// Where chunks go when the arena releases them. With [`Release::AtOnce`], chunks go straight
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
    /// an access to a chunk that was released faults.
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
        self.build_or::<Report>()
    }

    fn build_or<F: OnFailure>(self) -> Result<Arena<MIN_ALIGN>, F::Error> {
        let raw = RawArena::new(self.hint, Some(Box::new(self.settings)));
        raw.map(Arena::from_raw).map_err(F::fail)
    }
}

impl RawArena {
    /// An arena. With a hint above zero it takes its first chunk immediately. Without settings it
    /// has the default ones.
    pub(super) fn new(
        hint: usize,
        settings: Option<Box<ArenaSettings>>,
    ) -> Result<Self, AllocError> {
        let (hardened, name) = match settings.as_deref() {
            Some(settings) => (settings.hardened, settings.name.as_deref()),
            None => (false, None),
        };
        let checks = CheckedObjects::wanted(hardened, name);
        let checks = checks.map(|checks| -> Box<dyn ArenaChecks> { checks });
        let record = Record::acquire(AllocatorKind::Arena, name)?;
        let arena = Self::empty(hint, record, checks, settings);
        if hint > 0 {
            // If this fails, the arena is dropped, and its drop returns the record.
            arena.take_hinted_chunk()?;
        }
        Ok(arena)
    }
}
