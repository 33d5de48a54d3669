//! The blocks that are live, by address.

use allot_trace::{Event, What};

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

/// Asks for memory that will be read soon, where the processor can be asked.
#[inline]
fn prefetch(entry: &Block) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction; it is a hint that changes nothing, and the address is a reference's.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(entry).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = entry;
}

/// A table by address: open, linear probing, nothing but live blocks in it.
#[derive(Debug)]
pub struct Live {
    /// An entry is empty where its cell is [`NONE`].
    entries: Vec<Block>,
    length: usize,
    shift: u32,
}

const NONE: u32 = u32::MAX;
const EMPTY: Block = Block { address: 0, born_ns: 0, size: 0, birth: 0, cell: NONE };
const LEAST: usize = 1 << 10;
/// Blocks that begin in the same 1 KiB have homes in the same 16 entries: programs allocate and free what lies side by side,
/// and most of this table's time is waiting for memory. Measured: a pass takes half the time.
const REGION: u32 = 10;
const PLACES: u32 = 4;

impl Live {
    pub fn new() -> Self {
        Self { entries: vec![EMPTY; LEAST], length: 0, shift: 64 + PLACES - LEAST.trailing_zeros() }
    }

    pub fn len(&self) -> usize {
        self.length
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Block>()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Block> {
        self.entries.iter().filter(|entry| entry.cell != NONE)
    }

    #[inline]
    fn home(&self, address: u64) -> usize {
        // Only the region is spread: blocks that lie side by side in the program do so here.
        let region = (address >> REGION).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        (region as usize) << PLACES | (address >> (REGION - PLACES)) as usize & ((1 << PLACES) - 1)
    }

    /// Lets memory bring what an event will need.
    #[inline]
    pub fn expect(&self, event: &Event) {
        if let What::Alloc { address, .. } | What::Free { address, .. } = event.what {
            prefetch(&self.entries[self.home(address)]);
        }
    }

    /// Takes a block in. Gives the one that was live at its address, if there was one.
    #[inline]
    pub fn insert(&mut self, block: Block) -> Option<Block> {
        debug_assert_ne!(block.cell, NONE);
        if self.length * 2 >= self.entries.len() {
            self.grow();
        }
        let mask = self.entries.len() - 1;
        let mut at = self.home(block.address);
        loop {
            let entry = &mut self.entries[at];
            if entry.cell == NONE {
                *entry = block;
                self.length += 1;
                return None;
            }
            if entry.address == block.address {
                return Some(std::mem::replace(entry, block));
            }
            at = (at + 1) & mask;
        }
    }

    /// Takes a block out.
    #[inline]
    pub fn remove(&mut self, address: u64) -> Option<Block> {
        let mask = self.entries.len() - 1;
        let mut at = self.home(address);
        loop {
            let entry = self.entries[at];
            if entry.cell == NONE {
                return None;
            }
            if entry.address == address {
                self.close(at);
                return Some(entry);
            }
            at = (at + 1) & mask;
        }
    }

    /// Moves what was pushed on by the entry at `hole` back into it.
    #[inline]
    fn close(&mut self, mut hole: usize) {
        let mask = self.entries.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.entries[at];
            if entry.cell == NONE {
                break;
            }
            let home = self.home(entry.address);
            // It may move if its home isn't between the hole and where it is.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = EMPTY;
        self.length -= 1;
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![EMPTY; self.entries.len() * 2];
        let old = std::mem::replace(&mut self.entries, larger);
        self.shift -= 1;
        let mask = self.entries.len() - 1;
        for entry in old.into_iter().filter(|entry| entry.cell != NONE) {
            let mut at = self.home(entry.address);
            while self.entries[at].cell != NONE {
                at = (at + 1) & mask;
            }
            self.entries[at] = entry;
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
                let block = Block { address, birth, cell: 1, ..EMPTY };
                assert_eq!(live.insert(block), map.insert(address, block));
            } else {
                assert_eq!(live.remove(address), map.remove(&address));
            }
            assert_eq!(live.len(), map.len());
        }
        assert_eq!(live.iter().count(), map.len());
        assert!(live.iter().all(|block| map[&block.address] == *block));
    }

    #[test]
    fn it_grows_with_what_is_live_and_not_with_what_was() {
        let mut live = Live::new();
        let before = live.memory();
        for birth in 0..1_000_000 {
            let address = u64::from(birth) * 48;
            live.insert(Block { address, birth, cell: 0, ..EMPTY });
            live.remove(address);
        }
        assert_eq!(live.memory(), before);
    }
}
