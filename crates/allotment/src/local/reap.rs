//! `Reap`: blocks of any layout, freed one by one or all at once.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::blocks::Blocks;
use super::pieces::{Growth, Piece, Supply};
use super::reap_builder::{ReapBuilder, Settings};
use super::watch::Watch;
use crate::error::{Abort, AllocError, Report, always};
use crate::memory::chunks::Chunks;
use crate::memory::layout::MAX_GROWTH;
use crate::memory::release::Release;
use crate::memory::source::GivingBack;
use crate::statistics::{Kind, Record, Statistics};

/// Memory of any size and alignment for one thread at a time, freed one by one or all at once.
///
/// An [`Arena`](crate::Arena) whose blocks may also be freed before the end: freed blocks serve later ones of the same size
/// class. A class is found by the size that the caller says at the free, as Rust's allocation interface has it, so that a
/// block carries nothing but itself.
///
/// | blocks | size classes | unused at most |
/// |---|---|---|
/// | up to 256 bytes | multiples of 16 | 15 bytes |
/// | up to 32 KiB | eight a doubling | an eighth |
/// | aligned to more than 16, up to 32 KiB | powers of two | half |
/// | larger | a chunk each, straight from the source | what chunks are rounded up to |
///
/// Blocks lie in *chunks* behind each other in the order in which they are first allocated, whatever their class. Chunks
/// double up to 1 MiB, and come warm from the recycler. [`reset`](Self::reset) and drop free everything, at the cost of the
/// chunks alone: nothing is done for each block.
///
/// By the feature for its version of the trait, `&Reap` is an allocator for hashbrown's maps and the collections of
/// `allocator-api2`; such a collection borrows the reap, so it can't outlive it. A reap is `Send`, not `Sync`.
///
/// The name and the idea are from *Reconsidering Custom Memory Allocation* (Berger, Zorn, McKinley, 2002): a region whose
/// objects can be freed.
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
/// One thread at a time:
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
#[derive(Debug)]
pub struct Reap {
    pub(super) blocks: Blocks<FromSource>,
}

// SAFETY: it owns its chunks, and one thread at a time uses it: not `Sync`, because of its cells. The record is written by
// whoever has the reap; the watch and the settings are owned.
unsafe impl Send for Reap {}

impl Reap {
    /// A reap with defaults. Takes no memory yet.
    ///
    /// # Panics
    /// Aborts where [`try_new`](Self::try_new) returns an error.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A reap with defaults.
    ///
    /// # Errors
    /// A record that can't be had.
    pub fn try_new() -> Result<Self, AllocError> {
        Self::builder().try_build()
    }

    /// A reap that holds a chunk for so many bytes of blocks, with its pages faulted in: until they are used up no call
    /// goes to the system, and no page fault happens, but for blocks of more than 32 KiB, which have chunks of their own. They stay over a [`reset`](Self::reset).
    ///
    /// # Panics
    /// Aborts when there is no such chunk.
    #[must_use]
    pub fn with_reserved(bytes: usize) -> Self {
        Self::builder().reserved(bytes).build()
    }

    /// The fallible twin of [`with_reserved`](Self::with_reserved).
    ///
    /// # Errors
    /// When there is no such chunk.
    pub fn try_with_reserved(bytes: usize) -> Result<Self, AllocError> {
        Self::builder().reserved(bytes).try_build()
    }

    /// Begins a reap with options.
    pub const fn builder() -> ReapBuilder {
        ReapBuilder::new()
    }

    pub(super) fn make(settings: Settings) -> Result<Self, AllocError> {
        let watch = Watch::wanted(settings.hardened, Kind::Reap.word(), settings.name.as_deref());
        let record = Record::acquire(Kind::Reap, settings.name.as_deref())?;
        // What is freed goes to the source, which keeps it warm.
        let (initial, increment) = (settings.initial, settings.increment);
        let growth = Growth { initial, increment, large_kept: 0 };
        let reserved = settings.reserved;
        let supply = FromSource { settings, watched: watch.is_some() };
        let reap = Self { blocks: Blocks::new(supply, growth, record, watch) };
        if reserved > 0 {
            reap.blocks.reserve(reserved)?;
        }
        Ok(reap)
    }

    /// The name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.blocks.supply.settings.name.as_deref()
    }

    /// A block for this layout, uninitialised. One of size zero is a block like any other.
    ///
    /// # Panics
    /// Aborts where [`try_alloc_layout`](Self::try_alloc_layout) returns an error.
    #[inline]
    #[must_use]
    pub fn alloc_layout(&self, layout: Layout) -> NonNull<u8> {
        always(self.blocks.alloc::<Abort>(layout))
    }

    /// A block for this layout, uninitialised.
    ///
    /// # Errors
    /// When no chunk is to be had from the budget or the source; a size beyond the address space.
    #[inline]
    pub fn try_alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.blocks.alloc::<Report>(layout)
    }

    /// A block that is at hand, if there is one; else there is more to do. For the C interface, whose slow path is its own.
    #[doc(hidden)]
    #[inline(always)]
    pub fn take_at_hand(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.blocks.take_at_hand(layout)
    }

    /// Frees a block. A large one goes back to its source at once, a small one waits for the next of its class.
    ///
    /// # Safety
    /// The block came from this reap with this layout (or was resized to it), was not freed since, by itself or by a
    /// reset, and is not used any more.
    #[inline]
    pub unsafe fn free_layout(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { self.blocks.free(block, layout) }
    }

    /// Gives a block another size; its first bytes stay. In place within its size class, where it is the newest block of
    /// its chunk, and where a large one's chunk has room; else it is copied.
    ///
    /// # Panics
    /// Aborts where [`try_resize`](Self::try_resize) returns an error.
    ///
    /// # Safety
    /// As for [`free_layout`](Self::free_layout), of the old block; the new size is valid for the alignment.
    #[inline]
    #[must_use]
    pub unsafe fn resize(&self, block: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        use crate::error::OnFailure;
        // SAFETY: passed on to the caller.
        always(unsafe { self.blocks.resize(block, old, new_size) }.map_err(Abort::fail))
    }

    /// The fallible twin of [`resize`](Self::resize).
    ///
    /// # Errors
    /// When no chunk is to be had; the block is then as it was.
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

    /// Frees every block, at the cost of the chunks. What was reserved stays, and of other chunks what the release policy
    /// says: by default those of up to 1 MiB in all, [`Release::Keep`] its own number, [`Release::AtOnce`] none.
    pub fn reset(&mut self) {
        let kept = match self.blocks.supply.settings.release {
            Release::AtOnce => 0,
            Release::Keep(bytes) => bytes,
            Release::Decay(_) | Release::Adaptive => MAX_GROWTH,
        };
        // SAFETY: `&mut self`: nothing that borrows the reap is left; blocks by address are the caller's word.
        unsafe { self.blocks.clear(Some(kept)) };
    }

    /// Gives chunks back that hold nothing, while others do. Returns the bytes given back. Costs a look at each free block.
    pub fn trim(&self) -> usize {
        self.blocks.sweep()
    }

    /// What the reap holds. Exact; what [`report`](crate::report()) says of another thread's reap may be older: as of the
    /// last call that took or gave a chunk, or asked for this. Live bytes are those of the blocks' classes.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.blocks.note_live();
        self.blocks.record.statistics()
    }
}

impl Default for Reap {
    fn default() -> Self {
        Self::new()
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

/// A reap's supply: chunks of a source, charged to a budget.
#[derive(Debug)]
pub(super) struct FromSource {
    settings: Settings,
    watched: bool,
}

impl FromSource {
    fn chunks(&self) -> Chunks<'_> {
        Chunks {
            source: &self.settings.source,
            budget: self.settings.budget.as_ref(),
            recycles: self.recycles(),
            exact: self.settings.budget.is_some(),
            segment_unit: 1,
            grows_huge: !self.watched,
        }
    }

    fn recycles(&self) -> bool {
        self.settings.release != Release::AtOnce && !self.settings.hardened
    }
}

impl Supply for FromSource {
    fn align(&self) -> usize {
        self.settings.source.chunk_align()
    }

    fn take(&self, need: usize, grown: usize) -> Result<Piece, AllocError> {
        let (taken, align) = self.chunks().take(need, grown)?;
        let (start, size, link) = (taken.start, taken.size, taken.link);
        Ok(Piece { start, size, align, link, recycled: taken.recycled })
    }

    unsafe fn give(&self, pieces: &mut dyn Iterator<Item = Piece>, total: usize) -> usize {
        let source = &self.settings.source;
        let recycles = self.recycles();
        let mut left = total;
        let mut giving = None;
        for Piece { start, size, align, link, .. } in pieces {
            // SAFETY: passed on to the caller; taken with this size, alignment and link.
            unsafe {
                if !(recycles && source.keep_at_hand(start, size, align, link)) {
                    let reserve = if recycles { left } else { 0 };
                    giving
                        .get_or_insert_with(|| source.give(reserve))
                        .add(start, size, align, link);
                }
            }
            left -= size;
        }
        self.credit(total);
        giving.map_or(0, GivingBack::finish)
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
