//! Requests of a server, checked byte by byte: tasks that move between threads, pools around polls
//! and for each request, and blocks that escape from them in every way. At the end no block is live
//! and the memory has gone back.
//!
//! The long test serves three million requests.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::alloc::System;
use std::io::Write;

use allotment::{LocalPool, PoolGlobalAlloc};
use support::child::{self, Child};
use support::filled_block::{Calls, FilledBlock, Ledger};
use support::kernel::page_size;
use support::list::{passed_through, under_a_tool};
use support::request_load::{Event, serve};
use support::slab::layout;

#[global_allocator]
static GLOBAL: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// What more of the same load may add to the memory that it leaves.
const GROWTH: usize = 4 * MIB;
/// What an ended pool without live blocks leaves to the next one, at most.
const LEFT_BY_A_POOL: usize = 256 * KIB;
/// More pools than the load has at a time, ended ones with live blocks included.
const POOLS: usize = 300;

fn ledger() -> &'static Ledger {
    Box::leak(Box::default())
}

/// The resident bytes of this process.
fn resident() -> usize {
    // SAFETY: gives free memory of malloc back, so that what is left is not malloc's.
    unsafe { libc::malloc_trim(0) };
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = statm.split(' ').nth(1).expect("the second is what is resident");
    pages.parse::<usize>().expect("a number") * page_size()
}

/// Serves requests. Every byte of every block is checked, and at the end no block is live.
fn requests_keep_every_byte(requests: u64) {
    let ledger = ledger();
    let served = serve(ledger, requests);
    assert_eq!(ledger.live(), (0, 0), "blocks and bytes that are live");
    println!(
        "{} requests on {} threads: {} blocks, {} bytes compared; {:?}",
        served.requests,
        served.workers,
        ledger.blocks(),
        ledger.checked_bytes(),
        served.events,
    );
    // Without pools, none refuses.
    let excused = |event: &Event| *event == Event::Refused && passed_through();
    let missing: Vec<_> = served.missing.iter().filter(|event| !excused(event)).collect();
    assert!(missing.is_empty(), "{missing:?} have not happened in {requests} requests");
}

/// Asserts that no pool has a live block, and that ended pools hold no more than they may.
fn pools_are_empty() {
    // They take over what ended pools have left, those with live blocks first.
    let pools: Vec<_> = (0..POOLS).map(|_| LocalPool::new()).collect();
    for pool in &pools {
        let statistics = pool.statistics();
        assert_eq!(statistics.live_objects, 0, "{statistics:?}");
        assert!(statistics.held_bytes <= LEFT_BY_A_POOL as u64, "{statistics:?}");
    }
    let held: u64 = pools.iter().map(|pool| pool.statistics().held_bytes).sum();
    println!("ended pools hold {} KiB", held / 1024);
    for pool in &pools {
        pool.trim();
        assert_eq!(pool.statistics().held_bytes, 0);
    }
}

/// Serves requests in a process of its own, in which memory is what the load has left.
fn requests_give_all_memory_back(test: &str, requests: u64) {
    if !child::is(test) {
        if under_a_tool() || passed_through() {
            return println!("skipped: a checked pool has a ledger and a quarantine");
        }
        // The arenas of ended threads keep free memory, which is malloc's affair.
        let one_arena = "glibc.malloc.arena_max=1";
        print!("{}", Child::new(test, test).env("GLIBC_TUNABLES", one_arena).succeeds());
        return;
    }
    // What the program needs once: its code, the stacks of its threads, its tables.
    requests_keep_every_byte(requests.min(20_000));
    let before = resident();
    requests_keep_every_byte(requests);
    let grown = resident().saturating_sub(before);
    println!("{} KiB more are resident", grown / 1024);
    pools_are_empty();
    assert!(grown <= GROWTH, "{grown} bytes are left of {requests} requests");
}

#[test]
fn a_byte_that_changes_is_found_wherever_it_is() {
    let ledger = ledger();
    for size in [1, 7, 8, 250, 251, 252, 600, 1000, 40_000] {
        let mut block = FilledBlock::new(ledger, layout(size, 8), Calls::Global);
        for index in (0..size).step_by(1 + size / 2000).chain([size - 1]) {
            assert_eq!(block.found_if_changed(index), Some(index), "of {size}");
        }
        let block = block.resize(size / 2 + 1).resize(2 * size);
        assert_eq!(ledger.live(), (1, 2 * size));
        drop(block);
    }
    assert_eq!(ledger.live(), (0, 0));
}

#[test]
fn requests_in_pools_of_every_kind_keep_every_byte() {
    requests_keep_every_byte(REQUESTS);
}

/// Enough for every event.
const REQUESTS: u64 = 12_000;

#[test]
fn requests_in_pools_of_every_kind_keep_every_byte_in_pass_through_mode() {
    let test = "requests_in_pools_of_every_kind_keep_every_byte_in_pass_through_mode";
    if child::is(test) {
        return requests_keep_every_byte(REQUESTS);
    }
    Child::new(test, test).env("ALLOTMENT_PASSTHROUGH", "1").succeeds();
}

#[test]
fn what_escapes_requests_gives_its_memory_back_when_it_is_freed() {
    let test = "what_escapes_requests_gives_its_memory_back_when_it_is_freed";
    requests_give_all_memory_back(test, 30_000);
}

#[test]
fn three_million_requests_keep_every_byte_and_give_all_memory_back() {
    let test = "three_million_requests_keep_every_byte_and_give_all_memory_back";
    if std::env::var_os("ALLOTMENT_LONG_TESTS").is_none() {
        let text = format!("SKIPPED: {test}: ALLOTMENT_LONG_TESTS is not set");
        let _ = writeln!(std::io::stderr(), "{text}");
        return;
    }
    requests_give_all_memory_back(test, 3_000_000);
}
