//! A slab's pages: how large they are, which page an object gets, and when pages are released.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use allotment::slab::SlabBuilder;
use allotment::{Malloc, RawSlab, Release, owner_of};
use support::child::{self, Child};
use support::kernel::{is_resident, page_size};
use support::slab::{
    self, GRANULE, Object, Random, WORDS, by_page, free_all, free_many, stamped, words,
};
use support::sources::{Recorder, Refuse};

/// The sizes of the pages that `count` objects take, in the order in which they come.
fn page_sizes(slab: &RawSlab, recorder: &Recorder, count: usize) -> (Vec<usize>, Vec<Object>) {
    let mut sizes = Vec::new();
    let mut objects = Vec::new();
    for number in 0..count as u64 {
        let before = recorder.calls();
        objects.push(Object::stamp(slab.alloc(), WORDS, number));
        if recorder.calls() > before {
            sizes.push(recorder.lent_bytes() - sizes.iter().sum::<usize>());
        }
    }
    (sizes, objects)
}

#[test]
fn pages_grow_with_demand_from_one_hardware_page_to_the_maximum() {
    for most in [page_size(), 16 << 10, 64 << 10, 100_000, 1 << 20, 2 << 20, usize::MAX] {
        let recorder = Recorder::new(Malloc, Refuse::None);
        let slab = words().source(recorder.clone()).max_page_bytes(most).build();
        let limit = most.min(2 << 20).next_multiple_of(page_size());
        let (sizes, objects) = page_sizes(&slab, &recorder, 6 * limit / WORDS.size());
        assert_eq!(sizes.first(), Some(&page_size()), "small at first");
        assert_eq!(sizes.last(), Some(&limit), "and at last as large as allowed");
        assert!(sizes.is_sorted(), "{sizes:?}");
        let mut held = 0;
        for size in sizes {
            assert!(size <= held.max(page_size()), "no page is larger than all before it together");
            held += size;
        }
        free_all(&slab, objects);
        slab::assert_empties(&slab);
    }
}

#[test]
fn page_sizes_do_not_creep() {
    let recorder = Recorder::new(Malloc, Refuse::None);
    let slab = words().source(recorder.clone()).max_page_bytes(2 << 20).build();
    let (first, objects) = page_sizes(&slab, &recorder, 10_000);
    free_all(&slab, objects);
    slab.trim();
    // In between, a load that is a hundred times as large.
    let (large, objects) = page_sizes(&slab, &recorder, 400_000);
    assert!(large.last() > first.last());
    free_all(&slab, objects);
    slab.trim();
    for _ in 0..5 {
        let (again, objects) = page_sizes(&slab, &recorder, 10_000);
        assert_eq!(again, first, "the same load takes the same pages");
        free_all(&slab, objects);
        slab.trim();
    }
}

#[test]
fn what_a_steady_load_holds_does_not_creep_without_a_trim() {
    let slab = words().max_page_bytes(2 << 20).build();
    let mut random = Random::new(1);
    let mut most = 0;
    for round in 0..40 {
        let objects = stamped(&slab, 20_000);
        let held = slab.statistics().held_bytes;
        if round < 10 {
            most = most.max(held);
        } else {
            assert!(held <= most + most / 4, "round {round}: {held} after {most}");
        }
        let mut objects = objects;
        random.shuffle(&mut objects);
        free_all(&slab, objects);
    }
}

/// A slab whose further pages all have 64 KiB, and the objects that make it so large.
fn with_large_pages(builder: SlabBuilder<RawSlab>) -> (RawSlab, Vec<Object>) {
    let slab = builder.build();
    let mut objects = stamped(&slab, 4 * GRANULE / WORDS.size());
    while slab.statistics().free_bytes > 0 {
        objects.push(Object::stamp(slab.alloc(), WORDS, objects.len() as u64));
    }
    (slab, objects)
}

#[test]
fn with_packing_a_thread_leaves_its_page_for_a_fuller_one() {
    for packing in [false, true] {
        let (slab, mut others) = with_large_pages(words().packing(packing));
        // The thread's own page, a quarter of which is used.
        let first = slab.alloc();
        let mut objects = vec![Object::stamp(first, WORDS, 0)];
        let own = first.addr().get() / GRANULE;
        while objects.len() < 256 {
            objects.push(Object::stamp(slab.alloc(), WORDS, objects.len() as u64));
        }
        assert!(objects.iter().all(|object| object.range().0 / GRANULE == own));
        // One in sixteen slots of a full page is freed: it is the fullest page with free slots.
        let full = others.last().expect("there are many").range().0 / GRANULE;
        let (gone, stay): (Vec<_>, Vec<_>) = others.into_iter().partition(|object| {
            object.range().0 / GRANULE == full && object.range().0 / 64 % 16 == 0
        });
        others = stay;
        assert_eq!(gone.len(), 64);
        free_many(&slab, gone);
        // More than the thread may still cache, and fewer than the page has free.
        let next = stamped(&slab, 128);
        let there = next.iter().filter(|object| object.range().0 / GRANULE == full).count();
        if packing {
            assert!(there >= 32, "{there} of 128 on the fuller page");
        } else {
            assert_eq!(there, 0, "the current page is used up first");
        }
        free_all(&slab, objects);
        free_all(&slab, next);
        free_all(&slab, others);
        slab::assert_empties(&slab);
    }
}

#[test]
fn without_packing_too_a_thread_that_needs_a_page_takes_the_fullest() {
    let (slab, objects) = with_large_pages(words());
    let mut pages = by_page(objects);
    pages.retain(|_, objects| {
        let large = objects.len() == GRANULE / WORDS.size();
        if !large {
            free_many(&slab, std::mem::take(objects));
        }
        large
    });
    slab.trim();
    assert!(pages.len() >= 3);
    // Pages with a little, half and nearly all of them free.
    let freed = [60, 512, 1000];
    let chosen: Vec<usize> = pages.keys().copied().take(3).collect();
    for (page, count) in chosen.iter().zip(freed) {
        let objects = pages.get_mut(page).expect("chosen from them");
        let gone: Vec<_> = objects.drain(..count).collect();
        free_many(&slab, gone);
    }
    slab.flush();
    let next = stamped(&slab, 60 + 512 + 1000);
    let order: Vec<usize> = next.iter().map(|object| object.range().0 / GRANULE).collect();
    assert!(order[..60].iter().all(|page| *page == chosen[0]), "the fullest first");
    assert!(order[60..572].iter().all(|page| *page == chosen[1]), "then the next");
    assert!(order[572..].iter().all(|page| *page == chosen[2]), "and no new page");
    free_all(&slab, next);
    pages.into_values().for_each(|objects| free_all(&slab, objects));
    slab::assert_empties(&slab);
}

/// How many of two pages of objects of a new thread lie on pages of this thread, which made
/// 40 pages of objects, freed every eighth of them, and waited. And how long all of that took.
fn on_pages_of_another_thread(builder: SlabBuilder<RawSlab>, wait: Duration) -> (usize, Duration) {
    let began = Instant::now();
    let slab = builder.build();
    let objects = stamped(&slab, 40 * GRANULE / WORDS.size());
    let is_freed = |object: &Object| object.range().0 / WORDS.size() % 8 == 0;
    let (gone, stay): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_freed);
    // Not into this thread's cache.
    free_many(&slab, gone);
    let pages: BTreeSet<usize> = stay.iter().map(|object| object.range().0 / GRANULE).collect();
    std::thread::sleep(wait);
    let theirs = std::thread::scope(|scope| {
        scope.spawn(|| stamped(&slab, 2 * GRANULE / WORDS.size())).join().unwrap()
    });
    let took = began.elapsed();
    let on_ours = |object: &&Object| pages.contains(&(object.range().0 / GRANULE));
    let count = theirs.iter().filter(on_ours).count();
    free_all(&slab, theirs);
    free_all(&slab, stay);
    slab::assert_empties(&slab);
    (count, took)
}

#[test]
fn threads_leave_each_others_pages_alone_while_these_are_used_and_others_are_to_be_had() {
    let all = 2 * GRANULE / WORDS.size();
    let none = Duration::ZERO;
    // The pages are left alone for 50 ms. Whoever is stopped for that long tries again.
    let mut early = (0..100).map(|_| on_pages_of_another_thread(words(), none));
    match early.find(|(_, took)| took.as_millis() < 40) {
        Some((count, _)) => assert_eq!(count, 0, "new pages"),
        None => println!("skipped: this machine is too slow to use pages again within 40 ms"),
    }

    let later = Duration::from_millis(70);
    assert_eq!(on_pages_of_another_thread(words(), later).0, all, "unused pages");
    assert_eq!(on_pages_of_another_thread(words().packing(true), none).0, all, "packing");
    let calls = words().source(Malloc);
    assert_eq!(on_pages_of_another_thread(calls, none).0, all, "each page would be a call");
    // There is room for a few of the smallest pages. They are left to others.
    let limited = words().maximum(40 * GRANULE + GRANULE / 2);
    assert_eq!(on_pages_of_another_thread(limited, none).0, all, "at the limit");
}

#[test]
fn random_replacements_make_few_full_pages_of_many_sparse_ones() {
    for packing in [false, true] {
        let slab = words().max_page_bytes(0).packing(packing).build();
        let mut random = Random::new(11);
        let mut objects = stamped(&slab, 40_000);
        while objects.len() > 4000 {
            let index = random.below(objects.len());
            slab::free(&slab, objects.swap_remove(index));
        }
        let sparse = slab.statistics().chunks;
        // Forty turnovers.
        for number in 0..160_000 {
            let index = random.below(objects.len());
            slab::free(&slab, objects.swap_remove(index));
            objects.push(Object::stamp(slab.alloc(), WORDS, 100_000 + number));
        }
        slab.trim();
        let dense = slab.statistics().chunks;
        let needed = objects.len() * WORDS.size() / page_size();
        assert!(
            dense as usize <= needed + needed / 4,
            "{dense} pages of {sparse}, {needed} needed"
        );
        free_all(&slab, objects);
        slab::assert_empties(&slab);
    }
}

#[test]
fn at_once_a_page_is_released_in_the_call_that_frees_its_last_object() {
    let recorder = Recorder::new(Malloc, Refuse::None);
    let slab = words().source(recorder.clone()).release(Release::AtOnce).build();
    let pages = by_page(stamped(&slab, 50_000));
    slab.flush();
    let mut left = pages.len();
    assert_eq!(recorder.lent_blocks(), left);
    for mut objects in pages.into_values() {
        let last = objects.pop().expect("a page has objects");
        free_many(&slab, objects);
        assert_eq!(recorder.lent_blocks(), left, "an object is left");
        free_many(&slab, [last]);
        left -= 1;
        assert_eq!(recorder.lent_blocks(), left, "none is left");
    }
    slab::assert_empties(&slab);
}

#[test]
fn at_once_ordinary_frees_release_all_pages_but_those_of_cached_slots() {
    let recorder = Recorder::new(Malloc, Refuse::None);
    let release = Release::AtOnce;
    let slab = words()
        .source(recorder.clone())
        .release(release)
        .max_page_bytes(0)
        .max_cached_bytes(0)
        .build();
    let mut objects = stamped(&slab, 40_000);
    let mut random = Random::new(7);
    // The cache holds 8 slots; there are also slots on their way back and the page in use.
    let at_hand = 8 + 18;
    for scattered in [false, true] {
        while let Some(mut object) = objects.pop() {
            if scattered && !objects.is_empty() {
                let index = random.below(objects.len());
                std::mem::swap(&mut object, &mut objects[index]);
            }
            slab::free(&slab, object);
            if objects.len() % 500 == 0 {
                let live: BTreeSet<_> = objects.iter().map(|one| one.range().0 / GRANULE).collect();
                let lent = recorder.lent_blocks();
                assert!(lent <= live.len() + at_hand, "{lent} pages for {}", live.len());
            }
        }
        slab.flush();
        assert_eq!(recorder.lent_blocks(), 0, "no trim was needed");
        objects = stamped(&slab, 40_000);
    }
    free_all(&slab, objects);
    slab.flush();
    assert_eq!(recorder.lent_blocks(), 0);
}

#[test]
fn at_once_a_page_of_a_mapping_has_no_memory_any_more() {
    let test = "at_once_a_page_of_a_mapping_has_no_memory_any_more";
    if !child::is(test) {
        // In its own process, where no other test maps what this one has unmapped.
        Child::new(test, test).succeeds();
        return;
    }
    let slab = words().release(Release::AtOnce).build();
    let objects = stamped(&slab, 50_000);
    slab.flush();
    for (page, objects) in by_page(objects) {
        let addresses: Vec<_> = objects.iter().map(|object| object.range().0).collect();
        assert!(addresses.iter().all(|address| is_resident(*address) == Some(true)));
        assert!(owner_of(core::ptr::without_provenance::<u8>(page * GRANULE)).is_some());
        free_many(&slab, objects);
        // Mapped without memory, or not mapped.
        let owner = owner_of(core::ptr::without_provenance::<u8>(page * GRANULE));
        assert_eq!(owner, None);
        let mapped: Vec<_> = addresses.iter().filter_map(|address| is_resident(*address)).collect();
        assert!(mapped.iter().all(|resident| !resident), "{} are", mapped.len());
    }
    slab::assert_empties(&slab);
}

#[test]
fn the_adaptive_default_keeps_a_page_and_more_when_it_releases_too_early() {
    let recorder = Recorder::new(Malloc, Refuse::None);
    let slab = words().source(recorder.clone()).max_page_bytes(0).build();
    let page = page_size() / WORDS.size();
    // One page that empties and fills again costs no call.
    for round in 0..100 {
        let objects = stamped(&slab, page);
        free_many(&slab, objects);
        if round == 0 {
            assert_eq!(recorder.lent_blocks(), 1, "kept");
        }
    }
    assert_eq!(recorder.calls(), 1);
    // A load that empties pages and fills them again calls the source a few times, and then never.
    let mut calls = Vec::new();
    for _ in 0..30 {
        let before = recorder.calls();
        let objects = stamped(&slab, 64 * page);
        free_many(&slab, objects);
        slab.flush();
        calls.push(recorder.calls() - before);
    }
    let late: u64 = calls[20..].iter().sum();
    assert!(late < 10 * 64 / 2, "calls in each round: {calls:?}");
    slab::assert_empties(&slab);
}

#[test]
fn a_kept_budget_of_bytes_is_kept_and_not_more() {
    let kept = 10 * page_size();
    let slab = words().release(Release::Keep(kept)).max_page_bytes(0).build();
    let objects = stamped(&slab, 5000);
    free_many(&slab, objects);
    slab.flush();
    let statistics = slab::assert_exact(&slab, 0, None);
    assert_eq!(statistics.free_bytes, kept as u64);
    assert_eq!(statistics.chunks, 10);
    slab::assert_empties(&slab);
}

#[test]
fn trim_gives_all_empty_pages_back_and_says_how_much_that_was() {
    for release in [
        Release::Adaptive,
        Release::AtOnce,
        Release::Keep(1 << 20),
        Release::Decay(Duration::from_secs(3600)),
    ] {
        let slab = words().release(release).build();
        let mut objects = stamped(&slab, 30_000);
        let stay = objects.split_off(29_000);
        free_all(&slab, objects);
        let before = slab.statistics();
        let given = slab.trim();
        let after = slab::assert_exact(&slab, stay.len(), None);
        assert_eq!(before.held_bytes - after.held_bytes, given as u64, "{release:?}");
        assert_eq!(slab.trim(), 0, "nothing is left to trim");
        let pages = by_page(stay);
        assert_eq!(after.chunks, pages.len() as u64, "{release:?}: the pages of the living");
        pages.into_values().for_each(|objects| free_all(&slab, objects));
        slab::assert_empties(&slab);
    }
}
