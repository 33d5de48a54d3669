//! What the calls of arenas, reaps, pools and references to pools have in common: blocks of any
//! size, with the size that the caller knows or with a header that stores it.
//!
//! The invariants are those of lib.rs, handle.rs and, for blocks that store their size,
//! sized_blocks.rs.

use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr::NonNull;

use allotment::{AllocError, Arena, LocalPool, PoolRef, Reap};

use crate::error::{FailedCall, or_abort};
use crate::handle::{self, HandleBox, HandleTarget};
use crate::layouts::{fast_layout, layout_of};
use crate::sized_blocks::{BlockShape, OwnerKey};

/// An allocator of the library that resizes blocks.
pub(crate) trait BlockMemory {
    fn alloc_block(&self, layout: Layout) -> Result<NonNull<u8>, AllocError>;

    /// # Safety
    /// As for the allocator's `try_resize`.
    unsafe fn resize_block(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, AllocError>;
}

macro_rules! block_memory {
    ($($allocator:ty),*) => {$(
        impl BlockMemory for $allocator {
            #[inline(always)]
            fn alloc_block(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
                self.try_alloc_layout(layout)
            }

            #[inline(always)]
            unsafe fn resize_block(
                &self,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<u8>, AllocError> {
                // SAFETY: passed on to the caller.
                unsafe { self.try_resize(block, old, new) }
            }
        }
    )*};
}

block_memory!(Arena, Reap, LocalPool, PoolRef);

/// Resizes a block, or allocates one if it is NULL.
///
/// # Safety
/// The block is NULL, or as for the allocator's `try_resize` with this size and alignment.
pub(crate) unsafe fn resize_in(
    memory: &impl BlockMemory,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
    align: usize,
) -> Result<NonNull<u8>, AllocError> {
    let new = layout_of(new_size, align)?;
    let Some(block) = NonNull::new(block) else { return memory.alloc_block(new) };
    let old = layout_of(old_size, align)?;
    // SAFETY: passed on to the caller.
    unsafe { memory.resize_block(block.cast(), old, new) }
}

/// A reap or a pool that C callers have a handle of.
pub(crate) trait BlockTarget: HandleTarget {
    type Memory: BlockMemory;

    fn memory(&self) -> &Self::Memory;

    /// The key of its blocks that store their size.
    fn key(&self) -> OwnerKey;

    /// A block, if the fast path finds one.
    fn alloc_fast(&self, layout: Layout) -> Option<NonNull<u8>>;

    /// # Safety
    /// As for the allocator's `free_layout`.
    unsafe fn free_block(&self, block: NonNull<u8>, layout: Layout);
}

/// Implements [`BlockTarget`] for the allocator in the field `$memory`.
macro_rules! block_target {
    ($target:ty, $memory:ident: $allocator:ty, $this:ident => $key:expr) => {
        impl BlockTarget for $target {
            type Memory = $allocator;

            #[inline(always)]
            fn memory(&self) -> &$allocator {
                &self.$memory
            }

            #[inline(always)]
            fn key(&self) -> OwnerKey {
                let $this = self;
                $key
            }

            #[inline(always)]
            fn alloc_fast(&self, layout: Layout) -> Option<NonNull<u8>> {
                self.$memory.alloc_fast(layout)
            }

            #[inline(always)]
            unsafe fn free_block(&self, block: NonNull<u8>, layout: Layout) {
                // SAFETY: passed on to the caller.
                unsafe { self.$memory.free_layout(block, layout) }
            }
        }
    };
}
pub(crate) use block_target;

// SAFETY, of every function below: the caller keeps the contract of the header.

/// A block, if the fast path finds one.
#[inline(always)]
pub(crate) unsafe fn alloc_fast<T: BlockTarget>(
    handle: *mut HandleBox<T>,
    size: usize,
    align: usize,
) -> Option<NonNull<u8>> {
    // SAFETY: as above.
    let this = unsafe { handle::get_fast(handle) }?;
    this.alloc_fast(fast_layout(size, align)?)
}

pub(crate) unsafe fn alloc<T: BlockTarget>(
    handle: *mut HandleBox<T>,
    size: usize,
    align: usize,
) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: as above.
    let this = unsafe { handle::get(handle) }?;
    let block = layout_of(size, align).and_then(|layout| this.memory().alloc_block(layout));
    block.map_err(|error| this.failed(error))
}

/// Frees a block of this size. Frees nothing if it is NULL.
#[inline(always)]
pub(crate) unsafe fn free_sized<T: BlockTarget>(
    handle: *mut HandleBox<T>,
    block: *mut c_void,
    size: usize,
    align: usize,
) {
    // SAFETY: as above.
    unsafe {
        if let Some(this) = handle::get_fast(handle) {
            if let Some(layout) = fast_layout(size, align) {
                if let Some(block) = NonNull::new(block) {
                    return this.free_block(block.cast(), layout);
                }
            }
        }
        free_slow(handle, block, size, align);
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_slow<T: BlockTarget>(
    handle: *mut HandleBox<T>,
    block: *mut c_void,
    size: usize,
    align: usize,
) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: as above.
    unsafe {
        let this = or_abort(handle::get(handle));
        let layout = or_abort(layout_of(size, align).map_err(|error| this.failed(error)));
        this.free_block(block.cast(), layout);
    }
}

pub(crate) unsafe fn resize<T: BlockTarget>(
    handle: *mut HandleBox<T>,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
    align: usize,
) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: as above.
    unsafe {
        let this = handle::get(handle)?;
        let resized = resize_in(this.memory(), block, old_size, new_size, align);
        resized.map_err(|error| this.failed(error))
    }
}

/// A block that stores its size.
pub(crate) unsafe fn malloc<T: BlockTarget>(
    handle: *mut HandleBox<T>,
    size: usize,
) -> Result<NonNull<c_void>, FailedCall> {
    // SAFETY: as above. The block has the layout that `write_header` needs.
    unsafe {
        let this = handle::get(handle)?;
        let shape = BlockShape::with_default_align(size).map_err(|error| this.failed(error))?;
        let start = match this.alloc_fast(shape.layout()) {
            Some(start) => start,
            None => {
                let block = this.memory().alloc_block(shape.layout());
                block.map_err(|error| this.failed(error))?
            }
        };
        Ok(shape.write_header(start, this.key()))
    }
}
