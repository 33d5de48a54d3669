//! The contents of an arena's chunks.
//!
//! The invariants are those of `raw.rs`; the ones about chunks are 1, 2 and 4.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::{ptr, slice};

use super::chunk_header::{ArenaChunkHeader, Chunks, first_of};
use super::raw::RawArena;
use super::typed::Arena;

/// The allocated bytes of an arena, chunk by chunk. [`Arena::iter_allocated_chunks`] makes it.
pub struct AllocatedChunks<'a> {
    chunks: Chunks,
    current: *mut ArenaChunkHeader,
    /// The end of the objects in the current chunk.
    pos: *mut u8,
    arena: PhantomData<&'a mut RawArena>,
}

/// # Contents
impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    /// Returns the bytes that were allocated, chunk by chunk, with the newest chunk first. In a
    /// chunk, the first object has the lowest address.
    ///
    /// The bytes are `MaybeUninit`: they include the padding between objects and inside them, and
    /// objects that were freed. Between objects lies no padding if the size of each is a multiple of
    /// 16 bytes and its alignment is at most 16; elsewhere, some padding may lie even between
    /// objects of one type. In hardened mode, and under a memory tool, the bytes include those that
    /// detect overruns, which the tool forbids to read. In pass-through mode there are no chunks.
    ///
    /// The call takes `&mut self`, so no reference to an object is alive meanwhile.
    ///
    /// ```
    /// let mut arena = allotment::Arena::new();
    /// for number in 1..=1000u128 {
    ///     arena.alloc(number);
    /// }
    /// let mut sum = 0;
    /// for chunk in arena.iter_allocated_chunks() {
    ///     for number in chunk.chunks_exact(16) {
    ///         // SAFETY: the arena holds nothing but `u128`s, each of 16 bytes.
    ///         sum += unsafe { number.as_ptr().cast::<u128>().read() };
    ///     }
    /// }
    /// assert_eq!(sum, 500_500);
    /// ```
    ///
    /// ```compile_fail,E0502
    /// let mut arena = allotment::Arena::new();
    /// let number = arena.alloc(7);
    /// let chunks = arena.iter_allocated_chunks();
    /// *number += 1;
    /// drop(chunks);
    /// ```
    pub fn iter_allocated_chunks(&mut self) -> AllocatedChunks<'_> {
        let raw = &self.raw;
        raw.forget_orphaned_chunks();
        // SAFETY: the arena holds the chunks of its list (invariant 1), and is borrowed for as long
        // as the iterator lives.
        let chunks = unsafe { Chunks::new(raw.newest.get(), ptr::null_mut()) };
        let (current, pos) = (raw.current.get(), raw.pos());
        AllocatedChunks { chunks, current, pos, arena: PhantomData }
    }
}

impl<'a> Iterator for AllocatedChunks<'a> {
    type Item = &'a [MaybeUninit<u8>];

    fn next(&mut self) -> Option<&'a [MaybeUninit<u8>]> {
        for (chunk, _) in self.chunks.by_ref() {
            let first = first_of(chunk);
            let end = if chunk.as_ptr() == self.current {
                self.pos
            } else {
                // SAFETY: the arena holds the chunk (invariant 1).
                unsafe { chunk.as_ref() }.end_of_objects
            };
            let len = end.addr() - first.addr().get();
            if len > 0 {
                // SAFETY: `len` bytes of the chunk, which hold its objects and padding (invariant
                // 4). The arena is borrowed mutably for `'a`, so nothing writes to them.
                return Some(unsafe { slice::from_raw_parts(first.as_ptr().cast(), len) });
            }
        }
        None
    }
}

impl FusedIterator for AllocatedChunks<'_> {}

/// An iterator has no figure of its own to show.
impl fmt::Debug for AllocatedChunks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocatedChunks").finish_non_exhaustive()
    }
}
