//! The hints: which pages have free slots, by how full the pages are.
//!
//! # Invariants
//!
//! 1. A hint only says that its page once had free slots. The page's state decides. So a stale
//!    hint costs one examination of the page and nothing else.
//! 2. A thread that clears a hint then examines its page. It either claims the page, or finds that
//!    another thread has claimed it (and will list it again when it puts it back), or finds that
//!    the page has no free slot. The hint is cleared *before* the page is examined. In the
//!    other order, a hint set in between would be lost, and its page with it.
//! 3. A hint is set only *after* its page was opened. In the other order, a thread could clear the
//!    hint and find the page still claimed.
//! 4. If a list has more than one word, the summary words behind them have a bit for each word.
//!    While a word has a hint, its summary bit is 1, or a thread is about to set the bit: the
//!    thread that set the hint, or one that has just cleared the bit. A thread that sets a hint
//!    reads the summary bit after that. A thread that clears the summary bit reads the word after
//!    that (store, then load, on both sides).

use super::page::BINS;
use crate::sync::{AtomicU64, Ordering, mutant, order, store_before_load};

/// The lists: one for each lifetime and bin, and one for the pages kept empty, which are used last.
pub const LISTS: usize = LIFETIMES * BINS + 1;
/// The list of the pages that are kept empty.
pub const EMPTY_LIST: usize = LIFETIMES * BINS;
/// The number of lifetimes. Long-lived objects lie on other pages than short-lived ones.
pub const LIFETIMES: usize = 2;

/// The number of words that the hints of `pages` pages need.
#[must_use]
pub const fn words_for(pages: usize) -> usize {
    let words = pages.div_ceil(64);
    LISTS * if words == 1 { 1 } else { words + words.div_ceil(64) }
}

/// The hints of one group of pages. Each list has `pages.div_ceil(64)` words. If these are more
/// than one, summary words with one bit for each of them follow.
#[derive(Clone, Copy, Debug)]
pub struct PageHints<'h> {
    /// The words, list after list.
    pub words: &'h [AtomicU64],
}

/// One list: its words, and its summary words with one bit for each word.
#[derive(Clone, Copy)]
struct HintList<'h> {
    words: &'h [AtomicU64],
    summary: &'h [AtomicU64],
}

impl HintList<'_> {
    /// Records in the summary that a word has a hint.
    fn set_summary(&self, word: usize) {
        let Some(summary) = self.summary.get(word / 64) else { return };
        let bit = 1 << (word % 64);
        store_before_load();
        if summary.load(Ordering::SeqCst) & bit == 0 {
            summary.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Records in the summary that a word has no hint, unless it has one again.
    fn clear_summary(&self, word: usize) {
        let Some(summary) = self.summary.get(word / 64) else { return };
        let seq_cst = order(Ordering::SeqCst, "clear summary: unordered");
        summary.fetch_and(!(1 << (word % 64)), seq_cst);
        if !mutant("clear summary: unordered") {
            store_before_load();
        }
        if self.words[word].load(Ordering::SeqCst) != 0 && !mutant("clear summary: no second look")
        {
            summary.fetch_or(1 << (word % 64), Ordering::SeqCst);
        }
    }
}

impl PageHints<'_> {
    fn list(&self, list: usize) -> HintList<'_> {
        let all = self.words.len() / LISTS;
        // `all = words + words.div_ceil(64)`, except for a single word.
        let words = if all == 1 { 1 } else { all - all.div_ceil(65) };
        let (words, summary) = self.words[list * all..(list + 1) * all].split_at(words);
        HintList { words, summary }
    }

    /// Lists a page. The caller has opened the page, or has seen it open.
    pub fn set(&self, list: usize, page: usize) {
        let list = self.list(list);
        let word = &list.words[page / 64];
        let bit = 1 << (page % 64);
        // If the hint is already set: the thread that clears it examines the page after that, and
        // so after what the caller did to the page.
        if word.load(Ordering::SeqCst) & bit != 0 {
            return;
        }
        // Release pairs with the Acquire of `clear_one`. SeqCst: a thread that closes the slab
        // looks for hints after it has set the closed flag, and a thread that sets a hint reads the
        // flag after that.
        if mutant("hint: after its summary") {
            list.set_summary(page / 64);
            word.fetch_or(bit, Ordering::SeqCst);
            return;
        }
        word.fetch_or(bit, Ordering::SeqCst);
        list.set_summary(page / 64);
    }

    /// Clears one hint of a list, of a page for which `wanted` returns `true`, and returns the page.
    /// The search starts at the page `from`. The caller must then examine the page.
    pub fn clear_one(
        &self,
        list: usize,
        from: usize,
        wanted: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let list = self.list(list);
        let first = (from / 64).min(list.words.len() - 1);
        if let Some(page) = self.clear_in(list, first, &wanted) {
            return Some(page);
        }
        let summary = first / 64;
        for step in 0..list.summary.len() {
            let index = (summary + step) % list.summary.len();
            let mut bits = list.summary[index].load(Ordering::SeqCst);
            if step == 0 {
                // Searched above.
                bits &= !(1 << (first % 64));
            }
            while bits != 0 {
                let word = index * 64 + bits.trailing_zeros() as usize;
                if let Some(page) = self.clear_in(list, word, &wanted) {
                    return Some(page);
                }
                if list.words[word].load(Ordering::SeqCst) == 0 {
                    list.clear_summary(word);
                }
                bits &= bits - 1;
            }
        }
        None
    }

    fn clear_in(
        &self,
        list: HintList<'_>,
        index: usize,
        wanted: &impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let word = &list.words[index];
        let mut unwanted = 0;
        let mut hints = word.load(Ordering::SeqCst);
        while hints != 0 {
            let bit = hints & hints.wrapping_neg();
            let page = index * 64 + bit.trailing_zeros() as usize;
            if !wanted(page) {
                unwanted |= bit;
                hints &= !bit;
                continue;
            }
            // Acquire pairs with the Release of `set`.
            let before = word.fetch_and(!bit, order(Ordering::SeqCst, "find: unordered"));
            if before & bit != 0 {
                if !mutant("find: unordered") {
                    store_before_load();
                }
                if before == bit {
                    list.clear_summary(index);
                }
                return Some(page);
            }
            hints = word.load(Ordering::SeqCst) & !unwanted;
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_hint_that_is_set_is_found_once_however_many_pages_there_are() {
        for pages in [8, 64, 128, 1024, 8192, 1 << 14] {
            let words: Vec<_> = (0..words_for(pages)).map(|_| AtomicU64::new(0)).collect();
            let hints = PageHints { words: &words };
            for list in [0, 7, EMPTY_LIST] {
                let listed: Vec<usize> = (0..pages).step_by(7).chain([pages - 1]).collect();
                listed.iter().for_each(|page| hints.set(list, *page));
                let mut found: Vec<usize> =
                    core::iter::from_fn(|| hints.clear_one(list, pages / 3, |_| true)).collect();
                found.sort_unstable();
                let mut listed = listed;
                listed.dedup();
                assert_eq!(found, listed, "{pages} pages, list {list}");
            }
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        }
    }

    #[test]
    fn a_hint_that_is_not_wanted_stays() {
        for pages in [8, 64, 8192] {
            let words: Vec<_> = (0..words_for(pages)).map(|_| AtomicU64::new(0)).collect();
            let hints = PageHints { words: &words };
            (0..pages).for_each(|page| hints.set(0, page));
            let odd = |page| page % 2 == 1;
            let found = core::iter::from_fn(|| hints.clear_one(0, pages / 2, odd));
            assert_eq!(found.filter(|page| odd(*page)).count(), pages / 2);
            let left = core::iter::from_fn(|| hints.clear_one(0, 0, |_| true));
            assert_eq!(left.filter(|page| !odd(*page)).count(), pages / 2);
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        }
    }

    #[test]
    fn threads_that_set_and_clear_leave_no_hint_behind_that_is_not_found() {
        let pages = 1024;
        let words: Vec<_> = (0..words_for(pages)).map(|_| AtomicU64::new(0)).collect();
        let hints = PageHints { words: &words };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for round in 0..20_000 {
                        hints.set(3, (round * 64 + thread) % pages);
                        hints.clear_one(3, round % pages, |_| true);
                    }
                });
            }
        });
        while hints.clear_one(3, 0, |_| true).is_some() {}
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }
}
