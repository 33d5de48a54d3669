//! The blocks that are live, by address.

use super::ahead::{huge, prefetch};

/// A live block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Block {
    pub address: u64,
    /// In the clock of the pass: nanoseconds.
    pub born_ns: u64,
    pub size: u64,
    /// Which allocation of the program it was, counted from 0 and wrapping.
    pub birth: u32,
    /// What the pass wants to know of it: its cell.
    pub cell: u32,
}

/// Live blocks by address.
///
/// An index, open, with linear probing, says where in `blocks` an address is. Blocks don't move, and their places are used
/// again: so memory is what was live at most, and growing moves the index only. A table of the blocks themselves takes twice
/// to three times the memory, and most of its time goes into having it.
#[derive(Debug)]
pub struct Live {
    index: Vec<Entry>,
    blocks: Vec<Block>,
    /// The place that is used next; each names the one behind it as its cell.
    free: u32,
    length: usize,
    shift: u32,
}

/// An entry of the index.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// 32 bits of the block's address, which decide about its home: 64 GiB away it begins anew.
    tag: u32,
    /// The block, or [`NONE`].
    number: u32,
}

const NONE: u32 = u32::MAX;
const EMPTY: Entry = Entry { tag: 0, number: NONE };
/// Blocks lie at multiples of so many bytes, nearly all of them.
const ALIGNED: u32 = 4;
const LEAST: usize = 1 << 10;
/// Blocks that begin in the same 1 KiB have homes in the same 64 entries: programs allocate and free what lies side by side,
/// and most of this table's time is waiting for memory.
const REGION: u32 = 6;

/// So many empty entries.
fn empty(length: usize) -> Vec<Entry> {
    let mut index = Vec::with_capacity(length);
    huge(&mut index);
    index.resize(length, EMPTY);
    index
}

fn tag(address: u64) -> u32 {
    (address >> ALIGNED) as u32
}

impl Live {
    pub fn new() -> Self {
        Self {
            index: empty(LEAST),
            blocks: Vec::new(),
            free: NONE,
            length: 0,
            shift: 64 + REGION - LEAST.trailing_zeros(),
        }
    }

    /// Forgets all blocks and keeps the memory.
    pub fn clear(&mut self) {
        if !self.blocks.is_empty() {
            self.index.fill(EMPTY);
            self.blocks.clear();
            (self.free, self.length) = (NONE, 0);
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub fn memory(&self) -> usize {
        self.index.capacity() * size_of::<Entry>() + self.blocks.capacity() * size_of::<Block>()
    }

    /// The blocks in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Block> {
        let known = self.index.iter().filter(|entry| entry.number != NONE);
        known.map(|entry| &self.blocks[entry.number as usize])
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        // Only the region is spread: blocks that lie side by side in the program do so here.
        let region = u64::from(tag >> REGION).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        (region as usize) << REGION | tag as usize & ((1 << REGION) - 1)
    }

    /// Lets memory bring what will be asked for first.
    #[inline]
    pub fn expect(&self, address: u64) {
        prefetch(&self.index[self.home(tag(address))]);
    }

    /// The same for what will be asked for then.
    #[inline]
    pub fn expect_soon(&self, address: u64) {
        if let Some(block) = self.blocks.get(self.index[self.home(tag(address))].number as usize) {
            prefetch(block);
        }
    }

    /// Takes a block in. Gives the one that was live at its address, if there was one.
    #[inline]
    pub fn insert(&mut self, block: Block) -> Option<Block> {
        if self.length * 2 >= self.index.len() {
            self.grow();
        }
        let (mask, tag) = (self.index.len() - 1, tag(block.address));
        let mut at = self.home(tag);
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
        let number = self.free;
        if number == NONE {
            self.index[at] = Entry { tag, number: self.blocks.len() as u32 };
            self.blocks.push(block);
        } else {
            self.index[at] = Entry { tag, number };
            let place = &mut self.blocks[number as usize];
            self.free = place.cell;
            *place = block;
        }
        None
    }

    /// Takes a block out.
    #[inline]
    pub fn remove(&mut self, address: u64) -> Option<Block> {
        let (mask, tag) = (self.index.len() - 1, tag(address));
        let mut at = self.home(tag);
        loop {
            let entry = self.index[at];
            if entry.number == NONE {
                return None;
            }
            if entry.tag == tag {
                let place = &mut self.blocks[entry.number as usize];
                if place.address == address {
                    let block = *place;
                    place.cell = self.free;
                    self.free = entry.number;
                    self.close(at);
                    return Some(block);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Moves what was pushed on by the place at `hole` back into it.
    #[inline]
    fn close(&mut self, mut hole: usize) {
        let mask = self.index.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.index[at];
            if entry.number == NONE {
                break;
            }
            let home = self.home(entry.tag);
            // It may move if its home isn't between the hole and where it is.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
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
            let mut at = self.home(entry.tag);
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
        let mut live = Live::new();
        let mut map = HashMap::new();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for birth in 0..200_000_u32 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let address = (random >> 40) % 6_000 * 16 + u64::from(birth % 7 == 0);
            if random & 1 == 0 {
                let block = Block { address, birth, cell: 1, ..Block::default() };
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
        let mut live = Live::new();
        let mut before = 0;
        for birth in 0..1_000_000 {
            if birth == 1000 {
                before = live.memory();
            }
            let address = u64::from(birth) * 48;
            live.insert(Block { address, birth, cell: 0, ..Block::default() });
            live.remove(address);
        }
        assert_eq!(live.memory(), before);
    }
}
