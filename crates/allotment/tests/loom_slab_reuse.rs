//! Models of a slab's pages between threads (`src/slab/page.rs`, `page_hints.rs`, `page_group.rs`
//! and `page_steps.rs`): pages are released, kept, stolen from and taken again. Explored by loom;
//! `.ci/loom` runs them.
//!
//! The memory of a page is cells that loom watches. A page's release makes them unusable, and a new
//! page makes them usable again, as decommit and commit do. A waiting thread takes slots by
//! `steal`.
#![cfg(loom)]

use allotment::for_loom::Mutant;
use allotment::for_loom::page_steps::PageSteps;
use loom::sync::Arc;
use loom::thread;

mod loom_support;
use loom_support::explore;
use loom_support::slab::{PagesModel, Slots};

/// Makes a page, takes its slots as asked and puts it back.
fn add_page(pages: &PagesModel, takes: &[usize]) -> Vec<Slots> {
    let claim = pages.add_page().expect("there is room for it");
    let page = pages.leave_claim(claim);
    let slots = takes.iter().map(|&most| pages.take_slots(page, 0, most, 10).unwrap()).collect();
    pages.put_back(pages.resume_claim(page));
    slots
}

/// Takes a new page, if there is one, and all of its slots.
fn use_new_page(pages: &PagesModel, mark: u32) -> Option<Slots> {
    let claim = pages.add_page()?;
    let page = pages.leave_claim(claim);
    let slots = pages.take_slots(page, 0, 64, mark);
    pages.put_back(pages.resume_claim(page));
    slots
}

fn find_and_take(pages: &PagesModel, most: usize, mark: u32) -> Option<Slots> {
    let claim = pages.claim_any()?;
    let page = pages.leave_claim(claim);
    let slots = pages.take_slots(page, 0, most, mark);
    pages.put_back(pages.resume_claim(page));
    slots
}

// ---- claimed past its hint ----

/// A thread claims its former page while another follows the page's hint, and a slot of it is
/// freed.
fn a_page_is_claimed_past_its_hint(pages: fn() -> PagesModel) {
    explore(3, move || {
        let pages = Arc::new(pages());
        let mut taken = add_page(&pages, &[1]);
        let first = taken.pop().unwrap();
        let owns = Arc::clone(&pages);
        let owner = thread::spawn(move || {
            let page = owns.leave_claim(owns.claim_again(owns.page(0), 0, 0)?);
            let slots = owns.take_slots(page, 0, 1, 31);
            owns.put_back(owns.resume_claim(page));
            slots
        });
        let follows = Arc::clone(&pages);
        let other = thread::spawn(move || find_and_take(&follows, 1, 32));
        pages.free(first);
        let left = [owner.join().unwrap(), other.join().unwrap()];
        pages.nothing_is_lost(left.into_iter().flatten());
    });
}

#[test]
fn a_page_that_is_claimed_past_its_hint_is_lost_to_none() {
    a_page_is_claimed_past_its_hint(|| PagesModel::new(1, 1, 3));
}

#[test]
fn a_page_that_is_kept_and_claimed_past_its_hint_is_lost_to_none() {
    a_page_is_claimed_past_its_hint(|| PagesModel::new(1, 1, 2).keeping());
}

// ---- release against reuse ----

/// A page's last slot is freed while another thread takes a page: there are addresses or
/// descriptors for one.
fn a_page_goes_while_one_is_taken(descriptors: usize, spans: usize) {
    explore(3, move || {
        let pages = Arc::new(PagesModel::new(descriptors, spans, 2));
        let mut taken = add_page(&pages, &[2]);
        let last = taken.pop().unwrap();
        let other = Arc::clone(&pages);
        let taker = thread::spawn(move || use_new_page(&other, 21));
        pages.free(last);
        let theirs = taker.join().unwrap();
        pages.nothing_is_lost(theirs);
    });
}

#[test]
fn addresses_serve_again_when_their_memory_has_gone() {
    a_page_goes_while_one_is_taken(2, 1);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn addresses_that_serve_again_before_lose_the_next_pages_data() {
    let _mutant = Mutant::new("give back: addresses first");
    a_page_goes_while_one_is_taken(2, 1);
}

#[test]
fn a_descriptor_serves_again_when_it_was_released() {
    a_page_goes_while_one_is_taken(1, 2);
}

#[test]
#[should_panic(expected = "a page was lost")]
fn a_descriptor_that_serves_again_before_loses_its_next_page() {
    let _mutant = Mutant::new("release: descriptor vacant first");
    a_page_goes_while_one_is_taken(1, 2);
}

/// A page is released and its descriptor assigned to another page, while a thread follows the old
/// hint.
fn a_page_is_followed_by_another_while_a_thread_looks_for_one() {
    explore(3, move || {
        let pages = Arc::new(PagesModel::new(1, 1, 2));
        let mut taken = add_page(&pages, &[1]);
        let last = taken.pop().unwrap();
        let other = Arc::clone(&pages);
        let finder = thread::spawn(move || find_and_take(&other, 1, 21));
        pages.free(last);
        let mine = use_new_page(&pages, 22);
        let theirs = finder.join().unwrap();
        pages.nothing_is_lost(mine.into_iter().chain(theirs));
    });
}

#[test]
fn an_old_hint_leads_to_the_next_page_of_a_descriptor_or_to_nothing() {
    a_page_is_followed_by_another_while_a_thread_looks_for_one();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_old_hint_that_is_taken_for_the_truth_claims_another_threads_page() {
    let _mutant = Mutant::new("claim: hint trusted");
    a_page_is_followed_by_another_while_a_thread_looks_for_one();
}

/// A thread steals from a page that is released, and whose descriptor is assigned to another page.
#[test]
fn a_slot_stolen_late_is_one_of_the_next_page_of_its_descriptor() {
    explore(3, || {
        let pages = Arc::new(PagesModel::new(1, 1, 2).stealing_by_exchange());
        let mut taken = add_page(&pages, &[2]);
        let last = taken.pop().unwrap();
        let other = Arc::clone(&pages);
        let thief = thread::spawn(move || other.steal_any(21));
        pages.free(last);
        let claim = pages.add_page();
        let mine = claim.and_then(|claim| {
            let page = pages.leave_claim(claim);
            let mine = pages.take_slots(page, 0, 1, 22);
            pages.put_back(pages.resume_claim(page));
            mine
        });
        let theirs = thief.join().unwrap();
        pages.nothing_is_lost(mine.into_iter().chain(theirs));
    });
}

// ---- stealing ----

/// What the owner of a claimed page does before it puts the page back, while a thread that would
/// have to wait steals from it.
#[derive(Clone, Copy)]
enum Owner {
    TakesOne,
    TakesAll,
    TakesNone,
}

fn a_slot_is_stolen_from_a_claimed_page(
    owner: Owner,
    pages: impl Fn() -> PagesModel + Send + Sync + 'static,
) {
    explore(3, move || {
        let pages = Arc::new(pages());
        let claim = pages.add_page().unwrap();
        let page = pages.leave_claim(claim);
        let other = Arc::clone(&pages);
        let thief = thread::spawn(move || {
            let stolen = other.steal_any(21);
            match stolen {
                Some(first) => {
                    let second = other.steal_any(22);
                    other.free(first);
                    second
                }
                None => None,
            }
        });
        let mine = match owner {
            Owner::TakesOne => pages.take_slots(page, 0, 1, 11),
            Owner::TakesAll => pages.take_slots(page, 0, 64, 11),
            Owner::TakesNone => None,
        };
        pages.put_back(pages.resume_claim(page));
        let theirs = thief.join().unwrap();
        pages.nothing_is_lost(mine.into_iter().chain(theirs));
    });
}

#[test]
fn a_slot_is_the_owners_or_the_thiefs_when_both_take() {
    for owner in [Owner::TakesOne, Owner::TakesAll] {
        a_slot_is_stolen_from_a_claimed_page(owner, || PagesModel::new(1, 1, 2));
    }
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_claim_that_is_taken_for_the_slots_gives_a_slot_to_two() {
    let _mutant = Mutant::new("take: as if alone");
    a_slot_is_stolen_from_a_claimed_page(Owner::TakesOne, || PagesModel::new(1, 1, 2));
}

#[test]
fn a_page_put_back_unused_goes_when_the_thief_has_brought_its_slots_back() {
    a_slot_is_stolen_from_a_claimed_page(Owner::TakesNone, || PagesModel::new(1, 1, 2));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_page_that_goes_unused_without_its_slots_takes_the_thiefs() {
    let _mutant = Mutant::new("take all: nothing taken");
    a_slot_is_stolen_from_a_claimed_page(Owner::TakesNone, || PagesModel::new(1, 1, 2));
}

#[test]
fn a_page_put_back_unused_is_kept_when_the_thief_has_brought_its_slots_back() {
    a_slot_is_stolen_from_a_claimed_page(Owner::TakesNone, || PagesModel::new(1, 1, 2).keeping());
}

/// A page is kept empty and used again while a thief is at work.
fn a_page_is_kept_and_used_again_while_a_slot_is_stolen() {
    explore(3, move || {
        let pages = Arc::new(PagesModel::new(1, 1, 2).keeping().stealing_by_exchange());
        let claim = pages.add_page().unwrap();
        let page = pages.leave_claim(claim);
        let other = Arc::clone(&pages);
        let thief = thread::spawn(move || other.steal_any(21));
        pages.put_back(pages.resume_claim(page));
        let mine = find_and_take(&pages, 1, 22);
        let theirs = thief.join().unwrap();
        pages.nothing_is_lost(mine.into_iter().chain(theirs));
    });
}

#[test]
fn a_page_is_kept_only_by_a_thread_with_all_of_its_slots() {
    a_page_is_kept_and_used_again_while_a_slot_is_stolen();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_page_that_is_kept_without_its_slots_gives_a_stolen_one_again() {
    let _mutant = Mutant::new("take all: nothing taken");
    a_page_is_kept_and_used_again_while_a_slot_is_stolen();
}

/// A page of two words is put back unused, so that all of it is taken, while two threads steal from
/// it.
fn a_page_is_taken_whole_while_slots_are_stolen() {
    explore(3, move || {
        let pages = Arc::new(PagesModel::new(1, 1, 65).stealing_by_exchange());
        let claim = pages.add_page().unwrap();
        let page = pages.leave_claim(claim);
        let thieves = [21, 22].map(|mark| {
            let pages = Arc::clone(&pages);
            thread::spawn(move || pages.steal_of(page, usize::from(mark == 22), mark))
        });
        pages.put_back(pages.resume_claim(page));
        let stolen = thieves.map(|thief| thief.join().unwrap());
        pages.nothing_is_lost(stolen.into_iter().flatten());
    });
}

#[test]
fn a_thread_that_can_not_take_a_whole_page_gives_back_what_it_took() {
    a_page_is_taken_whole_while_slots_are_stolen();
}

#[test]
#[should_panic(expected = "a page was lost")]
fn a_page_taken_by_half_is_lost() {
    let _mutant = Mutant::new("take all: half left");
    a_page_is_taken_whole_while_slots_are_stolen();
}

// ---- pages kept empty ----

/// A page that is kept empty is used again by one thread and given back by another.
fn a_kept_page_is_used_while_it_is_trimmed() {
    explore(3, move || {
        let pages = Arc::new(PagesModel::new(1, 1, 2).keeping());
        let taken = add_page(&pages, &[2]);
        for slots in taken {
            pages.free(slots);
        }
        let other = Arc::clone(&pages);
        let trimmer = thread::spawn(move || other.trim_one());
        let mine = find_and_take(&pages, 1, 21);
        trimmer.join().unwrap();
        pages.nothing_is_lost(mine);
    });
}

#[test]
fn a_page_that_is_kept_is_used_again_or_given_back_not_both() {
    a_kept_page_is_used_while_it_is_trimmed();
}

/// A page that is kept empty is emptied, used and trimmed by three threads.
fn a_page_is_kept_while_it_is_trimmed() {
    explore(3, move || {
        let pages = Arc::new(PagesModel::new(1, 1, 2).keeping());
        let mut taken = add_page(&pages, &[1]);
        let last = taken.pop().unwrap();
        let (trims, finds) = (Arc::clone(&pages), Arc::clone(&pages));
        let trimmer = thread::spawn(move || trims.trim_one());
        let finder = thread::spawn(move || find_and_take(&finds, 1, 21));
        pages.free(last);
        trimmer.join().unwrap();
        let theirs = finder.join().unwrap();
        pages.nothing_is_lost(theirs);
    });
}

#[test]
fn a_page_that_is_kept_while_others_trim_and_look_is_lost_to_none() {
    a_page_is_kept_while_it_is_trimmed();
}

#[test]
#[should_panic(expected = "memory holds what its owner left there")]
fn a_trim_that_trusts_the_empty_list_gives_back_a_page_in_use() {
    let _mutant = Mutant::new("trim: hint trusted");
    a_page_is_kept_while_it_is_trimmed();
}

/// The slab is closed while its last page becomes empty.
fn a_page_is_kept_while_the_slab_is_closed() {
    explore(3, move || {
        let pages = Arc::new(PagesModel::new(1, 1, 2).keeping());
        let mut taken = add_page(&pages, &[2]);
        let last = taken.pop().unwrap();
        let other = Arc::clone(&pages);
        let freer = thread::spawn(move || other.free(last));
        pages.close();
        freer.join().unwrap();
        assert_eq!(pages.released(), 1, "a closed slab keeps a page");
    });
}

#[test]
fn a_page_that_is_kept_while_the_slab_is_closed_goes() {
    a_page_is_kept_while_the_slab_is_closed();
}

#[test]
#[should_panic(expected = "a closed slab keeps a page")]
fn a_page_that_is_kept_without_a_second_look_outlives_the_closed_slab() {
    let _mutant = Mutant::new("keep: no second look");
    a_page_is_kept_while_the_slab_is_closed();
}

// ---- all of it ----

/// Three threads free, steal, look for pages, take new ones, and trim.
fn threads_do_everything(pages: fn() -> PagesModel) {
    explore(2, move || {
        let pages = Arc::new(pages().stealing_by_exchange());
        let mut taken = add_page(&pages, &[1, 1]);
        let (last, first) = (taken.pop().unwrap(), taken.pop().unwrap());
        let [one, two] = [(first, 21), (last, 22)].map(|(slots, mark)| {
            let pages = Arc::clone(&pages);
            thread::spawn(move || {
                pages.free_sampled(slots, mark == 21);
                if mark == 21 { find_and_take(&pages, 64, mark) } else { pages.steal_any(mark) }
            })
        });
        let mine = find_and_take(&pages, 1, 23).or_else(|| use_new_page(&pages, 24));
        pages.trim_one();
        let theirs = [one, two].map(|thread| thread.join().unwrap());
        pages.nothing_is_lost(theirs.into_iter().flatten().chain(mine));
    });
}

#[test]
fn threads_that_do_everything_lose_nothing_when_pages_go_at_once() {
    threads_do_everything(|| PagesModel::new(2, 2, 3));
}

#[test]
fn threads_that_do_everything_lose_nothing_when_pages_are_kept() {
    threads_do_everything(|| PagesModel::new(2, 2, 3).keeping());
}
