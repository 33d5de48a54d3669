//! What resets and the recycler keep. The tests run one at a time, because the recycler belongs to
//! the process.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use allotment::arena::Retain;
use allotment::{Arena, Mmap, Release, recycler};
use support::fork::forked;

/// Ends another thread's work when it is dropped.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The right to use the recycler alone.
struct Exclusive {
    _guard: MutexGuard<'static, ()>,
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        // Otherwise this thread's chunk would go to the recycler during the next test.
        recycler().trim();
    }
}

/// Waits for the other tests, and empties the recycler and resets its policy and limit.
fn exclusive() -> Exclusive {
    static LOCK: Mutex<()> = Mutex::new(());
    let guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    recycler().set_limit(1 << 30);
    recycler().set_policy(Release::Adaptive);
    recycler().trim();
    assert_eq!(recycler().cached_bytes(), 0);
    Exclusive { _guard: guard }
}

/// A query: 100,000 objects of 32 bytes.
fn query(arena: &Arena) {
    for index in 0..100_000u64 {
        let object = arena.alloc([index; 4]);
        assert_eq!(object[3], index);
    }
}

/// Fills chunks of this many bytes, and gives them back together.
fn fill_and_drop(bytes: usize) {
    let arena = Arena::new();
    for _ in 0..bytes / (512 << 10) {
        arena.alloc_slice_uninit::<u8>(512 << 10);
    }
}

#[test]
fn after_two_queries_a_query_takes_every_chunk_from_the_recycler() {
    let _exclusive = exclusive();
    for round in 0..6 {
        let arena = Arena::new();
        query(&arena);
        let statistics = arena.statistics();
        if round >= 2 {
            assert_eq!(statistics.source_calls, 0, "round {round}");
            assert_eq!(statistics.recycled_chunks, statistics.chunks);
        }
    }
}

#[test]
fn after_two_queries_a_reused_arena_makes_no_source_call_either() {
    let _exclusive = exclusive();
    for retain in [Retain::Nothing, Retain::Newest, Retain::UpTo(1 << 20), Retain::UpTo(64 << 20)] {
        let mut arena = Arena::builder().retain(retain).build();
        for _ in 0..2 {
            query(&arena);
            arena.reset();
        }
        let calls = arena.statistics().source_calls;
        for _ in 0..4 {
            query(&arena);
            arena.reset();
        }
        assert_eq!(arena.statistics().source_calls, calls, "{retain:?}");
    }
}

#[test]
fn no_policy_ratchets_to_the_largest_request() {
    let _exclusive = exclusive();
    for (retain, most) in [
        (Retain::Nothing, 0),
        (Retain::Newest, 64 << 10),
        (Retain::UpTo(256 << 10), 256 << 10),
        (Retain::UpTo(0), 0),
    ] {
        let mut arena = Arena::builder().retain(retain).build();
        for _ in 0..5 {
            arena.alloc_slice_uninit::<u8>(3 << 20);
            arena.alloc_slice_uninit::<u8>(300 << 10);
            query(&arena);
            arena.reset();
        }
        for _ in 0..100 {
            arena.alloc_slice_copy(&[1u8; 2000]);
            arena.reset();
        }
        assert!(arena.statistics().held_bytes <= most, "{retain:?}: {:?}", arena.statistics());
        drop(arena);
    }
}

#[test]
fn newest_keeps_a_chunk_of_the_usual_size_and_up_to_keeps_at_most_its_bytes() {
    let _exclusive = exclusive();
    let mut arena = Arena::new();
    for _ in 0..4 {
        arena.alloc_slice_copy(&[1u8; 3000]);
        arena.reset();
        assert_eq!((arena.statistics().chunks, arena.statistics().held_bytes), (1, 4096));
    }
    let mut hinted = Arena::with_capacity(300_000);
    for _ in 0..4 {
        hinted.alloc(1);
        hinted.reset();
        assert_eq!(hinted.statistics().chunks, 1, "a reset keeps the hinted chunk");
    }
    for most in [0, 4096, 10_000, 1 << 20, usize::MAX] {
        let mut arena = Arena::builder().retain(Retain::UpTo(most)).build();
        for _ in 0..3 {
            query(&arena);
            let held = arena.statistics().held_bytes;
            arena.reset();
            let kept = arena.statistics().held_bytes;
            assert!(kept <= most as u64 && kept <= held);
            assert!(most < usize::MAX || kept == held);
        }
    }
}

#[test]
fn an_arena_that_releases_at_once_leaves_nothing_and_takes_nothing() {
    let _exclusive = exclusive();
    fill_and_drop(1 << 20);
    let warm = recycler().cached_bytes();
    assert!(warm > 0);
    let mut arena = Arena::builder().release(Release::AtOnce).retain(Retain::Nothing).build();
    for _ in 0..3 {
        query(&arena);
        assert_eq!(recycler().cached_bytes(), warm);
        arena.reset();
        assert_eq!(recycler().cached_bytes(), warm);
    }
    assert_eq!(arena.statistics().recycled_chunks, 0);
    drop(arena);
    assert_eq!(recycler().cached_bytes(), warm);
}

#[test]
fn a_recycler_switched_off_keeps_nothing() {
    let _exclusive = exclusive();
    fill_and_drop(1 << 20);
    assert!(recycler().cached_bytes() > 0);
    recycler().set_policy(Release::AtOnce);
    assert_eq!((recycler().cached_bytes(), recycler().policy()), (0, Release::AtOnce));
    for _ in 0..3 {
        fill_and_drop(4 << 20);
        assert_eq!(recycler().cached_bytes(), 0);
    }
}

#[test]
fn keep_and_the_limit_bound_what_is_kept() {
    let _exclusive = exclusive();
    for most in [0, 4096, 1 << 20, 3 << 20, 9 << 20] {
        recycler().set_policy(Release::Keep(most));
        for _ in 0..3 {
            fill_and_drop(8 << 20);
            assert!(recycler().cached_bytes() <= most, "{} of {most}", recycler().cached_bytes());
        }
        if most >= 1 << 20 {
            assert!(recycler().cached_bytes() > 0);
        }
    }
    recycler().set_policy(Release::Keep(usize::MAX));
    fill_and_drop(8 << 20);
    assert!(recycler().cached_bytes() >= 8 << 20);
    recycler().set_limit(2 << 20);
    assert!(recycler().cached_bytes() <= 2 << 20, "the excess goes back immediately");
    fill_and_drop(8 << 20);
    assert!(recycler().cached_bytes() <= 2 << 20);
    recycler().set_limit(0);
    assert_eq!(recycler().cached_bytes(), 0);
}

#[test]
fn chunks_that_were_idle_for_the_decay_time_go_back() {
    let _exclusive = exclusive();
    recycler().set_policy(Release::Decay(Duration::from_millis(30)));
    fill_and_drop(16 << 20);
    assert!(recycler().cached_bytes() >= 16 << 20);
    // One interval to detect that the memory is idle, and more to be sure. Each ends with a call
    // that gives memory back.
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(60));
        fill_and_drop(512 << 10);
    }
    assert!(recycler().cached_bytes() <= 2 << 20, "{}", recycler().cached_bytes());
}

#[test]
fn idle_chunks_go_back_while_a_thread_uses_its_own_chunk_only() {
    let _exclusive = exclusive();
    recycler().set_policy(Release::Decay(Duration::from_millis(30)));
    fill_and_drop(16 << 20);
    assert!(recycler().cached_bytes() >= 16 << 20);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(60));
        for request in 0..300 {
            Arena::new().alloc(request);
        }
    }
    assert!(recycler().cached_bytes() <= 2 << 20, "{}", recycler().cached_bytes());
}

#[test]
fn the_adaptive_policy_keeps_what_a_second_round_takes() {
    let _exclusive = exclusive();
    // Memory that other tests gave back just before would count as a first round.
    std::thread::sleep(Duration::from_millis(1100));
    fill_and_drop(32 << 20);
    let after_one = recycler().cached_bytes();
    assert!(after_one <= 4 << 20, "one burst leaves little: {after_one}");
    // The second round raises the allowance, or the third if this machine paused for a second.
    fill_and_drop(32 << 20);
    fill_and_drop(32 << 20);
    assert!(recycler().cached_bytes() >= 32 << 20, "{}", recycler().cached_bytes());
    let arena = Arena::new();
    for _ in 0..20 {
        arena.alloc_slice_uninit::<u8>(512 << 10);
    }
    assert_eq!(arena.statistics().source_calls, 0);
}

#[test]
fn a_fork_in_the_middle_of_a_trim_leaves_the_child_an_exact_count() {
    let _exclusive = exclusive();
    recycler().set_policy(Release::Keep(256 << 20));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = Stops(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fill_and_drop(64 << 20);
                recycler().trim();
            }
        });
        let mut wrong = 0;
        for _ in 0..60 {
            std::thread::sleep(Duration::from_millis(7));
            let work = || {
                recycler().trim();
                assert_eq!(recycler().cached_bytes(), 0, "after a trim nothing is kept");
            };
            // SAFETY: the recycler takes no lock.
            wrong += u32::from(unsafe { forked(work) } != 0);
        }
        drop(stops);
        assert_eq!(wrong, 0, "children that counted chunks which are nowhere");
    });
}

#[test]
fn huge_page_chunks_are_recycled_among_themselves() {
    let _exclusive = exclusive();
    recycler().set_policy(Release::Keep(usize::MAX));
    drop(Arena::builder().source(Mmap::huge_pages()).hint(1 << 20).build());
    assert_eq!(recycler().cached_bytes(), 2 << 20);
    let ordinary = Arena::with_capacity(2 << 20);
    assert_eq!(ordinary.statistics().recycled_chunks, 0);
    let huge = Arena::builder().huge_pages().hint(1 << 20).build();
    assert_eq!(huge.statistics().recycled_chunks, 1);
    assert_eq!(recycler().cached_bytes(), 0);
}

#[test]
fn hardened_chunks_bypass_the_recycler() {
    let _exclusive = exclusive();
    let mut arena = Arena::builder().hardened(true).build();
    arena.alloc_slice_copy(&[1u8; 1 << 20]);
    arena.reset();
    drop(arena);
    assert_eq!(recycler().cached_bytes(), 0);
}

#[test]
fn recycled_memory_that_calloc_gives_reads_zeros() {
    let _exclusive = exclusive();
    recycler().set_policy(Release::Keep(usize::MAX));
    for _ in 0..3 {
        let arena = Arena::new();
        for _ in 0..50 {
            let zeros = arena.calloc(1000, 37);
            assert!(zeros.iter().all(|&byte| byte == 0));
            zeros.fill(0xff);
        }
    }
    assert!(recycler().cached_bytes() > 0);
}

#[test]
fn a_limit_of_zero_leaves_the_caller_no_chunk_and_other_threads_theirs_until_they_use_it() {
    let _exclusive = exclusive();
    let recycled = || Arena::with_capacity(4000).statistics().recycled_chunks;
    let (at_start, in_start) = std::sync::mpsc::channel();
    let (at_limit, in_limit) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        drop(Arena::with_capacity(4000));
        at_start.send(()).unwrap();
        in_limit.recv().unwrap();
        [recycled(), recycled()]
    });
    in_start.recv().unwrap();
    for hint in [4000, 60_000] {
        drop(Arena::with_capacity(hint));
    }
    recycler().set_limit(0);
    assert_eq!(recycled(), 0);
    assert_eq!(Arena::with_capacity(60_000).statistics().recycled_chunks, 0);
    at_limit.send(()).unwrap();
    assert_eq!(other.join().unwrap(), [1, 0]);
    assert_eq!(recycler().cached_bytes(), 0);
}
