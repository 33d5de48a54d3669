//! Models of thread caches (`src/slab/cache_steps.rs`, `cache_ownership.rs`), explored by loom;
//! `.ci/loom` runs them.
//!
//! The steps of a cache, its ownership, the pages and the hints are those that ship. The entries of
//! a real cache lie in a block that loom can't follow; here they lie in a cell that loom watches.
#![cfg(loom)]

use allotment::for_loom::Mutant;
use allotment::for_loom::cache_ownership::CacheOwnership;
use allotment::for_loom::cache_steps::{CacheBackend, CacheSteps};
use allotment::for_loom::page_group::{CacheUse, PageUse};
use allotment::for_loom::page_steps::PageSteps;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

mod loom_support;
use loom_support::explore;
use loom_support::slab::{ModelPage, PagesModel, Slots};

/// What belongs to the cache's owner.
#[derive(Default)]
struct Contents {
    cached: Vec<Slots>,
    /// What was allocated and is freed when the thread leaves the cache.
    allocated: Vec<Slots>,
    /// The current page, and its word to take next.
    current: Option<(usize, usize)>,
    recent: Vec<usize>,
    search_start: u32,
}

struct ModelCache {
    pages: Arc<PagesModel>,
    packing: Arc<AtomicBool>,
    ownership: CacheOwnership,
    contents: UnsafeCell<Contents>,
    /// What is written into the slots that the cache takes.
    mark: u32,
}

impl ModelCache {
    /// A cache in use, of a slab without packing.
    fn new(pages: &Arc<PagesModel>, mark: u32) -> Self {
        Self {
            pages: Arc::clone(pages),
            packing: Arc::new(AtomicBool::new(false)),
            ownership: CacheOwnership::owned(),
            contents: UnsafeCell::new(Contents::default()),
            mark,
        }
    }

    fn contents<R>(&self, work: impl FnOnce(&mut Contents) -> R) -> R {
        // SAFETY: the caller is the owner; loom fails the model if another thread is inside.
        self.contents.with_mut(|contents| work(unsafe { &mut *contents }))
    }

    /// Allocates, by a refill if the cache is empty.
    fn alloc(&self) {
        if let Ok(slots) = self.refill() {
            self.contents(|contents| contents.allocated.push(slots));
        }
    }

    /// Frees what was allocated, into the cache, and leaves the cache.
    fn leave(&self) {
        self.contents(|contents| contents.cached.append(&mut contents.allocated));
        self.detach();
    }
}

impl CacheBackend for ModelCache {
    type Pages = PagesModel;
    /// Slots of one word, which are taken together.
    type Slot = Slots;

    fn pages(&self) -> &PagesModel {
        &self.pages
    }

    fn lifetime(&self) -> usize {
        0
    }

    fn number(&self) -> u32 {
        self.mark
    }

    fn millis(&self) -> u16 {
        0
    }

    fn packing(&self) -> bool {
        self.packing.load(Ordering::Relaxed)
    }

    fn begin_refill(&self) {}

    // ---- slots ----

    fn pop(&self) -> Option<Slots> {
        self.contents(|contents| contents.cached.pop())
    }

    fn free_entries(&self) -> usize {
        64
    }

    fn refill_slots(&self) -> usize {
        1
    }

    fn add(&self, page: &ModelPage, word: usize, mask: u64) {
        if mask != 0 {
            let page = self.pages.number(page);
            let slots = self.pages.taken(Slots { page, word, mask, mark: self.mark });
            self.contents(|contents| contents.cached.push(slots));
        }
    }

    fn return_cached(&self) {
        for slots in self.contents(|contents| std::mem::take(&mut contents.cached)) {
            self.pages.free(slots);
        }
    }

    /// The models have no slots of marked pages.
    fn send_outgoing(&self) {}

    // ---- pages ----

    fn current(&self) -> Option<(&ModelPage, usize)> {
        let (page, word) = self.contents(|contents| contents.current)?;
        Some((self.pages.page(page), word))
    }

    fn set_current(&self, page: &ModelPage, word: usize) {
        let page = self.pages.number(page);
        self.contents(|contents| {
            contents.current = Some((page, word));
            contents.search_start = page as u32;
        });
    }

    fn take_current(&self) -> Option<&ModelPage> {
        let (page, _) = self.contents(|contents| contents.current.take())?;
        Some(self.pages.page(page))
    }

    fn search_start(&self) -> u32 {
        self.contents(|contents| contents.search_start)
    }

    fn recent(&self) -> impl Iterator<Item = &ModelPage> {
        let recent = self.contents(|contents| contents.recent.clone());
        recent.into_iter().map(|page| self.pages.page(page))
    }

    fn add_recent(&self, page: &ModelPage) {
        let page = self.pages.number(page);
        self.contents(|contents| {
            if !contents.recent.contains(&page) {
                contents.recent.push(page);
            }
        });
    }

    fn forget_pages(&self) {
        self.contents(|contents| {
            contents.search_start = 0;
            contents.recent.clear();
        });
    }

    fn release_ownership(&self) {
        self.ownership.release();
    }
}

/// Pages that no thread has claimed, with the slots that were taken of each.
fn with_pages(pages: PagesModel, takes: &[&[(usize, usize)]]) -> (Arc<PagesModel>, Vec<Slots>) {
    let mut slots = Vec::new();
    for takes in takes {
        let page = pages.leave_claim(pages.add_page().expect("there is room for it"));
        let take = |&(word, most): &(usize, usize)| {
            pages.take_slots(page, word, most, 10).expect("a slot of a new page")
        };
        slots.extend(takes.iter().map(take));
        pages.put_back(pages.resume_claim(page));
    }
    (Arc::new(pages), slots)
}

// ---- exit against free ----

/// A thread ends: its slots and its page go back, while another thread frees a slot of the page and
/// a third attaches to the cache.
fn a_thread_ends_while_its_page_is_freed_to() {
    explore(3, move || {
        // One slot is another thread's, one is in the cache, one is free in the claimed page.
        let (pages, mut theirs) = with_pages(PagesModel::new(1, 1, 3), &[&[(0, 1)]]);
        let cache = Arc::new(ModelCache::new(&pages, 11));
        let page = pages.leave_claim(pages.claim_any().unwrap());
        cache.contents(|contents| {
            contents.cached.extend(pages.take_slots(page, 0, 1, 11));
            contents.current = Some((page, 0));
        });
        let theirs = theirs.pop().unwrap();
        let freer = {
            let pages = Arc::clone(&pages);
            thread::spawn(move || pages.free(theirs))
        };
        let follower = {
            let cache = Arc::clone(&cache);
            thread::spawn(move || {
                let mine = cache.ownership.try_acquire();
                if mine {
                    cache.alloc();
                }
                mine
            })
        };
        cache.leave();
        freer.join().unwrap();
        if follower.join().unwrap() {
            cache.leave();
        }
        pages.nothing_is_lost([]);
    });
}

#[test]
fn a_thread_that_ends_loses_no_slot_and_leaves_a_cache_for_the_next() {
    a_thread_ends_while_its_page_is_freed_to();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_cache_that_is_left_before_it_is_emptied_has_two_owners() {
    let _mutant = Mutant::new("detach: left before it is empty");
    a_thread_ends_while_its_page_is_freed_to();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_cache_that_is_left_without_order_has_two_owners() {
    let _mutant = Mutant::new("detach: relaxed");
    a_thread_ends_while_its_page_is_freed_to();
}

#[test]
#[should_panic(expected = "a claim was lost")]
fn a_thread_that_ends_with_its_page_claimed_loses_it() {
    let _mutant = Mutant::new("flush: claimed page forgotten");
    a_thread_ends_while_its_page_is_freed_to();
}

/// A thread that was never seen before frees the last slot of a page whose owner ends at the same
/// time.
#[test]
fn the_last_slot_freed_at_its_pages_owners_end_releases_the_page() {
    explore(3, || {
        let pages = Arc::new(PagesModel::new(1, 1, 2));
        let cache = ModelCache::new(&pages, 12);
        let page = pages.leave_claim(pages.add_page().unwrap());
        let theirs = pages.take_slots(page, 0, 1, 11).unwrap();
        cache.contents(|contents| {
            contents.cached.extend(pages.take_slots(page, 0, 1, 12));
            contents.current = Some((page, 1));
        });
        let other = Arc::clone(&pages);
        let freer = thread::spawn(move || other.free(theirs));
        cache.leave();
        freer.join().unwrap();
        assert_eq!(pages.released(), 1);
        pages.nothing_is_lost([]);
    });
}

// ---- pages that are left to other threads ----

/// A thread needs slots, and the only page is another cache's, which frees to it meanwhile.
/// The page is passed over, and there is no new one.
#[test]
fn a_page_that_is_left_to_its_thread_serves_others_when_there_is_no_new_one() {
    explore(3, || {
        let model = PagesModel::new(1, 1, 3);
        let (pages, mut theirs) = with_pages(model, &[&[(0, 1), (0, 1)]]);
        pages.page(0).info.set_last_use(CacheUse { cache: 31, at: 0 });
        let freed = theirs.pop().unwrap();
        let refiller = {
            let pages = Arc::clone(&pages);
            thread::spawn(move || {
                let cache = ModelCache::new(&pages, 32);
                cache.alloc();
                let count = cache.contents(|contents| contents.allocated.len());
                assert_eq!(count, 1, "a slot is free all the time");
                cache.leave();
            })
        };
        pages.free(freed);
        refiller.join().unwrap();
        pages.nothing_is_lost(theirs);
    });
}

/// Two threads, each with a page of its own that it returns to, and with new pages.
#[test]
fn threads_that_leave_each_others_pages_alone_lose_nothing() {
    explore(2, || {
        let model = PagesModel::new(2, 2, 2);
        let (pages, theirs) = with_pages(model, &[&[(0, 1)]]);
        let threads: Vec<_> = [21, 22]
            .into_iter()
            .map(|mark| {
                let pages = Arc::clone(&pages);
                thread::spawn(move || {
                    let cache = ModelCache::new(&pages, mark);
                    (0..2).for_each(|_| cache.alloc());
                    cache.leave();
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        pages.nothing_is_lost(theirs);
    });
}

// ---- packing ----

/// Threads refill as often as told while packing is switched on, and while a slot is freed if
/// `frees`. Pages have two words, so that a thread has a page claimed from one refill to the next.
fn packing_is_switched_while_threads_refill(refills: &'static [u32], frees: bool) {
    explore(2, move || {
        let (pages, mut slots) = with_pages(PagesModel::new(2, 2, 65), &[&[(0, 1)], &[(0, 1)]]);
        let packing = Arc::new(AtomicBool::new(false));
        let refillers: Vec<_> = refills
            .iter()
            .zip(21..)
            .map(|(&refills, mark)| {
                let (pages, packing) = (Arc::clone(&pages), Arc::clone(&packing));
                thread::spawn(move || {
                    let cache = ModelCache { packing, ..ModelCache::new(&pages, mark) };
                    (0..refills).for_each(|_| cache.alloc());
                    cache.leave();
                })
            })
            .collect();
        packing.store(true, Ordering::Relaxed);
        if frees {
            pages.free(slots.remove(0));
        }
        for refiller in refillers {
            refiller.join().unwrap();
        }
        pages.nothing_is_lost(slots);
    });
}

/// Two models, because the frees and both threads in one take too long to explore.
#[test]
fn packing_switched_on_while_threads_refill_loses_nothing() {
    packing_is_switched_while_threads_refill(&[2], true);
    packing_is_switched_while_threads_refill(&[1, 2], false);
}

#[test]
#[should_panic(expected = "a page has one claim")]
fn a_page_that_is_packed_and_used_on_has_two_owners() {
    let _mutant = Mutant::new("refill: packed page used on");
    packing_is_switched_while_threads_refill(&[1, 2], false);
}
