//! Budgets that refuse in the middle of infallible calls, which then panic: collections and boxes
//! stay valid, no value is lost or dropped twice, no block stays behind, and the allocator goes on.
//!
//! `PROPTEST_CASES` in the environment sets the number of programs of each test.

#[path = "support/mod.rs"]
mod support;

use std::cell::Cell;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use allotment::collections::{BlockSource, StringIn, VecIn};
use allotment::{
    Arena, ArenaString, Budget, FreeList, Lifetime, LocalPool, Malloc, PoolBox, PoolRef,
    PoolString, PoolVec, Reap, SealVec, Sealed, Slab, format_in,
};
use proptest::test_runner::{Config, TestError, TestRunner};
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

/// Runs a call. `None` if a budget refused.
fn granted<R>(call: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Some(result),
        Err(panic) => {
            let message = panic.downcast_ref::<String>().map_or("", |message| message);
            match message.starts_with("allotment: ") && message.contains("the budget of") {
                true => None,
                false => resume_unwind(panic),
            }
        }
    }
}

/// The number of values that live.
type Living = Rc<Cell<isize>>;

/// A value that counts itself, of 256 bytes, so that a chunk is full after a few.
struct Value {
    number: u16,
    living: Living,
    _rest: [u64; 30],
}

impl Value {
    fn new(number: u16, living: &Living) -> Self {
        living.set(living.get() + 1);
        Self { number, living: living.clone(), _rest: [0; 30] }
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        Self::new(self.number, &self.living)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.living.set(self.living.get() - 1);
    }
}

fn numbers(values: &[Value]) -> Vec<u16> {
    values.iter().map(|value| value.number).collect()
}

/// A vector of this memory against one of the standard library.
fn vec_program<S: BlockSource>(input: &mut Input<'_>, source: S) {
    let living = Living::default();
    let mut vec: VecIn<Value, S> = VecIn::new_in(source);
    let mut model: Vec<u16> = Vec::new();
    while !input.is_empty() {
        let (call, count, number) = (input.byte() % 11, input.below(12), input.word());
        let more: Vec<u16> = (0..count as u16).map(|index| number.wrapping_add(index)).collect();
        let values = || more.iter().map(|number| Value::new(*number, &living));
        match call {
            0..=2 => {
                if granted(|| vec.push(Value::new(number, &living))).is_some() {
                    model.push(number);
                }
            }
            3 => {
                let index = input.below(model.len() + 1);
                if granted(|| vec.insert(index, Value::new(number, &living))).is_some() {
                    model.insert(index, number);
                }
            }
            4 => {
                let before = model.clone();
                let all = granted(|| vec.extend(values())).is_some();
                // What was appended before the refusal stays.
                let appended = vec.len() - before.len();
                assert!(appended == count || !all);
                model.extend(&more[..appended]);
            }
            5 => {
                let others: Vec<Value> = values().collect();
                if granted(|| vec.extend_from_slice(&others)).is_some() {
                    model.extend(&more);
                }
            }
            6 => {
                if granted(|| vec.resize(count, Value::new(number, &living))).is_some() {
                    model.resize(count, number);
                } else {
                    assert!(count > model.len(), "less needs no memory");
                }
            }
            7 => {
                let other = granted(|| VecIn::from_iter_in(values(), source));
                if let Some(mut other) = other {
                    match granted(|| vec.append(&mut other)) {
                        Some(()) => model.extend(&more),
                        None => assert_eq!(numbers(&other), more, "both are as they were"),
                    }
                }
            }
            8 => {
                let index = input.below(model.len() + 1);
                if let Some(tail) = granted(|| vec.split_off(index)) {
                    assert_eq!(numbers(&tail), model.split_off(index));
                }
            }
            9 => {
                granted(|| vec.reserve(count));
                if input.one_in(3) {
                    granted(|| vec.shrink_to_fit());
                }
            }
            _ => {
                vec.truncate(count);
                model.truncate(count);
            }
        }
        assert_eq!(numbers(&vec), model);
        assert_eq!(living.get(), model.len() as isize);
    }
    drop(vec);
    assert_eq!(living.get(), 0);
}

/// A string of this memory against one of the standard library.
fn string_program<S: BlockSource>(input: &mut Input<'_>, source: S) {
    let mut string = StringIn::new_in(source);
    let mut model = String::new();
    while !input.is_empty() {
        let text = "äbc".repeat(input.below(200));
        match input.byte() % 6 {
            0 | 1 => {
                if granted(|| string.push_str(&text)).is_some() {
                    model.push_str(&text);
                }
            }
            2 => {
                if granted(|| string.push('ß')).is_some() {
                    model.push('ß');
                }
            }
            3 => {
                if granted(|| string.insert_str(0, &text)).is_some() {
                    model.insert_str(0, &text);
                }
            }
            4 => {
                // The trait has an error of its own, and appends whole pieces.
                if write!(string, "{text}").is_ok() {
                    model.push_str(&text);
                }
            }
            _ => {
                string.clear();
                model.clear();
            }
        }
        assert_eq!(&*string, model);
    }
}

/// A few chunks.
fn limit(input: &mut Input<'_>, chunk: usize) -> usize {
    chunk * input.below(8) + chunk
}

#[test]
fn a_vector_stays_valid_in_every_memory() {
    programs(300, |input| {
        for hardened in [false, true] {
            let input = &mut Input::new(input.rest());
            let maximum = limit(input, if hardened { 1 << 16 } else { 4096 });
            // Under Miri malloc checks every access.
            let builder = Reap::builder().source(Malloc).initial(4096).hardened(hardened);
            let reap = builder.maximum(maximum).build();
            vec_program(input, &reap);
            assert_eq!(reap.statistics().live_objects, 0, "no block stays behind");
        }
    });
    programs(300, |input| {
        let maximum = limit(input, 4096);
        let arena = Arena::builder().source(Malloc).maximum(maximum).build();
        vec_program(input, &arena);
    });
    programs(200, |input| {
        let maximum = limit(input, 1 << 16);
        let pool = LocalPool::builder().maximum(maximum).build();
        vec_program(input, pool.reference());
        assert_eq!(pool.statistics().live_objects, 0, "no block stays behind");
    });
}

#[test]
fn a_string_stays_valid_in_every_memory() {
    programs(200, |input| {
        let maximum = limit(input, 4096);
        string_program(input, &Arena::builder().maximum(maximum).build());
    });
    programs(200, |input| {
        let reap = Reap::builder().initial(4096).maximum(1 << 16).build();
        string_program(input, &reap);
        assert_eq!(reap.statistics().live_objects, 0);
    });
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
        until_refused(|value| list.slot().fill(value), live);

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
        sealed.build(|sealer| sealer.format(format_args!("{:>30000}", 1)))
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
                    values.push(*sealer.value([index as u64; 32]));
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
