//! Models of how threads wait for slots (`grow_one_by_one` and around it in `src/slab/core.rs`), explored by loom;
//! `.ci/loom` runs them.
//!
//! The pages are those that ship. The core calls the system, which loom can't follow, so the waiter's protocol is
//! written here once more: who waits counts himself, marks all pages, notes the event and looks for slots; who has
//! made a slot available looks whether somebody waits after that, and then changes the event. Accesses that are
//! sequentially consistent have a fence beside them, as in `store_before_load`, because loom knows that of fences
//! only.
//!
//! A thread sleeps only while the event is the one that it has noted; the system compares the two and lays it down
//! in one step. So a model's waiter ends where it would sleep, with that event. If it was changed when all is quiet,
//! the waiter would have been woken, and looks again; if not it sleeps on, and no slot may be free. The source is
//! held up for ever by another thread, unless a model says otherwise.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

mod loom_support;
use loom_support::slab::{Held, Slots, Told, Wrong as WrongStep, Yard};
use loom_support::{Gate, explore};

/// What is done instead of what should be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Who waits looks for slots before he is counted.
    CountsAfterTheLook,
    /// Who waits notes the event after he has looked.
    NotesTheEventLate,
    /// Who frees looks for waiters in an order that others may see the other way round.
    TellsUnordered,
    /// A slot that was freed to a claimed page is nobody's news.
    FreesToClaimedSilently,
    /// A page that was kept empty is used again, and its slots are nobody's news.
    UsesKeptSilently,
    /// The source's turn ends in an order that others may see the other way round.
    EndsTurnUnordered,
    /// A mark is cleared without a second look for waiters.
    ClearsMarkBlindly,
    /// A new page is not marked for those who wait already.
    LeavesNewUnmarked,
}

struct Slab {
    wrong: Wrong,
    gate: Gate,
    yard: Yard,
    /// How many threads wait.
    attention: AtomicU32,
    event: AtomicU32,
    /// 1 while a thread asks the source.
    growing: AtomicU32,
    /// 1 while no free of the page is cached.
    marks: Vec<AtomicU32>,
}

impl Slab {
    fn new(yard: Yard, pages: usize, wrong: Wrong) -> Self {
        Self {
            wrong,
            gate: Gate::new(),
            yard,
            attention: AtomicU32::new(0),
            event: AtomicU32::new(0),
            growing: AtomicU32::new(1),
            marks: (0..pages).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    // ---- who waits ----

    /// Waits for a slot; the source is another thread's. Gives the event at which it sleeps, if it does.
    fn wait_for_slot(&self, mark: u32) -> Result<Slots, u32> {
        if self.wrong == Wrong::CountsAfterTheLook {
            if let Some(slots) = self.look_for_slot(mark) {
                return Ok(slots);
            }
            self.count_and_mark();
            return Err(self.event.load(Ordering::SeqCst));
        }
        self.count_and_mark();
        loop {
            let mut event = self.event.load(Ordering::SeqCst);
            if let Some(slots) = self.look_for_slot(mark) {
                self.attention.fetch_sub(1, Ordering::SeqCst);
                return Ok(slots);
            }
            if self.wrong == Wrong::NotesTheEventLate {
                event = self.event.load(Ordering::SeqCst);
            }
            if self.event.load(Ordering::SeqCst) == event {
                return Err(event);
            }
        }
    }

    /// What a thread that waits gets in the end, when all is quiet and there is a slot for it.
    fn wake(&self, got: Result<Slots, u32>, mark: u32) -> Slots {
        got.unwrap_or_else(|event| {
            assert_ne!(
                self.event.load(Ordering::SeqCst),
                event,
                "a thread sleeps beside a free slot"
            );
            self.look_for_slot(mark).expect("there is a slot")
        })
    }

    fn count_and_mark(&self) {
        self.gate.pass();
        self.attention.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        for (page, mark) in self.marks.iter().enumerate() {
            if self.yard.has_page(page) {
                mark.fetch_or(1, Ordering::SeqCst);
            }
        }
    }

    fn look_for_slot(&self, mark: u32) -> Option<Slots> {
        self.gate.pass();
        if let Some(claim) = self.yard.find() {
            return self.take_and_put_back(claim, mark);
        }
        if let Some(slots) = self.yard.steal_one(mark) {
            return Some(slots);
        }
        if !self.take_turn() {
            return None;
        }
        let claim = self.yard.fresh();
        self.end_turn();
        self.take_and_put_back(claim?, mark)
    }

    fn take_and_put_back(&self, claim: Held<'_>, mark: u32) -> Option<Slots> {
        let page = self.yard.keep(claim);
        let slots = self.yard.take(page, 0, 1, mark);
        self.put_back(self.yard.resume(page));
        slots
    }

    fn take_turn(&self) -> bool {
        self.growing.load(Ordering::Relaxed) == 0
            && self.growing.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    // ---- who has something for them ----

    /// Tells those who wait, after something was written that is sequentially consistent.
    fn tell(&self) {
        if self.wrong != Wrong::TellsUnordered {
            fence(Ordering::SeqCst);
        }
        self.tell_unordered();
    }

    fn tell_unordered(&self) {
        self.gate.pass();
        if self.attention.load(Ordering::SeqCst) != 0 {
            self.event.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn end_turn(&self) {
        self.gate.pass();
        self.growing.store(0, Ordering::Release);
        if self.wrong == Wrong::EndsTurnUnordered {
            self.tell_unordered();
        } else {
            self.tell();
        }
    }

    fn put_back(&self, claim: Held<'_>) {
        if self.yard.put_back(claim) == Told::Waiters {
            self.tell();
        }
    }

    /// Frees slots out of a cache.
    fn spill(&self, slots: Slots) {
        let told = self.yard.free(slots);
        if told == Told::Waiters || self.wrong != Wrong::FreesToClaimedSilently {
            self.tell();
        }
    }

    /// Claims a page and takes a slot of it; the page stays claimed.
    fn claim_and_take(&self, mark: u32) -> Option<(usize, Option<Slots>)> {
        let (claim, kept) = self.yard.find_or_kept()?;
        if kept && self.wrong != Wrong::UsesKeptSilently {
            self.tell();
        }
        let page = self.yard.keep(claim);
        Some((page, self.yard.take(page, 0, 1, mark)))
    }

    fn is_calm(&self) -> bool {
        self.gate.pass();
        fence(Ordering::SeqCst);
        self.attention.load(Ordering::SeqCst) == 0
    }

    /// Clears a page's mark, as is done where it is claimed or has become full enough.
    fn clear_mark(&self, page: usize) {
        let marked = u32::from(!self.is_calm());
        if self.marks[page].load(Ordering::Relaxed) == marked {
            return;
        }
        self.marks[page].store(marked, Ordering::SeqCst);
        if self.wrong != Wrong::ClearsMarkBlindly && marked == 0 && !self.is_calm() {
            self.marks[page].fetch_or(1, Ordering::SeqCst);
        }
    }

    /// Makes a page, without a mark, which stays claimed.
    fn make_page(&self) -> usize {
        let page = self.yard.keep(self.yard.fresh().expect("there is room for it"));
        if self.wrong != Wrong::LeavesNewUnmarked && !self.is_calm() {
            self.marks[page].fetch_or(1, Ordering::SeqCst);
        }
        page
    }
}

/// A slab with one page of three slots, which is full and claimed by nobody, and its slots.
fn with_full_page(wrong: Wrong) -> (Arc<Slab>, [Slots; 3]) {
    let (slab, page, slots) = with_claimed_page(wrong);
    slab.put_back(slab.yard.resume(page));
    (slab, slots)
}

/// The same, but the page is claimed.
fn with_claimed_page(wrong: Wrong) -> (Arc<Slab>, usize, [Slots; 3]) {
    let mut yard = Yard::new(1, 1, 3);
    if wrong == Wrong::TellsUnordered {
        yard = yard.wrong(WrongStep::FreesUnordered);
    }
    let page = yard.keep(yard.fresh().unwrap());
    let slots = [11, 12, 13].map(|mark| yard.take(page, 0, 1, mark).unwrap());
    (Arc::new(Slab::new(yard, 1, wrong)), page, slots)
}

fn spawn_waiter(slab: &Arc<Slab>, mark: u32) -> thread::JoinHandle<Result<Slots, u32>> {
    let slab = Arc::clone(slab);
    thread::spawn(move || slab.wait_for_slot(mark))
}

// ---- no thread sleeps beside a free slot ----

/// A slot of an open page is freed while a thread begins to wait.
fn a_slot_is_freed_while_a_thread_begins_to_wait(wrong: Wrong) {
    explore(3, move || {
        let (slab, [first, second, third]) = with_full_page(wrong);
        let waiter = spawn_waiter(&slab, 21);
        slab.spill(first);
        let got = slab.wake(waiter.join().unwrap(), 21);
        slab.yard.nothing_is_lost([got, second, third]);
    });
}

#[test]
fn a_slot_freed_while_a_thread_begins_to_wait_is_its() {
    a_slot_is_freed_while_a_thread_begins_to_wait(Wrong::Nothing);
}

#[test]
#[should_panic(expected = "a thread sleeps beside a free slot")]
fn a_thread_that_is_counted_after_its_look_sleeps_beside_a_free_slot() {
    a_slot_is_freed_while_a_thread_begins_to_wait(Wrong::CountsAfterTheLook);
}

#[test]
#[should_panic(expected = "a thread sleeps beside a free slot")]
fn a_thread_that_notes_the_event_after_its_look_sleeps_beside_a_free_slot() {
    a_slot_is_freed_while_a_thread_begins_to_wait(Wrong::NotesTheEventLate);
}

/// A slot of a claimed page goes back out of a cache, while a thread begins to wait; the claim's owner does nothing
/// more until that has its slot.
fn a_slot_of_a_claimed_page_is_freed_while_a_thread_begins_to_wait(wrong: Wrong) {
    explore(3, move || {
        let (slab, page, [first, second, third]) = with_claimed_page(wrong);
        let waiter = spawn_waiter(&slab, 21);
        slab.spill(first);
        let got = slab.wake(waiter.join().unwrap(), 21);
        slab.put_back(slab.yard.resume(page));
        slab.yard.nothing_is_lost([got, second, third]);
    });
}

#[test]
fn a_slot_freed_to_a_page_whose_owner_sleeps_is_a_waiters() {
    a_slot_of_a_claimed_page_is_freed_while_a_thread_begins_to_wait(Wrong::Nothing);
}

#[test]
#[should_panic(expected = "a thread sleeps beside a free slot")]
fn a_free_to_a_claimed_page_that_wakes_nobody_leaves_a_waiter_asleep() {
    a_slot_of_a_claimed_page_is_freed_while_a_thread_begins_to_wait(Wrong::FreesToClaimedSilently);
}

#[test]
#[should_panic(expected = "a thread sleeps beside a free slot")]
fn a_free_that_does_not_order_its_bit_and_its_look_for_waiters_wakes_nobody() {
    a_slot_of_a_claimed_page_is_freed_while_a_thread_begins_to_wait(Wrong::TellsUnordered);
}

/// A page that was kept empty is claimed by a thread that takes one slot of it and then does nothing more, while
/// another begins to wait.
fn a_kept_page_is_used_while_a_thread_begins_to_wait(wrong: Wrong) {
    explore(3, move || {
        let yard = Yard::new(1, 1, 2).keeping();
        yard.put_back(yard.fresh().unwrap());
        let slab = Arc::new(Slab::new(yard, 1, wrong));
        let waiter = spawn_waiter(&slab, 21);
        let used = slab.claim_and_take(22);
        let got = slab.wake(waiter.join().unwrap(), 21);
        let mine = used.and_then(|(page, mine)| {
            slab.put_back(slab.yard.resume(page));
            mine
        });
        slab.yard.nothing_is_lost(mine.into_iter().chain([got]));
    });
}

#[test]
fn the_slots_of_a_kept_page_that_is_used_again_are_a_waiters_too() {
    a_kept_page_is_used_while_a_thread_begins_to_wait(Wrong::Nothing);
}

#[test]
#[should_panic(expected = "a thread sleeps beside a free slot")]
fn a_kept_page_that_is_used_again_silently_leaves_a_waiter_asleep() {
    a_kept_page_is_used_while_a_thread_begins_to_wait(Wrong::UsesKeptSilently);
}

#[test]
fn a_page_that_is_kept_while_a_thread_begins_to_wait_is_its() {
    explore(3, || {
        let yard = Yard::new(1, 1, 2).keeping();
        let page = yard.keep(yard.fresh().unwrap());
        let last = yard.take(page, 0, 2, 11).unwrap();
        yard.put_back(yard.resume(page));
        let slab = Arc::new(Slab::new(yard, 1, Wrong::Nothing));
        let waiter = spawn_waiter(&slab, 21);
        slab.spill(last);
        let got = slab.wake(waiter.join().unwrap(), 21);
        slab.yard.nothing_is_lost([got]);
    });
}

#[test]
fn two_threads_that_wait_both_get_a_slot_of_two() {
    explore(2, || {
        let (slab, [first, second, third]) = with_full_page(Wrong::Nothing);
        let waiters = [21, 22].map(|mark| spawn_waiter(&slab, mark));
        slab.spill(first);
        slab.spill(second);
        let got = waiters.map(|waiter| waiter.join().unwrap());
        let got = got.map(|got| slab.wake(got, 23));
        slab.yard.nothing_is_lost(got.into_iter().chain([third]));
    });
}

// ---- the source's turn ----

/// The turn at the source ends, without a page or with one that its thread has claimed and does nothing more with.
fn the_turn_ends_while_a_thread_begins_to_wait(refused: bool, wrong: Wrong) {
    explore(3, move || {
        let slab = Arc::new(Slab::new(Yard::new(2, 2, 2), 2, wrong));
        let waiter = spawn_waiter(&slab, 21);
        let page = (!refused).then(|| slab.make_page());
        slab.end_turn();
        let got = slab.wake(waiter.join().unwrap(), 21);
        if let Some(page) = page {
            slab.put_back(slab.yard.resume(page));
        }
        slab.yard.nothing_is_lost([got]);
    });
}

#[test]
fn a_thread_that_waits_takes_the_turn_that_another_has_ended() {
    the_turn_ends_while_a_thread_begins_to_wait(true, Wrong::Nothing);
}

#[test]
fn a_thread_that_waits_has_a_slot_of_the_page_that_another_got() {
    the_turn_ends_while_a_thread_begins_to_wait(false, Wrong::Nothing);
}

#[test]
#[should_panic(expected = "a thread sleeps beside a free slot")]
fn a_turn_that_ends_without_order_leaves_a_waiter_asleep() {
    the_turn_ends_while_a_thread_begins_to_wait(true, Wrong::EndsTurnUnordered);
}

// ---- nothing is cached while somebody waits ----

/// A thread begins to wait while another clears a page's mark or makes a page; at the end both pages are marked.
fn a_page_is_marked_while_a_thread_begins_to_wait(wrong: Wrong, change: fn(&Slab, usize)) {
    explore(3, move || {
        let yard = Yard::new(2, 2, 2);
        let page = yard.keep(yard.fresh().unwrap());
        let slab = Arc::new(Slab::new(yard, 2, wrong));
        slab.marks[page].store(1, Ordering::Relaxed);
        let other = Arc::clone(&slab);
        let waiter = thread::spawn(move || other.count_and_mark());
        change(&slab, page);
        waiter.join().unwrap();
        for (page, mark) in slab.marks.iter().enumerate() {
            let marked = mark.load(Ordering::Relaxed) == 1;
            assert!(marked || !slab.yard.has_page(page), "frees are cached while a thread waits");
        }
    });
}

fn clear_mark(slab: &Slab, page: usize) {
    slab.clear_mark(page);
}

fn make_page(slab: &Slab, _: usize) {
    slab.make_page();
}

#[test]
fn a_mark_cleared_while_a_thread_begins_to_wait_is_set_again() {
    a_page_is_marked_while_a_thread_begins_to_wait(Wrong::Nothing, clear_mark);
}

#[test]
#[should_panic(expected = "frees are cached while a thread waits")]
fn a_mark_that_is_cleared_without_a_second_look_is_lost() {
    a_page_is_marked_while_a_thread_begins_to_wait(Wrong::ClearsMarkBlindly, clear_mark);
}

#[test]
fn a_page_made_while_a_thread_waits_is_marked() {
    a_page_is_marked_while_a_thread_begins_to_wait(Wrong::Nothing, make_page);
}

#[test]
#[should_panic(expected = "frees are cached while a thread waits")]
fn a_new_page_that_is_not_marked_for_those_who_wait_caches_their_slots() {
    a_page_is_marked_while_a_thread_begins_to_wait(Wrong::LeavesNewUnmarked, make_page);
}
