//! The options of a slab.

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;

use super::geometry::MAX_PAGE;
use super::raw::RawSlab;
use super::settings::SlabSettings;
use super::typed::Slab;
use crate::error::AllocError;
use crate::options::{build_call, common_options};

/// Builds a [`RawSlab`] or a [`Slab`] with options. Their `builder` functions return one.
///
/// It has no `on_refusal`: a slab implements no `Allocator` trait.
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
    settings: SlabSettings,
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

/// # Options
impl RawSlab {
    /// Starts building a slab with options.
    pub const fn builder(layout: Layout) -> SlabBuilder<Self> {
        SlabBuilder::new(layout)
    }
}

/// # Options
impl<T> Slab<T> {
    /// Starts building a slab with options.
    pub const fn builder() -> SlabBuilder<Self> {
        SlabBuilder::new(Layout::new::<T>())
    }
}

impl<S> SlabBuilder<S> {
    const fn new(layout: Layout) -> Self {
        Self { layout, settings: SlabSettings::DEFAULT, makes: PhantomData }
    }

    common_options! {
        name,
        ///
        /// [`Mmap`](crate::Mmap) and [`File`](crate::File) lend ranges of up to 2 MiB, and take
        /// back the pages of a range one by one. With [`Malloc`](crate::Malloc) and other sources
        /// each page is a separate block. One thread at a time then requests a page from the
        /// source. Other threads that need one wait for that page, or for a slot that is freed.
        source,
        huge_pages,
        ///
        /// With [`Release::AtOnce`](crate::Release::AtOnce) a page goes to the system in the call
        /// that frees its last object.
        ///
        /// With [`Release::Adaptive`](crate::Release::Adaptive), the slab keeps empty pages within
        /// an allowance of at least one page. A page taken from the source within a second of a
        /// release raises the allowance by its size, and each second halves the allowance. Beyond
        /// the allowance it depends on the thread that emptied the page. If this thread also
        /// allocates, the page is released at once. If it only frees, releases take at most an
        /// eighth of the slab's time, and the other empty pages are kept until later.
        ///
        /// Kept pages are released by calls that empty a page, or by [`trim`](RawSlab::trim).
        release,
        ///
        /// The slab itself takes about 1 KiB.
        budget,
        maximum,
        ///
        /// Hardened mode finds:
        ///
        /// - When a slot is freed: double frees, stale frees (while the slot is in quarantine),
        ///   foreign pointers, objects of another slab, and overruns.
        /// - When a free slot would be used again, or its page is released: writes after free.
        ///
        /// Every call takes a lock. An object takes 16 to 31 bytes more. A freed slot stays in
        /// quarantine until 1024 more slots of this slab are freed.
        hardened,
        ///
        /// The objects stay valid either way. Slots in other threads' caches don't count as live.
        report_live,
    }

    /// Sets the size of the largest page. The default is 64 KiB.
    ///
    /// The size is rounded up to whole hardware pages and to what one object needs. Sizes above 2
    /// MiB count as 2 MiB. The first pages are one hardware page, and later pages grow with what
    /// the slab holds. Objects above 8 KiB have pages of eight objects, and objects above 256 KiB
    /// have pages of one object; this option does not change that.
    pub fn max_page_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_page_bytes = if bytes > MAX_PAGE { MAX_PAGE } else { bytes };
        self
    }

    /// Sets how many bytes of slots each thread's cache holds at most.
    ///
    /// The default is 256 KiB, or a 64th of the budget if that is less. The limit is always at
    /// least eight slots and at most 4096. A cache starts with an eighth of its limit and grows if
    /// the thread allocates and frees more. Each cached slot may be the last of its page, so this
    /// option bounds what a thread that sleeps forever keeps.
    pub fn max_cached_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_cached_bytes = Some(bytes);
        self
    }

    /// Whether packing is on from the start; see [`set_packing`](RawSlab::set_packing). The default
    /// is off.
    pub fn packing(mut self, packing: bool) -> Self {
        self.settings.packing = packing;
        self
    }

    fn try_build_raw(self) -> Result<RawSlab, AllocError> {
        RawSlab::make(self.layout, self.settings)
    }
}

impl SlabBuilder<RawSlab> {
    build_call!("slab", RawSlab);

    /// Builds the slab.
    ///
    /// # Errors
    /// If the name is too long, the layout exceeds the address space, or malloc or the budget
    /// refuses memory for the slab's own structures.
    pub fn try_build(self) -> Result<RawSlab, AllocError> {
        self.try_build_raw()
    }
}

impl<T> SlabBuilder<Slab<T>> {
    build_call!("slab", Slab<T>);

    /// Builds the slab.
    ///
    /// # Errors
    /// If the name is too long, the type exceeds the address space, or malloc or the budget refuses
    /// memory for the slab's own structures.
    pub fn try_build(self) -> Result<Slab<T>, AllocError> {
        self.try_build_raw().map(Slab::from_raw)
    }
}
