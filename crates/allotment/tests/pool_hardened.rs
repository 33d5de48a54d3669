//! What is particular to hardened pools: blocks that outlive their pool, and threads that free
//! them. The misuses that every hardened allocator detects are in `claims_misuse.rs`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;

use allotment::{LocalPool, PoolRef};
use support::child::{self, Child};
use support::misuse::print_address;
use support::slab::Object;

const BLOCK: Layout = Layout::new::<[u64; 3]>();

/// Frees a block on another thread, correctly or not.
fn free_elsewhere(block: NonNull<u8>, layout: Layout) {
    let address = block.as_ptr().expose_provenance();
    std::thread::scope(|scope| {
        let free = move || {
            let block = core::ptr::with_exposed_provenance_mut(address);
            // SAFETY: none: this is the misuse, or the call before it.
            unsafe { PoolRef::free_anywhere(NonNull::new(block).expect("an address"), layout) }
        };
        scope.spawn(free).join().unwrap();
    });
}

#[test]
fn a_misuse_of_a_pool_that_has_ended_is_stopped_while_a_block_is_live() {
    let test = "a_misuse_of_a_pool_that_has_ended_is_stopped_while_a_block_is_live";
    for (case, words) in [("double free", "double free"), ("overrun", "overrun")] {
        let role = format!("{test} {case}");
        if child::is(&role) {
            let pool = LocalPool::builder().name("victim").hardened(true).build();
            let (_kept, block) = (pool.alloc_layout(BLOCK), pool.alloc_layout(BLOCK));
            print_address(block);
            drop(pool);
            if case == "overrun" {
                // SAFETY: none: this is the misuse. The chunk is still mapped.
                unsafe { block.add(BLOCK.size()).write(1) };
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
