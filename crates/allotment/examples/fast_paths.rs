//! The fast paths that the golden test disassembles, each in a separate function.
//!
//! To run it: `cargo run --release -p allotment --example fast_paths`.

use allotment::pool::ReapBox;
use allotment::{
    Arena, ArenaBox, ArenaVec, FreeList, Lifetime, ListBox, LocalPool, PoolBox, PoolGlobalAlloc,
    PoolRef, PoolVec, Published, PublishedGuard, RawFreeList, RawSlab, RawSlabHandle, Reap, Sealed,
    Sealer, Slab, SlabBox, SlabHandle,
};
use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::GlobalAlloc;

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
        std::hint::black_box(self.0.as_ptr());
    }
}

/// Functions that allocate a value: its number of words, and the functions' names.
macro_rules! values {
    ($(
        $words:literal: $in_arena:ident $in_list:ident $in_reap:ident $in_slab:ident
            $by_handle:ident $in_pool:ident $pushed:ident;
    )*) => {$(
        /// Allocates a value in an arena.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub fn $in_arena(arena: &Arena, word: u64) -> &mut Value<$words> {
            arena.alloc(Value([word; $words]))
        }

        /// Allocates a value in a free list.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub fn $in_list(list: &FreeList<Value<$words>>, word: u64) -> ListBox<'_, Value<$words>> {
            list.alloc(Value([word; $words]))
        }

        /// Allocates a value in a reap.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub fn $in_reap(reap: &Reap, word: u64) -> &mut Value<$words> {
            reap.alloc(Value([word; $words]))
        }

        /// Allocates a value in a slab.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub fn $in_slab(slab: &Slab<Value<$words>>, word: u64) -> SlabBox<Value<$words>> {
            slab.alloc(Value([word; $words]))
        }

        /// Allocates a value in a slab by a handle.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub fn $by_handle(
            handle: &SlabHandle<'_, Value<$words>>,
            word: u64,
        ) -> SlabBox<Value<$words>> {
            handle.alloc(Value([word; $words]))
        }

        /// Allocates a value in a pool.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub fn $in_pool(pool: PoolRef, word: u64) -> PoolBox<Value<$words>> {
            PoolBox::new_in(Value([word; $words]), pool)
        }

        /// Pushes a value to a vector in an arena.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub fn $pushed(vec: &mut ArenaVec<'_, Value<$words>>, word: u64) {
            vec.push(Value([word; $words]));
        }
    )*

        /// Calls the functions.
        fn use_values(word: u64) {
            let (arena, reap, pool) = (Arena::new(), Reap::new(), LocalPool::new());
            $(
                let (list, slab, mut vec) = (FreeList::new(), Slab::new(), ArenaVec::new_in(&arena));
                println!("{} {}", $in_arena(&arena, word).0[0], $in_list(&list, word).0[0]);
                println!("{} {}", $in_reap(&reap, word).0[0], $in_slab(&slab, word).0[0]);
                $pushed(&mut vec, $by_handle(&slab.handle(), word).0[0]);
                println!("{} {}", $in_pool(pool.reference(), word).0[0], vec[0].0[0]);
            )*
        }
    };
}

values! {
    1: golden_arena_alloc_8 golden_list_alloc_8 golden_reap_alloc_value_8 golden_slab_alloc_8
        golden_handle_alloc_8 golden_pool_box_8 golden_arena_push_8;
    2: golden_arena_alloc_16 golden_list_alloc_16 golden_reap_alloc_value_16 golden_slab_alloc_16
        golden_handle_alloc_16 golden_pool_box_16 golden_arena_push_16;
    8: golden_arena_alloc_64 golden_list_alloc_64 golden_reap_alloc_value_64 golden_slab_alloc_64
        golden_handle_alloc_64 golden_pool_box_64 golden_arena_push_64;
    24: golden_arena_alloc_192 golden_list_alloc_192 golden_reap_alloc_value_192 golden_slab_alloc_192
        golden_handle_alloc_192 golden_pool_box_192 golden_arena_push_192;
    64: golden_arena_alloc_512 golden_list_alloc_512 golden_reap_alloc_value_512 golden_slab_alloc_512
        golden_handle_alloc_512 golden_pool_box_512 golden_arena_push_512;
}

/// Allocates a value in an arena by the fallible call.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena_try_alloc_64(arena: &Arena, word: u64) -> Option<&mut Value<8>> {
    arena.try_alloc(Value([word; 8])).ok()
}

/// Allocates a value with a destructor in an arena.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena_alloc_boxed_64(arena: &Arena, word: u64) -> ArenaBox<'_, Dropped<8>> {
    arena.alloc_boxed(Dropped([word; 8]))
}

/// Allocates a value with a destructor in an arena by the fallible call.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena_try_alloc_boxed_64(
    arena: &Arena,
    word: u64,
) -> Option<ArenaBox<'_, Dropped<8>>> {
    arena.try_alloc_boxed(Dropped([word; 8])).ok()
}

/// Allocates a value with a destructor in a reap.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_reap_alloc_boxed_64(reap: &Reap, word: u64) -> ReapBox<'_, Dropped<8>> {
    reap.alloc_boxed(Dropped([word; 8]))
}

/// Allocates a value with a destructor in a slab.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_slab_alloc_dropped_64(slab: &Slab<Dropped<8>>, word: u64) -> SlabBox<Dropped<8>> {
    slab.alloc(Dropped([word; 8]))
}

/// Allocates a value with a destructor in a free list.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_list_alloc_dropped_64(
    list: &FreeList<Dropped<8>>,
    word: u64,
) -> ListBox<'_, Dropped<8>> {
    list.alloc(Dropped([word; 8]))
}

/// Allocates a value with a destructor in a free list by the fallible call.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_list_try_alloc_dropped_64(
    list: &FreeList<Dropped<8>>,
    word: u64,
) -> Option<ListBox<'_, Dropped<8>>> {
    list.try_alloc(Dropped([word; 8])).ok()
}

/// Allocates a value of a word with a destructor in an arena.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena_alloc_boxed_8(arena: &Arena, word: u64) -> ArenaBox<'_, Dropped<1>> {
    arena.alloc_boxed(Dropped([word]))
}

/// Constructs a value in an arena.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena_alloc_with_64(arena: &Arena, word: u64) -> &mut Value<8> {
    arena.alloc_with(|| Value([word; 8]))
}

/// Constructs a value with a destructor in a slab.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_slab_alloc_with_64(slab: &Slab<Dropped<8>>, word: u64) -> SlabBox<Dropped<8>> {
    slab.alloc_with(|| Dropped([word; 8]))
}

/// Constructs a value with a destructor in a slab by the fallible call.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_slab_try_alloc_with_64(
    slab: &Slab<Dropped<8>>,
    word: u64,
) -> Option<SlabBox<Dropped<8>>> {
    slab.try_alloc_with(|| Dropped([word; 8])).ok()
}

/// Constructs a value with a destructor in a slab by a handle.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_handle_alloc_with_64(
    handle: &SlabHandle<'_, Dropped<8>>,
    word: u64,
) -> SlabBox<Dropped<8>> {
    handle.alloc_with(|| Dropped([word; 8]))
}

/// Constructs a value with a destructor in a free list.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_list_alloc_with_64(
    list: &FreeList<Dropped<8>>,
    word: u64,
) -> ListBox<'_, Dropped<8>> {
    list.alloc_with(|| Dropped([word; 8]))
}

/// Allocates a value of 512 bytes with a destructor and with an expected lifetime.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_slab_alloc_for_512(slab: &Slab<Dropped<64>>, word: u64) -> SlabBox<Dropped<64>> {
    slab.alloc_for(Lifetime::Long, Dropped([word; 64]))
}

/// Allocates a value with a destructor in a pool.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_pool_box_dropped_64(pool: PoolRef, word: u64) -> PoolBox<Dropped<8>> {
    PoolBox::new_in(Dropped([word; 8]), pool)
}

/// Allocates a value with a destructor in a pool by the fallible call.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_pool_box_try_dropped_64(pool: PoolRef, word: u64) -> Option<PoolBox<Dropped<8>>> {
    PoolBox::try_new_in(Dropped([word; 8]), pool).ok()
}

/// Pushes a value with a destructor to a vector in an arena.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena_push_dropped_64(vec: &mut ArenaVec<'_, Dropped<8>>, word: u64) {
    vec.push(Dropped([word; 8]));
}

/// Pushes a value with a destructor to a vector in an arena by the fallible call.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_arena_try_push_dropped_64(vec: &mut ArenaVec<'_, Dropped<8>>, word: u64) -> bool {
    vec.try_push(Dropped([word; 8])).is_ok()
}

/// Pushes a value with a destructor to a vector in a pool.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_pool_push_dropped_64(vec: &mut PoolVec<Dropped<8>>, word: u64) {
    vec.push(Dropped([word; 8]));
}

/// Moves a value of 512 bytes into memory that will be sealed.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn golden_sealer_value_512<'s>(sealer: Sealer<'s>, word: u64) -> &'s mut [u64; 64] {
    sealer.value([word; 64])
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
    let list = FreeList::new();
    let values =
        (golden_arena_alloc_boxed_64(&arena, word), golden_list_alloc_dropped_64(&list, word));
    println!("{} {}", values.0.0[0], values.1.0[0]);
    drop(values);
    drop(golden_arena_try_alloc_boxed_64(&arena, word));
    drop(golden_list_try_alloc_dropped_64(&list, word));
    drop(golden_reap_alloc_boxed_64(&reap, word));
    drop(golden_slab_alloc_dropped_64(&Slab::new(), word));
    drop((golden_arena_alloc_boxed_8(&arena, word), golden_list_alloc_with_64(&list, word)));
    let slab = Slab::new();
    drop((golden_slab_alloc_with_64(&slab, word), golden_slab_try_alloc_with_64(&slab, word)));
    drop(golden_handle_alloc_with_64(&slab.handle(), word));
    drop(golden_slab_alloc_for_512(&Slab::new(), word));
    drop(golden_pool_box_dropped_64(pool.reference(), word));
    drop(golden_pool_box_try_dropped_64(pool.reference(), word));
    let (mut in_arena, mut in_pool) = (ArenaVec::new_in(&arena), PoolVec::new());
    golden_arena_push_dropped_64(&mut in_arena, word);
    golden_pool_push_dropped_64(&mut in_pool, word);
    println!("{}", golden_arena_try_push_dropped_64(&mut in_arena, word));
    let sealed = Sealed::<&'static [u64; 64]>::new(|sealer| golden_sealer_value_512(sealer, word));
    println!("{} {}", sealed.get()[63], golden_arena_alloc_with_64(&arena, word).0[7]);
    println!("{:?}", golden_arena_try_alloc_64(&arena, word).map(|value| value.0));
}
