//! Budgets that refuse in the middle of infallible calls, which then panic: collections and boxes
//! stay valid, no value is lost or dropped twice, no block stays behind, and the allocator goes on.
//!
//! `PROPTEST_CASES` in the environment sets the number of programs of each test.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::fmt::Write;

use allotment::collections::VecIn;
use allotment::slab::Lifetime;
use allotment::{
    Arena, ArenaString, Budget, FreeList, LocalPool, PoolBox, PoolRef, PoolString, PoolVec, Reap,
    SealVec, Sealed, Slab, format_in,
};
use proptest::test_runner::{Config, TestError, TestRunner};
use support::collection_program::{
    Living, Value, granted, string_in_arena, string_in_reap, vec_in_arena, vec_in_pool, vec_in_reap,
};
use support::input::Input;
use support::subject::assert_over_budget;

/// Runs random programs. Each byte is a decision.
fn programs(cases: u32, check: impl Fn(&mut Input<'_>)) {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = given.unwrap_or(if cfg!(miri) { 3 } else { cases });
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let bytes = proptest::collection::vec(proptest::num::u8::ANY, 0..300);
    let result = TestRunner::new(config).run(&bytes, |bytes| {
        check(&mut Input::new(&bytes));
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, bytes)) => panic!("{reason}, smallest program: {bytes:?}"),
        Err(abort) => panic!("{abort}"),
    }
}

#[test]
fn a_vector_stays_valid_in_every_memory() {
    programs(300, |input| {
        for hardened in [false, true] {
            vec_in_reap(&mut Input::new(input.rest()), hardened);
        }
    });
    programs(300, vec_in_arena);
    programs(200, vec_in_pool);
}

#[test]
fn a_string_stays_valid_in_every_memory() {
    programs(200, string_in_arena);
    programs(200, string_in_reap);
}

/// Calls that get one value each, until a budget refuses, three times over. All values are dropped.
fn until_refused<B>(mut call: impl FnMut(Value) -> B, live_objects: impl Fn() -> u64) {
    let living = Living::default();
    for _ in 0..3 {
        let mut boxes = Vec::new();
        while let Some(boxed) = granted(|| call(Value::new(7, &living))) {
            boxes.push(boxed);
        }
        assert!(!boxes.is_empty());
        assert_eq!(living.get(), boxes.len() as isize, "the refused value was dropped");
        assert_eq!(live_objects(), boxes.len() as u64);
        drop(boxes);
        assert_eq!((living.get(), live_objects()), (0, 0));
    }
}

#[test]
fn a_value_that_is_refused_is_dropped_by_every_call_that_takes_one() {
    const MAXIMUM: usize = 100_000;
    for hardened in [false, true] {
        let mut reap = Reap::builder().maximum(MAXIMUM).hardened(hardened).build();
        until_refused(|value| reap.alloc_boxed(value), || reap.statistics().live_objects);
        let two = |value: Value| reap.alloc_slice_boxed(2, |_| value.clone());
        let living = Living::default();
        while granted(|| std::mem::forget(two(Value::new(1, &living)))).is_some() {}
        reap.reset();
        until_refused(|value| reap.alloc_boxed(value), || reap.statistics().live_objects);

        let list = FreeList::<Value>::builder().maximum(MAXIMUM).hardened(hardened).build();
        let live = || list.statistics().live_objects;
        until_refused(|value| list.alloc(value), live);
        until_refused(|value| list.alloc_with(|| value), live);
        until_refused(|value| list.alloc_slot().fill(value), live);

        let slab = Slab::<Value>::builder().maximum(MAXIMUM).hardened(hardened).build();
        let live = || slab.statistics().live_objects;
        until_refused(|value| slab.alloc(value), live);
        until_refused(|value| slab.alloc_with(|| value), live);
        until_refused(|value| slab.alloc_for(Lifetime::Long, value), live);
        let handle = slab.handle();
        until_refused(|value| handle.alloc(value), live);

        let pool = LocalPool::builder().maximum(MAXIMUM).hardened(hardened).build();
        let live = || pool.statistics().live_objects;
        until_refused(|value| PoolBox::new_in(value, pool.reference()), live);
        pool.enter(|| {
            until_refused(PoolBox::new, live);
            until_refused(|value| PoolVec::from([value]), live);
        });
    }
    // An arena's box drops its value and leaves the memory to the arena.
    let arena = Arena::builder().maximum(MAXIMUM).build();
    let living = Living::default();
    let mut boxes = Vec::new();
    while let Some(boxed) = granted(|| arena.alloc_boxed(Value::new(7, &living))) {
        boxes.push(boxed);
    }
    assert_eq!(living.get(), boxes.len() as isize);
    assert_eq!(arena.statistics().live_objects, boxes.len() as u64);
    drop(boxes);
    assert_eq!(living.get(), 0);
}

#[test]
fn a_slice_that_is_refused_half_way_drops_what_it_had() {
    let living = Living::default();
    let arena = Arena::builder().maximum(10_000).build();
    let values = || (0..).map(|number| Value::new(number, &living));
    assert_over_budget(10_000, || VecIn::from_iter_in(values(), &arena));
    assert_over_budget(10_000, || arena.alloc_slice_boxed(100, |_| Value::new(1, &living)));
    assert_over_budget(10_000, || arena.alloc_slice_from_iter(0u64..));
    assert_over_budget(10_000, || arena.alloc_slice_clone(&[7u64; 2000]));
    assert_over_budget(10_000, || arena.alloc_str(&"long".repeat(5000)));
    assert_eq!((living.get(), arena.statistics().live_objects), (0, 0));
    assert_eq!(arena.alloc_str("short"), "short");
}

#[test]
fn formatting_panics_with_the_budgets_message() {
    let arena = Arena::builder().maximum(4096).build();
    assert_over_budget(4096, || format_in!(&arena, "{:>5000}", 1));
    assert_eq!(&*format_in!(&arena, "{:>5}", 1), "    1");
    let mut text = ArenaString::new_in(&arena);
    assert!(write!(text, "{:>5000}", 1).is_err(), "the trait's own error");
    let sealed = Sealed::<&'static str>::builder().maximum(20_000);
    assert_over_budget(20_000, || {
        sealed.build(|sealer| sealer.alloc_format(format_args!("{:>30000}", 1)))
    });
}

#[test]
fn an_initialiser_of_sealed_memory_may_be_refused_anywhere() {
    let budget = Budget::new(40_000);
    let sealed = |count: usize| {
        let build = || {
            let builder = Sealed::<SealVec<'static, [u64; 32]>>::builder().budget(&budget);
            builder.build(|sealer| {
                let mut values = sealer.vec();
                for index in 0..count {
                    values.push(*sealer.alloc([index as u64; 32]));
                }
                values
            })
        };
        granted(build).map(|sealed| sealed.get().len())
    };
    let mut refused = 0;
    for count in (0..200).step_by(9) {
        match sealed(count) {
            Some(len) => assert_eq!(len, count),
            None => refused += 1,
        }
        assert_eq!(budget.used(), 0);
    }
    assert!((1..22).contains(&refused), "{refused}");
}

#[test]
fn a_thread_that_panics_over_its_limit_leaves_its_pool() {
    let pool = LocalPool::builder().maximum(1 << 20).build();
    for _ in 0..3 {
        assert_over_budget(1 << 20, || {
            pool.enter(|| {
                let mut texts = PoolVec::new();
                loop {
                    texts.push(PoolString::from("text of a request"));
                }
            })
        });
        assert_eq!(allotment::pool::current(), PoolRef::GLOBAL);
        assert_eq!(pool.statistics().live_objects, 0);
        assert_eq!(pool.enter(|| PoolString::from("served again")), "served again");
    }
}
