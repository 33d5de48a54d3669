//! The hints: which pages have free slots, by how full they are.
//!
//! # Invariants
//!
//! 1. A hint says no more than that its page was worth a look once. What is true is the page's state, so a stale
//!    hint costs a look and nothing else.
//! 2. A hint is cleared only by a thread that then looks at the page and claims it, or finds that another thread
//!    has (which lists it again when it puts it back) or that there is nothing to be had. Cleared *before* the
//!    look: the other way round, a hint set between the two would be lost, and its page with it.
//! 3. A hint is set only *after* its page was opened: the other way round, a thread could clear it and find the
//!    page still claimed.
//! 4. `set_hints` is at least the number of hints that are set: raised before one is set, lowered after one was
//!    cleared. Zero thus means that there is nothing to look for.

use super::page::BINS;
use crate::sync::{AtomicU32, AtomicU64, Ordering, store_before_load};

/// The lists: one for each lifetime and bin, and one of pages kept empty, which serve last.
pub const LISTS: usize = LIFETIMES * BINS + 1;
/// The list of the pages kept empty.
pub const EMPTY_LIST: usize = LIFETIMES * BINS;
/// Objects that live long and those that don't lie on different pages.
pub const LIFETIMES: usize = 2;

/// The number of words for the hints of `pages` pages.
#[must_use]
pub const fn words_for(pages: usize) -> usize {
    LISTS * pages.div_ceil(64)
}

/// The hints of one block of pages: `pages.div_ceil(64)` words for each list.
#[derive(Clone, Copy, Debug)]
pub struct Hints<'h> {
    /// The words, list after list.
    pub words: &'h [AtomicU64],
    /// The count of all blocks.
    pub set_hints: &'h AtomicU32,
}

impl Hints<'_> {
    fn list(&self, list: usize) -> &[AtomicU64] {
        let words = self.words.len() / LISTS;
        &self.words[list * words..(list + 1) * words]
    }

    /// Lists a page. The caller has seen it open, or opened it.
    pub fn set(&self, list: usize, page: usize) {
        let word = &self.list(list)[page / 64];
        let bit = 1 << (page % 64);
        // Seen set: whoever clears it looks at the page after that, and so after what the caller did to it.
        if word.load(Ordering::SeqCst) & bit != 0 {
            return;
        }
        self.set_hints.fetch_add(1, Ordering::Relaxed);
        // Release pairs with the Acquire of `clear_one`.
        if word.fetch_or(bit, Ordering::SeqCst) & bit != 0 {
            self.set_hints.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Clears one hint of a list, the first from the page `from` on, and gives its page, which the caller must now
    /// look at.
    pub fn clear_one(&self, list: usize, from: usize) -> Option<usize> {
        let words = self.list(list);
        let first = (from / 64).min(words.len() - 1);
        for step in 0..words.len() {
            let index = (first + step) % words.len();
            let word = &words[index];
            let mut hints = word.load(Ordering::Relaxed);
            while hints != 0 {
                let bit = hints & hints.wrapping_neg();
                // Acquire pairs with the Release of `set`.
                if word.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
                    store_before_load();
                    self.set_hints.fetch_sub(1, Ordering::Relaxed);
                    return Some(index * 64 + bit.trailing_zeros() as usize);
                }
                hints = word.load(Ordering::Relaxed);
            }
        }
        None
    }
}
