//! The allocators of the library as the suites of claims see them (`subject.rs`). An adapter whose
//! allocator lacks a capability says why.

use core::alloc::Layout;
use core::cell::RefCell;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::alloc::{GlobalAlloc, System};
use std::sync::Arc;

use allotment::slab::RawSlabHandle;
use allotment::source::SharedSource;
use allotment::{
    AllocError, ErrorKind, File, LocalPool, Malloc, Mmap, PoolGlobalAlloc, PoolRef, RawFreeList,
    RawSlab, Statistics,
};

use super::setup::file_directory;
use super::slab::{Object, assert_sums};
use super::sources::{Recorder, Refuse};
use super::subject::{
    Checked, Figures, Fills, Limited, Options, Reports, Resets, Reuses, Sourced, Subject,
};

/// Sets options on a builder.
macro_rules! set {
    ($builder:expr, $options:expr, $($option:ident)*) => {{
        let builder = $builder;
        $(let builder = match &$options.$option {
            Some(value) => builder.$option(set!(@ $option value)),
            None => builder,
        };)*
        builder
    }};
    (@ budget $value:ident) => { $value };
    (@ $option:ident $value:ident) => { $value.clone() };
}

fn all_sources() -> Vec<Option<SharedSource>> {
    let file = File::in_directory(&file_directory()).expect("a file");
    vec![
        None,
        Some(Mmap::huge_pages().into()),
        Some(Malloc.into()),
        Some(file.into()),
        Some(Recorder::new(Malloc, Refuse::None).into()),
    ]
}

// ---- arena ----

/// An arena. A free returns the memory of its last object only: what it freed is used again after a
/// reset, so it is not in `reusing`.
pub struct Arena(allotment::Arena);

impl Subject for Arena {
    const ANY_LAYOUT: bool = true;
    /// An object of size zero takes no memory.
    const ZERO_SIZES_APART: bool = false;
    const REUSES: bool = false;

    fn try_create(options: &Options) -> Result<Self, AllocError> {
        let builder = allotment::Arena::builder().hardened(options.hardened);
        set!(builder, options, name source release budget).try_build().map(Self)
    }

    fn try_alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.0.try_alloc_layout(layout)
    }

    unsafe fn free(&self, object: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { self.0.free_layout(object, layout) }
    }

    /// Chunks go at a reset.
    fn trim(&self) {}

    fn recycle(&mut self) {
        self.0.reset();
    }
}

impl Limited for Arena {
    const COUNTS_ZERO_SIZES: bool = false;
    /// A reset keeps a chunk.
    const EMPTIES: bool = false;

    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.alloc_layout(layout)
    }

    fn figures(&self) -> Figures {
        self.0.statistics().into()
    }

    fn sources() -> Vec<Option<SharedSource>> {
        all_sources()
    }
}

impl Sourced for Arena {
    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }
}

impl Checked for Arena {
    const KIND: &'static str = "arena";
    /// Its records keep a freed object until the arena is reset.
    const PASSED_DOUBLE_FREE: &'static str = super::subject::DOUBLE_FREE;
}

impl Fills for Arena {
    /// All memory behind the last object is free since the chunk was taken or the arena was reset.
    const WRITE_BEFORE_ALLOCATION: &'static str = super::subject::WRITE_AFTER_RESET;
}

impl Resets for Arena {
    fn reset(&mut self) {
        self.0.reset();
    }
}

// ---- free list ----

pub struct FreeList(RawFreeList);

impl Subject for FreeList {
    const ANY_LAYOUT: bool = false;

    fn try_create(options: &Options) -> Result<Self, AllocError> {
        let builder = RawFreeList::builder(options.layout).hardened(options.hardened);
        set!(builder, options, name source release budget report_live).try_build().map(Self)
    }

    fn try_alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        assert_eq!(layout, self.0.layout());
        self.0.try_alloc()
    }

    unsafe fn free(&self, object: NonNull<u8>, _: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { self.0.free(object) }
    }

    fn trim(&self) {
        self.0.trim();
    }
}

impl Limited for FreeList {
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        assert_eq!(layout, self.0.layout());
        self.0.alloc()
    }

    fn figures(&self) -> Figures {
        let statistics = self.0.statistics();
        assert_sums(&statistics);
        statistics.into()
    }

    fn sources() -> Vec<Option<SharedSource>> {
        all_sources()
    }
}

impl Sourced for FreeList {
    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }
}

impl Checked for FreeList {
    const KIND: &'static str = "free list";
}

impl Reuses for FreeList {}

impl Fills for FreeList {}

impl Reports for FreeList {}

// ---- slab ----

pub struct Slab(RawSlab);

fn slab(options: &Options) -> Result<RawSlab, AllocError> {
    let builder = RawSlab::builder(options.layout).hardened(options.hardened);
    set!(builder, options, name source release budget report_live).try_build()
}

impl Subject for Slab {
    const ANY_LAYOUT: bool = false;

    fn try_create(options: &Options) -> Result<Self, AllocError> {
        slab(options).map(Self)
    }

    fn try_alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        assert_eq!(layout, self.0.layout());
        self.0.try_alloc()
    }

    unsafe fn free(&self, object: NonNull<u8>, _: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { self.0.free(object) }
    }

    fn trim(&self) {
        self.0.trim();
    }
}

impl Limited for Slab {
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        assert_eq!(layout, self.0.layout());
        self.0.alloc()
    }

    fn figures(&self) -> Figures {
        let statistics = self.0.statistics();
        assert_sums(&statistics);
        statistics.into()
    }

    fn sources() -> Vec<Option<SharedSource>> {
        all_sources()
    }
}

impl Sourced for Slab {
    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    /// Its structures lie outside its pages.
    fn lent_bytes(&self) -> usize {
        let figures = self.figures();
        figures.held_bytes - figures.structure_bytes
    }
}

impl Checked for Slab {
    const KIND: &'static str = "slab";
    const RED_ZONE: usize = 16;
    /// A page says only that the slot is free, not whether it was allocated before.
    const NEVER_ALLOCATED: &'static str = super::subject::DOUBLE_FREE;
}

impl Reuses for Slab {}

impl Fills for Slab {}

impl Reports for Slab {}

/// A slab that is called through a handle.
pub struct SlabHandle {
    /// Borrows `slab`; dropped first.
    handle: ManuallyDrop<RawSlabHandle<'static>>,
    /// From a box.
    slab: NonNull<RawSlab>,
}

impl SlabHandle {
    fn slab(&self) -> &RawSlab {
        self.handle.slab()
    }
}

impl Subject for SlabHandle {
    const ANY_LAYOUT: bool = false;

    fn try_create(options: &Options) -> Result<Self, AllocError> {
        let slab = NonNull::from(Box::leak(Box::new(slab(options)?)));
        // SAFETY: the slab lives until the handle was dropped.
        let handle = ManuallyDrop::new(unsafe { slab.as_ref() }.handle());
        Ok(Self { handle, slab })
    }

    fn try_alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        assert_eq!(layout, self.slab().layout());
        self.handle.try_alloc()
    }

    unsafe fn free(&self, object: NonNull<u8>, _: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { self.handle.free(object) }
    }

    fn trim(&self) {
        self.slab().trim();
    }
}

impl Drop for SlabHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is dropped once; nothing else refers to the slab, which was a box.
        unsafe {
            ManuallyDrop::drop(&mut self.handle);
            drop(Box::from_raw(self.slab.as_ptr()));
        }
    }
}

impl Limited for SlabHandle {
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        assert_eq!(layout, self.slab().layout());
        self.handle.alloc()
    }

    fn figures(&self) -> Figures {
        let statistics = self.slab().statistics();
        assert_sums(&statistics);
        statistics.into()
    }

    fn sources() -> Vec<Option<SharedSource>> {
        all_sources()
    }
}

impl Sourced for SlabHandle {
    fn statistics(&self) -> Statistics {
        self.slab().statistics()
    }

    /// Its structures lie outside its pages.
    fn lent_bytes(&self) -> usize {
        let figures = self.figures();
        figures.held_bytes - figures.structure_bytes
    }
}

impl Checked for SlabHandle {
    const KIND: &'static str = "slab";
    const RED_ZONE: usize = 16;
    /// Its `free` reads the map of segments, which covers the addresses that a process can have.
    const ADDRESSES: usize = 1 << 47;
    const NEVER_ALLOCATED: &'static str = super::subject::DOUBLE_FREE;
}

impl Reuses for SlabHandle {}

impl Fills for SlabHandle {}

impl Reports for SlabHandle {}

/// The slab that all callers share for objects of about a size. It has no options, so it has no
/// hardened mode, no budget and no source; and its figures are those of all callers.
pub struct SlabBySize(Arc<RawSlab>);

impl Subject for SlabBySize {
    const ANY_LAYOUT: bool = false;
    const MODES: &'static [bool] = &[false];
    const SHARED: bool = true;

    fn try_create(options: &Options) -> Result<Self, AllocError> {
        RawSlab::try_by_size(options.layout).map(Self)
    }

    fn try_alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        assert!(
            layout.size() <= self.0.layout().size() && layout.align() <= self.0.layout().align()
        );
        self.0.try_alloc()
    }

    unsafe fn free(&self, object: NonNull<u8>, _: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { self.0.free(object) }
    }

    fn trim(&self) {
        self.0.trim();
    }
}

// ---- reap ----

/// A block that is vacant in a reap or a pool is known by its size class alone.
const LARGEST_OF_CLASS: usize = 32;

/// A reap. Like a pool, it does not fill a chunk before the blocks in it are allocated: it may be
/// large, and most of it may never be used.
pub struct Reap(allotment::Reap);

impl Subject for Reap {
    const ANY_LAYOUT: bool = true;

    fn try_create(options: &Options) -> Result<Self, AllocError> {
        let builder = allotment::Reap::builder().hardened(options.hardened);
        set!(builder, options, name source release budget).try_build().map(Self)
    }

    fn try_alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.0.try_alloc_layout(layout)
    }

    unsafe fn free(&self, object: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { self.0.free_layout(object, layout) }
    }

    fn trim(&self) {
        self.0.trim();
    }
}

impl Limited for Reap {
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.alloc_layout(layout)
    }

    fn figures(&self) -> Figures {
        self.0.statistics().into()
    }

    fn sources() -> Vec<Option<SharedSource>> {
        all_sources()
    }
}

impl Sourced for Reap {
    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }
}

impl Checked for Reap {
    const KIND: &'static str = "reap";
    const VACANT_SIZE: usize = LARGEST_OF_CLASS;
}

impl Reuses for Reap {}

impl Resets for Reap {
    fn reset(&mut self) {
        self.0.reset();
    }
}

// ---- pool ----

/// A pool, called on its own thread. All pools share one range of addresses, so it has no source.
/// It fills no chunk before the blocks in it are allocated, as a reap.
pub struct Pool(LocalPool);

/// Blocks that outlive their pool are ordinary, so a pool reports them only if it is told to, and
/// counts those of all sizes.
fn ended_with(live: usize) -> String {
    format!("ended with {live} objects in use")
}

fn pool(options: &Options) -> Result<LocalPool, AllocError> {
    let builder = LocalPool::builder().hardened(options.hardened);
    set!(builder, options, name release budget report_live).try_build()
}

impl Subject for Pool {
    const ANY_LAYOUT: bool = true;

    fn try_create(options: &Options) -> Result<Self, AllocError> {
        pool(options).map(Self)
    }

    fn try_alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.0.try_alloc_layout(layout)
    }

    unsafe fn free(&self, object: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { self.0.free_layout(object, layout) }
    }

    fn trim(&self) {
        self.0.trim();
    }
}

impl Limited for Pool {
    const SHARES_A_RANGE: bool = true;

    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.alloc_layout(layout)
    }

    fn figures(&self) -> Figures {
        self.0.statistics().into()
    }
}

impl Checked for Pool {
    const KIND: &'static str = "pool";
    const VACANT_SIZE: usize = LARGEST_OF_CLASS;
}

impl Reuses for Pool {}

impl Reports for Pool {
    fn words(live: usize) -> String {
        ended_with(live)
    }
}

/// A pool whose blocks other threads free. The call that frees them takes blocks of every pool and
/// of the global heap, so it checks only addresses inside the range of the pools. What the pool
/// refuses comes from the global heap, so there are no limits.
pub struct PoolElsewhere(LocalPool);

fn elsewhere(call: impl FnOnce() + Send + 'static) {
    std::thread::spawn(call).join().expect("a free does not panic");
}

impl Subject for PoolElsewhere {
    const ANY_LAYOUT: bool = true;

    fn try_create(options: &Options) -> Result<Self, AllocError> {
        pool(options).map(Self)
    }

    fn try_alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.0.enter(|| PoolRef::default().try_alloc_layout(layout))
    }

    unsafe fn free(&self, object: NonNull<u8>, layout: Layout) {
        let address = object.as_ptr().expose_provenance();
        elsewhere(move || {
            let object = core::ptr::with_exposed_provenance_mut(address);
            // SAFETY: passed on to the caller.
            unsafe { PoolRef::free_anywhere(NonNull::new(object).expect("as before"), layout) }
        });
    }

    /// One thread for all of them.
    fn free_all(&self, layout: Layout, objects: impl IntoIterator<Item = Object>) {
        let objects: Vec<Object> = objects.into_iter().collect();
        elsewhere(move || {
            for object in objects {
                // SAFETY: live until now, and of this layout.
                unsafe { PoolRef::free_anywhere(object.end(), layout) };
            }
        });
    }

    fn trim(&self) {
        self.0.trim();
    }
}

impl Checked for PoolElsewhere {
    const KIND: &'static str = "pool";
    const VACANT_SIZE: usize = LARGEST_OF_CLASS;
}

impl Reuses for PoolElsewhere {}

impl Reports for PoolElsewhere {
    fn words(live: usize) -> String {
        ended_with(live)
    }
}

/// A pool that ordinary code uses through a global allocator. A free takes blocks of every pool and
/// of the global allocator below. What the pool refuses comes from there, so there are no limits
/// and no typed errors.
pub struct PoolGlobal(LocalPool);

static GLOBAL: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);

/// Ordinary code allocates no objects of size zero; here they have one byte.
fn not_empty(layout: Layout) -> Layout {
    Layout::from_size_align(layout.size().max(1), layout.align()).expect("small")
}

impl Subject for PoolGlobal {
    const ANY_LAYOUT: bool = true;

    fn try_create(options: &Options) -> Result<Self, AllocError> {
        pool(options).map(Self)
    }

    fn try_alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: the size is not zero.
        let block = self.0.enter(|| unsafe { GLOBAL.alloc(not_empty(layout)) });
        NonNull::new(block).ok_or(AllocError::new(ErrorKind::SourceRefused, layout.size()))
    }

    unsafe fn free(&self, object: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        self.0.enter(|| unsafe { GLOBAL.dealloc(object.as_ptr(), not_empty(layout)) });
    }

    fn trim(&self) {
        self.0.trim();
    }
}

impl Checked for PoolGlobal {
    const KIND: &'static str = "pool";
    const VACANT_SIZE: usize = LARGEST_OF_CLASS;
}

impl Reuses for PoolGlobal {}

impl Reports for PoolGlobal {
    fn words(live: usize) -> String {
        ended_with(live)
    }
}

// ---- sealed memory ----

/// Sealed memory: each object is a sealed value of its own. The hardware refuses every write to it,
/// so it has no hardened mode; it needs pages of its own, so it has no source; and it is the same
/// in pass-through mode and under memory tools.
pub struct Sealed {
    options: Options,
    /// Each value is its object's address.
    values: RefCell<Vec<allotment::Sealed<usize>>>,
}

impl Sealed {
    fn builder(&self) -> allotment::sealed::SealedBuilder<usize> {
        set!(allotment::Sealed::<usize>::builder(), self.options, name budget)
    }

    fn keep(&self, value: allotment::Sealed<usize>) -> NonNull<u8> {
        let address = core::ptr::with_exposed_provenance_mut(*value.get());
        self.values.borrow_mut().push(value);
        NonNull::new(address).expect("an object is not at address zero")
    }
}

impl Subject for Sealed {
    const ANY_LAYOUT: bool = true;
    const MODES: &'static [bool] = &[false];
    /// An object of size zero takes no memory.
    const ZERO_SIZES_APART: bool = false;

    fn try_create(options: &Options) -> Result<Self, AllocError> {
        let subject = Self { options: options.clone(), values: RefCell::default() };
        // A builder has no call of its own that checks its options; a value is released at once.
        match options.name {
            Some(_) => subject.builder().try_build(|_| Ok(0)).map(|_| subject),
            None => Ok(subject),
        }
    }

    fn try_alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.try_stamped(layout, 0).map(|object| object.start)
    }

    unsafe fn free(&self, object: NonNull<u8>, _: Layout) {
        let mut values = self.values.borrow_mut();
        let is_it = |value: &allotment::Sealed<usize>| *value.get() == object.addr().get();
        let at = values.iter().rposition(is_it).expect("a live object");
        drop(values.swap_remove(at));
    }

    /// A value is released whole.
    fn trim(&self) {}

    fn try_stamped(&self, layout: Layout, number: u64) -> Result<Object, AllocError> {
        let value = self.builder().try_build(|sealer| {
            let start = sealer.try_alloc_layout(layout)?;
            Object::stamp(start, layout, number);
            Ok::<_, AllocError>(start.as_ptr().expose_provenance())
        })?;
        Ok(Object::claim(self.keep(value), layout, number))
    }
}

impl Limited for Sealed {
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        let init = |sealer: allotment::Sealer<'_>| {
            sealer.alloc_layout(layout).as_ptr().expose_provenance()
        };
        self.keep(self.builder().build(init))
    }

    fn figures(&self) -> Figures {
        let values = self.values.borrow();
        let statistics = values.iter().map(|value| Figures::from(value.statistics()));
        let sum = |sum: Figures, one: Figures| Figures {
            live_objects: sum.live_objects + 1,
            held_bytes: sum.held_bytes + one.held_bytes,
            structure_bytes: sum.structure_bytes + one.structure_bytes,
        };
        statistics.fold(Figures::default(), sum)
    }
}
