//! Blocks of malloc: the objects of pass-through mode.
//!
//! The invariants are those of `ledger.rs`.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::{GlobalAlloc, System};

use super::{CheckedAllocator, Ledger};
use crate::error::{AllocError, ErrorKind};

impl Ledger {
    /// Takes a malloc block for an object.
    pub(crate) fn take_malloc_block(
        &self,
        allocator: &impl CheckedAllocator,
        layout: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        let layout = malloc_layout(layout);
        let size = layout.size();
        allocator.charge(size)?;
        // SAFETY: the size is not zero.
        let Some(block) = NonNull::new(unsafe { System.alloc(layout) }) else {
            allocator.credit(size);
            return Err(AllocError::new(ErrorKind::SourceRefused, size));
        };
        if let Err(error) = allocator.note_malloc_block(block, size) {
            // SAFETY: allocated above with this layout, and not used.
            unsafe { System.dealloc(block.as_ptr(), layout) };
            allocator.credit(size);
            return Err(error);
        }
        Ok(block)
    }

    /// Frees the malloc block of an object.
    ///
    /// # Safety
    /// It came from [`take_malloc_block`](Self::take_malloc_block) with this layout, or was resized
    /// to it. It is freed once, and nothing refers to it. The caller keeps the allocator alive
    /// until this returns, also if this was its last block.
    pub(crate) unsafe fn free_malloc_block(
        &self,
        allocator: &impl CheckedAllocator,
        block: NonNull<u8>,
        layout: Layout,
    ) {
        let layout = malloc_layout(layout);
        allocator.forget_malloc_block(block, layout.size());
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(block.as_ptr(), layout) };
        allocator.credit(layout.size());
    }
}

/// The layout of the malloc block of an object: at least one byte.
fn malloc_layout(layout: Layout) -> Layout {
    Layout::from_size_align(layout.size().max(1), layout.align()).unwrap_or(layout)
}
