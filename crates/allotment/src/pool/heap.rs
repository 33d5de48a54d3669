//! `Heap`: the interface that malloc-like allocators share, and the program's own heap.

use core::alloc::Layout;
use core::ptr::{self, NonNull};

use super::current::Entered;
use crate::error::{AllocError, ErrorKind};

/// Identifies a heap. Two heaps that exist at the same time have different identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeapId(pub(super) u64);

impl HeapId {
    /// Makes an identifier for a user's own heap from its address.
    #[must_use]
    pub fn of_address<T: ?Sized>(heap: &T) -> Self {
        Self(ptr::from_ref(heap).addr() as u64)
    }

    /// Returns the number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

/// An allocator of blocks of any layout: a general-purpose heap, a pool, or a user's own type.
///
/// The trait is object-safe. An implementation has to write only the hook [`alloc`](Self::alloc);
/// without its own [`free`](Self::free) it frees its blocks when it ends. Callers use
/// [`malloc`](Self::malloc), [`calloc`](Self::calloc), [`realloc`](Self::realloc) and
/// [`free`](Self::free).
///
/// After the `Allocator` class of the *Thread-local Memory Pool* pattern.
///
/// ```
/// use allotment::{AllocError, Arena, Heap};
/// use core::alloc::Layout;
/// use core::ptr::NonNull;
///
/// struct OneWay(Arena);
///
/// // SAFETY: an arena's blocks stay valid as long as it, and it lives as long as the heap.
/// unsafe impl Heap for OneWay {
///     fn alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
///         self.0.try_alloc_layout(layout)
///     }
/// }
///
/// let heap: &dyn Heap = &OneWay(Arena::new());
/// let zeros = heap.calloc(3, Layout::new::<u64>()).unwrap();
/// // SAFETY: 24 bytes, zeroed.
/// assert_eq!(unsafe { zeros.cast::<[u64; 3]>().read() }, [0; 3]);
/// ```
///
/// # Safety
/// A block that [`alloc`](Self::alloc) returns is valid for reads and writes of `layout.size()`
/// bytes at `layout.align()`, is used by nothing else, and stays so until it is freed or the heap
/// ends. An overridden method keeps the contract of the default one. [`id`](Self::id) returns the
/// same value as long as the heap exists.
pub unsafe trait Heap {
    /// The hook: allocates an uninitialised block for this layout. The size is not zero.
    ///
    /// # Errors
    /// When no block is available. The heap is then unchanged.
    fn alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError>;

    /// Frees a block. The default does nothing: the block stays until the heap ends.
    ///
    /// # Safety
    /// The block came from this heap with this layout, has not been freed, and is not used again.
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        let _ = (block, layout);
    }

    /// Returns the identifier of this heap, by default made from its address.
    fn id(&self) -> HeapId {
        HeapId::of_address(self)
    }

    /// Allocates an uninitialised block for this layout. For size zero the result is a dangling
    /// pointer, which must not be passed to `free`.
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc).
    fn malloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if layout.size() == 0 {
            let dangling = ptr::without_provenance_mut(layout.align());
            return Ok(NonNull::new(dangling).expect("an alignment is not zero"));
        }
        self.alloc(layout)
    }

    /// Allocates zeroed memory for `count` consecutive values of this layout.
    ///
    /// # Errors
    /// When the total size overflows; otherwise as for [`alloc`](Self::alloc).
    fn calloc(&self, count: usize, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let size = layout.pad_to_align().size().checked_mul(count).ok_or(overflow)?;
        let whole = Layout::from_size_align(size, layout.align()).map_err(|_| overflow)?;
        let block = self.malloc(whole)?;
        // SAFETY: the block is new and has `size` bytes.
        unsafe { block.write_bytes(0, size) };
        Ok(block)
    }

    /// Resizes a block at the same alignment. The contents are kept up to the smaller of the two
    /// sizes. The default copies the block.
    ///
    /// # Errors
    /// When no such block is available, or its size overflows. The old block is then unchanged.
    ///
    /// # Safety
    /// As for [`free`](Self::free), with the old layout. Neither size is zero.
    unsafe fn realloc(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        let new = Layout::from_size_align(new_size, old.align())
            .map_err(|_| AllocError::new(ErrorKind::SizeOverflow, new_size))?;
        let fresh = self.alloc(new)?;
        // SAFETY: two different blocks, both of at least as many bytes as are copied.
        unsafe {
            fresh.copy_from_nonoverlapping(block, old.size().min(new_size));
            self.free(block, old);
        }
        Ok(fresh)
    }
}

// ---- the global heap: the program's allocator, outside every pool ----

#[cold]
#[inline(never)]
pub(super) fn global_alloc(layout: Layout) -> Result<NonNull<u8>, AllocError> {
    let _outside = Entered::new(ptr::null());
    // SAFETY: the size is not zero.
    let block = unsafe { std::alloc::alloc(no_zero(layout)) };
    NonNull::new(block).ok_or(AllocError::new(ErrorKind::SourceRefused, layout.size()))
}

/// # Safety
/// The block belongs to the global heap, was allocated with this layout, and has not been freed.
#[cold]
#[inline(never)]
pub(super) unsafe fn global_free(block: NonNull<u8>, layout: Layout) {
    let _outside = Entered::new(ptr::null());
    // SAFETY: passed on to the caller.
    unsafe { std::alloc::dealloc(block.as_ptr(), no_zero(layout)) }
}

/// # Safety
/// As for [`global_free`]; the new size is valid for the alignment.
#[cold]
#[inline(never)]
pub(super) unsafe fn global_resize(
    block: NonNull<u8>,
    old: Layout,
    new_size: usize,
) -> Result<NonNull<u8>, AllocError> {
    let _outside = Entered::new(ptr::null());
    // SAFETY: passed on to the caller; the size is not zero.
    let block = unsafe { std::alloc::realloc(block.as_ptr(), no_zero(old), new_size.max(1)) };
    NonNull::new(block).ok_or(AllocError::new(ErrorKind::SourceRefused, new_size))
}

/// The layout with a size of at least one byte: the global allocator accepts no size of zero.
fn no_zero(layout: Layout) -> Layout {
    Layout::from_size_align(layout.size().max(1), layout.align()).unwrap_or(layout)
}
