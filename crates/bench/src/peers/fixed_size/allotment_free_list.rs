//! Our own free list: `allotment-free-list` with its defaults; `allotment-free-list-a-tree`, the
//! same with a list for each data structure; and the lists that trees are copied into.
//!
//! The invariants are those of [`fixed_size`](crate::peers::fixed_size).

use std::alloc::Layout;
use std::ptr::NonNull;

use allotment::RawFreeList;

use super::{Block, FixedSize, OneThread, Slots, StoreGuard, check};
use crate::peers::about::{FixedSizeAbout, Listed};
use crate::peers::{About, PeerKind};

const ORIGIN: &str = "allotment, this workspace's library";
const ONE_THREAD: FixedSizeAbout = FixedSizeAbout { several_threads: false, every_layout: true };

/// `allotment-free-list`.
pub(crate) struct List(OneThread<RawFreeList>);

/// `allotment-free-list-a-tree`: the same list. Only the number of lists that a workload makes
/// differs.
pub(crate) struct ListEach(List);

/// A list whose objects are in memory in the order of their allocation, regardless of earlier
/// frees.
pub(crate) struct ListInOrder(List);

/// The calling thread's part of a [`ListInOrder`].
pub(crate) struct InOrder<'s>(StoreGuard<'s, RawFreeList>);

impl Listed for List {
    const ABOUT: About = About {
        ours: true,
        ..About::peer(
            PeerKind::FixedSize,
            "allotment-free-list",
            ORIGIN,
            "adaptive: after the live objects have halved, empty slabs go to the recycler, which keeps as much \
             as the program reuses",
        )
        .serving(ONE_THREAD)
    };
}

impl Listed for ListEach {
    const ABOUT: About = About {
        one_for_each_structure: true,
        ..About::peer(
            PeerKind::FixedSize,
            "allotment-free-list-a-tree",
            "allotment's free list, one for each tree",
            "adaptive, for each list separately; a list releases all of its chunks when it is dropped",
        )
        .serving(ONE_THREAD)
    };
}

impl List {
    /// A list that has `objects` objects in one chunk. It never sweeps for empty chunks, so its
    /// free objects stay in the order of their frees.
    pub(crate) fn of_one_chunk(layout: Layout, objects: usize) -> Self {
        check(layout);
        Self(OneThread::new(RawFreeList::builder(layout).objects_per_chunk(objects).build()))
    }
}

impl FixedSize for List {
    type Object = Block;
    type Local<'s> = StoreGuard<'s, RawFreeList>;

    fn new(layout: Layout) -> Self {
        check(layout);
        Self(OneThread::new(RawFreeList::new(layout)))
    }

    fn local(&self) -> Self::Local<'_> {
        self.0.lend()
    }
}

impl FixedSize for ListEach {
    type Object = Block;
    type Local<'s> = StoreGuard<'s, RawFreeList>;

    fn new(layout: Layout) -> Self {
        Self(List::new(layout))
    }

    fn local(&self) -> Self::Local<'_> {
        self.0.local()
    }
}

impl FixedSize for ListInOrder {
    type Object = Block;
    type Local<'s> = InOrder<'s>;

    fn new(layout: Layout) -> Self {
        Self(List::new(layout))
    }

    fn local(&self) -> InOrder<'_> {
        InOrder(self.0.local())
    }
}

impl Slots for StoreGuard<'_, RawFreeList> {
    #[inline(always)]
    fn take(&self) -> NonNull<u8> {
        self.with(|list| list.alloc())
    }

    #[inline(always)]
    unsafe fn give_back(&self, block: NonNull<u8>) {
        // SAFETY: an object of this list, live, not used after: the caller's promise.
        self.with(|list| unsafe { list.free(block) });
    }

    fn trim(&self) -> bool {
        self.with(|list| list.trim());
        true
    }
}

impl Slots for InOrder<'_> {
    #[inline(always)]
    fn take(&self) -> NonNull<u8> {
        // The call that `FreeList::copy_in_order` makes for each object of a copy.
        self.0.with(|list| list.alloc_fresh())
    }

    #[inline(always)]
    unsafe fn give_back(&self, block: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe { self.0.give_back(block) };
    }

    fn trim(&self) -> bool {
        Slots::trim(&self.0)
    }
}
