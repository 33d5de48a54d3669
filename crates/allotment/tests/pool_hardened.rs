//! The hardened mode of reaps and pools: each misuse, in its own process, is named and stops the
//! process.

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;

use allotment::{LocalPool, PoolRef, Reap};
use support::child::{self, Child};
use support::misuse::{self, print_address};
use support::slab::{Object, assert_apart, layout};

const SIZE: usize = 24;
const BLOCK: Layout = Layout::new::<[u64; 3]>();
/// The bytes of the red zone behind such a block.
const ZONE: usize = 24;

/// A hardened reap or pool.
trait Victim {
    fn alloc(&self, layout: Layout) -> NonNull<u8>;
    /// Frees a block, correctly or not.
    fn free(&self, block: NonNull<u8>, layout: Layout);
    /// As above, on the owner's thread.
    fn free_own(&self, block: NonNull<u8>, layout: Layout) {
        self.free(block, layout);
    }
    fn trim(&self);
}

impl Victim for Reap {
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.alloc_layout(layout)
    }

    fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: none: this is the misuse, or the call before it.
        unsafe { self.free_layout(block, layout) }
    }

    fn trim(&self) {
        Self::trim(self);
    }
}

impl Victim for LocalPool {
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.alloc_layout(layout)
    }

    fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.free_layout(block, layout) }
    }

    fn trim(&self) {
        Self::trim(self);
    }
}

/// A pool whose blocks are freed on another thread.
struct FreedElsewhere(LocalPool);

impl Victim for FreedElsewhere {
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.enter(|| PoolRef::default().try_alloc_layout(layout).unwrap())
    }

    fn free(&self, block: NonNull<u8>, layout: Layout) {
        free_elsewhere(block, layout);
    }

    fn free_own(&self, block: NonNull<u8>, layout: Layout) {
        // Another thread would return the block to the pool that it belongs to.
        self.0.free(block, layout);
    }

    fn trim(&self) {
        self.0.trim();
    }
}

fn free_elsewhere(block: NonNull<u8>, layout: Layout) {
    let address = block.as_ptr().expose_provenance();
    std::thread::scope(|scope| {
        let free = move || {
            let block = core::ptr::with_exposed_provenance_mut(address);
            // SAFETY: as above.
            unsafe { PoolRef::free_anywhere(NonNull::new(block).expect("an address"), layout) }
        };
        scope.spawn(free).join().unwrap();
    });
}

type Makes = fn() -> Box<dyn Victim>;

fn pool() -> LocalPool {
    LocalPool::builder().name("victim").hardened(true).build()
}

const VICTIMS: [(&str, Makes); 3] = [
    ("reap", || Box::new(Reap::builder().name("victim").hardened(true).build())),
    ("pool", || Box::new(pool())),
    ("pool elsewhere", || Box::new(FreedElsewhere(pool()))),
];

/// Allocates a block, and prints its address.
fn block(victim: &dyn Victim) -> NonNull<u8> {
    let block = victim.alloc(BLOCK);
    print_address(block);
    block
}

/// Writes a byte, correctly or not.
fn write(block: NonNull<u8>, offset: usize) {
    // SAFETY: none: this is the misuse. The chunk is still mapped.
    unsafe { block.add(offset).write(1) }
}

/// Runs `misuse` on each victim in a child process, which must be stopped.
fn are_stopped(test: &str, case: &str, words: &str, misuse: impl Fn(Box<dyn Victim>)) {
    for (kind, make) in VICTIMS {
        let case = format!("{test} {kind} {case}");
        let allocator = format!("{} 'victim'", &kind[..4]);
        misuse::is_stopped(test, &case, &allocator, words, SIZE, || misuse(make()));
    }
}

#[test]
fn a_double_free_is_stopped() {
    are_stopped("a_double_free_is_stopped", "", "double free", |victim| {
        let block = block(&*victim);
        victim.free(block, BLOCK);
        victim.free(block, BLOCK);
    });
}

#[test]
fn a_stale_free_is_stopped_during_quarantine_and_after_it() {
    let test = "a_stale_free_is_stopped_during_quarantine_and_after_it";
    are_stopped(test, "in quarantine", "double free", |victim| {
        let stale = block(&*victim);
        victim.free(stale, BLOCK);
        // New blocks don't get its memory.
        for _ in 0..200 {
            let new = victim.alloc(BLOCK);
            assert_ne!(new, stale);
            victim.free(new, BLOCK);
        }
        victim.free(stale, BLOCK);
    });
    are_stopped(test, "after it", "double free", |victim| {
        let stale = block(&*victim);
        let others: Vec<_> = (0..1500).map(|_| victim.alloc(layout(100, 1))).collect();
        victim.free(stale, BLOCK);
        for other in others {
            victim.free(other, layout(100, 1));
        }
        victim.free(stale, BLOCK);
    });
}

#[test]
fn foreign_pointers_are_stopped() {
    let test = "foreign_pointers_are_stopped";
    for (case, offset) in [("second byte", 1), ("middle", 8), ("behind", SIZE), ("next block", 48)]
    {
        are_stopped(test, case, "foreign pointer", |victim| {
            // SAFETY: in the same chunk.
            let pointer = unsafe { victim.alloc(BLOCK).add(offset) };
            print_address(pointer);
            victim.free(pointer, BLOCK);
        });
    }
}

#[test]
fn a_block_of_another_heap_is_stopped() {
    let test = "a_block_of_another_heap_is_stopped";
    for (case, of_pool) in [("another pool's", true), ("malloc's", false)] {
        are_stopped(test, case, "foreign pointer", |victim| {
            let other = LocalPool::builder().hardened(true).build();
            let pointer = match of_pool {
                true => other.alloc_layout(BLOCK),
                false => NonNull::from(Box::leak(Box::new([7u64; 3]))).cast(),
            };
            print_address(pointer);
            victim.free_own(pointer, BLOCK);
        });
    }
}

#[test]
fn a_wrong_size_or_alignment_is_stopped() {
    let test = "a_wrong_size_or_alignment_is_stopped";
    are_stopped(test, "size", "wrong size at free, allocated with 25 bytes", |victim| {
        let block = victim.alloc(layout(SIZE + 1, 8));
        print_address(block);
        victim.free(block, BLOCK);
    });
    let alignment = "wrong alignment at free, allocated with alignment 64";
    are_stopped(test, "alignment", alignment, |victim| {
        let block = victim.alloc(layout(SIZE, 64));
        print_address(block);
        victim.free(block, BLOCK);
    });
    are_stopped(test, "large", "wrong size at free, allocated with 100000 bytes", |victim| {
        let block = victim.alloc(layout(100_000, 8));
        print_address(block);
        victim.free(block, BLOCK);
    });
}

#[test]
fn an_overrun_is_stopped_at_the_free() {
    for offset in [SIZE, SIZE + 7, SIZE + ZONE - 1] {
        let case = format!("byte {offset}");
        are_stopped("an_overrun_is_stopped_at_the_free", &case, "overrun", |victim| {
            let block = block(&*victim);
            write(block, offset);
            victim.free(block, BLOCK);
        });
    }
}

#[test]
fn a_write_after_free_is_stopped() {
    let test = "a_write_after_free_is_stopped";
    for offset in [0, SIZE - 1, SIZE + 3] {
        are_stopped(test, &format!("used again {offset}"), "write after free", |victim| {
            let block = block(&*victim);
            victim.free(block, BLOCK);
            write(block, offset);
            for _ in 0..1100 {
                victim.free(victim.alloc(BLOCK), BLOCK);
            }
        });
    }
    are_stopped(test, "trim", "write after free", |victim| {
        let block = block(&*victim);
        victim.free(block, BLOCK);
        write(block, 7);
        victim.trim();
        panic!("the trim did not detect it");
    });
    are_stopped(test, "drop", "write after free", |victim| {
        let _kept = victim.alloc(BLOCK);
        let block = block(&*victim);
        victim.free(block, BLOCK);
        write(block, 7);
        drop(victim);
    });
}

#[test]
fn a_misuse_of_a_pool_that_has_ended_is_stopped_while_a_block_is_live() {
    let test = "a_misuse_of_a_pool_that_has_ended_is_stopped_while_a_block_is_live";
    for (case, words) in [("double free", "double free"), ("overrun", "overrun")] {
        let role = format!("{test} {case}");
        if child::is(&role) {
            let pool = pool();
            let (_kept, block) = (pool.alloc_layout(BLOCK), block(&pool));
            drop(pool);
            if case == "overrun" {
                write(block, SIZE);
            }
            free_elsewhere(block, BLOCK);
            free_elsewhere(block, BLOCK);
            panic!("the misuse was not detected");
        }
        if !child::is_any() {
            let stderr = Child::new(test, &role).aborts();
            assert!(stderr.contains(&format!("pool 'victim': {words}")), "{stderr}");
        }
    }
}

#[test]
fn correct_programs_are_not_stopped() {
    for (_, make) in VICTIMS {
        let victim = make();
        for size in [0, 1, 24, 100, 5000, 40_000] {
            for align in [1, 16, 64, 4096] {
                let layout = layout(size, align);
                let count = if size < 1000 { 40 } else { 5 };
                let blocks: Vec<_> = (0..count)
                    .map(|number| Object::stamp(victim.alloc(layout), layout, number))
                    .collect();
                assert_apart(&blocks);
                blocks.into_iter().for_each(|block| victim.free(block.end(), layout));
            }
        }
        victim.trim();
    }
}

#[test]
fn threads_free_blocks_of_a_hardened_pool_during_its_life_and_after_its_end() {
    let (send, receive) = std::sync::mpsc::channel::<Vec<Object>>();
    let budget = allotment::Budget::new(usize::MAX);
    let receive = std::sync::Mutex::new(receive);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let received = receive.lock().unwrap().recv();
                    let Ok(blocks) = received else { return };
                    for block in blocks {
                        // SAFETY: live until now.
                        unsafe { PoolRef::free_anywhere(block.end(), BLOCK) };
                    }
                }
            });
        }
        for round in 0..20 {
            let pool = LocalPool::builder().hardened(true).budget(&budget).build();
            for part in 0..10 {
                let number = |index: u64| (round * 10 + part) * 100 + index;
                let blocks = (0..100)
                    .map(|index| Object::stamp(pool.alloc_layout(BLOCK), BLOCK, number(index)));
                send.send(blocks.collect()).unwrap();
            }
        }
        drop(send);
    });
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_pool_that_ends_with_live_blocks_reports_them_if_that_is_on() {
    let test = "a_pool_that_ends_with_live_blocks_reports_them_if_that_is_on";
    if child::is(test) {
        for (name, report) in
            [("told", Some(true)), ("not told", None), ("told not to", Some(false))]
        {
            let builder = LocalPool::builder().name(name);
            let pool = match report {
                Some(report) => builder.report_live(report).build(),
                None => builder.build(),
            };
            for _ in 0..7 {
                let _ = pool.alloc_layout(BLOCK);
            }
        }
        drop(LocalPool::builder().name("told for nothing").report_live(true).build());
        return;
    }
    let text = Child::new(test, test).succeeds();
    assert!(text.contains("allotment: pool 'told' ended with 7 objects in use"), "{text}");
    assert_eq!(text.matches("ended with").count(), 1, "{text}");
}
