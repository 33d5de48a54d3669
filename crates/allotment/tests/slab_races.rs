//! Races of a slab, each too rare for a test to hit in every run. `ALLOTMENT_SOAK_SECONDS` makes
//! them longer.
#![cfg(system_memory)]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use allotment::slab::Lifetime;
use allotment::{Budget, Malloc, Release, Slab, SlabBox};

fn time() -> Duration {
    let seconds = std::env::var("ALLOTMENT_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(1.0))
}

#[test]
fn a_free_while_waiters_come_and_go_is_no_double_free() {
    // Each page is a call to malloc, for which threads wait in turn; frees of sparse pages wait to
    // go back meanwhile.
    let slab = Slab::<[u64; 8]>::builder().source(Malloc).release(Release::AtOnce).build();
    let stop = AtomicBool::new(false);
    let pool = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (slab, stop, pool) = (&slab, &stop, &pool);
            scope.spawn(move || {
                let mut round: u64 = thread;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let mut values: Vec<_> = (0..1500).map(|_| slab.alloc([round; 8])).collect();
                    if round % 2 == 0 {
                        std::mem::swap(&mut values, &mut *pool.lock().unwrap());
                    }
                    assert!(values.iter().all(|value| value.iter().all(|word| *word == value[0])));
                }
            });
        }
        std::thread::sleep(time());
        stop.store(true, Ordering::Relaxed);
    });
    drop(pool);
    assert_eq!(slab.statistics().live_objects, 0);
}

#[test]
fn a_slab_dropped_while_its_last_object_goes_leaves_nothing_charged() {
    let budget = Budget::new(1 << 20);
    let until = Instant::now() + time();
    let mut rounds = 0u64;
    while Instant::now() < until {
        rounds += 1;
        let slab = Slab::<[u64; 8]>::builder().budget(&budget).build();
        let last = slab.alloc([7; 8]);
        std::thread::scope(|scope| {
            scope.spawn(move || drop(last));
            if rounds % 2 == 0 {
                std::thread::yield_now();
            }
            drop(slab);
        });
        // A thread's end is over for a scope before its thread-local destructors have run.
        let deadline = Instant::now() + Duration::from_secs(20);
        while budget.used() > 0 {
            assert!(Instant::now() < deadline, "{} bytes after round {rounds}", budget.used());
            std::thread::yield_now();
        }
    }
}

#[test]
fn an_old_hint_leads_no_short_life_to_a_page_of_long_ones() {
    let slab = Slab::<[u64; 8]>::builder().release(Release::Keep(1 << 30)).build();
    let pages = |values: &[SlabBox<[u64; 8]>]| -> BTreeSet<usize> {
        values.iter().map(|value| (&raw const **value).addr() >> 16).collect()
    };
    for _ in 0..5 {
        // Pages of short-lived objects, listed as they become empty, then kept without an object.
        let short: Vec<_> = (0..5000).map(|_| slab.alloc([0; 8])).collect();
        slab.flush();
        short.into_iter().for_each(drop);
        slab.flush();
        let long: Vec<_> = (0..2100).map(|_| slab.alloc_for(Lifetime::Long, [1; 8])).collect();
        slab.flush();
        let short: Vec<_> = (0..5000).map(|_| slab.alloc([0; 8])).collect();
        assert!(pages(&long).is_disjoint(&pages(&short)));
    }
}

#[test]
fn a_page_claimed_past_its_old_hint_serves_no_other_lifetime() {
    // Pages that are kept empty keep their hints when their thread claims them again.
    let slab = Slab::<[u64; 512]>::builder().release(Release::Keep(1 << 30)).build();
    let page = |value: &SlabBox<[u64; 512]>| (&raw const **value).addr() >> 16;
    let make_long = || (0..64).map(|_| slab.alloc_for(Lifetime::Long, [1; 512]));
    make_long().collect::<Vec<_>>().into_iter().for_each(drop);
    slab.flush();
    let mut number = 0;
    let mut long: Vec<_> = make_long().collect();
    long.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    slab.flush();
    let taken: BTreeSet<_> = long.iter().map(page).collect();
    let short: Vec<_> = (0..200).map(|_| slab.alloc([0; 512])).collect();
    let mixed = short.iter().filter(|value| taken.contains(&page(value))).count();
    assert_eq!(mixed, 0, "short-lived objects on pages of long-lived ones");
}

#[test]
fn threads_that_trim_while_others_grow_cost_no_structures_and_no_objects() {
    let budget = Budget::new(8 << 20);
    let slab = Slab::<[u64; 8]>::builder().release(Release::AtOnce).budget(&budget).build();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    slab.trim();
                }
            });
        }
        let until = Instant::now() + time();
        while Instant::now() < until {
            // At most half of the limit is live.
            let values: Vec<_> = (0..60_000)
                .map(|_| slab.try_alloc([7; 8]).expect("there is room for it"))
                .collect();
            drop(values);
            slab.flush();
        }
        stop.store(true, Ordering::Relaxed);
    });
    slab.trim();
    let left = slab.statistics();
    assert_eq!((left.live_objects, left.chunks), (0, 0), "slots were lost");
}
