//! Random operation programs on free lists: objects neither overlap nor change, figures are exact
//! after every call, and a refused call changes nothing.
//!
//! `PROPTEST_CASES` in the environment sets the number of programs of each test.

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;

use allotment::free_list::Copier;
use allotment::{Budget, FreeList, ListBox, Release};
use proptest::test_runner::{Config, TestError, TestRunner};
#[cfg(not(system_memory))]
use support::absent_options::*;
#[cfg(system_memory)]
use support::child::{self, Child};
use support::input::Input;
use support::list;
use support::list_program::{Fixed, From, run};
use support::program::{caught, throw};

/// Runs `check` on random byte strings of at most `longest`.
fn programs(cases: u32, longest: usize, check: impl Fn(&[u8])) {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let config =
        Config { cases: given.unwrap_or(cases), failure_persistence: None, ..Config::default() };
    let bytes = proptest::collection::vec(proptest::num::u8::ANY, 0..longest);
    let result = TestRunner::new(config).run(&bytes, |bytes| {
        check(&bytes);
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, bytes)) => panic!("{reason}, smallest program: {bytes:?}"),
        Err(abort) => panic!("{abort}"),
    }
}

fn raw(from: From, hardened: bool, cases: u32) {
    programs(cases, 200, |bytes| run(Fixed { from, hardened }, bytes));
}

#[cfg(system_memory)]
#[test]
fn programs_keep_the_model_on_mappings() {
    raw(From::Mmap, false, 200);
}

#[cfg(system_memory)]
#[test]
fn programs_keep_the_model_on_huge_pages() {
    raw(From::HugePages, false, 60);
}

#[test]
fn programs_keep_the_model_on_malloc() {
    raw(From::Malloc, false, 120);
}

#[cfg(system_memory)]
#[test]
fn programs_keep_the_model_on_a_file() {
    raw(From::File, false, 60);
}

#[test]
fn programs_keep_the_model_on_a_source_that_refuses() {
    raw(From::Refusing, false, 200);
}

#[cfg(system_memory)]
#[test]
fn programs_keep_the_model_hardened() {
    raw(From::Mmap, true, 60);
    raw(From::Refusing, true, 60);
}

#[cfg(system_memory)]
#[test]
fn programs_keep_the_model_passed_through_to_malloc() {
    let test = "programs_keep_the_model_passed_through_to_malloc";
    if child::is(test) {
        return raw(From::Mmap, false, 50);
    }
    Child::new(test, test).env("ALLOTMENT_PASSTHROUGH", "1").succeeds();
}

/// Boxes of one type, with constructors that panic on the way: figures, values and bytes are right
/// to the end.
fn boxes<T>(bytes: &[u8], make: impl Fn(u64) -> T, value: impl Fn(&T) -> u64) {
    let mut input = Input::new(bytes);
    let budget = Budget::new(usize::MAX);
    let release = if input.one_in(2) { Release::AtOnce } else { Release::Adaptive };
    let hardened = input.one_in(4);
    let list = FreeList::<T>::builder().budget(&budget).release(release).hardened(hardened).build();
    let mut live: Vec<(ListBox<'_, T>, u64)> = Vec::new();
    let mut number = 0;
    while !input.is_empty() {
        match input.byte() % 10 {
            0..=2 => {
                for _ in 0..=input.below(90) {
                    number += 1;
                    let boxed = match number % 4 {
                        0 => list.alloc_with(|| make(number)),
                        1 => list.alloc_slot().fill(make(number)),
                        _ => list.alloc(make(number)),
                    };
                    live.push((boxed, number));
                }
            }
            3 => {
                let (places, taken) = (input.below(50), input.below(50));
                for slot in list.alloc_run(places).take(taken) {
                    number += 1;
                    live.push((slot.fill(make(number)), number));
                }
            }
            4 if !live.is_empty() => {
                let (boxed, number) = live.swap_remove(input.below(live.len()));
                assert_eq!(value(&ListBox::into_inner(boxed)), number);
            }
            5 => {
                let count = input.below(1 + live.len());
                for (boxed, number) in live.drain(..count) {
                    assert_eq!(value(&boxed), number);
                }
            }
            6 if !live.is_empty() => {
                let (boxed, number) = live.pop().expect("not empty");
                let raw = ListBox::into_raw(boxed);
                // SAFETY: from `into_raw` of a box of this list, once.
                live.push((unsafe { list.from_raw(raw) }, number));
            }
            7 => assert!(caught(|| list.alloc_with(|| -> T { throw() })).is_none()),
            8 => {
                list.trim();
            }
            _ => {}
        }
        list::assert_exact(list.raw(), live.len(), Some(&budget));
    }
    for (boxed, number) in live {
        assert_eq!(value(&boxed), number);
    }
    list::assert_empties(list.raw());
    drop(list);
    assert_eq!(budget.used(), 0);
}

#[test]
fn boxes_of_many_types_keep_their_values() {
    #[repr(align(8192))]
    struct Aligned(u64);
    programs(60, 60, |bytes| {
        boxes(bytes, |number| number, |value| *value);
        boxes(bytes, |number| number.to_string(), |value| value.parse().unwrap());
        boxes(bytes, |number| [number; 12], |value| value[11]);
        boxes(bytes, |number| [number; 1100], |value| value[1099]);
        boxes(bytes, Aligned, |value| {
            assert_eq!(core::ptr::from_ref(value).addr() % 8192, 0);
            value.0
        });
    });
}

/// A binary search tree as a program of random insertions and removals, against a `BTreeMap`.
#[test]
fn a_search_tree_of_boxes_keeps_what_a_map_keeps() {
    struct Node<'l> {
        key: u16,
        value: u64,
        children: [Option<ListBox<'l, Node<'l>>>; 2],
    }
    type Link<'l> = Option<ListBox<'l, Node<'l>>>;

    // A function and not a closure: on Rust 1.85 a closure keeps the source borrowed while the copy
    // lives.
    fn copy_node<'l, 's>(
        node: &'s Node<'l>,
        copier: &mut Copier<'_, 'l, &'s Node<'l>, Node<'l>>,
    ) -> Node<'l> {
        let children = node.children.each_ref();
        let children = children.map(|child| Some(copier.copy(child.as_deref()?)));
        Node { key: node.key, value: node.value, children }
    }

    fn insert<'l>(list: &'l FreeList<Node<'l>>, mut at: &mut Link<'l>, key: u16, value: u64) {
        while at.as_deref().is_some_and(|node| node.key != key) {
            let node = at.as_deref_mut().expect("as above");
            at = &mut node.children[usize::from(key > node.key)];
        }
        match at {
            Some(node) => node.value = value,
            None => *at = Some(list.alloc(Node { key, value, children: [None, None] })),
        }
    }

    fn remove(mut at: &mut Link<'_>, key: u16) -> Option<u64> {
        while at.as_deref().is_some_and(|node| node.key != key) {
            let node = at.as_deref_mut().expect("as above");
            at = &mut node.children[usize::from(key > node.key)];
        }
        let Node { value, children: [left, right], .. } = ListBox::into_inner(at.take()?);
        // The right subtree goes below the largest key of the left one.
        *at = left;
        let mut end = at;
        while end.is_some() {
            end = &mut end.as_deref_mut().expect("as above").children[1];
        }
        *end = right;
        Some(value)
    }

    fn walk(at: &Link<'_>, found: &mut Vec<(u16, u64)>) {
        if let Some(node) = at {
            walk(&node.children[0], found);
            found.push((node.key, node.value));
            walk(&node.children[1], found);
        }
    }

    programs(80, 1500, |bytes| {
        let mut input = Input::new(bytes);
        let list = FreeList::builder().objects_per_chunk(input.below(80)).build();
        let mut root: Link<'_> = None;
        let mut map = BTreeMap::new();
        let mut number = 0;
        while !input.is_empty() {
            let (key, value) = (input.word() % 700, number);
            number += 1;
            match input.byte() % 8 {
                0..=3 => {
                    insert(&list, &mut root, key, value);
                    map.insert(key, value);
                }
                4 => {
                    list.trim();
                }
                _ => assert_eq!(remove(&mut root, key), map.remove(&key)),
            }
            list::assert_exact(list.raw(), map.len(), None);
        }
        let mut found = Vec::new();
        walk(&root, &mut found);
        assert!(found.into_iter().eq(map.clone()));
        // A copy in the same list, from which the original is dropped.
        let copy: Link<'_> = root.as_deref().map(|root| list.copy_in_order(root, copy_node));
        list::assert_exact(list.raw(), 2 * map.len(), None);
        drop(root);
        list::assert_exact(list.raw(), map.len(), None);
        let mut found = Vec::new();
        walk(&copy, &mut found);
        assert!(found.into_iter().eq(map));
        drop(copy);
        list::assert_empties(list.raw());
    });
}
