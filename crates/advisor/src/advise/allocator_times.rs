//! How long the code of this project's allocators takes for a block: an allocation and a free, in
//! cache, without the program's own accesses to the block.

use crate::analyse::findings::AdvisedAllocator;
use allotment::{Arena, LocalPool, RawFreeList, RawSlab, Reap};
use std::alloc::Layout;
use std::hint::black_box;
use std::time::Instant;

/// Pairs of an allocation and a free that are timed, after as many that are not.
const PAIRS: usize = 1 << 15;
/// Allocators that take turns, so that no call waits for the one before.
const OWNERS: usize = 8;
/// The largest size that is timed; that of larger blocks is about the same.
const LARGEST: usize = 1024;

/// The nanoseconds of an allocation and a free; for an arena, of an allocation and its part of a reset.
pub fn pair_ns(allocator: AdvisedAllocator, size: usize) -> f64 {
    let layout = Layout::from_size_align(size.clamp(1, LARGEST), 8).unwrap_or(Layout::new::<u64>());
    match allocator {
        // No single free, and a reset for many blocks.
        AdvisedAllocator::Arena => {
            let mut arenas: Vec<Arena> = (0..OWNERS).map(|_| Arena::new()).collect();
            timed(|number| {
                let arena = &mut arenas[number % OWNERS];
                black_box(arena.alloc_layout(layout));
                if number % 1024 < OWNERS {
                    arena.reset();
                }
            })
        }
        AdvisedAllocator::Reap => {
            let reaps: Vec<Reap> = (0..OWNERS).map(|_| Reap::new()).collect();
            timed(|number| {
                let reap = &reaps[number % OWNERS];
                // SAFETY: the block is live, of this reap, and of this layout.
                unsafe { reap.free_layout(black_box(reap.alloc_layout(layout)), layout) }
            })
        }
        AdvisedAllocator::FreeList => {
            let lists: Vec<RawFreeList> = (0..OWNERS).map(|_| RawFreeList::new(layout)).collect();
            timed(|number| {
                let list = &lists[number % OWNERS];
                // SAFETY: the block is live, and of this list.
                unsafe { list.free(black_box(list.alloc())) }
            })
        }
        AdvisedAllocator::Slab => {
            let slabs: Vec<RawSlab> = (0..OWNERS).map(|_| RawSlab::new(layout)).collect();
            timed(|number| {
                let slab = &slabs[number % OWNERS];
                // SAFETY: the block is live, and of this slab.
                unsafe { slab.free(black_box(slab.alloc())) }
            })
        }
        AdvisedAllocator::Pool => {
            let pools: Vec<LocalPool> = (0..OWNERS).map(|_| LocalPool::new()).collect();
            timed(|number| {
                let pool = &pools[number % OWNERS];
                // SAFETY: the block is live, of this pool, and of this layout.
                unsafe { pool.free_layout(black_box(pool.alloc_layout(layout)), layout) }
            })
        }
        AdvisedAllocator::Sealed | AdvisedAllocator::None => 0.0,
    }
}

/// The nanoseconds of two calls that do nothing.
pub fn empty_calls_ns() -> f64 {
    extern "C" fn nothing(argument: usize) -> usize {
        black_box(argument)
    }
    let call = black_box(nothing as extern "C" fn(usize) -> usize);
    timed(|number| {
        black_box(call(number));
        black_box(call(number));
    })
}

fn timed(mut pair: impl FnMut(usize)) -> f64 {
    (0..PAIRS).for_each(&mut pair);
    let begin = Instant::now();
    (0..PAIRS).for_each(&mut pair);
    begin.elapsed().as_nanos() as f64 / PAIRS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allocator_is_timed_with_every_size() {
        for allocator in [
            AdvisedAllocator::Arena,
            AdvisedAllocator::Reap,
            AdvisedAllocator::FreeList,
            AdvisedAllocator::Slab,
            AdvisedAllocator::Pool,
        ] {
            for size in [0, 24, 100_000] {
                assert!(pair_ns(allocator, size) > 0.0, "{allocator:?} {size}");
            }
        }
    }
}
