//! Models of thread caches (`src/slab/cache_ownership.rs`, `refill.rs`), explored by loom; `.ci/loom` runs them.
//!
//! The ownership of a cache, the pages and the hints are those that ship. A cache's entries lie in a block that
//! loom can't follow, so `refill`, `flush` and `detach` are written here once more, in the order of their steps.
#![cfg(loom)]

use allotment::for_loom::cache_ownership::CacheOwnership;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

mod loom_support;
use loom_support::explore;
use loom_support::slab::{PagesModel, Slots};

/// Which step is wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// A cache is left to the next thread before it is emptied.
    DetachesFirst,
    /// A cache is left to the next thread without the order that hands its contents over.
    DetachesRelaxed,
    /// The thread's end forgets the claimed page.
    ForgetsItsPage,
    /// Packing puts the claimed page back, but goes on to take from it.
    PacksAndGoesOn,
}

/// What belongs to the cache's owner.
#[derive(Default)]
struct Contents {
    cached: Vec<Slots>,
    /// The claimed page, and the word to take next.
    current: Option<(usize, usize)>,
    /// Where the search for pages begins.
    last_page: usize,
}

struct ModelCache {
    ownership: CacheOwnership,
    contents: UnsafeCell<Contents>,
    wrong: Wrong,
}

impl ModelCache {
    /// A cache in use.
    fn new(wrong: Wrong) -> Self {
        Self {
            ownership: CacheOwnership::owned(),
            contents: UnsafeCell::new(Contents::default()),
            wrong,
        }
    }

    fn contents<R>(&self, work: impl FnOnce(&mut Contents) -> R) -> R {
        // SAFETY: the caller is the owner; loom fails the model if another thread is inside.
        self.contents.with_mut(|contents| work(unsafe { &mut *contents }))
    }

    /// Takes the next slots of the claimed page, or of the fullest that is listed: a word of them.
    fn refill(&self, pages: &PagesModel, packing: &AtomicBool, mark: u32) {
        if packing.load(Ordering::Relaxed) {
            if self.wrong == Wrong::PacksAndGoesOn {
                if let Some((page, _)) = self.contents(|contents| contents.current) {
                    pages.put_back(pages.resume_claim(page));
                }
            } else {
                self.put_current_back(pages);
            }
        }
        loop {
            let found = || pages.claim().map(|claim| (pages.leave_claim(claim), 0));
            let Some((page, word)) = self.contents(|contents| contents.current).or_else(found)
            else {
                return;
            };
            let taken = pages.take(page, word, 64, mark);
            let done = taken.is_some();
            self.contents(|contents| {
                contents.cached.extend(taken);
                contents.current = Some((page, word + 1));
                contents.last_page = page;
            });
            if word + 1 == pages.words() {
                self.put_current_back(pages);
            }
            if done {
                return;
            }
        }
    }

    fn put_current_back(&self, pages: &PagesModel) {
        if let Some((page, _)) = self.contents(|contents| contents.current.take()) {
            pages.put_back(pages.resume_claim(page));
        }
    }

    fn flush(&self, pages: &PagesModel) {
        for slots in self.contents(|contents| std::mem::take(&mut contents.cached)) {
            pages.free(slots);
        }
        if self.wrong != Wrong::ForgetsItsPage {
            self.put_current_back(pages);
        }
    }

    fn detach(&self, pages: &PagesModel) {
        if self.wrong == Wrong::DetachesFirst {
            self.ownership.release();
            return self.flush(pages);
        }
        self.flush(pages);
        self.contents(|contents| contents.last_page = 0);
        if self.wrong == Wrong::DetachesRelaxed {
            self.ownership.word().store(false, Ordering::Relaxed);
        } else {
            self.ownership.release();
        }
    }
}

/// Pages that no thread has claimed, with the slots that were taken of each.
fn with_pages(pages: PagesModel, takes: &[&[(usize, usize)]]) -> (Arc<PagesModel>, Vec<Slots>) {
    let mut slots = Vec::new();
    for takes in takes {
        let page = pages.leave_claim(pages.new_page().expect("there is room for it"));
        let take = |&(word, most): &(usize, usize)| {
            pages.take(page, word, most, 10).expect("a slot of a new page")
        };
        slots.extend(takes.iter().map(take));
        pages.put_back(pages.resume_claim(page));
    }
    (Arc::new(pages), slots)
}

const PACKING_OFF: bool = false;

// ---- exit against free ----

/// A thread ends: its slots and its page go back, while another thread frees a slot of the page and a third
/// attaches to the cache.
fn a_thread_ends_while_its_page_is_freed_to(wrong: Wrong) {
    explore(3, move || {
        // One slot is another thread's, one is in the cache, one is free in the claimed page.
        let (pages, mut theirs) = with_pages(PagesModel::new(1, 1, 3), &[&[(0, 1)]]);
        let cache = Arc::new(ModelCache::new(wrong));
        let page = pages.leave_claim(pages.claim().unwrap());
        cache.contents(|contents| {
            contents.cached.extend(pages.take(page, 0, 1, 11));
            contents.current = Some((page, 0));
        });
        let theirs = theirs.pop().unwrap();
        let freer = {
            let pages = Arc::clone(&pages);
            thread::spawn(move || pages.free(theirs))
        };
        let follower = {
            let (pages, cache) = (Arc::clone(&pages), Arc::clone(&cache));
            thread::spawn(move || {
                let mine = cache.ownership.try_acquire();
                if mine {
                    cache.refill(&pages, &AtomicBool::new(PACKING_OFF), 12);
                }
                mine
            })
        };
        cache.detach(&pages);
        freer.join().unwrap();
        if follower.join().unwrap() {
            cache.detach(&pages);
        }
        pages.nothing_is_lost([]);
    });
}

#[test]
fn a_thread_that_ends_loses_no_slot_and_leaves_a_cache_for_the_next() {
    a_thread_ends_while_its_page_is_freed_to(Wrong::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_cache_that_is_left_before_it_is_emptied_has_two_owners() {
    a_thread_ends_while_its_page_is_freed_to(Wrong::DetachesFirst);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_cache_that_is_left_without_order_has_two_owners() {
    a_thread_ends_while_its_page_is_freed_to(Wrong::DetachesRelaxed);
}

#[test]
#[should_panic(expected = "a claim was lost")]
fn a_thread_that_ends_with_its_page_claimed_loses_it() {
    a_thread_ends_while_its_page_is_freed_to(Wrong::ForgetsItsPage);
}

/// A thread that was never seen before frees the last slot of a page whose owner ends at the same time.
#[test]
fn the_last_slot_freed_at_its_pages_owners_end_releases_the_page() {
    explore(3, || {
        let pages = Arc::new(PagesModel::new(1, 1, 2));
        let cache = ModelCache::new(Wrong::Nothing);
        let page = pages.leave_claim(pages.new_page().unwrap());
        let theirs = pages.take(page, 0, 1, 11).unwrap();
        cache.contents(|contents| {
            contents.cached.extend(pages.take(page, 0, 1, 12));
            contents.current = Some((page, 1));
        });
        let other = Arc::clone(&pages);
        let freer = thread::spawn(move || other.free(theirs));
        cache.detach(&pages);
        freer.join().unwrap();
        assert_eq!(pages.released(), 1);
        pages.nothing_is_lost([]);
    });
}

// ---- packing ----

/// One thread refills twice and another once while packing is switched on and slots are freed. Pages have two words,
/// so that a thread has a page claimed from one refill to the next.
fn packing_is_switched_while_threads_refill(wrong: Wrong) {
    explore(2, move || {
        let (pages, mut slots) = with_pages(PagesModel::new(2, 2, 65), &[&[(0, 1)], &[(0, 1)]]);
        let packing = Arc::new(AtomicBool::new(PACKING_OFF));
        let refillers = [21, 22].map(|mark| {
            let (pages, packing) = (Arc::clone(&pages), Arc::clone(&packing));
            thread::spawn(move || {
                let cache = ModelCache::new(wrong);
                (20..mark).for_each(|_| cache.refill(&pages, &packing, mark));
                cache.detach(&pages);
            })
        });
        packing.store(true, Ordering::Relaxed);
        pages.free(slots.remove(0));
        for refiller in refillers {
            refiller.join().unwrap();
        }
        pages.nothing_is_lost(slots);
    });
}

#[test]
fn packing_switched_on_while_threads_refill_loses_nothing() {
    packing_is_switched_while_threads_refill(Wrong::Nothing);
}

#[test]
#[should_panic(expected = "a page has one claim")]
fn a_page_that_is_packed_and_used_on_has_two_owners() {
    packing_is_switched_while_threads_refill(Wrong::PacksAndGoesOn);
}
