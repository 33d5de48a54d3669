//! The figures of one allocator.

/// What an allocator holds at this moment, in bytes and counts. The figures are exact when no
/// thread is inside the allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Objects allocated and not freed. An arena does not count objects of size zero.
    pub live_objects: u64,
    /// The bytes of those objects as they were requested, without padding.
    pub live_bytes: u64,
    /// The bytes taken from the source and not given back. This is what a budget is charged.
    pub held_bytes: u64,
    /// The largest value that `held_bytes` has had.
    pub peak_held_bytes: u64,
    /// Bytes that no object can use. For an arena: the ends of chunks that were left because the
    /// next object didn't fit. For a slab: the padding of its slots and the ends of its pages.
    pub wasted_bytes: u64,
    /// Bytes of slots that hold no object: free in their pages, or in a thread cache. Always zero
    /// for an arena.
    pub free_bytes: u64,
    /// Bytes of the allocator's own structures outside its chunks. Always zero for an arena, whose
    /// structures lie in its chunks. For a slab, `held = structures + live + free + wasted` holds
    /// exactly.
    pub structure_bytes: u64,
    /// Chunks held; for a slab, its pages.
    pub chunks: u64,
    /// Chunks that came warm from the recycler, counted from the start of the allocator.
    pub recycled_chunks: u64,
    /// Calls to the operating system or the source for this allocator, counted from its start.
    pub source_calls: u64,
}
