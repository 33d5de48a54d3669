//! The fast paths that the golden test disassembles, each in a separate function.
//!
//! To run it: `cargo run --release -p allotment --example fast_paths`.

use allotment::collections::VecIn;
use allotment::pool::ReapBox;
use allotment::sealed::PublishedGuard;
use allotment::slab::{Lifetime, RawSlabHandle, SlabHandle};
use allotment::{
    Arena, ArenaBox, ArenaVec, FreeList, ListBox, LocalPool, PoolBox, PoolGlobalAlloc, PoolRef,
    PoolVec, Published, RawFreeList, RawSlab, Reap, Sealed, Sealer, Slab, SlabBox,
};
use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::GlobalAlloc;
use std::hint::black_box;

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

/// Frees an object of an arena, perhaps inside a scope.
///
/// # Safety
/// As for [`Arena::free_layout`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_arena_free(arena: &Arena, object: NonNull<u8>, size: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { arena.free_layout(object, small(size)) }
}

/// A value of `COUNT` elements that are not known at compile time. The compiler keeps words in
/// registers until it knows their address. It fills an array of bytes in memory at once.
#[derive(Clone, Copy)]
pub struct Value<E, const COUNT: usize>([E; COUNT]);

/// A value of `COUNT` elements that has a destructor.
pub struct Dropped<E, const COUNT: usize>([E; COUNT]);

impl<E, const COUNT: usize> Drop for Dropped<E, COUNT> {
    #[inline(never)]
    fn drop(&mut self) {
        black_box(self.0.as_ptr());
    }
}

/// Functions that allocate a value, for each size: a module, the elements, and the end of the
/// symbols' names. The function `arena_alloc` for 64 bytes is the symbol `golden_arena_alloc_64`.
macro_rules! values {
    ($($size:ident: $count:literal of $element:ty, $bytes:literal;)*) => {
        $(mod $size {
            use super::*;

            #[unsafe(export_name = concat!("golden_arena_alloc_", $bytes))]
            #[inline(never)]
            pub fn arena_alloc(arena: &Arena, word: $element) -> &mut Value<$element, $count> {
                arena.alloc(Value([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_arena_try_alloc_", $bytes))]
            #[inline(never)]
            pub fn arena_try_alloc(arena: &Arena, word: $element) -> Option<&mut Value<$element, $count>> {
                arena.try_alloc(Value([word; $count])).ok()
            }

            #[unsafe(export_name = concat!("golden_arena_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn arena_alloc_with(arena: &Arena, word: $element) -> &mut Value<$element, $count> {
                arena.alloc_with(|| Value([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_arena_try_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn arena_try_alloc_with(arena: &Arena, word: $element) -> Option<&mut Value<$element, $count>> {
                arena.try_alloc_with(|| Value([word; $count])).ok()
            }

            #[unsafe(export_name = concat!("golden_arena_alloc_boxed_", $bytes))]
            #[inline(never)]
            pub fn arena_alloc_boxed(arena: &Arena, word: $element) -> ArenaBox<'_, Dropped<$element, $count>> {
                arena.alloc_boxed(Dropped([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_arena_try_alloc_boxed_", $bytes))]
            #[inline(never)]
            pub fn arena_try_alloc_boxed(arena: &Arena, word: $element) -> Option<ArenaBox<'_, Dropped<$element, $count>>> {
                arena.try_alloc_boxed(Dropped([word; $count])).ok()
            }

            #[unsafe(export_name = concat!("golden_arena_alloc_undropped_", $bytes))]
            #[inline(never)]
            pub fn arena_alloc_undropped(arena: &Arena, word: $element) -> &mut Dropped<$element, $count> {
                arena.alloc_undropped(Dropped([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_list_alloc_", $bytes))]
            #[inline(never)]
            pub fn list_alloc(list: &FreeList<Value<$element, $count>>, word: $element) -> ListBox<'_, Value<$element, $count>> {
                list.alloc(Value([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_list_alloc_dropped_", $bytes))]
            #[inline(never)]
            pub fn list_alloc_dropped(list: &FreeList<Dropped<$element, $count>>, word: $element) -> ListBox<'_, Dropped<$element, $count>> {
                list.alloc(Dropped([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_list_try_alloc_dropped_", $bytes))]
            #[inline(never)]
            pub fn list_try_alloc_dropped(list: &FreeList<Dropped<$element, $count>>, word: $element) -> Option<ListBox<'_, Dropped<$element, $count>>> {
                list.try_alloc(Dropped([word; $count])).ok()
            }

            #[unsafe(export_name = concat!("golden_list_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn list_alloc_with(list: &FreeList<Dropped<$element, $count>>, word: $element) -> ListBox<'_, Dropped<$element, $count>> {
                list.alloc_with(|| Dropped([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_list_try_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn list_try_alloc_with(list: &FreeList<Dropped<$element, $count>>, word: $element) -> Option<ListBox<'_, Dropped<$element, $count>>> {
                list.try_alloc_with(|| Dropped([word; $count])).ok()
            }

            #[unsafe(export_name = concat!("golden_list_slot_fill_", $bytes))]
            #[inline(never)]
            pub fn list_slot_fill(list: &FreeList<Value<$element, $count>>, word: $element) -> ListBox<'_, Value<$element, $count>> {
                list.alloc_slot().fill(Value([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_reap_alloc_value_", $bytes))]
            #[inline(never)]
            pub fn reap_alloc_value(reap: &Reap, word: $element) -> &mut Value<$element, $count> {
                reap.alloc(Value([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_reap_try_alloc_", $bytes))]
            #[inline(never)]
            pub fn reap_try_alloc(reap: &Reap, word: $element) -> Option<&mut Value<$element, $count>> {
                reap.try_alloc(Value([word; $count])).ok()
            }

            #[unsafe(export_name = concat!("golden_reap_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn reap_alloc_with(reap: &Reap, word: $element) -> &mut Value<$element, $count> {
                reap.alloc_with(|| Value([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_reap_try_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn reap_try_alloc_with(reap: &Reap, word: $element) -> Option<&mut Value<$element, $count>> {
                reap.try_alloc_with(|| Value([word; $count])).ok()
            }

            #[unsafe(export_name = concat!("golden_reap_alloc_boxed_", $bytes))]
            #[inline(never)]
            pub fn reap_alloc_boxed(reap: &Reap, word: $element) -> ReapBox<'_, Dropped<$element, $count>> {
                reap.alloc_boxed(Dropped([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_reap_alloc_undropped_", $bytes))]
            #[inline(never)]
            pub fn reap_alloc_undropped(reap: &Reap, word: $element) -> &mut Dropped<$element, $count> {
                reap.alloc_undropped(Dropped([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_slab_alloc_", $bytes))]
            #[inline(never)]
            pub fn slab_alloc(slab: &Slab<Value<$element, $count>>, word: $element) -> SlabBox<Value<$element, $count>> {
                slab.alloc(Value([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_slab_alloc_dropped_", $bytes))]
            #[inline(never)]
            pub fn slab_alloc_dropped(slab: &Slab<Dropped<$element, $count>>, word: $element) -> SlabBox<Dropped<$element, $count>> {
                slab.alloc(Dropped([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_slab_try_alloc_dropped_", $bytes))]
            #[inline(never)]
            pub fn slab_try_alloc_dropped(slab: &Slab<Dropped<$element, $count>>, word: $element) -> Option<SlabBox<Dropped<$element, $count>>> {
                slab.try_alloc(Dropped([word; $count])).ok()
            }

            #[unsafe(export_name = concat!("golden_slab_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn slab_alloc_with(slab: &Slab<Dropped<$element, $count>>, word: $element) -> SlabBox<Dropped<$element, $count>> {
                slab.alloc_with(|| Dropped([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_slab_try_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn slab_try_alloc_with(slab: &Slab<Dropped<$element, $count>>, word: $element) -> Option<SlabBox<Dropped<$element, $count>>> {
                slab.try_alloc_with(|| Dropped([word; $count])).ok()
            }

            #[unsafe(export_name = concat!("golden_slab_slot_fill_", $bytes))]
            #[inline(never)]
            pub fn slab_slot_fill(slab: &Slab<Value<$element, $count>>, word: $element) -> SlabBox<Value<$element, $count>> {
                slab.alloc_slot().fill(Value([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_slab_alloc_for_", $bytes))]
            #[inline(never)]
            pub fn slab_alloc_for(slab: &Slab<Dropped<$element, $count>>, word: $element) -> SlabBox<Dropped<$element, $count>> {
                slab.alloc_for(Lifetime::Long, Dropped([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_handle_alloc_", $bytes))]
            #[inline(never)]
            pub fn handle_alloc(handle: &SlabHandle<'_, Value<$element, $count>>, word: $element) -> SlabBox<Value<$element, $count>> {
                handle.alloc(Value([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_handle_try_alloc_dropped_", $bytes))]
            #[inline(never)]
            pub fn handle_try_alloc_dropped(handle: &SlabHandle<'_, Dropped<$element, $count>>, word: $element) -> Option<SlabBox<Dropped<$element, $count>>> {
                handle.try_alloc(Dropped([word; $count])).ok()
            }

            #[unsafe(export_name = concat!("golden_handle_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn handle_alloc_with(handle: &SlabHandle<'_, Dropped<$element, $count>>, word: $element) -> SlabBox<Dropped<$element, $count>> {
                handle.alloc_with(|| Dropped([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_handle_try_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn handle_try_alloc_with(handle: &SlabHandle<'_, Dropped<$element, $count>>, word: $element) -> Option<SlabBox<Dropped<$element, $count>>> {
                handle.try_alloc_with(|| Dropped([word; $count])).ok()
            }

            #[unsafe(export_name = concat!("golden_handle_slot_fill_", $bytes))]
            #[inline(never)]
            pub fn handle_slot_fill(handle: &SlabHandle<'_, Value<$element, $count>>, word: $element) -> SlabBox<Value<$element, $count>> {
                handle.alloc_slot().fill(Value([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_pool_box_", $bytes))]
            #[inline(never)]
            pub fn pool_box(pool: PoolRef, word: $element) -> PoolBox<Value<$element, $count>> {
                PoolBox::new_in(Value([word; $count]), pool)
            }

            #[unsafe(export_name = concat!("golden_pool_box_dropped_", $bytes))]
            #[inline(never)]
            pub fn pool_box_dropped(pool: PoolRef, word: $element) -> PoolBox<Dropped<$element, $count>> {
                PoolBox::new_in(Dropped([word; $count]), pool)
            }

            #[unsafe(export_name = concat!("golden_pool_box_try_dropped_", $bytes))]
            #[inline(never)]
            pub fn pool_box_try_dropped(pool: PoolRef, word: $element) -> Option<PoolBox<Dropped<$element, $count>>> {
                PoolBox::try_new_in(Dropped([word; $count]), pool).ok()
            }

            #[unsafe(export_name = concat!("golden_pool_box_current_", $bytes))]
            #[inline(never)]
            pub fn pool_box_current(word: $element) -> PoolBox<Value<$element, $count>> {
                PoolBox::new(Value([word; $count]))
            }

            #[unsafe(export_name = concat!("golden_arena_push_", $bytes))]
            #[inline(never)]
            pub fn arena_push(vec: &mut ArenaVec<'_, Value<$element, $count>>, word: $element) {
                vec.push(Value([word; $count]));
            }

            #[unsafe(export_name = concat!("golden_arena_push_dropped_", $bytes))]
            #[inline(never)]
            pub fn arena_push_dropped(vec: &mut ArenaVec<'_, Dropped<$element, $count>>, word: $element) {
                vec.push(Dropped([word; $count]));
            }

            #[unsafe(export_name = concat!("golden_arena_try_push_dropped_", $bytes))]
            #[inline(never)]
            pub fn arena_try_push_dropped(vec: &mut ArenaVec<'_, Dropped<$element, $count>>, word: $element) -> bool {
                vec.try_push(Dropped([word; $count])).is_ok()
            }

            #[unsafe(export_name = concat!("golden_reap_push_", $bytes))]
            #[inline(never)]
            pub fn reap_push(vec: &mut VecIn<Value<$element, $count>, &Reap>, word: $element) {
                vec.push(Value([word; $count]));
            }

            #[unsafe(export_name = concat!("golden_reap_push_dropped_", $bytes))]
            #[inline(never)]
            pub fn reap_push_dropped(vec: &mut VecIn<Dropped<$element, $count>, &Reap>, word: $element) {
                vec.push(Dropped([word; $count]));
            }

            #[unsafe(export_name = concat!("golden_reap_try_push_dropped_", $bytes))]
            #[inline(never)]
            pub fn reap_try_push_dropped(vec: &mut VecIn<Dropped<$element, $count>, &Reap>, word: $element) -> bool {
                vec.try_push(Dropped([word; $count])).is_ok()
            }

            #[unsafe(export_name = concat!("golden_pool_push_", $bytes))]
            #[inline(never)]
            pub fn pool_push(vec: &mut PoolVec<Value<$element, $count>>, word: $element) {
                vec.push(Value([word; $count]));
            }

            #[unsafe(export_name = concat!("golden_pool_push_dropped_", $bytes))]
            #[inline(never)]
            pub fn pool_push_dropped(vec: &mut PoolVec<Dropped<$element, $count>>, word: $element) {
                vec.push(Dropped([word; $count]));
            }

            #[unsafe(export_name = concat!("golden_pool_try_push_dropped_", $bytes))]
            #[inline(never)]
            pub fn pool_try_push_dropped(vec: &mut PoolVec<Dropped<$element, $count>>, word: $element) -> bool {
                vec.try_push(Dropped([word; $count])).is_ok()
            }

            #[unsafe(export_name = concat!("golden_sealer_value_", $bytes))]
            #[inline(never)]
            pub fn sealer_value<'s>(sealer: Sealer<'s>, word: $element) -> &'s mut [$element; $count] {
                sealer.alloc([word; $count])
            }
        })*

        /// Calls the functions.
        fn use_values(word: u64) {
            let (arena, reap, pool) = (Arena::new(), Reap::new(), LocalPool::new());
            let pool = pool.reference();
            $({
                use $size::*;
                let word = word as $element;
                let (list, slab) = (FreeList::new(), Slab::new());
                let (handle, dropped_list, dropped_slab) =
                    (slab.handle(), FreeList::new(), Slab::new());
                let dropped_handle = dropped_slab.handle();
                black_box(arena_alloc(&arena, word));
                black_box(arena_try_alloc(&arena, word));
                black_box(arena_alloc_with(&arena, word));
                black_box(arena_try_alloc_with(&arena, word));
                black_box(arena_alloc_boxed(&arena, word));
                black_box(arena_try_alloc_boxed(&arena, word));
                black_box(arena_alloc_undropped(&arena, word));
                black_box(list_alloc(&list, word));
                black_box(list_alloc_dropped(&dropped_list, word));
                black_box(list_try_alloc_dropped(&dropped_list, word));
                black_box(list_alloc_with(&dropped_list, word));
                black_box(list_try_alloc_with(&dropped_list, word));
                black_box(list_slot_fill(&list, word));
                black_box(reap_alloc_value(&reap, word));
                black_box(reap_try_alloc(&reap, word));
                black_box(reap_alloc_with(&reap, word));
                black_box(reap_try_alloc_with(&reap, word));
                black_box(reap_alloc_boxed(&reap, word));
                black_box(reap_alloc_undropped(&reap, word));
                black_box(slab_alloc(&slab, word));
                black_box(slab_alloc_dropped(&dropped_slab, word));
                black_box(slab_try_alloc_dropped(&dropped_slab, word));
                black_box(slab_alloc_with(&dropped_slab, word));
                black_box(slab_try_alloc_with(&dropped_slab, word));
                black_box(slab_slot_fill(&slab, word));
                black_box(slab_alloc_for(&dropped_slab, word));
                black_box(handle_alloc(&handle, word));
                black_box(handle_try_alloc_dropped(&dropped_handle, word));
                black_box(handle_alloc_with(&dropped_handle, word));
                black_box(handle_try_alloc_with(&dropped_handle, word));
                black_box(handle_slot_fill(&handle, word));
                black_box(pool_box(pool, word));
                black_box(pool_box_dropped(pool, word));
                black_box(pool_box_try_dropped(pool, word));
                black_box(pool_box_current(word));
                black_box(arena_push(&mut VecIn::new_in(&arena), word));
                black_box(arena_push_dropped(&mut VecIn::new_in(&arena), word));
                black_box(arena_try_push_dropped(&mut VecIn::new_in(&arena), word));
                black_box(reap_push(&mut VecIn::new_in(&reap), word));
                black_box(reap_push_dropped(&mut VecIn::new_in(&reap), word));
                black_box(reap_try_push_dropped(&mut VecIn::new_in(&reap), word));
                black_box(pool_push(&mut VecIn::new_in(pool), word));
                black_box(pool_push_dropped(&mut VecIn::new_in(pool), word));
                black_box(pool_try_push_dropped(&mut VecIn::new_in(pool), word));
                let _ = Sealed::<&'static [$element; $count]>::new(|sealer| sealer_value(sealer, word));
            })*
        }
    };
}

values! {
    words_8: 1 of u64, 8;
    words_16: 2 of u64, 16;
    words_64: 8 of u64, 64;
    words_192: 24 of u64, 192;
    words_512: 64 of u64, 512;
    filled_16: 16 of u8, "16_filled";
    filled_64: 64 of u8, "64_filled";
    filled_192: 192 of u8, "192_filled";
}

/// Allocates a slot by the ordinary call.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_slab_alloc(slab: &RawSlab) -> NonNull<u8> {
    slab.alloc()
}

/// Frees a slot by the ordinary call.
///
/// # Safety
/// As for [`RawSlab::free`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_slab_free(slab: &RawSlab, slot: NonNull<u8>) {
    // SAFETY: guaranteed by the caller.
    unsafe { slab.free(slot) }
}

/// Allocates a slot by a handle.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_handle_alloc(handle: &RawSlabHandle<'_>) -> NonNull<u8> {
    handle.alloc()
}

/// Frees a slot by a handle.
///
/// # Safety
/// As for [`RawSlab::free`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_handle_free(handle: &RawSlabHandle<'_>, slot: NonNull<u8>) {
    // SAFETY: guaranteed by the caller.
    unsafe { handle.free(slot) }
}

/// Drops a box.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_slab_box_drop(boxed: SlabBox<u64>) {
    drop(boxed);
}

/// Allocates an object of a free list.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_list_alloc(list: &RawFreeList) -> NonNull<u8> {
    list.alloc()
}

/// Frees an object of a free list.
///
/// # Safety
/// As for [`RawFreeList::free`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_list_free(list: &RawFreeList, object: NonNull<u8>) {
    // SAFETY: guaranteed by the caller.
    unsafe { list.free(object) }
}

/// The common layouts. Callers that know the size at compile time need fewer instructions.
fn small(size: usize) -> Layout {
    // SAFETY: a power of two, and the sizes here fit the address space.
    unsafe { Layout::from_size_align_unchecked(size, 8) }
}

/// Allocates a block of a reap, of a size known at run time.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_reap_alloc(reap: &Reap, size: usize) -> NonNull<u8> {
    reap.alloc_layout(small(size))
}

/// Allocates a block of a reap, of a size known at compile time.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_reap_alloc_40(reap: &Reap) -> NonNull<u8> {
    reap.alloc_layout(small(40))
}

/// Allocates a value in a reap.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_reap_alloc_u32(reap: &Reap, value: u32) -> &mut u32 {
    reap.alloc(value)
}

/// Allocates a value of 512 bytes in a reap, which is to be constructed in its block.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_reap_alloc_512_bytes(reap: &Reap, factor: u64) -> &mut [u64; 64] {
    reap.alloc(core::array::from_fn(|index| factor * index as u64))
}

/// Frees a block of a reap.
///
/// # Safety
/// As for [`Reap::free_layout`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_reap_free(reap: &Reap, block: NonNull<u8>, size: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { reap.free_layout(block, small(size)) }
}

/// Allocates a block of a pool.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_pool_alloc(pool: &LocalPool, size: usize) -> NonNull<u8> {
    pool.alloc_layout(small(size))
}

/// Frees a block of a pool.
///
/// # Safety
/// As for [`LocalPool::free_layout`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_pool_free(pool: &LocalPool, block: NonNull<u8>, size: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { pool.free_layout(block, small(size)) }
}

/// Allocates a block of the pool that a reference refers to.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_pool_ref_alloc(pool: PoolRef, size: usize) -> Option<NonNull<u8>> {
    pool.try_alloc_layout(small(size)).ok()
}

/// Frees a block of any pool.
///
/// # Safety
/// As for [`PoolRef::free_anywhere`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_pool_ref_free(block: NonNull<u8>, size: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { PoolRef::free_anywhere(block, small(size)) }
}

/// A global allocator that does almost nothing, so that only the routing remains.
struct Nothing;

// SAFETY: it never returns a block, which a global allocator may do at any time.
unsafe impl GlobalAlloc for Nothing {
    #[inline(always)]
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    #[inline(always)]
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

static GLOBAL_ALLOC: PoolGlobalAlloc<Nothing> = PoolGlobalAlloc::new(Nothing);

/// What routing adds to an allocation outside a pool.
///
/// # Safety
/// As for [`GlobalAlloc::alloc`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_global_alloc(size: usize) -> *mut u8 {
    // SAFETY: guaranteed by the caller.
    unsafe { GLOBAL_ALLOC.alloc(small(size)) }
}

/// What routing adds to the free of a block that belongs to no pool.
///
/// # Safety
/// As for [`GlobalAlloc::dealloc`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_global_free(block: *mut u8, size: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { GLOBAL_ALLOC.dealloc(block, small(size)) }
}

/// Reads a part of a sealed value.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_sealed_number(limits: &Sealed<[u64; 4]>) -> u64 {
    limits.get()[2]
}

/// Reads a string that a sealed value refers to.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_sealed_text<'a>(text: &'a Sealed<&'static str>) -> &'a str {
    text.get()
}

/// Begins a reading of a published value.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_published_read(published: &Published<u64>) -> PublishedGuard<'_, u64> {
    published.read()
}

/// Ends a reading.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_reading_drop(reading: PublishedGuard<'_, u64>) {
    drop(reading);
}

/// A reading from its beginning to its end.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_published_copy(published: &Published<u64>) -> u64 {
    *published.read()
}

fn main() {
    let published = Published::new(7);
    golden_reading_drop(golden_published_read(&published));
    assert_eq!(golden_published_copy(&published), 7);
    let limits = Sealed::<[u64; 4]>::new(|_| [1, 2, 3, 4]);
    let text = Sealed::<&'static str>::new(|sealer| sealer.alloc_str("sealed"));
    println!("{} {}", golden_sealed_number(&limits), golden_sealed_text(&text));
    let (reap, pool) = (Reap::new(), LocalPool::new());
    assert_eq!(
        (*golden_reap_alloc_u32(&reap, 7), golden_reap_alloc_512_bytes(&reap, 7)[63]),
        (7, 441)
    );
    // SAFETY: each block is freed once, where it came from.
    unsafe {
        golden_reap_free(&reap, golden_reap_alloc(&reap, 24), 24);
        golden_reap_free(&reap, golden_reap_alloc_40(&reap), 40);
        golden_pool_free(&pool, golden_pool_alloc(&pool, 24), 24);
        let block = golden_pool_ref_alloc(pool.reference(), 24).expect("24 bytes are there");
        golden_pool_ref_free(block, 24);
        // Inside a pool: the allocator below returns nothing.
        pool.enter(|| golden_global_free(golden_global_alloc(24), 24));
    }
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
    golden_slab_box_drop(Slab::new().alloc(7));
    let arena = Arena::new();
    let first = golden_arena_alloc_u32(&arena, 7);
    let second = golden_arena_try_alloc_u32(&arena, 8);
    let packed = Arena::<1>::with_min_align();
    let third = golden_arena1_alloc_u32(&packed, 9);
    println!("{first} {second:?} {third}, {:?}", arena.statistics());
    let object = arena.alloc_layout(small(24));
    // SAFETY: allocated above, freed once.
    unsafe { golden_arena_free(&arena, object, 24) };
    assert_ne!(golden_own_arena_loop(1000), 0);
    let word = arena.statistics().live_objects;
    use_values(word);
}
