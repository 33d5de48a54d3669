//! Arenas and the recycler in a child made by fork, while the parent's other threads were inside them.

use core::sync::atomic::{AtomicBool, Ordering};

use allotment::{Arena, recycler};

/// Makes, fills, checks and drops arenas of many sizes.
fn churn(rounds: usize) {
    for round in 0..rounds {
        let mut arena = Arena::with_hint(1 << (10 + round % 12));
        for size in [1, 100, 5000, 200_000] {
            let bytes = arena.alloc_slice_copy(&vec![round as u8; size]);
            assert!(bytes.iter().all(|&byte| byte == round as u8));
        }
        if round % 3 == 0 {
            arena.reset();
            arena.alloc(round);
        }
    }
}

#[test]
fn a_forked_child_uses_arenas_while_the_parents_threads_were_in_the_recycler() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..4 {
            threads.push(scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    churn(20);
                }
            }));
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                recycler().trim();
                std::thread::yield_now();
            }
        });
        for _ in 0..20 {
            // SAFETY: the child uses arenas, whose code takes no lock that another thread may hold, and
            // glibc's malloc, which is prepared for this; then it exits without running anything else.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                // SAFETY: an alarm ends a child that hangs; `_exit` runs nothing of the parent's.
                unsafe {
                    libc::alarm(30);
                    let result = std::panic::catch_unwind(|| {
                        churn(15);
                        recycler().trim();
                        churn(5);
                        let report = allotment::report();
                        assert!(report.recycler_cached_bytes <= report.recycler_limit_bytes);
                    });
                    libc::_exit(i32::from(result.is_err()));
                }
            }
            let mut status = 0;
            // SAFETY: waits for the child just made.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the child neither hung nor failed");
        }
        stop.store(true, Ordering::Relaxed);
        // Joined one by one: the end of the scope alone does not wait for what a thread keeps at hand.
        for thread in threads {
            thread.join().unwrap();
        }
    });
    recycler().trim();
    assert_eq!(recycler().cached_bytes(), 0);
}

#[test]
fn an_arena_from_before_the_fork_goes_on_in_the_child() {
    let arena = Arena::builder().name("inherited").build();
    let text = arena.alloc_str("from the parent");
    // SAFETY: as above.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let more = arena.alloc_slice_copy(&[1u8; 100_000]);
        let same = text == "from the parent" && more[99_999] == 1;
        text.make_ascii_uppercase();
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!same)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(text, "from the parent", "memory is private");
    assert_eq!(arena.statistics().live_objects, 1);
}
