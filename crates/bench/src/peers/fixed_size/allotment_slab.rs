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

use allotment::RawSlab;
use allotment::slab::RawSlabHandle;

use super::{Block, FixedSize, Slots, check};
use crate::peers::about::Listed;
use crate::peers::allotment_options::{AtOnce, DefaultOptions, ORIGIN, RowOptions};
use crate::peers::{About, PeerKind};

const ADAPTIVE: &str =
    "adaptive: as many empty pages are kept as the program reuses; the others are released";

/// A slab, by its ordinary calls.
pub(crate) struct AllotmentSlab<O>(Arc<RawSlab>, PhantomData<O>);

/// `allotment-slab-handle`.
pub(crate) struct AllotmentSlabHandle(AllotmentSlab<DefaultOptions>);

impl Listed for AllotmentSlab<DefaultOptions> {
    const ABOUT: About = own("allotment-slab");
}

impl Listed for AllotmentSlab<AtOnce> {
    const ABOUT: About = About::peer(
        PeerKind::FixedSize,
        "allotment-slab-at-once",
        "allotment's slab with Release::AtOnce",
        "at once: a page goes back when its last object is freed",
    );
}

impl Listed for AllotmentSlabHandle {
    const ABOUT: About = own("allotment-slab-handle");
}

const fn own(name: &'static str) -> About {
    About { ours: true, ..About::peer(PeerKind::FixedSize, name, ORIGIN, ADAPTIVE) }
}

impl<O: RowOptions> FixedSize for AllotmentSlab<O> {
    type Object = Block;
    type Local<'s> = &'s RawSlab;

    fn new(layout: Layout) -> Self {
        check(layout);
        Self(Arc::new(O::slab(layout)), PhantomData)
    }

    fn by_size(layout: Layout) -> Self {
        check(layout);
        Self(O::slab_by_size(layout), PhantomData)
    }

    fn local(&self) -> &RawSlab {
        &self.0
    }

    fn reserve(&self, objects: usize) -> bool {
        self.0.reserve(objects);
        true
    }
}

impl FixedSize for AllotmentSlabHandle {
    type Object = Block;
    type Local<'s> = RawSlabHandle<'s>;

    fn new(layout: Layout) -> Self {
        Self(AllotmentSlab::new(layout))
    }

    fn by_size(layout: Layout) -> Self {
        Self(AllotmentSlab::by_size(layout))
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
