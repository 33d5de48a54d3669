//! Stacks by the return address and the stack pointer of a call.
//!
//! An entry is used only if all words that the walk read for it are unchanged. A walk is a function
//! of the call's registers and of these words, so it would have the same result. The address of
//! each word follows from the words before it, so each word can be read again as long as those
//! before it are unchanged.
//!
//! The words are in a ring, which is overwritten from its start once it is full. An entry holds the
//! position in the ring at which its words were written, and becomes invalid once they may have
//! been overwritten.

use super::frames::WalkedFrames;
use super::{CallSite, StackWord};
use crate::number_table::mix;
use trace_format::raw::AllocationFlags;

const WAYS: usize = 4;
const SETS: usize = 512;
/// Words in the ring: a power of two.
const RING_WORDS: usize = 32 * 1024;
/// More words than any entry has.
const MAX_ENTRY_WORDS: usize = 2048;

/// A stack that was walked, with the kind of the last allocation there.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct CacheEntry {
    return_address: u64,
    stack_pointer: u64,
    frame_pointer: u64,
    /// One more than the number of words that had been written before its first one; 0 in an
    /// invalid entry.
    words: u64,
    /// The number of its words.
    count: u32,
    node: u32,
    size: u64,
    kind: u32,
    flags: AllocationFlags,
    /// The result depends on the frame pointer register.
    needs_frame: bool,
    /// `size`, `kind` and `flags` are valid.
    has_kind: bool,
}

/// The cache of a thread. Zeroed memory is an empty cache.
#[derive(Debug)]
pub struct StackCache {
    sets: [[CacheEntry; WAYS]; SETS],
    ring: [StackWord; RING_WORDS],
    /// Words that were written to the ring from the beginning on.
    written: u64,
    next_way: usize,
}

/// An entry of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheHit {
    set: usize,
    way: usize,
    /// The number of the stack's node in the stream.
    pub node: u32,
}

impl StackCache {
    /// Forgets all stacks.
    pub fn clear(&mut self) {
        for entry in self.sets.as_flattened_mut() {
            entry.words = 0;
        }
    }

    #[inline(always)]
    fn set(site: &CallSite) -> usize {
        mix(site.return_address ^ site.stack_pointer.rotate_left(28)) as usize % SETS
    }

    /// The entry for the stack of a call, if it is known.
    ///
    /// # Safety
    ///
    /// The cache's thread is in that call, on the stacks that it was on before.
    #[inline(always)]
    pub unsafe fn find(&self, site: &CallSite) -> Option<CacheHit> {
        let set = Self::set(site);
        for (way, entry) in self.sets[set].iter().enumerate() {
            if entry.return_address == site.return_address
                && entry.stack_pointer == site.stack_pointer
                && entry.words != 0
                // SAFETY: as the caller promised.
                && unsafe { self.is_valid(entry, site) }
            {
                return Some(CacheHit { set, way, node: entry.node });
            }
        }
        None
    }

    /// # Safety
    ///
    /// As for [`find`](Self::find).
    #[inline(always)]
    unsafe fn is_valid(&self, entry: &CacheEntry, site: &CallSite) -> bool {
        if entry.needs_frame && entry.frame_pointer != site.frame_pointer {
            return false;
        }
        let first = entry.words - 1;
        if self.written - first > (RING_WORDS - MAX_ENTRY_WORDS) as u64 {
            return false;
        }
        // The words of an entry are adjacent: `insert` skips the end of the ring if they do not
        // fit.
        let first = first as usize % RING_WORDS;
        let words = &self.ring[first..first + entry.count as usize];
        words.iter().all(|word| {
            // SAFETY: the word's address follows from the words before it, which are unchanged.
            unsafe { (word.address as *const u64).read_volatile() == word.value }
        })
    }

    /// Inserts the result of a walk, and returns its entry.
    pub fn insert(&mut self, site: &CallSite, frames: &WalkedFrames, node: u32) -> CacheHit {
        let set = Self::set(site);
        let way = self.next_way % WAYS;
        self.next_way += 1;
        let words_to_end = RING_WORDS - self.written as usize % RING_WORDS;
        if words_to_end < MAX_ENTRY_WORDS {
            self.written += words_to_end as u64;
        }
        let first = self.written as usize % RING_WORDS;
        let mut count = 0;
        frames.for_each_word(|word| {
            self.ring[first + count] = word;
            count += 1;
        });
        self.sets[set][way] = CacheEntry {
            return_address: site.return_address,
            stack_pointer: site.stack_pointer,
            frame_pointer: site.frame_pointer,
            words: self.written + 1,
            count: count as u32,
            node,
            size: 0,
            kind: 0,
            flags: AllocationFlags(0),
            needs_frame: frames.needs_frame(),
            has_kind: false,
        };
        self.written += count as u64;
        CacheHit { set, way, node }
    }

    /// The kind of the last allocation at this stack, if it had this size and these flags.
    #[inline(always)]
    pub fn kind(&self, hit: CacheHit, size: u64, flags: AllocationFlags) -> Option<u32> {
        let entry = &self.sets[hit.set][hit.way];
        (entry.has_kind && entry.size == size && entry.flags == flags).then_some(entry.kind)
    }

    /// Sets the kind of the last allocation at this stack.
    #[inline]
    pub fn set_kind(&mut self, hit: CacheHit, size: u64, flags: AllocationFlags, kind: u32) {
        let entry = &mut self.sets[hit.set][hit.way];
        (entry.size, entry.flags, entry.kind, entry.has_kind) = (size, flags, kind, true);
    }
}
