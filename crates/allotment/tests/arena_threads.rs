//! Many threads make, use, reset and drop arenas while another one changes the recycler's policy.
//! In a test binary of its own, because the recycler belongs to the process.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::mpsc;

use allotment::arena::Retain;
use allotment::{Arena, Budget, Mmap, Release, recycler};
use support::model::Model;

const THREADS: usize = 16;
const ROUNDS: usize = 150;

fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as usize
}

fn arena(state: &mut u64, budget: &Budget) -> Arena {
    let mut builder = Arena::builder().budget(budget).retain(match random(state) % 3 {
        0 => Retain::Nothing,
        1 => Retain::Newest,
        _ => Retain::UpTo(random(state) % (1 << 20)),
    });
    if random(state) % 4 == 0 {
        builder = builder.release(Release::AtOnce);
    }
    if random(state) % 16 == 0 {
        builder = builder.source(Mmap::huge_pages());
    }
    if random(state) % 16 == 0 {
        builder = builder.hardened(true);
    }
    builder.hint(random(state) % 50_000).build()
}

/// Makes an arena, fills it with objects of known content, resets it now and then, and passes some
/// on.
fn work(seed: u64, budget: &Budget, to: &mpsc::Sender<Arena>, from: &mpsc::Receiver<Arena>) {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..ROUNDS {
        let mut arena = match from.try_recv() {
            // Made and used by another thread.
            Ok(mut arena) => {
                arena.reset();
                arena
            }
            Err(_) => arena(&mut state, budget),
        };
        let mut model = Model::default();
        for step in 0..random(&mut state) % 60 {
            let size = 1 + random(&mut state) % [64, 64, 2000, 60_000][random(&mut state) % 4];
            let layout = core::alloc::Layout::from_size_align(size, 1 << (step % 6)).unwrap();
            model.add(arena.alloc_layout(layout), layout, 1);
            if random(&mut state) % 40 == 0 {
                arena.reset();
                model.rewind(0);
            }
        }
        model.check(&arena.statistics());
        if random(&mut state) % 4 == 0 {
            let _ = to.send(arena);
        }
    }
}

#[test]
fn sixteen_threads_share_the_recycler_while_its_policy_and_limit_change() {
    let budget = Budget::new(usize::MAX);
    let running = AtomicU64::new(THREADS as u64);
    let mut senders = Vec::new();
    let mut receivers = Vec::new();
    for _ in 0..THREADS {
        let (sender, receiver) = mpsc::channel();
        senders.push(sender);
        receivers.push(receiver);
    }
    senders.rotate_left(1);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (thread, (to, from)) in senders.into_iter().zip(receivers).enumerate() {
            let (budget, running) = (budget.child(usize::MAX), &running);
            threads.push(scope.spawn(move || {
                struct Done<'r>(&'r AtomicU64);
                impl Drop for Done<'_> {
                    fn drop(&mut self) {
                        self.0.fetch_sub(1, Ordering::Relaxed);
                    }
                }
                let done = Done(running);
                work(thread as u64, &budget, &to, &from);
                drop(done);
            }));
        }
        scope.spawn(|| {
            let mut state = 12345;
            while running.load(Ordering::Relaxed) > 0 {
                match random(&mut state) % 8 {
                    0 => recycler().set_policy(Release::AtOnce),
                    1 => recycler().set_policy(Release::Keep(random(&mut state) % (8 << 20))),
                    2 => recycler().set_policy(Release::Decay(Duration::from_millis(2))),
                    3 => recycler().set_policy(Release::Adaptive),
                    4 => recycler().set_limit(random(&mut state) % (16 << 20)),
                    5 => recycler().set_limit(1 << 30),
                    _ => {
                        recycler().trim();
                    }
                }
                std::thread::yield_now();
            }
        });
        // Joined one by one: the end of the scope alone does not wait for what a thread keeps at
        // hand.
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!(budget.used(), 0, "every arena gave back what it held");
    recycler().trim();
    assert_eq!(recycler().cached_bytes(), 0);
}
