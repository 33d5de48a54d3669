//! Work that repeats itself takes no more memory the second time.
#![cfg(system_memory)]

use core::alloc::Layout;
use core::ptr::NonNull;

use allotment::{LocalPool, Reap, Statistics};

/// A string that grows by doubling from 8 bytes to 8 KiB between other objects, and is freed.
fn work(
    alloc: &dyn Fn(Layout) -> NonNull<u8>,
    resize: &dyn Fn(NonNull<u8>, Layout, Layout) -> NonNull<u8>,
    free: &dyn Fn(NonNull<u8>, Layout),
) {
    let layout = |size| Layout::from_size_align(size, 8).unwrap();
    let others: Vec<_> = (1..40).map(|n| (alloc(layout(n * 24)), layout(n * 24))).collect();
    for _ in 0..3 {
        let mut text = (alloc(layout(8)), 8);
        while text.1 < 8 << 10 {
            text = (resize(text.0, layout(text.1), layout(text.1 * 2)), text.1 * 2);
        }
        free(text.0, layout(text.1));
    }
    for (block, layout) in others {
        free(block, layout);
    }
}

fn is_steady(work: impl Fn(), statistics: impl Fn() -> Statistics) {
    for _ in 0..10 {
        work();
    }
    let before = statistics();
    for _ in 0..10_000 {
        work();
    }
    let after = statistics();
    assert_eq!(after.live_objects, 0);
    assert_eq!(after.peak_held_bytes, before.peak_held_bytes);
    assert_eq!(after.source_calls, before.source_calls);
}

#[test]
fn a_string_that_grows_again_and_again_takes_the_same_memory_of_a_reap() {
    let reap = Reap::new();
    // SAFETY: each block is used as it was allocated, and freed once.
    let once = || unsafe {
        work(
            &|layout| reap.alloc_layout(layout),
            &|block, old, new| reap.resize(block, old, new),
            &|block, layout| reap.free_layout(block, layout),
        );
    };
    is_steady(once, || reap.statistics());
}

#[test]
fn a_string_that_grows_again_and_again_takes_the_same_memory_of_a_pool() {
    let pool = LocalPool::new();
    // SAFETY: as above.
    let once = || unsafe {
        work(
            &|layout| pool.alloc_layout(layout),
            &|block, old, new| pool.resize(block, old, new),
            &|block, layout| pool.free_layout(block, layout),
        );
    };
    is_steady(once, || pool.statistics());
}
