//! Collections of `allocator-api2`, of the standard library and of hashbrown in an arena, one
//! version of the trait after the other.
//!
//! Needs the three features: `cargo test -p allotment --all-targets --features
//! allocator-api2-02,allocator-api2-03,allocator-api2-04`. With `nightly-allocator-api`, on a
//! nightly toolchain, the standard library's trait is tested too.
#![cfg_attr(feature = "nightly-allocator-api", feature(allocator_api))]

#[path = "support/mod.rs"]
mod support;

use std::rc::Rc;

use allotment::{Arena, Budget, ErrorKind, LocalPool, OnRefusal, Reap, SealMap, Sealed};
use support::sources::Limiting;
use support::subject::{assert_over_budget, panic_message};

/// The same claims for a version of the trait.
macro_rules! version {
    ($module:ident, $crate_name:ident) => {
        mod $module {
            use super::*;
            use core::alloc::Layout;
            use $crate_name::alloc::Allocator;
            use $crate_name::boxed::Box;
            use $crate_name::vec::Vec;

            #[test]
            fn a_vec_lives_in_an_arena_and_gives_its_last_memory_back() {
                let arena = Arena::new();
                let mut numbers = Vec::new_in(&arena);
                for number in 0..10_000u64 {
                    numbers.push(number);
                }
                assert!(numbers.iter().copied().eq(0..10_000));
                assert_eq!(arena.statistics().live_objects, 1);
                numbers.shrink_to_fit();
                assert_eq!(arena.statistics().live_bytes, 80_000);
                drop(numbers);
                assert_eq!(arena.statistics().live_bytes, 0);
            }

            /// Leaves no block of `memory`, whose live objects `live` counts.
            fn use_blocks_of_no_bytes<A: Allocator + Copy>(memory: A, live: impl Fn() -> u64) {
                let first = Box::new_in([1u64; 2], memory);
                let before = live();
                drop(Vec::<u64, A>::new_in(memory).into_boxed_slice());
                drop(Box::new_in((), memory));
                for round in 0..100 {
                    let mut numbers = Vec::new_in(memory);
                    numbers.push(round);
                    numbers.clear();
                    numbers.shrink_to_fit();
                    numbers.push(round + 1);
                    assert_eq!(numbers, [round + 1]);
                    numbers.clear();
                    numbers.shrink_to_fit();
                }
                assert_eq!(live(), before, "a block of no bytes is not counted, and none is lost");
                let second = Box::new_in([2u64; 2], memory);
                assert_eq!((*first, *second), ([1; 2], [2; 2]));
            }

            #[test]
            fn blocks_of_no_bytes_are_no_memory_of_an_allocator() {
                let arena = Arena::new();
                use_blocks_of_no_bytes(&arena, || arena.statistics().live_objects);
                for hardened in [false, true] {
                    let reap = Reap::builder().hardened(hardened).build();
                    use_blocks_of_no_bytes(&reap, || reap.statistics().live_objects);
                    let pool = LocalPool::builder().hardened(hardened).build();
                    use_blocks_of_no_bytes(&pool, || pool.statistics().live_objects);
                    use_blocks_of_no_bytes(pool.reference(), || pool.statistics().live_objects);
                }
            }

            #[test]
            fn a_box_drops_its_value_once() {
                let arena = Arena::new();
                let counter = std::rc::Rc::new(());
                let boxed = Box::new_in(counter.clone(), &arena);
                assert_eq!(std::rc::Rc::strong_count(&boxed), 2);
                drop(boxed);
                assert_eq!(std::rc::Rc::strong_count(&counter), 1);
                assert_eq!(arena.statistics().live_objects, 0);
            }

            #[test]
            fn a_refused_chunk_is_the_traits_error_if_the_builder_chose_so() {
                let builder = Arena::builder().budget(&Budget::new(4096));
                let arena = builder.on_refusal(OnRefusal::ReturnError).build();
                let mut numbers: Vec<u64, _> = Vec::new_in(&arena);
                assert!(numbers.try_reserve(100_000).is_err());
                assert!(numbers.try_reserve(isize::MAX as usize / 8).is_err());
                numbers.try_reserve(10).unwrap();
            }

            #[test]
            fn zeroed_blocks_read_zeros_even_where_memory_was_used() {
                let arena = &Arena::new();
                let layout = Layout::from_size_align(256, 8).unwrap();
                let bigger = Layout::from_size_align(1024, 8).unwrap();
                // SAFETY: blocks of this arena with their layouts; each is given up once.
                unsafe {
                    let dirty = arena.allocate(bigger).unwrap().cast::<u8>();
                    dirty.write_bytes(0xff, 1024);
                    arena.deallocate(dirty, bigger);
                    let clean = arena.allocate_zeroed(layout).unwrap().cast::<u8>();
                    clean.write_bytes(1, 256);
                    let grown = arena.grow_zeroed(clean, layout, bigger).unwrap().cast::<u8>();
                    let bytes = core::slice::from_raw_parts(grown.as_ptr(), 1024);
                    assert!(bytes[..256].iter().all(|&byte| byte == 1));
                    assert!(bytes[256..].iter().all(|&byte| byte == 0));
                }
            }

            #[test]
            fn growing_and_shrinking_to_another_alignment_keeps_the_bytes() {
                let arena = &Arena::new();
                let layout = |size, align| Layout::from_size_align(size, align).unwrap();
                // SAFETY: blocks of this arena with their layouts; each is given up once.
                unsafe {
                    let _odd = arena.allocate(layout(1, 1)).unwrap();
                    let block = arena.allocate(layout(10, 1)).unwrap().cast::<u8>();
                    block.write_bytes(9, 10);
                    let grown = Allocator::grow(&arena, block, layout(10, 1), layout(20, 64));
                    let grown = grown.unwrap();
                    assert_eq!(grown.cast::<u8>().addr().get() % 64, 0);
                    let shrunk = arena.shrink(grown.cast(), layout(20, 64), layout(5, 128));
                    let shrunk = shrunk.unwrap().cast::<u8>();
                    assert_eq!(shrunk.addr().get() % 128, 0);
                    assert_eq!(core::slice::from_raw_parts(shrunk.as_ptr(), 5), [9; 5]);
                }
                assert_eq!(arena.statistics().live_bytes, 6);
            }
        }
    };
}

version!(version_02, allocator_api2_02);
version!(version_03, allocator_api2_03);
version!(version_04, allocator_api2_04);
#[cfg(feature = "nightly-allocator-api")]
version!(version_std, std);

/// What a refusal does in the versions whose collections are prepared for a panic.
macro_rules! refusals {
    ($module:ident, $crate_name:ident) => {
        mod $module {
            use super::*;
            use $crate_name::alloc::Allocator;
            use $crate_name::boxed::Box;
            use $crate_name::vec::Vec;

            /// Pushes, inserts and clones until the allocator's budget refuses, again and again.
            fn confined<A: Allocator + Copy>(allocator: A, limit: usize) {
                let counter = Rc::new(());
                for _ in 0..3 {
                    let mut counters = Vec::new_in(allocator);
                    assert_over_budget(limit, || {
                        loop {
                            counters.push(Box::new_in(counter.clone(), allocator));
                        }
                    });
                    // The refused value is dropped, and the others are as they were.
                    let len = counters.len();
                    assert_eq!(Rc::strong_count(&counter), len + 1);
                    assert!(counters.iter().all(|one| Rc::ptr_eq(one, &counter)));
                    assert_over_budget(limit, || counters.reserve(limit));
                    assert_over_budget(limit, || {
                        let mut clones = std::vec::Vec::new();
                        loop {
                            clones.push(counters.clone());
                        }
                    });
                    assert_eq!(Rc::strong_count(&counter), len + 1);
                    let most = isize::MAX as usize / size_of::<Box<Rc<()>, A>>();
                    let capacity = || Vec::<Box<Rc<()>, A>, A>::with_capacity_in(most, allocator);
                    assert!(panic_message(capacity).starts_with("capacity overflow"));
                    assert_eq!((counters.len(), Rc::strong_count(&counter)), (len, len + 1));
                    drop(counters);
                    assert_eq!(Rc::strong_count(&counter), 1);
                }
            }

            #[test]
            fn a_budget_that_refuses_panics_and_the_collections_stay_valid() {
                const LIMIT: usize = 200_000;
                for hardened in [false, true] {
                    let reap = Reap::builder().maximum(LIMIT).hardened(hardened).build();
                    confined(&reap, LIMIT);
                    let pool = LocalPool::builder().maximum(LIMIT).hardened(hardened).build();
                    confined(&pool, LIMIT);
                    confined(pool.reference(), LIMIT);
                }
                let arena = Arena::builder().maximum(LIMIT).build();
                let mut numbers = Vec::new_in(&arena);
                numbers.extend(0..100u64);
                assert_over_budget(LIMIT, || numbers.extend(0..100_000));
                assert!(numbers.iter().copied().take(100).eq(0..100));
            }

            #[test]
            fn without_a_budget_the_builders_choice_holds_too() {
                const MOST: usize = isize::MAX as usize / 8;
                let arena = Arena::new();
                let mut numbers: Vec<u64, _> = Vec::new_in(&arena);
                assert_eq!(panic_message(|| numbers.try_reserve(MOST)), "capacity overflow");
                numbers.try_reserve(10).unwrap();
                let builder = Arena::builder().on_refusal(OnRefusal::ReturnError);
                let arena = builder.build();
                let mut numbers: Vec<u64, _> = Vec::new_in(&arena);
                assert!(numbers.try_reserve(MOST).is_err());
                numbers.try_reserve(10).unwrap();
            }

            /// Pushes values until the limit of the allocator's source refuses.
            fn fills_its_source(allocator: impl Allocator + Copy) {
                let mut boxes = std::vec::Vec::new();
                loop {
                    boxes.push(Box::new_in([7u64; 100], allocator));
                }
            }

            #[test]
            fn a_limit_of_the_source_panics_unless_the_builder_chose_the_error() {
                for error in [ErrorKind::LimitReached, ErrorKind::System(libc::ENOSPC)] {
                    let source = || Limiting::new(200_000, error);
                    let arena = Arena::builder().source(source()).build();
                    let message = panic_message(|| fills_its_source(&arena));
                    assert!(message.starts_with("allotment: "), "{message}");
                    let reap = Reap::builder().source(source()).build();
                    panic_message(|| fills_its_source(&reap));
                    assert_eq!(reap.statistics().live_objects, 0);
                    fn refuses(mut numbers: Vec<u64, impl Allocator>) {
                        assert!(numbers.try_reserve(100_000).is_err());
                        numbers.try_reserve(10).unwrap();
                    }
                    let builder = Arena::builder().source(source());
                    let arena = builder.on_refusal(OnRefusal::ReturnError).build();
                    refuses(Vec::new_in(&arena));
                    let builder = Reap::builder().source(source());
                    refuses(Vec::new_in(&builder.on_refusal(OnRefusal::ReturnError).build()));
                }
                // Without memory, the error is returned in any case.
                let lack = Limiting::new(200_000, ErrorKind::SourceRefused);
                let arena = Arena::builder().source(lack).build();
                let mut numbers: Vec<u64, _> = Vec::new_in(&arena);
                assert!(numbers.try_reserve(100_000).is_err());
            }
        }
    };
}

refusals!(refusals_02, allocator_api2_02);
refusals!(refusals_03, allocator_api2_03);
refusals!(refusals_04, allocator_api2_04);

/// The standard library's collections are not prepared for a panic of their allocator.
#[cfg(feature = "nightly-allocator-api")]
#[test]
fn a_limit_that_refuses_is_the_standard_traits_error_whatever_the_builder_chose() {
    let limits = [
        Arena::builder().maximum(10_000),
        Arena::builder().source(Limiting::new(200_000, ErrorKind::LimitReached)),
        Arena::builder().source(Limiting::new(200_000, ErrorKind::System(libc::ENOSPC))),
    ];
    for builder in limits {
        let arena = builder.build();
        let mut numbers = std::vec::Vec::new_in(&arena);
        numbers.extend(0..100u64);
        assert!(numbers.try_reserve(100_000).is_err());
        assert!(numbers.try_reserve(isize::MAX as usize / 8 - 100).is_err());
        numbers.extend(100..200);
        assert!(numbers.into_iter().eq(0..200));
    }
}

#[test]
fn a_hashbrown_map_lives_in_an_arena() {
    let mut arena = Arena::new();
    for _ in 0..3 {
        let mut words = hashbrown::HashMap::new_in(&arena);
        for number in 0..5000u32 {
            words.insert(number, &*arena.alloc_str(&number.to_string()));
        }
        words.retain(|number, _| number % 2 == 0);
        words.shrink_to_fit();
        assert_eq!(words.len(), 2500);
        assert!(words.iter().all(|(number, word)| number.to_string() == *word));
        drop(words);
        arena.reset();
        assert_eq!(arena.statistics().live_objects, 0);
    }
}

#[test]
fn a_hashbrown_map_over_its_budget_panics_and_stays_valid() {
    const LIMIT: usize = 1 << 20;
    let counter = Rc::new(());
    let pool = LocalPool::builder().maximum(LIMIT).build();
    for _ in 0..3 {
        let mut map = hashbrown::HashMap::new_in(pool.reference());
        let all = 0..LIMIT as u32;
        assert_over_budget(LIMIT, || all.for_each(|n| _ = map.insert(n, counter.clone())));
        let len = map.len();
        assert_eq!(Rc::strong_count(&counter), len + 1);
        assert!((0..len as u32).all(|number| map.contains_key(&number)));
        assert_over_budget(LIMIT, || map.clone());
        assert_over_budget(LIMIT, || map.try_reserve(LIMIT));
        map.retain(|number, _| *number < 100);
        map.insert(u32::MAX, counter.clone());
        assert_eq!(Rc::strong_count(&counter), 102);
        drop(map);
        assert_eq!((Rc::strong_count(&counter), pool.statistics().live_objects), (1, 0));
    }
    let tolerant = LocalPool::builder().maximum(LIMIT).on_refusal(OnRefusal::ReturnError).build();
    let mut map = hashbrown::HashMap::<u32, u32, _, _>::new_in(tolerant.reference());
    assert!(map.try_reserve(LIMIT).is_err());
    map.insert(1, 2);
}

#[test]
fn a_sealed_map_over_its_budget_panics_in_the_initialiser() {
    let build = |on_refusal, reserve: bool| {
        let map = Sealed::<SealMap<'static, u32, u32>>::builder().maximum(20_000);
        let init = |mut map: SealMap<'_, u32, u32>| {
            assert!(!reserve || map.try_reserve(100_000).is_err());
            (0..100_000 * u32::from(!reserve)).for_each(|number| _ = map.insert(number, number));
        };
        map.on_refusal(on_refusal).build(|sealer| {
            init(SealMap::new_in(sealer));
            SealMap::new_in(sealer)
        })
    };
    assert_over_budget(20_000, || build(OnRefusal::Panic, false));
    assert!(build(OnRefusal::ReturnError, true).get().is_empty());
}

#[test]
fn a_structure_of_vectors_in_the_arena_needs_no_drop() {
    type Rows<'a> = allocator_api2_02::vec::Vec<u32, &'a Arena>;
    let arena = Arena::new();
    let table: &mut allocator_api2_02::vec::Vec<Rows<'_>, &Arena> =
        arena.alloc_undropped(allocator_api2_02::vec::Vec::new_in(&arena));
    for row in 0..20 {
        let mut cells = Rows::new_in(&arena);
        cells.extend(0..row);
        table.push(cells);
    }
    assert_eq!(table.iter().map(|row| row.len()).sum::<usize>(), 190);
}
