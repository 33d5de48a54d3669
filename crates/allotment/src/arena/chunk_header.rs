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
    /// The end of the objects, if the chunk is on the `newest` list and not current.
    pub end_of_objects: *mut u8,
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

/// The chunks of a list with their sizes, from `next` to `stop`, without `stop`. A chunk that was
/// returned may leave the list.
pub(super) struct Chunks {
    next: *mut ArenaChunkHeader,
    stop: *mut ArenaChunkHeader,
}

impl Chunks {
    /// # Safety
    /// `stop` is null or on the list that begins with `first`. The arena holds the chunks before it
    /// until they were returned.
    pub unsafe fn new(first: *mut ArenaChunkHeader, stop: *mut ArenaChunkHeader) -> Self {
        Self { next: first, stop }
    }
}

impl Iterator for Chunks {
    type Item = (NonNull<ArenaChunkHeader>, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let chunk = NonNull::new(self.next).filter(|_| self.next != self.stop)?;
        // SAFETY: guaranteed by the caller of `new`.
        let header = unsafe { chunk.as_ref() };
        self.next = header.prev;
        Some((chunk, header.size))
    }
}

/// A list of chunks, from first to last.
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

    /// # Safety
    /// As for [`append`](Self::append).
    pub unsafe fn prepend(&mut self, chunk: NonNull<ArenaChunkHeader>, size: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { (*chunk.as_ptr()).prev = self.first };
        if self.last.is_null() {
            self.last = chunk.as_ptr();
        }
        self.first = chunk.as_ptr();
        self.bytes += size;
    }

    /// Appends all chunks of another list. After that, this list can only be read.
    ///
    /// # Safety
    /// `rest` is null or the first chunk of a list that the arena holds, without a chunk of this
    /// list.
    pub unsafe fn end_with(&mut self, rest: *mut ArenaChunkHeader) {
        match NonNull::new(self.last) {
            // SAFETY: `last` was added before.
            Some(last) => unsafe { (*last.as_ptr()).prev = rest },
            None => self.first = rest,
        }
    }
}
