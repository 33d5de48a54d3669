//! A vector that grows to many MiB in an arena, in a process of its own: the recycler's chunks are
//! this test's alone.
#![cfg(system_memory)]

use allotment::{Arena, ArenaVec, Budget};

/// Pushes until the vector has `bytes` bytes. Returns how often it has moved since it had 1 MiB.
fn moves(arena: &Arena, bytes: usize) -> usize {
    let mut vec = ArenaVec::new_in(arena);
    let (mut at, mut moves) = (vec.as_ptr(), 0);
    for number in 0..bytes as u64 / 8 {
        vec.push(number);
        if at != vec.as_ptr() {
            at = vec.as_ptr();
            moves += usize::from(size_of_val(vec.as_slice()) > 1 << 20);
        }
    }
    assert!(vec.iter().copied().eq(0..bytes as u64 / 8));
    moves
}

#[test]
fn a_vector_that_reaches_a_mib_moves_to_a_warm_chunk_with_room_and_stays_there() {
    let mut arena = Arena::new();
    // The first rounds teach the recycler how much to keep.
    let rounds: Vec<usize> = (0..8)
        .map(|_| {
            arena.reset();
            moves(&arena, 8_000_000)
        })
        .collect();
    assert_eq!(rounds.last(), Some(&0), "{rounds:?}");

    // A budget would be charged for the room, so there is none.
    let budget = Budget::new(1 << 30);
    let limited = Arena::builder().budget(&budget).build();
    let vec: ArenaVec<'_, u64> = ArenaVec::from_iter_in(0..150_000, &limited);
    assert!(budget.used() <= 6 << 20, "{} bytes for {}", budget.used(), vec.len() * 8);
}
