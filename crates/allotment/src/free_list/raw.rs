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
//! 1. `slabs` and `spare` head two lists of slabs that this list alone holds; `slabs.rs` says what one looks like.
//! 2. `head` is null or a free object, each free object holds the next one's address or null, and none is there twice;
//!    so with each of the chains that wait behind it. A free object is nobody else's.
//! 3. `[fresh, fresh_end)` is a whole number of objects of the slab that was taken last, which were never handed out,
//!    or linked, since. Every other object of every slab is live or on one chain.
//!    The slabs on `spare` hold nothing, and none of their objects is on a chain or fresh.
//! 4. `live = count + watermark`, and `count >= 0` outside of a call unless nothing is live. So the first free that
//!    brings `live` below the watermark takes the slow path. It looks for what can go, if `live` is below `look_below`,
//!    which is at most the watermark; else it begins another chain.
//! 5. A watched list (watch.rs) has `head = null`, no fresh objects and `count = 0`: every call takes the slow path, and
//!    the watch knows what is free and what is live.
//! 6. One thread at a time has access: a list is `Send` and not `Sync`, so `Cell` is enough. The record may be read by
//!    others.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::builder::{FreeListBuilder, Settings};
use super::chains::Chains;
use super::slabs::{Geometry, Header};
use super::watch::Watch;
use crate::error::{Abort, AllocError, OnFailure, Report, always};
use crate::statistics::{Kind, Record, Statistics};

/// What a free object holds: the next one.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Link(pub(super) Cell<*mut Link>);

/// Objects of one layout for one thread, handed out last freed first: six instructions to allocate, five to free.
///
/// Objects lie in *slabs*, chunks that double up to 1 MiB and are of huge pages from there on, one behind the other in the
/// order in which they are first allocated. A slab all of whose objects were freed goes back (see
/// [`trim`](Self::trim)), to the recycler, where the next arena or list finds it warm.
///
/// It may move between threads, and one uses it at a time. Dropping it frees all of its memory, whatever is live: objects
/// by address can't know. [`FreeList`](crate::FreeList) is the same for values, with a box that can't outlive it.
///
/// After *Fixed size free lists and per-datastructure allocators*; the free list itself is older than malloc.
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
    // The first two are what the fast paths use, here and in C (`frozen.rs`).
    pub(super) head: Cell<*mut Link>,
    /// Live objects above the watermark.
    pub(super) count: Cell<isize>,
    pub(super) watermark: Cell<usize>,
    /// The live objects below which the list looks for empty slabs; 0 if it does not.
    pub(super) look_below: Cell<usize>,
    pub(super) chains: Chains,
    pub(super) fresh: Cell<*mut u8>,
    pub(super) fresh_end: Cell<*mut u8>,
    pub(super) slabs: Cell<*mut Header>,
    pub(super) slab_count: Cell<usize>,
    /// The objects that these slabs have room for, and those that the spare ones have.
    pub(super) capacity: Cell<usize>,
    pub(super) spare: Cell<*mut Header>,
    pub(super) spare_objects: Cell<usize>,
    /// Slabs were given back, and none was taken since.
    pub(super) gave: Cell<bool>,
    /// Live objects have become more since the last look, as far as the slow path has seen.
    pub(super) risen: Cell<bool>,
    /// Whether looks are left out until they have.
    pub(super) skips_now: Cell<bool>,
    /// On so many ways down all looks are left out, and so many were when slabs were last taken again soon.
    pub(super) skips: Cell<u32>,
    pub(super) patience: Cell<u32>,
    /// The size of the slab that was taken last, as far as it sets the next one's.
    pub(super) grown: Cell<usize>,
    pub(super) geometry: Geometry,
    pub(super) record: &'static Record,
    pub(super) watch: Option<Box<Watch>>,
    pub(super) settings: Box<Settings>,
}

// SAFETY: it owns its slabs, and is used by one thread at a time: not `Sync`, because of its cells (invariant 6). The
// pointers lead to its own memory; the record is written by whoever has the list.
unsafe impl Send for RawFreeList {}

impl RawFreeList {
    /// A list with defaults.
    ///
    /// # Panics
    /// Aborts where [`try_new`](Self::try_new) returns an error.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self::builder(layout).build()
    }

    /// A list with defaults. Takes no slab yet.
    ///
    /// # Errors
    /// A layout beyond the address space; a record that can't be had.
    pub fn try_new(layout: Layout) -> Result<Self, AllocError> {
        Self::builder(layout).try_build()
    }

    /// Begins a list with options.
    pub const fn builder(layout: Layout) -> FreeListBuilder<Self> {
        FreeListBuilder::new(layout)
    }

    pub(super) fn make(layout: Layout, settings: Settings) -> Result<Self, AllocError> {
        let watch = Watch::wanted(settings.hardened).map(Box::new);
        let geometry = Geometry::new(layout, watch.as_deref())?;
        let record = Record::acquire(Kind::FreeList, settings.name.as_deref())?;
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
            watch,
            settings: Box::new(settings),
        })
    }

    /// The layout of an object, as it was asked for.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.geometry.layout
    }

    /// The bytes from one object of a run to the next: the size with its padding, at least a pointer's.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.geometry.stride
    }

    /// The name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.settings.name.as_deref()
    }

    /// An object, uninitialised, aligned to its layout: the one freed last, or the next of the newest slab. Six
    /// instructions where one is free.
    ///
    /// # Panics
    /// Aborts where [`try_alloc`](Self::try_alloc) returns an error.
    #[inline]
    #[must_use]
    pub fn alloc(&self) -> NonNull<u8> {
        always(self.alloc_or::<Abort>())
    }

    /// An object, uninitialised.
    ///
    /// # Errors
    /// When none is free and no slab is to be had from the budget or the source.
    #[inline]
    pub fn try_alloc(&self) -> Result<NonNull<u8>, AllocError> {
        self.alloc_or::<Report>()
    }

    #[inline(always)]
    pub(super) fn alloc_or<F: OnFailure>(&self) -> Result<NonNull<u8>, F::Error> {
        let Some(first) = NonNull::new(self.head.get()) else {
            return self.alloc_slowly::<F>();
        };
        // SAFETY: a free object, which is nobody else's and holds a link (invariant 2).
        self.head.set(unsafe { first.as_ref() }.0.get());
        self.count.set(self.count.get().wrapping_add(1));
        Ok(first.cast())
    }

    #[cold]
    #[inline(never)]
    fn alloc_slowly<F: OnFailure>(&self) -> Result<NonNull<u8>, F::Error> {
        self.refill().map_err(F::fail)
    }

    /// Frees an object. Five instructions, unless live objects have fallen to the level at which the list looks for
    /// empty slabs: half of what they were, and on down so that it takes no more than two steps for each object freed since; or
    /// by a sixteenth, where the chain of free objects that this look is to follow becomes another one.
    ///
    /// # Safety
    /// The object came from this list, was not freed since, and is not used any more.
    #[inline]
    pub unsafe fn free(&self, object: NonNull<u8>) {
        let count = self.count.get().wrapping_sub(1);
        self.count.set(count);
        if count < 0 {
            // SAFETY: passed on to the caller.
            return unsafe { self.free_slowly(object) };
        }
        // SAFETY: passed on to the caller.
        unsafe { self.push(object) };
    }

    /// Puts an object on the first chain.
    ///
    /// # Safety
    /// It is this list's, in nobody's use and on no chain.
    #[inline(always)]
    pub(super) unsafe fn push(&self, object: NonNull<u8>) {
        let link = object.cast::<Link>();
        // SAFETY: an object is at least as large as a link and as aligned (`Geometry::new`), and nobody else's.
        unsafe { link.write(Link(Cell::new(self.head.get()))) };
        self.head.set(link.as_ptr());
    }

    /// # Safety
    /// As for [`free`](Self::free), which has counted it.
    #[cold]
    #[inline(never)]
    unsafe fn free_slowly(&self, object: NonNull<u8>) {
        if let Some(watch) = self.watch.as_deref() {
            self.count.set(0);
            return watch.free(self, object);
        }
        let looks = self.live() < self.look_below.get();
        if !looks {
            self.begin_chain();
        }
        // SAFETY: passed on to the caller.
        unsafe { self.push(object) };
        if looks { self.look() } else { self.place_watermark(self.live()) }
    }

    /// So many objects behind each other, [`stride`](Self::stride) bytes apart, of memory that nothing had since its slab
    /// came, or since nothing was live. Each is freed by itself. For none the address is dangling.
    ///
    /// # Panics
    /// Aborts where [`try_alloc_run`](Self::try_alloc_run) returns an error.
    #[must_use]
    pub fn alloc_run(&self, objects: usize) -> NonNull<u8> {
        always(self.try_alloc_run(objects).map_err(Abort::fail))
    }

    /// The fallible twin of [`alloc_run`](Self::alloc_run).
    ///
    /// # Errors
    /// When no slab with so much room is to be had from the budget or the source; nothing has changed then, but that
    /// spare slabs, which hold nothing, have gone back. In
    /// pass-through mode, where malloc gives each object by itself, for more than one.
    pub fn try_alloc_run(&self, objects: usize) -> Result<NonNull<u8>, AllocError> {
        match (objects, self.watch.as_deref()) {
            (0, _) => Ok(self.geometry.dangling()),
            (_, Some(watch)) => watch.alloc_run(self, objects),
            (_, None) => {
                let run = self.take_fresh(objects)?;
                self.count.set(self.count.get() + objects as isize);
                Ok(run)
            }
        }
    }

    /// One object behind the one that was taken fresh last, past the holes that frees have left: for what shall lie in
    /// the order of its allocation.
    ///
    /// # Panics
    /// Aborts where [`try_alloc_fresh`](Self::try_alloc_fresh) returns an error.
    #[must_use]
    pub fn alloc_fresh(&self) -> NonNull<u8> {
        self.alloc_run(1)
    }

    /// The fallible twin of [`alloc_fresh`](Self::alloc_fresh).
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_fresh(&self) -> Result<NonNull<u8>, AllocError> {
        self.try_alloc_run(1)
    }

    /// Looks for empty slabs and gives them back, whatever the release policy keeps. Returns the bytes given back. Costs
    /// a look at each free object; those that stay are then handed out in the order of their addresses, of the fullest
    /// slabs first.
    pub fn trim(&self) -> usize {
        if let Some(watch) = self.watch.as_deref() {
            return watch.trim(self);
        }
        self.sweep(0)
    }

    /// The objects in use.
    #[must_use]
    pub fn live(&self) -> usize {
        match self.watch.as_deref() {
            Some(watch) => watch.live(),
            None => self.watermark.get().wrapping_add_signed(self.count.get()),
        }
    }

    /// What the list holds. Exact; what [`report`](crate::report()) says of another thread's list may be older: as of the
    /// last call that took or gave a slab, or asked for this.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.note_live();
        self.record.statistics()
    }
}

impl Drop for RawFreeList {
    /// Gives all memory back, that of live objects too.
    fn drop(&mut self) {
        self.report_live();
        if let Some(watch) = self.watch.as_deref() {
            watch.end(self);
        }
        self.give_all_back();
        self.record.release();
    }
}
