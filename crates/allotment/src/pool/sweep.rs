//! The search for empty chunks while others hold live blocks.
//!
//! Every byte behind a chunk's header belongs to a live block, to a free block on a list, or to the
//! range that is not carved yet. No byte is left out: blocks are multiples of a step, and what an
//! alignment or the end of a chunk leaves over is put on the lists too. So a chunk is empty if its
//! free bytes add up to all of its bytes.

use core::ptr::NonNull;

use super::blocks::Blocks;
use super::classes::{Class, size_of};
use super::pieces::Supply;
use crate::memory::metadata::Metadata;

/// A chunk and what the search has counted in it.
#[derive(Clone, Copy, Debug)]
struct Swept {
    start: usize,
    /// The bytes behind its header.
    room: usize,
    free: usize,
    stays: bool,
}

impl Swept {
    fn is_empty(self) -> bool {
        self.free == self.room && !self.stays
    }
}

/// Returns the index of the chunk that an address lies in. The chunks are sorted.
fn of(chunks: &[Swept], address: usize) -> usize {
    chunks.partition_point(|chunk| chunk.start <= address) - 1
}

impl<S: Supply> Blocks<S> {
    /// Gives back empty chunks. Returns the number of bytes given back. The cost grows with the
    /// number of free blocks.
    pub(super) fn sweep(&self) -> usize {
        let held = self.held();
        self.give_spare();
        if self.ledger.is_some() {
            if self.live().0 == 0 {
                // SAFETY: nothing is live.
                unsafe { self.clear(Some(0)) };
            }
            return held - self.held();
        }
        let mut each = self.each_chunk();
        let count = each.by_ref().count();
        let mut each = self.each_chunk();
        let found = Metadata::new(count, |_| {
            let (start, room, stays) = each.next().expect("as many as were counted");
            Swept { start, room, free: 0, stays }
        });
        // Without memory for the search, no chunk is given back.
        let Ok(mut chunks) = found else { return held - self.held() };
        chunks.sort_unstable_by_key(|chunk| chunk.start);
        let (pos, left) = self.lists.range();
        if left > 0 {
            let chunk = of(&chunks, pos);
            chunks[chunk].free += left;
        }
        let mut last = 0;
        for class in Class::all() {
            for block in self.lists.each_free(class) {
                let address = block.addr().get();
                // Neighbours on a list often lie in the same chunk.
                if address.wrapping_sub(chunks[last].start) > chunks[last].room {
                    last = of(&chunks, address);
                }
                chunks[last].free += size_of(class);
            }
        }
        if chunks.iter().any(|chunk| chunk.is_empty()) {
            let goes = |address: usize| chunks[of(&chunks, address)].is_empty();
            for class in Class::all() {
                // SAFETY: the removed blocks lie in empty chunks, which are given back below.
                unsafe { self.lists.retain(class, |block: NonNull<u8>| !goes(block.addr().get())) };
            }
            if left > 0 && goes(pos) {
                self.lists.close();
            }
            // SAFETY: no block in these chunks is live, on a list or in the range any more.
            unsafe { self.give_chunks(goes) };
        }
        self.note_live();
        held - self.held()
    }
}
