//! `Reap`: blocks of any layout, freed one by one or all at once.
//!
//! # Invariant
//!
//! A block belongs to the caller of the allocation alone until an unsafe call or its box frees it,
//! or until the reap is reset or dropped, which ends every borrow of the reap. So it can be lent
//! for as long as `&self` is borrowed.
#![allow(clippy::mut_from_ref, reason = "each call lends another block")]

use core::alloc::Layout;
use core::convert::Infallible;
use core::ffi::CStr;
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::block_allocator::BlockAllocator;
use super::checked::BlockLedger;
use super::chunk_supply::{ChunkMemory, ChunkSupply};
use super::settings::BlockSettings;
use crate::collections::{BoxIn, LendingSource, NoDrop, layout_calls, typed_calls};
use crate::error::{AllocError, OnFailure, OnRefusal, PanicOrAbort, ReturnError, always};
use crate::memory::acquired_chunk::{AcquiredChunk, SmallTouch};
use crate::memory::chunk_source::ChunkSource;
use crate::memory::layout::MAX_GROWTH;
use crate::memory::release::Release;

use crate::options::new_calls;
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

/// A value in a [`Reap`] that is dropped with the box, which then frees its block. The box takes
/// two words (three for slices). Its methods are those of [`BoxIn`].
///
/// ```
/// use allotment::{Reap, ReapBox, unsize_box};
///
/// let reap = Reap::new();
/// let name = reap.alloc_boxed(String::from("system.cpu"));
/// let shown: ReapBox<'_, dyn std::fmt::Display> = unsize_box!(name);
/// assert_eq!(shown.to_string(), "system.cpu");
/// drop(shown); // drops the string and frees its block
/// assert_eq!(reap.statistics().live_objects, 0);
/// ```
///
/// A box can't outlive its reap, and the reap can't be reset while the box is alive:
///
/// ```compile_fail,E0505
/// let reap = allotment::Reap::new();
/// let boxed = reap.alloc_boxed(7);
/// drop(reap);
/// assert_eq!(*boxed, 7);
/// ```
///
/// ```compile_fail,E0502
/// let mut reap = allotment::Reap::new();
/// let boxed = reap.alloc_boxed(7);
/// reap.reset();
/// assert_eq!(*boxed, 7);
/// ```
///
/// A box can't move to another thread, which would free it there:
///
/// ```compile_fail,E0277
/// let reap = allotment::Reap::new();
/// let boxed = reap.alloc_boxed(7);
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(boxed));
/// });
/// ```
///
/// A forgotten box keeps its block until the reap is reset or dropped. Its value is never dropped.
pub type ReapBox<'r, T> = BoxIn<T, &'r Reap>;

// SAFETY: a reap owns its chunks, its ledger and its settings. Its cells make it `!Sync`, so one
// thread at a time uses it, and only that thread writes the record.
unsafe impl Send for Reap {}

/// # Create
impl Reap {
    new_calls! {
        "reap";
        /// If a statistics record is not available.
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
}

impl Reap {
    pub(super) fn on_refusal(&self) -> OnRefusal {
        self.blocks.supply.settings.common.on_refusal
    }

    pub(super) fn make(settings: BlockSettings) -> Result<Self, AllocError> {
        let (hardened, name) = (settings.common.hardened, settings.common.name());
        let checked = BlockLedger::new_if_checked(hardened, false, AllocatorKind::Reap, name)?;
        let record = Record::acquire(AllocatorKind::Reap, name)?;
        // Freed large blocks go to the recycler, which keeps them warm.
        let growth = settings.growth(0, 0);
        let reserved = settings.reserved;
        let supply = SourceSupply { settings, checked: checked.is_some() };
        let reap = Self { blocks: BlockAllocator::new(supply, growth, record, checked) };
        if reserved > 0 {
            reap.blocks.reserve(reserved)?;
        }
        Ok(reap)
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

    #[inline(always)]
    pub(super) unsafe fn free_block(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { self.blocks.free(block, layout) }
    }

    #[inline]
    pub(super) unsafe fn resize_block(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: passed on to the caller.
        unsafe { self.blocks.resize(block, old, new_size) }
    }
}

typed_calls! {
    impl[] Reap, ReapBox;
    ///
    /// ```compile_fail
    /// let reap = allotment::Reap::new();
    /// reap.alloc(String::from("nothing would drop this"));
    /// ```
    ///
    /// The value lives until the reap is reset or dropped:
    ///
    /// ```compile_fail,E0502
    /// let mut reap = allotment::Reap::new();
    /// let number = reap.alloc(7);
    /// reap.reset();
    /// *number += 1;
    /// ```
    ///
    /// [`alloc_boxed`](Self::alloc_boxed) and [`alloc_slice_boxed`](Self::alloc_slice_boxed) return
    /// a box, whose drop frees the block before that.
    alloc;
    ///
    /// ```
    /// let reap = allotment::Reap::new();
    /// let table = reap.alloc_with(|| [0_u32; 4096]);
    /// assert_eq!(table[4095], 0);
    /// ```
    alloc_with;
    /// The box then frees its block.
    ///
    /// ```
    /// let reap = allotment::Reap::new();
    /// let names = reap.alloc_boxed(vec![String::from("dropped with the box")]);
    /// assert_eq!(names.len(), 1);
    /// drop(names);
    /// assert_eq!(reap.statistics().live_objects, 0);
    /// ```
    alloc_boxed;
    /// An empty slice takes the smallest block.
    alloc_slice_copy;
    ///
    /// ```
    /// let reap = allotment::Reap::new();
    /// let squares = reap.alloc_slice_with(4, |index| index * index);
    /// assert_eq!(squares, [0, 1, 4, 9]);
    /// ```
    alloc_slice_with;
}

layout_calls! {
    impl[] Reap, [&] self;
    /// A size of zero is allowed: the result is an ordinary block.
    alloc_layout;
    /// A large block goes back to the source at once, a small one waits for the next allocation of
    /// its class.
    free_layout;
    ///
    /// The block stays if both sizes are of the same class, if it was carved last and its chunk has
    /// enough bytes behind it, or if it is large and its chunk has the capacity. Otherwise, or if
    /// the alignment changes, it is copied.
    resize;
}

/// # Free everything
impl Reap {
    /// Frees every block, at a cost that depends on the number of chunks. The reserved chunk stays.
    /// Of the other chunks the reap keeps what the release policy says: up to 1 MiB in all by
    /// default, the given number of bytes with [`Release::Keep`], none with [`Release::AtOnce`].
    pub fn reset(&mut self) {
        let keep = match self.blocks.supply.settings.common.release {
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
        self.blocks.sweep().released
    }
}

/// # Name and statistics
impl Reap {
    /// Returns the reap's name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.blocks.supply.settings.common.name()
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
    settings: BlockSettings,
    /// The reap is in checked mode.
    checked: bool,
}

impl SourceSupply {
    fn chunks(&self) -> ChunkSource<'_> {
        let settings = &self.settings.common;
        ChunkSource {
            source: &settings.source,
            budget: settings.budget.as_ref(),
            recycles: settings.recycles(),
            exact: settings.budget.is_some(),
            segment_unit: 1,
            grows_huge: !self.checked,
            small: SmallTouch::Faults,
        }
    }
}

impl ChunkSupply for SourceSupply {
    fn align(&self) -> usize {
        self.settings.common.source.chunk_align()
    }

    fn take(&self, need: usize, last: usize) -> Result<ChunkMemory, AllocError> {
        let AcquiredChunk { start, size, align, mapping, recycled, .. } =
            self.chunks().take(need, last)?;
        Ok(ChunkMemory { start, size, align, mapping, recycled, charged: true })
    }

    unsafe fn release(&self, chunks: &mut dyn Iterator<Item = ChunkMemory>, total: usize) -> usize {
        let settings = &self.settings.common;
        let mut batch = settings.source.release_batch(total, settings.recycles());
        for ChunkMemory { start, size, align, mapping, .. } in chunks {
            // SAFETY: passed on to the caller; the memory was taken with this size, alignment and
            // mapping number.
            unsafe { batch.add(start, size, align, mapping) };
        }
        self.credit(total);
        batch.finish()
    }

    fn is_orphaned(&self) -> bool {
        self.settings.common.source.is_orphaned()
    }

    fn is_limited(&self) -> bool {
        self.settings.common.budget.is_some()
    }

    fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        self.settings.common.charge(bytes)
    }

    fn credit(&self, bytes: usize) {
        self.settings.common.credit(bytes);
    }
}
