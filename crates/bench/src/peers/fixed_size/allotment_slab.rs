//! Allotment's slab: `allotment-slab` with its defaults and its ordinary calls;
//! `allotment-slab-handle`, the same with an explicit handle; `allotment-slab-at-once`, which
//! releases every empty page at once, as its ancestor did; and the slabs of `mmap-huge` and
//! `mmap-small`.
//!
//! The invariants are those of [`fixed_size`](crate::peers::fixed_size).

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use allotment::{Mmap, RawSlab, RawSlabHandle, Release};

use super::{Block, FixedSize, Slots, check};
use crate::peers::about::Listed;
use crate::peers::{About, AllocatorKind};

const ORIGIN: &str = "allotment, this workspace's library";
const ADAPTIVE: &str =
    "adaptive: as many empty pages are kept as the program reuses; the others are released";

/// A slab with the options of a row.
pub(crate) trait Options: Send + Sync + 'static {
    fn slab(layout: Layout) -> RawSlab;

    /// The slabs that the process shares have the default options.
    fn by_size(layout: Layout) -> Arc<RawSlab> {
        Arc::new(Self::slab(layout))
    }
}

/// `allotment-slab`.
pub(crate) enum Defaults {}

/// `allotment-slab-at-once`.
pub(crate) enum AtOnce {}

/// The slabs of `mmap-huge` and `mmap-small`.
pub(crate) enum OnPages<const HUGE: bool> {}

impl Options for Defaults {
    fn slab(layout: Layout) -> RawSlab {
        RawSlab::new(layout)
    }

    fn by_size(layout: Layout) -> Arc<RawSlab> {
        RawSlab::by_size(layout)
    }
}

impl Options for AtOnce {
    fn slab(layout: Layout) -> RawSlab {
        RawSlab::builder(layout).release(Release::AtOnce).build()
    }
}

impl<const HUGE: bool> Options for OnPages<HUGE> {
    fn slab(layout: Layout) -> RawSlab {
        let source = if HUGE { Mmap::huge_pages() } else { Mmap::small_pages() };
        RawSlab::builder(layout).source(source).build()
    }
}

/// A slab, by its ordinary calls.
pub(crate) struct Ordinary<O>(Arc<RawSlab>, PhantomData<O>);

/// `allotment-slab-handle`.
pub(crate) struct ByHandle(Ordinary<Defaults>);

impl Listed for Ordinary<Defaults> {
    const ABOUT: About = own("allotment-slab");
}

impl Listed for Ordinary<AtOnce> {
    const ABOUT: About = About::peer(
        AllocatorKind::FixedSize,
        "allotment-slab-at-once",
        "allotment's slab with Release::AtOnce",
        "at once: a page goes back when its last object is freed",
    );
}

impl Listed for ByHandle {
    const ABOUT: About = own("allotment-slab-handle");
}

const fn own(name: &'static str) -> About {
    About { ours: true, ..About::peer(AllocatorKind::FixedSize, name, ORIGIN, ADAPTIVE) }
}

impl<O: Options> FixedSize for Ordinary<O> {
    type Object = Block;
    type Local<'s> = &'s RawSlab;

    fn new(layout: Layout) -> Self {
        check(layout);
        Self(Arc::new(O::slab(layout)), PhantomData)
    }

    fn by_size(layout: Layout) -> Self {
        check(layout);
        Self(O::by_size(layout), PhantomData)
    }

    fn local(&self) -> &RawSlab {
        &self.0
    }

    fn reserve(&self, objects: usize) -> bool {
        self.0.reserve(objects);
        true
    }
}

impl FixedSize for ByHandle {
    type Object = Block;
    type Local<'s> = RawSlabHandle<'s>;

    fn new(layout: Layout) -> Self {
        Self(Ordinary::new(layout))
    }

    fn by_size(layout: Layout) -> Self {
        Self(Ordinary::by_size(layout))
    }

    fn local(&self) -> RawSlabHandle<'_> {
        self.0.0.handle()
    }

    fn reserve(&self, objects: usize) -> bool {
        self.0.reserve(objects)
    }
}

impl Slots for &RawSlab {
    #[inline(always)]
    fn take(&self) -> NonNull<u8> {
        RawSlab::alloc(self)
    }

    #[inline(always)]
    unsafe fn give_back(&self, slot: NonNull<u8>) {
        // SAFETY: a slot of this slab, live, not used after: the caller's promise.
        unsafe { RawSlab::free(self, slot) };
    }

    fn trim(&self) -> bool {
        RawSlab::trim(self);
        true
    }
}

impl Slots for RawSlabHandle<'_> {
    #[inline(always)]
    fn take(&self) -> NonNull<u8> {
        RawSlabHandle::alloc(self)
    }

    #[inline(always)]
    unsafe fn give_back(&self, slot: NonNull<u8>) {
        // SAFETY: a slot of this handle's slab, live, not used after: the caller's promise.
        unsafe { RawSlabHandle::free(self, slot) };
    }

    fn trim(&self) -> bool {
        self.slab().trim();
        true
    }
}
