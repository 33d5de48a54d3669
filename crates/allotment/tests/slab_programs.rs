//! Random operation programs on slabs: objects neither overlap nor change, and the statistics are
//! exact while no thread is inside a call.
//!
//! `PROPTEST_CASES` in the environment sets the number of programs of each test.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::sync::mpsc;

use allotment::slab::Lifetime;
use allotment::{Budget, Release, Slab, SlabBox};
use proptest::test_runner::{Config, TestError, TestRunner};
use support::child::{self, Child};
use support::input::Input;
use support::slab::{self, Object};
use support::slab_program::{Fixed, Pages, Run, build, run_alone};

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

fn alone(pages: Pages, hardened: bool, cases: u32) {
    programs(cases, 300, |bytes| run_alone(Fixed { pages, hardened }, bytes));
}

#[test]
fn programs_keep_the_model_on_mappings() {
    alone(Pages::Mmap, false, 250);
}

#[test]
fn programs_keep_the_model_on_malloc() {
    alone(Pages::Malloc, false, 150);
}

#[test]
fn programs_keep_the_model_on_a_file() {
    alone(Pages::File, false, 80);
}

#[test]
fn programs_keep_the_model_on_a_source_that_refuses_blocks() {
    alone(Pages::RefusingBlocks, false, 150);
}

#[test]
fn programs_keep_the_model_on_a_source_that_refuses_ranges_and_memory() {
    alone(Pages::RefusingSegments, false, 150);
}

#[test]
fn programs_keep_the_model_hardened() {
    alone(Pages::Mmap, true, 80);
    alone(Pages::RefusingBlocks, true, 50);
    alone(Pages::RefusingSegments, true, 50);
}

#[test]
fn programs_keep_the_model_passed_through_to_malloc() {
    let test = "programs_keep_the_model_passed_through_to_malloc";
    if child::is(test) {
        return alone(Pages::Mmap, false, 50);
    }
    Child::new(test, test).env("ALLOTMENT_PASSTHROUGH", "1").succeeds();
}

/// The program of one of several threads: its own calls, objects that it receives from one
/// neighbour, and objects that it sends to the other.
fn work(run: &mut Run<'_, '_>, to: &mpsc::Sender<Object>, from: &mpsc::Receiver<Object>) {
    while !run.input.is_empty() {
        match run.input.byte() % 4 {
            0 => {
                let count = run.input.below(60).min(run.objects.len());
                for object in run.objects.drain(..count) {
                    to.send(object).expect("receivers outlive the threads");
                }
            }
            1 => run.objects.extend(from.try_iter()),
            _ => run.step(),
        }
    }
    run.objects.extend(from.try_iter());
    run.check_objects();
}

/// Runs a program whose bytes are dealt to `threads` threads.
fn together(fixed: Fixed, threads: usize, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let Some(setup) = build(fixed, &mut input) else { return };
    let bytes = input.rest();
    let (mut senders, receivers): (Vec<_>, Vec<_>) =
        (0..threads).map(|_| mpsc::channel::<Object>()).unzip();
    senders.rotate_left(1);
    let part = bytes.len().div_ceil(threads).max(1);
    // Receivers come back with the objects that no thread took.
    let left = std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (thread, (to, from)) in senders.into_iter().zip(receivers).enumerate() {
            let slab = &setup.slab;
            let bytes = bytes.chunks(part).nth(thread).unwrap_or(&[]);
            running.push(scope.spawn(move || {
                let mut run = Run::new(slab, bytes, thread as u64 + 1);
                work(&mut run, &to, &from);
                // Half of the threads leave their objects until the other threads have ended.
                let survivors =
                    if thread % 2 == 0 { std::mem::take(&mut run.objects) } else { Vec::new() };
                run.end();
                (from, survivors)
            }));
        }
        // Joined one by one: the end of the scope alone does not wait for thread-local destructors.
        running.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let mut objects = Vec::new();
    for (from, survivors) in left {
        objects.extend(survivors);
        objects.extend(from.try_iter());
    }
    slab::assert_apart(&objects);
    setup.check(objects.len());
    for object in objects {
        slab::free(&setup.slab, object);
    }
    setup.check(0);
    setup.slab.trim();
    let empty = setup.check(0);
    assert_eq!((empty.chunks, empty.free_bytes), (0, 0), "{empty:?}");
    setup.finish();
}

fn several(pages: Pages, hardened: bool, cases: u32) {
    programs(cases, 800, |bytes| {
        let threads = 2 + bytes.len() % 3;
        together(Fixed { pages, hardened }, threads, bytes);
    });
}

#[test]
fn threads_that_pass_objects_on_keep_the_model_on_mappings() {
    several(Pages::Mmap, false, 100);
}

#[test]
fn threads_that_pass_objects_on_keep_the_model_on_malloc() {
    several(Pages::Malloc, false, 60);
}

#[test]
fn threads_that_pass_objects_on_keep_the_model_on_a_file() {
    several(Pages::File, false, 30);
}

#[test]
fn threads_that_pass_objects_on_keep_the_model_on_sources_that_refuse() {
    several(Pages::RefusingBlocks, false, 60);
    several(Pages::RefusingSegments, false, 60);
}

#[test]
fn threads_that_pass_objects_on_keep_the_model_hardened() {
    several(Pages::Mmap, true, 30);
    several(Pages::RefusingSegments, true, 20);
}

/// Boxes of one type, some of which outlive their slab: statistics, drops and bytes stay
/// correct to the end.
fn boxes<T>(bytes: &[u8], make: impl Fn(u64) -> T, value: impl Fn(&T) -> u64) {
    let mut input = Input::new(bytes);
    let budget = Budget::new(usize::MAX);
    let release = if input.one_in(2) { Release::AtOnce } else { Release::Adaptive };
    let hardened = input.one_in(4);
    let slab = Slab::<T>::builder().budget(&budget).release(release).hardened(hardened).build();
    let mut live: Vec<(SlabBox<T>, u64)> = Vec::new();
    let mut number = 0;
    while !input.is_empty() {
        match input.byte() % 8 {
            0..=2 => {
                for _ in 0..=input.below(90) {
                    number += 1;
                    let boxed = match number % 5 {
                        0 => slab.handle().alloc(make(number)),
                        1 => slab.alloc_for(Lifetime::Long, make(number)),
                        _ => slab.alloc(make(number)),
                    };
                    live.push((boxed, number));
                }
            }
            3 if !live.is_empty() => {
                let (boxed, number) = live.swap_remove(input.below(live.len()));
                assert_eq!(value(&SlabBox::into_inner(boxed)), number);
            }
            4 => {
                let count = input.below(1 + live.len());
                for (boxed, number) in live.drain(..count) {
                    assert_eq!(value(&boxed), number);
                }
            }
            5 if !live.is_empty() => {
                let (boxed, number) = live.pop().expect("not empty");
                let raw = SlabBox::into_raw(boxed);
                // SAFETY: from `into_raw`, once.
                live.push((unsafe { SlabBox::from_raw(raw) }, number));
            }
            _ => {}
        }
        slab::assert_exact(slab.raw(), live.len(), Some(&budget));
    }
    drop(slab);
    for (boxed, number) in live {
        assert_eq!(value(&boxed), number);
    }
    assert_eq!(budget.used(), 0, "the slab went with its last object");
}

#[test]
fn boxes_of_many_types_may_outlive_their_slab() {
    #[repr(align(4096))]
    struct Aligned(u64);
    programs(60, 60, |bytes| {
        boxes(bytes, |number| number, |value| *value);
        boxes(bytes, |number| number.to_string(), |value| value.parse().unwrap());
        boxes(bytes, |number| [number; 12], |value| value[11]);
        boxes(bytes, |number| [number; 1100], |value| value[1099]);
        boxes(bytes, Aligned, |value| {
            assert_eq!(core::ptr::from_ref(value).addr() % 4096, 0);
            value.0
        });
    });
}

#[test]
fn boxes_of_no_size_are_counted() {
    let slab = Slab::<()>::new();
    let boxes: Vec<_> = (0..1000).map(|_| slab.alloc(())).collect();
    slab::assert_exact(slab.raw(), 1000, None);
    drop(boxes);
    slab::assert_empties(slab.raw());
}
