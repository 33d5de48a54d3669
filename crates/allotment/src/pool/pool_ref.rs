//! `PoolRef`: the reference to a pool that its objects carry.

use core::alloc::Layout;
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering};

use super::current::replace_current;
use super::global_heap::{global_alloc, global_free, global_resize};
use super::shared::PoolShared;
use crate::collections::layout_calls;
use crate::error::{AllocError, ErrorKind, OnFailure, OnRefusal, ReturnError};

/// A reference to a pool or to the global heap: eight bytes, valid on any thread, for the life of
/// the process.
///
/// - Allocation takes from the pool on the pool's own thread, while the pool exists, and otherwise
///   from the global heap. It also takes from the global heap where the address range of all pools
///   is used up or could not be reserved. If the pool's budget refuses, the allocation fails, and
///   does not go to the global heap.
/// - Free and resize find the owner by the block's address, on any thread and at any time. The
///   reference plays no part in that.
///
/// So an object that is made in a pool may be sent to other threads and may outlive the pool. It
/// then grows on the global heap.
///
/// `PoolRef::default()` is [`current`]. With the cargo feature for the trait's version it is an
/// allocator for hashbrown's maps and the collections of `allocator-api2`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolRef(u64);

/// Returns the thread's current pool: the one that it entered last and has not left. Outside every
/// pool this is the global heap.
#[inline]
#[must_use]
pub fn current() -> PoolRef {
    // SAFETY: a thread owns its current pool.
    PoolShared::current()
        .map_or(PoolRef::GLOBAL, |shared| PoolRef(unsafe { shared.own_reference() }))
}

/// Runs a closure outside every pool: what it allocates comes from the global heap.
///
/// With [`PoolGlobalAlloc`](crate::PoolGlobalAlloc) it is for values that stay after the work of
/// the pool: what a `OnceLock`, a `LazyLock`, a thread-local or a cache is filled with. Without it
/// they lie in the pool that is current at their first use, count as live objects of that pool, and
/// keep chunks of it after its end.
///
/// A panic enters the pool again as a return does. Costs a few nanoseconds.
///
/// ```
/// use allotment::{LocalPool, PoolRef, pool};
///
/// let requests = LocalPool::new();
/// requests.enter(|| {
///     pool::outside(|| assert_eq!(pool::current(), PoolRef::GLOBAL));
///     assert_eq!(pool::current(), requests.reference());
/// });
/// ```
pub fn outside<R>(run: impl FnOnce() -> R) -> R {
    struct ReturnGuard {
        previous: *const (),
    }
    impl Drop for ReturnGuard {
        fn drop(&mut self) {
            // SAFETY: `replace_current` returned it, on this thread.
            unsafe { PoolShared::return_to(self.previous) };
        }
    }
    // SAFETY: null.
    let _guard = ReturnGuard { previous: unsafe { replace_current(ptr::null()) } };
    run()
}

/// Makes the program's panic hook run [`outside`] every pool, from now on. A second call does
/// nothing, nor does one from a thread that is panicking.
///
/// The standard library's hook loads the program's symbols when it first prints a backtrace, and
/// keeps them: tens of megabytes, which would lie in the pool that the panicking thread is in. Call
/// this at the start of the program, after the program's own call of
/// [`set_hook`](std::panic::set_hook).
pub fn run_panic_hook_outside() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if std::thread::panicking() || DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    outside(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| outside(|| hook(panic))));
    });
}

impl PoolRef {
    /// The program's global heap.
    pub const GLOBAL: Self = Self(0);

    #[inline]
    pub(super) fn of_shared(shared: &'static PoolShared) -> Self {
        Self(shared.reference())
    }

    /// Returns the reference to the pool that owns a block, or to the global heap.
    pub(super) fn of_block(block: NonNull<u8>) -> Self {
        PoolShared::of_block(block).map_or(Self::GLOBAL, Self::of_shared)
    }

    /// Returns the shared part of the pool, if the pool exists and the calling thread owns it.
    #[inline(always)]
    fn usable_pool(self) -> Option<&'static PoolShared> {
        if self.0 == 0 {
            return None;
        }
        let shared = PoolShared::of_reference(self.0);
        // SAFETY: this thread is the owner.
        (shared.is_owned_by_this_thread() && unsafe { shared.own_reference() } == self.0)
            .then_some(shared)
    }

    /// The reference as a number, 0 for the global heap. For the C interface.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Makes a reference from its number.
    ///
    /// # Safety
    /// The number came from [`to_bits`](Self::to_bits), or
    /// [`are_valid_bits`](Self::are_valid_bits) returned `true` for it.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether a number is a reference to a pool that exists or existed, or to the global heap.
    /// Searches all pools.
    #[doc(hidden)]
    #[must_use]
    pub fn are_valid_bits(bits: u64) -> bool {
        bits == 0 || PoolShared::is_reference(bits)
    }

    /// Whether allocation takes from a pool: the pool exists, and belongs to the calling thread.
    #[inline]
    #[must_use]
    pub fn is_usable(self) -> bool {
        self.usable_pool().is_some()
    }

    /// The pool's setting, if the pool can be used. Otherwise the global heap allocates, which has
    /// no such setting and returns the error.
    pub(super) fn on_refusal(self) -> OnRefusal {
        self.usable_pool().map_or(OnRefusal::ReturnError, |shared| shared.on_refusal.get())
    }

    #[inline(always)]
    pub(super) fn alloc_or<F: OnFailure>(self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        self.try_alloc_layout(layout).map_err(F::fail)
    }

    /// Takes a free block if the fast path finds one; otherwise the caller takes its slow path. For
    /// the C interface, which has a slow path of its own.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn alloc_fast(self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: `usable_pool` returns a pool only to the thread that owns it.
        self.usable_pool().and_then(|shared| unsafe { shared.alloc_from_list(layout) })
    }

    /// As [`alloc_fast`](Self::alloc_fast), from the thread's current pool.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn alloc_fast_in_current(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: a thread owns its current pool.
        PoolShared::current().and_then(|shared| unsafe { shared.alloc_from_list(layout) })
    }

    #[inline(never)]
    fn alloc_slow(self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        match self.usable_pool() {
            // SAFETY: `usable_pool` returns a pool only to the thread that owns it.
            Some(shared) => match unsafe { shared.alloc::<ReturnError>(layout) } {
                Err(error) if is_for_global_heap(shared, error) => {
                    // SAFETY: as above.
                    unsafe { shared.count_refused(layout.size()) };
                    global_alloc(layout)
                }
                result => result,
            },
            None => global_alloc(layout),
        }
    }

    /// Frees a block of any pool or of the global heap, on any thread and at any time.
    ///
    /// On the owning thread the block goes back to its pool at once. On another thread it goes on
    /// the pool's remote list by one atomic exchange. If the freeing thread is inside a pool of its
    /// own, blocks of up to 32 KiB are sent in batches of 32 that belong to the same pool. A
    /// smaller batch is sent when the thread frees a block of a third pool, when an allocation
    /// takes the slow path, or when the thread leaves its own pool.
    ///
    /// # Safety
    /// The block came from a `PoolRef`, a [`LocalPool`](crate::LocalPool), or the program's global
    /// allocator, with this layout (or was resized to it), has not been freed, and is not used
    /// again.
    #[inline]
    pub unsafe fn free_anywhere(block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe {
            match PoolShared::of_block(block) {
                Some(shared) => free_pooled(shared, block, layout),
                None => global_free(block, layout),
            }
        }
    }

    /// Resizes a block and keeps its alignment.
    ///
    /// # Safety
    /// As for [`try_resize`](Self::try_resize).
    pub(super) unsafe fn resize_block(
        self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: passed on to the caller.
        unsafe {
            let Some(owner) = PoolShared::of_block(block) else {
                return global_resize(block, old, new_size);
            };
            let is_own = owner.is_owned_by_this_thread();
            if is_own {
                match owner.resize(block, old, new_size) {
                    Err(error) if is_for_global_heap(owner, error) => {}
                    result => return result,
                }
            }
            let fresh =
                self.try_alloc_layout(Layout::from_size_align_unchecked(new_size, old.align()))?;
            // This reference's own pool counts what `try_alloc_layout` does not get from it.
            if is_own && self.usable_pool().is_none_or(|shared| !ptr::eq(shared, owner)) {
                owner.count_refused_growth(fresh, new_size);
            }
            fresh.copy_from_nonoverlapping(block, old.size().min(new_size));
            free_pooled(owner, block, old);
            Ok(fresh)
        }
    }
}

layout_calls! {
    impl[] PoolRef, [] self;
    /// It comes from the pool, or from the global heap where the pool cannot be used.
    alloc_layout;
    try_alloc_layout {
        /// Fallible version of [`alloc_layout`](Self::alloc_layout).
        ///
        /// # Errors
        /// When the pool's budget or the system refuses memory, or the size exceeds the address
        /// space.
        #[inline]
        pub fn try_alloc_layout(self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
            match self.alloc_fast(layout) {
                Some(block) => Ok(block),
                // Matched and rebuilt: if the call's result were returned as it is, the fast path
                // above would return through memory too.
                None => match self.alloc_slow(layout) {
                    Ok(block) => Ok(block),
                    Err(error) => Err(error),
                },
            }
        }
    }
    /// Same as [`free_anywhere`](Self::free_anywhere): the block may be of any pool or of the
    /// global heap.
    free_layout;
    /// The block stays with its owner if that is the global heap or a pool of the calling thread,
    /// and if the alignment stays. Otherwise the contents are copied to a block that this reference
    /// allocates. The block may be of any pool or of the global heap.
    resize;
}

/// Whether the global heap serves what a pool has refused: the address range of all pools is used
/// up, or the process cannot reserve or map memory for it, or the pool's builder said so.
fn is_for_global_heap(shared: &PoolShared, error: AllocError) -> bool {
    match error.kind() {
        ErrorKind::LimitReached | ErrorKind::SourceRefused | ErrorKind::System(_) => true,
        ErrorKind::BudgetExceeded => shared.on_refusal.get() == OnRefusal::UseGlobalHeap,
        _ => false,
    }
}

/// Frees a block of a pool.
///
/// # Safety
/// The block belongs to this pool, was allocated with a layout of this size class, and has not been
/// freed.
#[inline(always)]
pub(super) unsafe fn free_pooled(shared: &PoolShared, block: NonNull<u8>, layout: Layout) {
    // SAFETY: passed on to the caller. A thread owns its current pool.
    unsafe {
        if shared.is_current() {
            shared.free(block, layout);
        } else {
            PoolShared::free_on_any_thread(block, layout.size(), layout.align(), shared);
        }
    }
}

impl Default for PoolRef {
    /// Returns the [`current`] pool.
    #[inline]
    fn default() -> Self {
        current()
    }
}

impl fmt::Debug for PoolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            f.write_str("PoolRef(global)")
        } else {
            write!(f, "PoolRef({:#x})", self.0)
        }
    }
}
