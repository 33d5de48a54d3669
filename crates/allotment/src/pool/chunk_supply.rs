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
    /// The memory is charged to the supply's budget.
    pub charged: bool,
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

    /// Takes the `more` bytes right behind a chunk, so that the chunk is longer, if they are free.
    /// Returns whether it did.
    fn extend(&self, _chunk: &PoolChunkHeader, _more: usize) -> bool {
        false
    }

    /// Releases bytes at the end of a chunk that nothing uses: `most`, or a little less. Returns
    /// how many.
    ///
    /// # Safety
    /// Nothing refers to the last `most` bytes of the chunk.
    unsafe fn shorten(&self, _chunk: &PoolChunkHeader, _most: usize) -> usize {
        0
    }

    /// Whether memory that was just taken reads zeros.
    fn is_zeroed(&self) -> bool {
        false
    }

    /// Whether this is a child made by fork that does not have the memory.
    fn is_orphaned(&self) -> bool;

    /// Whether a budget limits the bytes.
    fn is_limited(&self) -> bool;

    /// Charges bytes that come from elsewhere.
    fn charge(&self, bytes: usize) -> Result<(), AllocError>;

    /// Identifies the allocator that takes from this supply now, among those that did before. Never
    /// 0.
    fn user(&self) -> u64 {
        1
    }

    /// Returns the bytes that this supply has charged to the budget of a pool.
    fn charged(&self) -> usize {
        0
    }

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
    pub size: Cell<usize>,
    pub align: usize,
    pub mapping: u32,
    /// The chunk is reserved: it is not released before the allocator ends.
    pub reserved: Cell<bool>,
    /// The [user](ChunkSupply::user) of the supply to whose budget the chunk is charged, or 0. If
    /// it is an earlier user, which an ended pool was, the chunk is charged to no budget.
    pub charged_to: Cell<u64>,
    /// The requested size of the large block in bytes.
    pub requested: Cell<usize>,
}

pub(super) const HEADER_BYTES: usize = size_of::<PoolChunkHeader>();
const _: () = assert!(HEADER_BYTES == CACHE_LINE);

impl PoolChunkHeader {
    /// Whether the chunk is charged to the budget of the supply's user.
    pub(super) fn is_charged(&self, supply: &impl ChunkSupply) -> bool {
        self.charged_to.get() == supply.user()
    }

    pub(super) fn memory(&self, supply: &impl ChunkSupply) -> ChunkMemory {
        let Self { start, align, mapping, .. } = *self;
        let (size, charged) = (self.size.get(), self.is_charged(supply));
        ChunkMemory { start, size, align, mapping, recycled: false, charged }
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
    /// Maximum bytes of freed large blocks kept for later ones, at first.
    pub spare_large_bytes: usize,
    /// The maximum after it has adapted to the sizes that are freed and allocated again.
    pub most_spare_bytes: usize,
}
