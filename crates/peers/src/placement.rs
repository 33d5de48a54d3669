//! Five ways in which the nodes of a linked structure come to lie where they lie: the layouts of the seed of the free
//! list. Each is a row, though none is an allocator.

use std::alloc::Layout;

use crate::fixed_size::FixedSize;
use crate::fixed_size::heap::HeapObjects;
use crate::fixed_size::own_list::{List, ListInOrder};
use crate::malloc::libc::Calls;
use crate::registry::Listed;
use crate::{About, Kind};

/// How a structure's nodes come to lie where they lie, when it is walked.
pub trait Placement: 'static {
    /// What the structure is built and pruned with.
    type Source: FixedSize;

    /// What it is copied with, each node in the order in which it will be visited.
    type Target: FixedSize;

    /// Whether it is copied. If not, it stays as it was built.
    const COPIED: bool;

    /// Whether all objects that the copy will need were allocated from the target, and freed in random order, before
    /// the copy is made. One object more stays live meanwhile, since a list that is empty is in order again.
    const SCRAMBLED: bool;

    /// What to copy with, for so many objects.
    fn target(layout: Layout, objects: usize) -> Self::Target {
        let _ = objects;
        Self::Target::new(layout)
    }
}

type Malloc = HeapObjects<Calls>;

/// `malloc-built`.
pub(crate) struct MallocBuilt;

/// `malloc-copy`.
pub(crate) struct MallocCopy;

/// `free-list-built`.
pub(crate) struct FreeListBuilt;

/// `compact-copy`.
pub(crate) struct CompactCopy;

/// `scrambled-copy`.
pub(crate) struct ScrambledCopy;

const fn about(name: &'static str, origin: &'static str, policy: &'static str) -> About {
    About::peer(Kind::Placement, name, origin, policy)
}

impl Listed for MallocBuilt {
    const ABOUT: About = about(
        "malloc-built",
        "trees built and pruned with the C library's malloc",
        "malloc's own: what was pruned is used for the next trees, or stays",
    );
}

impl Placement for MallocBuilt {
    type Source = Malloc;
    type Target = Malloc;
    const COPIED: bool = false;
    const SCRAMBLED: bool = false;
}

impl Listed for MallocCopy {
    const ABOUT: About = about(
        "malloc-copy",
        "malloc-built, then copied with malloc in visiting order: the control",
        "malloc's own: the copy is made of what was pruned, as far as that goes; the original is freed",
    );
}

impl Placement for MallocCopy {
    type Source = Malloc;
    type Target = Malloc;
    const COPIED: bool = true;
    const SCRAMBLED: bool = false;
}

impl Listed for FreeListBuilt {
    const ABOUT: About = about(
        "free-list-built",
        "trees built and pruned with one free list of allotment's",
        "adaptive: what was pruned is used for the next trees; slabs found empty go",
    );
}

impl Placement for FreeListBuilt {
    type Source = List;
    type Target = List;
    const COPIED: bool = false;
    const SCRAMBLED: bool = false;
}

impl Listed for CompactCopy {
    const ABOUT: About = about(
        "compact-copy",
        "malloc-built, then copied into one free list, fresh places in visiting order",
        "adaptive; the original is freed",
    );
}

impl Placement for CompactCopy {
    type Source = Malloc;
    type Target = ListInOrder;
    const COPIED: bool = true;
    const SCRAMBLED: bool = false;
}

impl Listed for ScrambledCopy {
    const ABOUT: About = about(
        "scrambled-copy",
        "the same from a free list all of whose objects were freed in random order",
        "one slab for all, so that the list never puts its free objects in order; the original is freed",
    );
}

impl Placement for ScrambledCopy {
    type Source = Malloc;
    type Target = List;
    const COPIED: bool = true;
    const SCRAMBLED: bool = true;

    fn target(layout: Layout, objects: usize) -> List {
        // And the one that stays.
        List::of_one_slab(layout, objects + 1)
    }
}
