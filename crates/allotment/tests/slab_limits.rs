//! A slab's limits: budgets, a source that refuses any one call. What every allocator refuses is in
//! `claims_limits.rs` and `claims_failing_source.rs`, bad input in `slab_bad_input.rs`, the limits
//! of files in `slab_files.rs`, and what a thread that sleeps can keep in `slab_sleepers.rs`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use allotment::slab::Lifetime;
use allotment::{AllocError, Arena, Budget, ErrorKind, Malloc, Mmap, RawSlab, Release};
use support::child::{self, Child};
use support::object::assert_refusal;
use support::slab::{self, Object, Random, WORDS, free_all, layout, stamped, words};
use support::slab_sources::PagedRecorder;
use support::sources::{Recorder, Refuse};
use support::subject::panic_message;

/// Allocates until an allocation is refused. Returns the objects and the error. The refusal changes
/// nothing.
fn fill(slab: &RawSlab, budget: Option<&Budget>) -> (Vec<Object>, AllocError) {
    let mut objects = Vec::new();
    let others = slab.statistics().live_objects as usize;
    loop {
        match slab.try_alloc() {
            Ok(slot) => objects.push(Object::stamp(slot, slab.layout(), objects.len() as u64)),
            Err(error) => {
                let live = others + objects.len();
                let before = slab::assert_exact(slab, live, budget);
                assert_eq!(slab.try_alloc().unwrap_err(), error, "and again");
                let after = slab::assert_exact(slab, live, budget);
                assert_eq!((before.held_bytes, before.chunks), (after.held_bytes, after.chunks));
                return (objects, error);
            }
        }
    }
}

#[test]
fn a_budget_is_never_passed_and_a_refusal_changes_nothing() {
    for hardened in [false, true] {
        for limit in [0, 1000, 3000, 5000, 10_000, 33_333, 100_000, 1 << 20] {
            let budget = Budget::new(limit);
            let Ok(slab) = words().budget(&budget).hardened(hardened).try_build() else {
                assert_eq!(budget.used(), 0, "no room for the slab itself");
                assert!(limit < 5000, "a slab takes little");
                continue;
            };
            let (objects, error) = fill(&slab, Some(&budget));
            assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
            assert!(limit < 10_000 || budget.used() > limit / 2, "{} of {limit}", budget.used());
            let count = objects.len();
            free_all(&slab, objects);
            slab::assert_exact(&slab, 0, Some(&budget));
            // There may be pages of other sizes by this time, with another waste at their end.
            let (objects, _) = fill(&slab, Some(&budget));
            assert!(objects.len() >= count - count / 8, "{} after {count}", objects.len());
            free_all(&slab, objects);
            slab::assert_empties(&slab);
            drop(slab);
            assert_eq!(budget.used(), 0);
        }
    }
}

#[test]
fn slots_that_are_free_serve_at_the_cap_whatever_they_are_asked_for() {
    let budget = Budget::new(40_000);
    let slab = words().budget(&budget).build();
    let (mut objects, _) = fill(&slab, Some(&budget));
    // Freed by this thread, and in its cache.
    let gone = objects.split_off(objects.len() - 50);
    free_all(&slab, gone);
    for _ in 0..50 {
        let slot = slab.try_alloc_for(Lifetime::Long).expect("this thread has free slots");
        objects.push(Object::stamp(slot, WORDS, 1));
    }
    assert!(slab.try_alloc().is_err());
    let gone = objects.split_off(objects.len() - 50);
    free_all(&slab, gone);
    let mut slots = [MaybeUninit::uninit(); 50];
    slab.try_alloc_many(&mut slots).expect("as many as were freed");
    let mut one_more = [MaybeUninit::uninit(); 1];
    assert!(slab.try_alloc_many(&mut one_more).is_err());
    // SAFETY: written above, freed once.
    slots.iter().for_each(|slot| unsafe { slab.free(slot.assume_init()) });
    let mut too_many = [MaybeUninit::uninit(); 51];
    assert!(slab.try_alloc_many(&mut too_many).is_err(), "all or none");
    slab::assert_exact(&slab, objects.len(), Some(&budget));
    free_all(&slab, objects);
    slab::assert_empties(&slab);
}

#[test]
fn a_thread_that_ended_leaves_its_slots_to_those_at_the_limit() {
    let budget = Budget::new(40_000);
    let slab = words().budget(&budget).build();
    let count = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (objects, _) = fill(&slab, None);
            let count = objects.len();
            free_all(&slab, objects);
            count
        });
        thread.join().unwrap()
    });
    let (objects, _) = fill(&slab, Some(&budget));
    assert!(objects.len() >= count, "{} after {count}", objects.len());
    free_all(&slab, objects);
}

#[test]
fn slots_that_another_thread_caches_come_back_with_its_next_free() {
    let budget = Budget::new(100_000);
    // Released pages would be replaced by smaller ones.
    let release = Release::Keep(usize::MAX);
    let slab = words().budget(&budget).release(release).max_cached_bytes(64 << 10).build();
    let (to_thread, from_us) = mpsc::channel::<()>();
    let (to_us, from_thread) = mpsc::channel();
    std::thread::scope(|scope| {
        let slab = &slab;
        let thread = scope.spawn(move || {
            let mut objects = stamped(slab, 300);
            let last = objects.pop().expect("300");
            free_all(slab, objects);
            to_us.send(()).unwrap();
            from_us.recv().unwrap();
            slab::free(slab, last);
            to_us.send(()).unwrap();
            from_us.recv().unwrap_err();
        });
        from_thread.recv().unwrap();
        let (mut objects, error) = fill(slab, None);
        assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
        to_thread.send(()).unwrap();
        from_thread.recv().unwrap();
        for number in 0..299 {
            let slot = slab.try_alloc().expect("the sleeper gave its slots back");
            objects.push(Object::stamp(slot, WORDS, 10_000 + number));
        }
        slab::assert_apart(&objects);
        free_all(slab, objects);
        drop(to_thread);
        thread.join().unwrap();
    });
    slab::assert_empties(&slab);
}

#[test]
fn a_parents_refusal_is_the_slabs() {
    let server = Budget::new(100_000);
    let tenant = server.child(80_000);
    let first = words().budget(&tenant).build();
    let second = words().budget(&server.child(usize::MAX)).build();
    let (objects, _) = fill(&first, Some(&tenant));
    assert!(tenant.used() <= 80_000 && server.used() >= tenant.used());
    let (others, error) = fill(&second, None);
    assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
    assert!(server.used() <= 100_000 && !others.is_empty());
    free_all(&first, objects);
    first.trim();
    let more = stamped(&second, 200);
    free_all(&second, others);
    free_all(&second, more);
    drop((first, second));
    assert_eq!((server.used(), tenant.used()), (0, 0));
}

#[test]
fn threads_at_the_cap_never_pass_it_and_lose_nothing() {
    let server = Budget::new(400_000);
    let budget = server.child(300_000);
    let slab = words().budget(&budget).max_page_bytes(8192).build();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..8u64 {
            let slab = &slab;
            threads.push(scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut objects = Vec::new();
                let mut refused = 0;
                for number in 0..20_000u64 {
                    match slab.try_alloc() {
                        Ok(slot) => {
                            objects.push(Object::stamp(slot, WORDS, (thread << 32) + number))
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
                            refused += 1;
                            let stay = objects.len() / 2;
                            free_all(slab, objects.drain(stay..));
                        }
                    }
                    if !objects.is_empty() && random.one_in(4) {
                        slab::free(slab, objects.swap_remove(random.below(objects.len())));
                    }
                }
                slab::assert_apart(&objects);
                free_all(slab, objects);
                refused
            }));
        }
        let watcher = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(budget.used() <= 300_000 && server.used() <= 400_000);
                std::thread::yield_now();
            }
        });
        let refused: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        stop.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
        assert!(refused > 0, "the limit was met");
    });
    slab::assert_exact(&slab, 0, Some(&budget));
    slab::assert_empties(&slab);
    drop(slab);
    assert_eq!((server.used(), budget.used()), (0, 0));
}

/// Makes some calls of each kind, any of which may be refused. Returns the number of refusals.
fn work(slab: &RawSlab) -> usize {
    let mut refused = 0;
    let mut note = |error: AllocError| {
        assert_refusal(error);
        refused += 1;
    };
    let mut objects = Vec::new();
    let mut number = 0;
    let mut adopt = |objects: &mut Vec<Object>, slot| {
        number += 1;
        objects.push(Object::stamp(slot, slab.layout(), number));
    };
    for round in 0..6 {
        for _ in 0..150 {
            slab.try_alloc().map_or_else(&mut note, |slot| adopt(&mut objects, slot));
        }
        slab.try_alloc_for(Lifetime::Long).map_or_else(&mut note, |slot| adopt(&mut objects, slot));
        let mut slots = [MaybeUninit::uninit(); 70];
        match slab.try_alloc_many(&mut slots) {
            Ok(()) => slots.iter().for_each(|slot| {
                // SAFETY: written, says the result.
                adopt(&mut objects, unsafe { slot.assume_init() });
            }),
            Err(error) => note(error),
        }
        if let Err(error) = slab.try_reserve(40) {
            note(error);
        }
        slab::assert_apart(&objects);
        slab::assert_exact(slab, objects.len(), None);
        let stay = objects.len() / 2;
        free_all(slab, objects.drain(stay..));
        if round % 2 == 0 {
            slab.trim();
        }
    }
    free_all(slab, objects);
    refused
}

#[test]
fn a_source_that_refuses_the_nth_block_makes_one_error_and_no_damage() {
    for hardened in [false, true] {
        let build = |recorder: &Arc<Recorder>, budget: &Budget| {
            let builder = RawSlab::builder(layout(500, 8)).source(recorder.clone());
            builder.release(Release::AtOnce).budget(budget).hardened(hardened).build()
        };
        let recorder = Recorder::new(Malloc, Refuse::None);
        assert_eq!(work(&build(&recorder, &Budget::new(usize::MAX))), 0);
        let calls = recorder.calls();
        assert!(calls > 12, "the work makes {calls} calls");
        for nth in 1..=calls {
            for refuse in [Refuse::Only(nth), Refuse::From(nth)] {
                let recorder = Recorder::new(Malloc, refuse);
                let budget = Budget::new(usize::MAX);
                let slab = build(&recorder, &budget);
                let refused = work(&slab);
                assert!(recorder.refused() > 0 && (refused > 0 || refuse == Refuse::Only(nth)));
                let statistics = slab::assert_exact(&slab, 0, Some(&budget));
                let page_bytes = statistics.held_bytes - statistics.structure_bytes;
                assert_eq!(page_bytes, recorder.lent_bytes() as u64);
                recorder.refuse(Refuse::None);
                assert_eq!(work(&slab), 0, "usable again");
                slab::assert_empties(&slab);
                drop(slab);
                assert_eq!((budget.used(), recorder.lent_blocks()), (0, 0));
            }
        }
    }
}

#[test]
fn a_source_that_refuses_the_nth_range_or_memory_makes_one_error_and_no_damage() {
    for hardened in [false, true] {
        let build = |recorder: &Arc<PagedRecorder>, budget: &Budget| {
            let builder = RawSlab::builder(layout(500, 8)).source(recorder.clone());
            builder.release(Release::AtOnce).budget(budget).hardened(hardened).build()
        };
        let recorder = PagedRecorder::new(Mmap::new(), Refuse::None);
        assert_eq!(work(&build(&recorder, &Budget::new(usize::MAX))), 0);
        let calls = recorder.calls();
        assert!(calls > 12, "the work makes {calls} calls");
        for nth in 1..=calls {
            for refuse in [Refuse::Only(nth), Refuse::From(nth)] {
                let recorder = PagedRecorder::new(Mmap::new(), refuse);
                let budget = Budget::new(usize::MAX);
                let slab = build(&recorder, &budget);
                let refused = work(&slab);
                assert!(recorder.refused() > 0 && (refused > 0 || refuse == Refuse::Only(nth)));
                let statistics = slab::assert_exact(&slab, 0, Some(&budget));
                let page_bytes = statistics.held_bytes - statistics.structure_bytes;
                assert_eq!(page_bytes, recorder.committed_bytes() as u64);
                recorder.refuse(Refuse::None);
                assert_eq!(work(&slab), 0, "usable again");
                slab::assert_empties(&slab);
                assert_eq!(recorder.lent_ranges(), 0);
                drop(slab);
                assert_eq!((budget.used(), recorder.committed_bytes()), (0, 0));
            }
        }
    }
}

#[test]
fn a_slab_too_many_is_a_typed_error_or_a_panic() {
    let test = "a_slab_too_many_is_a_typed_error_or_a_panic";
    if !child::is(test) {
        Child::new(test, test).succeeds();
        return;
    }
    let mut slabs = Vec::new();
    let error = loop {
        match RawSlab::try_new(WORDS) {
            Ok(slab) => slabs.push(slab),
            Err(error) => break error,
        }
    };
    assert_eq!((slabs.len(), error.kind()), (131_071, ErrorKind::LimitReached));
    for _ in 0..3 {
        assert!(panic_message(|| RawSlab::new(WORDS)).contains("a fixed limit is reached"));
    }
    // The others go on, and a slab that ends makes room for one.
    let last = slabs.pop().expect("many");
    free_all(&last, stamped(&last, 300));
    drop(last);
    free_all(&slabs[0], stamped(&slabs[0], 300));
    drop(RawSlab::new(WORDS));
}

/// The bytes of addresses that this process has mapped.
fn mapped() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = text.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the first number") * support::kernel::page_size() as u64
}

fn limit_addresses(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call reads the structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}

#[test]
fn a_thread_cache_lies_in_the_first_chunk_that_the_process_mapped_by_itself() {
    let test = "a_thread_cache_lies_in_the_first_chunk_that_the_process_mapped_by_itself";
    if !child::is(test) {
        Child::new(test, test).succeeds();
        return;
    }
    let (start, started) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        started.recv().unwrap();
        // There is room for the chunk, but not for a range of small chunks. So the chunk is a mapping
        // of its own, the first one that the recycler has.
        limit_addresses(mapped() + (200 << 10));
        let arena: Result<Arena, _> = Arena::builder().hint(50_000).try_build();
        limit_addresses(libc::RLIM_INFINITY);
        drop(arena);
    });
    start.send(()).unwrap();
    thread.join().unwrap();
    let slab = RawSlab::new(WORDS);
    // SAFETY: allocated here, freed once.
    unsafe { slab.free(slab.alloc()) };
    drop(slab);
}
