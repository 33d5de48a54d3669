//! The sweep: a search for empty chunks while other chunks hold live blocks.
//!
//! Every byte behind a chunk's header belongs to a live block, to a free block on a list, or to the
//! range that is not carved yet. No byte is left out: blocks are multiples of a step, and what an
//! alignment or the end of a chunk leaves over is put on the lists too. So a chunk is empty if its
//! free bytes add up to all of its bytes.

use core::ptr::{self, NonNull};

use super::block_allocator::BlockAllocator;
use super::chunk_supply::{ChunkSupply, HEADER_BYTES};
use super::size_classes::SizeClass;
use crate::memory::system_array::SystemArray;

/// A chunk and the free bytes that the sweep has counted in it.
#[derive(Clone, Copy, Debug)]
struct SweptPoolChunk {
    start: usize,
    /// The bytes behind its header.
    capacity: usize,
    free: usize,
    /// The chunk is charged to the pool's budget as a whole.
    charged: bool,
    reserved: bool,
}

impl SweptPoolChunk {
    /// Whether the sweep releases the chunk.
    fn is_releasable(self) -> bool {
        self.free == self.capacity && !self.reserved
    }
}

/// What a search for empty chunks did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    /// The bytes released.
    pub released: usize,
    /// The bytes of free pieces that the budget got back.
    pub credited: usize,
    /// The free blocks that it looked at.
    pub free_blocks: usize,
}

/// Returns the index of the chunk that an address lies in. The chunks are sorted.
fn chunk_of(chunks: &[SweptPoolChunk], address: usize) -> usize {
    chunks.partition_point(|chunk| chunk.start <= address) - 1
}

impl<S: ChunkSupply> BlockAllocator<S> {
    /// Releases empty chunks. The cost grows with the number of free blocks.
    pub(super) fn sweep(&self) -> Sweep {
        if self.forget_orphaned_chunks() {
            return Sweep { released: 0, credited: 0, free_blocks: 0 };
        }
        let held = self.held();
        let done =
            |credited, free_blocks| Sweep { released: held - self.held(), credited, free_blocks };
        self.release_spare();
        if self.checked.is_some() {
            if self.live().0 == 0 {
                // SAFETY: nothing is live.
                unsafe { self.clear(Some(0)) };
            }
            return done(0, 0);
        }
        let mut each = self.each_chunk();
        let count = each.by_ref().count();
        let mut each = self.each_chunk();
        let found = SystemArray::new(count, |_| {
            let chunk = each.next().expect("as many as were counted");
            SweptPoolChunk {
                start: ptr::from_ref(chunk).addr(),
                capacity: chunk.size.get() - HEADER_BYTES,
                free: 0,
                charged: chunk.is_charged(&self.supply),
                reserved: chunk.reserved.get(),
            }
        });
        // Without memory for the search, no chunk is released.
        let Ok(mut chunks) = found else { return done(0, 0) };
        chunks.sort_unstable_by_key(|chunk| chunk.start);
        let (pos, uncarved) = self.lists.range();
        if uncarved > 0 {
            let chunk = chunk_of(&chunks, pos);
            chunks[chunk].free += uncarved;
        }
        let (mut last, mut free_blocks) = (0, 0);
        for class in SizeClass::all() {
            for block in self.lists.free_blocks(class) {
                let address = block.addr().get();
                // Neighbours on a list often lie in the same chunk.
                if address.wrapping_sub(chunks[last].start) > chunks[last].capacity {
                    last = chunk_of(&chunks, address);
                }
                chunks[last].free += class.size();
                free_blocks += 1;
            }
        }
        if chunks.iter().any(|chunk| chunk.is_releasable()) {
            let released = |address: usize| chunks[chunk_of(&chunks, address)].is_releasable();
            for class in SizeClass::all() {
                let keep = |block: NonNull<u8>| !released(block.addr().get());
                // SAFETY: the removed blocks lie in empty chunks, which are released below.
                unsafe { self.lists.retain(class, keep) };
            }
            if uncarved > 0 && released(pos) {
                self.lists.close();
            }
            // SAFETY: no block in these chunks is live, on a list or in the range any more.
            unsafe { self.release_chunks(released) };
        }
        let credited = if self.supply.is_limited() { self.uncharge_pieces(&chunks) } else { 0 };
        self.publish_live();
        done(credited, free_blocks)
    }

    /// Sets aside what is free in chunks that are not charged as a whole, and takes the charge for
    /// it back. What stays charged are the pool's live blocks there: those that are in no charged
    /// chunk. `chunks` may have released ones among them.
    fn uncharge_pieces(&self, chunks: &[SweptPoolChunk]) -> usize {
        if self.piece_bytes.get() == 0 {
            return 0;
        }
        let is_uncharged = |address: usize| !chunks[chunk_of(chunks, address)].charged;
        self.lists.set_blocks_aside(|block| is_uncharged(block.addr().get()));
        let (pos, uncarved) = self.lists.range();
        if uncarved > 0 && is_uncharged(pos) {
            self.lists.set_range_aside();
        }
        let in_charged = chunks.iter().filter(|chunk| chunk.charged);
        let in_charged: usize = in_charged.map(|chunk| chunk.capacity - chunk.free).sum();
        let own = self.lists.live().1 - self.lists.inherited().1;
        self.credit_pieces(own.saturating_sub(in_charged))
    }
}
