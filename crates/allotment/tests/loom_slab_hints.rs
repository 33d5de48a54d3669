//! Models of the hints of a slab with many pages (`src/slab/page_hints.rs`), explored by loom;
//! `.ci/loom` runs them.
//!
//! A list of more than 64 pages has several words, and a summary bit for each word that says
//! whether the word has a hint. With no thread inside a call, every hint that was set is found
//! once.
#![cfg(loom)]

use allotment::for_loom::Mutant;
use allotment::for_loom::page_hints::{PageHints, words_for};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

mod loom_support;
use loom_support::{Gate, explore};

/// Two words for each list, and one summary word.
const PAGES: usize = 128;
const LIST: usize = 3;
/// Pages of the second word, which a search from page 0 finds by its summary bit alone.
const FIRST: usize = 70;
const SECOND: usize = 71;

struct ModelHints {
    gate: Gate,
    words: Vec<AtomicU64>,
}

impl ModelHints {
    fn new() -> Self {
        Self {
            gate: Gate::new(),
            words: (0..words_for(PAGES)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn hints(&self) -> PageHints<'_> {
        PageHints { words: &self.words }
    }

    fn set(&self, page: usize) {
        self.gate.pass();
        self.hints().set(LIST, page);
    }

    fn clear_one(&self) -> Option<usize> {
        self.gate.pass();
        self.hints().clear_one(LIST, 0, |_| true)
    }
}

/// Hints are set by one thread, or by two, and followed by another.
fn hints_are_set_while_one_is_followed(before: &'static [usize], setters: usize) {
    explore(3, move || {
        let lists = Arc::new(ModelHints::new());
        before.iter().for_each(|page| lists.set(*page));
        let pages = [FIRST, SECOND];
        let threads: Vec<_> = pages[2 - setters..]
            .iter()
            .map(|&page| {
                let lists = Arc::clone(&lists);
                thread::spawn(move || lists.set(page))
            })
            .collect();
        let followed = lists.clear_one();
        for thread in threads {
            thread.join().unwrap();
        }
        fence(Ordering::SeqCst);
        let rest = std::iter::from_fn(|| lists.hints().clear_one(LIST, 0, |_| true));
        let mut found: Vec<_> = followed.into_iter().chain(rest).collect();
        found.sort_unstable();
        // One that was set while it was set already is one, or two if it was followed in between.
        found.dedup();
        let mut all = [before, &pages[2 - setters..]].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(found, all, "a hint was lost");
    });
}

#[test]
fn a_hint_set_while_the_last_of_its_word_is_followed_is_found() {
    hints_are_set_while_one_is_followed(&[FIRST], 1);
}

#[test]
fn a_hint_set_again_while_it_is_followed_is_found() {
    hints_are_set_while_one_is_followed(&[SECOND], 1);
}

#[test]
fn two_hints_of_one_word_set_while_one_is_followed_are_found() {
    hints_are_set_while_one_is_followed(&[], 2);
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn a_word_that_is_called_unused_without_a_second_look_loses_a_hint() {
    let _mutant = Mutant::new("clear summary: no second look");
    hints_are_set_while_one_is_followed(&[FIRST], 1);
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn a_word_that_is_called_unused_without_order_loses_a_hint() {
    let _mutant = Mutant::new("clear summary: unordered");
    hints_are_set_while_one_is_followed(&[FIRST], 1);
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn a_word_that_is_called_used_before_it_has_a_hint_loses_it() {
    let _mutant = Mutant::new("hint: after its summary");
    hints_are_set_while_one_is_followed(&[FIRST], 1);
}

/// Two threads follow the last hint of a word while a third sets another.
#[test]
fn a_hint_set_while_two_threads_follow_the_last_of_its_word_is_found() {
    explore(3, || {
        let lists = Arc::new(ModelHints::new());
        lists.set(FIRST);
        let followers = [(); 2].map(|()| {
            let lists = Arc::clone(&lists);
            thread::spawn(move || lists.clear_one())
        });
        lists.set(SECOND);
        let followed = followers.map(|follower| follower.join().unwrap());
        let rest = std::iter::from_fn(|| lists.clear_one());
        let mut found: Vec<_> = followed.into_iter().flatten().chain(rest).collect();
        found.sort_unstable();
        assert_eq!(found, [FIRST, SECOND], "each hint is found once");
    });
}
