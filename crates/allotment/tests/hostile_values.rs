//! Values that misbehave as far as safe code can: destructors that allocate in the memory that
//! holds the value, panic or do both; clones, iterators and formatters that allocate in the memory
//! that they fill; zero-sized values and values of large alignment; collections that are forgotten or
//! left halfway. `.ci/miri` runs these programs too.
#![cfg(system_memory)]
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use allotment::arena::Scope;
use allotment::collections::{BlockSource, VecIn};
use allotment::{
    Arena, ArenaBox, ArenaString, ArenaVec, FreeList, ListBox, LocalPool, PoolBox, PoolVec, Reap,
    Slab, SlabBox, format_in, pool, unsize_box,
};

const VALUES: usize = if cfg!(miri) { 10 } else { 400 };

/// What the destructors of a test did.
#[derive(Default)]
struct Record {
    live: Cell<isize>,
    /// The number of destructors until one panics.
    panics_in: Cell<usize>,
}

/// A value that keeps text beside itself and allocates more when it is dropped or cloned.
struct Hostile<'a, S: BlockSource> {
    number: usize,
    beside: VecIn<u8, S>,
    source: S,
    record: &'a Record,
}

impl<'a, S: BlockSource> Hostile<'a, S> {
    fn new(number: usize, source: S, record: &'a Record) -> Self {
        record.live.set(record.live.get() + 1);
        let mut beside = VecIn::new_in(source);
        beside.extend((0..number % 90).map(|byte| (byte ^ number) as u8));
        Self { number, beside, source, record }
    }

    fn check(&self) {
        assert!(self.beside.len() == self.number % 90);
        assert!((0..).zip(&self.beside).all(|(byte, it)| *it == (byte ^ self.number) as u8));
    }
}

impl<S: BlockSource> Drop for Hostile<'_, S> {
    fn drop(&mut self) {
        self.check();
        self.record.live.set(self.record.live.get() - 1);
        // It becomes the last object of an arena, and is freed at once or stays.
        let mut last = VecIn::new_in(self.source);
        last.extend_from_slice(&self.beside);
        last.extend_from_slice(&[7; 100]);
        if self.number % 3 == 0 {
            std::mem::forget(last);
        }
        let left = self.record.panics_in.get();
        self.record.panics_in.set(left.saturating_sub(1));
        assert!(left != 1 || std::thread::panicking(), "on purpose: {}", self.number);
    }
}

impl<S: BlockSource> Clone for Hostile<'_, S> {
    fn clone(&self) -> Self {
        self.check();
        Self::new(self.number, self.source, self.record)
    }
}

thread_local! {
    static EXPECTS_PANIC: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call. Returns whether it panicked, as these tests do on purpose. Prints nothing then: in
/// Miri, a backtrace takes longer than the test.
fn panics(call: impl FnOnce()) -> bool {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !EXPECTS_PANIC.get() {
                hook(panic);
            }
        }));
    });
    let before = EXPECTS_PANIC.replace(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    EXPECTS_PANIC.set(before);
    let Err(payload) = result else { return false };
    let message = payload.downcast_ref::<String>().map(String::as_str);
    let message = message.or(payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(message.starts_with("on purpose"), "{message}");
    true
}

/// Something that is done to a vector.
type Call<'c, 'a, S> = &'c dyn Fn(VecIn<Hostile<'a, S>, S>);

/// Which destructors panic, counted from 1; 0 for none.
const PANICKING: &[usize] = if cfg!(miri) { &[0, 2] } else { &[0, 1, 2, 5] };

/// Every way to drop, move, clone and leave values, with each of the first destructors as the one
/// that panics.
fn vector_of_hostile_values<S: BlockSource>(source: S) {
    hostile_values_in(source, &Record::default());
}

fn hostile_values_in<'a, S: BlockSource>(source: S, record: &'a Record) {
    let make = |number| Hostile::new(number, source, record);
    let fresh = || {
        record.panics_in.set(0);
        let mut values = VecIn::new_in(source);
        (0..VALUES).for_each(|number| values.push(make(number)));
        values
    };
    let calls: [Call<'_, 'a, S>; 12] = [
        &|values| drop(values),
        &|mut values| values.truncate(3),
        &|mut values| drop(values.drain(2..VALUES - 2)),
        &|mut values| {
            let mut drain = values.drain(1..);
            drain.next().iter().chain(&drain.next_back()).for_each(Hostile::check);
        },
        &|values| {
            let mut taken = values.into_iter();
            taken.next().iter().chain(&taken.next_back()).for_each(Hostile::check);
        },
        &|mut values| values.retain(|value| value.number % 3 == 1),
        &|mut values| values.dedup_by_key(|value| value.number / 4),
        &|mut values| values.resize(VALUES / 2, make(1)),
        &|mut values| values.extend_from_within(1..4),
        &|mut values| {
            let mut tail = values.split_off(VALUES / 2);
            tail.append(&mut values);
            tail.iter().for_each(Hostile::check);
        },
        &|mut values| {
            values.insert(1, make(5));
            drop(values.swap_remove(0));
            drop(values.remove(1));
            values.shrink_to_fit();
            values.iter().for_each(Hostile::check);
        },
        &|mut values| std::mem::forget(values.drain(VALUES / 2..)),
    ];
    for (number, call) in calls.iter().enumerate() {
        for &panics_in in PANICKING {
            let values = fresh();
            record.panics_in.set(panics_in);
            let panicked = panics(|| call(values));
            assert!(!panicked || panics_in > 0);
            // A drain that is forgotten leaks its values.
            let leaked = if number == calls.len() - 1 { VALUES - VALUES / 2 } else { 0 };
            assert_eq!(record.live.replace(0), leaked as isize, "call {number}, {panics_in}");
        }
    }
}

#[test]
fn destructors_that_allocate_or_panic_leave_every_memory_whole() {
    let pool = LocalPool::new();
    vector_of_hostile_values(&<Arena>::new());
    vector_of_hostile_values(pool.reference());
    if cfg!(miri) {
        return;
    }
    vector_of_hostile_values(&Reap::new());
    pool.enter(|| vector_of_hostile_values(pool::current()));
    vector_of_hostile_values(&Arena::<1>::with_min_align());
    vector_of_hostile_values(&Arena::<16>::with_min_align());
    let hardened = LocalPool::builder().hardened(true).build();
    vector_of_hostile_values(&<Arena>::builder().hardened(true).build());
    vector_of_hostile_values(&Reap::builder().hardened(true).build());
    vector_of_hostile_values(hardened.reference());
}

#[test]
fn boxes_whose_destructors_allocate_or_panic_free_their_memory_once() {
    let record = Record::default();
    let (arena, reap, pool) = (<Arena>::new(), Reap::new(), LocalPool::new());
    let (list, slab) = (FreeList::new(), Slab::new());
    for &panics_in in PANICKING {
        for number in 0..VALUES {
            let of_arena = Hostile::new(number, &arena, &record);
            let of_reap = Hostile::new(number, &reap, &record);
            let of_pool = Hostile::new(number, pool.reference(), &record);
            let in_arena = arena.alloc_boxed(of_arena);
            let in_reap = reap.alloc_boxed(of_reap);
            let in_pool = PoolBox::new_in(of_pool.clone(), pool.reference());
            let in_list: ListBox<'_, _> = list.alloc(of_pool.clone());
            let in_slab: SlabBox<_> = slab.alloc(of_pool);
            record.panics_in.set(panics_in);
            let boxes = (in_arena, in_reap, in_pool, in_list, in_slab);
            let panicked = panics(|| drop(boxes));
            assert_eq!((panicked, record.live.get()), (panics_in > 0, 0));
        }
    }
    assert_eq!((list.statistics().live_objects, slab.statistics().live_objects), (0, 0));
}

#[test]
fn constructors_that_allocate_panic_or_fail_leave_no_value_behind() {
    let record = Record::default();
    let arena = Arena::new();
    let text = |number: usize| arena.alloc_str(&"text".repeat(number % 40)).len();
    for number in 0..VALUES {
        let made = arena.alloc_with(|| (text(number), *arena.alloc(number as u128)));
        assert_eq!(*made, (number % 40 * 4, number as u128));
        let failed: Result<&mut usize, usize> = arena.alloc_try_with(|| Err(text(number)));
        assert_eq!(failed.map(|made| *made), Err(number % 40 * 4));
        let slice = arena.alloc_slice_from_iter((0..number % 50).map(|it| *arena.alloc(it as u64)));
        assert!(slice.iter().copied().eq(0..(number % 50) as u64));
        assert!(panics(|| {
            arena.alloc_slice_boxed(20, |index| {
                assert!(index < 11, "on purpose");
                Hostile::new(index + text(index), &arena, &record)
            });
        }));
        assert_eq!(record.live.get(), 0);
    }
}

/// Prints itself with the help of the arena that it is printed into.
struct Nested<'a>(usize, &'a Arena);

impl fmt::Display for Nested<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("."),
            depth => {
                let inner =
                    format_in!(self.1, "{}{depth}{}", Nested(depth - 1, self.1), "-".repeat(depth));
                f.write_str(&inner)
            }
        }
    }
}

#[test]
fn text_that_allocates_while_it_is_formatted_is_whole() {
    let arena = Arena::new();
    let mut expected = String::from(".");
    for depth in 1..if cfg!(miri) { 8 } else { 60 } {
        expected += &format!("{depth}{}", "-".repeat(depth));
        assert_eq!(format_in!(&arena, "{}", Nested(depth, &arena)), *expected);
        let mut text = ArenaString::from_str_in("before", &arena);
        text.extend([expected.as_str(), "after"].map(|part| &*arena.alloc_str(part)));
        assert_eq!(text, format!("before{expected}after"));
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(align(512))]
struct Wide(u8);

#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(align(64))]
struct Nothing;

fn values_of_odd_shapes<S: BlockSource>(source: S) {
    let mut wide = VecIn::new_in(source);
    let mut bytes = VecIn::new_in(source);
    let mut nothing = VecIn::new_in(source);
    for number in 0..VALUES {
        bytes.push(number as u8);
        wide.push(Wide(number as u8));
        nothing.push(Nothing);
        assert_eq!(wide.as_ptr().addr() % 512, 0);
        assert_eq!(nothing.as_ptr().addr() % 64, 0);
        if number % 7 == 0 {
            wide.shrink_to_fit();
            bytes.shrink_to_fit();
        }
    }
    let last = (VALUES - 1) as u8;
    assert_eq!((wide.pop(), bytes.pop(), nothing.len()), (Some(Wide(last)), Some(last), VALUES));
    assert!((0..).zip(&wide).all(|(number, it)| *it == Wide(number as u8)));
    assert!((0..).zip(&bytes).all(|(number, it)| *it == number as u8));
    assert_eq!(nothing.drain(3..).rev().count(), VALUES - 3);
    assert_eq!(wide.into_iter().next_back(), Some(Wide(last - 1)));
}

#[test]
fn values_without_bytes_and_of_large_alignment_lie_where_they_should() {
    values_of_odd_shapes(&<Arena>::new());
    values_of_odd_shapes(&Arena::<1>::with_min_align());
    values_of_odd_shapes(&Reap::new());
    let pool = LocalPool::new();
    values_of_odd_shapes(pool.reference());
    let (list, slab) = (FreeList::new(), Slab::new());
    let (none, nothing) = (FreeList::new(), Slab::new());
    let kept: Vec<_> = (0..VALUES)
        .map(|number| {
            let wide = Wide(number as u8);
            (list.alloc(wide), slab.alloc(wide), none.alloc(Nothing), nothing.alloc(Nothing))
        })
        .collect();
    for (number, (listed, slabbed, ..)) in kept.iter().enumerate() {
        assert_eq!((**listed, **slabbed), (Wide(number as u8), Wide(number as u8)));
        assert_eq!(std::ptr::from_ref::<Wide>(listed).addr() % 512, 0);
        assert_eq!(std::ptr::from_ref::<Wide>(slabbed).addr() % 512, 0);
    }
}

/// Scopes that nest and cross chunks. Each level keeps values of every size and reads them again
/// after the inner levels have come and gone, have panicked or were forgotten.
fn level(scope: &mut Scope<'_>, depth: usize, seed: usize) {
    let number = scope.alloc(seed);
    let block = scope
        .alloc_slice_with(seed % if cfg!(miri) { 90 } else { 3000 }, |index| (index ^ seed) as u8);
    let texts = ArenaVec::from_iter_in((0..seed % 9).map(|it| it * seed), scope);
    let texts = texts.into_slice_in(scope);
    let boxed: ArenaBox<'_, dyn Fn(usize) -> usize> = {
        let closure = scope.alloc_boxed({
            let seed = *number;
            move |value| value ^ seed
        });
        unsize_box!(closure)
    };
    for round in 0..if depth == 0 { 0 } else { 3 } {
        let inner_seed = seed.wrapping_mul(31).wrapping_add(round * 977 + depth);
        match round {
            0 => scope.scope(|inner| level(inner, depth - 1, inner_seed)),
            1 => assert!(panics(|| scope.scope(|inner| {
                level(inner, depth - 1, inner_seed);
                panic!("on purpose");
            }))),
            _ => {
                let mut mark = scope.mark();
                mark.alloc_slice_copy(&[seed; 700]);
                mark.rewind();
                mark.scope(|inner| level(inner, depth - 1, inner_seed));
                if inner_seed % 2 == 0 {
                    // It rewinds nothing: this level's scope does.
                    std::mem::forget(mark);
                }
            }
        }
        *number += 1;
        assert_eq!(*number, seed + round + 1);
        assert!((0..).zip(&*block).all(|(index, it)| *it == (index ^ seed) as u8));
        assert!((0..).zip(&*texts).all(|(index, it)| *it == index * seed));
        assert_eq!(boxed(5), 5 ^ seed);
        block.iter_mut().for_each(|byte| *byte ^= 0);
    }
}

#[test]
fn values_of_a_scope_survive_inner_scopes_that_end_in_every_way() {
    let depth = if cfg!(miri) { 2 } else { 6 };
    // A hardened arena fills and checks whole chunks, which takes minutes in Miri.
    for &hardened in if cfg!(miri) { &[false][..] } else { &[false, true] } {
        let mut arena = Arena::builder().hardened(hardened).build();
        for &seed in if cfg!(miri) { &[1234][..] } else { &[1, 1234, 77_777] } {
            arena.scope(|scope| level(scope, depth, seed));
            assert_eq!(arena.statistics().live_objects, 0);
            arena.mark().scope(|scope| level(scope, depth, seed + 1));
            arena.reset();
        }
    }
}

#[test]
fn what_is_forgotten_in_a_memory_harms_nothing_that_comes_after_it() {
    let record = Record::default();
    let mut arena = Arena::new();
    let mut reap = Reap::new();
    for round in 0..4 {
        std::mem::forget(ArenaVec::from_iter_in((0..VALUES).map(|it| it as u64), &arena));
        std::mem::forget(arena.alloc_boxed([round; 100]));
        std::mem::forget(arena.mark());
        let kept = arena.alloc_slice_copy(&[round; 500]);
        assert!(kept.iter().all(|it| *it == round));
        std::mem::forget(VecIn::from_iter_in((0..VALUES).map(|it| it as u64), &reap));
        std::mem::forget(reap.alloc_boxed([round; 100]));
        let mut values = VecIn::new_in(&reap);
        (0..VALUES).for_each(|number| values.push(Hostile::new(number, &reap, &record)));
        drop(values);
        arena.reset();
        reap.reset();
    }
    let pool = LocalPool::new();
    std::mem::forget(PoolVec::from_iter_in((0..VALUES).map(|it| it as u64), pool.reference()));
    let escaped = PoolBox::new_in(RefCell::new(vec![1, 2, 3]), pool.reference());
    drop(pool);
    escaped.borrow_mut().push(4);
    let slab = Slab::new();
    let leaked: &'static mut [usize; 9] = SlabBox::leak(slab.alloc([5; 9]));
    drop(slab);
    leaked[8] += 1;
    assert_eq!((escaped.borrow().len(), leaked[8], record.live.get()), (4, 6, 0));
}

#[test]
fn arenas_pools_and_boxes_of_one_another_end_in_any_order() {
    for order in 0..6 {
        let pool = LocalPool::new();
        // An arena whose own structures lie in a pool, with a box in the arena that owns both.
        let arena = pool.enter(|| Box::new(<Arena>::builder().name("inner").build()));
        let inner = PoolBox::new_in(<Arena>::new(), pool.reference());
        let vec = ArenaVec::from_iter_in((0..100).map(|it| it * order), &inner);
        let boxed = arena.alloc_boxed(vec);
        let values: usize = boxed.iter().sum();
        assert_eq!(values, 4950 * order);
        match order {
            0 => drop((boxed, pool)),
            1 => drop(boxed),
            2 => std::mem::forget(boxed),
            3 => drop(ArenaBox::into_inner(boxed)),
            4 => drop(ArenaBox::leak(boxed)),
            _ => drop(boxed.iter().rev().copied().collect::<Vec<_>>()),
        }
    }
}

#[test]
fn an_arena_that_goes_from_thread_to_thread_keeps_its_values() {
    let mut arena = Box::new(<Arena>::new());
    for round in 0..if cfg!(miri) { 4 } else { 100 } {
        arena = std::thread::spawn(move || {
            if round % 5 == 4 {
                arena.reset();
            }
            let before = arena.statistics().live_bytes;
            let block = arena.alloc_slice_with(round * 97, |index| index + round);
            // Values of the arena go to other threads while this one allocates.
            std::thread::scope(|scope| {
                let (first, rest) = block.split_at_mut(round);
                scope.spawn(move || first.iter_mut().for_each(|it| *it += 1));
                scope.spawn(move || rest.iter_mut().for_each(|it| *it += 1));
                (0..50).for_each(|number| _ = arena.alloc([number; 30]));
            });
            assert!((1..).zip(&*block).all(|(index, it)| *it == index + round));
            assert!(arena.statistics().live_bytes > before);
            arena
        })
        .join()
        .expect("no panic");
    }
}
