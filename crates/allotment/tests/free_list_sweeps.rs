//! When a free list sweeps for empty chunks, and what it does with them.

#[path = "support/mod.rs"]
mod support;

use core::ptr::NonNull;

use allotment::{Budget, ErrorKind, RawFreeList, Release};
#[cfg(system_memory)]
use support::child::{self, Child};
use support::list::{self, by_block, free, free_all, recorded, skipped, stamped, under_a_tool};
use support::object::{Object, Random, assert_apart, layout};

#[test]
fn a_list_that_is_filled_over_and_over_keeps_no_more_than_it_was_told() {
    if skipped() {
        return;
    }
    const KEPT: usize = 1 << 20;
    for release in [Release::Keep(KEPT), Release::Keep(0), Release::AtOnce] {
        let kept = if let Release::Keep(bytes) = release { bytes } else { 0 };
        let (source, builder) = recorded();
        let list = builder.release(release).objects_per_chunk(1000).build();
        let one = (64 * 1000_usize + 64).next_power_of_two();
        for _ in 0..10 {
            let objects = stamped(&list, 50_000);
            free_all(&list, objects);
            // One chunk stays in any case.
            assert!(source.lent_bytes() <= kept + one, "{release:?}: {}", source.lent_bytes());
            // Each time the list sweeps when half of them are freed.
            let mut objects = stamped(&list, 50_000);
            let few = objects.split_off(30_000);
            free_all(&list, objects);
            assert!(source.lent_bytes() <= kept + 30 * one, "{release:?}: {}", source.lent_bytes());
            free_all(&list, few);
        }
    }
}

#[test]
fn memory_does_not_creep_over_many_fillings() {
    let (source, builder) = recorded();
    let list = builder.build();
    let mut random = Random::new(11);
    let mut peaks = Vec::new();
    let mut rests = Vec::new();
    for round in 0..40 {
        let mut objects = stamped(&list, 20_000);
        peaks.push(source.lent_bytes());
        if round % 2 == 0 {
            random.shuffle(&mut objects);
        }
        free_all(&list, objects);
        rests.push(source.lent_bytes());
    }
    let (first, later) = peaks.split_at(4);
    assert!(later.iter().max() <= first.iter().max(), "{peaks:?}");
    // Spare chunks, kept because the list soon needed them again, are no more than its peak.
    assert!(rests[0] < peaks[0] || skipped(), "{rests:?}");
    assert!(rests.iter().max() <= first.iter().max(), "{rests:?}");
    list.trim();
    assert_eq!(source.lent_bytes(), 0);
}

#[test]
fn random_replacements_need_no_more_chunks_than_the_objects_did() {
    let (source, builder) = recorded();
    let list = builder.build();
    let mut random = Random::new(5);
    let mut objects = stamped(&list, 20_000);
    // A checked list keeps freed objects in quarantine.
    let full = source.lent_bytes();
    let allowed = if under_a_tool() { full * 2 } else { full };
    for number in 0..200_000 {
        let index = random.below(objects.len());
        free(&list, objects.swap_remove(index));
        objects.push(Object::stamp(list.alloc(), list.layout(), number));
    }
    assert!(source.lent_bytes() <= allowed, "{} > {allowed}", source.lent_bytes());
    assert_apart(&objects);
}

#[test]
fn a_structure_that_shrinks_and_grows_holds_what_it_needs() {
    if skipped() {
        return;
    }
    let (source, builder) = recorded();
    let list = builder.build();
    let mut random = Random::new(13);
    let mut objects = Vec::new();
    for _ in 0..10 {
        objects.extend(stamped(&list, 30_000));
        random.shuffle(&mut objects);
        // Scattered survivors hold their chunks. Survivors in few chunks, as after a trim and new
        // objects, do not.
        let stay = objects.split_off(objects.len() - 1000);
        free_all(&list, std::mem::replace(&mut objects, stay));
    }
    free_all(&list, objects);
    assert_eq!(source.lent_blocks(), 1);
}

#[test]
fn what_scattered_frees_emptied_goes_back_while_few_objects_live_on() {
    if skipped() {
        return;
    }
    let (source, builder) = recorded();
    let list = builder.build();
    let mut objects = stamped(&list, 400_000);
    Random::new(29).shuffle(&mut objects);
    let full = source.lent_bytes();
    let mut few = objects.split_off(objects.len() - 3);
    free_all(&list, objects);
    let begun = std::time::Instant::now();
    let mut number = 0;
    while source.lent_bytes() > full / 4 {
        assert!(begun.elapsed().as_secs() < 60, "{} of {full}", source.lent_bytes());
        free(&list, few.remove(0));
        few.push(Object::stamp(list.alloc(), list.layout(), number));
        number += 1;
    }
    assert_apart(&few);
    free_all(&list, few);
    assert_eq!(source.lent_blocks(), 1);
}

/// The structure is pruned and copied into fresh objects; then the copy is pruned.
#[test]
fn what_a_compact_copy_left_goes_back_while_the_list_runs() {
    if skipped() {
        return;
    }
    let (source, builder) = recorded();
    let list = builder.build();
    let mut objects = stamped(&list, 100_000);
    Random::new(17).shuffle(&mut objects);
    let pruned = objects.split_off(40_000);
    free_all(&list, pruned);
    let fresh = |number| Object::stamp(list.alloc_fresh(), list.layout(), number);
    let mut copy: Vec<_> = (0..40_000).map(fresh).collect();
    let with_both = source.lent_bytes();
    free_all(&list, objects);
    let pruned = copy.split_off(10_000);
    free_all(&list, pruned);
    let held = source.lent_bytes();
    assert!(held < with_both / 3, "{held} of {with_both}");
    copy.iter().for_each(Object::assert_intact);
}

/// Fills and empties a list until it skips a sweep and keeps its empty chunks as spare ones.
fn fill_until_a_sweep_is_skipped(list: &RawFreeList, objects: usize, lent: impl Fn() -> usize) {
    let mut random = Random::new(23);
    for _ in 0..100 {
        let mut all = stamped(list, objects);
        random.shuffle(&mut all);
        let full = lent();
        free_all(list, all);
        if lent() == full {
            return;
        }
    }
    panic!("every sweep released something");
}

#[test]
fn spare_chunks_are_released_though_the_list_stays_small() {
    if skipped() {
        return;
    }
    let (source, builder) = recorded();
    let list = builder.build();
    fill_until_a_sweep_is_skipped(&list, 20_000, || source.lent_bytes());
    assert!(source.lent_blocks() > 1);
    for _ in 0..100 {
        free_all(&list, stamped(&list, 3));
    }
    assert_eq!(source.lent_blocks(), 1);
    list::assert_empties(&list);
}

#[test]
fn a_list_that_is_filled_and_emptied_over_and_over_keeps_what_it_needs() {
    if skipped() {
        return;
    }
    let (source, builder) = recorded();
    let list = builder.build();
    let mut most = 0;
    let mut fill = || {
        let objects = stamped(&list, 10_000);
        most = most.max(source.lent_blocks());
        // Newest first, so that chunks become empty all the way.
        free_all(&list, objects.into_iter().rev());
    };
    (0..200).for_each(|_| fill());
    let before = source.calls();
    (0..128).for_each(|_| fill());
    // It sweeps in one descent of 64.
    let calls = (source.calls() - before) as usize;
    assert!(calls <= 3 * 2 * most, "{calls} calls for {most} chunks");
    list::assert_empties(&list);
}

#[test]
fn a_list_whose_policy_keeps_all_its_chunks_does_not_sweep_for_them() {
    if skipped() {
        return;
    }
    let (source, builder) = recorded();
    let list = builder.release(Release::Keep(usize::MAX)).build();
    free_all(&list, stamped(&list, 20_000));
    let lent = source.lent_blocks();
    assert!(lent > 1);
    for _ in 0..1000 {
        free_all(&list, stamped(&list, 3));
    }
    assert_eq!(source.lent_blocks(), lent);
    list::assert_empties(&list);
}

#[test]
fn spare_chunks_are_released_before_a_run_is_refused() {
    if skipped() {
        return;
    }
    let (source, builder) = recorded();
    let budget = Budget::new(3 << 20);
    let list = builder.budget(&budget).build();
    fill_until_a_sweep_is_skipped(&list, 20_000, || source.lent_bytes());
    let spare = list.statistics().held_bytes as usize;
    // More than the rest of the budget or any one chunk has room for.
    let objects = (budget.limit() - spare / 2) / 64;
    let run = list.try_alloc_run(objects).expect("nothing is live");
    list::assert_exact(&list, objects, Some(&budget));
    let error = list.try_alloc_run(objects).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
    // SAFETY: objects of the run, each freed once.
    list::objects_of(&list, run, objects).for_each(|object| unsafe { list.free(object) });
    list::assert_empties(&list);
}

#[test]
fn a_list_that_has_shrunk_takes_small_chunks_again() {
    if skipped() {
        return;
    }
    let (source, builder) = recorded();
    let list = builder.build();
    let mut objects = stamped(&list, 200_000);
    // The first chunks, which are the smallest, last.
    free_all(&list, objects.drain(..).rev());
    let least = source.lent_bytes();
    objects.extend(stamped(&list, 2 * least / 64));
    assert!(source.lent_bytes() <= 4 * least, "{} after {least}", source.lent_bytes());
    free_all(&list, objects);
    list::assert_empties(&list);
}

#[test]
fn a_list_that_has_shrunk_takes_no_more_than_it_holds() {
    if skipped() {
        return;
    }
    // The first objects first: what stays at the end is one of the later chunks.
    for count in [10_000, 20_000, 32_000, 100_000] {
        let list = RawFreeList::builder(layout(64, 8)).build();
        free_all(&list, stamped(&list, count));
        let held = list.statistics().held_bytes as usize;
        let objects = stamped(&list, held / 64);
        let statistics = list::assert_exact(&list, held / 64, None);
        assert!(statistics.held_bytes as usize <= 2 * held, "{statistics:?} after {held}");
        free_all(&list, objects);
        list::assert_empties(&list);
    }
}

#[test]
fn a_list_that_grew_again_within_its_chunks_sweeps_again() {
    if skipped() {
        return;
    }
    let (source, builder) = recorded();
    let list = builder.objects_per_chunk(1000).build();
    let mut objects = stamped(&list, 60_000);
    Random::new(29).shuffle(&mut objects);
    let some = objects.split_off(20_000);
    free_all(&list, some);
    let full = source.lent_blocks();
    // The sweep released nothing: each chunk has holes, and none is empty. The holes are filled.
    objects.extend(stamped(&list, 39_000));
    assert_eq!(source.lent_blocks(), full);
    let mut blocks: Vec<_> = by_block(objects, &source).into_values().collect();
    let stay = blocks.split_off(full / 4);
    blocks.into_iter().for_each(|objects| free_all(&list, objects));
    let mut stay: Vec<Object> = stay.into_iter().flatten().collect();
    let more = stay.split_off(stay.len() / 2);
    free_all(&list, more);
    assert!(source.lent_blocks() <= full - full / 4, "{} of {full}", source.lent_blocks());
    stay.iter().for_each(Object::assert_intact);
    list::assert_exact(&list, stay.len(), None);
}

#[test]
fn what_was_freed_last_is_used_first_however_much_is_free() {
    if skipped() {
        return;
    }
    let mut random = Random::new(31);
    for count in [1000, 30_000, 200_000] {
        let list = RawFreeList::builder(layout(64, 8)).build();
        let mut objects = stamped(&list, count);
        random.shuffle(&mut objects);
        // Too few for a sweep. Frees and allocations alternate, so that chains begin and end.
        let mut freed = Vec::new();
        while freed.len() < count * 2 / 5 {
            for object in objects.split_off(objects.len() - count / 25) {
                freed.push(object.start);
                free(&list, object);
            }
            for number in 0..count / 50 {
                let object = list.alloc();
                assert_eq!(Some(object), freed.pop());
                objects.push(Object::stamp(object, list.layout(), number as u64));
            }
            random.shuffle(&mut objects);
        }
        while let Some(last) = freed.pop() {
            assert_eq!(list.alloc(), last);
            objects.push(Object::stamp(last, list.layout(), 0));
        }
        assert_apart(&objects);
        list::assert_exact(&list, count, None);
        free_all(&list, objects);
        list::assert_empties(&list);
    }
}

#[test]
fn a_list_is_used_by_one_thread_after_another_while_chunks_are_spare_and_chains_wait() {
    let budget = Budget::new(usize::MAX);
    let mut list = RawFreeList::builder(layout(64, 8)).budget(&budget).build();
    let mut live: Vec<Vec<usize>> = Vec::new();
    for round in 0..60 {
        let size = [300, 20_000, 5, 3000][round % 4];
        let before = live.pop();
        let budget = budget.clone();
        let used = move || {
            let objects: Vec<_> =
                (0..size).map(|_| list.alloc().as_ptr().expose_provenance()).collect();
            let free = |address: &usize| {
                let object = core::ptr::with_exposed_provenance_mut(*address);
                // SAFETY: allocated from this list, by this thread or the one before, and freed
                // once.
                unsafe { list.free(NonNull::new(object).expect("an object")) };
            };
            before.iter().flatten().for_each(free);
            let (gone, stay) = objects.split_at(size * 3 / 4);
            gone.iter().rev().for_each(free);
            list::assert_exact(&list, stay.len(), Some(&budget));
            let stay = if round % 5 == 4 {
                stay.iter().for_each(free);
                Vec::new()
            } else {
                stay.to_vec()
            };
            (list, stay)
        };
        let stay;
        (list, stay) = std::thread::spawn(used).join().expect("no panic");
        live.push(stay);
    }
    drop(list);
    assert_eq!(budget.used(), 0);
}

/// An ordinary list has its links in free objects.
#[cfg(system_memory)]
#[test]
fn a_sweep_stops_at_an_overwritten_link() {
    if skipped() {
        return;
    }
    let test = "a_sweep_stops_at_an_overwritten_link";
    type Overwrite = (&'static str, &'static str, fn(usize) -> usize);
    let overwrites: [Overwrite; 3] = [
        ("outside of all chunks", "write after free", |_| 4096),
        ("between two objects", "write after free", |object| object + 24),
        ("back to itself", "double free", |object| object),
    ];
    for (overwrite, _, link) in overwrites {
        if child::is(overwrite) {
            let list = RawFreeList::builder(layout(64, 8)).name("victim").build();
            let objects = stamped(&list, 1000);
            let at = objects[500].start;
            free_all(&list, objects.into_iter().skip(400).take(200));
            // SAFETY: none: the object was freed. The test shows that the write is found.
            unsafe { at.cast::<usize>().write(link(at.addr().get())) };
            list.trim();
            panic!("the trim did not find it");
        }
    }
    if std::env::var_os("ALLOTMENT_TEST_CHILD").is_some() {
        return;
    }
    for (overwrite, words, _) in overwrites {
        let stderr = Child::new(test, overwrite).aborts();
        assert!(stderr.contains(&format!("free list 'victim': {words}")), "{overwrite}: {stderr}");
    }
}
