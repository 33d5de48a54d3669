//! The fast paths that the golden test disassembles, each in a function of its own.
//!
//! Run it to see that they work: `cargo run --release --example fast_paths`.

use allotment::Arena;

/// One `u32`, statistics included.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena_alloc_u32(arena: &Arena, value: u32) -> &mut u32 {
    arena.alloc(value)
}

/// One `u32` in an arena that packs to the byte.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena1_alloc_u32(arena: &Arena<1>, value: u32) -> &mut u32 {
    arena.alloc(value)
}

/// One `u32` from the fallible twin.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena_try_alloc_u32(arena: &Arena, value: u32) -> Option<&mut u32> {
    arena.try_alloc(value).ok()
}

fn main() {
    let arena = Arena::new();
    let first = golden_arena_alloc_u32(&arena, 7);
    let second = golden_arena_try_alloc_u32(&arena, 8);
    let packed = Arena::<1>::with_min_align();
    let third = golden_arena1_alloc_u32(&packed, 9);
    println!("{first} {second:?} {third}, {:?}", arena.statistics());
}
