//! Stacks by the return address and the stack pointer of a call.
//!
//! An entry is taken only if all words that the walk had read for it are what they were. The walk is a function of the call's
//! registers and of these words, so its answer would be the same; and since each word's place follows from the words before
//! it, all of them can be read again as long as those before it were right.
//!
//! Words lie in a ring that is written over from its beginning once it's full; an entry knows how far the ring has come
//! when its words were written, and is lost once they may have been written over.

use super::Caller;
use super::Word;
use super::walk::Frames;
use crate::table::mix;
use trace_format::raw::Flags;

const WAYS: usize = 4;
const SETS: usize = 512;
/// A power of two.
const RING: usize = 32 * 1024;
/// More words than any entry has.
const MOST_WORDS: usize = 2048;

/// A stack that was walked, with the kind that was allocated there last.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Entry {
    return_address: u64,
    stack_pointer: u64,
    frame_pointer: u64,
    /// One more than where its words begin, on a ring without end.
    words: u64,
    count: u32,
    node: u32,
    size: u64,
    kind: u32,
    flags: Flags,
    needs_frame: bool,
    has_kind: bool,
}

/// The cache of a thread. Zeroed memory is one that knows nothing.
#[derive(Debug)]
pub struct Cache {
    sets: [[Entry; WAYS]; SETS],
    ring: [Word; RING],
    written: u64,
    next_way: usize,
}

/// An entry of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    set: usize,
    way: usize,
    /// The stream's number of the stack.
    pub node: u32,
}

impl Cache {
    /// Forgets all stacks.
    pub fn clear(&mut self) {
        for entry in self.sets.as_flattened_mut() {
            entry.words = 0;
        }
    }

    #[inline(always)]
    fn set(caller: &Caller) -> usize {
        mix(caller.return_address ^ caller.stack_pointer.rotate_left(28)) as usize % SETS
    }

    /// The stack of a call, if it is known.
    ///
    /// # Safety
    ///
    /// The thread whose cache it is is in that call, on the stacks that it was on before.
    #[inline(always)]
    pub unsafe fn find(&self, caller: &Caller) -> Option<Found> {
        let set = Self::set(caller);
        for (way, entry) in self.sets[set].iter().enumerate() {
            if entry.return_address == caller.return_address
                && entry.stack_pointer == caller.stack_pointer
                && entry.words != 0
                // SAFETY: as the caller promised.
                && unsafe { self.holds(entry, caller) }
            {
                return Some(Found { set, way, node: entry.node });
            }
        }
        None
    }

    /// # Safety
    ///
    /// As for [`find`](Self::find).
    #[inline(always)]
    unsafe fn holds(&self, entry: &Entry, caller: &Caller) -> bool {
        if entry.needs_frame && entry.frame_pointer != caller.frame_pointer {
            return false;
        }
        let begin = entry.words - 1;
        if self.written - begin > (RING - MOST_WORDS) as u64 {
            return false;
        }
        // An entry's words lie together: where they would not, they begin at the ring's beginning.
        let begin = begin as usize % RING;
        let words = &self.ring[begin..begin + entry.count as usize];
        words.iter().all(|word| {
            // SAFETY: each word's place follows from those before it, which are as they were.
            unsafe { (word.address as *const u64).read_volatile() == word.value }
        })
    }

    /// Keeps what was walked.
    pub fn keep(&mut self, caller: &Caller, frames: &Frames, node: u32) -> Found {
        let set = Self::set(caller);
        let way = self.next_way % WAYS;
        self.next_way += 1;
        let room = RING - self.written as usize % RING;
        if room < MOST_WORDS {
            self.written += room as u64;
        }
        let begin = self.written as usize % RING;
        let mut count = 0;
        frames.words(|word| {
            self.ring[begin + count] = word;
            count += 1;
        });
        self.sets[set][way] = Entry {
            return_address: caller.return_address,
            stack_pointer: caller.stack_pointer,
            frame_pointer: caller.frame_pointer,
            words: self.written + 1,
            count: count as u32,
            node,
            size: 0,
            kind: 0,
            flags: Flags(0),
            needs_frame: frames.needs_frame(),
            has_kind: false,
        };
        self.written += count as u64;
        Found { set, way, node }
    }

    /// The kind that was allocated there last, if it was this one.
    #[inline(always)]
    pub fn kind(&self, found: Found, size: u64, flags: Flags) -> Option<u32> {
        let entry = &self.sets[found.set][found.way];
        (entry.has_kind && entry.size == size && entry.flags == flags).then_some(entry.kind)
    }

    /// Keeps the kind that is allocated there now.
    #[inline]
    pub fn keep_kind(&mut self, found: Found, size: u64, flags: Flags, kind: u32) {
        let entry = &mut self.sets[found.set][found.way];
        (entry.size, entry.flags, entry.kind, entry.has_kind) = (size, flags, kind, true);
    }
}
