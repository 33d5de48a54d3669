//! Models of what a thread has of a slab, its front (`src/slab/front.rs`), explored by loom; `.ci/loom` runs them.
//!
//! Pages and hints are those that ship. A front lies in a block that loom can't follow, so its steps between
//! threads are written here once more, in their order: `refill`, `flush`, `leave` and `enter`.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

mod loom_support;
use loom_support::explore;
use loom_support::slab::{Slots, Yard};

/// What a front does instead of what it should.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// It is left to the next thread before it is emptied.
    LeavesFirst,
    /// It is left to the next thread without the order that hands its contents over.
    LeavesRelaxed,
    /// Its thread's end forgets the claimed page.
    ForgetsItsPage,
    /// Packing puts the claimed page back, but goes on to take from it.
    PacksAndGoesOn,
}

/// What belongs to the front's owner.
#[derive(Default)]
struct Own {
    cached: Vec<Slots>,
    /// The claimed page, and the word to take next.
    current: Option<(usize, usize)>,
    /// Where the search for pages begins.
    near: usize,
}

struct Front {
    in_use: AtomicBool,
    own: UnsafeCell<Own>,
    wrong: Wrong,
}

impl Front {
    /// A front in use.
    fn new(wrong: Wrong) -> Self {
        Self { in_use: AtomicBool::new(true), own: UnsafeCell::new(Own::default()), wrong }
    }

    fn own<R>(&self, work: impl FnOnce(&mut Own) -> R) -> R {
        // SAFETY: the caller is the owner; loom fails the model if another thread is inside.
        self.own.with_mut(|own| work(unsafe { &mut *own }))
    }

    fn enter(&self) -> bool {
        !self.in_use.load(Ordering::Relaxed)
            && self
                .in_use
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Takes the next slots of the claimed page, or of the fullest that is listed: a word of them.
    fn refill(&self, yard: &Yard, packing: &AtomicBool, mark: u32) {
        if packing.load(Ordering::Relaxed) {
            if self.wrong == Wrong::PacksAndGoesOn {
                if let Some((page, _)) = self.own(|own| own.current) {
                    yard.put_back(yard.resume(page));
                }
            } else {
                self.put_current_back(yard);
            }
        }
        loop {
            let found = || yard.find().map(|claim| (yard.keep(claim), 0));
            let Some((page, word)) = self.own(|own| own.current).or_else(found) else { return };
            let taken = yard.take(page, word, 64, mark);
            let done = taken.is_some();
            self.own(|own| {
                own.cached.extend(taken);
                own.current = Some((page, word + 1));
                own.near = page;
            });
            if word + 1 == yard.words() {
                self.put_current_back(yard);
            }
            if done {
                return;
            }
        }
    }

    fn put_current_back(&self, yard: &Yard) {
        if let Some((page, _)) = self.own(|own| own.current.take()) {
            yard.put_back(yard.resume(page));
        }
    }

    fn flush(&self, yard: &Yard) {
        for slots in self.own(|own| std::mem::take(&mut own.cached)) {
            yard.free(slots);
        }
        if self.wrong != Wrong::ForgetsItsPage {
            self.put_current_back(yard);
        }
    }

    fn leave(&self, yard: &Yard) {
        if self.wrong == Wrong::LeavesFirst {
            self.in_use.store(false, Ordering::Release);
            return self.flush(yard);
        }
        self.flush(yard);
        self.own(|own| own.near = 0);
        let order =
            if self.wrong == Wrong::LeavesRelaxed { Ordering::Relaxed } else { Ordering::Release };
        self.in_use.store(false, order);
    }
}

/// A yard of pages that are claimed by nobody, with the slots that were taken of each.
fn with_pages(yard: Yard, takes: &[&[(usize, usize)]]) -> (Arc<Yard>, Vec<Slots>) {
    let mut slots = Vec::new();
    for takes in takes {
        let page = yard.keep(yard.fresh().expect("there is room for it"));
        let take = |&(word, most): &(usize, usize)| {
            yard.take(page, word, most, 10).expect("a slot of a new page")
        };
        slots.extend(takes.iter().map(take));
        yard.put_back(yard.resume(page));
    }
    (Arc::new(yard), slots)
}

const PACKING_OFF: bool = false;

// ---- exit against free ----

/// A thread ends: its slots and its page go back, while another thread frees a slot of the page and a third takes
/// the front over.
fn a_thread_ends_while_its_page_is_freed_to(wrong: Wrong) {
    explore(3, move || {
        // One slot is another thread's, one is in the front's cache, one is free in the claimed page.
        let (yard, mut theirs) = with_pages(Yard::new(1, 1, 3), &[&[(0, 1)]]);
        let front = Arc::new(Front::new(wrong));
        let page = yard.keep(yard.find().unwrap());
        front.own(|own| {
            own.cached.extend(yard.take(page, 0, 1, 11));
            own.current = Some((page, 0));
        });
        let theirs = theirs.pop().unwrap();
        let freer = {
            let yard = Arc::clone(&yard);
            thread::spawn(move || yard.free(theirs))
        };
        let follower = {
            let (yard, front) = (Arc::clone(&yard), Arc::clone(&front));
            thread::spawn(move || {
                let mine = front.enter();
                if mine {
                    front.refill(&yard, &AtomicBool::new(PACKING_OFF), 12);
                }
                mine
            })
        };
        front.leave(&yard);
        freer.join().unwrap();
        if follower.join().unwrap() {
            front.leave(&yard);
        }
        yard.nothing_is_lost([]);
    });
}

#[test]
fn a_thread_that_ends_loses_no_slot_and_leaves_a_front_for_the_next() {
    a_thread_ends_while_its_page_is_freed_to(Wrong::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_front_that_is_left_before_it_is_emptied_has_two_owners() {
    a_thread_ends_while_its_page_is_freed_to(Wrong::LeavesFirst);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_front_that_is_left_without_order_has_two_owners() {
    a_thread_ends_while_its_page_is_freed_to(Wrong::LeavesRelaxed);
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
        let yard = Arc::new(Yard::new(1, 1, 2));
        let front = Front::new(Wrong::Nothing);
        let page = yard.keep(yard.fresh().unwrap());
        let theirs = yard.take(page, 0, 1, 11).unwrap();
        front.own(|own| {
            own.cached.extend(yard.take(page, 0, 1, 12));
            own.current = Some((page, 1));
        });
        let other = Arc::clone(&yard);
        let freer = thread::spawn(move || other.free(theirs));
        front.leave(&yard);
        freer.join().unwrap();
        assert_eq!(yard.released(), 1);
        yard.nothing_is_lost([]);
    });
}

// ---- packing ----

/// One thread refills twice and another once while packing is switched on and slots are freed. Pages have two words,
/// so that a thread has a page claimed from one refill to the next.
fn packing_is_switched_while_threads_refill(wrong: Wrong) {
    explore(2, move || {
        let (yard, mut slots) = with_pages(Yard::new(2, 2, 65), &[&[(0, 1)], &[(0, 1)]]);
        let packing = Arc::new(AtomicBool::new(PACKING_OFF));
        let refillers = [21, 22].map(|mark| {
            let (yard, packing) = (Arc::clone(&yard), Arc::clone(&packing));
            thread::spawn(move || {
                let front = Front::new(wrong);
                (20..mark).for_each(|_| front.refill(&yard, &packing, mark));
                front.leave(&yard);
            })
        });
        packing.store(true, Ordering::Relaxed);
        yard.free(slots.remove(0));
        for refiller in refillers {
            refiller.join().unwrap();
        }
        yard.nothing_is_lost(slots);
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
