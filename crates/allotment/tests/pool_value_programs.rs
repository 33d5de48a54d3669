//! Random operation programs on vectors and strings in a pool, against those of the standard
//! library: budgets are used up, pools end, and other threads grow and drop the collections.
//!
//! `PROPTEST_CASES` in the environment sets the number of programs of each test.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::fmt::Write;
use std::thread;

use allotment::{LocalPool, PoolString, PoolVec};
use proptest::test_runner::{Config, TestError, TestRunner};
use support::child::{self, Child};
use support::input::Input;

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

/// A pool of the program's choice, perhaps with a limit. It may end before the collection.
fn some_pool(input: &mut Input<'_>) -> LocalPool {
    let builder = LocalPool::builder().hardened(input.one_in(4));
    match input.below(3) {
        0 => builder.maximum((64 << 10) * input.below(4)).build(),
        _ => builder.build(),
    }
}

/// Runs a program on a vector of values that `make` makes, and on a standard one. `number` is the
/// inverse of `make`.
fn vec_program<T: Clone + Send>(bytes: &[u8], make: impl Fn(u16) -> T, number: impl Fn(&T) -> u16) {
    let mut input = Input::new(bytes);
    let mut pool = some_pool(&mut input);
    let mut vec = PoolVec::new_in(pool.reference());
    let mut model: Vec<u16> = Vec::new();
    while !input.is_empty() {
        match input.byte() % 18 {
            0..=2 => {
                let value = input.word();
                if vec.try_push(make(value)).is_ok() {
                    model.push(value);
                }
            }
            3 => assert_eq!(vec.pop().map(|value| number(&value)), model.pop()),
            4 => {
                let values: Vec<u16> = (0..input.below(200)).map(|n| n as u16).collect();
                let before = model.len();
                let made = vec.try_extend(values.iter().map(|value| make(*value)));
                model.extend(&values[..vec.len() - before]);
                assert!(made.is_err() || model.len() == before + values.len());
            }
            5 => {
                let values: Vec<u16> = (0..input.below(50)).map(|n| n as u16).collect();
                let clones: Vec<T> = values.iter().map(|value| make(*value)).collect();
                if vec.try_extend_from_slice(&clones).is_ok() {
                    model.extend(values);
                }
            }
            6 => {
                let (index, value) = (input.below(model.len() + 1), input.word());
                if vec.try_insert(index, make(value)).is_ok() {
                    model.insert(index, value);
                }
            }
            7 if !model.is_empty() => {
                let index = input.below(model.len());
                assert_eq!(number(&vec.remove(index)), model.remove(index));
            }
            8 if !model.is_empty() => {
                let index = input.below(model.len());
                assert_eq!(number(&vec.swap_remove(index)), model.swap_remove(index));
            }
            9 => {
                let len = input.below(model.len() + 2);
                vec.truncate(len);
                model.truncate(len);
            }
            10 => {
                let divisor = 1 + u16::from(input.byte() % 5);
                vec.retain(|value| number(value) % divisor != 1);
                model.retain(|value| value % divisor != 1);
            }
            11 => {
                let end = input.below(model.len() + 1);
                let start = input.below(end + 1);
                let (front, back) = (input.below(4), input.below(4));
                let (mut drain, mut expected) = (vec.drain(start..end), model.drain(start..end));
                assert_eq!(drain.len(), expected.len());
                for _ in 0..front {
                    assert_eq!(drain.next().map(|value| number(&value)), expected.next());
                }
                for _ in 0..back {
                    assert_eq!(drain.next_back().map(|value| number(&value)), expected.next_back());
                }
                assert!(
                    drain.as_slice().iter().map(&number).eq(expected.as_slice().iter().copied())
                );
            }
            12 => {
                let more = input.below(3000);
                if vec.try_reserve(more).is_ok() {
                    assert!(vec.capacity() - vec.len() >= more);
                }
            }
            13 => {
                if vec.try_shrink_to_fit().is_ok() && size_of::<T>() > 0 {
                    assert_eq!(vec.capacity(), vec.len());
                }
            }
            14 => {
                let taken = input.below(model.len() + 1);
                let mut values = vec.into_iter();
                assert_eq!(values.len(), model.len());
                assert!(
                    values
                        .by_ref()
                        .take(taken)
                        .map(|value| number(&value))
                        .eq(model.drain(..taken))
                );
                assert!(values.as_slice().iter().map(&number).eq(model.drain(..)));
                drop(values);
                vec = PoolVec::new_in(pool.reference());
            }
            15 if vec.try_shrink_to_fit().is_ok() => {
                let boxed = vec.into_boxed_slice();
                assert!(boxed.iter().map(&number).eq(model.drain(..)));
                vec = PoolVec::new_in(pool.reference());
            }
            16 => {
                // Another thread grows it, or drops it.
                let more: Vec<T> = (0..input.below(100)).map(|n| make(n as u16)).collect();
                let (before_send, drops) = (vec, input.one_in(3));
                let sent = move || {
                    let mut vec = before_send;
                    vec.extend(more);
                    (!drops).then_some(vec)
                };
                let before = model.len();
                match thread::scope(|scope| scope.spawn(sent).join().unwrap()) {
                    Some(grown) => {
                        model.extend(0..(grown.len() - before) as u16);
                        vec = grown;
                    }
                    None => {
                        model.clear();
                        vec = PoolVec::new_in(pool.reference());
                    }
                }
            }
            _ => {
                // The pool ends, and a later one begins.
                pool = some_pool(&mut input);
            }
        }
        assert!(vec.iter().map(&number).eq(model.iter().copied()));
        assert!(vec.capacity() >= vec.len());
    }
}

fn string_program(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut pool = LocalPool::builder().hardened(input.one_in(4)).build();
    let mut string = PoolString::new_in(pool.reference());
    let mut model = String::new();
    let pieces = ["", "a", "größe", "☂", "数える", "plain ascii text that is longer"];
    while !input.is_empty() {
        match input.byte() % 10 {
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
                string.make_ascii_uppercase();
                model.make_ascii_uppercase();
            }
            7 => {
                let boxed = string.into_boxed_str();
                assert_eq!(*boxed, *model);
                string = pool.enter(|| PoolString::from(&*boxed));
            }
            8 => {
                string.shrink_to_fit();
                assert_eq!(string.capacity(), string.len());
            }
            _ => pool = LocalPool::builder().hardened(input.one_in(4)).build(),
        }
        assert_eq!(string, model);
        assert_eq!(string.cmp(&PoolString::from(pieces[2])), model.as_str().cmp(pieces[2]));
    }
}

#[test]
fn a_pool_vec_is_a_vec() {
    #[repr(align(64))]
    #[derive(Clone)]
    struct Aligned(u16);
    programs(300, |bytes| {
        vec_program(bytes, |number| number, |value| *value);
        vec_program(bytes, |number| number.to_string(), |value| value.parse().unwrap());
        vec_program(bytes, |number| [u64::from(number); 12], |value| value[11] as u16);
        vec_program(bytes, Aligned, |value| {
            assert_eq!(std::ptr::from_ref(value).addr() % 64, 0);
            value.0
        });
    });
}

#[test]
fn a_pool_string_is_a_string() {
    programs(300, string_program);
}

#[test]
fn programs_keep_the_model_passed_through_to_malloc() {
    let test = "programs_keep_the_model_passed_through_to_malloc";
    if child::is(test) {
        return programs(50, |bytes| {
            vec_program(bytes, |number| number.to_string(), |value| value.parse().unwrap());
            string_program(bytes);
        });
    }
    Child::new(test, test).env("ALLOTMENT_PASSTHROUGH", "1").succeeds();
}
