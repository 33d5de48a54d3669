//! Allocators of objects of one layout. The objects outlive every task, and any thread may free
//! them.
//!
//! # Invariants of this file and those below
//!
//! 1. An object of a store stays valid until it is freed: `bytes` finds its memory, which has the
//!    layout that the store was made for. The call that allocated it wrote its first word.
//! 2. An object goes back once, to the store that it came from. The callers of
//!    [`FixedSizeLocal::free`] promise this.
//! 3. If only one thread may use a store, [`OneThread`] lends it to one thread at a time.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::peers::assume_read::assume_read;

pub(crate) mod allotment_free_list;
pub(crate) mod allotment_slab;
pub(crate) mod heap;
pub(crate) mod sharded_slab;
pub(crate) mod slab;

#[cfg(boost_pool)]
pub(crate) mod boost_pool;
#[cfg(feature = "catalogue")]
pub(crate) mod plurality;

/// The layout that every row of this kind serves: 64 bytes, aligned to a word.
pub const OBJECT: Layout = Layout::new::<[u64; 8]>();

/// An allocator of objects of one layout. Its objects belong to no task, and live until they are
/// freed.
///
/// The threads of the program share this value, and each thread gets its own [`local`](Self::local)
/// part before it uses it. [`About`](crate::peers::About) says whether several threads may do so,
/// and which layouts it serves.
pub trait FixedSize: Send + Sync + Sized + 'static {
    /// What identifies an object: its address, or its key in a store of values.
    type Object: Copy + Send + Debug + 'static;

    /// One thread's part of the allocator.
    type Local<'s>: FixedSizeLocal<Object = Self::Object>
    where
        Self: 's;

    /// An allocator for objects of this layout, whose size and alignment are at least a word's.
    ///
    /// # Panics
    /// If the row does not serve the layout.
    fn new(layout: Layout) -> Self;

    /// The allocator that the process shares for objects of about this size, or a new one if there
    /// is no sharing.
    fn by_size(layout: Layout) -> Self {
        Self::new(layout)
    }

    /// The calling thread's part of the allocator.
    ///
    /// # Panics
    /// If only one thread may use the allocator, and another thread has it.
    fn local(&self) -> Self::Local<'_>;

    /// Takes memory in advance, and touches it, until there is enough for `objects` objects in
    /// total. Returns whether the allocator has such a call; if not, nothing was done.
    fn reserve(&self, objects: usize) -> bool {
        let _ = objects;
        false
    }
}

/// One thread's part of an allocator of objects of one layout.
pub trait FixedSizeLocal {
    /// What identifies an object.
    type Object: Copy;

    /// Allocates an object with `word` in its first eight bytes. The contents of the rest depend on
    /// the allocator. Aborts when there is no memory: a benchmark has no plan for it.
    fn alloc(&self, word: u64) -> Self::Object;

    /// Frees an object, which any thread may have allocated.
    ///
    /// # Safety
    /// It came from this allocator, is live, and is not used after.
    unsafe fn free(&self, object: Self::Object);

    /// The address of the object's bytes. A store of values may move them with its next allocation.
    ///
    /// # Safety
    /// It came from this allocator and is live.
    unsafe fn bytes(&self, object: Self::Object) -> NonNull<u8>;

    /// Releases memory that the calling thread and the allocator keep without need. Returns whether
    /// the allocator has such a call; if not, nothing was done.
    fn trim(&self) -> bool {
        false
    }
}

/// One thread's part of an allocator whose objects are identified by their addresses.
pub(crate) trait Slots {
    /// An unused block of the allocator's layout, which has a word and is aligned to one
    /// ([`check`]).
    fn take(&self) -> NonNull<u8>;

    /// Frees a block.
    ///
    /// # Safety
    /// As for [`FixedSizeLocal::free`].
    unsafe fn give_back(&self, block: NonNull<u8>);

    /// As [`FixedSizeLocal::trim`].
    fn trim(&self) -> bool {
        false
    }
}

impl<S: Slots> FixedSizeLocal for S {
    type Object = Block;

    #[inline(always)]
    fn alloc(&self, word: u64) -> Block {
        // SAFETY: what `take` returns is unused, has a word, and is aligned to one.
        unsafe { Block::written(self.take(), word) }
    }

    #[inline(always)]
    unsafe fn free(&self, object: Block) {
        // SAFETY: the caller's promise.
        unsafe { self.give_back(object.at()) };
    }

    #[inline(always)]
    unsafe fn bytes(&self, object: Block) -> NonNull<u8> {
        object.at()
    }

    fn trim(&self) -> bool {
        Slots::trim(self)
    }
}

/// An object that is identified by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Block(NonNull<u8>);

// SAFETY: a block is only an address. Code that reads or frees the memory there has an unsafe block
// of its own that says why it may.
unsafe impl Send for Block {}

impl Block {
    /// A new object at `at`, whose first word becomes `word`.
    ///
    /// # Safety
    /// `at` is valid for writes of eight bytes, aligned to eight, and not in use by anything else.
    #[inline(always)]
    pub(crate) unsafe fn written(at: NonNull<u8>, word: u64) -> Self {
        // SAFETY: the caller's promise.
        unsafe { at.cast::<u64>().write(word) };
        assume_read(at.as_ptr());
        Self(at)
    }

    /// The object's address.
    #[inline(always)]
    pub(crate) fn at(self) -> NonNull<u8> {
        self.0
    }
}

/// Panics if a word does not fit into an object of this layout.
pub(crate) fn check(layout: Layout) {
    assert!(
        layout.size() >= size_of::<u64>() && layout.align() >= align_of::<u64>(),
        "an object needs the size and alignment of a word at least"
    );
}

/// Panics for every layout except [`OBJECT`].
pub(crate) fn check_object(name: &str, layout: Layout) {
    assert!(
        layout == OBJECT,
        "{name} holds values of {} bytes aligned to {}, not {} bytes aligned to {}",
        OBJECT.size(),
        OBJECT.align(),
        layout.size(),
        layout.align(),
    );
}

/// A store that one thread at a time may use.
pub(crate) struct OneThread<T> {
    lent: AtomicBool,
    store: UnsafeCell<T>,
}

// SAFETY: `lend` lends the store to one borrower at a time (invariant 3), and a loan can't leave
// its thread. Through the flag's acquire and release, the next borrower sees everything that the
// previous one did. So the store moves from thread to thread, which `T: Send` allows.
unsafe impl<T: Send> Sync for OneThread<T> {}

impl<T> OneThread<T> {
    pub(crate) fn new(store: T) -> Self {
        Self { lent: AtomicBool::new(false), store: UnsafeCell::new(store) }
    }

    /// Lends the store to the calling thread until the loan is dropped.
    ///
    /// # Panics
    /// If the store is lent already.
    pub(crate) fn lend(&self) -> StoreGuard<'_, T> {
        // Acquire: pairs with the release in `StoreGuard::drop`.
        let lent = self.lent.swap(true, Ordering::Acquire);
        assert!(!lent, "only one thread at a time may use this allocator");
        StoreGuard { lender: self, _not_send: PhantomData }
    }
}

/// The calling thread's exclusive use of a store.
pub(crate) struct StoreGuard<'s, T> {
    lender: &'s OneThread<T>,
    _not_send: PhantomData<*const ()>,
}

impl<T> StoreGuard<'_, T> {
    /// Calls `work` with the store.
    #[inline(always)]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: there is one loan (invariant 3), on this thread. The closures of the files below
        // call only into the store, and so never call `with` again.
        work(unsafe { &mut *self.lender.store.get() })
    }
}

impl<T> Drop for StoreGuard<'_, T> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `OneThread::lend`.
        self.lender.lent.store(false, Ordering::Release);
    }
}
