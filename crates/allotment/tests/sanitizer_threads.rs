//! Sixteen threads at the recycler, the budgets and the registry at once, for ThreadSanitizer.
//!
//! The program has its own `main`: the standard library is not instrumented, and the test harness's threads
//! would drown the report in its own. `.ci/sanitizers` builds it with ThreadSanitizer; without one it is
//! a plain stress test. With `ALLOTMENT_SEED_RACE=1` it makes one race in the library's own code, which
//! the tool must find: the control that it sees anything at all.
//!
//! Memory is unmapped only between the phases, while one thread is left. The library's system calls don't go
//! through libc, so the tool does not see that a page which was unmapped and mapped again is another one,
//! and would call the new owner's first write a race with the old owner's last.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use allotment::{Arena, Budget, Release, owner_of, recycler, report};

const THREADS: usize = 16;
const ROUNDS: usize = 200;

fn main() {
    if std::env::var_os("ALLOTMENT_SEED_RACE").is_some() {
        seed_a_race();
        println!("the seeded race went through");
        return;
    }
    // Whatever a caller of `cargo test` passed for the harness (a filter, --list) does not apply here.
    let keep = 1 << 30;
    for phase in 0..3 {
        recycler().set_policy(Release::Keep(keep));
        stress(phase);
        recycler().trim();
        assert_eq!(recycler().cached_bytes(), 0, "every chunk was on a stack or unmapped");
    }
    println!("{THREADS} threads, {ROUNDS} rounds, 3 phases: ok");
}

fn stress(phase: usize) {
    let server = Budget::new(64 << 20);
    let finished = AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..THREADS {
            let (server, finished, done) = (&server, &finished, &done);
            threads.push(scope.spawn(move || {
                let request = server.child(8 << 20);
                for round in 0..ROUNDS {
                    one_request(&request, thread, round);
                }
                assert_eq!(request.used(), 0);
                if finished.fetch_add(1, Ordering::Relaxed) + 1 == THREADS {
                    done.store(true, Ordering::Relaxed);
                }
            }));
        }
        let done = &done;
        threads.push(scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                for allocator in report().allocators {
                    assert!(allocator.name.starts_with("request "), "{}", allocator.name);
                }
                // Every value keeps all there is: what changes is the bookkeeping.
                let policies = [Release::Keep(1 << 30), Release::Decay(Duration::from_secs(3600))];
                recycler().set_policy(policies[phase % 2]);
                recycler().set_limit(1 << 30);
            }
        }));
        // By hand: the end of a scope waits on atomics of the standard library, which the tool can't see.
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!(server.used(), 0);
}

fn one_request(budget: &Budget, thread: usize, round: usize) {
    let hardened = round % 32 == 0;
    let mut arena = Arena::builder()
        .name(format!("request {thread}"))
        .budget(budget)
        // A hardened arena unmaps its chunks.
        .hardened(hardened && std::env::var_os("ALLOTMENT_EXPECT_TOOL").is_none())
        .build();
    let numbers = arena.alloc_slice_with(5000, |index| index + round);
    let sum: usize = numbers.iter().sum();
    assert_eq!(sum, 5000 * round + 4999 * 5000 / 2);
    if let Some(owner) = owner_of(numbers.as_ptr()) {
        assert_eq!(owner.name, format!("request {thread}"));
    }
    arena.scope(|scope| {
        for size in [10, 1000, 40_000] {
            scope.alloc_slice_with(size, |index| index as u8);
        }
    });
    arena.reset();
    // Another thread may drop it.
    if round % 8 == 0 {
        std::thread::scope(|scope| scope.spawn(move || drop(arena)).join().unwrap());
    }
}

/// Two threads in one arena, which only a lie to the compiler makes possible.
fn seed_a_race() {
    struct Shared(Arena);
    // SAFETY: none: this is the race that the tool must find.
    unsafe impl Sync for Shared {}
    let shared = Shared(Arena::with_hint(64 << 20));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let shared = &shared;
            scope.spawn(move || {
                // Larger than a window: each moves the arena's base, a plain write. Nothing orders the two
                // threads, so the tool sees the race even where one runs after the other; small objects move
                // the record's word alone, which is atomic.
                for _ in 0..8 {
                    shared.0.alloc_uninit::<[u8; 3 << 19]>();
                }
            });
        }
    });
}
