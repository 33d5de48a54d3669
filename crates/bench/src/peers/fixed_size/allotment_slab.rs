//! Allotment's slab: `allotment-slab` with its defaults and its ordinary calls;
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
use crate::peers::{About, AllocatorKind};

const ORIGIN: &str = "allotment, this workspace's library";
const ADAPTIVE: &str =
    "adaptive: as many empty pages are kept as the program reuses; the others are released";

/// `allotment-slab`; if `AT_ONCE`, `allotment-slab-at-once`.
pub(crate) struct OrdinarySlab<const AT_ONCE: bool>(Arc<RawSlab>);

/// `allotment-slab-handle`.
pub(crate) struct SlabByHandle(OrdinarySlab<false>);

/// One thread's use of a slab with its ordinary calls.
pub(crate) struct Ordinary<'s>(&'s RawSlab);

/// One thread's use of a slab with a handle.
pub(crate) struct ByHandle<'s>(RawSlabHandle<'s>);

impl<const AT_ONCE: bool> Listed for OrdinarySlab<AT_ONCE> {
    const ABOUT: About = if AT_ONCE {
        About::peer(
            AllocatorKind::FixedSize,
            "allotment-slab-at-once",
            "allotment's slab with Release::AtOnce",
            "at once: a page goes back when its last object is freed",
        )
    } else {
        own("allotment-slab")
    };
}

impl Listed for SlabByHandle {
    const ABOUT: About = own("allotment-slab-handle");
}

const fn own(name: &'static str) -> About {
    About { ours: true, ..About::peer(AllocatorKind::FixedSize, name, ORIGIN, ADAPTIVE) }
}

impl<const AT_ONCE: bool> FixedSize for OrdinarySlab<AT_ONCE> {
    type Object = Block;
    type Local<'s> = Ordinary<'s>;

    fn new(layout: Layout) -> Self {
        check(layout);
        Self(Arc::new(if AT_ONCE {
            RawSlab::builder(layout).release(Release::AtOnce).build()
        } else {
            RawSlab::new(layout)
        }))
    }

    fn by_size(layout: Layout) -> Self {
        check(layout);
        // The slabs that the process shares have the default release policy.
        if AT_ONCE { Self::new(layout) } else { Self(RawSlab::by_size(layout)) }
    }

    fn local(&self) -> Ordinary<'_> {
        Ordinary(&self.0)
    }

    fn reserve(&self, objects: usize) -> bool {
        self.0.reserve(objects);
        true
    }
}

impl FixedSize for SlabByHandle {
    type Object = Block;
    type Local<'s> = ByHandle<'s>;

    fn new(layout: Layout) -> Self {
        Self(OrdinarySlab::new(layout))
    }

    fn by_size(layout: Layout) -> Self {
        Self(OrdinarySlab::by_size(layout))
    }

    fn local(&self) -> ByHandle<'_> {
        ByHandle(self.0.0.handle())
    }

    fn reserve(&self, objects: usize) -> bool {
        self.0.reserve(objects)
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

impl FixedSizeLocal for ByHandle<'_> {
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
