//! A group of page descriptors with its hints: the complete steps of the protocol between threads.
//!
//! A step returns what is left to do with memory (release the page, keep it, wake waiting threads);
//! `page_steps.rs` does that. The invariants are those of `page.rs` and `page_hints.rs`.

use core::cell::Cell;

use super::page::{BINS, Fullness, PageClaim, PageDescriptor};
use super::page_hints::{EMPTY_LIST, PageHints};
use crate::sync::mutant;

/// The number of pages that a search moves to a more fitting list before it takes one as it is.
const MAX_MOVES: usize = 16;

/// A page that a thread cache claimed less than this many milliseconds ago is left to that cache.
/// A thread that comes back less often loses little when its page has moved to another processor.
const KEPT_OUT_MILLIS: u16 = 50;
/// The most pages of other thread caches that a search passes over. It takes the next one: behind so
/// many, the cache's own pages and unused ones would not be found either.
const MAX_PASSED_OVER: usize = 128;

/// The use of a page by a thread cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheUse {
    /// The number of the cache; 0 for none.
    pub cache: u32,
    /// The time of the claim in milliseconds. It wraps around.
    pub at: u16,
}

/// What a descriptor stores about the use of its page. Written by the thread that has the page's
/// claim; the handover of the claim orders it.
pub trait PageUse {
    /// A [`Lifetime`](super::Lifetime) as a number.
    fn lifetime(&self) -> usize;
    /// Sets the lifetime.
    fn set_lifetime(&self, lifetime: usize);

    /// The thread cache that claimed the page last. Other threads also read it without the claim.
    /// Then it is only a guess.
    fn last_use(&self) -> CacheUse;
    /// Sets the thread cache that claimed the page last.
    fn set_last_use(&self, used: CacheUse);

    /// The first of the lists for this page's lifetime.
    fn first_list(&self) -> usize {
        self.lifetime() * BINS
    }
}

/// A search by a thread cache for pages that no other cache uses: those that it claimed last, and
/// those that no cache has claimed lately. A search that finds only pages of others takes one of
/// these if they are many.
#[derive(Debug)]
pub struct OwnPages {
    by: CacheUse,
    /// The number of other caches' pages that the search may still pass over.
    passes_left: Cell<usize>,
}

impl OwnPages {
    /// A search at this time by this cache.
    pub fn new(by: CacheUse) -> Self {
        Self { by, passes_left: Cell::new(MAX_PASSED_OVER) }
    }

    fn contain<X: PageUse>(&self, page: &PageDescriptor<X>) -> bool {
        let passes_left = self.passes_left.get();
        if passes_left == 0 {
            return true;
        }
        let last = page.info.last_use();
        let is_others = last.cache != self.by.cache
            && last.cache != 0
            && self.by.at.wrapping_sub(last.at) < KEPT_OUT_MILLIS;
        if is_others {
            self.passes_left.set(passes_left - 1);
        }
        !is_others
    }
}

/// Descriptors with their hints.
#[derive(Debug)]
pub struct PageGroup<'g, X> {
    /// The descriptors.
    pub pages: &'g [PageDescriptor<X>],
    /// Their hints.
    pub hints: PageHints<'g>,
}

/// What examining a page or putting it back has led to.
#[derive(Debug)]
pub enum PageChange<'p, X> {
    /// The page was not listed.
    Unlisted,
    /// The page is listed: a thread that waits for a slot should examine it.
    Listed,
    /// The caller has the page's claim and all of its slots, and must release or keep the page.
    Emptied(PageClaim<'p, X>),
}

/// Where a claimed page comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageOrigin {
    /// The page was open. Its free slots are free.
    Open,
    /// The page was kept empty. The caller has all of its slots.
    KeptEmpty,
    /// The page became empty while it was claimed. The caller has all of its slots.
    Emptied,
}

impl<'g, X: PageUse> PageGroup<'g, X> {
    /// Examines a page after some of its bits were set: lists it if it has free slots, and empties
    /// it if all are free. The reason is [`FreeOutcome::Examine`](super::page::FreeOutcome), or
    /// that the page's fullness was sampled; `sampled` is then its bin.
    #[cold]
    #[inline(never)]
    pub fn examine(&self, page: usize, sampled: Option<usize>) -> PageChange<'g, X> {
        let descriptor = &self.pages[page];
        if !descriptor.is_open() {
            // The thread that has claimed the page examines it when it puts the page back.
            return PageChange::Unlisted;
        }
        if descriptor.is_all_free() {
            return self.list(page, Fullness::Empty);
        }
        // One hint is enough: the thread that follows it reads how full the page is by then.
        if descriptor.is_listed() {
            return PageChange::Listed;
        }
        match sampled {
            Some(bin) => self.list(page, Fullness::Bin(bin)),
            None => self.list(page, descriptor.fullness()),
        }
    }

    /// Opens a claimed page, and lists it if it has free slots.
    pub fn put_back(&self, page: usize, claim: PageClaim<'g, X>) -> PageChange<'g, X> {
        debug_assert!(core::ptr::eq(claim.page(), &raw const self.pages[page]));
        if mutant("put back: lists before it opens") {
            let early = claim.page().fullness();
            let change = self.list(page, early);
            return match (early, claim.put_back()) {
                (Fullness::Bin(_), Fullness::Bin(_)) => change,
                (_, fullness) => self.list(page, fullness),
            };
        }
        let fullness = claim.put_back();
        self.list(page, fullness)
    }

    /// Marks a page as kept empty, and lists it. The caller has all of its slots.
    pub fn keep_empty(&self, page: usize, claim: PageClaim<'g, X>) {
        claim.keep_empty();
        self.hints.set(EMPTY_LIST, page);
    }

    fn list(&self, page: usize, mut fullness: Fullness) -> PageChange<'g, X> {
        let mut change = PageChange::Unlisted;
        loop {
            match fullness {
                Fullness::Full => return change,
                Fullness::Bin(bin) => {
                    let descriptor = &self.pages[page];
                    descriptor.set_listed();
                    self.hints.set(descriptor.info.first_list() + bin, page);
                    return PageChange::Listed;
                }
                Fullness::Empty => {
                    let Some(claim) = self.pages[page].claim_open() else {
                        // Another thread has claimed the page, has released it or keeps it empty.
                        return change;
                    };
                    if claim.take_all() {
                        return PageChange::Emptied(claim);
                    }
                    // Other threads have taken and used slots in between.
                    change = PageChange::Listed;
                    fullness = claim.put_back();
                }
            }
        }
    }

    /// Claims a page of one list. With `own`, only one of those pages, or one that is kept empty.
    ///
    /// The search moves pages that are in the wrong list to the list where they belong, and skips
    /// pages without a free slot. Putting a page back may have taken its slots for a moment, and a
    /// thread that began to wait then found none. So `listed` is called after each page that was
    /// moved; it wakes the waiting threads.
    pub fn find(
        &self,
        list: usize,
        from: usize,
        own: Option<&OwnPages>,
        listed: impl Fn(),
    ) -> Option<(usize, PageClaim<'g, X>, PageOrigin)> {
        let mut moves = 0;
        let own = own.filter(|_| list != EMPTY_LIST);
        let wanted = |page: usize| own.is_none_or(|own| own.contain(&self.pages[page]));
        while let Some(page) = self.hints.clear_one(list, from, wanted) {
            // Before the claim: if another thread has the claim and puts the page back, a thread
            // could otherwise conclude that the page is listed although its hint is gone.
            if !mutant("find: note left") {
                self.pages[page].clear_listed();
            }
            let claimed = self.pages[page].claim();
            if mutant("find: hint cleared after the look") {
                self.hints.clear_one(list, page, |_| true);
            }
            let Some((claim, was_empty)) = claimed else { continue };
            if was_empty {
                return Some((page, claim, PageOrigin::KeptEmpty));
            }
            let first_list = self.pages[page].info.first_list();
            let misplaced = match claim.page().fullness() {
                Fullness::Full => true,
                // Emptier than its list says: other pages in this list may be fuller.
                Fullness::Bin(bin) => {
                    moves += 1;
                    list != EMPTY_LIST && bin + 1 < list % BINS && moves <= MAX_MOVES
                }
                Fullness::Empty => false,
            };
            // The hint may be stale: the page has been used for the other lifetime since.
            let misplaced = misplaced || (list != EMPTY_LIST && list / BINS * BINS != first_list);
            if !misplaced {
                return Some((page, claim, PageOrigin::Open));
            }
            match self.put_back(page, claim) {
                PageChange::Emptied(claim) => return Some((page, claim, PageOrigin::Emptied)),
                PageChange::Listed | PageChange::Unlisted if mutant("find: silent") => {}
                PageChange::Listed | PageChange::Unlisted => listed(),
            }
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::slab::page_hints::words_for;
    use crate::sync::AtomicU64;

    /// The number of the cache that used a page last.
    struct UsedBy(AtomicU32);

    impl PageUse for UsedBy {
        fn lifetime(&self) -> usize {
            0
        }

        fn set_lifetime(&self, _: usize) {}

        fn last_use(&self) -> CacheUse {
            CacheUse { cache: self.0.load(Ordering::Relaxed), at: 1000 }
        }

        fn set_last_use(&self, used: CacheUse) {
            self.0.store(used.cache, Ordering::Relaxed);
        }
    }

    /// The page that a search of cache 1 finds at this time. Cache 2 has used all of these listed
    /// pages at 1000, but page `own`. Each page has one free slot.
    fn found(pages: usize, own: Option<usize>, at: u16) -> Option<usize> {
        let descriptors: Vec<_> = (0..pages)
            .map(|page| {
                let bits = Vec::leak(vec![AtomicU64::new(0)]);
                let user = if own == Some(page) { 1 } else { 2 };
                let descriptor = PageDescriptor::new(bits, UsedBy(AtomicU32::new(user)));
                let claim = descriptor.assign(64);
                descriptor.take(0, 63);
                claim.put_back();
                descriptor
            })
            .collect();
        let words: Vec<_> = (0..words_for(pages)).map(|_| AtomicU64::new(0)).collect();
        let group = PageGroup { pages: &descriptors, hints: PageHints { words: &words } };
        (0..pages).for_each(|page| group.hints.set(7, page));
        let own = OwnPages::new(CacheUse { cache: 1, at });
        let (page, claim, _) = group.find(7, 0, Some(&own), || {})?;
        claim.put_back();
        Some(page)
    }

    #[test]
    fn a_search_passes_over_pages_that_others_use_and_takes_the_next_behind_many() {
        assert_eq!(found(100, None, 1049), None, "all in use");
        assert_eq!(found(100, None, 1050), Some(0), "none in use");
        assert_eq!(found(100, Some(99), 1049), Some(99), "its own");
        assert_eq!(found(500, Some(499), 1049), Some(MAX_PASSED_OVER), "the next behind many");
        assert_eq!(found(500, Some(20), 1049), Some(20));
    }
}
