//! `BlockSource`: where a collection's memory comes from.

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::error::{AllocError, OnFailure, OnRefusal, ReturnError};

/// What a collection allocates from: `&Arena`, [`PoolRef`](crate::PoolRef),
/// [`Sealer`](crate::Sealer), `&Reap` or `&LocalPool`.
///
/// A copy allocates from the same memory. Other crates can't implement this trait.
///
/// # Safety
/// A block is valid for `layout.size()` bytes at `layout.align()`, and overlaps no other memory in
/// use. It stays so until it is freed, or until what the source borrows ends. A call that unwinds
/// has changed nothing that its caller holds. `free` does not unwind.
pub unsafe trait BlockSource: Copy {
    /// An uninitialised block of this layout. A block of size zero may be dangling.
    #[doc(hidden)]
    fn alloc<F: OnFailure>(self, layout: Layout) -> Result<NonNull<u8>, F::Error>;

    /// As [`alloc`](Self::alloc), but zeroed.
    #[doc(hidden)]
    #[inline]
    fn alloc_zeroed(self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let block = self.alloc::<ReturnError>(layout)?;
        // SAFETY: the block belongs to this call and has `layout.size()` bytes.
        unsafe { block.write_bytes(0, layout.size()) };
        Ok(block)
    }

    /// Frees a block.
    ///
    /// # Safety
    /// The block came from this source with this layout, or was last resized to it. It was not
    /// freed, and is not used any more.
    #[doc(hidden)]
    unsafe fn free(self, block: NonNull<u8>, layout: Layout);

    /// Gives a block another layout and keeps its first bytes. On an error the block is as it was.
    ///
    /// # Safety
    /// As for [`free`](Self::free), with the layout `old`.
    #[doc(hidden)]
    unsafe fn resize<F: OnFailure>(
        self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, F::Error>;

    /// What the `Allocator` traits do after an error other than a lack of memory.
    #[doc(hidden)]
    fn on_refusal(self) -> OnRefusal;

    /// Fallback for [`resize`](Self::resize): allocates a new block, copies, and frees the old
    /// block.
    ///
    /// # Safety
    /// As for [`resize`](Self::resize).
    #[doc(hidden)]
    #[cold]
    unsafe fn move_to<F: OnFailure>(
        self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        let moved = self.alloc::<F>(new)?;
        // SAFETY: two separate blocks, each at least that long; the caller gives up the old one.
        unsafe {
            moved.copy_from_nonoverlapping(block, old.size().min(new.size()));
            self.free(block, old);
        }
        Ok(moved)
    }
}
