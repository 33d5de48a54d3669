//! The layout of a chunk, and lists of chunks.
//!
//! ```text
//! │header│object│pad│object│ ... │ free │
//! start  first                          end
//! ```
//!
//! The invariants are those of `raw.rs`; the ones about chunks are 1 and 2.

use core::ptr::{self, NonNull};

/// The first bytes of each chunk. The header fills one cache line, so that the first object begins
/// on a cache line. If it were 16 bytes smaller, every object as large as a cache line would span
/// two.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct ArenaChunkHeader {
    pub prev: *mut ArenaChunkHeader,
    pub size: usize,
    pub align: usize,
    pub mapping: u32,
}

pub(super) const HEADER: usize = size_of::<ArenaChunkHeader>();

/// The first byte of a chunk that an object can have.
pub(super) fn first_of(chunk: NonNull<ArenaChunkHeader>) -> NonNull<u8> {
    // SAFETY: every chunk is larger than its header; `take_chunk` ensures it.
    unsafe { chunk.cast::<u8>().add(HEADER) }
}

/// The first byte after a chunk.
pub(super) fn end_of(chunk: NonNull<ArenaChunkHeader>) -> NonNull<u8> {
    // SAFETY: the arena holds the chunk, so its header can be read, and `size` bytes from its start
    // are one block (invariant 1).
    unsafe { chunk.cast::<u8>().add(chunk.as_ref().size) }
}

/// A list of chunks in the order in which they were appended.
pub(super) struct ChunkList {
    pub first: *mut ArenaChunkHeader,
    last: *mut ArenaChunkHeader,
    pub bytes: usize,
}

impl ChunkList {
    pub const EMPTY: Self = Self { first: ptr::null_mut(), last: ptr::null_mut(), bytes: 0 };

    /// # Safety
    /// The arena holds the chunk, which is `size` bytes long and on no other list.
    pub unsafe fn append(&mut self, chunk: NonNull<ArenaChunkHeader>, size: usize) {
        // SAFETY: guaranteed by the caller for the chunk; `last` is null or was appended before.
        unsafe {
            (*chunk.as_ptr()).prev = ptr::null_mut();
            if self.last.is_null() {
                self.first = chunk.as_ptr();
            } else {
                (*self.last).prev = chunk.as_ptr();
            }
        }
        self.last = chunk.as_ptr();
        self.bytes += size;
    }
}
