//! The memory of chunks beneath the blocks of a reap or a pool: the headers of chunks, and the
//! interface that supplies their memory.

use core::cell::Cell;
use core::ptr::NonNull;

use crate::error::AllocError;
use crate::memory::layout::CACHE_LINE;

/// The memory of one chunk, as the supply returned it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkMemory {
    pub start: NonNull<u8>,
    pub size: usize,
    pub align: usize,
    /// The mapping number in the chunk cache; not used for the region.
    pub mapping: u32,
    /// The memory came from the recycler, so its pages may be warm.
    pub recycled: bool,
}

/// A supply of memory for chunks.
pub(super) trait ChunkSupply {
    /// The alignment of every chunk, at least [`CACHE_LINE`].
    fn align(&self) -> usize;

    /// Takes memory of at least `need` bytes, and if available of twice `last`, the size of the
    /// previous chunk. On an error nothing has changed.
    fn take(&self, need: usize, last: usize) -> Result<ChunkMemory, AllocError>;

    /// Releases the memory of chunks. Returns the number of calls to the source.
    ///
    /// # Safety
    /// Each chunk's memory came from this supply, is released once, and nothing refers to it any
    /// more. `total` is the sum of the sizes.
    unsafe fn release(&self, chunks: &mut dyn Iterator<Item = ChunkMemory>, total: usize) -> usize;

    /// Whether this is a child made by fork that does not have the memory.
    fn is_orphaned(&self) -> bool;

    /// Whether a budget limits the bytes.
    fn is_limited(&self) -> bool;

    /// Charges bytes that come from elsewhere.
    fn charge(&self, bytes: usize) -> Result<(), AllocError>;

    /// Undoes [`charge`](Self::charge).
    fn credit(&self, bytes: usize);
}

/// The header of a chunk, at its beginning; for a large block, right before the block.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct PoolChunkHeader {
    pub next: Cell<*mut PoolChunkHeader>,
    pub prev: Cell<*mut PoolChunkHeader>,
    pub start: NonNull<u8>,
    pub size: usize,
    pub align: usize,
    pub mapping: u32,
    /// The chunk is reserved: it is not released before the allocator ends.
    pub reserved: Cell<bool>,
    /// The requested size of the large block in bytes.
    pub requested: Cell<usize>,
}

pub(super) const HEADER_BYTES: usize = size_of::<PoolChunkHeader>();
const _: () = assert!(HEADER_BYTES == CACHE_LINE);

impl PoolChunkHeader {
    pub(super) fn memory(&self) -> ChunkMemory {
        let Self { start, size, align, mapping, .. } = *self;
        ChunkMemory { start, size, align, mapping, recycled: false }
    }
}

/// How chunks grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkGrowth {
    /// Minimum size of the first chunk in bytes.
    pub initial: usize,
    /// Minimum size of each further chunk in bytes; with `None`, each is twice the previous one, up
    /// to 1 MiB.
    pub increment: Option<usize>,
    /// Maximum bytes of freed large blocks kept for later ones.
    pub spare_large_bytes: usize,
}
