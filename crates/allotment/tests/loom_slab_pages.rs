//! Models of a slab's pages and hints between threads (`src/slab/page.rs`, `page_hints.rs`,
//! `page_group.rs` and `page_steps.rs`): slots are freed while pages are put back, released and
//! looked for. Explored by loom; `.ci/loom` runs them.
//!
//! At the end of each model, with no thread inside a call, every free slot can be found, no empty
//! page is left unnoticed, and the memory of each page was given back exactly once, when no thread
//! owned its slots.
#![cfg(loom)]

use allotment::for_loom::Mutant;
use allotment::for_loom::page_steps::PageSteps;
use loom::sync::Arc;
use loom::thread;

mod loom_support;
use loom_support::explore;
use loom_support::slab::{PagesModel, Slots};

/// A slab with one page, which no thread has claimed, and the slots that were taken of it.
fn with_open_page(pages: PagesModel, takes: &[(usize, usize)]) -> (Arc<PagesModel>, Vec<Slots>) {
    let claim = pages.add_page().expect("the first page");
    let page = pages.leave_claim(claim);
    let take = |(mark, &(word, most)): (usize, &(usize, usize))| {
        pages.take_slots(page, word, most, 10 + mark as u32).expect("a slot of a new page")
    };
    let slots = takes.iter().enumerate().map(take).collect();
    pages.put_back(pages.resume_claim(page));
    (Arc::new(pages), slots)
}

fn find_and_put_back(pages: &PagesModel) {
    if let Some(claim) = pages.claim_any() {
        pages.put_back(claim);
    }
}

/// Finds a page and uses its free slots up.
fn find_and_use_up(pages: &PagesModel, mark: u32) -> Option<Slots> {
    let claim = pages.claim_any()?;
    let page = pages.leave_claim(claim);
    let taken = pages.take_slots(page, 0, 64, mark);
    pages.put_back(pages.resume_claim(page));
    taken
}

// ---- a free against a page that is put back ----

/// Another thread frees one of a page's two slots while its owner puts the page back.
fn a_free_while_the_page_is_put_back() {
    explore(3, move || {
        let pages = Arc::new(PagesModel::new(1, 1, 2));
        let claim = pages.add_page().unwrap();
        let page = pages.leave_claim(claim);
        let theirs = pages.take_slots(page, 0, 1, 11).unwrap();
        let mine = pages.take_slots(page, 0, 1, 12).unwrap();
        let other = Arc::clone(&pages);
        let freer = thread::spawn(move || other.free(theirs));
        pages.put_back(pages.resume_claim(page));
        freer.join().unwrap();
        pages.nothing_is_lost([mine]);
    });
}

#[test]
fn a_slot_freed_while_its_page_is_put_back_can_be_found() {
    a_free_while_the_page_is_put_back();
}

#[test]
#[should_panic(expected = "is in no list")]
fn a_page_that_is_looked_at_before_it_is_opened_loses_a_slot() {
    let _mutant = Mutant::new("put back: looks before it opens");
    a_free_while_the_page_is_put_back();
}

#[test]
#[should_panic(expected = "is in no list")]
fn a_free_that_looks_at_the_state_before_it_sets_the_bit_loses_its_slot() {
    let _mutant = Mutant::new("free: state read before");
    a_free_while_the_page_is_put_back();
}

#[test]
#[should_panic(expected = "is in no list")]
fn a_free_that_does_not_order_its_store_and_its_look_loses_its_slot() {
    let _mutant = Mutant::new("free: unordered");
    a_free_while_the_page_is_put_back();
}

#[test]
fn a_page_whose_last_slots_are_freed_while_it_is_put_back_goes_once() {
    explore(3, || {
        let pages = Arc::new(PagesModel::new(1, 1, 2));
        let claim = pages.add_page().unwrap();
        let page = pages.leave_claim(claim);
        let freers = [11, 12].map(|mark| {
            let slots = pages.take_slots(page, 0, 1, mark).unwrap();
            let pages = Arc::clone(&pages);
            thread::spawn(move || pages.free(slots))
        });
        pages.put_back(pages.resume_claim(page));
        for freer in freers {
            freer.join().unwrap();
        }
        assert_eq!(pages.released(), 1);
        pages.nothing_is_lost([]);
    });
}

// ---- frees against the page's release ----

/// Two threads free the last two slots of an open page, of one word or of two.
fn the_last_two_slots_are_freed(slots: usize, takes: [(usize, usize); 2]) {
    explore(3, move || {
        let (pages, taken) = with_open_page(PagesModel::new(1, 1, slots), &takes);
        let freers: Vec<_> = taken
            .into_iter()
            .map(|slots| {
                let pages = Arc::clone(&pages);
                thread::spawn(move || pages.free(slots))
            })
            .collect();
        find_and_put_back(&pages);
        for freer in freers {
            freer.join().unwrap();
        }
        assert_eq!(pages.released(), 1, "an empty page was not noticed");
        pages.nothing_is_lost([]);
    });
}

#[test]
fn of_two_threads_that_free_the_last_slots_of_a_word_one_releases_the_page() {
    the_last_two_slots_are_freed(2, [(0, 1), (0, 1)]);
}

#[test]
fn of_two_threads_that_free_the_last_slots_of_two_words_one_releases_the_page() {
    the_last_two_slots_are_freed(65, [(0, 64), (1, 1)]);
}

#[test]
#[should_panic(expected = "an empty page was not noticed")]
fn two_frees_that_do_not_order_their_store_and_their_look_leave_an_empty_page() {
    let _mutant = Mutant::new("free: unordered");
    the_last_two_slots_are_freed(65, [(0, 64), (1, 1)]);
}

/// The last slot is freed while another thread takes one without a claim, and frees it again.
fn a_page_is_emptied_while_a_slot_is_stolen() {
    explore(3, move || {
        let (pages, mut taken) = with_open_page(PagesModel::new(1, 1, 2), &[(0, 1)]);
        let last = taken.pop().unwrap();
        let other = Arc::clone(&pages);
        let freer = thread::spawn(move || other.free(last));
        let stolen = pages.steal_any(21);
        if let Some(slots) = stolen {
            pages.free(slots);
        }
        freer.join().unwrap();
        assert_eq!(pages.released(), 1);
        pages.nothing_is_lost([]);
    });
}

#[test]
fn a_page_is_released_only_by_a_thread_with_all_of_its_slots() {
    a_page_is_emptied_while_a_slot_is_stolen();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_page_that_is_released_because_all_bits_were_set_goes_under_a_slot_in_use() {
    let _mutant = Mutant::new("take all: nothing taken");
    a_page_is_emptied_while_a_slot_is_stolen();
}

// ---- claims against hints ----

/// A page is put back while another thread follows the hints; it may have one already, set late by
/// a thread that saw the page open before.
fn a_page_is_put_back_while_another_thread_looks_for_one(hint: bool) {
    explore(3, move || {
        let pages = Arc::new(PagesModel::new(1, 1, 2));
        let claim = pages.add_page().unwrap();
        let page = pages.leave_claim(claim);
        let mine = pages.take_slots(page, 0, 1, 11).unwrap();
        if hint {
            pages.list_late(page);
        }
        let other = Arc::clone(&pages);
        let finder = thread::spawn(move || find_and_put_back(&other));
        pages.put_back(pages.resume_claim(page));
        finder.join().unwrap();
        pages.nothing_is_lost([mine]);
    });
}

#[test]
fn a_page_put_back_while_a_thread_looks_for_one_can_be_found() {
    a_page_is_put_back_while_another_thread_looks_for_one(false);
}

#[test]
#[should_panic(expected = "is in no list")]
fn a_page_that_is_listed_before_it_is_opened_is_lost() {
    let _mutant = Mutant::new("put back: lists before it opens");
    a_page_is_put_back_while_another_thread_looks_for_one(false);
}

#[test]
fn a_page_put_back_with_a_hint_that_is_just_cleared_can_be_found() {
    a_page_is_put_back_while_another_thread_looks_for_one(true);
}

#[test]
#[should_panic(expected = "is in no list")]
fn a_hint_that_is_cleared_after_the_look_at_its_page_loses_the_page() {
    let _mutant = Mutant::new("find: hint cleared after the look");
    a_page_is_put_back_while_another_thread_looks_for_one(true);
}

#[test]
#[should_panic(expected = "is in no list")]
fn a_hint_that_is_left_alone_is_lost_when_its_clearing_is_not_ordered_with_the_look() {
    let _mutant = Mutant::new("find: unordered");
    a_page_is_put_back_while_another_thread_looks_for_one(true);
}

#[test]
fn two_threads_that_look_for_pages_never_have_one_together() {
    explore(3, || {
        let (pages, mut taken) = with_open_page(PagesModel::new(1, 1, 4), &[(0, 2), (0, 1)]);
        let freed = taken.pop().unwrap();
        let finders = [21, 22].map(|mark| {
            let pages = Arc::clone(&pages);
            thread::spawn(move || find_and_use_up(&pages, mark))
        });
        pages.free(freed);
        let found = finders.map(|finder| finder.join().unwrap());
        pages.nothing_is_lost(found.into_iter().flatten().chain(taken));
    });
}

/// A page with a hint is claimed and used up, while a free that has seen it open lists it again and
/// a third thread follows that hint.
fn a_page_is_used_up_while_it_is_listed() {
    explore(3, move || {
        let (pages, mut taken) = with_open_page(PagesModel::new(1, 1, 3), &[(0, 1), (0, 1)]);
        let freed = taken.remove(0);
        let finders = [21, 22].map(|mark| {
            let pages = Arc::clone(&pages);
            thread::spawn(move || find_and_use_up(&pages, mark))
        });
        pages.free_sampled(freed, true);
        let found = finders.map(|finder| finder.join().unwrap());
        pages.nothing_is_lost(found.into_iter().flatten().chain(taken));
    });
}

#[test]
fn a_page_that_was_used_up_while_it_was_listed_is_listed_again_with_its_next_free_slot() {
    a_page_is_used_up_while_it_is_listed();
}

#[test]
#[should_panic(expected = "is in no list")]
fn a_page_whose_hint_goes_and_whose_note_stays_is_listed_no_more() {
    let _mutant = Mutant::new("find: note left");
    a_page_is_used_up_while_it_is_listed();
}
