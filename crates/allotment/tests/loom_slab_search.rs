//! A model of a search for a page beside a thread that begins to wait (`src/slab/page_group.rs`,
//! `page_steps.rs` and `waiters.rs`), explored by loom; `.ci/loom` runs it.
//!
//! The page has two bitmap words and 65 slots. Its last used slot is freed while one thread
//! searches, and the search moves the page between lists. To see whether the page is empty, it
//! takes all slots for a moment. A thread that begins to wait in this moment finds none, so the
//! search has to wake it afterwards.
#![cfg(loom)]

use allotment::for_loom::Mutant;
use allotment::for_loom::page_steps::PageSteps;
use loom::sync::Arc;
use loom::thread;

mod loom_support;
use loom_support::explore;
use loom_support::slab::{NoSlot, PagesModel};

/// The list in which the page has a hint from a time when it was fuller.
const STALE_LIST: usize = 7;

fn no_thread_sleeps_beside_free_slots() {
    explore(2, move || {
        let pages = PagesModel::new(1, 1, 65).keeping().stealing_by_exchange();
        let pages = Arc::new(pages.taking_turns());
        // All slots are free but one.
        let page = pages.leave_claim(pages.add_page().unwrap());
        let last = pages.take_slots(page, 1, 64, 10).unwrap();
        pages.put_back(pages.resume_claim(page));
        pages.list_in(STALE_LIST, page);
        let freeing = {
            let pages = Arc::clone(&pages);
            thread::spawn(move || {
                pages.free(last);
                let _ = pages.steal_of(page, 1, 11);
            })
        };
        let waiting = {
            let pages = Arc::clone(&pages);
            thread::spawn(move || pages.wait_for_slot(12))
        };
        // The claim stays this thread's.
        if let Some(claim) = pages.claim_any() {
            pages.leave_claim(claim);
        }
        freeing.join().unwrap();
        if let Err(NoSlot::Asleep(seen)) = waiting.join().unwrap() {
            let free = pages.page(page).free_slots();
            let woken = pages.is_woken(seen) || free == 0;
            assert!(woken, "a thread sleeps beside {free} free slots");
        }
    });
}

#[test]
fn a_search_that_moves_a_page_wakes_a_thread_that_could_not_see_its_slots() {
    no_thread_sleeps_beside_free_slots();
}

#[test]
#[should_panic(expected = "a thread sleeps beside 64 free slots")]
fn a_search_that_moves_a_page_silently_leaves_a_thread_asleep() {
    let _mutant = Mutant::new("find: silent");
    no_thread_sleeps_beside_free_slots();
}
