//! Pages and their hints together: the complete steps of the protocol between threads.
//!
//! A step returns what is left to do with memory (release the page, keep it, wake waiting threads);
//! see `core.rs`. The invariants are those of `page.rs` and `hints.rs`.

use super::hints::{EMPTY_LIST, Hints};
use super::page::{BINS, Claim, Fullness, Page};

/// The number of wrongly listed pages that a search lists anew before it takes one as it is.
const MOST_MOVES: usize = 16;

/// What the steps need to know about a page beyond its protocol.
pub trait Lists {
    /// The first of the lists for this page's lifetime: 0 or [`BINS`].
    fn first_list(&self) -> usize;
}

/// A group of descriptors with their hints.
#[derive(Debug)]
pub struct Block<'b, X> {
    /// The descriptors.
    pub pages: &'b [Page<X>],
    /// Their hints.
    pub hints: Hints<'b>,
}

/// The outcome of setting bits.
#[derive(Debug)]
pub enum Freed<'p, X> {
    /// Nothing that concerns other threads.
    Quiet,
    /// The page is worth a look by a thread that waits for a slot.
    Listed,
    /// The caller has the page and all of its slots, and must release or keep it.
    Emptied(Claim<'p, X>),
}

impl<'b, X: Lists> Block<'b, X> {
    /// Re-examines a page after some of its bits were set. The reason is that their word was full
    /// before or is empty now, or that the page's fullness was sampled; `sampled` is then its bin.
    #[cold]
    #[inline(never)]
    pub fn look(&self, page: usize, sampled: Option<usize>) -> Freed<'b, X> {
        let descriptor = &self.pages[page];
        if !descriptor.is_open() {
            // The thread that has claimed the page examines it when it puts it back.
            return Freed::Quiet;
        }
        if descriptor.is_all_free() {
            return self.list(page, Fullness::Empty);
        }
        // One hint is enough: the thread that follows it finds out how full the page is by then.
        if descriptor.is_listed() {
            return Freed::Listed;
        }
        match sampled {
            Some(bin) => self.list(page, Fullness::Bin(bin)),
            None => self.list(page, descriptor.fullness()),
        }
    }

    /// Opens a claimed page, and lists it if it has free slots.
    pub fn put_back(&self, page: usize, claim: Claim<'b, X>) -> Freed<'b, X> {
        debug_assert!(core::ptr::eq(claim.page(), &raw const self.pages[page]));
        let fullness = claim.put_back();
        self.list(page, fullness)
    }

    fn list(&self, page: usize, mut fullness: Fullness) -> Freed<'b, X> {
        let mut freed = Freed::Quiet;
        loop {
            match fullness {
                Fullness::Full => return freed,
                Fullness::Bin(bin) => {
                    let descriptor = &self.pages[page];
                    descriptor.set_listed();
                    self.hints.set(descriptor.beside.first_list() + bin, page);
                    return Freed::Listed;
                }
                Fullness::Empty => {
                    let Some(claim) = self.pages[page].claim_open() else {
                        // Another thread has claimed it, has released it or keeps it empty.
                        return freed;
                    };
                    if claim.take_all() {
                        return Freed::Emptied(claim);
                    }
                    // Other threads have taken and used slots in between.
                    freed = Freed::Listed;
                    fullness = claim.put_back();
                }
            }
        }
    }

    /// Claims a page of one list. Returns `true` with it if the page was kept empty; the caller
    /// then has all of its slots.
    ///
    /// The search moves pages that the list names wrongly to the list where they belong, and skips
    /// pages that have nothing to offer.
    pub fn find(&self, list: usize, from: usize) -> Option<(usize, Claim<'b, X>, bool)> {
        let mut moves = 0;
        while let Some(page) = self.hints.clear_one(list, from) {
            // Before the claim: if another thread has the claim and puts the page back, a thread
            // could otherwise take the page for listed although its hint is gone.
            self.pages[page].clear_listed();
            let Some((claim, kept)) = self.pages[page].claim() else { continue };
            if kept {
                return Some((page, claim, true));
            }
            let lifetime = self.pages[page].beside.first_list();
            let elsewhere = match claim.page().fullness() {
                Fullness::Full => true,
                // Emptier than its list says: other pages in this list may be fuller.
                Fullness::Bin(bin) => {
                    moves += 1;
                    list != EMPTY_LIST && bin + 1 < list % BINS && moves <= MOST_MOVES
                }
                Fullness::Empty => false,
            };
            // A stale hint, of a page that has served the other lifetime in the meantime.
            let elsewhere = elsewhere || (list != EMPTY_LIST && list / BINS * BINS != lifetime);
            if !elsewhere {
                return Some((page, claim, false));
            }
            if let Freed::Emptied(claim) = self.put_back(page, claim) {
                claim.free_all();
                return Some((page, claim, false));
            }
        }
        None
    }
}
