//! A slab's options.

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;

use super::geometry::{MAX_PAGE, USUAL_PAGE};
use super::{RawSlab, Slab};
use crate::error::{Abort, AllocError, OnFailure, Report, always};
use crate::memory::budget::Budget;
use crate::memory::release::Release;
use crate::memory::source::SharedSource;

/// What a slab was made with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub name: Option<Box<str>>,
    pub source: SharedSource,
    pub release: Release,
    pub budget: Option<Budget>,
    pub max_page_bytes: usize,
    pub max_cached_bytes: Option<usize>,
    pub packing: bool,
    pub hardened: bool,
    pub report_live: Option<bool>,
}

/// Makes a [`RawSlab`] or a [`Slab`] with options; their `builder` functions begin one.
///
/// ```
/// use allotment::{Budget, Release, Slab};
///
/// let slab = Slab::<[u8; 48]>::builder()
///     .name("tree nodes")
///     .budget(&Budget::new(8 << 20))
///     .release(Release::AtOnce)
///     .build();
/// assert_eq!(slab.alloc([7; 48])[3], 7);
/// ```
#[must_use = "`build` makes the slab"]
pub struct SlabBuilder<S> {
    layout: Layout,
    settings: Settings,
    makes: PhantomData<fn() -> S>,
}

impl<S> Clone for SlabBuilder<S> {
    fn clone(&self) -> Self {
        Self { layout: self.layout, settings: self.settings.clone(), makes: PhantomData }
    }
}

impl<S> fmt::Debug for SlabBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("SlabBuilder");
        fields.field("layout", &self.layout).field("settings", &self.settings).finish()
    }
}

impl<S> SlabBuilder<S> {
    pub(super) const fn new(layout: Layout) -> Self {
        let settings = Settings {
            name: None,
            source: SharedSource::DEFAULT,
            release: Release::Adaptive,
            budget: None,
            max_page_bytes: USUAL_PAGE,
            max_cached_bytes: None,
            packing: false,
            hardened: false,
            report_live: None,
        };
        Self { layout, settings, makes: PhantomData }
    }

    /// Names the slab, for [`report`](crate::report()) and for messages. At most
    /// [`MAX_NAME_LEN`](crate::MAX_NAME_LEN) bytes. Names need not be unique.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Where pages come from; anonymous mappings if this is not called. [`Mmap`](crate::Mmap) and
    /// [`File`](crate::File) lend segments of up to 2 MiB, whose pages are given back one by one; of
    /// [`Malloc`](crate::Malloc) and other sources each page is a block of its own, and one thread at a time asks
    /// for one while others wait for it or for a slot that is freed.
    pub fn source(mut self, source: impl Into<SharedSource>) -> Self {
        self.settings.source = source.into();
        self
    }

    /// What becomes of a page whose last object was freed. [`Release::AtOnce`]: it goes to the system in that
    /// call. The default, [`Release::Adaptive`]: it goes at once where the thread that emptied it allocates, too; where
    /// it only frees, releases take an eighth of the slab's time, and the rest is kept until later. Pages that were
    /// taken anew within a second of a release raise what is kept, and that halves each second. What is kept goes at
    /// calls that empty pages, or by [`trim`](RawSlab::trim).
    pub fn release(mut self, release: Release) -> Self {
        self.settings.release = release;
        self
    }

    /// Caps the bytes held: pages, and the structures beside them. A refused charge is
    /// [`ErrorKind::BudgetExceeded`](crate::ErrorKind); a slab itself takes some hundred bytes.
    pub fn budget(mut self, budget: &Budget) -> Self {
        self.settings.budget = Some(budget.clone());
        self
    }

    /// The largest page, rounded up to hardware pages: 64 KiB if this is not called, at least what one object
    /// needs, at most 2 MiB (more counts as that). Pages begin with one hardware page and grow with what the slab
    /// holds. Objects above 8 KiB have pages of eight, objects above 256 KiB one each, whatever is set here.
    pub fn max_page_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_page_bytes = if bytes > MAX_PAGE { MAX_PAGE } else { bytes };
        self
    }

    /// The most bytes of slots that a thread keeps at hand: 256 KiB if this is not called, or a 64th part of the budget if
    /// that is less. At least eight slots and at most 4096, whatever is set here. A cache begins with an eighth of it
    /// and grows where a thread takes and frees more. Each slot at hand may be the last of its page, so this bounds what
    /// a thread that sleeps for ever keeps.
    pub fn max_cached_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_cached_bytes = Some(bytes);
        self
    }

    /// Switches packing on from the beginning; see [`set_packing`](RawSlab::set_packing).
    pub fn packing(mut self, packing: bool) -> Self {
        self.settings.packing = packing;
        self
    }

    /// Hardened mode: double frees, stale frees (while the slot is in quarantine), foreign pointers, objects of
    /// another slab, overruns and writes after free are caught, named on standard error and stopped by an abort:
    /// misuse of pointers when it is freed, overruns at the free, writes after free when the slot would be used
    /// again or its page goes. Every call takes a lock and a slow path, an object takes 16 to 31 bytes more, and a
    /// freed slot rests until 1024 more of this slab were freed.
    pub fn hardened(mut self, hardened: bool) -> Self {
        self.settings.hardened = hardened;
        self
    }

    /// Whether dropping the slab with live objects says so on standard error; in hardened mode it does unless told
    /// otherwise here. The objects stay valid either way. Slots that other threads have at hand don't count as live.
    pub fn report_live(mut self, report: bool) -> Self {
        self.settings.report_live = Some(report);
        self
    }

    fn build_raw<F: OnFailure>(self) -> Result<RawSlab, F::Error> {
        RawSlab::make(self.layout, self.settings).map_err(F::fail)
    }
}

impl SlabBuilder<RawSlab> {
    /// The slab.
    ///
    /// # Panics
    /// Aborts where [`try_build`](Self::try_build) returns an error.
    #[must_use]
    pub fn build(self) -> RawSlab {
        always(self.build_raw::<Abort>())
    }

    /// The slab.
    ///
    /// # Errors
    /// A name that is too long; a layout beyond the address space; structures that malloc or the budget refuses.
    pub fn try_build(self) -> Result<RawSlab, AllocError> {
        self.build_raw::<Report>()
    }
}

impl<T> SlabBuilder<Slab<T>> {
    /// The slab.
    ///
    /// # Panics
    /// Aborts where [`try_build`](Self::try_build) returns an error.
    #[must_use]
    pub fn build(self) -> Slab<T> {
        Slab::from_raw(always(self.build_raw::<Abort>()))
    }

    /// The slab.
    ///
    /// # Errors
    /// A name that is too long; a type beyond the address space; structures that malloc or the budget refuses.
    pub fn try_build(self) -> Result<Slab<T>, AllocError> {
        self.build_raw::<Report>().map(Slab::from_raw)
    }
}
