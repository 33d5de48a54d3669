//! What must be true of a slab's pages while no thread is inside a call.

use allotment::for_loom::page_hints::LISTS;
use loom::sync::atomic::Ordering;

use super::{PagesModel, Slots};

impl PagesModel {
    /// The pages that a list names.
    pub(super) fn named_by(&self, list: usize) -> Vec<usize> {
        let words = self.hints.len() / LISTS;
        let hints = self.hints[list * words].load(Ordering::SeqCst);
        (0..self.pages.len()).filter(|page| hints & (1 << page) != 0).collect()
    }

    /// Pages released so far.
    pub fn released(&self) -> u32 {
        self.released.load(Ordering::Relaxed)
    }

    /// Checks, with no thread inside a call: every page with a free slot can be found, and every
    /// empty page was released or kept.
    pub fn is_quiet(&self) {
        let named: Vec<Vec<usize>> = (0..LISTS).map(|list| self.named_by(list)).collect();
        for (number, page) in self.pages.iter().enumerate() {
            let listed = named.iter().any(|pages| pages.contains(&number));
            assert!(!page.is_claimed(), "a claim was lost");
            if page.is_open() {
                let free = page.free_slots();
                assert!(free == 0 || listed, "an open page with free slots is in no list");
                assert!(free < page.slots(), "an empty page was not noticed");
            }
            assert!(!page.is_kept_empty() || listed, "a page that is kept empty is in no list");
        }
    }

    /// Checks, with no thread inside a call and these slots the last ones in use, that nothing is
    /// lost: when all are freed and kept pages are trimmed, every page is released.
    pub fn nothing_is_lost(&self, slots: impl IntoIterator<Item = Slots>) {
        self.is_quiet();
        for slots in slots {
            self.free(slots);
            self.is_quiet();
        }
        while self.trim_one() {}
        assert!(self.pages.iter().all(|page| !page.has_page()), "a page was lost");
        let spans = self.spans.load(Ordering::Relaxed);
        assert_eq!(spans, (1 << self.memory.len()) - 1, "a page was lost");
    }
}
