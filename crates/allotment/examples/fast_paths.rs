//! The fast paths that the golden test disassembles, each in a separate function.
//!
//! To run it: `cargo run --release -p allotment --example fast_paths`.

use allotment::collections::VecIn;
use allotment::pool::ReapBox;
use allotment::{
    Arena, ArenaBox, ArenaVec, FreeList, Lifetime, ListBox, LocalPool, PoolBox, PoolGlobalAlloc,
    PoolRef, PoolVec, Published, PublishedGuard, RawFreeList, RawSlab, RawSlabHandle, Reap, Sealed,
    Sealer, Slab, SlabBox, SlabHandle,
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

/// Frees an object of an arena, perhaps inside a scope.
///
/// # Safety
/// As for [`Arena::free`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_arena_free(arena: &Arena, object: NonNull<u8>, size: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { arena.free(object, small(size)) }
}

/// A value of `WORDS` words, none of which is known at compile time.
#[derive(Clone, Copy)]
pub struct Value<const WORDS: usize>([u64; WORDS]);

/// A value of `WORDS` words that has a destructor.
pub struct Dropped<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Drop for Dropped<WORDS> {
    #[inline(never)]
    fn drop(&mut self) {
        black_box(self.0.as_ptr());
    }
}

/// Functions that allocate a value, for each size: a module, the number of words, and the bytes.
/// The function `arena_alloc` for 64 bytes is the symbol `golden_arena_alloc_64`.
macro_rules! values {
    ($($size:ident: $words:literal words, $bytes:literal bytes;)*) => {
        $(mod $size {
            use super::*;

            #[unsafe(export_name = concat!("golden_arena_alloc_", $bytes))]
            #[inline(never)]
            pub fn arena_alloc(arena: &Arena, word: u64) -> &mut Value<$words> {
                arena.alloc(Value([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_arena_try_alloc_", $bytes))]
            #[inline(never)]
            pub fn arena_try_alloc(arena: &Arena, word: u64) -> Option<&mut Value<$words>> {
                arena.try_alloc(Value([word; $words])).ok()
            }

            #[unsafe(export_name = concat!("golden_arena_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn arena_alloc_with(arena: &Arena, word: u64) -> &mut Value<$words> {
                arena.alloc_with(|| Value([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_arena_try_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn arena_try_alloc_with(arena: &Arena, word: u64) -> Option<&mut Value<$words>> {
                arena.try_alloc_with(|| Value([word; $words])).ok()
            }

            #[unsafe(export_name = concat!("golden_arena_alloc_boxed_", $bytes))]
            #[inline(never)]
            pub fn arena_alloc_boxed(arena: &Arena, word: u64) -> ArenaBox<'_, Dropped<$words>> {
                arena.alloc_boxed(Dropped([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_arena_try_alloc_boxed_", $bytes))]
            #[inline(never)]
            pub fn arena_try_alloc_boxed(arena: &Arena, word: u64) -> Option<ArenaBox<'_, Dropped<$words>>> {
                arena.try_alloc_boxed(Dropped([word; $words])).ok()
            }

            #[unsafe(export_name = concat!("golden_arena_alloc_undropped_", $bytes))]
            #[inline(never)]
            pub fn arena_alloc_undropped(arena: &Arena, word: u64) -> &mut Dropped<$words> {
                arena.alloc_undropped(Dropped([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_list_alloc_", $bytes))]
            #[inline(never)]
            pub fn list_alloc(list: &FreeList<Value<$words>>, word: u64) -> ListBox<'_, Value<$words>> {
                list.alloc(Value([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_list_alloc_dropped_", $bytes))]
            #[inline(never)]
            pub fn list_alloc_dropped(list: &FreeList<Dropped<$words>>, word: u64) -> ListBox<'_, Dropped<$words>> {
                list.alloc(Dropped([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_list_try_alloc_dropped_", $bytes))]
            #[inline(never)]
            pub fn list_try_alloc_dropped(list: &FreeList<Dropped<$words>>, word: u64) -> Option<ListBox<'_, Dropped<$words>>> {
                list.try_alloc(Dropped([word; $words])).ok()
            }

            #[unsafe(export_name = concat!("golden_list_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn list_alloc_with(list: &FreeList<Dropped<$words>>, word: u64) -> ListBox<'_, Dropped<$words>> {
                list.alloc_with(|| Dropped([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_list_try_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn list_try_alloc_with(list: &FreeList<Dropped<$words>>, word: u64) -> Option<ListBox<'_, Dropped<$words>>> {
                list.try_alloc_with(|| Dropped([word; $words])).ok()
            }

            #[unsafe(export_name = concat!("golden_list_slot_fill_", $bytes))]
            #[inline(never)]
            pub fn list_slot_fill(list: &FreeList<Value<$words>>, word: u64) -> ListBox<'_, Value<$words>> {
                list.slot().fill(Value([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_reap_alloc_value_", $bytes))]
            #[inline(never)]
            pub fn reap_alloc_value(reap: &Reap, word: u64) -> &mut Value<$words> {
                reap.alloc(Value([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_reap_try_alloc_", $bytes))]
            #[inline(never)]
            pub fn reap_try_alloc(reap: &Reap, word: u64) -> Option<&mut Value<$words>> {
                reap.try_alloc(Value([word; $words])).ok()
            }

            #[unsafe(export_name = concat!("golden_reap_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn reap_alloc_with(reap: &Reap, word: u64) -> &mut Value<$words> {
                reap.alloc_with(|| Value([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_reap_try_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn reap_try_alloc_with(reap: &Reap, word: u64) -> Option<&mut Value<$words>> {
                reap.try_alloc_with(|| Value([word; $words])).ok()
            }

            #[unsafe(export_name = concat!("golden_reap_alloc_boxed_", $bytes))]
            #[inline(never)]
            pub fn reap_alloc_boxed(reap: &Reap, word: u64) -> ReapBox<'_, Dropped<$words>> {
                reap.alloc_boxed(Dropped([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_reap_alloc_undropped_", $bytes))]
            #[inline(never)]
            pub fn reap_alloc_undropped(reap: &Reap, word: u64) -> &mut Dropped<$words> {
                reap.alloc_undropped(Dropped([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_slab_alloc_", $bytes))]
            #[inline(never)]
            pub fn slab_alloc(slab: &Slab<Value<$words>>, word: u64) -> SlabBox<Value<$words>> {
                slab.alloc(Value([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_slab_alloc_dropped_", $bytes))]
            #[inline(never)]
            pub fn slab_alloc_dropped(slab: &Slab<Dropped<$words>>, word: u64) -> SlabBox<Dropped<$words>> {
                slab.alloc(Dropped([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_slab_try_alloc_dropped_", $bytes))]
            #[inline(never)]
            pub fn slab_try_alloc_dropped(slab: &Slab<Dropped<$words>>, word: u64) -> Option<SlabBox<Dropped<$words>>> {
                slab.try_alloc(Dropped([word; $words])).ok()
            }

            #[unsafe(export_name = concat!("golden_slab_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn slab_alloc_with(slab: &Slab<Dropped<$words>>, word: u64) -> SlabBox<Dropped<$words>> {
                slab.alloc_with(|| Dropped([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_slab_try_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn slab_try_alloc_with(slab: &Slab<Dropped<$words>>, word: u64) -> Option<SlabBox<Dropped<$words>>> {
                slab.try_alloc_with(|| Dropped([word; $words])).ok()
            }

            #[unsafe(export_name = concat!("golden_slab_slot_fill_", $bytes))]
            #[inline(never)]
            pub fn slab_slot_fill(slab: &Slab<Value<$words>>, word: u64) -> SlabBox<Value<$words>> {
                slab.slot().fill(Value([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_slab_alloc_for_", $bytes))]
            #[inline(never)]
            pub fn slab_alloc_for(slab: &Slab<Dropped<$words>>, word: u64) -> SlabBox<Dropped<$words>> {
                slab.alloc_for(Lifetime::Long, Dropped([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_handle_alloc_", $bytes))]
            #[inline(never)]
            pub fn handle_alloc(handle: &SlabHandle<'_, Value<$words>>, word: u64) -> SlabBox<Value<$words>> {
                handle.alloc(Value([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_handle_try_alloc_dropped_", $bytes))]
            #[inline(never)]
            pub fn handle_try_alloc_dropped(handle: &SlabHandle<'_, Dropped<$words>>, word: u64) -> Option<SlabBox<Dropped<$words>>> {
                handle.try_alloc(Dropped([word; $words])).ok()
            }

            #[unsafe(export_name = concat!("golden_handle_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn handle_alloc_with(handle: &SlabHandle<'_, Dropped<$words>>, word: u64) -> SlabBox<Dropped<$words>> {
                handle.alloc_with(|| Dropped([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_handle_try_alloc_with_", $bytes))]
            #[inline(never)]
            pub fn handle_try_alloc_with(handle: &SlabHandle<'_, Dropped<$words>>, word: u64) -> Option<SlabBox<Dropped<$words>>> {
                handle.try_alloc_with(|| Dropped([word; $words])).ok()
            }

            #[unsafe(export_name = concat!("golden_handle_slot_fill_", $bytes))]
            #[inline(never)]
            pub fn handle_slot_fill(handle: &SlabHandle<'_, Value<$words>>, word: u64) -> SlabBox<Value<$words>> {
                handle.slot().fill(Value([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_pool_box_", $bytes))]
            #[inline(never)]
            pub fn pool_box(pool: PoolRef, word: u64) -> PoolBox<Value<$words>> {
                PoolBox::new_in(Value([word; $words]), pool)
            }

            #[unsafe(export_name = concat!("golden_pool_box_dropped_", $bytes))]
            #[inline(never)]
            pub fn pool_box_dropped(pool: PoolRef, word: u64) -> PoolBox<Dropped<$words>> {
                PoolBox::new_in(Dropped([word; $words]), pool)
            }

            #[unsafe(export_name = concat!("golden_pool_box_try_dropped_", $bytes))]
            #[inline(never)]
            pub fn pool_box_try_dropped(pool: PoolRef, word: u64) -> Option<PoolBox<Dropped<$words>>> {
                PoolBox::try_new_in(Dropped([word; $words]), pool).ok()
            }

            #[unsafe(export_name = concat!("golden_pool_box_current_", $bytes))]
            #[inline(never)]
            pub fn pool_box_current(word: u64) -> PoolBox<Value<$words>> {
                PoolBox::new(Value([word; $words]))
            }

            #[unsafe(export_name = concat!("golden_arena_push_", $bytes))]
            #[inline(never)]
            pub fn arena_push(vec: &mut ArenaVec<'_, Value<$words>>, word: u64) {
                vec.push(Value([word; $words]));
            }

            #[unsafe(export_name = concat!("golden_arena_push_dropped_", $bytes))]
            #[inline(never)]
            pub fn arena_push_dropped(vec: &mut ArenaVec<'_, Dropped<$words>>, word: u64) {
                vec.push(Dropped([word; $words]));
            }

            #[unsafe(export_name = concat!("golden_arena_try_push_dropped_", $bytes))]
            #[inline(never)]
            pub fn arena_try_push_dropped(vec: &mut ArenaVec<'_, Dropped<$words>>, word: u64) -> bool {
                vec.try_push(Dropped([word; $words])).is_ok()
            }

            #[unsafe(export_name = concat!("golden_reap_push_", $bytes))]
            #[inline(never)]
            pub fn reap_push(vec: &mut VecIn<Value<$words>, &Reap>, word: u64) {
                vec.push(Value([word; $words]));
            }

            #[unsafe(export_name = concat!("golden_reap_push_dropped_", $bytes))]
            #[inline(never)]
            pub fn reap_push_dropped(vec: &mut VecIn<Dropped<$words>, &Reap>, word: u64) {
                vec.push(Dropped([word; $words]));
            }

            #[unsafe(export_name = concat!("golden_reap_try_push_dropped_", $bytes))]
            #[inline(never)]
            pub fn reap_try_push_dropped(vec: &mut VecIn<Dropped<$words>, &Reap>, word: u64) -> bool {
                vec.try_push(Dropped([word; $words])).is_ok()
            }

            #[unsafe(export_name = concat!("golden_pool_push_", $bytes))]
            #[inline(never)]
            pub fn pool_push(vec: &mut PoolVec<Value<$words>>, word: u64) {
                vec.push(Value([word; $words]));
            }

            #[unsafe(export_name = concat!("golden_pool_push_dropped_", $bytes))]
            #[inline(never)]
            pub fn pool_push_dropped(vec: &mut PoolVec<Dropped<$words>>, word: u64) {
                vec.push(Dropped([word; $words]));
            }

            #[unsafe(export_name = concat!("golden_pool_try_push_dropped_", $bytes))]
            #[inline(never)]
            pub fn pool_try_push_dropped(vec: &mut PoolVec<Dropped<$words>>, word: u64) -> bool {
                vec.try_push(Dropped([word; $words])).is_ok()
            }

            #[unsafe(export_name = concat!("golden_sealer_value_", $bytes))]
            #[inline(never)]
            pub fn sealer_value<'s>(sealer: Sealer<'s>, word: u64) -> &'s mut [u64; $words] {
                sealer.value([word; $words])
            }
        })*

        /// Calls the functions.
        fn use_values(word: u64) {
            let (arena, reap, pool) = (Arena::new(), Reap::new(), LocalPool::new());
            let pool = pool.reference();
            $({
                use $size::*;
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
                let _ = Sealed::<&'static [u64; $words]>::new(|sealer| sealer_value(sealer, word));
            })*
        }
    };
}

values! {
    bytes_8: 1 words, 8 bytes;
    bytes_16: 2 words, 16 bytes;
    bytes_64: 8 words, 64 bytes;
    bytes_192: 24 words, 192 bytes;
    bytes_512: 64 words, 512 bytes;
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
    let text = Sealed::<&'static str>::new(|sealer| sealer.str("sealed"));
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
    let word = arena.statistics().live_objects;
    use_values(word);
}
