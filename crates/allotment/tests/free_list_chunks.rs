//! Where a free list's objects lie, and when its chunks are released.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeSet;

use allotment::source::SharedSource;
use allotment::{Arena, Budget, Malloc, Mmap, RawFreeList, Release, recycler};
use support::child::{self, Child};
use support::list::{
    self, address, by_block, free, free_all, recorded, skipped, stamped, stamped_run,
};
use support::slab::{Object, Random, assert_apart, layout};

#[test]
fn chunks_that_became_empty_are_released_while_the_list_is_used() {
    if skipped() {
        return;
    }
    for release in [Release::AtOnce, Release::Adaptive, Release::Keep(0)] {
        let (source, builder) = recorded();
        let budget = Budget::new(usize::MAX);
        let list = builder.release(release).budget(&budget).build();
        let mut objects = stamped(&list, 100_000);
        let full = source.lent_bytes();
        // Newest first, so that whole chunks become empty.
        let some = objects.split_off(95_000);
        free_all(&list, some);
        assert_eq!(source.lent_bytes(), full, "too few for a sweep");
        let many = objects.split_off(20_000);
        free_all(&list, many.into_iter().rev());
        let held = source.lent_bytes();
        assert!(held < full / 2, "{release:?}: {held} of {full}");
        assert_eq!(list::assert_exact(&list, 20_000, Some(&budget)).held_bytes, held as u64);
        // The same further down.
        let many = objects.split_off(2_000);
        free_all(&list, many.into_iter().rev());
        assert!(source.lent_bytes() < full / 8, "{release:?}: {} of {full}", source.lent_bytes());
        objects.iter().for_each(Object::assert_intact);
    }
}

#[test]
fn a_burst_that_is_freed_whole_leaves_one_chunk() {
    if skipped() {
        return;
    }
    let orders: [fn(&mut Vec<Object>); 3] =
        [|_| {}, |objects| objects.reverse(), |objects| Random::new(1).shuffle(objects)];
    for order in orders {
        for count in [1000, 30_000, 200_000] {
            let (source, builder) = recorded();
            let list = builder.build();
            let mut objects = stamped(&list, count);
            let full = source.lent_bytes();
            order(&mut objects);
            free_all(&list, objects);
            assert_eq!(source.lent_blocks(), 1, "of {count}");
            assert!(source.lent_bytes() < full);
            list::assert_exact(&list, 0, None);
            // The chunk that stays is used.
            let again = stamped(&list, 10);
            assert_eq!(source.lent_blocks(), 1);
            free_all(&list, again);
            list::assert_empties(&list);
        }
    }
}

#[test]
fn a_trim_leaves_no_chunk_without_a_live_object() {
    if skipped() {
        return;
    }
    for release in [Release::AtOnce, Release::Adaptive, Release::Keep(usize::MAX)] {
        let (source, builder) = recorded();
        let list = builder.release(release).objects_per_chunk(60).build();
        let blocks = by_block(stamped(&list, 5000), &source);
        let before = (blocks.len(), source.lent_bytes());
        let mut stay = Vec::new();
        let mut expected = 0;
        for (number, (_, mut objects)) in blocks.into_iter().enumerate() {
            if number % 3 == 0 {
                let middle = objects.len() / 2;
                stay.push(objects.swap_remove(middle));
                expected += 1;
            }
            free_all(&list, objects);
        }
        let given = before.1 - source.lent_bytes();
        assert_eq!(list.trim() + given, before.1 / before.0 * (before.0 - expected));
        assert_eq!(source.lent_blocks(), expected, "{release:?}");
        assert_eq!(list.trim(), 0, "a second one finds nothing");
        list::assert_exact(&list, expected, None);
        // The holes are used, and no chunk is taken while there are holes.
        let room = list.statistics().free_bytes as usize / 64;
        let more = stamped(&list, room);
        assert_eq!(source.lent_blocks(), expected);
        assert_apart(stay.iter().chain(&more));
        free_all(&list, more);
        free_all(&list, stay);
        list::assert_empties(&list);
    }
}

#[test]
fn release_keep_keeps_its_bytes_and_no_more() {
    if skipped() {
        return;
    }
    let chunk = {
        let (source, builder) = recorded();
        let list = builder.objects_per_chunk(60).build();
        let _ = list.alloc();
        source.lent_bytes()
    };
    for kept in [0, 1, 5, 40] {
        let (source, builder) = recorded();
        let list = builder.objects_per_chunk(60).release(Release::Keep(kept * chunk)).build();
        let objects = stamped(&list, 6000);
        let taken = source.lent_blocks();
        assert!(taken > 90);
        free_all(&list, objects);
        let left = source.lent_blocks();
        assert!((kept.max(1)..=kept + 1).contains(&left), "{left} chunks of {kept} to keep");
        // The kept chunks are used before a new one is taken, each once.
        let calls = source.calls();
        let objects = stamped(&list, left * 60);
        assert_apart(&objects);
        assert_eq!(source.calls(), calls);
        free_all(&list, objects);
        assert_eq!(source.lent_blocks(), left);
        list::assert_empties(&list);
    }
    let (source, builder) = recorded();
    let list = builder.release(Release::Keep(usize::MAX)).build();
    let objects = stamped(&list, 50_000);
    let full = source.lent_bytes();
    free_all(&list, objects);
    assert_eq!(source.lent_bytes(), full, "all of it is kept");
    list::assert_empties(&list);
}

#[test]
fn keep_bounds_empty_chunks_while_others_are_in_use() {
    if skipped() {
        return;
    }
    let (source, builder) = recorded();
    let list = builder.objects_per_chunk(60).release(Release::Keep(10 << 12)).build();
    let objects = stamped(&list, 20_000);
    let mut blocks = by_block(objects, &source);
    let stay: Vec<_> = blocks.iter_mut().step_by(20).map(|(_, all)| all.pop().unwrap()).collect();
    let size = source.lent_bytes() / source.lent_blocks();
    blocks.into_values().for_each(|objects| free_all(&list, objects));
    // The chunks emptied after the last sweep: sweeps come at each half, so these are fewer than
    // the chunks with a live object.
    let most = stay.len() * size + (10 << 12);
    let with_holes = 2 * stay.len() * size + (10 << 12);
    assert!(source.lent_bytes() <= with_holes, "{} > {with_holes}", source.lent_bytes());
    list.trim();
    assert_eq!(source.lent_blocks(), stay.len());
    assert!(source.lent_bytes() < most);
}

#[test]
fn a_list_that_releases_at_once_leaves_the_recycler_alone() {
    if skipped() {
        return;
    }
    let test = "a_list_that_releases_at_once_leaves_the_recycler_alone";
    if !child::is(test) {
        Child::new(test, test).succeeds();
        return;
    }
    recycler().set_policy(Release::Keep(usize::MAX));
    drop(Arena::with_capacity(250 << 10));
    let warm = recycler().cached_bytes();
    assert!(warm >= 250 << 10);
    for release in [Release::AtOnce, Release::Adaptive] {
        let list =
            RawFreeList::builder(layout(64, 8)).release(release).objects_per_chunk(4000).build();
        let objects = stamped(&list, 20_000);
        let statistics = list.statistics();
        let at_once = release == Release::AtOnce;
        assert_eq!(recycler().cached_bytes() == warm, at_once, "{release:?} takes");
        assert_eq!(statistics.recycled_chunks == 0, at_once);
        free_all(&list, objects);
        list.trim();
        assert_eq!(recycler().cached_bytes() == warm, at_once, "{release:?} gives");
        drop(list);
    }
    // So does a hardened list: an access to memory that it released should fault.
    let before = recycler().cached_bytes();
    let list = RawFreeList::builder(layout(64, 8)).hardened(true).build();
    let objects = stamped(&list, 20_000);
    free_all(&list, objects);
    drop(list);
    assert_eq!(recycler().cached_bytes(), before);
}

/// The hardware pages that objects lie in.
fn pages(objects: &[Object]) -> BTreeSet<usize> {
    objects.iter().map(|object| address(object) / 4096).collect()
}

#[test]
fn a_chunk_emptied_by_a_list_is_next_an_arenas_and_then_another_lists() {
    if skipped() {
        return;
    }
    let test = "a_chunk_emptied_by_a_list_is_next_an_arenas_and_then_another_lists";
    if !child::is(test) {
        Child::new(test, test).succeeds();
        return;
    }
    recycler().set_policy(Release::Keep(usize::MAX));
    // 256 KiB chunks are shared by all threads; a chunk of 8 KiB stays with its thread.
    for (chunk, emptied_by) in [
        (256 << 10, "its last free"),
        (256 << 10, "a trim"),
        (256 << 10, "a sweep"),
        (256 << 10, "its drop"),
        (8 << 10, "a trim"),
    ] {
        recycler().trim();
        let list = RawFreeList::builder(layout(64, 8)).objects_per_chunk(chunk / 64 - 1).build();
        let per_chunk = chunk / 64 - 1;
        let first = stamped(&list, per_chunk);
        let second = stamped(&list, per_chunk);
        assert_eq!(list.statistics().chunks, 2);
        assert_eq!(list.statistics().held_bytes, 2 * chunk as u64);
        let mut memory = pages(&second);
        let mut list = Some(list);
        let keeps = list.as_ref().expect("it is there");
        match emptied_by {
            "its last free" => {
                // Alternately, so that both are in use until then. Either of them may stay.
                memory.append(&mut pages(&first));
                free_all(
                    keeps,
                    first.into_iter().zip(second).flat_map(|(one, other)| [one, other]),
                );
            }
            "a trim" => {
                free_all(keeps, second);
                assert_eq!(keeps.trim(), chunk);
                first.iter().for_each(Object::assert_intact);
            }
            "a sweep" => {
                free_all(keeps, second);
                let half = first.len() / 2;
                free_all(keeps, first.into_iter().take(half + 2));
            }
            _ => {
                // First the chunk that the test does not look for.
                free_all(keeps, first);
                keeps.trim();
                free_all(keeps, second);
                drop(list.take());
            }
        }
        if let Some(list) = &list {
            assert_eq!(list.statistics().chunks, 1, "by {emptied_by}");
        }
        let arena = Arena::with_capacity(chunk - 4096);
        let object = core::ptr::from_ref(arena.alloc(1u64)).addr();
        assert!(memory.contains(&(object / 4096)), "an arena's, by {emptied_by}");
        assert_eq!(arena.statistics().recycled_chunks, 1);
        drop(arena);
        // A list with `objects_per_chunk` does not take a thread chunk that is larger.
        let objects_per_chunk = if chunk > 64 << 10 { (chunk - 64) / 200 } else { 0 };
        let other =
            RawFreeList::builder(layout(200, 8)).objects_per_chunk(objects_per_chunk).build();
        let others = stamped(&other, (chunk - 64) / 200);
        assert!(pages(&others).is_subset(&memory), "another list's, by {emptied_by}");
        assert_eq!((other.statistics().recycled_chunks, other.statistics().source_calls), (1, 0));
        others.iter().for_each(Object::assert_intact);
        if let Some(list) = &list {
            let more = stamped(list, per_chunk);
            assert_apart(others.iter().chain(&more));
        }
    }
}

/// Objects that came in runs, which leave a rest of each chunk, and objects that skipped holes.
#[test]
fn the_last_free_leaves_one_chunk_however_the_objects_were_allocated() {
    if skipped() {
        return;
    }
    type Allocate = fn(&RawFreeList) -> Vec<Object>;
    let sequences: [(&str, Allocate); 4] = [
        ("runs", |list| (0..100).flat_map(|_| stamped_run(list, 1000)).collect()),
        ("a hole, then a run", |list| {
            free_all(list, stamped(list, 1));
            stamped_run(list, 100_000)
        }),
        ("past a hole", |list| {
            let mut objects = stamped(list, 2);
            free(list, objects.swap_remove(0));
            objects
                .extend((0..50_000).map(|_| Object::stamp(list.alloc_fresh(), list.layout(), 1)));
            objects
        }),
        ("one large run behind a small one", |list| {
            let mut objects = stamped_run(list, 10);
            objects.extend(stamped_run(list, 10_000));
            objects
        }),
    ];
    for (sequence, allocate) in sequences {
        let (source, builder) = recorded();
        let list = builder.build();
        free_all(&list, allocate(&list));
        assert_eq!(source.lent_blocks(), 1, "{sequence}");
        list::assert_exact(&list, 0, None);
    }
}

#[test]
fn a_list_on_any_source_releases_everything() {
    let sources: [SharedSource; 4] =
        [Mmap::new().into(), Mmap::small_pages().into(), Mmap::huge_pages().into(), Malloc.into()];
    for source in sources {
        for hardened in [false, true] {
            let budget = Budget::new(usize::MAX);
            let list = RawFreeList::builder(layout(40, 8))
                .source(source.clone())
                .budget(&budget)
                .hardened(hardened)
                .build();
            for _ in 0..3 {
                let objects = stamped(&list, 30_000);
                assert_apart(&objects);
                list::assert_exact(&list, 30_000, Some(&budget));
                free_all(&list, objects);
                list::assert_exact(&list, 0, Some(&budget));
            }
            list::assert_empties(&list);
            let _live = stamped(&list, 100);
            let _run = list.alloc_run(100);
            list::assert_exact(&list, 200, Some(&budget));
            let list = list;
            drop(list);
            assert_eq!(budget.used(), 0);
        }
    }
}

#[test]
fn a_run_looks_at_few_of_the_spare_chunks() {
    if skipped() {
        return;
    }
    for (others, blocks) in [(3, 0), (300, 1)] {
        let (source, builder) = recorded();
        let list = builder.objects_per_chunk(1).release(Release::Keep(usize::MAX)).build();
        // The chunk of the first run comes last among the spare ones.
        let mut objects = stamped_run(&list, 1000);
        (0..others).for_each(|_| objects.extend(stamped_run(&list, 40)));
        free_all(&list, objects);
        let before = source.lent_blocks();
        let run = stamped_run(&list, 1000);
        assert_eq!(source.lent_blocks(), before + blocks);
        list::assert_exact(&list, 1000, None);
        free_all(&list, run);
        list::assert_empties(&list);
    }
}

#[test]
fn a_list_that_has_grown_takes_huge_pages_unless_its_source_uses_small_ones() {
    if skipped() {
        return;
    }
    let chunks = |source: Mmap| {
        let list =
            RawFreeList::builder(layout(4096, 8)).source(source).release(Release::AtOnce).build();
        let _ = list.alloc_run(16 << 8);
        let objects: BTreeSet<_> = (0..16 << 8).map(|_| list.alloc()).collect();
        assert_eq!(objects.len(), 16 << 8);
        list.statistics().chunks
    };
    assert!(chunks(Mmap::new()) < chunks(Mmap::small_pages()), "2 MiB instead of 1");
}
