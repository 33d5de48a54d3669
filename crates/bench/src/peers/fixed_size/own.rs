//! Our own slab: `allotment-slab` with its defaults and its ordinary calls;
//! `allotment-slab-handle`, the same with an explicit handle; and `allotment-slab-at-once`, which
//! releases every empty page at once, as its ancestor did.
//!
//! The invariants are those of [`fixed_size`](crate::peers::fixed_size).

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

use allotment::{RawSlab, RawSlabHandle, Release};

use super::{Block, FixedSize, FixedSizeLocal, check};
use crate::peers::about::Listed;
use crate::peers::{About, Kind};

const ORIGIN: &str = "allotment, this workspace's library";
const ADAPTIVE: &str =
    "adaptive: as many empty pages are kept as the program reuses; the others are released";

/// `allotment-slab`.
pub(crate) struct Slab(Arc<RawSlab>);

/// `allotment-slab-handle`.
pub(crate) struct SlabHandle(Arc<RawSlab>);

/// `allotment-slab-at-once`.
pub(crate) struct SlabAtOnce(Arc<RawSlab>);

/// One thread's use of a slab with its ordinary calls.
pub(crate) struct Ordinary<'s>(&'s RawSlab);

/// One thread's use of a slab with a handle.
pub(crate) struct Handle<'s>(RawSlabHandle<'s>);

impl Listed for Slab {
    const ABOUT: About =
        About { ours: true, ..About::peer(Kind::FixedSize, "allotment-slab", ORIGIN, ADAPTIVE) };
}

impl Listed for SlabHandle {
    const ABOUT: About = About {
        ours: true,
        ..About::peer(Kind::FixedSize, "allotment-slab-handle", ORIGIN, ADAPTIVE)
    };
}

impl Listed for SlabAtOnce {
    const ABOUT: About = About::peer(
        Kind::FixedSize,
        "allotment-slab-at-once",
        "allotment's slab with Release::AtOnce",
        "at once: a page goes back when its last object is freed",
    );
}

fn new(layout: Layout) -> Arc<RawSlab> {
    check(layout);
    Arc::new(RawSlab::new(layout))
}

impl FixedSize for Slab {
    type Object = Block;
    type Local<'s> = Ordinary<'s>;

    fn new(layout: Layout) -> Self {
        Self(new(layout))
    }

    fn by_size(layout: Layout) -> Self {
        check(layout);
        Self(RawSlab::by_size(layout))
    }

    fn local(&self) -> Ordinary<'_> {
        Ordinary(&self.0)
    }

    fn reserve(&self, objects: usize) -> bool {
        self.0.reserve(objects);
        true
    }
}

impl FixedSize for SlabAtOnce {
    type Object = Block;
    type Local<'s> = Ordinary<'s>;

    fn new(layout: Layout) -> Self {
        check(layout);
        Self(Arc::new(RawSlab::builder(layout).release(Release::AtOnce).build()))
    }

    fn local(&self) -> Ordinary<'_> {
        Ordinary(&self.0)
    }

    fn reserve(&self, objects: usize) -> bool {
        self.0.reserve(objects);
        true
    }
}

impl FixedSize for SlabHandle {
    type Object = Block;
    type Local<'s> = Handle<'s>;

    fn new(layout: Layout) -> Self {
        Self(new(layout))
    }

    fn by_size(layout: Layout) -> Self {
        check(layout);
        Self(RawSlab::by_size(layout))
    }

    fn local(&self) -> Handle<'_> {
        Handle(self.0.handle())
    }

    fn reserve(&self, objects: usize) -> bool {
        self.0.reserve(objects);
        true
    }
}

impl FixedSizeLocal for Ordinary<'_> {
    type Object = Block;

    #[inline(always)]
    fn alloc(&self, word: u64) -> Block {
        // SAFETY: a fresh slot of a layout that has a word, aligned (`check`).
        unsafe { Block::written(self.0.alloc(), word) }
    }

    #[inline(always)]
    unsafe fn free(&self, object: Block) {
        // SAFETY: a slot of this slab, live, not used after: the caller's promise.
        unsafe { self.0.free(object.at()) }
    }

    #[inline(always)]
    unsafe fn bytes(&self, object: Block) -> NonNull<u8> {
        object.at()
    }

    fn trim(&self) -> bool {
        self.0.trim();
        true
    }
}

impl FixedSizeLocal for Handle<'_> {
    type Object = Block;

    #[inline(always)]
    fn alloc(&self, word: u64) -> Block {
        // SAFETY: a fresh slot of a layout that has a word, aligned (`check`).
        unsafe { Block::written(self.0.alloc(), word) }
    }

    #[inline(always)]
    unsafe fn free(&self, object: Block) {
        // SAFETY: a slot of this handle's slab, live, not used after: the caller's promise.
        unsafe { self.0.free(object.at()) }
    }

    #[inline(always)]
    unsafe fn bytes(&self, object: Block) -> NonNull<u8> {
        object.at()
    }

    fn trim(&self) -> bool {
        self.0.slab().trim();
        true
    }
}
