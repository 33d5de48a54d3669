//! The collections of every kind of memory against the standard library's, with every drop counted.
//!
//! `PROPTEST_CASES` in the environment sets the number of programs of each test.

#[path = "support/mod.rs"]
mod support;

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::{Debug, Display, Write};
use std::rc::Rc;

use allotment::collections::{BlockSource, StringIn, VecIn};
#[cfg(system_memory)]
use allotment::{
    AllocError, LocalPool, PoolBox, PoolRef, PoolString, PoolVec, Reap, Sealed, Slab, SlabBox,
};
use allotment::{Arena, ArenaBox, ArenaString, ArenaVec, Budget, format_in, unsize_box};
use proptest::test_runner::{Config, TestError, TestRunner};
#[cfg(not(system_memory))]
use support::absent_options::*;
use support::input::Input;
use support::program::{caught, throw};

fn programs(cases: u32, check: impl Fn(&[u8])) {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let config =
        Config { cases: given.unwrap_or(cases), failure_persistence: None, ..Config::default() };
    let bytes = proptest::collection::vec(proptest::num::u8::ANY, 0..300);
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

/// Counts the values that live: each is dropped exactly once, or the balance says so.
#[derive(Debug)]
struct Value {
    number: u16,
    living: Rc<Cell<isize>>,
}

impl Value {
    fn new(number: u16, living: &Rc<Cell<isize>>) -> Self {
        living.set(living.get() + 1);
        Self { number, living: living.clone() }
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        Self::new(self.number, &self.living)
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl PartialEq<u16> for Value {
    fn eq(&self, other: &u16) -> bool {
        self.number == *other
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.living.set(self.living.get() - 1);
    }
}

/// An iterator whose length is a lie, and which may throw at its end.
struct Liar<'l> {
    next: u16,
    end: u16,
    said: usize,
    throws: bool,
    living: &'l Rc<Cell<isize>>,
}

impl Iterator for Liar<'_> {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        if self.next == self.end {
            if self.throws {
                throw();
            }
            return None;
        }
        self.next += 1;
        Some(Value::new(self.next, self.living))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.said, Some(0))
    }
}

fn numbers(values: &[Value]) -> Vec<u16> {
    values.iter().map(|value| value.number).collect()
}

/// Runs a program on a vector in this memory and on one of the standard library. `disturb` takes a
/// block behind the vector, so that it has to move when it grows.
fn vec_program<S: BlockSource>(input: &mut Input<'_>, source: S, disturb: impl Fn()) {
    let living = Rc::new(Cell::new(0));
    let made = |numbers: &[u16]| -> Vec<Value> {
        numbers.iter().map(|number| Value::new(*number, &living)).collect()
    };
    let some = |input: &mut Input<'_>| -> Vec<u16> {
        (0..input.below(30)).map(|_| u16::from(input.byte() % 8)).collect()
    };
    let mut vec: VecIn<Value, S> = VecIn::new_in(source);
    let mut model: Vec<u16> = Vec::new();
    while !input.is_empty() {
        match input.byte() % 27 {
            0..=2 => {
                let number = input.word();
                if vec.try_push(Value::new(number, &living)).is_ok() {
                    model.push(number);
                }
            }
            3 => assert_eq!(vec.pop().map(|value| value.number), model.pop()),
            4 => {
                let (end, said) = (u16::from(input.byte() % 50), input.below(80));
                let throws = input.one_in(3);
                let values = Liar { next: 0, end, said, throws, living: &living };
                // `extend` ends the process where a budget refuses it: reserve what the lie asks
                // for.
                if vec.try_reserve(usize::from(end) * 2 + said + 1).is_ok() {
                    caught(|| vec.extend(values));
                    model.extend(1..=end);
                }
            }
            5 => {
                let values = some(input);
                let before = model.len();
                let complete = vec.try_extend(made(&values)).is_ok();
                model.extend(&values[..vec.len() - before]);
                assert!(!complete || model.len() == before + values.len());
            }
            6 => {
                let values = some(input);
                if vec.try_extend_from_slice(&made(&values)).is_ok() {
                    model.extend(values);
                }
            }
            7 => {
                let len = input.below(model.len() + 2);
                vec.truncate(len);
                model.truncate(len);
            }
            8 => {
                let more = input.below(100);
                let reserved = if input.one_in(2) {
                    vec.try_reserve(more)
                } else {
                    vec.try_reserve_exact(more)
                };
                if reserved.is_ok() {
                    assert!(vec.capacity() >= vec.len() + more);
                }
            }
            9 => disturb(),
            10 => {
                for value in &mut vec {
                    value.number ^= 0x5555;
                }
                model.iter_mut().for_each(|number| *number ^= 0x5555);
            }
            11 => {
                let (index, number) = (input.below(model.len() + 1), input.word());
                if vec.try_insert(index, Value::new(number, &living)).is_ok() {
                    model.insert(index, number);
                }
            }
            12 if !model.is_empty() => {
                let index = input.below(model.len());
                assert_eq!(vec.remove(index).number, model.remove(index));
            }
            13 if !model.is_empty() => {
                let index = input.below(model.len());
                assert_eq!(vec.swap_remove(index).number, model.swap_remove(index));
            }
            14 => {
                let divisor = 1 + u16::from(input.byte() % 5);
                vec.retain(|value| value.number % divisor != 1);
                model.retain(|number| number % divisor != 1);
            }
            15 => {
                vec.retain_mut(|value| {
                    value.number ^= 1;
                    value.number & 2 == 0
                });
                model.retain_mut(|number| {
                    *number ^= 1;
                    *number & 2 == 0
                });
            }
            16 => {
                vec.dedup();
                model.dedup();
                vec.dedup_by_key(|value| value.number / 2);
                model.dedup_by_key(|number| *number / 2);
            }
            17 => {
                let end = input.below(model.len() + 1);
                let start = input.below(end + 1);
                let (front, back) = (input.below(4), input.below(4));
                let (mut drain, mut expected) = (vec.drain(start..end), model.drain(start..end));
                assert_eq!(drain.len(), expected.len());
                for _ in 0..front {
                    assert_eq!(drain.next().map(|value| value.number), expected.next());
                }
                for _ in 0..back {
                    assert_eq!(drain.next_back().map(|value| value.number), expected.next_back());
                }
                assert_eq!(numbers(drain.as_slice()), expected.as_slice());
            }
            18 => {
                let index = input.below(model.len() + 1);
                if let Ok(mut tail) = vec.try_split_off(index) {
                    let mut expected = model.split_off(index);
                    assert_eq!(numbers(&tail), expected);
                    if input.one_in(2) && tail.try_append(&mut vec).is_ok() {
                        expected.append(&mut model);
                        assert!(vec.is_empty());
                        (vec, model) = (tail, expected);
                    }
                }
            }
            19 => {
                let (len, number) = (input.below(model.len() + 10), input.word());
                if vec.try_resize(len, Value::new(number, &living)).is_ok() {
                    model.resize(len, number);
                }
            }
            20 => {
                let (front, back) = (input.below(model.len() + 1), input.below(4));
                let (mut values, mut expected) = (vec.into_iter(), model.into_iter());
                assert_eq!(values.len(), expected.len());
                let taken: Vec<Value> = values.by_ref().take(front).collect();
                assert_eq!(numbers(&taken), expected.by_ref().take(front).collect::<Vec<_>>());
                let taken: Vec<Value> = values.by_ref().rev().take(back).collect();
                assert_eq!(numbers(&taken), expected.by_ref().rev().take(back).collect::<Vec<_>>());
                assert_eq!(numbers(values.as_slice()), expected.as_slice());
                drop(values);
                (vec, model) = (VecIn::new_in(source), Vec::new());
            }
            21 => {
                let values: Vec<Value> = vec.into_iter().rev().collect();
                model.reverse();
                assert_eq!(numbers(&values), model);
                (vec, model) = (VecIn::new_in(source), Vec::new());
            }
            22 => {
                let _ = vec.try_shrink_to_fit();
            }
            23 => {
                let (least, before) = (input.below(40), vec.capacity());
                let _ = vec.try_shrink_to(least);
                assert!(vec.capacity() >= least.min(before) && vec.capacity() <= before);
            }
            24 => {
                let (len, mut next) = (input.below(model.len() + 10), 0);
                let mut make = || {
                    next += 1;
                    next
                };
                if vec.try_resize_with(len, || Value::new(make(), &living)).is_ok() {
                    next = 0;
                    model.resize_with(len, || {
                        next += 1;
                        next
                    });
                }
            }
            25 => {
                let end = input.below(model.len() + 1);
                let start = input.below(end + 1);
                if vec.try_extend_from_within(start..end).is_ok() {
                    model.extend_from_within(start..end);
                }
            }
            _ => {
                vec.clear();
                model.clear();
            }
        }
        assert_eq!(numbers(&vec), model);
        assert_eq!(living.get(), model.len() as isize, "each value is dropped once");
        assert!(vec == model && vec == model[..] && vec.capacity() >= vec.len());
    }
    drop(vec);
    assert_eq!(living.get(), 0);
}

fn string_program<S: BlockSource>(input: &mut Input<'_>, source: S, disturb: impl Fn()) {
    let mut string = StringIn::new_in(source);
    let mut model = String::new();
    let pieces = ["", "a", "größe", "☂", "数える", "plain ascii text that is longer"];
    // A byte between two characters, or the end.
    let boundary = |input: &mut Input<'_>, model: &str| {
        let mut index = input.below(model.len() + 1);
        while !model.is_char_boundary(index) {
            index += 1;
        }
        index
    };
    while !input.is_empty() {
        match input.byte() % 19 {
            0 | 1 => {
                let piece = pieces[input.below(pieces.len())];
                string.push_str(piece);
                model.push_str(piece);
            }
            2 => {
                let character = char::from_u32(u32::from(input.word())).unwrap_or('\u{10ffff}');
                string.push(character);
                model.push(character);
            }
            3 => assert_eq!(string.pop(), model.pop()),
            4 => {
                let len = input.below(model.len() + 3);
                if len >= model.len() || model.is_char_boundary(len) {
                    string.truncate(len);
                    model.truncate(len);
                }
            }
            5 => {
                let number = input.word();
                write!(string, "<{number:>7}>").unwrap();
                write!(model, "<{number:>7}>").unwrap();
            }
            6 => {
                let (index, piece) = (boundary(input, &model), pieces[input.below(pieces.len())]);
                string.insert_str(index, piece);
                model.insert_str(index, piece);
            }
            7 => {
                let index = boundary(input, &model);
                string.insert(index, 'ß');
                model.insert(index, 'ß');
            }
            8 => {
                let index = boundary(input, &model);
                if index < model.len() {
                    assert_eq!(string.remove(index), model.remove(index));
                }
            }
            9 => {
                let kept = |character: char| !matches!(character, 'a' | '☂' | 'え' | ' ');
                string.retain(kept);
                model.retain(kept);
            }
            10 => {
                let index = boundary(input, &model);
                let (tail, expected) = (string.split_off(index), model.split_off(index));
                assert_eq!(tail, expected);
                string += &tail;
                model += &expected;
            }
            11 => {
                string.extend(["x", "größe"]);
                model.extend(["x", "größe"]);
                string.extend(['☂', 'y']);
                model.extend(['☂', 'y']);
                string.extend(&['é', 'z']);
                model.extend(&['é', 'z']);
                string.extend([String::from("größe"), String::new()]);
                model.extend([String::from("größe"), String::new()]);
                string.extend([Box::from("boxed")]);
                model.extend([Box::<str>::from("boxed")]);
                string.extend([Cow::Borrowed("cow")]);
                model.extend([Cow::Borrowed("cow")]);
            }
            12 => {
                string.make_ascii_uppercase();
                model.make_ascii_uppercase();
            }
            13 => {
                let bytes = string.into_bytes();
                assert_eq!(bytes, model.as_bytes());
                string = StringIn::from_utf8(bytes).expect("the bytes of a string");
                string.shrink_to_fit();
            }
            14 => disturb(),
            15 | 16 => {
                let (start, end) = (boundary(input, &model), boundary(input, &model));
                let range = start.min(end)..start.max(end);
                let (front, back) = (input.below(4), input.below(4));
                let (mut drain, mut expected) = (string.drain(range.clone()), model.drain(range));
                assert!((0..front).all(|_| drain.next() == expected.next()));
                assert!((0..back).all(|_| drain.next_back() == expected.next_back()));
                assert_eq!(
                    (drain.as_str(), drain.size_hint()),
                    (expected.as_str(), expected.size_hint())
                );
            }
            17 => {
                let (least, before) = (input.below(40), string.capacity());
                string.shrink_to(least);
                assert!(string.capacity() >= least.min(before) && string.capacity() <= before);
            }
            _ => {
                string.clear();
                model.clear();
            }
        }
        assert_eq!(string, model);
        assert_eq!(format!("{string} {string:?}"), format!("{model} {model:?}"));
        assert!(string.capacity() >= string.len());
    }
}

/// Runs a vector and a string program in each kind of memory.
fn in_each_memory(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let budget = match input.below(3) {
        0 => Budget::new(usize::from(input.word())),
        _ => Budget::new(usize::MAX),
    };
    let hardened = input.one_in(4);
    let copy = || Input::new(input.rest());

    let arena = Arena::builder().budget(&budget).hardened(hardened).build();
    vec_program(&mut copy(), &arena, || _ = arena.try_alloc(1u64));
    let packed = Arena::<1>::builder_with_min_align().hardened(hardened).build();
    string_program(&mut copy(), &packed, || _ = packed.alloc(1u8));
    #[cfg(system_memory)]
    in_pools_and_sealed_memory(copy, &budget, hardened);
}

#[cfg(system_memory)]
fn in_pools_and_sealed_memory<'b>(copy: impl Fn() -> Input<'b>, budget: &Budget, hardened: bool) {
    let pool = LocalPool::builder().budget(budget).hardened(hardened).build();
    vec_program(&mut copy(), pool.reference(), || ());
    vec_program(&mut copy(), &pool, || ());
    assert_eq!(pool.statistics().live_objects, 0);
    let free = LocalPool::builder().hardened(hardened).build();
    string_program(&mut copy(), free.reference(), || ());

    let reap = Reap::builder().budget(budget).hardened(hardened).build();
    vec_program(&mut copy(), &reap, || ());
    assert_eq!(reap.statistics().live_objects, 0);

    // The first page of sealed memory is the library's own.
    let budget = Budget::new(budget.limit().saturating_add(4096));
    let sealed = Sealed::<()>::builder().budget(&budget).try_build(|sealer| {
        vec_program(&mut copy(), sealer, || _ = sealer.try_alloc(1u64));
        Ok::<_, AllocError>(())
    });
    drop(sealed);
    drop(Sealed::<()>::new(|sealer| {
        string_program(&mut copy(), sealer, || _ = sealer.alloc(1u8));
    }));
    assert_eq!(budget.used(), 0);
}

#[test]
fn vectors_and_strings_of_every_memory_are_those_of_std_and_drop_each_value_once() {
    programs(500, in_each_memory);
}

#[test]
fn a_vector_that_is_the_last_object_grows_in_place() {
    let arena = Arena::with_capacity(1 << 20);
    let mut vec = ArenaVec::new_in(&arena);
    vec.push(0u64);
    let first = vec.as_ptr();
    vec.extend(1..50_000);
    assert_eq!(vec.as_ptr(), first);
    let slice = vec.into_slice();
    assert_eq!(arena.statistics().live_bytes, 50_000 * 8, "what it did not use went back");
    assert!(slice.iter().copied().eq(0..50_000));
}

#[test]
fn a_panicking_destructor_drops_the_others_once_and_loses_none() {
    struct Fragile<'c>(bool, &'c Cell<usize>);
    impl Drop for Fragile<'_> {
        fn drop(&mut self) {
            self.1.set(self.1.get() + 1);
            if self.0 {
                throw();
            }
        }
    }
    for bad in 0..6 {
        let drops = Cell::new(0);
        let arena = Arena::new();
        let fill = || ArenaVec::from_iter_in((0..6).map(|i| Fragile(i == bad, &drops)), &arena);
        let mut vec = fill();
        assert!(caught(|| vec.truncate(0)).is_none());
        drop(vec);
        assert_eq!(drops.replace(0), 6);
        let vec = fill();
        assert!(caught(|| drop(vec)).is_none());
        assert_eq!(drops.replace(0), 6);
        let mut values = fill().into_iter();
        let kept = (bad >= 2).then(|| (values.next(), values.next()));
        assert!(caught(|| drop(values)).is_none());
        assert_eq!(drops.get(), if kept.is_some() { 4 } else { 6 });
        drop(kept);
        let boxed = fill().into_boxed_slice();
        drops.set(0);
        assert!(caught(|| drop(boxed)).is_none());
        assert_eq!(drops.get(), 6);
    }
}

#[test]
fn an_arena_vec_becomes_a_box_that_drops_each_value_once_and_a_string_becomes_a_str() {
    let living = Rc::new(Cell::new(0));
    let arena = Arena::new();
    for len in [0, 1, 7, 1000] {
        let mut vec = ArenaVec::from_iter_in((0..len).map(|n| Value::new(n, &living)), &arena);
        vec.truncate(usize::from(len / 2));
        let boxed: ArenaBox<'_, [Value]> = vec.into_boxed_slice();
        assert!(boxed.iter().map(|value| value.number).eq(0..len / 2));
        assert_eq!(living.get(), len as isize / 2);
        drop(boxed);
        assert_eq!(living.get(), 0);
        let text = "größe".repeat(usize::from(len));
        let mut string = ArenaString::from_str_in(&text, &arena);
        let behind = format_in!(&arena, "{len}");
        string.push('☂');
        assert_eq!((&*string.into_str(), &*behind), (&*(text + "☂"), &*len.to_string()));
    }
}

#[test]
fn a_string_cut_inside_a_character_panics_and_stays() {
    let arena = Arena::new();
    let mut string = ArenaString::from_str_in("☂", &arena);
    let cut = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| string.truncate(1)));
    assert!(cut.is_err());
    assert_eq!(&*string, "☂");
}

#[test]
fn what_a_box_gives_away_is_not_dropped_by_it() {
    let living = Rc::new(Cell::new(0));
    let arena = Arena::new();
    let value = ArenaBox::into_inner(arena.alloc_boxed(Value::new(1, &living)));
    assert_eq!(living.get(), 1);
    drop(value);
    let leaked = ArenaBox::leak(arena.alloc_boxed(Value::new(2, &living)));
    assert_eq!((leaked.number, living.get()), (2, 1));
    arena.alloc_undropped(Value::new(3, &living));
    drop(arena);
    assert_eq!(living.get(), 2, "leaked and undropped values are not dropped");
}

/// Runs `work`, which panics with a message that the standard library's collections have too.
fn panics(work: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).expect_err("a panic");
    match panic.downcast::<&str>() {
        Ok(text) => String::from(*text),
        Err(other) => *other.downcast::<String>().expect("a message"),
    }
}

#[test]
fn a_capacity_that_overflows_panics_as_in_std_and_changes_nothing() {
    fn overflows<S: BlockSource>(source: S) {
        let mut vec = VecIn::from_iter_in([1u64, 2], source);
        let mut string = StringIn::from_str_in("text", source);
        let words = isize::MAX as usize / 8 + 1;
        assert_eq!(panics(|| vec.reserve(usize::MAX)), "capacity overflow");
        assert_eq!(panics(|| vec.reserve_exact(words)), "capacity overflow");
        assert_eq!(panics(|| vec.resize(words, 3)), "capacity overflow");
        assert_eq!(panics(|| string.reserve(isize::MAX as usize)), "capacity overflow");
        let new = || drop(VecIn::<u64, S>::with_capacity_in(words, source));
        assert_eq!(panics(new), "capacity overflow");
        assert!(vec == [1, 2] && string == "text");
        let mut units = VecIn::from_iter_in([(), ()], source);
        assert_eq!(panics(|| units.reserve(usize::MAX - 1)), "capacity overflow");
        assert_eq!(units.len(), 2);
    }
    overflows(&Arena::new());
    #[cfg(system_memory)]
    overflows(LocalPool::new().reference());
    #[cfg(system_memory)]
    drop(Sealed::<()>::new(|sealer| overflows(sealer)));
}

#[test]
fn an_index_beyond_the_end_panics_and_changes_nothing() {
    fn beyond<S: BlockSource>(source: S) {
        let mut vec = VecIn::from_iter_in([1, 2, 3], source);
        panics(|| vec.insert(4, 0));
        panics(|| _ = vec.remove(3));
        panics(|| _ = vec.swap_remove(3));
        panics(|| _ = vec.split_off(4));
        panics(|| drop(vec.drain(..4)));
        panics(|| drop(vec.drain(..=usize::MAX)));
        panics(|| vec.extend_from_within(..4));
        assert_eq!(vec, [1, 2, 3]);
        let mut string = StringIn::from_str_in("a☂", source);
        for inside in [2, 5] {
            panics(|| string.insert_str(inside, "x"));
            panics(|| string.insert(inside, 'x'));
            panics(|| _ = string.remove(inside));
            panics(|| _ = string.split_off(inside));
        }
        panics(|| string.truncate(2));
        panics(|| drop(string.drain(..2)));
        panics(|| drop(string.drain(2..)));
        panics(|| drop(string.drain(1..5)));
        assert_eq!(string, "a☂");
    }
    beyond(&Arena::new());
    #[cfg(system_memory)]
    beyond(LocalPool::new().reference());
    #[cfg(system_memory)]
    drop(Sealed::<()>::new(|sealer| beyond(sealer)));
}

#[test]
fn a_panic_in_a_closure_loses_no_value() {
    let living = Rc::new(Cell::new(0));
    let arena = Arena::new();
    let fill = || ArenaVec::from_iter_in((0..8).map(|n| Value::new(n / 2, &living)), &arena);
    for bad in 0..8 {
        let seen = Cell::new(0);
        let throws = || {
            if seen.replace(seen.get() + 1) == bad {
                throw();
            }
        };
        let mut vec = fill();
        let dedup = |a: &mut Value, b: &mut Value| {
            throws();
            a == b
        };
        // A vector of eight values has seven pairs.
        assert_eq!(caught(|| vec.dedup_by(dedup)).is_none(), bad < 7);
        assert_eq!(vec.len(), if bad < 7 { 8 } else { 4 });
        drop(vec);
        let mut vec = fill();
        seen.set(0);
        let retain = |_: &Value| {
            throws();
            false
        };
        assert!(caught(|| vec.retain(retain)).is_none());
        assert_eq!(vec.len(), 8 - bad, "those not seen stay");
        drop(vec);
        assert_eq!(living.get(), 0);
    }
    let mut string = ArenaString::from_str_in("größe", &arena);
    assert!(
        caught(|| string.retain(|character| if character == 'ß' { throw() } else { false }))
            .is_none()
    );
    assert_eq!(string, "");
    string.push('x');
    assert_eq!(string, "x");
}

#[cfg(system_memory)]
#[test]
fn collections_of_different_memory_compare_hash_and_print_as_their_contents() {
    use std::hash::{BuildHasher, RandomState};

    let arena = Arena::new();
    let a = ArenaVec::from_iter_in([3, 1, 2], &arena);
    let b = PoolVec::from([3, 1, 2]);
    assert!(a == b && a <= b && a[..] == b && a == vec![3, 1, 2] && a == [3, 1, 2]);
    let larger = PoolVec::from([3, 2]);
    assert!(a < larger && a.clone().cmp(&a).is_eq());
    assert_eq!(format!("{a:?} {b:?}"), "[3, 1, 2] [3, 1, 2]");
    let hasher = RandomState::new();
    assert_eq!(hasher.hash_one(&a), hasher.hash_one([3, 1, 2].as_slice()));
    let (s, t) = (format_in!(&arena, "te{}", "xt"), PoolString::from("text"));
    assert!(s == t && s == "text" && s <= t && s.clone() == *String::from("text"));
    assert_eq!(hasher.hash_one(&s), hasher.hash_one("text"));
    let (x, y) = (arena.alloc_boxed(1), arena.alloc_boxed(2));
    assert!(x < y && x != y && hasher.hash_one(&x) == hasher.hash_one(1));
    let mut moved = b;
    moved.append(&mut a.clone());
    assert_eq!(moved, [3, 1, 2, 3, 1, 2]);
    drop(Sealed::<()>::new(|sealer| {
        let mut sealed = sealer.vec::<i32>();
        sealed.extend(&[3, 1, 2]);
        assert!(sealed == a && sealed.into_slice() == a);
        assert!(StringIn::from_str_in("text", sealer) == s);
    }));
}

#[test]
fn a_drain_that_is_forgotten_leaves_the_values_before_it_and_drops_none_twice() {
    struct Counted<'c>(u16, &'c Cell<u16>);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.1.set(self.1.get() + 1);
        }
    }
    let drops = Cell::new(0);
    let arena = Arena::new();
    let mut vec = ArenaVec::from_iter_in((0..8).map(|n| Counted(n, &drops)), &arena);
    let mut drain = vec.drain(2..5);
    assert_eq!(drain.next().map(|value| value.0), Some(2));
    std::mem::forget(drain);
    vec.push(Counted(9, &drops));
    assert!(vec.iter().map(|value| value.0).eq([0, 1, 9]));
    drop(vec);
    assert_eq!(drops.get(), 4, "the values from the range on leak, but for the one taken");

    let mut string = ArenaString::from_str_in("a☂größe", &arena);
    let mut drain = string.drain(1..8);
    assert_eq!((drain.next(), drain.next_back()), (Some('☂'), Some('ö')));
    std::mem::forget(drain);
    assert_eq!(string, "a");
    string.push('ß');
    assert_eq!((&*string, string.chars().count()), ("aß", 2));
}

#[cfg(system_memory)]
#[test]
fn a_clone_that_panics_leaves_the_clones_before_it() {
    struct Fragile<'c>(u32, &'c Cell<u32>);
    impl Clone for Fragile<'_> {
        fn clone(&self) -> Self {
            if self.0 == 2 {
                throw();
            }
            self.1.set(self.1.get() + 1);
            Self(self.0, self.1)
        }
    }
    impl Drop for Fragile<'_> {
        fn drop(&mut self) {
            self.1.set(self.1.get() - 1);
        }
    }
    let living = Cell::new(4);
    let mut vec = PoolVec::from_iter_in((0..4).map(|n| Fragile(n, &living)), PoolRef::GLOBAL);
    assert!(caught(|| vec.extend_from_within(1..)).is_none());
    assert!(vec.iter().map(|value| value.0).eq([0, 1, 2, 3, 1]));
    drop(vec);
    assert_eq!(living.get(), 0);
}

#[cfg(system_memory)]
#[test]
fn a_box_is_pinned_polled_and_passed_on_as_the_box_of_std() {
    use std::error::Error;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    let mut context = Context::from_waker(Waker::noop());
    let work = async { std::future::ready(3).await + 4 };
    let mut pinned = PoolBox::into_pin(PoolBox::new(work));
    assert_eq!(pinned.as_mut().poll(&mut context), Poll::Ready(7));
    let slab = Slab::new();
    let mut pinned: Pin<SlabBox<_>> = slab.alloc(async { 8 }).into();
    assert_eq!(pinned.as_mut().poll(&mut context), Poll::Ready(8));
    let arena = Arena::new();
    let boxed: ArenaBox<'_, dyn Future<Output = i32> + Unpin> =
        unsize_box!(arena.alloc_boxed(std::future::ready(9)));
    assert_eq!(pin!(boxed).poll(&mut context), Poll::Ready(9));

    let number = arena.alloc_boxed(1);
    assert_eq!(format!("{number:p}"), format!("{:p}", &raw const *number));

    #[derive(Debug)]
    struct Outer(std::num::ParseIntError);
    impl Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("outer")
        }
    }
    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }
    let inner = "x".parse::<u8>().unwrap_err();
    let error: ArenaBox<'_, dyn Error> = unsize_box!(arena.alloc_boxed(Outer(inner.clone())));
    let error: &dyn Error = &error;
    assert_eq!(error.source().map(ToString::to_string), Some(inner.to_string()));
}

#[test]
fn an_iterator_gives_the_memory_back_when_it_ends() {
    let arena = Arena::new();
    let mut values = ArenaVec::from_iter_in(0..100u64, &arena).into_iter();
    assert_eq!((values.next(), values.next_back()), (Some(0), Some(99)));
    drop(values);
    assert_eq!(arena.statistics().live_bytes, 0);
}

#[test]
fn what_is_turned_into_a_slice_in_a_scope_stays_while_inner_scopes_come_and_go() {
    let living = Rc::new(Cell::new(0));
    let mut arena = Arena::builder().hardened(true).build();
    arena.scope(|outer| {
        let mut numbers = ArenaVec::new_in(outer);
        numbers.extend(0..1000u32);
        let numbers = numbers.into_slice_in(outer);
        let text = format_in!(outer, "{} of {}", 3, "ten").into_str_in(outer);
        let boxed = ArenaVec::from_iter_in((0..5).map(|n| Value::new(n, &living)), outer)
            .into_boxed_slice_in(outer);
        for round in 0..10 {
            let sum: u32 = outer.scope(|inner| {
                let copy = ArenaVec::from_iter_in(numbers.iter().map(|n| n + round), inner)
                    .into_slice_in(inner);
                let mut mark = inner.mark();
                mark.alloc([0u64; 100]);
                mark.rewind();
                copy.iter().sum()
            });
            assert_eq!(sum, 499_500 + 1000 * round);
            numbers[999] = 999;
            text.make_ascii_uppercase();
        }
        assert!(numbers.iter().copied().eq(0..1000));
        assert_eq!((&*text, living.get()), ("3 OF TEN", 5));
        drop(boxed);
        assert_eq!(living.get(), 0);
    });
    assert_eq!(arena.statistics().live_objects, 0);
}

#[test]
fn a_vector_of_another_arena_is_no_slice_of_the_scope() {
    let other = Arena::new();
    let mut arena = Arena::new();
    arena.scope(|scope| {
        let theirs = ArenaVec::from_iter_in(0..3, &other);
        assert!(panics(|| _ = theirs.into_slice_in(scope)).contains("another arena"));
        let theirs = format_in!(&other, "text");
        assert!(panics(|| _ = theirs.into_str_in(scope)).contains("another arena"));
    });
}

#[test]
fn boxes_become_boxes_of_trait_objects_and_slices() {
    trait Shape {
        fn area(&self) -> u32;
    }
    struct Square(u32, #[allow(dead_code, reason = "counts drops")] Value);
    struct Empty;
    impl Shape for Square {
        fn area(&self) -> u32 {
            self.0 * self.0
        }
    }
    impl Shape for Empty {
        fn area(&self) -> u32 {
            0
        }
    }
    let living = Rc::new(Cell::new(0));
    let value = || Value::new(0, &living);
    let arena = Arena::new();
    let shapes: [ArenaBox<'_, dyn Shape>; 3] = [
        unsize_box!(arena.alloc_boxed(Square(3, value()))),
        unsize_box!(arena.alloc_boxed(Empty)),
        unsize_box!(arena.alloc_boxed(Square(4, value()))),
    ];
    assert_eq!(shapes.iter().map(|shape| shape.area()).sum::<u32>(), 25);
    drop(shapes);
    assert_eq!(living.get(), 0);

    #[cfg(system_memory)]
    let pool = LocalPool::builder().hardened(true).build();
    #[cfg(system_memory)]
    pool.enter(|| {
        let mut shapes: PoolVec<PoolBox<dyn Shape>> = PoolVec::new();
        shapes.push(unsize_box!(PoolBox::new(Square(3, value()))));
        shapes.push(unsize_box!(PoolBox::new(Empty)));
        assert_eq!((shapes[0].area() + shapes[1].area(), pool.statistics().live_objects), (9, 2));
        drop(shapes);
        let values: PoolBox<[Value]> = unsize_box!(PoolBox::new([value(), value()]));
        assert_eq!((values.len(), living.get()), (2, 2));
    });
    #[cfg(system_memory)]
    assert_eq!((living.get(), pool.statistics().live_objects), (0, 0));

    let text = String::from("borrowed");
    let shown: ArenaBox<'_, dyn Display + '_> = unsize_box!(arena.alloc_boxed(text.as_str()));
    let debug: ArenaBox<'_, dyn Debug + '_> = unsize_box!(arena.alloc_boxed(&text));
    assert_eq!(format!("{shown} {debug:?}"), "borrowed \"borrowed\"");
    let numbers: ArenaBox<'_, dyn DoubleEndedIterator<Item = u8>> =
        unsize_box!(arena.alloc_boxed(0..4));
    assert!(numbers.rev().eq([3, 2, 1, 0]));
}
