//! Five placements: ways to place the nodes of a linked structure in memory, which the ancestor of
//! the free list compared. Each is a row, though none is an allocator.

use std::alloc::Layout;
use std::marker::PhantomData;

use crate::peers::about::Listed;
use crate::peers::fixed_size::FixedSize;
use crate::peers::fixed_size::allotment_free_list::{List, ListInOrder};
use crate::peers::fixed_size::heap::HeapObjects;
use crate::peers::malloc::libc::LibcCalls;
use crate::peers::{About, PeerKind};

/// How the nodes of a structure are placed in memory before it is walked.
pub trait Placement: 'static {
    /// The allocator that the structure is built and pruned with.
    type Source: FixedSize;

    /// The allocator that the nodes are copied into, in the order in which the walk visits them.
    type Target: FixedSize;

    /// Whether the structure is copied. If not, it stays as it was built.
    const COPIED: bool;

    /// Whether all objects that the copy needs are first allocated from the target and freed in
    /// random order. One more object stays live meanwhile, because an empty list is in order again.
    const SCRAMBLED: bool;

    /// Makes the target for `objects` objects.
    fn target(layout: Layout, objects: usize) -> Self::Target {
        let _ = objects;
        Self::Target::new(layout)
    }
}

type Malloc = HeapObjects<LibcCalls>;

/// Nodes in the memory of `Source`, or copied from there into the memory of `Target`.
pub(crate) struct PlacedNodes<Source, Target, const COPIED: bool>(PhantomData<(Source, Target)>);

/// `malloc-built`.
pub(crate) type MallocBuilt = PlacedNodes<Malloc, Malloc, false>;

/// `malloc-copy`.
pub(crate) type MallocCopy = PlacedNodes<Malloc, Malloc, true>;

/// `free-list-built`.
pub(crate) type FreeListBuilt = PlacedNodes<List, List, false>;

/// `compact-copy`.
pub(crate) type CompactCopy = PlacedNodes<Malloc, ListInOrder, true>;

/// `scrambled-copy`.
pub(crate) struct ScrambledCopy;

impl<S: FixedSize, T: FixedSize, const COPIED: bool> Placement for PlacedNodes<S, T, COPIED> {
    type Source = S;
    type Target = T;
    const COPIED: bool = COPIED;
    const SCRAMBLED: bool = false;
}

const fn about(name: &'static str, origin: &'static str, policy: &'static str) -> About {
    About::peer(PeerKind::Placement, name, origin, policy)
}

impl Listed for MallocBuilt {
    const ABOUT: About = about(
        "malloc-built",
        "trees built and pruned with the C library's malloc",
        "malloc's own: the next trees reuse the pruned nodes; malloc keeps the others",
    );
}

impl Listed for MallocCopy {
    const ABOUT: About = about(
        "malloc-copy",
        "malloc-built, then copied with malloc in visiting order: the control",
        "malloc's own: the copy reuses pruned nodes as far as there are any; the original is freed",
    );
}

impl Listed for FreeListBuilt {
    const ABOUT: About = about(
        "free-list-built",
        "trees built and pruned with one free list for all trees",
        "adaptive: the next trees reuse the pruned nodes; slabs found empty are released",
    );
}

impl Listed for CompactCopy {
    const ABOUT: About = about(
        "compact-copy",
        "malloc-built, then copied into one free list, to fresh memory in visiting order",
        "adaptive; the original is freed",
    );
}

impl Listed for ScrambledCopy {
    const ABOUT: About = about(
        "scrambled-copy",
        "the same copy into a free list whose objects were freed in random order before",
        "one slab for all objects, so the list never sorts its free objects; the original is freed",
    );
}

impl Placement for ScrambledCopy {
    type Source = Malloc;
    type Target = List;
    const COPIED: bool = true;
    const SCRAMBLED: bool = true;

    fn target(layout: Layout, objects: usize) -> List {
        // One more for the object that stays.
        List::of_one_chunk(layout, objects + 1)
    }
}
