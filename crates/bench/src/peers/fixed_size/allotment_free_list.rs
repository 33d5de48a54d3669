//! Our own free list: `allotment-free-list` with its defaults; `allotment-free-list-a-tree`, the
//! same with a list for each data structure; and the lists that trees are copied into.
//!
//! The invariants are those of [`fixed_size`](crate::peers::fixed_size).

use std::alloc::Layout;
use std::ptr::NonNull;

use allotment::RawFreeList;

use super::{Block, FixedSize, OneThread, Slots, StoreGuard, check};
use crate::peers::about::Listed;
use crate::peers::{About, PeerKind};

const ORIGIN: &str = "allotment, this workspace's library";

/// A free list. With `EACH`, a workload makes one for each data structure. With `IN_ORDER`, its
/// objects are in memory in the order of their allocation, regardless of earlier frees.
pub(crate) struct FreeListRow<const EACH: bool, const IN_ORDER: bool>(OneThread<RawFreeList>);

/// `allotment-free-list`.
pub(crate) type List = FreeListRow<false, false>;

/// `allotment-free-list-a-tree`.
pub(crate) type ListEach = FreeListRow<true, false>;

/// The list that trees are copied into.
pub(crate) type ListInOrder = FreeListRow<false, true>;

/// The calling thread's part of a list.
pub(crate) struct ListLocal<'s, const IN_ORDER: bool>(StoreGuard<'s, RawFreeList>);

impl Listed for List {
    const ABOUT: About = About {
        ours: true,
        several_threads: false,
        ..About::peer(
            PeerKind::FixedSize,
            "allotment-free-list",
            ORIGIN,
            "adaptive: after the live objects have halved, empty slabs go to the recycler, which keeps as much \
             as the program reuses",
        )
    };
}

impl Listed for ListEach {
    const ABOUT: About = About {
        one_for_each_structure: true,
        several_threads: false,
        ..About::peer(
            PeerKind::FixedSize,
            "allotment-free-list-a-tree",
            "allotment's free list, one for each tree",
            "adaptive, for each list separately; a list releases all of its chunks when it is dropped",
        )
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

impl<const EACH: bool, const IN_ORDER: bool> FixedSize for FreeListRow<EACH, IN_ORDER> {
    type Object = Block;
    type Local<'s> = ListLocal<'s, IN_ORDER>;

    fn new(layout: Layout) -> Self {
        check(layout);
        Self(OneThread::new(RawFreeList::new(layout)))
    }

    fn local(&self) -> Self::Local<'_> {
        ListLocal(self.0.lend())
    }
}

impl<const IN_ORDER: bool> Slots for ListLocal<'_, IN_ORDER> {
    #[inline(always)]
    fn take(&self) -> NonNull<u8> {
        // `FreeList::copy_in_order` calls `alloc_fresh` for each object of a copy.
        self.0.with(|list| if IN_ORDER { list.alloc_fresh() } else { list.alloc() })
    }

    #[inline(always)]
    unsafe fn give_back(&self, block: NonNull<u8>) {
        // SAFETY: an object of this list, live, not used after: the caller's promise.
        self.0.with(|list| unsafe { list.free(block) });
    }

    fn trim(&self) -> bool {
        self.0.with(|list| list.trim());
        true
    }
}
