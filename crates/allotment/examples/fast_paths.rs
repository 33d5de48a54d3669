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

/// One `u64` in an arena whose positions are always aligned for it.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena8_alloc_u64(arena: &Arena<8>, value: u64) -> &mut u64 {
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
    let aligned = Arena::<8>::with_min_align();
    let third = golden_arena8_alloc_u64(&aligned, 9);
    println!("{first} {second:?} {third}, {:?}", arena.statistics());
}
