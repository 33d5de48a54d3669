//! Models of how threads wait for slots (`src/slab/waiters.rs` and `page_steps.rs`), explored by
//! loom; `.ci/loom` runs them.
//!
//! A model's thread ends where it would sleep (`loom_support/slab/waiting.rs`). Another thread has
//! the source turn and keeps it, unless a model says otherwise.
#![cfg(loom)]

use allotment::for_loom::Mutant;
use allotment::for_loom::page_steps::{PageBackend, PageSteps};
use loom::sync::Arc;
use loom::sync::atomic::{Ordering, fence};
use loom::thread;

mod loom_support;
use loom_support::explore;
use loom_support::slab::{NoSlot, PagesModel, Slots};

/// A slab whose threads take new pages from the source one at a time.
fn slab(pages: PagesModel) -> PagesModel {
    pages.stealing_by_exchange().taking_turns()
}

/// A slab with one page of three slots, which is full and claimed by no thread, and its slots.
fn with_full_page() -> (Arc<PagesModel>, [Slots; 3]) {
    let (slab, page, slots) = with_claimed_page();
    slab.put_back(slab.resume_claim(page));
    (slab, slots)
}

/// The same, but the page is claimed.
fn with_claimed_page() -> (Arc<PagesModel>, usize, [Slots; 3]) {
    let slab = slab(PagesModel::new(1, 1, 3));
    let page = slab.leave_claim(slab.add_page().unwrap());
    let slots = [11, 12, 13].map(|mark| slab.take_slots(page, 0, 1, mark).unwrap());
    (Arc::new(slab), page, slots)
}

fn spawn_waiter(slab: &Arc<PagesModel>, mark: u32) -> thread::JoinHandle<Result<Slots, NoSlot>> {
    let slab = Arc::clone(slab);
    thread::spawn(move || slab.wait_for_slot(mark))
}

// ---- no thread sleeps beside a free slot ----

/// A slot of an open page is freed while a thread begins to wait.
fn a_slot_is_freed_while_a_thread_begins_to_wait() {
    explore(3, move || {
        let (slab, [first, second, third]) = with_full_page();
        let waiter = spawn_waiter(&slab, 21);
        slab.free_and_wake(first);
        let got = slab.after_waking(waiter.join().unwrap(), 21);
        slab.nothing_is_lost([got, second, third]);
    });
}

#[test]
fn a_slot_freed_while_a_thread_begins_to_wait_is_its() {
    a_slot_is_freed_while_a_thread_begins_to_wait();
}

#[test]
#[should_panic(expected = "a thread sleeps beside a free slot")]
fn a_thread_that_is_counted_after_its_look_sleeps_beside_a_free_slot() {
    let _mutant = Mutant::new("wait: looks before it is counted");
    a_slot_is_freed_while_a_thread_begins_to_wait();
}

#[test]
#[should_panic(expected = "a thread sleeps beside a free slot")]
fn a_thread_that_notes_the_event_after_its_look_sleeps_beside_a_free_slot() {
    let _mutant = Mutant::new("wait: event read late");
    a_slot_is_freed_while_a_thread_begins_to_wait();
}

/// A slot of a claimed page is freed while a thread begins to wait; the claim's owner does nothing
/// more until that thread has its slot.
fn a_slot_of_a_claimed_page_is_freed_while_a_thread_begins_to_wait() {
    explore(3, move || {
        let (slab, page, [first, second, third]) = with_claimed_page();
        let waiter = spawn_waiter(&slab, 21);
        slab.free_and_wake(first);
        let got = slab.after_waking(waiter.join().unwrap(), 21);
        slab.put_back(slab.resume_claim(page));
        slab.nothing_is_lost([got, second, third]);
    });
}

#[test]
fn a_slot_freed_to_a_page_whose_owner_sleeps_is_a_waiters() {
    a_slot_of_a_claimed_page_is_freed_while_a_thread_begins_to_wait();
}

#[test]
#[should_panic(expected = "a thread sleeps beside a free slot")]
fn a_free_to_a_claimed_page_that_wakes_no_thread_leaves_a_waiter_asleep() {
    let _mutant = Mutant::new("free: claimed page silent");
    a_slot_of_a_claimed_page_is_freed_while_a_thread_begins_to_wait();
}

#[test]
#[should_panic(expected = "a thread sleeps beside a free slot")]
fn a_free_that_does_not_order_its_bit_and_its_look_for_waiters_wakes_no_thread() {
    let _mutant = Mutant::new("wake: unordered");
    a_slot_of_a_claimed_page_is_freed_while_a_thread_begins_to_wait();
}

/// A page that was kept empty is claimed by a thread that takes one slot of it and then does
/// nothing more, while another begins to wait.
fn a_kept_page_is_used_while_a_thread_begins_to_wait() {
    explore(3, move || {
        let slab = Arc::new(slab(PagesModel::new(1, 1, 2).keeping()));
        slab.put_back(slab.add_page().unwrap());
        let waiter = spawn_waiter(&slab, 21);
        let used = slab.claim_any().map(|claim| {
            let page = slab.leave_claim(claim);
            (page, slab.take_slots(page, 0, 1, 22))
        });
        let got = slab.after_waking(waiter.join().unwrap(), 21);
        let mine = used.and_then(|(page, mine)| {
            slab.put_back(slab.resume_claim(page));
            mine
        });
        slab.nothing_is_lost(mine.into_iter().chain([got]));
    });
}

#[test]
fn the_slots_of_a_kept_page_that_is_used_again_are_a_waiters_too() {
    a_kept_page_is_used_while_a_thread_begins_to_wait();
}

#[test]
#[should_panic(expected = "a thread sleeps beside a free slot")]
fn a_kept_page_that_is_used_again_silently_leaves_a_waiter_asleep() {
    let _mutant = Mutant::new("prepare: silent");
    a_kept_page_is_used_while_a_thread_begins_to_wait();
}

#[test]
fn a_page_that_is_kept_while_a_thread_begins_to_wait_is_its() {
    explore(3, || {
        let slab = Arc::new(slab(PagesModel::new(1, 1, 2).keeping()));
        let page = slab.leave_claim(slab.add_page().unwrap());
        let last = slab.take_slots(page, 0, 2, 11).unwrap();
        slab.put_back(slab.resume_claim(page));
        let waiter = spawn_waiter(&slab, 21);
        slab.free_and_wake(last);
        let got = slab.after_waking(waiter.join().unwrap(), 21);
        slab.nothing_is_lost([got]);
    });
}

#[test]
fn two_threads_that_wait_both_get_a_slot_of_two() {
    explore(2, || {
        let (slab, [first, second, third]) = with_full_page();
        let waiters = [21, 22].map(|mark| spawn_waiter(&slab, mark));
        slab.free_and_wake(first);
        slab.free_and_wake(second);
        let got = waiters.map(|waiter| waiter.join().unwrap());
        let got = got.map(|got| slab.after_waking(got, 23));
        slab.nothing_is_lost(got.into_iter().chain([third]));
    });
}

// ---- the source turn ----

/// The source turn ends, without a page or with one that its thread has claimed and does nothing
/// more with.
fn the_turn_ends_while_a_thread_begins_to_wait(refused: bool) {
    explore(3, move || {
        let slab = Arc::new(slab(PagesModel::new(2, 2, 2)));
        let waiter = spawn_waiter(&slab, 21);
        let page = (!refused).then(|| slab.leave_claim(slab.add_page().unwrap()));
        slab.end_turn();
        let got = slab.after_waking(waiter.join().unwrap(), 21);
        if let Some(page) = page {
            slab.put_back(slab.resume_claim(page));
        }
        slab.nothing_is_lost([got]);
    });
}

#[test]
fn a_thread_that_waits_takes_the_turn_that_another_has_ended() {
    the_turn_ends_while_a_thread_begins_to_wait(true);
}

#[test]
fn a_thread_that_waits_has_a_slot_of_the_page_that_another_got() {
    the_turn_ends_while_a_thread_begins_to_wait(false);
}

#[test]
#[should_panic(expected = "a thread sleeps beside a free slot")]
fn a_turn_that_ends_without_order_leaves_a_waiter_asleep() {
    let _mutant = Mutant::new("wake: unordered");
    the_turn_ends_while_a_thread_begins_to_wait(true);
}

// ---- nothing is cached while a thread waits ----

/// A thread begins to wait while another clears a page's mark or makes a page; at the end both
/// pages are marked.
fn a_page_is_marked_while_a_thread_begins_to_wait(change: fn(&PagesModel, usize)) {
    explore(3, move || {
        let slab = Arc::new(slab(PagesModel::new(2, 2, 2)));
        let page = slab.leave_claim(slab.add_page().unwrap());
        slab.mark_all_pages();
        let other = Arc::clone(&slab);
        let waiter = thread::spawn(move || other.begin_to_wait());
        change(&slab, page);
        waiter.join().unwrap();
        fence(Ordering::SeqCst);
        for page in 0..2 {
            let marked = slab.is_marked(page) || !slab.has_page(page);
            assert!(marked, "frees are cached while a thread waits");
        }
    });
}

fn clear_mark(slab: &PagesModel, page: usize) {
    slab.clear_mark(page);
}

fn make_page(slab: &PagesModel, _: usize) {
    slab.leave_claim(slab.add_page().expect("there is room for it"));
}

#[test]
fn a_mark_cleared_while_a_thread_begins_to_wait_is_set_again() {
    a_page_is_marked_while_a_thread_begins_to_wait(clear_mark);
}

#[test]
#[should_panic(expected = "frees are cached while a thread waits")]
fn a_mark_that_is_cleared_without_a_second_look_is_lost() {
    let _mutant = Mutant::new("update mark: no second look");
    a_page_is_marked_while_a_thread_begins_to_wait(clear_mark);
}

#[test]
fn a_page_made_while_a_thread_waits_is_marked() {
    a_page_is_marked_while_a_thread_begins_to_wait(make_page);
}

#[test]
#[should_panic(expected = "frees are cached while a thread waits")]
fn a_new_page_that_is_not_marked_for_waiting_threads_caches_their_slots() {
    let _mutant = Mutant::new("enter page: not marked");
    a_page_is_marked_while_a_thread_begins_to_wait(make_page);
}

// ---- searches that find nothing ----

/// A slot of a claimed page is freed while a thread searches all pages for one. There is no other
/// page to be had.
fn a_slot_is_freed_while_a_thread_searches() {
    explore(3, move || {
        let slab = PagesModel::new(1, 1, 2).stealing_by_exchange();
        let page = slab.leave_claim(slab.add_page().unwrap());
        let [first, second] = [11, 12].map(|mark| slab.take_slots(page, 0, 1, mark).unwrap());
        let slab = Arc::new(slab);
        let searcher = spawn_waiter(&slab, 21);
        slab.free(first);
        let got = searcher.join().unwrap().or_else(|_| slab.wait_for_slot(21));
        let got = got.expect("a slot is free, and a search finds it");
        slab.put_back(slab.resume_claim(page));
        slab.nothing_is_lost([got, second]);
    });
}

#[test]
fn a_slot_freed_while_a_thread_searches_is_found_by_the_next_search() {
    a_slot_is_freed_while_a_thread_searches();
}

#[test]
#[should_panic(expected = "a slot is free, and a search finds it")]
fn a_free_that_ends_no_generation_is_never_searched_for() {
    let _mutant = Mutant::new("search: result kept");
    a_slot_is_freed_while_a_thread_searches();
}

#[test]
#[should_panic(expected = "a slot is free, and a search finds it")]
fn a_search_that_ignores_the_generation_hides_what_was_freed_meanwhile() {
    let _mutant = Mutant::new("search: generation ignored");
    a_slot_is_freed_while_a_thread_searches();
}

#[test]
#[should_panic(expected = "a slot is free, and a search finds it")]
fn a_free_that_does_not_order_its_bit_and_its_look_for_searches_hides_its_slot() {
    let _mutant = Mutant::new("wake: unordered");
    a_slot_is_freed_while_a_thread_searches();
}
