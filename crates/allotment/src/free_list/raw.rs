//! `RawFreeList`: the state of a free list, and its invariants.
//!
//! ```text
//! head ──▶ object ──▶ object ──▶ null        the free objects: each holds the address of the next
//! waiting chains: object ──▶ object ──▶ null, ...         those that come after them (chains.rs)
//!
//! │header│obj│obj│obj│obj│obj│  never handed out  │      the newest chunk
//!                            fresh            fresh_end
//! ```
//!
//! # Invariants
//!
//! 1. `chunks` and `spare_chunks` are the heads of two linked lists of chunks. This free list
//!    exclusively owns these chunks; `chunk_header.rs` describes their layout.
//! 2. `head` is null or points to a free object. Each free object holds the address of the next
//!    one, or null, and no object occurs twice. The same holds for each chain in `waiting_chains`.
//!    No other code uses a free object.
//! 3. `[fresh, fresh_end)` is a whole number of objects of the chunk that was taken last. They have
//!    neither been handed out nor linked since then. Every other object of every chunk in `chunks`
//!    is live or on exactly one chain. The chunks in `spare_chunks` hold no live object, and none
//!    of their objects is on a chain or fresh.
//! 4. `live = count + watermark`. Outside of a call, `count >= 0` unless nothing is live or the
//!    list is watched. So the first free that brings `live` below the watermark takes the slow
//!    path. If `live` is then below `sweep_below`, which is at most the watermark, the slow path
//!    sweeps for empty chunks, or watches. If not, it starts another chain. While the list is
//!    watched, `count` is -1 after each free.
//! 5. A checked list has `head = null`, no fresh objects and `count = 0`. So every call takes the
//!    slow path, and `checks` records what is free and what is live.
//! 6. One thread at a time has access: a list is `Send` and not `Sync`, so `Cell` is enough. Other
//!    threads may read the record.

use alloc::boxed::Box;
use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::chains::{ListLink, WaitingChains};
use super::chunk_header::{ListChunk, ListChunkHeader, ObjectSizes};
use super::settings::FreeListSettings;
use super::sweep_back_off::SweepBackOff;
use crate::error::AllocError;
use crate::memory::source::SharedSource;
use crate::options::new_calls;
use crate::statistics::HeldRecord;

/// Objects of one layout for one thread, handed out last freed first. On x86-64, allocating takes
/// six instructions and freeing takes five.
///
/// Objects lie in *chunks* that double in size up to 1 MiB; from there on, chunks are 2 MiB,
/// possibly huge pages. The objects of a chunk lie next to each other, in the order in which they
/// are first allocated. Chunks without live objects are released (see [`trim`](Self::trim)): they
/// go to the recycler, where the next arena or list finds them warm.
///
/// A list may move between threads, but only one thread at a time uses it. Dropping the list frees
/// all of its memory, including live objects. [`FreeList`](crate::FreeList) is the same for values,
/// with a box that can't outlive its list.
///
/// The idea comes from *Fixed size free lists and per-datastructure allocators*. The free list
/// itself is older than malloc.
///
/// ```
/// use allotment::RawFreeList;
/// use core::alloc::Layout;
///
/// let list = RawFreeList::new(Layout::new::<[u64; 4]>());
/// let first = list.alloc();
/// // SAFETY: allocated above, freed once, not used any more.
/// unsafe { list.free(first) };
/// assert_eq!(list.alloc(), first, "last freed, first used");
/// ```
#[repr(C)]
pub struct RawFreeList {
    // The fast paths use the first two fields, here and in C (`c_layout.rs`).
    pub(super) head: Cell<*mut ListLink>,
    /// Live objects above the watermark.
    pub(super) count: Cell<isize>,
    pub(super) watermark: Cell<usize>,
    /// The list sweeps for empty chunks when fewer objects than this are live. With 0 it never
    /// does.
    pub(super) sweep_below: Cell<usize>,
    /// Below this, a sweep is paid for by the objects freed. At most `sweep_below`.
    pub(super) paid_below: Cell<usize>,
    /// The time in milliseconds at which the list began to watch for a sweep, while it does.
    pub(super) watched_since: Cell<Option<u64>>,
    pub(super) waiting_chains: WaitingChains,
    pub(super) fresh: Cell<*mut u8>,
    pub(super) fresh_end: Cell<*mut u8>,
    /// The chunks in use, the newest first.
    pub(super) chunks: Cell<*mut ListChunkHeader>,
    /// How many objects the chunks in use can hold.
    pub(super) capacity: Cell<usize>,
    /// Chunks without live objects, which are used before any is taken from the source.
    pub(super) spare_chunks: Cell<*mut ListChunkHeader>,
    /// How many objects they can hold.
    pub(super) spare_capacity: Cell<usize>,
    pub(super) back_off: SweepBackOff,
    /// The size of the chunk taken last, as far as it determines the size of the next one.
    pub(super) growth_size: Cell<usize>,
    pub(super) sizes: ObjectSizes,
    pub(super) record: HeldRecord,
    pub(super) checks: Option<Box<dyn ListChecks>>,
    pub(super) settings: Box<FreeListSettings>,
}

// SAFETY: the list owns its chunks, and one thread at a time uses it: its cells make it not `Sync`
// (invariant 6). Its pointers, and those of its checks, lead to its own memory. Only the thread
// that has the list writes the record.
unsafe impl Send for RawFreeList {}

/// What a checked list does in each slow path, instead of what an ordinary list does there. It
/// records every object.
pub(super) trait ListChecks {
    /// Whether each object is a malloc block.
    fn has_no_chunks(&self) -> bool;

    /// The layout of the memory of one object, which has room for a red zone.
    fn slot_layout(&self, layout: Layout) -> Option<Layout>;

    /// The unit of chunks that are registered as segments, or 1.
    fn segment_unit(&self, source: &SharedSource) -> usize;

    /// The number of live objects.
    fn live(&self) -> usize;

    /// Prepares a chunk that was just taken. It holds nothing but its header. On an error nothing
    /// has changed.
    fn chunk_taken(
        &self,
        list: &RawFreeList,
        start: NonNull<u8>,
        size: usize,
    ) -> Result<(), AllocError>;

    /// Prepares a chunk that is about to go back to its source.
    fn chunk_released(&self, list: &RawFreeList, chunk: ListChunk);

    /// Records objects of a chunk that were not handed out, before another chunk provides the fresh
    /// objects.
    fn record_fresh(&self, list: &RawFreeList, first: *mut u8, objects: usize);

    /// Allocates an object.
    fn alloc(&self, list: &RawFreeList) -> Result<NonNull<u8>, AllocError>;

    /// Allocates `objects` objects next to each other.
    fn alloc_run(&self, list: &RawFreeList, objects: usize) -> Result<NonNull<u8>, AllocError>;

    /// Frees an object, or aborts at a misuse.
    fn free(&self, list: &RawFreeList, object: NonNull<u8>);

    /// Empties the quarantine, and releases the chunks if nothing is live. Returns the bytes
    /// released.
    fn trim(&self, list: &RawFreeList) -> usize;

    /// The list is dropped: checks all free objects.
    fn end(&self, list: &RawFreeList);
}

/// # Create
impl RawFreeList {
    new_calls! {
        "list", layout: Layout;
        /// If the layout exceeds the address space, or there is no memory for the statistics
        /// record.
    }
}

impl RawFreeList {
    /// An empty list.
    pub(super) fn empty(
        sizes: ObjectSizes,
        record: HeldRecord,
        checks: Option<Box<dyn ListChecks>>,
        settings: Box<FreeListSettings>,
    ) -> Self {
        Self {
            head: Cell::new(ptr::null_mut()),
            count: Cell::new(0),
            watermark: Cell::new(0),
            sweep_below: Cell::new(0),
            paid_below: Cell::new(0),
            watched_since: Cell::new(None),
            waiting_chains: WaitingChains::new(),
            fresh: Cell::new(ptr::null_mut()),
            fresh_end: Cell::new(ptr::null_mut()),
            chunks: Cell::new(ptr::null_mut()),
            capacity: Cell::new(0),
            spare_chunks: Cell::new(ptr::null_mut()),
            spare_capacity: Cell::new(0),
            back_off: SweepBackOff::new(),
            growth_size: Cell::new(0),
            sizes,
            record,
            checks,
            settings,
        }
    }

    pub(super) fn checks(&self) -> Option<&dyn ListChecks> {
        self.checks.as_deref()
    }

    /// The bytes of the objects that were never handed out.
    pub(super) fn fresh_bytes(&self) -> usize {
        self.fresh_end.get().addr() - self.fresh.get().addr()
    }

    /// The number of objects that were never handed out.
    pub(super) fn fresh_objects(&self) -> usize {
        self.fresh_bytes() / self.sizes.stride
    }

    /// Puts an object on the first chain.
    ///
    /// # Safety
    /// The object belongs to this list, is not in use, and is on no chain.
    #[inline(always)]
    pub(super) unsafe fn push(&self, object: NonNull<u8>) {
        let link = object.cast::<ListLink>();
        // SAFETY: an object is at least as large and as aligned as a link (`ObjectSizes::new`), and
        // no other code uses it.
        unsafe { link.write(ListLink(Cell::new(self.head.get()))) };
        self.head.set(link.as_ptr());
    }

    /// Sets the first chain aside, so that the objects freed next begin another one.
    pub(super) fn start_chain(&self) {
        if let Some(first) =
            NonNull::new(self.head.get()).filter(|_| !self.waiting_chains.is_full())
        {
            self.waiting_chains.push(first);
            self.head.set(ptr::null_mut());
        }
    }

    /// Forgets all chains.
    pub(super) fn clear_chains(&self) {
        self.head.set(ptr::null_mut());
        self.waiting_chains.clear();
    }
}
