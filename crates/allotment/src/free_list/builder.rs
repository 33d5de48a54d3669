//! A free list's options.

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;

use super::{FreeList, RawFreeList};
use crate::error::{Abort, AllocError, OnFailure, Report, always};
use crate::memory::budget::Budget;
use crate::memory::release::Release;
use crate::memory::source::SharedSource;

/// What a list was made with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub name: Option<Box<str>>,
    pub source: SharedSource,
    pub release: Release,
    pub budget: Option<Budget>,
    pub objects_per_slab: Option<usize>,
    pub hardened: bool,
    pub report_live: Option<bool>,
}

/// Makes a [`RawFreeList`] or a [`FreeList`] with options; their `builder` functions begin one.
///
/// ```
/// use allotment::{Budget, FreeList};
///
/// let list = FreeList::<[u8; 48]>::builder()
///     .name("tree nodes")
///     .budget(&Budget::new(8 << 20))
///     .objects_per_slab(1000)
///     .build();
/// assert_eq!(list.alloc([7; 48])[3], 7);
/// ```
#[must_use = "`build` makes the list"]
pub struct FreeListBuilder<L> {
    layout: Layout,
    settings: Settings,
    makes: PhantomData<fn() -> L>,
}

impl<L> Clone for FreeListBuilder<L> {
    fn clone(&self) -> Self {
        Self { layout: self.layout, settings: self.settings.clone(), makes: PhantomData }
    }
}

impl<L> fmt::Debug for FreeListBuilder<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("FreeListBuilder");
        fields.field("layout", &self.layout).field("settings", &self.settings).finish()
    }
}

impl<L> FreeListBuilder<L> {
    pub(super) const fn new(layout: Layout) -> Self {
        let settings = Settings {
            name: None,
            source: SharedSource::DEFAULT,
            release: Release::Adaptive,
            budget: None,
            objects_per_slab: None,
            hardened: false,
            report_live: None,
        };
        Self { layout, settings, makes: PhantomData }
    }

    /// Names the list, for [`report`](crate::report()) and for messages. At most
    /// [`MAX_NAME_LEN`](crate::MAX_NAME_LEN) bytes. Names need not be unique.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Where slabs come from; anonymous mappings if this is not called.
    pub fn source(mut self, source: impl Into<SharedSource>) -> Self {
        self.settings.source = source.into();
        self
    }

    /// What becomes of a slab all of whose objects were freed, when the list finds it: when live objects have fallen to
    /// half of what they were, and on down, and when the last one is freed, where one slab stays.
    /// [`Release::AtOnce`]: it goes to the system, past the recycler, and none is taken from there either.
    /// [`Release::Keep`]: so many bytes of such slabs stay. The others: to the recycler, whose own policy then says how
    /// long.
    pub fn release(mut self, release: Release) -> Self {
        self.settings.release = release;
        self
    }

    /// Caps the bytes held. A refused charge is [`ErrorKind::BudgetExceeded`](crate::ErrorKind).
    pub fn budget(mut self, budget: &Budget) -> Self {
        self.settings.budget = Some(budget.clone());
        self
    }

    /// Slabs with room for so many objects, rounded up to whole hardware pages and a size that the recycler keeps. If this
    /// is not called, or with 0, they begin with one hardware page and double up to 1 MiB, and are of huge pages from
    /// there on where the source has them.
    pub fn objects_per_slab(mut self, objects: usize) -> Self {
        self.settings.objects_per_slab = (objects > 0).then_some(objects);
        self
    }

    /// Hardened mode: double frees, stale frees (while the object rests), foreign pointers, objects of another list,
    /// overruns and writes after free are caught, named on standard error and stopped by an abort: misuse of pointers
    /// when it is freed, overruns at the free, writes after free when the place would be used again or the list is
    /// trimmed or dropped. Every call takes a slow path, an object takes 16 to 31 bytes more, a freed one rests until 1024
    /// more were freed, and slabs go only when nothing is live and [`trim`](RawFreeList::trim) is called.
    pub fn hardened(mut self, hardened: bool) -> Self {
        self.settings.hardened = hardened;
        self
    }

    /// Whether dropping the list with live objects says so on standard error; in hardened mode it does unless told
    /// otherwise here. Their memory goes either way.
    pub fn report_live(mut self, report: bool) -> Self {
        self.settings.report_live = Some(report);
        self
    }

    fn build_raw<F: OnFailure>(self) -> Result<RawFreeList, F::Error> {
        RawFreeList::make(self.layout, self.settings).map_err(F::fail)
    }
}

impl FreeListBuilder<RawFreeList> {
    /// The list.
    ///
    /// # Panics
    /// Aborts where [`try_build`](Self::try_build) returns an error.
    #[must_use]
    pub fn build(self) -> RawFreeList {
        always(self.build_raw::<Abort>())
    }

    /// The list.
    ///
    /// # Errors
    /// A name that is too long; a layout beyond the address space; a record that can't be had.
    pub fn try_build(self) -> Result<RawFreeList, AllocError> {
        self.build_raw::<Report>()
    }
}

impl<T> FreeListBuilder<FreeList<T>> {
    /// The list.
    ///
    /// # Panics
    /// Aborts where [`try_build`](Self::try_build) returns an error.
    #[must_use]
    pub fn build(self) -> FreeList<T> {
        FreeList::from_raw_list(always(self.build_raw::<Abort>()))
    }

    /// The list.
    ///
    /// # Errors
    /// A name that is too long; a record that can't be had.
    pub fn try_build(self) -> Result<FreeList<T>, AllocError> {
        self.build_raw::<Report>().map(FreeList::from_raw_list)
    }
}
