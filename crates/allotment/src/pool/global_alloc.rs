//! `PoolGlobalAlloc`: a global allocator that prefers the thread's current pool.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::GlobalAlloc;

use super::pool_ref::free_pooled;
use super::shared::PoolShared;

/// A global allocator that takes memory from the thread's current pool inside
/// [`LocalPool::enter`](crate::LocalPool::enter), and from `G` everywhere else. No code changes:
/// inside, the thread's ordinary `Box`, `Vec`, `String` and `HashMap` use the pool.
///
/// ```
/// use allotment::{LocalPool, PoolGlobalAlloc};
/// use std::alloc::System;
///
/// #[global_allocator]
/// static GLOBAL: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);
///
/// let pool = LocalPool::new();
/// let numbers = pool.enter(|| vec![1, 2, 3]);
/// assert!(LocalPool::any_holds(numbers.as_ptr()));
/// drop(pool);
/// assert_eq!(numbers, [1, 2, 3]); // what outlives the pool stays valid
/// ```
///
/// A free finds the owner by the block's address, on any thread and at any time. A block that grows
/// stays with its owner if that is `G` or a pool of the calling thread. If the pool refuses an
/// allocation, for example because its budget is used up, `G` serves it: a global allocator must
/// not unwind, and its callers end the process if it returns null. So the budget limits the pool,
/// but not what the task allocates; [`LocalPool::refused_bytes`](crate::LocalPool::refused_bytes)
/// counts the bytes that `G` served instead. [`PoolVec`](crate::PoolVec) and the other collections
/// of this library panic instead, unless the builder's `on_refusal` says
/// [`UseGlobalHeap`](crate::OnRefusal::UseGlobalHeap).
///
/// Outside every pool an allocation costs one read of a thread-local more than `G`'s, and a free
/// one range check more. The library itself never allocates from the current pool through this
/// allocator: its slow paths take memory from the system, or run outside the pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolGlobalAlloc<G> {
    fallback: G,
}

impl<G> PoolGlobalAlloc<G> {
    /// Creates an allocator that sends to `fallback` every allocation that no pool serves.
    pub const fn new(fallback: G) -> Self {
        Self { fallback }
    }
}

// SAFETY: each block comes from a pool or from `fallback`, and goes back there. The address tells
// which: blocks of pools lie in the region, and `fallback` has no memory in the region's granules
// that a pool owns. The pools and `fallback` each keep the contract of `GlobalAlloc`.
unsafe impl<G: GlobalAlloc> GlobalAlloc for PoolGlobalAlloc<G> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some(current) = PoolShared::current() {
            // SAFETY: a thread owns its current pool.
            unsafe {
                if let Some(block) = current.alloc_from_list(layout) {
                    return block.as_ptr();
                }
                return Self::alloc_slow(layout.size(), layout.align(), current, &self.fallback);
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.fallback.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if let Some(current) = PoolShared::current() {
            // SAFETY: as in `alloc`.
            unsafe {
                if let Some(block) = current.alloc_zeroed_or_none(layout) {
                    return block.as_ptr();
                }
                current.count_refused(layout.size());
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.fallback.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on to the caller; a block is not null.
        unsafe {
            let pointer = NonNull::new_unchecked(block);
            match PoolShared::of_block(pointer) {
                Some(shared) => free_pooled(shared, pointer, layout),
                None => self.fallback.dealloc(block, layout),
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: passed on to the caller.
        unsafe {
            let pointer = NonNull::new_unchecked(block);
            match PoolShared::of_block(pointer) {
                Some(shared) => self.realloc_pooled(shared, pointer, old, new_size),
                None => self.fallback.realloc(block, old, new_size),
            }
        }
    }
}

impl<G: GlobalAlloc> PoolGlobalAlloc<G> {
    /// The first parameters are those of a global allocator, in the same order, so that the caller
    /// passes them on without moving registers.
    ///
    /// # Safety
    /// As for `alloc`, with a pool of this thread.
    #[inline(never)]
    unsafe fn alloc_slow(size: usize, align: usize, current: &PoolShared, fallback: &G) -> *mut u8 {
        // SAFETY: passed on to the caller.
        unsafe {
            let layout = Layout::from_size_align_unchecked(size, align);
            match current.alloc_or_none(layout) {
                Some(block) => block.as_ptr(),
                None => {
                    current.count_refused(size);
                    fallback.alloc(layout)
                }
            }
        }
    }

    /// # Safety
    /// As for `realloc`, with a block of this pool.
    #[inline(never)]
    unsafe fn realloc_pooled(
        &self,
        owner: &PoolShared,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> *mut u8 {
        // SAFETY: passed on to the caller.
        unsafe {
            let is_own = owner.is_owned_by_this_thread();
            if is_own {
                if let Ok(block) = owner.resize(block, old, new_size) {
                    return block.as_ptr();
                }
            }
            let fresh = self.alloc(Layout::from_size_align_unchecked(new_size, old.align()));
            if let Some(fresh) = NonNull::new(fresh) {
                // The current pool counts what `alloc` does not get from it.
                if is_own && !owner.is_current() {
                    owner.count_refused_growth(fresh, new_size);
                }
                fresh.copy_from_nonoverlapping(block, old.size().min(new_size));
                free_pooled(owner, block, old);
            }
            fresh
        }
    }
}
