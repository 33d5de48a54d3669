//! Pools that record places: what is live and what has escaped, by the place that allocated it.
//! What is reported for the whole process is checked in processes of their own.

#[path = "support/mod.rs"]
mod support;

use std::alloc::System;
use std::backtrace::Backtrace;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use allotment::pool::{
    LiveByPlace, LocalPoolBuilder, MAX_PLACE_CALLS, MAX_PLACES, MAX_REPORTED_PLACES, PlaceCall,
    escaped_by_place,
};
use allotment::{Budget, LocalPool, PoolBox, PoolGlobalAlloc, PoolRef};
use support::child::{self, Child};

#[global_allocator]
static GLOBAL: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);

fn recording() -> LocalPoolBuilder {
    LocalPool::builder().record_places(true)
}

/// Runs `body` in a process of its own, and returns what that process printed on standard error.
fn alone(test: &str, body: impl FnOnce()) -> Option<String> {
    if child::is(test) {
        body();
        return None;
    }
    Some(Child::new(test, test).succeeds())
}

/// An object, and the line that allocated it.
struct Kept {
    _bytes: Vec<u8>,
    line: u32,
}

#[inline(never)]
fn keep_large() -> Kept {
    Kept { _bytes: Vec::with_capacity(5000), line: line!() }
}

#[inline(never)]
fn keep_small(number: u8) -> Kept {
    Kept { _bytes: vec![number; 40], line: line!() }
}

#[inline(never)]
fn keep_boxed(pool: PoolRef) -> (PoolBox<[u8; 300]>, u32) {
    (PoolBox::new_in([7_u8; 300], pool), line!())
}

/// Whether this program has debug information, so that its backtraces have lines.
fn has_lines() -> bool {
    Backtrace::force_capture().to_string().contains("pool_places.rs:")
}

/// Checks that a call is in this function, and at this line if the program has lines.
fn is_at(call: &PlaceCall, function: &str, line: u32) {
    assert!(call.function.as_deref().is_some_and(|name| name.ends_with(function)), "{call:?}");
    if has_lines() {
        assert!(
            call.file.as_deref().is_some_and(|file| file.ends_with("pool_places.rs")),
            "{call}"
        );
        assert_eq!(call.line, Some(line), "{call}");
        assert!(call.to_string().contains(&format!("pool_places.rs:{line}:")), "{call}");
    }
}

/// The objects and bytes of each place, and of the others.
fn amounts(live: &LiveByPlace) -> Vec<(usize, usize)> {
    let places = live.places.iter().map(|place| (place.objects, place.bytes));
    places.chain([(live.other_objects, live.other_bytes)]).collect()
}

#[test]
fn ordinary_objects_are_listed_by_place_during_the_pools_life_and_after_its_end() {
    alone("ordinary_objects_are_listed_by_place_during_the_pools_life_and_after_its_end", || {
        for hardened in [false, true] {
            let pool = recording().hardened(hardened).build();
            assert_eq!(pool.live_by_place(), LiveByPlace::default());
            let (mut small, large) = pool.enter(|| {
                drop(keep_large());
                ((0..3).map(keep_small).collect::<Vec<_>>().into_iter(), keep_large())
            });
            let vector = size_of_val(small.as_slice());
            let live = pool.enter(|| pool.live_by_place());
            assert_eq!(amounts(&live), [(1, 5000), (3, 120), (1, vector), (0, 0)]);
            is_at(&live.places[0].calls[0], "keep_large", large.line);
            is_at(&live.places[1].calls[0], "keep_small", small.as_slice()[0].line);
            assert_eq!(escaped_by_place(), LiveByPlace::default());

            drop(pool);
            assert_eq!(escaped_by_place(), live);
            drop(small.next());
            assert_eq!(amounts(&escaped_by_place()), [(1, 5000), (1, vector), (2, 80), (0, 0)]);
            // Freed by another thread.
            std::thread::spawn(move || drop(large)).join().unwrap();
            let left = escaped_by_place();
            assert_eq!(amounts(&left), [(1, vector), (2, 80), (0, 0)]);
            assert!(left.places[0].calls.len() <= MAX_PLACE_CALLS);
            drop(small);
            assert_eq!(escaped_by_place(), LiveByPlace::default());
            // It adopts what is left of the pool, and has no ledger.
            let next = LocalPool::new();
            assert_eq!(escaped_by_place(), LiveByPlace::default());
            drop(next);
        }
    });
}

#[test]
fn the_report_at_the_end_lists_places() {
    let printed = alone("the_report_at_the_end_lists_places", || {
        let pool = recording().name("request").report_live(true).build();
        let kept = pool.enter(|| [keep_small(1), keep_large(), keep_small(2)]);
        drop(pool);
        println!("lines {} {}", kept[0].line, kept[1].line);
    });
    let Some(printed) = printed else { return };
    let (_, report) = printed.split_once("pool 'request' ended with 3 objects in use").expect("it");
    let lines: Vec<_> = report.lines().collect();
    let first = lines.iter().position(|line| line.starts_with("  5000 bytes in 1 object from "));
    let first = first.unwrap_or_else(|| panic!("{printed}"));
    assert!(lines[first].contains("keep_large"), "{printed}");
    // Without lines the two calls are one place.
    let small =
        if has_lines() { "  40 bytes in 1 object from " } else { "  80 bytes in 2 objects from " };
    let smalls = lines[first..].iter().filter(|line| line.starts_with(small));
    let places = smalls.filter(|line| line.contains("keep_small")).count();
    assert_eq!(places, if has_lines() { 2 } else { 1 }, "{printed}");
    assert!(lines[first + 1].starts_with("      called from "), "{printed}");
}

#[test]
fn the_librarys_own_types_have_places_and_a_resized_object_has_that_of_its_last_resize() {
    let pool = recording().build();
    let (boxed, line) = keep_boxed(pool.reference());
    let live = pool.live_by_place();
    assert_eq!(amounts(&live), [(1, 300), (0, 0)]);
    is_at(&live.places[0].calls[0], "keep_boxed", line);
    let mut bytes = pool.enter(|| Vec::<u8>::with_capacity(1000));
    pool.enter(|| bytes.reserve_exact(2000));
    let line = line!() - 1;
    let live = pool.live_by_place();
    assert_eq!(amounts(&live), [(1, 2000), (1, 300), (0, 0)]);
    assert!(!has_lines() || live.places[0].calls[0].line == Some(line), "{live}");
    drop((boxed, bytes));
    assert_eq!(pool.live_by_place(), LiveByPlace::default());
    assert_eq!(pool.statistics().live_objects, 0);
}

#[test]
fn a_limit_holds_and_freed_memory_is_used_again() {
    let budget = Budget::new(1 << 20);
    let pool = recording().budget(&budget).build();
    for _ in 0..100 {
        let large = pool.enter(|| Vec::<u8>::with_capacity(200 << 10));
        assert_eq!(pool.live_by_place().places[0].bytes, 200 << 10);
        drop(large);
    }
    assert_eq!(pool.refused_bytes(), 0);
    pool.enter(|| drop(Vec::<u8>::with_capacity(2 << 20)));
    assert_eq!(pool.refused_bytes(), 2 << 20);
    drop(pool);
    assert_eq!(budget.used(), 0);
}

/// Allocates below `bits` calls of `even` and `odd`, as the bits of `choices` say.
#[inline(never)]
fn keep_below(choices: u32, bits: u32, kept: &mut Vec<PoolBox<u8>>) {
    match (bits, choices % 2) {
        (0, _) => kept.push(PoolBox::new(1)),
        (_, 0) => even(choices / 2, bits - 1, kept),
        _ => odd(choices / 2, bits - 1, kept),
    }
}

#[inline(never)]
fn even(choices: u32, bits: u32, kept: &mut Vec<PoolBox<u8>>) {
    keep_below(choices, bits, kept);
    black_box(0_u8);
}

#[inline(never)]
fn odd(choices: u32, bits: u32, kept: &mut Vec<PoolBox<u8>>) {
    keep_below(choices, bits, kept);
    black_box([0_u64; 4]);
}

#[test]
fn places_beyond_the_limits_are_counted_together() {
    alone("places_beyond_the_limits_are_counted_together", || {
        const BITS: u32 = MAX_PLACES.ilog2() + 1;
        let pool = recording().build();
        let mut kept = Vec::with_capacity(1 << BITS);
        pool.enter(|| (0..1 << BITS).for_each(|choices| keep_below(choices, BITS, &mut kept)));
        let live = pool.live_by_place();
        assert!(live.places.len() <= MAX_REPORTED_PLACES, "{} places", live.places.len());
        assert!(live.other_objects >= MAX_PLACES, "{} others", live.other_objects);
        let sum = amounts(&live).iter().fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
        assert_eq!(sum, (1 << BITS, 1 << BITS));
        assert!(live.to_string().ends_with(" objects from other places\n"), "{live}");
        // Places that are known are still told apart from those that are not.
        kept.truncate(1);
        assert_eq!(amounts(&pool.live_by_place()), [(1, 1), (0, 0)]);
    });
}

#[test]
fn reports_are_made_while_other_threads_allocate_free_and_end_pools() {
    alone("reports_are_made_while_other_threads_allocate_free_and_end_pools", || {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (send, receive) = std::sync::mpsc::sync_channel(64);
            for _ in 0..2 {
                let (send, stop) = (send.clone(), &stop);
                scope.spawn(move || {
                    for round in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        // Every other pool is not checked, and may adopt what is left of another.
                        let pool = LocalPool::builder().record_places(round % 2 == 0).build();
                        send.send(pool.enter(|| [keep_small(1), keep_large()])).unwrap();
                    }
                });
            }
            drop(send);
            scope.spawn(move || receive.into_iter().for_each(drop));
            for _ in 0..30 {
                for place in escaped_by_place().places {
                    assert_eq!(place.bytes % place.objects, 0);
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(escaped_by_place(), LiveByPlace::default());
    });
}

/// A library that looks up symbols holds its lock while it allocates. A pool that took such a lock to
/// record a place would wait for ever here.
#[test]
fn backtraces_are_printed_in_such_pools_while_reports_are_made() {
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let pool = recording().build();
                for _ in 0..5 {
                    let text = pool.enter(|| Backtrace::force_capture().to_string());
                    assert!(text.contains("backtraces_are_printed"), "{text}");
                    let live = pool.enter(|| pool.live_by_place());
                    assert!(live.places.iter().any(|place| place.bytes >= text.len()), "{live}");
                    assert!(!live.to_string().contains("stack_table"), "{live}");
                }
            });
        }
    });
}

#[test]
fn a_pool_that_records_nothing_reports_no_places() {
    let pool = LocalPool::new();
    let kept = pool.enter(keep_large);
    assert_eq!(pool.live_by_place(), LiveByPlace::default());
    drop(pool);
    drop(kept);
}
