//! Options of an arena.

use alloc::boxed::Box;

#[cfg(system_memory)]
use super::checked::ArenaLedger;
use super::raw::{ArenaChecks, RawArena};
use super::retain::Retain;
use super::settings::ArenaSettings;
use super::typed::Arena;
use crate::error::{AllocError, or_fail};
use crate::memory::fallible::try_box;
use crate::options::{build_call, common_options};
use crate::statistics::{AllocatorKind, HeldRecord, Record};

/// Builds an [`Arena`] with options. [`Arena::builder`] returns one.
///
/// It has no `report_live`: an arena's objects end with it.
///
/// ```
/// use allotment::arena::Retain;
/// use allotment::{Arena, Budget};
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

/// # Options
impl Arena {
    /// Returns a builder for an arena with options.
    pub const fn builder() -> ArenaBuilder {
        ArenaBuilder::new()
    }
}

/// # Options with another alignment
impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    /// Returns a builder for an arena with this minimum alignment and options.
    pub const fn builder_with_min_align() -> ArenaBuilder<MIN_ALIGN> {
        ArenaBuilder::new()
    }
}

impl<const MIN_ALIGN: usize> ArenaBuilder<MIN_ALIGN> {
    const fn new() -> Self {
        Self { hint: 0, settings: ArenaSettings::DEFAULT }
    }

    common_options! {
        name,
        source,
        #[cfg(system_memory)]
        huge_pages,
        #[cfg(system_memory)]
        ///
        /// With [`Release::AtOnce`](crate::Release::AtOnce), chunks go straight to the system, and
        /// the arena takes none from the recycler. With every other value, chunks go to the
        /// recycler, whose own policy decides how long they are kept.
        release,
        budget,
        maximum,
        on_refusal,
        #[cfg(system_memory)]
        ///
        /// Hardened mode finds double frees, foreign pointers, wrong sizes, overruns, and writes
        /// after a free or a reset. A double free, a foreign pointer or a wrong size is found in
        /// the call of [`free_layout`](Arena::free_layout). The other errors are found when the
        /// object's memory is freed, rewound, reset, used again or dropped.
        ///
        /// An object takes 16 to 31 bytes more. On [`Mmap`](crate::Mmap), chunks are at least 64
        /// KiB. No memory is used again before a reset or a rewind. Chunks bypass the recycler, so
        /// an access to a chunk that was given back faults.
        ///
        /// Each chunk is mapped by itself. If a process has tens of thousands of hardened arenas and
        /// drops some of them, it can reach the limit on mappings (`vm.max_map_count`). Then chunks
        /// that are given back don't fault, and a call that needs a chunk can fail with
        /// [`ErrorKind::System`](crate::ErrorKind::System).
        hardened,
    }

    /// The number of bytes that the first chunk has room for. With a hint above 0, the arena takes
    /// that chunk when it is built. With 0 (the default), it takes its first chunk with the first
    /// object: one hardware page, or more if the object needs more.
    pub fn hint(mut self, bytes: usize) -> Self {
        self.hint = bytes;
        self
    }

    /// Which chunks a reset keeps.
    pub fn retain(mut self, retain: Retain) -> Self {
        self.settings.retain = retain;
        self
    }

    build_call!("arena", Arena<MIN_ALIGN>);

    /// Builds the arena, or returns the reason why that failed.
    ///
    /// # Errors
    /// If the name is too long, or the hint overflows, or the source or the budget refuses the
    /// first chunk.
    pub fn try_build(self) -> Result<Arena<MIN_ALIGN>, AllocError> {
        RawArena::new(self.hint, Some(try_box(self.settings)?)).map(Arena::from_raw)
    }
}

impl RawArena {
    /// An arena. With a hint above zero it takes its first chunk immediately.
    pub(super) fn new(
        hint: usize,
        settings: Option<Box<ArenaSettings>>,
    ) -> Result<Self, AllocError> {
        let arena = match &settings {
            None => {
                let (record, checks) = identity(false, None)?;
                Self::empty(hint, record, checks, None)
            }
            Some(options) => {
                let (record, checks) = identity(options.common.hardened, options.common.name())?;
                Self::empty(hint, record, checks, settings)
            }
        };
        if hint > 0 {
            // If this fails, the arena is dropped, and its drop returns the record.
            arena.take_hinted_chunk()?;
        }
        Ok(arena)
    }

    /// An arena with the default options, which takes no chunk. It is made where it will stay: an
    /// arena is too large to be moved out of a `Result` for each small request.
    #[inline]
    pub(super) fn plain() -> Self {
        let (record, checks) = or_fail(identity(false, None));
        Self::empty(0, record, checks, None)
    }
}

/// The checks of an arena, if there is a reason for any.
type OptionalChecks = Option<Box<dyn ArenaChecks>>;

/// The record of a new arena, and its checks.
#[inline(never)]
fn identity(
    hardened: bool,
    name: Option<&str>,
) -> Result<(HeldRecord, OptionalChecks), AllocError> {
    let checks = new_if_checked(hardened, name)?;
    let record = Record::acquire(AllocatorKind::Arena, name)?;
    Ok((record, checks))
}

/// The checks of an arena, if it has any.
#[cfg(system_memory)]
fn new_if_checked(hardened: bool, name: Option<&str>) -> Result<OptionalChecks, AllocError> {
    let checks = ArenaLedger::new_if_checked(hardened, name)?;
    Ok(checks.map(|checks| -> Box<dyn ArenaChecks> { checks }))
}

/// No arena is checked.
#[cfg(not(system_memory))]
fn new_if_checked(_: bool, _: Option<&str>) -> Result<OptionalChecks, AllocError> {
    Ok(None)
}
