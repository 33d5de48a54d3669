//! The calls for raw layouts mean the same in an arena, a reap, a pool and a reference to a pool;
//! and every call has its `try_` twin.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;

use allotment::{Arena, Budget, ErrorKind, FreeList, LocalPool, PoolRef, RawSlab, Reap, Slab};
use support::subject::assert_over_budget;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

fn bytes(block: NonNull<u8>, len: usize) -> Vec<u8> {
    // SAFETY: the callers pass live blocks of at least this length, with initialised bytes.
    unsafe { core::slice::from_raw_parts(block.as_ptr(), len) }.to_vec()
}

fn fill(block: NonNull<u8>, len: usize) -> Vec<u8> {
    // SAFETY: the callers pass live blocks of at least this length.
    (0..len).for_each(|index| unsafe { block.add(index).write(index as u8) });
    bytes(block, len)
}

/// Runs `$check` for an allocator of each kind, which has the calls for raw layouts.
macro_rules! with_each {
    ($check:ident $(, $option:ident($value:expr))*) => {{
        $check!(<Arena>::builder()$(.$option($value))*.build());
        $check!(Reap::builder()$(.$option($value))*.build());
        $check!(LocalPool::builder()$(.$option($value))*.build());
        let pool = LocalPool::builder()$(.$option($value))*.build();
        $check!(pool.reference());
    }};
}

#[test]
fn a_block_keeps_its_first_bytes_when_its_size_and_alignment_change() {
    const LAYOUTS: [(usize, usize); 9] = [
        (24, 8),
        (100, 8),
        (40, 8),
        (40, 64),
        (5000, 64),
        (5000, 8),
        (100_000, 16),
        (100_000, 4096),
        (1, 1),
    ];
    macro_rules! check {
        ($memory:expr) => {{
            let memory = $memory;
            let mut old = layout(LAYOUTS[0].0, LAYOUTS[0].1);
            let mut block = memory.alloc_layout(old);
            let mut expected = fill(block, old.size());
            for (index, (size, align)) in LAYOUTS.into_iter().enumerate().skip(1) {
                let new = layout(size, align);
                // SAFETY: a live block of this layout, used at its new address only.
                block = unsafe {
                    match index % 2 {
                        0 => memory.resize(block, old, new),
                        _ => memory.try_resize(block, old, new).unwrap(),
                    }
                };
                let kept = old.size().min(size);
                assert_eq!(block.addr().get() % align, 0);
                assert_eq!(bytes(block, kept), expected[..kept]);
                expected = fill(block, size);
                old = new;
            }
            // SAFETY: as above; freed once.
            unsafe { memory.free_layout(block, old) };
        }};
    }
    for hardened in [false, true] {
        with_each!(check, hardened(hardened));
    }
}

#[test]
fn a_zeroed_block_is_zero_also_where_a_freed_one_was() {
    macro_rules! check {
        ($memory:expr) => {{
            let memory = $memory;
            for size in [1, 24, 1000, 70_000] {
                let of_size = layout(size, 16);
                let used = memory.alloc_layout(of_size);
                fill(used, size);
                // SAFETY: allocated above, freed once.
                unsafe { memory.free_layout(used, of_size) };
                assert_eq!(bytes(memory.alloc_layout_zeroed(of_size), size), vec![0; size]);
                let again = memory.try_alloc_layout_zeroed(of_size).unwrap();
                assert_eq!(bytes(again, size), vec![0; size]);
            }
        }};
    }
    with_each!(check);
}

#[test]
fn a_refused_call_panics_and_its_twin_returns_the_error() {
    const MAXIMUM: usize = 512 << 10;
    const TOO_MUCH: usize = 1 << 20;
    macro_rules! check {
        ($memory:expr) => {{
            let memory = $memory;
            let (small, large) = (layout(100, 8), layout(TOO_MUCH, 8));
            let over = Err(ErrorKind::BudgetExceeded);
            let block = memory.alloc_layout(small);
            let before = fill(block, 100);
            assert_eq!(memory.try_alloc_layout(large).map_err(|error| error.kind()), over);
            assert_eq!(memory.try_alloc_layout_zeroed(large).map_err(|error| error.kind()), over);
            // SAFETY: a live block of this layout; a refused call leaves it as it was.
            unsafe {
                let resized = memory.try_resize(block, small, large);
                assert_eq!(resized.map_err(|error| error.kind()), over);
                assert_over_budget(MAXIMUM, || memory.resize(block, small, large));
            }
            assert_over_budget(MAXIMUM, || memory.alloc_layout(large));
            assert_over_budget(MAXIMUM, || memory.alloc_layout_zeroed(large));
            assert_eq!(bytes(block, 100), before);
            // SAFETY: as above; freed once.
            unsafe { memory.free_layout(block, small) };
        }};
    }
    with_each!(check, maximum(MAXIMUM));
}

#[test]
fn a_reference_frees_and_resizes_blocks_of_the_global_heap() {
    let (old, new) = (layout(100, 8), layout(200, 64));
    let block = PoolRef::GLOBAL.alloc_layout(old);
    let expected = fill(block, 100);
    let pool = LocalPool::new();
    // SAFETY: a live block of this layout, used at its new address only, and freed once.
    unsafe {
        let moved = pool.reference().resize(block, old, new);
        assert_eq!(bytes(moved, 100), expected);
        PoolRef::GLOBAL.free_layout(moved, new);
    }
    assert_eq!(pool.statistics().live_objects, 0);
}

#[test]
fn a_slice_of_a_constructor_that_may_fail_is_whole_or_its_error() {
    let (arena, reap) = (Arena::new(), Reap::new());
    let even = |index: usize| if index < 5 { Ok(index * 2) } else { Err(index) };
    for fifth in [arena.alloc_slice_try_with(4, even), reap.alloc_slice_try_with(4, even)] {
        assert_eq!(fifth.unwrap(), [0, 2, 4, 6]);
    }
    assert_eq!(arena.alloc_slice_try_with(9, even), Err(5));
    assert_eq!(reap.alloc_slice_try_with(9, even), Err(5));
    assert_eq!((arena.statistics().live_objects, reap.statistics().live_objects), (1, 1));
    let arena = Arena::builder().maximum(4096).build();
    assert_over_budget(4096, || arena.alloc_slice_try_with(10_000, Ok::<usize, ()>));
}

#[test]
fn the_twins_of_constructors_and_reservations_return_the_error() {
    assert_eq!(Arena::try_new().unwrap().statistics().held_bytes, 0);
    assert_eq!(Slab::<u64>::try_new().unwrap().statistics().live_objects, 0);
    let slab = Slab::<[u64; 100]>::builder().maximum(100_000).build();
    assert_eq!(slab.try_reserve(1000).unwrap_err().kind(), ErrorKind::BudgetExceeded);
    slab.try_reserve(10).unwrap();
    assert!(slab.statistics().held_bytes >= 10 * 800);
}

#[test]
fn a_typed_allocator_has_the_name_of_the_untyped_one_beneath_it() {
    let budget = Budget::new(1 << 20);
    let slab = Slab::<u64>::builder().name("typed").budget(&budget).build();
    assert_eq!((slab.name(), slab.raw().name()), (Some("typed"), Some("typed")));
    let list = FreeList::<u64>::builder().name("typed").build();
    assert_eq!((list.name(), list.raw().name()), (Some("typed"), Some("typed")));
    assert_eq!(RawSlab::new(Layout::new::<u64>()).name(), None);
}
