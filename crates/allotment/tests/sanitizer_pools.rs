//! Freed memory of reaps and pools is poisoned: AddressSanitizer and Valgrind catch the access.
//! The claims about every allocator are in `claims_sanitizers.rs`.
//!
//! Each test runs one misuse in a child process under the tool that is there (see
//! `support/tool.rs`).
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::alloc::{Layout, System};
use std::hint::black_box;
use std::ptr::NonNull;

use allotment::{LocalPool, PoolGlobalAlloc, PoolRef, Reap, recycler};
use support::tool::{self, Access, CASE, fill, is_caught, read, write};

#[global_allocator]
static GLOBAL: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);

const WORDS: Layout = Layout::new::<[u64; 3]>();

/// The misuses, and beside them uses that are right and must pass. The chunk is still mapped in
/// every case.
fn run_case(case: &str) {
    let pool = LocalPool::new();
    match case {
        "clean" => clean(),
        "write to an ordinary box that was dropped" => {
            let mut boxed = pool.enter(|| Box::new([1u64; 3]));
            let address = (&raw mut *boxed).cast::<u8>();
            drop(boxed);
            write(address);
        }
        "read where an ordinary vector was before it grew" => {
            pool.enter(|| {
                let mut vec = vec![1u8; 100];
                let old = vec.as_ptr();
                vec.reserve(1000);
                read(black_box(old));
            });
        }
        "write to a block of a reap that is no more" => {
            let reap = Reap::builder().initial(200_000).build();
            let block = reap.alloc_layout(WORDS);
            drop(reap);
            assert!(recycler().cached_bytes() > 0, "the chunk is cached");
            write(block.as_ptr());
        }
        other => panic!("no case '{other}'"),
    }
}

fn free_of(block: NonNull<u8>, layout: Layout) {
    // SAFETY: allocated with this layout, and freed once.
    unsafe { PoolRef::free_anywhere(block, layout) }
}

/// Every way to get and give back memory, each byte of it touched.
fn clean() {
    for hardened in [false, true] {
        let pool = LocalPool::builder().hardened(hardened).reserved(100_000).build();
        let mut reap = Reap::builder().hardened(hardened).build();
        for _ in 0..3 {
            for size in [0, 1, 24, 100, 1000, 5000, 40_000, 300_000] {
                for align in [1, 16, 64, 4096] {
                    let layout = Layout::from_size_align(size, align).unwrap();
                    let larger = Layout::from_size_align(size + 100, align).unwrap();
                    let (ours, reaps) = (pool.alloc_layout(layout), reap.alloc_layout(layout));
                    fill(ours, size);
                    fill(reaps, size);
                    // SAFETY: allocated just now with this layout.
                    unsafe {
                        let (ours, reaps) =
                            (pool.resize(ours, layout, larger), reap.resize(reaps, layout, larger));
                        fill(ours, size + 100);
                        fill(reaps, size + 100);
                        free_of(ours, larger);
                        if align == 16 {
                            reap.free_layout(reaps, larger);
                        }
                    }
                }
            }
            reap.reset();
            let texts: Vec<_> = pool.enter(|| (0..2000).map(|number| number.to_string()).collect());
            std::thread::spawn(|| LocalPool::new().enter(|| drop(texts))).join().unwrap();
            pool.trim();
            reap.trim();
        }
        let kept = pool.enter(|| vec![1u8; 5000]);
        drop(pool);
        assert!(kept.iter().all(|byte| *byte == 1));
    }
    recycler().trim();
}

/// Not a claim of its own: what [`run`] starts in a child.
#[test]
fn the_child_runs_its_case() {
    if let Ok(case) = std::env::var(CASE) {
        run_case(&case);
    }
}

#[test]
fn what_is_right_makes_no_report() {
    tool::is_clean_in("the_child_runs_its_case", "clean");
}

#[test]
fn a_touch_of_what_ordinary_code_has_dropped_in_a_pool_is_caught() {
    is_caught("write to an ordinary box that was dropped", Access::Write);
    is_caught("read where an ordinary vector was before it grew", Access::Read);
}

#[test]
fn a_touch_of_a_block_of_a_dropped_reap_is_caught() {
    is_caught("write to a block of a reap that is no more", Access::Write);
}
