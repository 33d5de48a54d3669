//! The steps by which a thread cache gets slots and gives everything back: refill, flush, detach.
//!
//! [`CacheSteps`] holds the order of each step. Where a cache keeps its slots and its pages is left
//! to [`CacheBackend`]. The thread cache implements it (`cache_backend.rs`), and so do the loom models.
//!
//! # Invariants
//!
//! 1. Only the owner of a cache calls these functions.
//! 2. The current page is one that the cache has claimed. It is current until the claim is given
//!    up.
//! 3. A cache is empty, and has no current page, before its owner gives it up.

use super::page::PageClaim;
use super::page_group::{CacheUse, PageUse};
use super::page_steps::{Claim, Page, PageBackend, PageSteps, SlotGrant};
use crate::sync::mutant;

/// What the steps leave to the cache.
pub trait CacheBackend {
    type Pages: PageBackend;
    /// What an allocation returns.
    type Slot;

    /// The pages of the cache's slab.
    fn pages(&self) -> &Self::Pages;
    /// The lifetime of the cache's objects, as a number.
    fn lifetime(&self) -> usize;
    /// The number of this cache. Not 0.
    fn number(&self) -> u32;
    /// The time in milliseconds. It wraps around.
    fn millis(&self) -> u16;
    /// Whether packing is on.
    fn packing(&self) -> bool;
    /// Records that a refill begins.
    fn begin_refill(&self);

    // ---- slots ----

    /// Takes a cached slot.
    fn pop(&self) -> Option<Self::Slot>;
    /// The number of free entries of the cache.
    fn free_entries(&self) -> usize;
    /// The number of slots that a refill should take.
    fn refill_slots(&self) -> usize;
    /// Caches slots that were taken, for which there is room.
    fn add(&self, page: &Page<Self::Pages>, word: usize, taken: u64);
    /// Returns the cached slots to their pages.
    fn return_cached(&self);
    /// Returns the outgoing slots to their pages.
    fn send_outgoing(&self);

    // ---- pages ----

    /// The current page, and its word to take next.
    fn current(&self) -> Option<(&Page<Self::Pages>, usize)>;
    /// Makes a claimed page the current one. The next refill takes slots of `word`.
    fn set_current(&self, page: &Page<Self::Pages>, word: usize);
    /// Removes the current page. The caller gives up its claim.
    fn take_current(&self) -> Option<&Page<Self::Pages>>;
    /// The index of the descriptor at which the search for a page starts.
    fn search_start(&self) -> u32;
    /// The pages that were current recently.
    fn recent(&self) -> impl Iterator<Item = &Page<Self::Pages>>;
    /// Adds a page to the recent ones.
    fn add_recent(&self, page: &Page<Self::Pages>);
    /// Forgets the recent pages and where the search starts.
    fn forget_pages(&self);

    /// Leaves the cache to the next thread.
    fn release_ownership(&self);
}

/// The steps.
pub trait CacheSteps: CacheBackend {
    /// Allocates a slot when the cache is empty.
    #[cold]
    #[inline(never)]
    fn refill(&self) -> Result<Self::Slot, <Self::Pages as PageBackend>::Error> {
        self.begin_refill();
        if self.packing() {
            let before = mutant("refill: packed page used on").then(|| self.current());
            // Once per refill: the pages claimed below are to be used.
            self.put_current_back();
            if let Some((page, word)) = before.flatten() {
                self.set_current(page, word);
            }
        }
        loop {
            if let Some(slot) = self.pop() {
                return Ok(slot);
            }
            if let Some((page, word)) = self.current() {
                self.take_from_current(page, word);
                continue;
            }
            // The outgoing slots may be the only free ones.
            self.send_outgoing();
            let start = self.search_start();
            let listed = || self.claim_listed(start);
            if let Some(claim) = self.claim_recent().or_else(listed) {
                self.use_page(claim);
                continue;
            }
            match self.pages().grow(self.lifetime(), start)? {
                SlotGrant::Page(claim) => self.use_page(claim),
                SlotGrant::Slots(page, word, taken) => self.add(page, word, taken),
            }
        }
    }

    /// Claims a listed page, or one that is kept empty.
    fn claim_listed(&self, start: u32) -> Option<Claim<'_, Self::Pages>> {
        if self.packing() {
            self.pages().claim(self.lifetime(), start, None)
        } else {
            self.pages().claim_for(self.use_now(), self.lifetime(), start)
        }
    }

    /// A use of a page by this cache, at this time.
    fn use_now(&self) -> CacheUse {
        CacheUse { cache: self.number(), at: self.millis() }
    }

    /// Makes a page the current one.
    fn use_page(&self, claim: Claim<'_, Self::Pages>) {
        let page = claim.into_page();
        page.info.set_last_use(self.use_now());
        self.set_current(page, 0);
    }

    /// Takes the free slots of the next words of the current page. After the last word the page is
    /// put back, so that a sleeping thread does not hold a page whose slots it has all taken.
    fn take_from_current(&self, page: &Page<Self::Pages>, mut word: usize) {
        let (words, wanted) = (page.words(), self.refill_slots());
        let mut count = 0;
        while word < words && count < wanted {
            let taken = self.pages().take(page, word, self.free_entries());
            count += taken.count_ones() as usize;
            self.add(page, word, taken);
            word += 1;
        }
        self.set_current(page, word);
        if word == words {
            self.put_current_back();
        }
    }

    /// Puts the current page back, if there is one.
    fn put_current_back(&self) {
        if let Some(page) = self.take_current() {
            // Invariant 2: the claim is the cache's, which gives it up here.
            self.pages().put_back(PageClaim::from_page(page));
            self.add_recent(page);
        }
    }

    /// Claims a page that this thread put back recently. Threads that return to their own pages
    /// don't contend for the same hints, and find the objects' lines in their own CPU's cache.
    fn claim_recent(&self) -> Option<Claim<'_, Self::Pages>> {
        if self.packing() {
            return None;
        }
        let again = |page| self.pages().claim_again(page, self.lifetime(), self.number());
        self.recent().find_map(again)
    }

    /// Returns everything that the cache holds to the pages: cached slots, outgoing slots, the
    /// current page.
    fn flush(&self) {
        self.return_cached();
        self.send_outgoing();
        if !mutant("flush: claimed page forgotten") {
            self.put_current_back();
        }
        self.pages().wake_waiters();
    }

    /// Empties the cache and leaves it to the next thread that needs one. The caller then releases
    /// the cache's reference to the slab.
    fn detach(&self) {
        if mutant("detach: left before it is empty") {
            self.release_ownership();
            return self.flush();
        }
        self.flush();
        self.forget_pages();
        self.release_ownership();
    }
}

impl<C: CacheBackend> CacheSteps for C {}
