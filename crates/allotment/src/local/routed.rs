//! `Routed`: the pool that a thread has entered, as its global allocator.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::GlobalAlloc;

use super::core::{CURRENT, Core};
use super::pool_ref::free_in_region;
use crate::error::Report;
use crate::memory::region;

/// A global allocator that sends what a thread allocates inside of [`LocalPool::enter`](crate::LocalPool::enter) to the pool, and
/// everything else to `G`. No code changes: inside, the thread's ordinary `Box`, `Vec`, `String` and `HashMap` are the pool's.
///
/// ```
/// use allotment::{LocalPool, Routed};
/// use std::alloc::System;
///
/// #[global_allocator]
/// static GLOBAL: Routed<System> = Routed::new(System);
///
/// let pool = LocalPool::new();
/// let kept = pool.enter(|| vec![1, 2, 3]);
/// assert!(LocalPool::any_holds(kept.as_ptr()));
/// drop(pool);
/// assert_eq!(kept, [1, 2, 3]); // what escapes stays valid
/// ```
///
/// A free finds the owner by address, on any thread, at any time; a block that grows stays with its owner, where that is a pool of
/// the calling thread, or `G`. What the pool refuses (its budget is used up, say) comes from `G`. Outside of a pool an allocation
/// costs one look at a thread-local more than `G`'s, a free one comparison of ranges. Nothing here allocates: slow paths take memory from
/// the system alone, or do their work outside of the pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Routed<G> {
    inner: G,
}

impl<G> Routed<G> {
    /// Routes to `inner` what no pool takes.
    pub const fn new(inner: G) -> Self {
        Self { inner }
    }
}

// SAFETY: each block comes from a pool or from `inner`, and goes back there: blocks of pools lie in the region, those of
// `inner` do not, which has no memory there. Pools and `inner` keep the contract each for itself.
unsafe impl<G: GlobalAlloc> GlobalAlloc for Routed<G> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let current = CURRENT.with(core::cell::Cell::get);
        if !current.is_null() {
            // SAFETY: the current core is that of a pool of this thread.
            if let Ok(block) = unsafe { Core::at(current).alloc::<Report>(layout) } {
                return block.as_ptr();
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.inner.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let current = CURRENT.with(core::cell::Cell::get);
        if !current.is_null() {
            // SAFETY: as in `alloc`; the block is so long.
            unsafe {
                if let Ok(block) = Core::at(current).alloc::<Report>(layout) {
                    block.write_bytes(0, layout.size());
                    return block.as_ptr();
                }
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.inner.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on to the caller; a block is not null.
        unsafe {
            if region::contains(block.addr()) {
                free_in_region(NonNull::new_unchecked(block), layout);
            } else {
                self.inner.dealloc(block, layout);
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: passed on to the caller.
        unsafe {
            if region::contains(block.addr()) {
                self.realloc_in_region(NonNull::new_unchecked(block), old, new_size)
            } else {
                self.inner.realloc(block, old, new_size)
            }
        }
    }
}

impl<G: GlobalAlloc> Routed<G> {
    /// # Safety
    /// As for `realloc`, of a block in the region.
    #[inline(never)]
    unsafe fn realloc_in_region(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> *mut u8 {
        let owner = Core::of(block);
        // SAFETY: passed on to the caller.
        unsafe {
            if owner.is_mine() {
                if let Ok(block) = owner.resize(block, old, new_size) {
                    return block.as_ptr();
                }
            }
            let fresh = self.alloc(Layout::from_size_align_unchecked(new_size, old.align()));
            if let Some(fresh) = NonNull::new(fresh) {
                fresh.copy_from_nonoverlapping(block, old.size().min(new_size));
                free_in_region(block, old);
            }
            fresh
        }
    }
}
