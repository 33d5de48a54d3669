//! `Routed`: a global allocator that prefers the thread's current pool.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::GlobalAlloc;

use super::current::CURRENT;
use super::pool_ref::free_pooled;
use super::shared::Shared;

/// A global allocator that takes memory from the thread's current pool inside
/// [`LocalPool::enter`](crate::LocalPool::enter), and from `G` everywhere else. No code changes:
/// inside, the thread's ordinary `Box`, `Vec`, `String` and `HashMap` use the pool.
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
/// A free finds the owner by the block's address, on any thread and at any time. A block that grows
/// stays with its owner if that is `G` or a pool of the calling thread. If the pool refuses an
/// allocation, for example because its budget is used up, `G` serves it.
///
/// Outside every pool an allocation costs one read of a thread-local more than `G`'s, and a free
/// one range check more. The routing itself never allocates from the current pool: slow paths take
/// memory from the system, or run outside the pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Routed<G> {
    inner: G,
}

impl<G> Routed<G> {
    /// Creates an allocator that sends to `inner` every allocation that no pool takes.
    pub const fn new(inner: G) -> Self {
        Self { inner }
    }
}

// SAFETY: each block comes from a pool or from `inner`, and goes back there. The two can be told
// apart: blocks of pools lie in the region, and `inner` has no memory in the region's granules that
// a pool owns. The pools and `inner` each keep the contract of `GlobalAlloc`.
unsafe impl<G: GlobalAlloc> GlobalAlloc for Routed<G> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let current = CURRENT.with(core::cell::Cell::get);
        if !current.is_null() {
            // SAFETY: the current core belongs to a pool of this thread.
            unsafe {
                let core = Shared::at(current);
                if let Some(block) = core.alloc_free(layout) {
                    return block.as_ptr();
                }
                return Self::alloc_new(layout.size(), layout.align(), core, &self.inner);
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.inner.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let current = CURRENT.with(core::cell::Cell::get);
        if !current.is_null() {
            // SAFETY: as in `alloc`; the block has at least `layout.size()` bytes.
            unsafe {
                let core = Shared::at(current);
                let block = core.alloc_free(layout).or_else(|| core.alloc_or_none(layout));
                if let Some(block) = block {
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
            let pointer = NonNull::new_unchecked(block);
            match Shared::of(pointer) {
                Some(core) => free_pooled(core, pointer, layout),
                None => self.inner.dealloc(block, layout),
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: passed on to the caller.
        unsafe {
            let pointer = NonNull::new_unchecked(block);
            match Shared::of(pointer) {
                Some(core) => self.realloc_pooled(core, pointer, old, new_size),
                None => self.inner.realloc(block, old, new_size),
            }
        }
    }
}

impl<G: GlobalAlloc> Routed<G> {
    /// The first parameters are those of a global allocator, in the same order, so that the caller
    /// passes them on without moving registers.
    ///
    /// # Safety
    /// As for `alloc`, with the core of a pool of this thread.
    #[inline(never)]
    unsafe fn alloc_new(size: usize, align: usize, core: &Shared, inner: &G) -> *mut u8 {
        // SAFETY: passed on to the caller.
        unsafe {
            let layout = Layout::from_size_align_unchecked(size, align);
            match core.alloc_or_none(layout) {
                Some(block) => block.as_ptr(),
                None => inner.alloc(layout),
            }
        }
    }

    /// # Safety
    /// As for `realloc`, with a block of this core.
    #[inline(never)]
    unsafe fn realloc_pooled(
        &self,
        owner: &Shared,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> *mut u8 {
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
                free_pooled(owner, block, old);
            }
            fresh
        }
    }
}
