//! Pages and their hints together: the steps between threads, complete.
//!
//! What a step leaves to do with memory (release the page, keep it, tell who waits) it returns; see `core.rs`.
//! The invariants are those of `page.rs` and `hints.rs`.

use super::hints::{EMPTY_LIST, Hints};
use super::page::{BINS, Claim, Fullness, Page};

/// So many pages that a list names wrongly are listed anew before one of them is taken as it is.
const MOST_MOVES: usize = 16;

/// What the steps need to know of a page beside its protocol.
pub trait Lists {
    /// The first of the lists of this page's lifetime: 0 or [`BINS`].
    fn first_list(&self) -> usize;
}

/// A number of descriptors with their hints.
#[derive(Debug)]
pub struct Block<'b, X> {
    /// The descriptors.
    pub pages: &'b [Page<X>],
    /// Their hints.
    pub hints: Hints<'b>,
}

/// What setting bits led to.
#[derive(Debug)]
pub enum Freed<'p, X> {
    /// Nothing that concerns others.
    Quiet,
    /// The page is worth a look of a thread that waits for a slot.
    Listed,
    /// The page and all of its slots are the caller's: to be released or kept.
    Emptied(Claim<'p, X>),
}

impl<'b, X: Lists> Block<'b, X> {
    /// Looks at a page after bits of it were set, because its word was full before or is empty now, or because its
    /// fullness was sampled: then it is in this bin.
    #[cold]
    #[inline(never)]
    pub fn look(&self, page: usize, sampled: Option<usize>) -> Freed<'b, X> {
        let descriptor = &self.pages[page];
        if !descriptor.is_open() {
            // Who has claimed it looks when he puts it back.
            return Freed::Quiet;
        }
        if descriptor.is_all_free() {
            return self.list(page, Fullness::Empty);
        }
        // One hint is enough: who follows it finds out how full the page is by then.
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
                        // Another thread has it, has released it or keeps it empty.
                        return freed;
                    };
                    if claim.take_all() {
                        return Freed::Emptied(claim);
                    }
                    // Taken and used by others in between.
                    freed = Freed::Listed;
                    fullness = claim.put_back();
                }
            }
        }
    }

    /// Claims a page of one list; `true` with it if it was kept empty, and then all of its slots are the
    /// caller's. Pages that the list names wrongly are
    /// listed where they belong, or passed over where nothing is to be had.
    pub fn find(&self, list: usize, from: usize) -> Option<(usize, Claim<'b, X>, bool)> {
        let mut moves = 0;
        while let Some(page) = self.hints.clear_one(list, from) {
            // Before the claim: where another thread has it and puts it back, it may take the page for listed else.
            self.pages[page].clear_listed();
            let Some((claim, kept)) = self.pages[page].claim() else { continue };
            if kept {
                return Some((page, claim, true));
            }
            let lifetime = self.pages[page].beside.first_list();
            let elsewhere = match claim.page().fullness() {
                Fullness::Full => true,
                // Emptier than its list: others there may be fuller.
                Fullness::Bin(bin) => {
                    moves += 1;
                    list != EMPTY_LIST && bin + 1 < list % BINS && moves <= MOST_MOVES
                }
                Fullness::Empty => false,
            };
            // An old hint, of a page that has served the other lifetime since.
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
