//! `Heap`: what malloc-like things share, and the program's own heap as one.

use core::alloc::Layout;
use core::ptr::{self, NonNull};

use super::current::Entered;
use crate::error::{AllocError, ErrorKind};

/// What a heap is told apart by. Two heaps that live at the same time have different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeapId(pub(super) u64);

impl HeapId {
    /// An identifier of a user's own heap, made from its address.
    #[must_use]
    pub fn of_address<T: ?Sized>(heap: &T) -> Self {
        Self(ptr::from_ref(heap).addr() as u64)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

/// Memory of any layout, one block at a time: the interface of a general-purpose heap, of a pool, of a user's own.
///
/// Object-safe. The one thing that has to be written is the hook [`alloc`](Self::alloc): without a [`free`](Self::free) of its own a
/// heap frees its blocks when it ends. Callers use [`malloc`](Self::malloc) and the others.
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
/// A block that [`alloc`](Self::alloc) returns is valid for reads and writes of `layout.size()` bytes at `layout.align()`, nobody
/// else's, and stays so until it is freed, or the heap ends. What is overridden keeps the contract of what it stands for.
/// [`id`](Self::id) gives the same answer as long as the heap lives.
pub unsafe trait Heap {
    /// The hook: a block for this layout, uninitialised. The size is not zero.
    ///
    /// # Errors
    /// When there is none; the heap is then as it was.
    fn alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError>;

    /// Frees a block. If a heap has no way to do that, it does nothing, and the block lives until the heap ends.
    ///
    /// # Safety
    /// The block came from this heap with this layout, was not freed since, and is not used any more.
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        let _ = (block, layout);
    }

    /// What tells this heap apart: by default its address.
    fn id(&self) -> HeapId {
        HeapId::of_address(self)
    }

    /// A block for this layout, uninitialised; for size zero a dangling one, which `free` must not see.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    fn malloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if layout.size() == 0 {
            let dangling = ptr::without_provenance_mut(layout.align());
            return Ok(NonNull::new(dangling).expect("an alignment is not zero"));
        }
        self.alloc(layout)
    }

    /// A block for so many values of this layout one behind the other, its bytes zero.
    ///
    /// # Errors
    /// When the product overflows; as [`alloc`](Self::alloc).
    fn calloc(&self, count: usize, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let size = layout.pad_to_align().size().checked_mul(count).ok_or(overflow)?;
        let whole = Layout::from_size_align(size, layout.align()).map_err(|_| overflow)?;
        let block = self.malloc(whole)?;
        // SAFETY: the block is ours and so long.
        unsafe { block.write_bytes(0, size) };
        Ok(block)
    }

    /// Gives a block another size at the same alignment; its first bytes stay. By default it is copied.
    ///
    /// # Errors
    /// When there is no such block, or its size overflows; the old one is then as it was.
    ///
    /// # Safety
    /// As for [`free`](Self::free), of the old block; neither size is zero.
    unsafe fn realloc(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        let new = Layout::from_size_align(new_size, old.align())
            .map_err(|_| AllocError::new(ErrorKind::SizeOverflow, new_size))?;
        let fresh = self.alloc(new)?;
        // SAFETY: two blocks of the caller's, and so long.
        unsafe {
            fresh.copy_from_nonoverlapping(block, old.size().min(new_size));
            self.free(block, old);
        }
        Ok(fresh)
    }
}

// ---- the global heap: the program's allocator, outside of every pool ----

#[cold]
#[inline(never)]
pub(super) fn global_alloc(layout: Layout) -> Result<NonNull<u8>, AllocError> {
    let _outside = Entered::new(ptr::null());
    // SAFETY: the size is not zero.
    let block = unsafe { std::alloc::alloc(no_zero(layout)) };
    NonNull::new(block).ok_or(AllocError::new(ErrorKind::SourceRefused, layout.size()))
}

/// # Safety
/// The block is the global heap's, with this layout, live until now.
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

/// The global allocator takes no size of zero.
fn no_zero(layout: Layout) -> Layout {
    Layout::from_size_align(layout.size().max(1), layout.align()).unwrap_or(layout)
}
