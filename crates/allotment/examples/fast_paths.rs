//! The fast paths that the golden test disassembles, each in a function of its own.
//!
//! Run it to see that they work: `cargo run --release --example fast_paths`.

use allotment::{Arena, RawFreeList, RawSlab, RawSlabHandle, SlabBox};
use core::alloc::Layout;
use core::ptr::NonNull;

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

/// A slot by the ordinary call.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_slab_alloc(slab: &RawSlab) -> NonNull<u8> {
    slab.alloc()
}

/// A slot by the ordinary call.
///
/// # Safety
/// As for [`RawSlab::free`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_slab_free(slab: &RawSlab, slot: NonNull<u8>) {
    // SAFETY: passed on to the caller.
    unsafe { slab.free(slot) }
}

/// A slot by a handle.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_handle_alloc(handle: &RawSlabHandle<'_>) -> NonNull<u8> {
    handle.alloc()
}

/// A slot by a handle.
///
/// # Safety
/// As for [`RawSlab::free`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_handle_free(handle: &RawSlabHandle<'_>, slot: NonNull<u8>) {
    // SAFETY: passed on to the caller.
    unsafe { handle.free(slot) }
}

/// A box, dropped.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_slab_box_drop(boxed: SlabBox<u64>) {
    drop(boxed);
}

/// An object of a free list.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_list_alloc(list: &RawFreeList) -> NonNull<u8> {
    list.alloc()
}

/// An object of a free list.
///
/// # Safety
/// As for [`RawFreeList::free`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_list_free(list: &RawFreeList, object: NonNull<u8>) {
    // SAFETY: passed on to the caller.
    unsafe { list.free(object) }
}

fn main() {
    let list = RawFreeList::new(Layout::new::<u64>());
    let object = golden_list_alloc(&list);
    // SAFETY: allocated above, freed once.
    unsafe { golden_list_free(&list, object) };
    let slab = RawSlab::new(Layout::new::<u64>());
    let handle = slab.handle();
    let slots = [golden_slab_alloc(&slab), golden_handle_alloc(&handle)];
    // SAFETY: allocated above, freed once.
    unsafe {
        golden_slab_free(&slab, slots[0]);
        golden_handle_free(&handle, slots[1]);
    }
    golden_slab_box_drop(allotment::Slab::new().alloc(7));
    let arena = Arena::new();
    let first = golden_arena_alloc_u32(&arena, 7);
    let second = golden_arena_try_alloc_u32(&arena, 8);
    let packed = Arena::<1>::with_min_align();
    let third = golden_arena1_alloc_u32(&packed, 9);
    println!("{first} {second:?} {third}, {:?}", arena.statistics());
}
