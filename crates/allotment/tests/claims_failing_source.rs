//! A source that refuses, claimed of every allocator that has a source: each refusal is a typed
//! error that changes nothing, later calls succeed, and nothing leaks. Refusals in calls of one
//! allocator are in `arena_bad_input.rs` and `slab_limits.rs`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::sync::Arc;

use allotment::{Budget, ErrorKind, Malloc, Release};
use support::list::under_a_tool;
use support::slab::{assert_apart, layout};
use support::sources::{Recorder, Refuse};
use support::subject::{Options, Sourced, claims};

claims! {
    sourced:
        a_source_that_refuses_the_nth_call_makes_typed_errors_and_no_damage,
        a_source_that_refuses_now_and_then_loses_nothing;
}

/// Allocates and frees objects. Any allocation may be refused. Returns the number of refusals.
fn work<S: Sourced>(subject: &mut S) -> usize {
    // The sizes, and how many objects of each. An allocator of one layout serves the first.
    let sizes: &[(usize, usize)] = match S::ANY_LAYOUT {
        true => &[(500, 200), (10, 200), (3000, 10), (40_000, 3), (70_000, 3)],
        false => &[(500, 600)],
    };
    let mut refused = 0;
    let mut number = 0;
    for round in 0..4 {
        let mut all = Vec::new();
        for &(size, count) in sizes {
            let layout = layout(size, 8);
            for _ in 0..count {
                let (live, lent) = (subject.figures().live_objects, subject.lent_bytes());
                number += 1;
                match subject.try_stamped(layout, number) {
                    Ok(object) => all.push((layout, object)),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::SourceRefused);
                        assert_eq!(subject.figures().live_objects, live, "{error}");
                        // What is empty may have gone back.
                        assert!(subject.lent_bytes() <= lent, "{error}");
                        refused += 1;
                    }
                }
            }
        }
        assert_eq!(subject.figures().live_objects, all.len());
        assert_apart(all.iter().map(|(_, object)| object));
        let rest = all.split_off(all.len() / 2);
        rest.into_iter().for_each(|(layout, object)| subject.free_all(layout, [object]));
        if round % 2 == 0 {
            subject.trim();
        }
        all.into_iter().for_each(|(layout, object)| subject.free_all(layout, [object]));
        subject.recycle();
    }
    refused
}

/// An allocator on the source, and its budget.
fn create<S: Sourced>(source: &Arc<Recorder>, hardened: bool) -> (S, Budget) {
    let budget = Budget::new(usize::MAX);
    let options = Options::of_size(500).source(source.clone().into()).release(Release::AtOnce);
    (S::create(&options.budget(&budget).hardened(hardened)), budget)
}

/// Asserts that the allocator holds what the source has lent, that it serves again once the source
/// refuses nothing, and that it gives all of it back.
fn assert_undamaged<S: Sourced>(mut subject: S, budget: &Budget, source: &Recorder) {
    let figures = subject.figures();
    assert_eq!(figures.live_objects, 0);
    assert_eq!(figures.held_bytes, budget.used());
    assert_eq!(subject.lent_bytes(), source.lent_bytes());
    source.refuse(Refuse::None);
    assert_eq!(work(&mut subject), 0, "usable again");
    drop(subject);
    assert_eq!((budget.used(), source.lent_blocks()), (0, 0));
}

fn a_source_that_refuses_the_nth_call_makes_typed_errors_and_no_damage<S: Sourced>(_: &str) {
    for &hardened in S::MODES {
        let source = Recorder::new(Malloc, Refuse::None);
        let (mut subject, budget) = create::<S>(&source, hardened);
        assert_eq!(work(&mut subject), 0);
        assert_undamaged(subject, &budget, &source);
        for nth in 1.. {
            let mut reached = true;
            for refuse in [Refuse::Only(nth), Refuse::From(nth)] {
                let source = Recorder::new(Malloc, refuse);
                let (mut subject, budget) = create::<S>(&source, hardened);
                let refused = work(&mut subject);
                if source.refused() == 0 {
                    assert_eq!(refused, 0);
                    reached = false;
                } else {
                    // A refused large chunk may be followed by a request for a smaller one, so a
                    // single refusal need not be an error. And in checked modes objects in
                    // quarantine are used before an error.
                    let checked = hardened || under_a_tool();
                    let avoidable = checked || refuse == Refuse::Only(nth);
                    assert!(refused > 0 || avoidable, "call {nth}");
                }
                assert_undamaged(subject, &budget, &source);
            }
            if !reached {
                assert!(nth > 6, "the work makes {nth} calls");
                break;
            }
        }
    }
}

fn a_source_that_refuses_now_and_then_loses_nothing<S: Sourced>(_: &str) {
    for &hardened in S::MODES {
        for refuse in [Refuse::Every(1), Refuse::Every(2), Refuse::Every(3), Refuse::OneIn(5)] {
            let source = Recorder::new(Malloc, refuse);
            let (mut subject, budget) = create::<S>(&source, hardened);
            let refused = work(&mut subject);
            assert!(refused == 0 || source.refused() > 0);
            assert!(refused > 0 || refuse != Refuse::Every(1));
            assert_undamaged(subject, &budget, &source);
        }
    }
}
