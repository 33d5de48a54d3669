//! Models of how threads wait for slots (`src/slab/waiters.rs`), explored by loom; `.ci/loom` runs them.
//!
//! The waiters and the pages are those that ship. The models have their own marks, because loom can't follow the
//! segment map, and they do not sleep, because loom can't follow the system: a thread sleeps only while the event
//! has the value that the thread has read; the system compares the two and suspends the thread in one step. So a
//! model's waiting thread ends where it would sleep, with that value. If the event has changed when all threads
//! have ended, the thread would have been woken, and looks again. If not, it sleeps on, and no slot may be free.
//!
//! Another thread has the source turn and keeps it, unless a model says otherwise.
#![cfg(loom)]

use allotment::for_loom::waiters::{PageMark, Waiters};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

mod loom_support;
use loom_support::slab::{Listing, ModelClaim, PagesModel, Slots, Wrong as WrongStep};
use loom_support::{Gate, explore};

/// The process of all threads.
const PROCESS: u32 = 1;

/// Which step is wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// A waiting thread looks for slots before it is counted.
    CountsAfterTheLook,
    /// A waiting thread reads the event after it has looked.
    NotesTheEventLate,
    /// A thread that frees reads the count of waiting threads before others see its free.
    WakesUnordered,
    /// A slot that was freed to a claimed page wakes no thread.
    FreesToClaimedSilently,
    /// A page that was kept empty is used again, and its slots wake no thread.
    UsesKeptSilently,
    /// The source turn's end and the read of the count are not ordered.
    EndsTurnUnordered,
    /// A mark is cleared without a second look for waiting threads.
    ClearsMarkBlindly,
    /// A new page is not marked for threads that already wait.
    LeavesNewUnmarked,
}

/// The mark of one page.
struct ModelMark(AtomicU32);

impl PageMark for ModelMark {
    fn is(&self, marked: bool) -> bool {
        self.0.load(Ordering::Relaxed) == u32::from(marked)
    }

    fn store(&self, marked: bool) {
        self.0.store(u32::from(marked), Ordering::SeqCst);
    }

    fn set(&self) {
        self.0.fetch_or(1, Ordering::SeqCst);
    }
}

struct Slab {
    wrong: Wrong,
    gate: Gate,
    pages: PagesModel,
    waiters: Waiters,
    marks: Vec<ModelMark>,
}

impl Slab {
    /// A slab whose source turn another thread has.
    fn new(pages: PagesModel, count: usize, wrong: Wrong) -> Self {
        let waiters = Waiters::none();
        assert!(waiters.try_take_turn(PROCESS));
        Self {
            wrong,
            gate: Gate::new(),
            pages,
            waiters,
            marks: (0..count).map(|_| ModelMark(AtomicU32::new(0))).collect(),
        }
    }

    // ---- a waiting thread ----

    /// Waits for a slot. Returns the event at which the thread sleeps, if it does.
    fn wait_for_slot(&self, mark: u32) -> Result<Slots, u32> {
        let early = self.wrong == Wrong::CountsAfterTheLook;
        if early {
            if let Some(slots) = self.find_slot(mark) {
                return Ok(slots);
            }
        }
        self.gate.pass();
        let find = || if early { None } else { self.find_slot(mark) };
        let sleep = |event: &AtomicU32, seen| {
            let late = self.wrong == Wrong::NotesTheEventLate;
            let seen = if late { event.load(Ordering::SeqCst) } else { seen };
            // The system sleeps only while the event has this value.
            if event.load(Ordering::SeqCst) == seen { Err(seen) } else { Ok(()) }
        };
        self.waiters.wait(|| self.mark_all(), find, sleep)
    }

    /// What a waiting thread gets in the end, when all others have ended and there is a slot for it.
    fn wake(&self, got: Result<Slots, u32>, mark: u32) -> Slots {
        got.unwrap_or_else(|seen| {
            let [_, event, _] = self.waiters.words();
            assert_ne!(event.load(Ordering::SeqCst), seen, "a thread sleeps beside a free slot");
            self.find_slot(mark).expect("there is a slot")
        })
    }

    fn mark_all(&self) {
        for (page, mark) in self.marks.iter().enumerate() {
            if self.pages.has_page(page) {
                mark.set();
            }
        }
    }

    /// What `grow_by_turns` in page_supply.rs looks for.
    fn find_slot(&self, mark: u32) -> Option<Slots> {
        self.gate.pass();
        if let Some(claim) = self.pages.claim() {
            return self.take_and_put_back(claim, mark);
        }
        if let Some(slots) = self.pages.steal_one(mark) {
            return Some(slots);
        }
        if !self.waiters.try_take_turn(PROCESS) {
            return None;
        }
        let claim = self.pages.new_page();
        self.end_turn();
        self.take_and_put_back(claim?, mark)
    }

    fn take_and_put_back(&self, claim: ModelClaim<'_>, mark: u32) -> Option<Slots> {
        let page = self.pages.leave_claim(claim);
        let slots = self.pages.take(page, 0, 1, mark);
        self.put_back(self.pages.resume_claim(page));
        slots
    }

    // ---- a thread that makes a slot available ----

    fn wake_waiters(&self) {
        self.gate.pass();
        if self.wrong == Wrong::WakesUnordered {
            self.wake_unordered();
        } else {
            self.waiters.wake(|_| ());
        }
    }

    /// Wakes as `Waiters::wake` does, without its order.
    fn wake_unordered(&self) {
        let [attention, event, _] = self.waiters.words();
        if attention.load(Ordering::SeqCst) != 0 {
            event.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn end_turn(&self) {
        self.gate.pass();
        if self.wrong == Wrong::EndsTurnUnordered {
            let [_, _, source_turn] = self.waiters.words();
            source_turn.store(0, Ordering::Release);
            self.wake_unordered();
        } else {
            self.waiters.end_turn(|_| ());
        }
    }

    fn put_back(&self, claim: ModelClaim<'_>) {
        if self.pages.put_back(claim) == Listing::Changed {
            self.wake_waiters();
        }
    }

    /// Frees slots to their page.
    fn free(&self, slots: Slots) {
        let listing = self.pages.free(slots);
        if listing == Listing::Changed || self.wrong != Wrong::FreesToClaimedSilently {
            self.wake_waiters();
        }
    }

    /// Claims a page and takes a slot of it; the page stays claimed.
    fn claim_and_take(&self, mark: u32) -> Option<(usize, Option<Slots>)> {
        let (claim, was_empty) = self.pages.claim_or_kept()?;
        if was_empty && self.wrong != Wrong::UsesKeptSilently {
            self.gate.pass();
            self.waiters.wake_after_stores(|_| ());
        }
        let page = self.pages.leave_claim(claim);
        Some((page, self.pages.take(page, 0, 1, mark)))
    }

    /// Clears a page's mark, as is done where it is claimed or has become full enough.
    fn clear_mark(&self, page: usize) {
        self.gate.pass();
        let mark = &self.marks[page];
        if self.wrong != Wrong::ClearsMarkBlindly {
            self.waiters.update_mark(false, mark);
        } else if self.waiters.allow_caching() && !mark.is(false) {
            mark.store(false);
        }
    }

    /// Makes a page, without a mark, which stays claimed.
    fn make_page(&self) -> usize {
        let page = self.pages.leave_claim(self.pages.new_page().expect("there is room for it"));
        self.gate.pass();
        if self.wrong != Wrong::LeavesNewUnmarked {
            self.waiters.mark_new(&self.marks[page]);
        }
        page
    }
}

/// A slab with one page of three slots, which is full and claimed by no thread, and its slots.
fn with_full_page(wrong: Wrong) -> (Arc<Slab>, [Slots; 3]) {
    let (slab, page, slots) = with_claimed_page(wrong);
    slab.put_back(slab.pages.resume_claim(page));
    (slab, slots)
}

/// The same, but the page is claimed.
fn with_claimed_page(wrong: Wrong) -> (Arc<Slab>, usize, [Slots; 3]) {
    let mut pages = PagesModel::new(1, 1, 3);
    if wrong == Wrong::WakesUnordered {
        pages = pages.wrong(WrongStep::FreesUnordered);
    }
    let page = pages.leave_claim(pages.new_page().unwrap());
    let slots = [11, 12, 13].map(|mark| pages.take(page, 0, 1, mark).unwrap());
    (Arc::new(Slab::new(pages, 1, wrong)), page, slots)
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
        slab.free(first);
        let got = slab.wake(waiter.join().unwrap(), 21);
        slab.pages.nothing_is_lost([got, second, third]);
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

/// A slot of a claimed page is freed while a thread begins to wait; the claim's owner does nothing more until that
/// thread has its slot.
fn a_slot_of_a_claimed_page_is_freed_while_a_thread_begins_to_wait(wrong: Wrong) {
    explore(3, move || {
        let (slab, page, [first, second, third]) = with_claimed_page(wrong);
        let waiter = spawn_waiter(&slab, 21);
        slab.free(first);
        let got = slab.wake(waiter.join().unwrap(), 21);
        slab.put_back(slab.pages.resume_claim(page));
        slab.pages.nothing_is_lost([got, second, third]);
    });
}

#[test]
fn a_slot_freed_to_a_page_whose_owner_sleeps_is_a_waiters() {
    a_slot_of_a_claimed_page_is_freed_while_a_thread_begins_to_wait(Wrong::Nothing);
}

#[test]
#[should_panic(expected = "a thread sleeps beside a free slot")]
fn a_free_to_a_claimed_page_that_wakes_no_thread_leaves_a_waiter_asleep() {
    a_slot_of_a_claimed_page_is_freed_while_a_thread_begins_to_wait(Wrong::FreesToClaimedSilently);
}

#[test]
#[should_panic(expected = "a thread sleeps beside a free slot")]
fn a_free_that_does_not_order_its_bit_and_its_look_for_waiters_wakes_no_thread() {
    a_slot_of_a_claimed_page_is_freed_while_a_thread_begins_to_wait(Wrong::WakesUnordered);
}

/// A page that was kept empty is claimed by a thread that takes one slot of it and then does nothing more, while
/// another begins to wait.
fn a_kept_page_is_used_while_a_thread_begins_to_wait(wrong: Wrong) {
    explore(3, move || {
        let pages = PagesModel::new(1, 1, 2).keeping();
        pages.put_back(pages.new_page().unwrap());
        let slab = Arc::new(Slab::new(pages, 1, wrong));
        let waiter = spawn_waiter(&slab, 21);
        let used = slab.claim_and_take(22);
        let got = slab.wake(waiter.join().unwrap(), 21);
        let mine = used.and_then(|(page, mine)| {
            slab.put_back(slab.pages.resume_claim(page));
            mine
        });
        slab.pages.nothing_is_lost(mine.into_iter().chain([got]));
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
        let pages = PagesModel::new(1, 1, 2).keeping();
        let page = pages.leave_claim(pages.new_page().unwrap());
        let last = pages.take(page, 0, 2, 11).unwrap();
        pages.put_back(pages.resume_claim(page));
        let slab = Arc::new(Slab::new(pages, 1, Wrong::Nothing));
        let waiter = spawn_waiter(&slab, 21);
        slab.free(last);
        let got = slab.wake(waiter.join().unwrap(), 21);
        slab.pages.nothing_is_lost([got]);
    });
}

#[test]
fn two_threads_that_wait_both_get_a_slot_of_two() {
    explore(2, || {
        let (slab, [first, second, third]) = with_full_page(Wrong::Nothing);
        let waiters = [21, 22].map(|mark| spawn_waiter(&slab, mark));
        slab.free(first);
        slab.free(second);
        let got = waiters.map(|waiter| waiter.join().unwrap());
        let got = got.map(|got| slab.wake(got, 23));
        slab.pages.nothing_is_lost(got.into_iter().chain([third]));
    });
}

// ---- the source turn ----

/// The source turn ends, without a page or with one that its thread has claimed and does nothing more with.
fn the_turn_ends_while_a_thread_begins_to_wait(refused: bool, wrong: Wrong) {
    explore(3, move || {
        let slab = Arc::new(Slab::new(PagesModel::new(2, 2, 2), 2, wrong));
        let waiter = spawn_waiter(&slab, 21);
        let page = (!refused).then(|| slab.make_page());
        slab.end_turn();
        let got = slab.wake(waiter.join().unwrap(), 21);
        if let Some(page) = page {
            slab.put_back(slab.pages.resume_claim(page));
        }
        slab.pages.nothing_is_lost([got]);
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

// ---- nothing is cached while a thread waits ----

/// A thread begins to wait while another clears a page's mark or makes a page; at the end both pages are marked.
fn a_page_is_marked_while_a_thread_begins_to_wait(wrong: Wrong, change: fn(&Slab, usize)) {
    explore(3, move || {
        let pages = PagesModel::new(2, 2, 2);
        let page = pages.leave_claim(pages.new_page().unwrap());
        let slab = Arc::new(Slab::new(pages, 2, wrong));
        slab.marks[page].set();
        let other = Arc::clone(&slab);
        let waiter = thread::spawn(move || {
            other.gate.pass();
            let sleep = |_: &AtomicU32, _| Err(());
            let got: Result<(), ()> = other.waiters.wait(|| other.mark_all(), || None, sleep);
            assert!(got.is_err(), "it sleeps");
        });
        change(&slab, page);
        waiter.join().unwrap();
        fence(Ordering::SeqCst);
        for (page, mark) in slab.marks.iter().enumerate() {
            let marked = mark.is(true);
            assert!(marked || !slab.pages.has_page(page), "frees are cached while a thread waits");
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
fn a_new_page_that_is_not_marked_for_waiting_threads_caches_their_slots() {
    a_page_is_marked_while_a_thread_begins_to_wait(Wrong::LeavesNewUnmarked, make_page);
}
