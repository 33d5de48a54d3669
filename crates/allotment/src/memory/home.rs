//! `Home`: where the memory of a value that grows comes from, an arena, a reap or a pool.

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::error::{AllocError, OnFailure, Report};

/// Memory of any layout, one block at a time, for the collections of this library and of others.
///
/// A copy is the same home.
///
/// # Safety
/// A block is valid for `layout.size()` bytes at `layout.align()`, nobody else's, and stays so until it is freed, or what the
/// home borrows ends. Nothing unwinds.
pub(crate) unsafe trait Home: Copy {
    /// A block for this layout, uninitialised. One of size zero may be dangling.
    fn alloc<F: OnFailure>(self, layout: Layout) -> Result<NonNull<u8>, F::Error>;

    /// The same, zeroed.
    #[cfg_attr(
        not(any(
            feature = "allocator-api2-02",
            feature = "allocator-api2-03",
            feature = "allocator-api2-04",
            feature = "nightly-allocator-api",
        )),
        allow(dead_code, reason = "the `Allocator` traits alone ask for it")
    )]
    #[inline]
    fn alloc_zeroed(self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let block = self.alloc::<Report>(layout)?;
        // SAFETY: the block is ours and so long.
        unsafe { block.write_bytes(0, layout.size()) };
        Ok(block)
    }

    /// Frees a block.
    ///
    /// # Safety
    /// It came from this home with this layout, or was resized to it, was not freed since, and is not used any more.
    unsafe fn free(self, block: NonNull<u8>, layout: Layout);

    /// Gives a block another layout; its first bytes stay. On an error it is as it was.
    ///
    /// # Safety
    /// As for [`free`](Self::free), of the old one.
    unsafe fn resize<F: OnFailure>(
        self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, F::Error>;

    /// The same by a copy, for who knows no better.
    ///
    /// # Safety
    /// As for [`resize`](Self::resize).
    #[cold]
    unsafe fn move_to<F: OnFailure>(
        self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        let moved = self.alloc::<F>(new)?;
        // SAFETY: two blocks, so long, of which the caller gives the old one up.
        unsafe {
            moved.copy_from_nonoverlapping(block, old.size().min(new.size()));
            self.free(block, old);
        }
        Ok(moved)
    }
}
