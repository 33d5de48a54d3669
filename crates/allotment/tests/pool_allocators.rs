//! Collections of `allocator-api2`, of the standard library and of hashbrown in a reap and in
//! pools, one version of the trait after the other.
//!
//! Needs the three features: `cargo test -p allotment --all-targets --features
//! allocator-api2-02,allocator-api2-03,allocator-api2-04`. With `nightly-allocator-api`, on a
//! nightly toolchain, the standard library's trait is tested too.
#![cfg_attr(feature = "nightly-allocator-api", feature(allocator_api))]

use std::thread;

use allotment::{LocalPool, OnRefusal, PoolRef, PoolString};

/// Two pools that report their live blocks at their end. Such a pool takes over no live block of an
/// ended pool, so its statistics are exact. A size that overflows is the trait's error;
/// `allocator_api2.rs` has the panics.
fn pools() -> [LocalPool; 2] {
    [false, true].map(|hardened| {
        let builder = LocalPool::builder().report_live(true).hardened(hardened);
        builder.on_refusal(OnRefusal::ReturnError).build()
    })
}

fn live(pool: &LocalPool) -> u64 {
    pool.statistics().live_objects
}

#[test]
fn a_hashbrown_map_is_the_current_pools_by_default() {
    type Map<K, V> = hashbrown::HashMap<K, V, hashbrown::DefaultHashBuilder, PoolRef>;
    for pool in pools() {
        let mut map = pool.enter(|| {
            let mut map = Map::default();
            for number in 0..5000u32 {
                map.insert(number, PoolString::from("value"));
            }
            map.retain(|number, _| number % 2 == 0);
            map.shrink_to_fit();
            map
        });
        assert_eq!(*map.allocator(), pool.reference());
        assert_eq!(live(&pool), 2501);
        drop(pool);
        let map = thread::spawn(move || {
            map.extend((0..10_000).map(|number| (number, PoolString::from("later"))));
            map
        });
        let map = map.join().unwrap();
        assert_eq!(map.len(), 10_000);
        assert!(map.values().all(|value| value == "later"));
    }
}

/// The same claims for a version of the trait.
macro_rules! version {
    ($module:ident, $crate_name:ident) => {
        mod $module {
            use std::alloc::Layout;

            use allotment::Reap;
            use $crate_name::alloc::Allocator;
            use $crate_name::boxed::Box;
            use $crate_name::vec::Vec;

            use super::*;

            fn lives<A: Allocator + Copy>(allocator: A, live: impl Fn() -> u64) {
                let mut numbers = Vec::new_in(allocator);
                for number in 0..10_000u64 {
                    numbers.push(number);
                }
                let boxed = Box::new_in([1u8; 100], allocator);
                assert_eq!(live(), 2);
                numbers.truncate(100);
                numbers.shrink_to_fit();
                assert!(numbers.iter().copied().eq(0..100) && boxed[99] == 1);
                drop((numbers, boxed));
                assert_eq!(live(), 0);
                layouts(allocator);
                assert_eq!(live(), 0);
            }

            /// What the collections don't use: zeroed blocks, other alignments, size zero.
            fn layouts<A: Allocator + Copy>(allocator: A) {
                let layout = |size, align| Layout::from_size_align(size, align).unwrap();
                // SAFETY: blocks of this allocator with their layouts; each is given up once.
                unsafe {
                    let dirty = allocator.allocate(layout(1024, 8)).unwrap();
                    assert_eq!(dirty.len(), 1024);
                    dirty.cast::<u8>().write_bytes(0xff, 1024);
                    allocator.deallocate(dirty.cast(), layout(1024, 8));
                    let clean = allocator.allocate_zeroed(layout(256, 8)).unwrap().cast::<u8>();
                    assert_eq!(std::slice::from_raw_parts(clean.as_ptr(), 256), [0; 256]);
                    clean.write_bytes(1, 256);
                    let grown = allocator.grow_zeroed(clean, layout(256, 8), layout(1024, 8));
                    let block = grown.unwrap().cast::<u8>();
                    let bytes = std::slice::from_raw_parts(block.as_ptr(), 1024);
                    assert_eq!((&bytes[..256], &bytes[256..]), (&[1; 256][..], &[0; 768][..]));
                    // To a larger alignment and back.
                    let aligned =
                        allocator.grow(block, layout(1024, 8), layout(1025, 512)).unwrap();
                    assert_eq!((aligned.cast::<u8>().addr().get() % 512, aligned.len()), (0, 1025));
                    let small = allocator.shrink(aligned.cast(), layout(1025, 512), layout(9, 4));
                    let small = small.unwrap().cast::<u8>();
                    assert_eq!(std::slice::from_raw_parts(small.as_ptr(), 9), [1; 9]);
                    let none = allocator.shrink(small, layout(9, 4), layout(0, 4)).unwrap();
                    let some = allocator.grow(none.cast(), layout(0, 4), layout(3, 4)).unwrap();
                    some.cast::<u8>().write_bytes(2, 3);
                    allocator.deallocate(some.cast(), layout(3, 4));
                    let empty = allocator.allocate(layout(0, 64)).unwrap();
                    assert_eq!(empty.cast::<u8>().addr().get() % 64, 0);
                    allocator.deallocate(empty.cast(), layout(0, 64));
                }
                assert!(Vec::<u64, A>::new_in(allocator).try_reserve(usize::MAX / 16).is_err());
            }

            #[test]
            fn collections_live_in_a_reap_and_go_with_it() {
                for hardened in [false, true] {
                    let builder = Reap::builder().on_refusal(OnRefusal::ReturnError);
                    let mut reap = builder.hardened(hardened).build();
                    lives(&reap, || reap.statistics().live_objects);
                    let mut numbers = Vec::new_in(&reap);
                    numbers.extend(0..1000);
                    std::mem::forget(numbers);
                    reap.reset();
                    assert_eq!(reap.statistics().live_objects, 0);
                }
            }

            #[test]
            fn collections_live_in_a_pool() {
                for pool in pools() {
                    lives(&pool, || live(&pool));
                    lives(pool.reference(), || live(&pool));
                    pool.enter(|| lives(PoolRef::default(), || live(&pool)));
                }
                layouts(PoolRef::GLOBAL);
            }

            #[test]
            fn a_box_of_an_ended_pool_grows_and_goes_elsewhere() {
                for pool in pools() {
                    let mut numbers = Vec::new_in(pool.reference());
                    numbers.extend(0..1000u32);
                    drop(pool);
                    let numbers = thread::spawn(move || {
                        numbers.extend(1000..9000);
                        numbers
                    });
                    assert!(numbers.join().unwrap().into_iter().eq(0..9000));
                }
            }
        }
    };
}

version!(version_02, allocator_api2_02);
version!(version_03, allocator_api2_03);
version!(version_04, allocator_api2_04);
#[cfg(feature = "nightly-allocator-api")]
version!(version_std, std);
