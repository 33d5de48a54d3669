//! The fast paths of arenas and free lists, which the golden test disassembles in a build of the
//! library without the standard library. The functions are those of `fast_paths.rs`.
//!
//! To run it: `cargo run --release -p allotment --no-default-features --example
//! fast_paths_without_std`.

use allotment::{Arena, RawFreeList};
use core::alloc::Layout;
use core::ptr::NonNull;

/// Allocates one `u32`, including statistics.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena_alloc_u32(arena: &Arena, value: u32) -> &mut u32 {
    arena.alloc(value)
}

/// Allocates one `u32` in an arena with a minimum alignment of 1.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena1_alloc_u32(arena: &Arena<1>, value: u32) -> &mut u32 {
    arena.alloc(value)
}

/// Allocates one `u32` by the fallible call.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena_try_alloc_u32(arena: &Arena, value: u32) -> Option<&mut u32> {
    arena.try_alloc(value).ok()
}

/// Allocates values in a loop, in an arena that the function makes.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_own_arena_loop(values: u64) -> usize {
    let arena = Arena::new();
    (0..values).fold(0, |_, value| (&raw const *arena.alloc(value)).addr())
}

/// Allocates 64 bytes of words, which are written once.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena_alloc_64(arena: &Arena, word: u64) -> &mut [u64; 8] {
    arena.alloc([word; 8])
}

/// Allocates one object of a free list.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_list_alloc(list: &RawFreeList) -> NonNull<u8> {
    list.alloc()
}

/// Frees one object of a free list.
///
/// # Safety
/// As for [`RawFreeList::free`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_list_free(list: &RawFreeList, object: NonNull<u8>) {
    // SAFETY: guaranteed by the caller.
    unsafe { list.free(object) }
}

fn main() {
    let arena = Arena::new();
    assert_eq!(*golden_arena_alloc_u32(&arena, 7), 7);
    assert_eq!(golden_arena_try_alloc_u32(&arena, 8), Some(&mut 8));
    assert_eq!(*golden_arena1_alloc_u32(&Arena::with_min_align(), 9), 9);
    assert_eq!(*golden_arena_alloc_64(&arena, 5), [5; 8]);
    assert_ne!(golden_own_arena_loop(1000), 0);
    let list = RawFreeList::new(Layout::new::<[u64; 4]>());
    let object = golden_list_alloc(&list);
    // SAFETY: allocated above, freed once.
    unsafe { golden_list_free(&list, object) };
    assert_eq!((list.live(), arena.statistics().live_objects), (0, 3));
}
