//! Freed memory of reaps and pools is poisoned: AddressSanitizer and Valgrind catch who touches it.
//!
//! Each test runs one misuse in a child process under the tool that is there (see `support/tool.rs`).

#[path = "support/mod.rs"]
mod support;

use std::alloc::{Layout, System};
use std::hint::black_box;
use std::ptr::NonNull;

use allotment::{LocalPool, PoolGlobalAlloc, PoolRef, Reap, recycler};
use support::tool::{Access, CASE, Tool, expected_tool, fill, is_caught, read, run, write};

#[global_allocator]
static GLOBAL: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);

const WORDS: Layout = Layout::new::<[u64; 3]>();
const LARGE: Layout = Layout::new::<[u8; 100_000]>();

/// The misuses, and beside them uses that are right and must pass. The chunk is still mapped in every case.
fn run_case(case: &str) {
    let pool = LocalPool::new();
    let mut reap = Reap::new();
    let kept = pool.alloc_layout(WORDS);
    fill(kept, 24);
    let of_reap = reap.alloc_layout(WORDS);
    // SAFETY: allocated with this layout, and freed once.
    let free = |block: NonNull<u8>, layout| unsafe {
        PoolRef::free_anywhere(block, layout);
        block.as_ptr()
    };
    match case {
        "clean" => clean(),
        "write to a freed block" => write(free(pool.alloc_layout(WORDS), WORDS)),
        "read of a freed block" => {
            let block = pool.alloc_layout(WORDS);
            fill(block, 24);
            read(free(block, WORDS).wrapping_add(23));
        }
        "write to a block that another thread freed" => {
            let address = pool.alloc_layout(WORDS).as_ptr().expose_provenance();
            let block = move || {
                NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("an address")
            };
            std::thread::spawn(move || free_of(block(), WORDS)).join().unwrap();
            write(block().as_ptr());
        }
        "write to a freed large block" => write(free(pool.alloc_layout(LARGE), LARGE)),
        "overrun of a block by one byte" => write(kept.as_ptr().wrapping_add(24)),
        "overrun of a large block by one byte" => {
            write(pool.alloc_layout(LARGE).as_ptr().wrapping_add(100_000));
        }
        "write to an ordinary box that was dropped" => {
            let mut boxed = pool.enter(|| Box::new([1u64; 3]));
            let place = (&raw mut *boxed).cast::<u8>();
            drop(boxed);
            write(place);
        }
        "read where an ordinary vector was before it grew" => {
            pool.enter(|| {
                let mut vec = vec![1u8; 100];
                let old = vec.as_ptr();
                vec.reserve(1000);
                read(black_box(old));
            });
        }
        "read of a pool's memory that nobody had" => read(kept.as_ptr().wrapping_add(4000)),
        "branch on bytes of a block that were never written" => {
            let block = pool.alloc_layout(WORDS);
            fill(block, 24);
            free(block, WORDS);
            for _ in 0..2000 {
                free(pool.alloc_layout(WORDS), WORDS);
            }
            let again = pool.alloc_layout(WORDS);
            // SAFETY: the block's own bytes, which the tool must know to be unwritten.
            if black_box(unsafe { again.cast::<u64>().read_volatile() }) == 7 {
                println!("seven");
            }
        }
        "write to a block of a reap that was freed" => {
            // SAFETY: allocated above, and freed once.
            unsafe { reap.free_layout(of_reap, WORDS) };
            write(of_reap.as_ptr());
        }
        "read of a block of a reap that was reset" => {
            fill(of_reap, 24);
            reap.reset();
            read(of_reap.as_ptr());
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
                        let (ours, reaps) = (
                            pool.resize(ours, layout, size + 100),
                            reap.resize(reaps, layout, size + 100),
                        );
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
    let Some((_, output)) = run("clean") else { return };
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}");
    for word in ["AddressSanitizer", "Invalid", "uninitialised"] {
        assert!(!report.contains(word), "{report}");
    }
}

#[test]
fn a_touch_of_a_freed_block_is_caught_whoever_freed_it() {
    is_caught("write to a freed block", Access::Write);
    is_caught("read of a freed block", Access::Read);
    is_caught("write to a block that another thread freed", Access::Write);
    is_caught("write to a freed large block", Access::Write);
}

#[test]
fn an_overrun_by_one_byte_is_caught() {
    is_caught("overrun of a block by one byte", Access::Write);
    is_caught("overrun of a large block by one byte", Access::Write);
}

#[test]
fn a_touch_of_what_ordinary_code_has_dropped_in_a_pool_is_caught() {
    is_caught("write to an ordinary box that was dropped", Access::Write);
    is_caught("read where an ordinary vector was before it grew", Access::Read);
}

#[test]
fn a_read_of_memory_that_nobody_had_is_caught() {
    is_caught("read of a pool's memory that nobody had", Access::Read);
}

#[test]
fn a_touch_of_a_reaps_block_that_was_freed_alone_or_with_all_is_caught() {
    is_caught("write to a block of a reap that was freed", Access::Write);
    is_caught("read of a block of a reap that was reset", Access::Read);
    is_caught("write to a block of a reap that is no more", Access::Write);
}

#[test]
fn a_branch_on_bytes_that_were_never_written_is_caught_by_valgrind() {
    if expected_tool() == Some(Tool::AddressSanitizer) {
        return println!("skipped: AddressSanitizer does not look at what was written");
    }
    let Some((_, output)) = run("branch on bytes of a block that were never written") else {
        return;
    };
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(report.contains("depends on uninitialised"), "{report}");
}
