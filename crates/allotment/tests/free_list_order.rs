//! Where a free list's objects lie.

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeSet;

use allotment::{Malloc, RawFreeList, Release};
#[cfg(not(system_memory))]
use support::absent_options::*;
use support::list::{
    self, address, by_block, free, free_all, objects_of, recorded, skipped, stamped, stamped_run,
    under_a_tool,
};
use support::object::{Object, Random, assert_apart, layout};
use support::sources::{Recorder, Refuse};

#[test]
fn the_first_objects_lie_one_after_the_other_and_the_last_freed_is_the_first_used() {
    if skipped() {
        return;
    }
    let list = RawFreeList::builder(layout(24, 8)).objects_per_chunk(1000).build();
    let objects = stamped(&list, 1000);
    assert!(objects.windows(2).all(|pair| address(&pair[1]) - address(&pair[0]) == 24));
    let starts: Vec<_> = objects.iter().map(|object| object.start).collect();
    free_all(&list, objects);
    for start in starts.iter().rev() {
        assert_eq!(list.alloc(), *start);
    }
}

#[test]
fn after_a_sweep_the_fullest_chunks_are_used_first_and_each_in_the_order_of_its_addresses() {
    if skipped() {
        return;
    }
    let (source, builder) = recorded();
    let list = builder.objects_per_chunk(500).build();
    let mut random = Random::new(7);
    let mut blocks: Vec<_> = by_block(stamped(&list, 4 * 511), &source).into_values().collect();
    assert!(blocks.len() >= 4);
    // The percentage that is freed of each chunk. The chunks are used in this order: 5, 40, 60, 90.
    let shares = [60, 5, 90, 40];
    let mut freed = vec![Vec::new(); 4];
    let mut going = Vec::new();
    for ((objects, share), freed) in blocks.iter_mut().zip(shares).zip(&mut freed) {
        random.shuffle(objects);
        for object in objects.drain(..511 * share / 100) {
            freed.push(address(&object));
            going.push(object);
        }
        freed.sort_unstable();
    }
    random.shuffle(&mut going);
    free_all(&list, going);
    list.trim();
    let expected = [1, 3, 0, 2].into_iter().flat_map(|chunk| freed[chunk].clone());
    for expected in expected {
        assert_eq!(list.alloc().addr().get(), expected);
    }
    blocks.iter().flatten().for_each(Object::assert_intact);
}

#[test]
fn a_sweep_without_a_trim_orders_the_free_objects_too() {
    if skipped() {
        return;
    }
    let (source, builder) = recorded();
    let list = builder.objects_per_chunk(500).build();
    let mut objects = stamped(&list, 20_000);
    Random::new(3).shuffle(&mut objects);
    // Below half: the list sweeps. Its level is just below 10,000, because the last chunk was taken
    // shortly before the end.
    let stay = objects.split_off(10_300);
    let mut live = objects.len() + stay.len();
    for object in objects {
        free(&list, object);
        live -= 1;
    }
    assert_eq!(list.live(), live);
    let room = list.statistics().free_bytes as usize / 64;
    let starts: Vec<usize> = (0..room / 2).map(|_| list.alloc().addr().get()).collect();
    let rising = starts.windows(2).filter(|pair| pair[0] < pair[1]).count();
    let chunks = source.lent_blocks();
    // One step back for each chunk, and for each of the few frees after the sweep.
    assert!(rising + chunks + 2 * 400 >= starts.len(), "{rising} of {} rise", starts.len());
}

#[test]
fn the_objects_of_a_run_are_adjacent_in_memory_that_held_no_object() {
    for size in [0, 1, 8, 24, 100, 5000] {
        for align in [1, 8, 64, 8192] {
            let source = Recorder::new(Malloc, Refuse::None);
            // Released memory might be taken again.
            let list = RawFreeList::builder(layout(size, align))
                .source(source.clone())
                .release(Release::Keep(usize::MAX))
                .build();
            assert!(list.stride() >= size.max(size_of::<usize>()) && list.stride() % align == 0);
            // If nothing is live, all objects are fresh again.
            let _stays = list.alloc();
            let singles = stamped(&list, 20);
            let mut seen: BTreeSet<_> = singles.iter().map(address).collect();
            // Holes, which a run does not use.
            free_all(&list, singles);
            for count in [1, 2, 7, 300] {
                let run = stamped_run(&list, count);
                let first = address(&run[0]);
                assert!(
                    run.iter().enumerate().all(|(n, o)| address(o) == first + n * list.stride())
                );
                assert!(run.iter().all(|object| seen.insert(address(object))));
                assert!(source.holds(first, count * list.stride()), "in one chunk");
                list::assert_exact(&list, 1 + count, None);
                // Each object is freed separately, in any order.
                let (odd, even): (Vec<_>, Vec<_>) =
                    run.into_iter().partition(|object| address(object) / list.stride() % 2 == 1);
                free_all(&list, odd);
                even.iter().for_each(Object::assert_intact);
                free_all(&list, even);
                list::assert_exact(&list, 1, None);
            }
        }
    }
}

#[test]
fn a_run_may_be_larger_than_a_chunk_would_be() {
    for hardened in [false, true] {
        let (source, builder) = recorded();
        let list = builder.objects_per_chunk(10).hardened(hardened).build();
        let few = stamped(&list, 3);
        let run = stamped_run(&list, 30_000);
        assert!(source.holds(address(&run[0]), 30_000 * list.stride()));
        let next = stamped_run(&list, 5);
        assert_apart(few.iter().chain(&run).chain(&next));
        list::assert_exact(&list, 30_008, None);
        for objects in [few, run, next] {
            free_all(&list, objects);
        }
        list::assert_empties(&list);
    }
}

#[test]
fn the_rest_of_a_chunk_after_a_run_is_used_for_single_objects() {
    let (source, builder) = recorded();
    let list = builder.objects_per_chunk(100).build();
    let one = stamped_run(&list, 1);
    let run = stamped_run(&list, 1000);
    let lent = source.lent_blocks();
    assert_eq!(lent, 2);
    let more = stamped(&list, 50);
    assert_eq!(source.lent_blocks(), lent, "the first chunk has room");
    let block = source.block_of(address(&one[0]));
    assert!(more.iter().any(|object| source.block_of(address(object)) == block));
    assert_apart(one.iter().chain(&run).chain(&more));
}

#[test]
fn a_run_of_none_takes_nothing() {
    for hardened in [false, true] {
        let (source, builder) = recorded();
        let list = builder.hardened(hardened).build();
        let none = list.alloc_run(0);
        assert_eq!(none.addr().get() % 8, 0);
        assert_eq!(objects_of(&list, none, 0).count(), 0);
        list::assert_exact(&list, 0, None);
        assert_eq!(source.calls(), 0);
    }
}

#[test]
fn a_fresh_object_lies_after_the_last_fresh_one_past_all_holes() {
    let list = RawFreeList::builder(layout(48, 8)).objects_per_chunk(1000).build();
    let objects = stamped_run(&list, 100);
    let mut last = address(&objects[99]);
    let (holes, stay): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| address(object) / list.stride() % 3 != 0);
    let hole = address(holes.last().expect("some are"));
    free_all(&list, holes);
    for _ in 0..300 {
        let fresh = list.alloc_fresh().addr().get();
        assert_eq!(fresh, last + list.stride());
        last = fresh;
        if !under_a_tool() {
            // Other allocations take the holes meanwhile.
            let single = list.alloc();
            assert!(single.addr().get() <= hole.max(last));
            // SAFETY: allocated just now.
            unsafe { list.free(single) };
        }
    }
    list::assert_exact(&list, stay.len() + 300, None);
    stay.iter().for_each(Object::assert_intact);
}
