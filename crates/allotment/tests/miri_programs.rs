//! Short programs over every allocator, as a user writes them. They run everywhere; `.ci/miri` runs them in Miri, so they are
//! small and use no file, no fork and no protected page.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc;

use allotment::{
    Arena, ArenaBox, ArenaString, ArenaVec, Budget, FreeList, Lifetime, ListBox, LocalPool,
    PoolBox, PoolString, PoolVec, RawSlab, Reap, Slab,
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
    // The slab's last object. This thread still has a cache of it, which the next slab's sweep gives up.
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
