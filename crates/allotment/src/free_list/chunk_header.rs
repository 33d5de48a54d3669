//! The layout of a chunk: its header, and the objects after it.
//!
//! ```text
//! │ListChunkHeader│pad│object│object│object│ ... │object│ less than an object │
//! start               first       (stride bytes apart)                       start + size
//! ```

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::chains::ListLink;
use crate::error::{AllocError, ErrorKind};
use crate::memory::layout::{CACHE_LINE, align_up, checked_align_up};

/// What messages call a list.
pub(super) const KIND: &str = "free list";

/// The sizes of a list's objects, which never change.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectSizes {
    /// The layout as the caller requested it.
    pub layout: Layout,
    /// The alignment of an object, at least a link's.
    pub align: usize,
    /// The bytes from one object to the next, at least a link's.
    pub stride: usize,
}

impl ObjectSizes {
    /// The sizes for objects of this layout. `slot` is the layout of the memory that one object
    /// takes: the same, or a larger one with a red zone. `None` if that overflows.
    pub(super) fn new(layout: Layout, slot: Option<Layout>) -> Result<Self, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let slot = slot.ok_or(overflow)?;
        let align = slot.align().max(align_of::<ListLink>());
        let stride = checked_align_up(slot.size().max(size_of::<ListLink>()), align);
        let stride = stride.filter(|stride| *stride <= isize::MAX as usize).ok_or(overflow)?;
        Ok(Self { layout, align, stride })
    }

    /// The address that stands for no object.
    pub(super) fn dangling(&self) -> NonNull<u8> {
        NonNull::new(ptr::without_provenance_mut(self.align)).expect("a power of two")
    }

    /// The bytes before the first object of a chunk that starts at this address.
    pub(super) fn bytes_before_objects(&self, start: usize) -> usize {
        align_up(start + HEADER, self.align) - start
    }
}

/// The first bytes of each chunk.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct ListChunkHeader {
    pub next: Cell<*mut ListChunkHeader>,
    pub size: usize,
    pub align: usize,
    pub mapping: u32,
    pub objects: usize,
}

pub(super) const HEADER: usize = size_of::<ListChunkHeader>();
const _: () = assert!(HEADER == CACHE_LINE);

/// A chunk as its header describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListChunk {
    pub header: NonNull<ListChunkHeader>,
    /// The chunk's first object.
    pub first: NonNull<u8>,
    pub objects: usize,
    pub size: usize,
}

impl ListChunk {
    /// # Safety
    /// The header belongs to a chunk of a list with these sizes.
    pub(super) unsafe fn at(header: NonNull<ListChunkHeader>, sizes: &ObjectSizes) -> Self {
        // SAFETY: guaranteed by the caller. The objects lie in the chunk's block (chunks.rs,
        // invariant 1).
        unsafe {
            let before = sizes.bytes_before_objects(header.addr().get());
            let first = header.cast::<u8>().add(before);
            Self { header, first, objects: header.as_ref().objects, size: header.as_ref().size }
        }
    }
}
