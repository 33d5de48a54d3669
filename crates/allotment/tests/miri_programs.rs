//! Short programs over every allocator, as a user writes them. They run everywhere; `.ci/miri` runs
//! them in Miri, so they are small and use no file, no fork and no protected page.
#![cfg(system_memory)]

use std::cell::Cell;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::mpsc;

use allotment::arena::Retain;
use allotment::collections::{BlockSource, StringIn, VecIn};
use allotment::sealed::PublishedGuard;
use allotment::slab::{Lifetime, SlabSlot};
use allotment::{
    Arena, ArenaBox, ArenaString, ArenaVec, Budget, FreeList, ListBox, LocalPool, Malloc, PoolBox,
    PoolString, PoolVec, Published, RawSlab, Reap, Sealed, Slab, format_in, pool, recycler,
    unsize_box,
};
use std::alloc::Layout;

/// Objects in a program: enough for several chunks and pages.
const OBJECTS: usize = if cfg!(miri) { 300 } else { 3_000 };

#[test]
fn an_arena_keeps_values_of_every_size_until_its_reset() {
    let budget = Budget::new(64 << 20);
    let mut arena = Arena::builder().budget(&budget).build();
    for round in 0..3u64 {
        let numbers: Vec<_> = (0..OBJECTS).map(|n| arena.alloc(n as u64 + round)).collect();
        let blocks: Vec<_> = (0..OBJECTS / 10).map(|n| arena.alloc([n as u8; 500])).collect();
        let text = arena.alloc_str("text");
        assert!((0..).zip(&numbers).all(|(n, number)| **number == n + round));
        assert!((0..).zip(&blocks).all(|(n, block)| block.iter().all(|byte| *byte == n as u8)));
        assert_eq!(text, "text");
        *arena.alloc(1) += 1;
        arena.reset();
    }
    drop(arena);
    assert_eq!(budget.used(), 0);
}

#[test]
fn scopes_of_an_arena_nest_and_their_boxes_drop_their_values() {
    struct Counted<'c>(&'c Cell<usize>);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let drops = Cell::new(0);
    let mut arena = Arena::new();
    let outer = arena.alloc(7).to_owned();
    arena.scope(|scope| {
        let kept: ArenaBox<'_, Counted<'_>> = scope.alloc_boxed(Counted(&drops));
        let mut numbers = ArenaVec::new_in(scope);
        numbers.extend(0..OBJECTS);
        assert_eq!(numbers.iter().sum::<usize>(), OBJECTS * (OBJECTS - 1) / 2);
        let mut text = ArenaString::new_in(scope);
        (0..OBJECTS / 10).for_each(|_| text.push_str("piece "));
        assert_eq!(text.len(), OBJECTS / 10 * 6);
        drop(kept);
    });
    assert_eq!((drops.get(), outer), (1, 7));
}

#[test]
fn a_free_list_builds_prunes_and_drops_a_list() {
    struct Node<'l> {
        key: usize,
        next: Option<ListBox<'l, Node<'l>>>,
    }
    let nodes = FreeList::new();
    let mut head: Option<ListBox<'_, Node<'_>>> = None;
    for key in 0..OBJECTS {
        head = Some(nodes.alloc(Node { key, next: head.take() }));
        if key % 3 == 0 {
            head = head.take().and_then(|mut first| first.next.take());
        }
    }
    let mut left = 0;
    while let Some(mut first) = head {
        assert!(first.key % 3 != 0);
        head = first.next.take();
        left += 1;
    }
    assert_eq!(left, OBJECTS - OBJECTS.div_ceil(3));
    assert_eq!(nodes.statistics().live_objects, 0);
}

#[test]
fn a_slab_outlives_its_name_and_its_thread() {
    let slab = Slab::<String>::new();
    let kept = slab.alloc("kept".to_owned());
    std::thread::spawn(move || drop(slab)).join().expect("no panic");
    assert_eq!(*kept, "kept");
    // The slab's last object. This thread still has a cache of it, which the next slab's sweep
    // gives up.
    drop(kept);
    drop(Slab::<u64>::new().alloc(1));
}

#[test]
fn slots_go_from_thread_to_thread_and_back() {
    let slab = Slab::<[usize; 6]>::new();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        let slab = &slab;
        scope.spawn(move || {
            for n in 0..OBJECTS {
                let lifetime = if n % 7 == 0 { Lifetime::Long } else { Lifetime::Short };
                sender.send(slab.alloc_for(lifetime, [n; 6])).expect("the receiver waits");
            }
        });
        for (n, object) in receiver.iter().enumerate() {
            assert_eq!(*object, [n; 6]);
        }
    });
    slab.trim();
    assert_eq!(slab.statistics().live_objects, 0);
}

#[test]
fn handles_of_a_raw_slab_allocate_beside_ordinary_calls() {
    let slab = RawSlab::new(Layout::new::<[u64; 5]>());
    let handle = slab.handle();
    let slots: Vec<_> =
        (0..OBJECTS).map(|n| if n % 2 == 0 { handle.alloc() } else { slab.alloc() }).collect();
    for (n, slot) in slots.iter().enumerate() {
        // SAFETY: allocated above, 40 bytes each, freed once below.
        unsafe { slot.cast::<[u64; 5]>().write([n as u64; 5]) };
    }
    for (n, slot) in slots.iter().enumerate() {
        // SAFETY: as above.
        unsafe {
            assert_eq!(slot.cast::<[u64; 5]>().read(), [n as u64; 5]);
            if n % 3 == 0 { handle.free(*slot) } else { slab.free(*slot) }
        }
    }
    drop(handle);
    assert_eq!(slab.statistics().live_objects, 0);
}

#[test]
fn a_reap_frees_one_by_one_and_all_at_once() {
    let mut reap = Reap::new();
    for round in 0..2 {
        let mut live = Vec::new();
        for n in 0..OBJECTS {
            let layout =
                Layout::from_size_align(1 + n * 7 % 900, 1 << (n % 5)).expect("a power of two");
            let block = reap.alloc_layout(layout);
            // SAFETY: allocated with this layout.
            unsafe { block.write_bytes(n as u8, layout.size()) };
            live.push((block, layout, n as u8));
            if n % 3 == 0 {
                let (block, layout, byte) = live.swap_remove(n % live.len());
                // SAFETY: live, with this layout, and forgotten here.
                unsafe {
                    assert_eq!(block.read(), byte);
                    reap.free_layout(block, layout);
                }
            }
        }
        assert!(!live.is_empty(), "{round}");
        reap.reset();
    }
}

#[test]
fn a_pool_serves_its_thread_and_frees_from_another_come_back() {
    let pool = LocalPool::new();
    let values: Vec<PoolBox<[usize; 4]>> =
        pool.enter(|| (0..OBJECTS).map(|n| PoolBox::new([n; 4])).collect());
    std::thread::spawn(move || {
        for (n, value) in values.into_iter().enumerate() {
            assert_eq!(*value, [n; 4]);
        }
    })
    .join()
    .expect("no panic");
    pool.enter(|| {
        let mut numbers = PoolVec::new();
        numbers.extend(0..OBJECTS);
        let mut text = PoolString::new();
        (0..50).for_each(|_| text.push_str("word "));
        assert_eq!((numbers.len(), text.len()), (OBJECTS, 250));
    });
}

#[test]
fn what_escapes_a_pool_stays_valid() {
    let shared = Rc::new(Cell::new(0));
    let escaped = {
        let pool = LocalPool::new();
        pool.enter(|| PoolBox::new(shared.clone()))
    };
    escaped.set(3);
    drop(escaped);
    assert_eq!((shared.get(), Rc::strong_count(&shared)), (3, 1));
}

/// Every call that moves values inside a vector or string, in one kind of memory.
#[test]
fn pools_with_and_without_a_budget_take_over_what_ended_ones_left() {
    let budget = Budget::new(1 << 20);
    let mut kept = Vec::new();
    for round in 0..6 {
        let pool = match round % 3 {
            0 => LocalPool::new(),
            1 => LocalPool::builder().budget(&budget).build(),
            _ => LocalPool::builder().maximum(1 << 20).build(),
        };
        let numbers: Vec<_> = pool.enter(|| (0..40).map(|n| PoolBox::new([n; 5])).collect());
        let mut text = PoolString::new_in(pool.reference());
        (0..20).for_each(|_| text.push_str("a text that grows "));
        if round == 4 {
            pool.trim();
        }
        drop(pool);
        // Some blocks are freed after the end, by another thread too.
        let mut numbers = numbers;
        numbers.truncate(35);
        std::thread::spawn(move || drop(text)).join().unwrap();
        kept.extend(numbers);
    }
    assert_eq!(kept.iter().map(|numbers| numbers[4]).sum::<usize>(), 6 * 35 * 34 / 2);
    assert_eq!(budget.used(), 0);
}

#[test]
fn what_a_pool_with_a_limit_took_over_is_freed_inside_and_used_within_the_limit() {
    let first = LocalPool::new();
    let mut escapes: Vec<_> =
        (0..200u8).map(|n| PoolBox::new_in([n; 500], first.reference())).collect();
    drop(first);
    let pool = LocalPool::builder().maximum(10_000).build();
    let used = |pool: &LocalPool| {
        let boxes = (0..200u8).map_while(|n| PoolBox::try_new_in([n; 500], pool.reference()).ok());
        let boxes: Vec<_> = boxes.collect();
        assert!(boxes.iter().zip(0u8..).all(|(boxed, n)| **boxed == [n; 500]));
        boxes
    };
    let other = escapes.split_off(150);
    std::thread::spawn(move || drop(other)).join().unwrap();
    escapes.truncate(50);
    // In pass-through mode nothing is limited. A test beside this one may take the escapes over.
    let most = if LocalPool::any_holds(&raw const *escapes[0]) { 10_000 / 512 } else { 200 };
    assert!(used(&pool).len() <= most);
    pool.trim();
    assert!(used(&pool).len() <= most);
    assert!(escapes.iter().zip(0u8..).all(|(boxed, n)| **boxed == [n; 500]));
    drop(pool);
    drop(escapes);
}

#[test]
fn a_large_block_of_a_pool_grows_and_shrinks_in_place_and_another_thread_frees_it() {
    let pool = LocalPool::new();
    let layout = |bytes| Layout::from_size_align(bytes, 8).unwrap();
    let block = pool.alloc_layout(layout(100_000));
    // SAFETY: the block is resized and freed as it was allocated, and its bytes are in it.
    unsafe {
        block.write_bytes(7, 100_000);
        let longer = pool.resize(block, layout(100_000), layout(900_000));
        let shorter = pool.resize(longer, layout(900_000), layout(50_000));
        assert!((0..50_000).step_by(997).all(|at| shorter.add(at).read() == 7));
        pool.free_layout(shorter, layout(50_000));
    }
    let mut reply = VecIn::with_capacity_in(5 << 20, pool.reference());
    reply.push(7u8);
    std::thread::spawn(move || drop(reply)).join().unwrap();
    assert_eq!(pool.statistics().live_objects, 0);
}

#[test]
fn pools_are_left_in_any_order() {
    let (first, second) = (LocalPool::new(), LocalPool::new());
    // SAFETY: each pool is left below, before it ends.
    unsafe {
        let before_first = first.enter_unguarded();
        let before_second = second.enter_unguarded();
        first.leave_to(before_first);
        drop(first);
        second.leave_to(before_second);
    }
    assert_eq!(*PoolBox::new(7), 7);
    second.enter(|| pool::outside(|| assert_eq!(*PoolBox::new(8), 8)));
}

fn collections_in<S: BlockSource>(source: S) {
    let count = 15;
    let text = |number: u32| number.to_string();
    let mut vec = VecIn::from_iter_in((0..count).map(text), source);
    vec.insert(0, text(count));
    vec.insert(5, text(count));
    assert_eq!((vec.remove(0), vec.swap_remove(4)), (text(count), text(count)));
    vec.retain(|number| number.len() < 3);
    vec.dedup_by_key(|number| number.len());
    assert_eq!(*vec, ["0", "14", "4", "10"]);
    vec.resize(8, text(7));
    let clones = vec.to_vec();
    vec.extend_from_slice(&clones);
    let mut drain = vec.drain(2..9);
    assert_eq!(
        (drain.next(), drain.next_back()),
        (Some(clones[2].clone()), Some(clones[0].clone()))
    );
    drop(drain);
    let mut tail = vec.split_off(4);
    tail.append(&mut vec);
    for number in &mut tail {
        number.push('!');
    }
    tail.shrink_to_fit();
    let mut values = tail.into_iter();
    assert!(values.next().is_some() && values.next_back().is_some());
    assert_eq!(values.rev().count(), 7);
    let mut units = VecIn::new_in(source);
    units.resize(5, ());
    assert_eq!(units.into_iter().count(), 5);

    let mut string = StringIn::from_str_in("größe", source);
    string.insert_str(0, "die ");
    string.insert(4, '☂');
    assert_eq!((string.remove(4), string.pop()), ('☂', Some('e')));
    string.retain(|character| character != 'i');
    let end = string.split_off(3);
    string += &end;
    assert_eq!(string, "de größ");
}

#[test]
fn collections_move_their_values_as_those_of_std() {
    let (arena, pool, reap) = (Arena::new(), LocalPool::new(), Reap::new());
    collections_in(&arena);
    collections_in(pool.reference());
    collections_in(&pool);
    collections_in(&reap);
}

#[test]
fn slices_of_a_scope_and_boxes_of_trait_objects_stay_valid() {
    let mut arena = Arena::new();
    arena.scope(|outer| {
        let numbers = ArenaVec::from_iter_in(0..50, outer).into_slice_in(outer);
        let boxed = ArenaVec::from_iter_in((0..5).map(|n| n.to_string()), outer);
        let boxed = boxed.into_boxed_slice_in(outer);
        let name = ArenaString::from_str_in("name", outer).into_str_in(outer);
        outer.scope(|inner| {
            numbers[0] = ArenaVec::from_iter_in(numbers.iter().copied(), inner).len();
            name.make_ascii_uppercase();
        });
        assert_eq!((numbers[0], &*name, &*boxed[4]), (50, "NAME", "4"));
        let shown: ArenaBox<'_, dyn Display + '_> = unsize_box!(outer.alloc_boxed(text_of(3)));
        assert_eq!(shown.to_string(), "3");
    });
    let pool = LocalPool::new();
    let mut boxes: PoolVec<PoolBox<dyn Display>> = PoolVec::new_in(pool.reference());
    boxes.push(unsize_box!(PoolBox::new_in(text_of(3), pool.reference())));
    boxes.push(unsize_box!(PoolBox::new_in(4, pool.reference())));
    assert_eq!(format!("{}{}", boxes[0], boxes[1]), "34");
    assert_eq!(PoolBox::into_inner(PoolBox::new(text_of(5))), "5");
}

fn text_of(number: u32) -> String {
    number.to_string()
}

#[test]
fn chunks_that_a_scope_kept_are_used_again_and_its_objects_are_freed_in_any_order() {
    for hardened in [false, true] {
        let retain = Retain::UpTo(1 << 20);
        let mut arena = Arena::builder().source(Malloc).retain(retain).hardened(hardened).build();
        let layout = Layout::from_size_align(2000, 8).unwrap();
        let kept = arena.alloc_slice_copy(&[7u8; 100]).as_ptr();
        for _ in 0..if cfg!(miri) { 2 } else { 3 } {
            arena.scope(|scope| {
                let objects: Vec<_> = (0..8).map(|_| scope.alloc_layout(layout)).collect();
                for index in [7, 0, 3, 6, 1, 5, 2, 4] {
                    // SAFETY: live, of this layout, and of the scope.
                    unsafe {
                        objects[index].write_bytes(index as u8, 2000);
                        scope.free_layout(objects[index], layout);
                    }
                }
                scope.scope(|inner| inner.alloc_slice_copy(&[1u8; 9000]).len());
                assert_eq!(format_in!(scope, "{}.{}", 1, "two"), "1.two");
            });
        }
        assert!(arena.statistics().chunks > 1);
        // SAFETY: older than the scopes, and not freed.
        assert_eq!(unsafe { kept.add(99).read() }, 7);
    }
}

#[test]
fn small_arenas_that_two_threads_drop_give_their_chunks_back() {
    const ARENAS: usize = if cfg!(miri) { 16 } else { 40 };
    let fill = |arena: &Arena, number: usize| {
        let bytes = arena.alloc_slice_copy(&[number as u8; 100]);
        (arena.alloc(number) as *const usize, bytes.as_ptr())
    };
    // The chunk of this arena is lent to the first of the small ones.
    Arena::with_capacity(40_000).alloc(1);
    let mut arenas: Vec<Option<(Arena, usize)>> = Vec::new();
    for number in 0..ARENAS {
        let arena = Arena::new();
        fill(&arena, number);
        arenas.push(Some((arena, number)));
    }
    let others: Vec<_> = arenas.iter_mut().step_by(2).filter_map(Option::take).collect();
    std::thread::spawn(move || drop(others)).join().expect("no panic");
    recycler().trim();
    for (arena, number) in arenas.into_iter().flatten() {
        let (word, bytes) = fill(&arena, number);
        // SAFETY: allocated in this arena, which lives.
        assert_eq!(unsafe { (word.read(), bytes.add(99).read()) }, (number, number as u8));
    }
    recycler().trim();
}

#[test]
fn slots_of_a_slab_are_filled_moved_and_left() {
    let slab = Slab::<String>::new();
    let handle = slab.handle();
    let slots: Vec<SlabSlot<String>> =
        (0..10).map(|n| if n % 2 == 0 { slab.alloc_slot() } else { handle.alloc_slot() }).collect();
    let made: Vec<_> = (0..10).map(|n| slab.alloc_with(|| format!("made {n}"))).collect();
    let filled: Vec<_> = slots
        .into_iter()
        .enumerate()
        .filter_map(|(n, slot)| (n % 3 != 0).then(|| slot.fill(format!("filled {n}"))))
        .collect();
    drop(handle);
    std::thread::spawn(move || {
        assert_eq!((made[9].as_str(), filled[0].as_str()), ("made 9", "filled 1"));
        drop((made, filled));
    })
    .join()
    .expect("no panic");
    slab.trim();
    assert_eq!(slab.statistics().live_objects, 0);
}

#[test]
fn sealed_values_are_read_by_another_thread_and_dropped_there() {
    let config = Sealed::<(&'static str, &'static [u32])>::new(|sealer| {
        (sealer.alloc_str("text"), sealer.alloc_slice_from_iter(0..100))
    });
    let read = |config: &Sealed<(&'static str, &'static [u32])>| {
        let (text, numbers) = config.get();
        assert_eq!((text.len(), numbers.iter().sum::<u32>()), (4, 4950));
    };
    read(&config);
    std::thread::spawn(move || read(&config)).join().expect("no panic");
}

#[test]
fn a_published_value_is_replaced_while_other_threads_read_it() {
    let published = Published::new(vec![1u64; 10]);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let reading = published.read();
                    let other = published.read();
                    assert!(PublishedGuard::generation(&other) >= reading[0]);
                    assert!(reading.iter().all(|&number| number == reading[0]));
                }
            });
        }
        for generation in 2..10 {
            assert_eq!(published.publish(vec![generation; 10]), generation);
        }
    });
    let kept = published.read();
    assert_eq!(published.publish(vec![]), 10);
    assert_eq!((kept[0], published.retired()), (9, 1));
    drop(kept);
    assert_eq!(published.retired(), 0);
}
