//! A chunk on its way from a source or the recycler to an allocator.

use core::ptr::NonNull;

/// A chunk that its holder owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmChunk {
    pub start: NonNull<u8>,
    pub mapping: u32,
}

/// A chunk that was taken from a source or the recycler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcquiredChunk {
    pub start: NonNull<u8>,
    /// Its size, at least the size asked for.
    pub size: usize,
    /// The alignment that it was asked for with.
    pub align: usize,
    /// Its mapping number in the chunk cache, or [`NO_MAPPING`].
    pub mapping: u32,
    /// Whether it came warm from the recycler, without a system call.
    pub recycled: bool,
    /// Whether its bytes are known to be zero.
    pub zeroed: bool,
    /// Whether it is a separate mapping with small pages, and only its first few pages were touched.
    pub untouched: bool,
}

/// The mapping number of a chunk that is no mapping of the chunk cache.
pub(crate) const NO_MAPPING: u32 = u32::MAX;

/// How small pages would be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SmallTouch {
    /// Each by its own page fault.
    Faults,
    /// Many with one system call ([`populate`](super::os::populate)), which takes less time.
    Populate,
}
