//! The blocks that are live, by address.

use super::memory_hints::{advise_huge_pages, prefetch};

/// A live block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveBlock {
    pub address: u64,
    /// When it was allocated, in nanoseconds since the process began.
    pub born_ns: u64,
    pub size: u64,
    /// The number of its allocation in the program, from 0 and wrapping.
    pub birth: u32,
    /// Its [cell](super::resolver::BlockAction).
    pub cell: u32,
}

/// Live blocks by address.
///
/// An open-addressing index with linear probing maps an address to a slot in `blocks`. Blocks don't
/// move, and slots are reused, so memory is proportional to the peak of live blocks, and growing
/// moves only the index. A hash table of the blocks themselves needs two to three times the memory,
/// and spends most of its time on getting it.
#[derive(Debug)]
pub struct LiveBlocks {
    index: Vec<BlockIndexEntry>,
    blocks: Vec<LiveBlock>,
    /// The first free slot; each free slot has the number of the next one as its cell.
    first_free: u32,
    length: usize,
    shift: u32,
}

/// An entry of the index.
#[derive(Debug, Clone, Copy)]
struct BlockIndexEntry {
    /// 32 bits of the block's address, which determine its preferred index. Addresses that are 64
    /// GiB apart have the same tag.
    tag: u32,
    /// The slot of the block, or [`NONE`].
    number: u32,
}

const NONE: u32 = u32::MAX;
const EMPTY: BlockIndexEntry = BlockIndexEntry { tag: 0, number: NONE };
/// Nearly all blocks are aligned to `1 << ALIGNMENT_BITS` bytes.
const ALIGNMENT_BITS: u32 = 4;
const LEAST_LENGTH: usize = 1 << 10;
/// Blocks in the same 1 KiB have their preferred indexes among the same `1 << REGION_BITS` entries.
/// Programs allocate and free neighbouring blocks together, and this table mostly waits for memory.
const REGION_BITS: u32 = 6;

/// An index of empty entries.
fn empty(length: usize) -> Vec<BlockIndexEntry> {
    let mut index = Vec::with_capacity(length);
    advise_huge_pages(&mut index);
    index.resize(length, EMPTY);
    index
}

fn tag(address: u64) -> u32 {
    (address >> ALIGNMENT_BITS) as u32
}

impl LiveBlocks {
    pub fn new() -> Self {
        Self {
            index: empty(LEAST_LENGTH),
            blocks: Vec::new(),
            first_free: NONE,
            length: 0,
            shift: 64 + REGION_BITS - LEAST_LENGTH.trailing_zeros(),
        }
    }

    /// Forgets all blocks and keeps the memory.
    pub fn clear(&mut self) {
        if !self.blocks.is_empty() {
            self.index.fill(EMPTY);
            self.blocks.clear();
            (self.first_free, self.length) = (NONE, 0);
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Its memory, in bytes.
    #[cfg(test)]
    pub fn memory(&self) -> usize {
        self.index.capacity() * size_of::<BlockIndexEntry>()
            + self.blocks.capacity() * size_of::<LiveBlock>()
    }

    /// The blocks in no order.
    pub fn iter(&self) -> impl Iterator<Item = &LiveBlock> {
        let known = self.index.iter().filter(|entry| entry.number != NONE);
        known.map(|entry| &self.blocks[entry.number as usize])
    }

    #[inline]
    fn preferred_index(&self, tag: u32) -> usize {
        // Only the region is hashed: neighbouring blocks have neighbouring entries.
        let region =
            u64::from(tag >> REGION_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        (region as usize) << REGION_BITS | tag as usize & ((1 << REGION_BITS) - 1)
    }

    /// Prefetches the index entry of an address.
    #[inline]
    pub fn prefetch_far(&self, address: u64) {
        prefetch(&self.index[self.preferred_index(tag(address))]);
    }

    /// Prefetches the block at an address; its index entry should be in the cache.
    #[inline]
    pub fn prefetch_near(&self, address: u64) {
        if let Some(block) =
            self.blocks.get(self.index[self.preferred_index(tag(address))].number as usize)
        {
            prefetch(block);
        }
    }

    /// Inserts a block. Returns the block that was live at its address, if there was one.
    #[inline]
    pub fn insert(&mut self, block: LiveBlock) -> Option<LiveBlock> {
        if self.length * 2 >= self.index.len() {
            self.grow();
        }
        let (mask, tag) = (self.index.len() - 1, tag(block.address));
        let mut at = self.preferred_index(tag);
        loop {
            let entry = self.index[at];
            if entry.number == NONE {
                break;
            }
            if entry.tag == tag {
                let known = &mut self.blocks[entry.number as usize];
                if known.address == block.address {
                    return Some(std::mem::replace(known, block));
                }
            }
            at = (at + 1) & mask;
        }
        self.length += 1;
        let number = self.first_free;
        if number == NONE {
            self.index[at] = BlockIndexEntry { tag, number: self.blocks.len() as u32 };
            self.blocks.push(block);
        } else {
            self.index[at] = BlockIndexEntry { tag, number };
            let slot = &mut self.blocks[number as usize];
            self.first_free = slot.cell;
            *slot = block;
        }
        None
    }

    /// Removes the block at an address.
    #[inline]
    pub fn remove(&mut self, address: u64) -> Option<LiveBlock> {
        let (mask, tag) = (self.index.len() - 1, tag(address));
        let mut at = self.preferred_index(tag);
        loop {
            let entry = self.index[at];
            if entry.number == NONE {
                return None;
            }
            if entry.tag == tag {
                let slot = &mut self.blocks[entry.number as usize];
                if slot.address == address {
                    let block = *slot;
                    slot.cell = self.first_free;
                    self.first_free = entry.number;
                    self.fill_hole(at);
                    return Some(block);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Moves entries that were displaced by the one at `hole` back, so that no probe ends too
    /// early.
    #[inline]
    fn fill_hole(&mut self, mut hole: usize) {
        let mask = self.index.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.index[at];
            if entry.number == NONE {
                break;
            }
            let preferred_index = self.preferred_index(entry.tag);
            // It may move unless its preferred index lies between the hole and its index.
            if (at.wrapping_sub(preferred_index) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.index[hole] = entry;
                hole = at;
            }
        }
        self.index[hole] = EMPTY;
        self.length -= 1;
    }

    #[cold]
    fn grow(&mut self) {
        let larger = empty(self.index.len() * 2);
        let old = std::mem::replace(&mut self.index, larger);
        self.shift -= 1;
        let mask = self.index.len() - 1;
        for entry in old.into_iter().filter(|entry| entry.number != NONE) {
            let mut at = self.preferred_index(entry.tag);
            while self.index[at].number != NONE {
                at = (at + 1) & mask;
            }
            self.index[at] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn it_holds_what_a_map_would() {
        let mut live = LiveBlocks::new();
        let mut map = HashMap::new();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for birth in 0..200_000_u32 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let address = (random >> 40) % 6_000 * 16 + u64::from(birth % 7 == 0);
            if random & 1 == 0 {
                let block = LiveBlock { address, birth, cell: 1, ..LiveBlock::default() };
                assert_eq!(live.insert(block), map.insert(address, block));
            } else {
                assert_eq!(live.remove(address), map.remove(&address));
            }
            assert_eq!(live.len(), map.len());
        }
        assert_eq!(live.iter().count(), map.len());
        assert!(live.iter().all(|block| map[&block.address] == *block));
        live.clear();
        assert_eq!((live.len(), live.iter().count(), live.remove(64)), (0, 0, None));
    }

    #[test]
    fn it_grows_with_what_is_live_and_not_with_what_was() {
        let mut live = LiveBlocks::new();
        let mut before = 0;
        for birth in 0..1_000_000 {
            if birth == 1000 {
                before = live.memory();
            }
            let address = u64::from(birth) * 48;
            live.insert(LiveBlock { address, birth, cell: 0, ..LiveBlock::default() });
            live.remove(address);
        }
        assert_eq!(live.memory(), before);
    }
}
