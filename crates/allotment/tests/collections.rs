//! `ArenaVec` and `ArenaString` against the standard ones, with every drop counted.
//!
//! `PROPTEST_CASES` in the environment sets the number of programs of each test.

#[path = "support/mod.rs"]
mod support;

use std::cell::Cell;
use std::rc::Rc;

use allotment::{Arena, ArenaBox, ArenaString, ArenaVec, Budget, format_in};
use proptest::test_runner::{Config, TestError, TestRunner};
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

fn vec_program(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let living = Rc::new(Cell::new(0));
    let budget = match input.below(3) {
        0 => Budget::new(usize::from(input.word())),
        _ => Budget::new(usize::MAX),
    };
    let arena = Arena::builder().budget(&budget).hardened(input.one_in(4)).build();
    let mut vec = ArenaVec::new_in(&arena);
    let mut model: Vec<u16> = Vec::new();
    while !input.is_empty() {
        match input.byte() % 12 {
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
                // `extend` ends the process where a budget refuses it: reserve what the lie asks for.
                if vec.try_reserve(usize::from(end) * 2 + said + 1).is_ok() {
                    caught(|| vec.extend(values));
                    model.extend(1..=end);
                }
            }
            5 => {
                let len = input.below(model.len() + 2);
                vec.truncate(len);
                model.truncate(len);
            }
            6 => {
                let more = input.below(100);
                if vec.try_reserve(more).is_ok() {
                    assert!(vec.capacity() >= vec.len() + more);
                }
            }
            7 => {
                // Another object behind: the vector has to move when it grows.
                let _ = arena.try_alloc(1u64);
            }
            8 => {
                if let Some(value) = vec.last_mut() {
                    value.number ^= 0x5555;
                    *model.last_mut().expect("as long") ^= 0x5555;
                }
            }
            9 => {
                let boxed: ArenaBox<'_, [Value]> = vec.into_boxed_slice();
                assert!(boxed.iter().map(|value| value.number).eq(model.drain(..)));
                drop(boxed);
                assert_eq!(living.get(), 0);
                vec = ArenaVec::new_in(&arena);
            }
            10 => {
                let taken = input.below(model.len() + 1);
                let mut values = vec.into_iter();
                assert_eq!(values.len(), model.len());
                let first: Vec<u16> = values.by_ref().take(taken).map(|v| v.number).collect();
                assert_eq!(first, model[..taken]);
                drop(values);
                model.clear();
                vec = ArenaVec::new_in(&arena);
            }
            _ => {
                vec.clear();
                model.clear();
            }
        }
        assert!(vec.iter().map(|value| value.number).eq(model.iter().copied()));
        assert_eq!(living.get(), model.len() as isize, "each value is dropped once");
        assert!(vec.capacity() >= vec.len());
    }
    drop(vec);
    assert_eq!(living.get(), 0);
}

fn string_program(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let arena = Arena::<8>::builder_with_min_align().hardened(input.one_in(4)).build();
    let mut string = ArenaString::new_in(&arena);
    let mut model = String::new();
    let pieces = ["", "a", "größe", "☂", "数える", "plain ascii text that is longer"];
    while !input.is_empty() {
        match input.byte() % 8 {
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
                use std::fmt::Write;
                let number = input.word();
                write!(string, "<{number:>7}>").unwrap();
                write!(model, "<{number:>7}>").unwrap();
            }
            6 => {
                let finished = string.into_str();
                assert_eq!(*finished, model);
                string = ArenaString::from_str_in(finished, &arena);
            }
            _ => {
                let behind = format_in!(&arena, "{}", model.len());
                assert_eq!(&*behind, model.len().to_string());
            }
        }
        assert_eq!(&*string, model);
        assert!(string.capacity() >= string.len());
    }
}

#[test]
fn an_arena_vec_is_a_vec_that_drops_each_value_once() {
    programs(1000, vec_program);
}

#[test]
fn an_arena_string_is_a_string() {
    programs(500, string_program);
}

#[test]
fn a_vector_that_is_the_last_object_grows_in_place() {
    let arena = Arena::with_hint(1 << 20);
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
