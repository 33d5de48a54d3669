//! The fast paths that the golden test disassembles, each in a function of its own.
//!
//! Run it to see that they work: `cargo run --release --example fast_paths`.

use allotment::{
    Arena, LocalPool, PoolRef, Published, RawFreeList, RawSlab, RawSlabHandle, Reading, Reap,
    Routed, Sealed, SlabBox,
};
use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::GlobalAlloc;

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

/// The common sizes: callers that know the size have less to do.
fn small(size: usize) -> Layout {
    // SAFETY: a power of two, and no more than an address space.
    unsafe { Layout::from_size_align_unchecked(size, 8) }
}

/// A block of a reap, of a size known at run time.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_reap_alloc(reap: &Reap, size: usize) -> NonNull<u8> {
    reap.alloc_layout(small(size))
}

/// A block of a reap, of a size known at compile time.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_reap_alloc_40(reap: &Reap) -> NonNull<u8> {
    reap.alloc_layout(small(40))
}

/// A block of a reap.
///
/// # Safety
/// As for [`Reap::free_layout`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_reap_free(reap: &Reap, block: NonNull<u8>, size: usize) {
    // SAFETY: passed on to the caller.
    unsafe { reap.free_layout(block, small(size)) }
}

/// A block of a pool.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_pool_alloc(pool: &LocalPool, size: usize) -> NonNull<u8> {
    pool.alloc_layout(small(size))
}

/// A block of a pool.
///
/// # Safety
/// As for [`LocalPool::free_layout`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_pool_free(pool: &LocalPool, block: NonNull<u8>, size: usize) {
    // SAFETY: passed on to the caller.
    unsafe { pool.free_layout(block, small(size)) }
}

/// A block of the pool of a reference.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_pool_ref_alloc(pool: PoolRef, size: usize) -> Option<NonNull<u8>> {
    pool.try_alloc_layout(small(size)).ok()
}

/// A block of whatever pool.
///
/// # Safety
/// As for [`PoolRef::free_anywhere`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_pool_ref_free(block: NonNull<u8>, size: usize) {
    // SAFETY: passed on to the caller.
    unsafe { PoolRef::free_anywhere(block, small(size)) }
}

/// A global allocator that does next to nothing: what is left is the routing.
struct Nothing;

// SAFETY: it gives no block, which a global allocator may do at any time.
unsafe impl GlobalAlloc for Nothing {
    #[inline(always)]
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    #[inline(always)]
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

static ROUTED: Routed<Nothing> = Routed::new(Nothing);

/// What routing adds to an allocation outside of a pool.
///
/// # Safety
/// As for [`GlobalAlloc::alloc`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_routed_alloc(size: usize) -> *mut u8 {
    // SAFETY: passed on to the caller.
    unsafe { ROUTED.alloc(small(size)) }
}

/// What routing adds to a free of a block that is no pool's.
///
/// # Safety
/// As for [`GlobalAlloc::dealloc`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe fn golden_routed_free(block: *mut u8, size: usize) {
    // SAFETY: passed on to the caller.
    unsafe { ROUTED.dealloc(block, small(size)) }
}

/// A part of a sealed value.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_sealed_number(limits: &Sealed<[u64; 4]>) -> u64 {
    limits.get()[2]
}

/// A string that a sealed value refers to.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_sealed_text<'a>(text: &'a Sealed<&'static str>) -> &'a str {
    text.get()
}

/// A reading of what is published.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_published_read(published: &Published<u64>) -> Reading<'_, u64> {
    published.read()
}

/// A reading's end.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_reading_drop(reading: Reading<'_, u64>) {
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
    // SAFETY: each block is freed once, where it came from.
    unsafe {
        golden_reap_free(&reap, golden_reap_alloc(&reap, 24), 24);
        golden_reap_free(&reap, golden_reap_alloc_40(&reap), 40);
        golden_pool_free(&pool, golden_pool_alloc(&pool, 24), 24);
        let block = golden_pool_ref_alloc(pool.reference(), 24).expect("24 bytes are there");
        golden_pool_ref_free(block, 24);
        // In a pool: what is beneath gives nothing.
        pool.enter(|| golden_routed_free(golden_routed_alloc(24), 24));
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
    golden_slab_box_drop(allotment::Slab::new().alloc(7));
    let arena = Arena::new();
    let first = golden_arena_alloc_u32(&arena, 7);
    let second = golden_arena_try_alloc_u32(&arena, 8);
    let packed = Arena::<1>::with_min_align();
    let third = golden_arena1_alloc_u32(&packed, 9);
    println!("{first} {second:?} {third}, {:?}", arena.statistics());
}
