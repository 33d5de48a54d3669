//! A million requests: no page fault, no growth; and one object per request that outlives it pins
//! no page for each. Each claim is checked in a process of its own.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::alloc::System;
use std::collections::{HashMap, VecDeque};

use allotment::{LocalPool, PoolGlobalAlloc, Release};
use support::child::{self, Child};
use support::kernel::page_size;
use support::list::{passed_through, under_a_tool};
use support::slab::Random;

#[global_allocator]
static GLOBAL: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);

/// Fewer in builds without optimisation.
const REQUESTS: u64 = if cfg!(debug_assertions) { 200_000 } else { 1_000_000 };

fn alone(test: &str, body: impl FnOnce()) {
    if child::is(test) {
        return body();
    }
    if under_a_tool() || passed_through() {
        return println!("skipped: a checked pool has a ledger and a quarantine");
    }
    Child::new(test, test).succeeds();
}

/// The page faults of this thread.
fn faults() -> i64 {
    // SAFETY: writes a structure of numbers.
    unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_minflt + usage.ru_majflt
    }
}

/// The resident bytes of this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = statm.split(' ').nth(1).expect("the second is what is resident");
    pages.parse::<usize>().expect("a number") * page_size()
}

/// What a request does: ordinary values of many sizes, which grow and are dropped.
fn request(random: &mut Random) -> Box<[u64; 3]> {
    let mut fields: Vec<String> = Vec::new();
    for n in 0..2 + random.below(4) {
        fields.push("field ".repeat(1 + random.below(40)) + &n.to_string());
    }
    let kept = Box::new([7; 3]);
    if random.one_in(50) {
        let map: HashMap<usize, &str> =
            fields.iter().map(|field| (field.len(), &field[..2])).collect();
        assert!(map.values().all(|text| *text == "fi"));
        fields[0].reserve(random.below(20_000));
    }
    kept
}

#[test]
fn a_million_requests_in_reserved_memory_fault_no_page_and_make_no_system_call() {
    alone("a_million_requests_in_reserved_memory_fault_no_page_and_make_no_system_call", || {
        for release in [Release::Adaptive, Release::Keep(0), Release::AtOnce] {
            let pool = LocalPool::builder().reserved(1 << 20).release(release).build();
            let mut random = Random::new(7);
            let mut ring: VecDeque<Box<[u64; 3]>> = VecDeque::with_capacity(101);
            let mut serve = |requests: u64| {
                for _ in 0..requests {
                    ring.push_back(pool.enter(|| request(&mut random)));
                    if ring.len() > 100 {
                        ring.pop_front();
                    }
                }
            };
            // The program's own code and stack are touched.
            serve(1000);
            let (before, at_first) = (faults(), pool.statistics());
            serve(REQUESTS / 3);
            let (after, at_last) = (faults(), pool.statistics());
            // The kernel may take a page of code or stack away.
            assert!(after - before <= 2, "{release:?}: {} page faults", after - before);
            assert_eq!(at_last.source_calls, at_first.source_calls, "{release:?}");
            assert_eq!(at_last.peak_held_bytes, at_first.held_bytes, "{release:?}");
            assert_eq!(at_last.live_objects, 100);
        }
    });
}

#[test]
fn requests_that_leave_nothing_behind_reserved_memory_fault_no_page() {
    alone("requests_that_leave_nothing_behind_reserved_memory_fault_no_page", || {
        let pool = LocalPool::with_reserved(1 << 20);
        let mut random = Random::new(7);
        let mut serve = |requests: u64| {
            for _ in 0..requests {
                pool.enter(|| drop(request(&mut random)));
            }
        };
        serve(1000);
        let (before, at_first) = (faults(), pool.statistics());
        serve(REQUESTS / 2);
        assert!(faults() - before <= 2);
        assert_eq!(pool.statistics(), at_first);
    });
}

#[test]
fn one_surviving_object_per_request_pins_no_page_each_in_a_lasting_pool() {
    alone("one_surviving_object_per_request_pins_no_page_each_in_a_lasting_pool", || {
        let pool = LocalPool::new();
        let mut random = Random::new(8);
        let mut escaped = Vec::with_capacity(REQUESTS as usize);
        for _ in 0..REQUESTS {
            escaped.push(pool.enter(|| request(&mut random)));
        }
        let statistics = pool.statistics();
        assert_eq!((statistics.live_objects, statistics.live_bytes), (REQUESTS, REQUESTS * 32));
        // Half as much again for what requests used in between.
        assert!(statistics.held_bytes < REQUESTS * 48, "{statistics:?}");
        drop(escaped);
        pool.trim();
        assert_eq!(pool.statistics().held_bytes, 0);
    });
}

#[test]
fn one_surviving_object_per_request_pins_no_page_each_in_a_new_pool_per_request() {
    alone("one_surviving_object_per_request_pins_no_page_each_in_a_new_pool_per_request", || {
        for threads in [1, 4] {
            let before = resident();
            let each = REQUESTS / threads / 2;
            let serve = |seed: u64| {
                let mut random = Random::new(seed);
                let mut escaped = Vec::with_capacity(each as usize);
                for _ in 0..each {
                    escaped.push(LocalPool::new().enter(|| request(&mut random)));
                }
                escaped
            };
            let all: Vec<_> = std::thread::scope(|scope| {
                let serve = &serve;
                let threads: Vec<_> =
                    (0..threads).map(|seed| scope.spawn(move || serve(seed))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let grown = resident().saturating_sub(before) as u64;
            // A block, its entry in the vector, and half as much again.
            let most = REQUESTS / 2 * (32 + 8) * 3 / 2 + (8 << 20);
            assert!(grown < most, "{threads} threads: {grown} bytes, at most {most}");
            assert!(all.iter().flatten().all(|escaped| **escaped == [7; 3]));
        }
    });
}

#[test]
fn surviving_objects_that_are_freed_later_leave_nothing_behind() {
    alone("surviving_objects_that_are_freed_later_leave_nothing_behind", || {
        let mut random = Random::new(9);
        let mut ring = VecDeque::with_capacity(2000);
        let mut serve = |requests: u64| {
            for _ in 0..requests {
                ring.push_back(LocalPool::new().enter(|| request(&mut random)));
                while ring.len() > 1000 {
                    ring.pop_front();
                }
            }
        };
        serve(20_000);
        let before = resident();
        serve(REQUESTS / 3);
        let grown = resident().saturating_sub(before);
        assert!(grown < 4 << 20, "{grown} bytes");
    });
}
