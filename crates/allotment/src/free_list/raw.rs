//! `RawFreeList`: objects of one layout, by address.
//!
//! ```text
//! head ──▶ object ──▶ object ──▶ null        the free objects: each holds the address of the next
//! chains: object ──▶ object ──▶ null, ...    those that come after them (chains.rs)
//!
//! │Header│obj│obj│obj│obj│obj│  never handed out  │      a slab
//!                            fresh            fresh_end
//! ```
//!
//! # Invariants
//!
//! 1. `slabs` and `spare` are the heads of two linked lists of slabs. This free list exclusively
//!    owns these slabs; `slabs.rs` describes their layout.
//! 2. `head` is null or points to a free object. Each free object holds the address of the next
//!    one, or null, and no object occurs twice. The same holds for each chain that waits in
//!    `chains`. No other code uses a free object.
//! 3. `[fresh, fresh_end)` is a whole number of objects of the slab that was taken last. They have
//!    neither been handed out nor linked since then. Every other object of every slab in `slabs` is
//!    live or on exactly one chain. The slabs in `spare` hold no live object, and none of their
//!    objects is on a chain or fresh.
//! 4. `live = count + watermark`. Outside of a call, `count >= 0` unless nothing is live. So the
//!    first free that brings `live` below the watermark takes the slow path. If `live` is then
//!    below `look_below`, which is at most the watermark, the slow path sweeps for empty slabs. If
//!    not, it starts another chain.
//! 5. A checked list has `head = null`, no fresh objects and `count = 0`. So every call
//!    takes the slow path, and `ledger` records what is free and what is live.
//! 6. One thread at a time has access: a list is `Send` and not `Sync`, so `Cell` is enough. Other
//!    threads may read the record.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::builder::{FreeListBuilder, Settings};
use super::chains::Chains;
use super::chunks::{Geometry, Header};
use crate::checked::Ledger;
use crate::error::{Abort, AllocError, OnFailure, Report, always};
use crate::statistics::{AllocatorKind, Record, Statistics};

/// What a free object holds: the address of the next one.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Link(pub(super) Cell<*mut Link>);

/// Objects of one layout for one thread, handed out last freed first. On x86-64, allocating takes
/// six instructions and freeing takes five.
///
/// Objects lie in *slabs*: chunks that double in size up to 1 MiB, and consist of huge pages from
/// there on. The objects of a slab lie next to each other, in the order in which they are first
/// allocated. Slabs without live objects are released (see [`trim`](Self::trim)): they go to the
/// recycler, where the next arena or list finds them warm.
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
#[derive(Debug)]
#[repr(C)]
pub struct RawFreeList {
    // The fast paths use the first two fields, here and in C (`frozen.rs`).
    pub(super) head: Cell<*mut Link>,
    /// Live objects above the watermark.
    pub(super) count: Cell<isize>,
    pub(super) watermark: Cell<usize>,
    /// The list sweeps for empty slabs when fewer objects than this are live. With 0 it never does.
    pub(super) look_below: Cell<usize>,
    pub(super) chains: Chains,
    pub(super) fresh: Cell<*mut u8>,
    pub(super) fresh_end: Cell<*mut u8>,
    pub(super) slabs: Cell<*mut Header>,
    pub(super) slab_count: Cell<usize>,
    /// `capacity`: the objects that the slabs in `slabs` have room for. `spare_objects`: the same
    /// for the slabs in `spare`.
    pub(super) capacity: Cell<usize>,
    pub(super) spare: Cell<*mut Header>,
    pub(super) spare_objects: Cell<usize>,
    /// Slabs were released, and none was taken from the source after that.
    pub(super) gave: Cell<bool>,
    /// The number of live objects has risen after the last sweep, as far as the slow path has seen.
    pub(super) risen: Cell<bool>,
    /// Whether sweeps are skipped until the number of live objects rises again.
    pub(super) skips_now: Cell<bool>,
    /// `skips`: how many more descents skip all their sweeps. `patience`: the back-off, which is
    /// the value that `skips` was last set to.
    pub(super) skips: Cell<u32>,
    pub(super) patience: Cell<u32>,
    /// The size of the slab taken last, as far as it determines the size of the next one.
    pub(super) grown: Cell<usize>,
    pub(super) geometry: Geometry,
    pub(super) record: &'static Record,
    pub(super) ledger: Option<Box<Ledger>>,
    pub(super) settings: Box<Settings>,
}

// SAFETY: the list owns its slabs, and one thread at a time uses it: its cells make it not `Sync`
// (invariant 6). Its pointers lead to its own memory. Only the thread that has the list writes the
// record.
unsafe impl Send for RawFreeList {}

impl RawFreeList {
    /// Makes a list with default options.
    ///
    /// # Panics
    /// Aborts if [`try_new`](Self::try_new) returns an error.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self::builder(layout).build()
    }

    /// Makes a list with default options. It takes no slab yet.
    ///
    /// # Errors
    /// If the layout exceeds the address space, or there is no memory for the statistics record.
    pub fn try_new(layout: Layout) -> Result<Self, AllocError> {
        Self::builder(layout).try_build()
    }

    /// Starts building a list with options.
    pub const fn builder(layout: Layout) -> FreeListBuilder<Self> {
        FreeListBuilder::new(layout)
    }

    pub(super) fn make(layout: Layout, settings: Settings) -> Result<Self, AllocError> {
        let name = settings.name.as_deref();
        let (kind, classes) = (AllocatorKind::FreeList, Self::CHECKED_CLASSES);
        let ledger = Ledger::wanted(settings.hardened, kind, name, classes);
        let geometry = Geometry::new(layout, ledger.is_some())?;
        let record = Record::acquire(kind, name)?;
        Ok(Self {
            head: Cell::new(ptr::null_mut()),
            count: Cell::new(0),
            watermark: Cell::new(0),
            look_below: Cell::new(0),
            chains: Chains::new(),
            fresh: Cell::new(ptr::null_mut()),
            fresh_end: Cell::new(ptr::null_mut()),
            slabs: Cell::new(ptr::null_mut()),
            slab_count: Cell::new(0),
            capacity: Cell::new(0),
            spare: Cell::new(ptr::null_mut()),
            spare_objects: Cell::new(0),
            gave: Cell::new(false),
            risen: Cell::new(false),
            skips_now: Cell::new(false),
            skips: Cell::new(0),
            patience: Cell::new(0),
            grown: Cell::new(0),
            geometry,
            record,
            ledger,
            settings: Box::new(settings),
        })
    }

    /// The layout of an object, as the caller requested it.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.geometry.layout
    }

    /// The bytes from one object of a run to the next: the size with its padding, at least a
    /// pointer's.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.geometry.stride
    }

    /// The list's name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.settings.name.as_deref()
    }

    /// Allocates an uninitialised object, aligned to the list's layout.
    ///
    /// It returns the object freed last or, if none is free, the next object of the newest slab. It
    /// takes six instructions on x86-64 if an object is free.
    ///
    /// # Panics
    /// Aborts if [`try_alloc`](Self::try_alloc) returns an error.
    #[inline]
    #[must_use]
    pub fn alloc(&self) -> NonNull<u8> {
        always(self.alloc_or::<Abort>())
    }

    /// Allocates an uninitialised object.
    ///
    /// # Errors
    /// If no object is free and neither the budget nor the source grants a slab.
    #[inline]
    pub fn try_alloc(&self) -> Result<NonNull<u8>, AllocError> {
        self.alloc_or::<Report>()
    }

    #[inline(always)]
    pub(super) fn alloc_or<F: OnFailure>(&self) -> Result<NonNull<u8>, F::Error> {
        let Some(first) = NonNull::new(self.head.get()) else {
            return self.alloc_slowly::<F>();
        };
        // SAFETY: a free object, which no other code uses, and which holds a link (invariant 2).
        self.head.set(unsafe { first.as_ref() }.0.get());
        self.count.set(self.count.get().wrapping_add(1));
        Ok(first.cast())
    }

    #[cold]
    #[inline(never)]
    fn alloc_slowly<F: OnFailure>(&self) -> Result<NonNull<u8>, F::Error> {
        self.refill().map_err(F::fail)
    }

    /// Frees an object.
    ///
    /// It takes five instructions on x86-64. As the number of live objects falls, two kinds of
    /// calls do more:
    ///
    /// - When it falls below the level for the next sweep, the call sweeps for empty slabs. The
    ///   level is at most half of what was live when the level was set. It is low enough that a
    ///   sweep takes at most two steps for each object freed after the last sweep.
    /// - When it has fallen by a sixteenth, the call starts another chain of free objects, for a
    ///   later sweep to follow.
    ///
    /// # Safety
    /// The object came from this list, is freed once, and is not used afterwards.
    #[inline]
    pub unsafe fn free(&self, object: NonNull<u8>) {
        let count = self.count.get().wrapping_sub(1);
        self.count.set(count);
        if count < 0 {
            // SAFETY: the caller upholds the contract.
            return unsafe { self.free_slowly(object) };
        }
        // SAFETY: the caller upholds the contract.
        unsafe { self.push(object) };
    }

    /// Puts an object on the first chain.
    ///
    /// # Safety
    /// The object belongs to this list, is not in use, and is on no chain.
    #[inline(always)]
    pub(super) unsafe fn push(&self, object: NonNull<u8>) {
        let link = object.cast::<Link>();
        // SAFETY: an object is at least as large and as aligned as a link (`Geometry::new`), and no
        // other code uses it.
        unsafe { link.write(Link(Cell::new(self.head.get()))) };
        self.head.set(link.as_ptr());
    }

    /// # Safety
    /// As for [`free`](Self::free), which has already counted the object.
    #[cold]
    #[inline(never)]
    unsafe fn free_slowly(&self, object: NonNull<u8>) {
        if let Some(ledger) = self.ledger.as_deref() {
            self.count.set(0);
            return ledger.free(self, object, self.layout());
        }
        let looks = self.live() < self.look_below.get();
        if !looks {
            self.begin_chain();
        }
        // SAFETY: the caller upholds the contract.
        unsafe { self.push(object) };
        if looks { self.look() } else { self.place_watermark(self.live()) }
    }

    /// Allocates `objects` uninitialised objects next to each other, [`stride`](Self::stride) bytes
    /// apart.
    ///
    /// Their memory has held no object after its slab was taken, or after the list was last without
    /// live objects. Each object is freed separately. For 0 objects the address is dangling.
    ///
    /// # Panics
    /// Aborts if [`try_alloc_run`](Self::try_alloc_run) returns an error.
    #[must_use]
    pub fn alloc_run(&self, objects: usize) -> NonNull<u8> {
        always(self.try_alloc_run(objects).map_err(Abort::fail))
    }

    /// Fallible version of [`alloc_run`](Self::alloc_run).
    ///
    /// # Errors
    /// If neither the budget nor the source grants a slab with that much room. An error changes
    /// nothing, except that spare slabs, which hold no live objects, may have been released. In
    /// pass-through mode, where malloc provides each object separately, any run of more than one
    /// object is an error.
    pub fn try_alloc_run(&self, objects: usize) -> Result<NonNull<u8>, AllocError> {
        match (objects, self.ledger.as_deref()) {
            (0, _) => Ok(self.geometry.dangling()),
            (_, Some(ledger)) => self.checked_alloc_run(ledger, objects),
            (_, None) => {
                let run = self.take_fresh(objects)?;
                self.count.set(self.count.get() + objects as isize);
                Ok(run)
            }
        }
    }

    /// Allocates one uninitialised object behind the fresh object that was taken last, and skips
    /// the objects that were freed. Use it for objects that should lie in the order of their
    /// allocation.
    ///
    /// # Panics
    /// Aborts if [`try_alloc_fresh`](Self::try_alloc_fresh) returns an error.
    #[must_use]
    pub fn alloc_fresh(&self) -> NonNull<u8> {
        self.alloc_run(1)
    }

    /// Fallible version of [`alloc_fresh`](Self::alloc_fresh).
    ///
    /// # Errors
    /// Same as [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_fresh(&self) -> Result<NonNull<u8>, AllocError> {
        self.try_alloc_run(1)
    }

    /// Sweeps for empty slabs and releases them all, including those that the release policy would
    /// keep. Returns the number of bytes released.
    ///
    /// The sweep takes one step for each free object. The objects that stay free are then handed
    /// out from the fullest slabs first, in the order of their addresses.
    pub fn trim(&self) -> usize {
        if let Some(ledger) = self.ledger.as_deref() {
            return self.checked_trim(ledger);
        }
        self.sweep(0)
    }

    /// The number of live objects.
    #[must_use]
    pub fn live(&self) -> usize {
        match self.ledger.as_deref() {
            Some(ledger) => ledger.live().0,
            None => self.watermark.get().wrapping_add_signed(self.count.get()),
        }
    }

    /// What the list holds. The values are exact.
    ///
    /// [`report`](crate::report()) may show older values for another thread's list: those of the
    /// last call that took or released a slab, or called this function.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.note_live();
        self.record.statistics()
    }
}

impl Drop for RawFreeList {
    /// Releases all memory, including that of live objects.
    fn drop(&mut self) {
        self.report_live();
        if let Some(ledger) = self.ledger.as_deref() {
            ledger.clear(self);
        }
        self.give_all_back();
        self.record.release();
    }
}
