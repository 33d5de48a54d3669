//! `Reap`: blocks of any layout, freed one by one or all at once.

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use super::block_allocator::BlockAllocator;
use super::checked::BlockLedger;
use super::chunk_supply::{ChunkGrowth, ChunkMemory, ChunkSupply};
use super::reap_builder::{ReapBuilder, ReapSettings};
use crate::error::{AllocError, OnFailure, OnRefusal, PanicOrAbort, ReturnError, always, or_fail};
use crate::memory::chunk_source::ChunkSource;
use crate::memory::layout::MAX_GROWTH;
use crate::memory::release::Release;
use crate::memory::source::AcquiredChunk;
use crate::statistics::{AllocatorKind, Record, Statistics};

/// Memory of any size and alignment, used by one thread at a time, and freed block by block or all
/// at once.
///
/// A reap is an [`Arena`](crate::Arena) whose blocks may also be freed early: a freed block serves
/// later allocations of the same size class. The caller passes the layout to the free, as in Rust's
/// allocation interface, so a block needs no header.
///
/// | blocks | size classes | unused at most |
/// |---|---|---|
/// | up to 256 bytes | multiples of 16 | 15 bytes |
/// | up to 32 KiB | eight per doubling | an eighth |
/// | aligned to more than 16, up to 32 KiB | powers of two | half |
/// | larger | a chunk each, straight from the source | what chunks are rounded up to |
///
/// Blocks of all classes lie one behind the other in *chunks*, in the order in which they are first
/// allocated. Chunks double up to 1 MiB, and the recycler supplies them warm.
/// [`reset`](Self::reset) and drop free everything; their cost depends on the number of chunks, not
/// of blocks.
///
/// With the cargo feature for the trait's version, `&Reap` is an allocator for hashbrown's maps and
/// the collections of `allocator-api2`. Such a collection borrows the reap, so it cannot outlive
/// it. A reap is `Send`, but not `Sync`.
///
/// The name and the idea are from *Reconsidering Custom Memory Allocation* (Berger, Zorn, McKinley,
/// 2002): a region whose objects can be freed.
///
/// ```
/// use core::alloc::Layout;
///
/// let mut reap = allotment::Reap::new();
/// let layout = Layout::new::<[u64; 5]>();
/// let block = reap.alloc_layout(layout);
/// // SAFETY: allocated above with this layout, freed once, not used any more.
/// unsafe { reap.free_layout(block, layout) };
/// assert_eq!(reap.alloc_layout(layout), block, "last freed, first used");
/// reap.reset(); // everything is free
/// assert_eq!(reap.statistics().live_objects, 0);
/// ```
///
/// A reap may move to another thread, but two threads cannot share it:
///
/// ```
/// let reap = allotment::Reap::new();
/// std::thread::spawn(move || drop(reap));
/// ```
///
/// ```compile_fail,E0277
/// let reap = allotment::Reap::new();
/// std::thread::scope(|scope| drop(scope.spawn(|| reap.trim())));
/// ```
pub struct Reap {
    pub(super) blocks: BlockAllocator<SourceSupply>,
}

// SAFETY: a reap owns its chunks, its ledger and its settings. Its cells make it `!Sync`, so one
// thread at a time uses it, and only that thread writes the record.
unsafe impl Send for Reap {}

impl Reap {
    /// Creates a reap with default options. It allocates no memory yet.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_new`](Self::try_new) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Creates a reap with default options.
    ///
    /// # Errors
    /// When a statistics record is not available.
    pub fn try_new() -> Result<Self, AllocError> {
        Self::builder().try_build()
    }

    /// Creates a reap with a chunk for `bytes` bytes of blocks, whose pages are already faulted in.
    /// Until the chunk is used up, blocks of up to 32 KiB cause no system call and no page fault.
    /// Larger blocks have chunks of their own. The reserved chunk stays over a
    /// [`reset`](Self::reset).
    ///
    /// # Panics
    /// Panics or ends the process if the chunk is refused: see [`AllocError`](crate::AllocError).
    #[must_use]
    #[track_caller]
    pub fn with_reserved(bytes: usize) -> Self {
        Self::builder().reserved(bytes).build()
    }

    /// Fallible version of [`with_reserved`](Self::with_reserved).
    ///
    /// # Errors
    /// When the chunk is not available.
    pub fn try_with_reserved(bytes: usize) -> Result<Self, AllocError> {
        Self::builder().reserved(bytes).try_build()
    }

    /// Starts building a reap with options.
    pub const fn builder() -> ReapBuilder {
        ReapBuilder::new()
    }

    pub(super) fn on_refusal(&self) -> OnRefusal {
        let settings = &self.blocks.supply.settings;
        settings.on_refusal.with(&settings.budget)
    }

    pub(super) fn make(settings: ReapSettings) -> Result<Self, AllocError> {
        let name = settings.name.as_deref();
        let checked = BlockLedger::new_if_checked(settings.hardened, AllocatorKind::Reap, name);
        let record = Record::acquire(AllocatorKind::Reap, name)?;
        // Freed large blocks go to the recycler, which keeps them warm.
        let (initial, increment) = (settings.initial, settings.increment);
        let growth = ChunkGrowth { initial, increment, spare_large_bytes: 0 };
        let reserved = settings.reserved;
        let supply = SourceSupply { settings, checked: checked.is_some() };
        let reap = Self { blocks: BlockAllocator::new(supply, growth, record, checked) };
        if reserved > 0 {
            reap.blocks.reserve(reserved)?;
        }
        Ok(reap)
    }

    /// Returns the reap's name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.blocks.supply.settings.name.as_deref()
    }

    /// Allocates an uninitialised block for this layout. Size zero is allowed: the result is an
    /// ordinary block.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_alloc_layout`](Self::try_alloc_layout) returns an error:
    /// see [`AllocError`](crate::AllocError).
    #[inline]
    #[must_use]
    pub fn alloc_layout(&self, layout: Layout) -> NonNull<u8> {
        always(self.alloc_or::<PanicOrAbort>(layout))
    }

    /// Allocates an uninitialised block for this layout.
    ///
    /// # Errors
    /// When the budget or the source refuses a chunk, or the size exceeds the address space.
    #[inline]
    pub fn try_alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.alloc_or::<ReturnError>(layout)
    }

    #[inline(always)]
    pub(super) fn alloc_or<F: OnFailure>(&self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        self.blocks.alloc::<F>(layout)
    }

    /// Takes a free block if the fast path finds one; otherwise the caller takes its slow path. For
    /// the C interface, which has a slow path of its own.
    #[doc(hidden)]
    #[inline(always)]
    pub fn alloc_fast(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.blocks.alloc_fast(layout)
    }

    /// Frees a block. A large block goes back to the source at once, a small one waits for the next
    /// allocation of its class.
    ///
    /// # Safety
    /// `block` is the pointer that this reap returned for this layout (or for a resize to it). A
    /// pointer that was made from a reference to the value does not meet this requirement: it may
    /// access the value's bytes only, and a block can be larger. The block has not been freed,
    /// neither by a free nor by a reset, and is not used again.
    #[inline]
    pub unsafe fn free_layout(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { self.blocks.free(block, layout) }
    }

    /// Resizes a block. The contents are kept up to the smaller of the two sizes. The block stays
    /// in place if both sizes are of the same class, if it was carved last and its chunk has enough
    /// bytes behind it, or if it is large and its chunk has the capacity. Otherwise it is copied.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_resize`](Self::try_resize) returns an error: see
    /// [`AllocError`](crate::AllocError).
    ///
    /// # Safety
    /// As for [`free_layout`](Self::free_layout), with the old layout. The new size must be valid
    /// for the alignment.
    #[inline]
    #[must_use]
    #[track_caller]
    pub unsafe fn resize(&self, block: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        // SAFETY: passed on to the caller.
        or_fail(unsafe { self.try_resize(block, old, new_size) })
    }

    /// Fallible version of [`resize`](Self::resize).
    ///
    /// # Errors
    /// When a chunk is not available. The block is then unchanged.
    ///
    /// # Safety
    /// As for [`resize`](Self::resize).
    #[inline]
    pub unsafe fn try_resize(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: passed on to the caller.
        unsafe { self.blocks.resize(block, old, new_size) }
    }

    /// Frees every block, at a cost that depends on the number of chunks. The reserved chunk stays.
    /// Of the other chunks the reap keeps what the release policy says: up to 1 MiB in all by
    /// default, the given number of bytes with [`Release::Keep`], none with [`Release::AtOnce`].
    pub fn reset(&mut self) {
        let keep = match self.blocks.supply.settings.release {
            Release::AtOnce => 0,
            Release::Keep(bytes) => bytes,
            Release::Decay(_) | Release::Adaptive => MAX_GROWTH,
        };
        // SAFETY: `&mut self`: no borrow of the reap is left. The caller of `alloc_layout` uses no
        // block after a reset.
        unsafe { self.blocks.clear(Some(keep)) };
    }

    /// Releases chunks that hold no live block, even while other chunks do. A reserved chunk stays.
    /// Returns the number of bytes released. The cost grows with the number of free blocks.
    pub fn trim(&self) -> usize {
        self.blocks.sweep()
    }

    /// Returns what the reap holds. The numbers are exact. What [`report`](crate::report()) shows
    /// of another thread's reap may be older: it dates from the last call that took or released a
    /// chunk, or the last call of this function. A live block counts with the bytes of its size
    /// class, a larger one with its own size.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.blocks.publish_live();
        self.blocks.record.statistics()
    }
}

impl Default for Reap {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Reap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reap")
            .field("name", &self.name())
            .field("statistics", &self.statistics())
            .finish()
    }
}

impl Drop for Reap {
    /// Frees every block.
    fn drop(&mut self) {
        // SAFETY: as in `reset`.
        unsafe { self.blocks.clear(None) };
        self.blocks.record.release();
    }
}

/// Supplies a reap with chunks of a source, charged to a budget.
#[derive(Debug)]
pub(super) struct SourceSupply {
    settings: ReapSettings,
    /// The reap is in checked mode.
    checked: bool,
}

impl SourceSupply {
    fn chunks(&self) -> ChunkSource<'_> {
        ChunkSource {
            source: &self.settings.source,
            budget: self.settings.budget.as_ref(),
            recycles: self.recycles(),
            exact: self.settings.budget.is_some(),
            segment_unit: 1,
            grows_huge: !self.checked,
        }
    }

    fn recycles(&self) -> bool {
        self.settings.release != Release::AtOnce && !self.settings.hardened
    }
}

impl ChunkSupply for SourceSupply {
    fn align(&self) -> usize {
        self.settings.source.chunk_align()
    }

    fn take(&self, need: usize, last: usize) -> Result<ChunkMemory, AllocError> {
        let AcquiredChunk { start, size, align, mapping, recycled, .. } =
            self.chunks().take(need, last)?;
        Ok(ChunkMemory { start, size, align, mapping, recycled })
    }

    unsafe fn release(&self, chunks: &mut dyn Iterator<Item = ChunkMemory>, total: usize) -> usize {
        let mut batch = self.settings.source.release_batch(total, self.recycles());
        for ChunkMemory { start, size, align, mapping, .. } in chunks {
            // SAFETY: passed on to the caller; the memory was taken with this size, alignment and
            // mapping number.
            unsafe { batch.add(start, size, align, mapping) };
        }
        self.credit(total);
        batch.finish()
    }

    fn is_orphaned(&self) -> bool {
        self.settings.source.is_orphaned()
    }

    fn is_limited(&self) -> bool {
        self.settings.budget.is_some()
    }

    fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        self.settings.budget.as_ref().map_or(Ok(()), |budget| budget.charge(bytes))
    }

    fn credit(&self, bytes: usize) {
        if let Some(budget) = &self.settings.budget {
            budget.credit(bytes);
        }
    }
}
