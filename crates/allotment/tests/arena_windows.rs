//! Objects at the border of an arena's window: before it, behind it, and larger than it.
#![cfg(system_memory)]

use std::alloc::Layout;

use allotment::{Arena, ArenaVec};

fn bytes(size: usize) -> Layout {
    Layout::from_size_align(size, 1).unwrap()
}

#[test]
fn freeing_an_object_before_the_window_leaves_its_neighbour_alone() {
    let arena = Arena::with_capacity(2 << 20);
    // [0, 24) and [24, 32): both end in the 16 bytes before the next window.
    let first = ArenaVec::<u8>::with_capacity_in(24, &arena);
    let neighbour = arena.alloc(0x1111_2222_3333_4444_u64);
    drop(ArenaVec::<u8>::with_capacity_in(1_500_000, &arena));
    drop(first);
    arena.alloc_slice_copy(&[0xff_u8; 64]);
    assert_eq!(*neighbour, 0x1111_2222_3333_4444);
}

#[test]
fn growing_an_object_before_the_window_leaves_its_neighbour_alone() {
    let arena = Arena::with_capacity(2 << 20);
    let mut first = ArenaVec::<u8>::with_capacity_in(24, &arena);
    let neighbour = arena.alloc(0x1111_2222_3333_4444_u64);
    drop(ArenaVec::<u8>::with_capacity_in(1_500_000, &arena));
    first.extend_from_slice(&[0xff; 48]);
    assert_eq!(*neighbour, 0x1111_2222_3333_4444);
}

#[test]
fn an_object_shrunk_within_its_padding_and_then_freed_as_the_last_is_counted_right() {
    let arena = Arena::with_capacity(4000);
    let first = arena.alloc_layout(bytes(15));
    let other = arena.alloc_layout(bytes(8));
    // SAFETY: both are the arena's, of these layouts, and not used after they are freed.
    unsafe {
        arena.try_resize(first, bytes(15), bytes(9)).unwrap();
        assert_eq!(arena.statistics().live_bytes, 17);
        arena.free_layout(other, bytes(8));
        arena.free_layout(first, bytes(9));
    }
    let next = arena.alloc(7_u64);
    assert_eq!(*next, 7);
    let statistics = arena.statistics();
    assert_eq!((statistics.live_objects, statistics.live_bytes), (1, 8));
}

#[test]
fn a_shrunk_object_of_padded_positions_can_be_freed_as_the_last() {
    let arena = Arena::<16>::with_min_align();
    arena.alloc(0_u8);
    let a = arena.alloc_layout(bytes(30));
    let b = arena.alloc_layout(bytes(1));
    // SAFETY: as above.
    unsafe {
        arena.try_resize(a, bytes(30), bytes(20)).unwrap();
        arena.free_layout(b, bytes(1));
        arena.free_layout(a, bytes(20));
    }
    let statistics = arena.statistics();
    assert_eq!((statistics.live_objects, statistics.live_bytes), (1, 1));
}

#[test]
fn a_layout_that_lies_about_its_size_moves_no_position_out_of_the_chunk() {
    let mut arena = Arena::with_capacity(4000);
    let object = arena.alloc_layout(bytes(5));
    // SAFETY: the object is the arena's. It is older than the scope that shrinks it, which breaks
    // the contract, so the count of bytes may be wrong afterwards. The arena must stay intact.
    unsafe {
        arena.scope(|scope| assert_eq!(scope.try_resize(object, bytes(5), bytes(3)), Ok(object)));
        arena.free_layout(object, bytes(3));
    }
    let next = arena.alloc(7_u64);
    assert_eq!(std::ptr::from_ref(next).addr(), object.addr().get(), "the bytes are used again");
    assert_eq!(arena.statistics().live_objects, 1);
}

#[test]
fn an_object_that_grows_over_window_after_window_stays_in_place() {
    let arena = Arena::with_capacity(8 << 20);
    let mut vec = ArenaVec::<u64>::new_in(&arena);
    vec.push(0);
    let first = vec.as_ptr();
    for number in 1..1_000_000 {
        vec.push(number);
    }
    assert_eq!(vec.as_ptr(), first, "nothing else was allocated, and the chunk has room");
    assert!((0..1_000_000).eq(vec.iter().copied()));
    let live = (vec.capacity() * 8) as u64;
    assert_eq!(arena.statistics().live_bytes, live);
    drop(vec);
    assert_eq!(arena.statistics().live_bytes, 0);
}
