//! Allocators of objects of one layout, which outlive every task and which any thread may free.
//!
//! # Invariants of this file and those below
//!
//! 1. An object that a store gave out stays valid until it is given back: `bytes` finds its memory, of the
//!    layout that the store was made for. Its first word was written by the call that gave it out.
//! 2. An object goes back to the store that it came from, once: what the callers of
//!    [`FixedSizeLocal::free`] promise.
//! 3. Where one thread alone may use a store, [`OneThread`] lends it to one thread at a time.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) mod heap;
pub(crate) mod own;
pub(crate) mod own_list;
pub(crate) mod sharded_slab;
pub(crate) mod slab;

#[cfg(boost_pool)]
pub(crate) mod boost_pool;

/// The layout that every row of this kind serves: 64 bytes, aligned to a word.
pub const OBJECT: Layout = Layout::new::<[u64; 8]>();

/// An allocator of objects of one layout. Its objects belong to no task: they live until they are freed.
///
/// What the program shares is this value; each thread that uses it asks for its own [`local`](Self::local)
/// part first. Whether several threads may do so, and which layouts there are, says
/// [`About::fixed_size`](crate::About::fixed_size).
pub trait FixedSize: Send + Sync + Sized + 'static {
    /// What stands for an object: where it lies, or the key under which a store of values keeps it.
    type Object: Copy + Send + Debug + 'static;

    /// One thread's way to it.
    type Local<'s>: FixedSizeLocal<Object = Self::Object>
    where
        Self: 's;

    /// An allocator for objects of this layout, of at least a word and aligned to one at least.
    ///
    /// # Panics
    /// If the row does not serve the layout.
    fn new(layout: Layout) -> Self;

    /// The allocator that the process shares among all who need objects of about this size; where there
    /// is no such thing, one of its own.
    fn by_size(layout: Layout) -> Self {
        Self::new(layout)
    }

    /// The calling thread's way to it.
    ///
    /// # Panics
    /// If it serves one thread alone and another one has it.
    fn local(&self) -> Self::Local<'_>;

    /// Takes memory ahead, and touches it, until there is enough for so many objects in all. Returns whether
    /// there is a way to do so; if not, nothing was done.
    fn reserve(&self, objects: usize) -> bool {
        let _ = objects;
        false
    }
}

/// One thread's way to an allocator of objects of one layout.
pub trait FixedSizeLocal {
    /// What stands for an object.
    type Object: Copy;

    /// A new object, with `word` in its first eight bytes; what the rest holds depends on the allocator.
    /// Aborts when there is no memory: a benchmark has no plan for it.
    fn alloc(&self, word: u64) -> Self::Object;

    /// Frees an object, whichever thread allocated it.
    ///
    /// # Safety
    /// It came from this allocator, is live, and is not used after.
    unsafe fn free(&self, object: Self::Object);

    /// Where the object's bytes are. A store of values may move them with its next allocation.
    ///
    /// # Safety
    /// It came from this allocator and is live.
    unsafe fn bytes(&self, object: Self::Object) -> NonNull<u8>;

    /// Gives back what the calling thread and the allocator keep without need. Returns whether there is a
    /// way to ask for it; if not, nothing was done.
    fn trim(&self) -> bool {
        false
    }
}

/// An object that is known by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Block(NonNull<u8>);

// SAFETY: a block is an address and nothing else; whoever reads or frees what is there says by an unsafe
// block of his own that he may.
unsafe impl Send for Block {}

impl Block {
    /// A new object of which the first word is written.
    ///
    /// # Safety
    /// `at` is valid for writes of eight bytes, aligned to them, and nobody else's.
    #[inline(always)]
    pub(crate) unsafe fn written(at: NonNull<u8>, word: u64) -> Self {
        // SAFETY: the caller's promise.
        unsafe { at.cast::<u64>().write(word) };
        keep(at.as_ptr());
        Self(at)
    }

    /// Where it is.
    #[inline(always)]
    pub(crate) fn at(self) -> NonNull<u8> {
        self.0
    }
}

/// Lets the compiler believe that somebody looks at what lies at an address, and at all that is reachable
/// from it: it then can neither leave out the write nor, where it knows what `malloc` and `free` are, both
/// calls. Unlike [`std::hint::black_box`] it costs no instruction.
#[inline(always)]
pub(crate) fn keep<T>(at: *const T) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: there is no instruction in it.
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::hint::black_box(at);
}

/// Refuses layouts in which a word does not fit.
pub(crate) fn check(layout: Layout) {
    assert!(
        layout.size() >= size_of::<u64>() && layout.align() >= align_of::<u64>(),
        "an object has at least a word, and its alignment"
    );
}

/// Refuses every layout but that of [`OBJECT`].
pub(crate) fn check_object(name: &str, layout: Layout) {
    assert!(
        layout == OBJECT,
        "{name} holds values of {} bytes aligned to {}, not of {} aligned to {}",
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

// SAFETY: `lend` gives out the store to one borrower at a time (invariant 3), who can't leave his thread;
// with the flag's acquire and release the next one sees all that he did. So it moves from thread to thread,
// which `T: Send` allows.
unsafe impl<T: Send> Sync for OneThread<T> {}

impl<T> OneThread<T> {
    pub(crate) fn new(store: T) -> Self {
        Self { lent: AtomicBool::new(false), store: UnsafeCell::new(store) }
    }

    /// The store, for the calling thread alone until the loan is dropped.
    ///
    /// # Panics
    /// If it is lent.
    pub(crate) fn lend(&self) -> Loan<'_, T> {
        // Acquire: pairs with the release in `Loan::drop`.
        let lent = self.lent.swap(true, Ordering::Acquire);
        assert!(!lent, "one thread alone may use this allocator");
        Loan { lender: self, _not_send: PhantomData }
    }
}

/// A store that is the calling thread's own for now.
pub(crate) struct Loan<'s, T> {
    lender: &'s OneThread<T>,
    _not_send: PhantomData<*const ()>,
}

impl<T> Loan<'_, T> {
    /// Does something with the store.
    #[inline(always)]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: there is one loan (invariant 3), on this thread; the closures of the files below call
        // into the store alone and so never into `with` again.
        work(unsafe { &mut *self.lender.store.get() })
    }
}

impl<T> Drop for Loan<'_, T> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `OneThread::lend`.
        self.lender.lent.store(false, Ordering::Release);
    }
}
