//! A model of a search for a page beside a thread that begins to wait (`src/slab/page_group.rs`,
//! `src/slab/waiters.rs`), explored by loom; `.ci/loom` runs it.
//!
//! The pages, the groups and the waiters are those that ship. The page has two bitmap words and 65 slots. Its last
//! used slot is freed while one thread searches, and the search moves the page between lists. To see whether the
//! page is empty, it takes all slots for a moment. A thread that begins to wait in this moment finds none, so the
//! search has to wake it afterwards. As in `loom_slab_waiters.rs`, a waiting thread ends where it would sleep.
#![cfg(loom)]

use allotment::for_loom::page::{FreeOutcome, Fullness, PageClaim, PageDescriptor};
use allotment::for_loom::page_group::{FirstList, PageChange, PageGroup, PageOrigin};
use allotment::for_loom::page_hints::{EMPTY_LIST, PageHints, words_for};
use allotment::for_loom::waiters::Waiters;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;

mod loom_support;
use loom_support::{Gate, explore};

/// The process of all threads.
const PROCESS: u32 = 1;
/// The list in which the page has a hint from a time when it was fuller.
const STALE_LIST: usize = 7;

/// Pages of one lifetime.
#[derive(Debug)]
struct OneLifetime;

impl FirstList for OneLifetime {
    fn first_list(&self) -> usize {
        0
    }
}

struct Pages {
    pages: Vec<PageDescriptor<OneLifetime>>,
    hints: Vec<AtomicU64>,
    waiters: Waiters,
    gate: Gate,
    /// Whether a search wakes waiting threads after it has moved a page.
    search_wakes: bool,
}

impl Pages {
    /// One page of 65 slots, all free but one, which is on the list of its fullness.
    fn new(search_wakes: bool) -> Arc<Self> {
        let bits: &'static [AtomicU64] = Vec::leak(vec![AtomicU64::new(0), AtomicU64::new(0)]);
        let model = Self {
            pages: vec![PageDescriptor::new(bits, OneLifetime)],
            hints: (0..words_for(1)).map(|_| AtomicU64::new(0)).collect(),
            waiters: Waiters::none(),
            gate: Gate::new(),
            search_wakes,
        };
        assert!(model.waiters.try_take_turn(PROCESS));
        let claim = model.page().assign(65);
        assert_eq!(model.page().take(1, 64), 1);
        assert_eq!(claim.put_back(), Fullness::Bin(0));
        model.page().set_listed();
        model.group().hints.set(STALE_LIST, 0);
        Arc::new(model)
    }

    fn page(&self) -> &PageDescriptor<OneLifetime> {
        &self.pages[0]
    }

    fn group(&self) -> PageGroup<'_, OneLifetime> {
        PageGroup { pages: &self.pages, hints: PageHints { words: &self.hints } }
    }

    fn wake(&self) {
        self.waiters.wake(|_| ());
    }

    /// Searches all lists. A found page gets back its slots, as when it is used again.
    fn search(&self) -> bool {
        for list in [STALE_LIST, 0, EMPTY_LIST] {
            self.gate.pass();
            let moved = || {
                if self.search_wakes {
                    self.wake();
                }
            };
            if let Some((_, claim, origin)) = self.group().find(list, 0, moved) {
                self.prepare(claim, origin);
                return true;
            }
        }
        false
    }

    fn prepare(&self, claim: PageClaim<'_, OneLifetime>, origin: PageOrigin) {
        if origin != PageOrigin::Open {
            claim.free_all();
            self.waiters.wake_after_stores(|_| ());
        }
        let _ = claim.into_page();
    }

    /// Frees the slot in use.
    fn free_last(&self) {
        assert!(matches!(self.page().set_free(1, 1), FreeOutcome::Examine));
        if let PageChange::Emptied(claim) = self.group().examine(0, None) {
            claim.keep_empty();
            self.group().hints.set(EMPTY_LIST, 0);
        }
        self.wake();
    }

    /// Takes one slot of a word. The exchange fails if the slots are gone, so loom's other orders stay possible.
    fn steal(&self, word: usize) -> bool {
        self.gate.pass();
        let bits = &self.page().bits()[word];
        let mut free = bits.load(Ordering::Relaxed);
        while free != 0 {
            let rest = free & (free - 1);
            match bits.compare_exchange(free, rest, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => free = now,
            }
        }
        false
    }
}

fn no_thread_sleeps_beside_free_slots(search_wakes: bool) {
    let pages = Pages::new(search_wakes);
    let freeing = {
        let pages = pages.clone();
        thread::spawn(move || {
            pages.gate.pass();
            pages.free_last();
            pages.steal(1);
        })
    };
    let waiting = {
        let pages = pages.clone();
        thread::spawn(move || {
            pages.gate.pass();
            let find = || {
                let found = pages.search()
                    || (0..2).any(|word| pages.page().has_page() && pages.steal(word));
                found.then_some(())
            };
            let sleep = |event: &AtomicU32, seen| {
                if event.load(Ordering::SeqCst) == seen { Err(seen) } else { Ok(()) }
            };
            pages.waiters.wait(|| (), find, sleep)
        })
    };
    pages.search();
    let waited = waiting.join().unwrap();
    freeing.join().unwrap();
    if let Err(seen) = waited {
        let [_, event, _] = pages.waiters.words();
        let woken = event.load(Ordering::SeqCst) != seen;
        let free = pages.page().free_slots();
        assert!(woken || free == 0, "a thread sleeps beside {free} free slots");
    }
}

#[test]
fn a_search_that_moves_a_page_wakes_a_thread_that_could_not_see_its_slots() {
    explore(2, || no_thread_sleeps_beside_free_slots(true));
}

#[test]
#[should_panic(expected = "a thread sleeps beside 64 free slots")]
fn a_search_that_moves_a_page_silently_leaves_a_thread_asleep() {
    explore(2, || no_thread_sleeps_beside_free_slots(false));
}
