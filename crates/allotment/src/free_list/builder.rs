//! The options of a free list.

#[cfg(not(system_memory))]
use alloc::boxed::Box;
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;

#[cfg(system_memory)]
use super::checked::new_if_checked;
use super::chunk_header::ObjectSizes;
#[cfg(not(system_memory))]
use super::raw::ListChecks;
use super::raw::RawFreeList;
use super::settings::FreeListSettings;
use super::typed::FreeList;
use crate::error::AllocError;
use crate::memory::fallible::try_box;
use crate::options::{build_call, common_options};
use crate::statistics::{AllocatorKind, Record};

/// Builds a [`RawFreeList`] or a [`FreeList`] with options. Their `builder` functions return one.
///
/// It has no `on_refusal`: a free list implements no `Allocator` trait.
///
/// ```
/// use allotment::{Budget, FreeList};
///
/// let list = FreeList::<[u8; 48]>::builder()
///     .name("tree nodes")
///     .budget(&Budget::new(8 << 20))
///     .objects_per_chunk(1000)
///     .build();
/// assert_eq!(list.alloc([7; 48])[3], 7);
/// ```
#[must_use = "`build` makes the list"]
pub struct FreeListBuilder<L> {
    layout: Layout,
    settings: FreeListSettings,
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
    const fn new(layout: Layout) -> Self {
        Self { layout, settings: FreeListSettings::DEFAULT, makes: PhantomData }
    }

    common_options! {
        name,
        source,
        #[cfg(system_memory)]
        huge_pages,
        ///
        /// The list sweeps for empty chunks when the number of live objects has fallen to half of
        /// what it was, and again further down. It also finds them when the last object is freed;
        /// one chunk then stays.
        ///
        /// - [`Release::AtOnce`](crate::Release::AtOnce): empty chunks go to the system, past the
        ///   recycler. The list takes no chunks from the recycler either.
        /// - [`Release::Keep`](crate::Release::Keep): the list keeps empty chunks of up to this
        ///   number of bytes. The others go to the recycler.
        /// - Other policies: empty chunks go to the recycler, whose own policy decides how long it
        ///   keeps them.
        release,
        budget,
        maximum,
        #[cfg(system_memory)]
        ///
        /// Hardened mode finds:
        ///
        /// - When an object is freed: double frees, stale frees (while the object is in
        ///   quarantine), foreign pointers, objects of another list, and overruns.
        /// - When a free object would be used again, or the list is trimmed or dropped: writes
        ///   after free.
        ///
        /// An object takes 16 to 31 bytes more. A freed object stays in quarantine until 1024 more
        /// objects are freed. Chunks are released only by a call of [`trim`](RawFreeList::trim)
        /// when nothing is live.
        hardened,
        #[cfg(feature = "std")]
        ///
        /// Their memory is freed either way.
        report_live,
    }

    /// Makes all chunks with room for this number of objects, rounded up to whole hardware pages
    /// and to a size that the recycler keeps.
    ///
    /// By default, or with 0, the first chunk is one hardware page. Chunks then double in size up
    /// to 1 MiB, and are 2 MiB from there on, if the source may use huge pages.
    pub fn objects_per_chunk(mut self, objects: usize) -> Self {
        self.settings.objects_per_chunk = (objects > 0).then_some(objects);
        self
    }

    fn try_build_raw(self) -> Result<RawFreeList, AllocError> {
        RawFreeList::with_settings(self.layout, self.settings)
    }
}

/// # Options
impl RawFreeList {
    /// Starts building a list with options.
    pub const fn builder(layout: Layout) -> FreeListBuilder<Self> {
        FreeListBuilder::new(layout)
    }

    fn with_settings(layout: Layout, settings: FreeListSettings) -> Result<Self, AllocError> {
        let (hardened, name) = (settings.common.hardened, settings.common.name());
        let checks = new_if_checked(hardened, name)?;
        let slot = checks.as_deref().map_or(Some(layout), |checks| checks.slot_layout(layout));
        let sizes = ObjectSizes::new(layout, slot)?;
        let settings = try_box(settings)?;
        let record = Record::acquire(AllocatorKind::FreeList, settings.common.name())?;
        Ok(Self::empty(sizes, record, checks, settings))
    }
}

/// No list is checked.
#[cfg(not(system_memory))]
fn new_if_checked(_: bool, _: Option<&str>) -> Result<Option<Box<dyn ListChecks>>, AllocError> {
    Ok(None)
}

/// # Options
impl<T> FreeList<T> {
    /// Starts building a list with options.
    pub const fn builder() -> FreeListBuilder<Self> {
        FreeListBuilder::new(Layout::new::<T>())
    }
}

impl FreeListBuilder<RawFreeList> {
    build_call!("list", RawFreeList);

    /// Builds the list.
    ///
    /// # Errors
    /// If the name is too long, the layout exceeds the address space, or there is no memory for the
    /// statistics record.
    pub fn try_build(self) -> Result<RawFreeList, AllocError> {
        self.try_build_raw()
    }
}

impl<T> FreeListBuilder<FreeList<T>> {
    build_call!("list", FreeList<T>);

    /// Builds the list.
    ///
    /// # Errors
    /// If the name is too long, or there is no memory for the statistics record.
    pub fn try_build(self) -> Result<FreeList<T>, AllocError> {
        self.try_build_raw().map(FreeList::from_raw_list)
    }
}
