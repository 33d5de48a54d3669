//! Memory that the process locks (`mlockall`): allocators work within the limit on locked memory,
//! what they hand out is locked, and what they give back no longer takes memory.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;

use allotment::{LocalPool, RawSlab, Release, recycler};
use support::child::{self, Child};
use support::kernel::is_resident;
use support::list::{passed_through, under_a_tool};
use support::slab::{assert_apart, layout};
use support::subject::{Options, Subject, claims};

/// The usual limit of a process, in bytes.
const LIMIT: u64 = 8 << 20;
const BLOCK: usize = 1 << 20;

claims! {
    every: an_allocator_works_within_the_limit_on_locked_memory;
}

/// Locks what is mapped from now on, and with `now` also what is mapped already. Returns why the
/// test is skipped, if it is.
fn lock(now: bool, limited: bool) -> Option<&'static str> {
    if under_a_tool() || passed_through() {
        return Some("a memory tool or malloc has the memory");
    }
    let flags = libc::MCL_FUTURE | if now { libc::MCL_CURRENT } else { 0 };
    // SAFETY: locks memory.
    if unsafe { libc::mlockall(flags) } != 0 {
        return Some("this process may not lock so much memory, or nothing at all");
    }
    let beyond = map(LIMIT as usize + 4096);
    match (limited, beyond) {
        (true, Some(_)) => Some("this process may lock any amount of memory"),
        (false, None) => Some("this process may not lock enough memory"),
        _ => None,
    }
}

/// Maps memory, and unmaps it again. Returns `None` if the kernel refuses.
fn map(len: usize) -> Option<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, which nothing refers to.
    unsafe {
        let start = libc::mmap(core::ptr::null_mut(), len, protection, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return None;
        }
        libc::munmap(start, len);
    }
    Some(())
}

/// Whether the caller is the child that runs the test. Otherwise runs the child, with a limit on
/// the memory that it may lock, or without one.
fn in_child(test: &str, limited: bool) -> bool {
    if !child::is(test) {
        let child = Child::new(test, test);
        let text = if limited { child.limit_locked(LIMIT) } else { child }.succeeds();
        text.lines().filter(|line| line.starts_with("skipped")).for_each(|line| println!("{line}"));
        return false;
    }
    true
}

/// Locks memory, and goes on unless the test is skipped.
macro_rules! lock_or_skip {
    ($now:expr, $limited:expr) => {
        if let Some(reason) = lock($now, $limited) {
            return println!("skipped: {reason}");
        }
    };
}

fn an_allocator_works_within_the_limit_on_locked_memory<S: Subject>(test: &str) {
    if !in_child(test, true) {
        return;
    }
    lock_or_skip!(false, true);
    for &hardened in S::MODES {
        let options = Options::of(layout(2000, 8)).hardened(hardened);
        let subject = S::create(&options);
        for _ in 0..3 {
            let objects = subject.stamped(options.layout, 40);
            assert_apart(&objects);
            subject.free_all(options.layout, objects);
            subject.trim();
        }
    }
}

/// The bytes that this process has locked.
fn locked_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmLck:")).expect("it is listed");
    let kibibytes = line.split_whitespace().nth(1).expect("a number");
    kibibytes.parse::<usize>().expect("a number") << 10
}

fn block() -> Layout {
    layout(BLOCK, 8)
}

fn filled(pool: &LocalPool) -> NonNull<u8> {
    let start = pool.alloc_layout(block());
    // SAFETY: just allocated.
    unsafe { start.write_bytes(1, BLOCK) };
    start
}

/// Counts those pages of blocks that have memory.
fn resident_pages(blocks: &[NonNull<u8>]) -> usize {
    let pages = |block: &NonNull<u8>| {
        let start = block.addr().get();
        (start..start + BLOCK).step_by(4096).filter(|page| is_resident(*page) == Some(true)).count()
    };
    blocks.iter().map(pages).sum()
}

#[test]
fn a_pool_locks_the_memory_that_it_hands_out_and_no_other() {
    if !in_child("a_pool_locks_the_memory_that_it_hands_out_and_no_other", true) {
        return;
    }
    lock_or_skip!(false, true);
    let before = locked_bytes();
    let pool = LocalPool::new();
    let blocks: Vec<_> = (0..3).map(|_| filled(&pool)).collect();
    let locked = locked_bytes() - before;
    assert!((3 * BLOCK..5 * BLOCK).contains(&locked), "{locked} bytes are locked");
    for block in blocks {
        // SAFETY: allocated above, freed once.
        unsafe { pool.free_layout(block, self::block()) };
    }
    drop(pool);
    let locked = locked_bytes() - before;
    assert!(locked < BLOCK, "{locked} bytes are still locked");
}

#[test]
fn a_pool_refuses_what_exceeds_the_limit_on_locked_memory_and_goes_on() {
    if !in_child("a_pool_refuses_what_exceeds_the_limit_on_locked_memory_and_goes_on", true) {
        return;
    }
    lock_or_skip!(false, true);
    let pool = LocalPool::new();
    assert!(pool.try_alloc_layout(layout(2 * LIMIT as usize, 8)).is_err());
    let mut blocks: Vec<_> = core::iter::from_fn(|| pool.try_alloc_layout(block()).ok()).collect();
    assert!((2..8).contains(&blocks.len()), "{} blocks", blocks.len());
    let last = blocks.pop().expect("there are some");
    // SAFETY: allocated above, freed once.
    unsafe { pool.free_layout(last, block()) };
    blocks.push(filled(&pool));
    for block in blocks {
        // SAFETY: as above.
        unsafe { pool.free_layout(block, self::block()) };
    }
}

#[test]
fn locked_memory_that_a_pool_gives_back_takes_none() {
    if !in_child("locked_memory_that_a_pool_gives_back_takes_none", true) {
        return;
    }
    lock_or_skip!(false, true);
    let pool = LocalPool::new();
    let blocks: Vec<_> = (0..3).map(|_| filled(&pool)).collect();
    assert_eq!(resident_pages(&blocks), 3 * BLOCK / 4096);
    for block in &blocks {
        // SAFETY: allocated above, freed once.
        unsafe { pool.free_layout(*block, self::block()) };
    }
    drop(pool);
    assert_eq!(resident_pages(&blocks), 0);
}

#[test]
fn memory_that_is_locked_after_a_pool_was_made_goes_back_too() {
    if !in_child("memory_that_is_locked_after_a_pool_was_made_goes_back_too", false) {
        return;
    }
    let pool = LocalPool::new();
    let mut blocks = vec![filled(&pool)];
    lock_or_skip!(true, false);
    blocks.extend((0..10).map(|_| filled(&pool)));
    for block in &blocks {
        // SAFETY: allocated above, freed once.
        unsafe { pool.free_layout(*block, self::block()) };
    }
    drop(pool);
    assert_eq!(resident_pages(&blocks), 0);
}

#[test]
fn what_a_pool_held_in_a_process_that_locks_its_memory_takes_none_in_the_end() {
    let test = "what_a_pool_held_in_a_process_that_locks_its_memory_takes_none_in_the_end";
    if !in_child(test, false) {
        return;
    }
    lock_or_skip!(false, false);
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        let pages = statm.split(' ').nth(1).expect("the second is what is resident");
        pages.parse::<usize>().expect("a number") * 4096
    };
    // The region exists from the first pool on.
    let first = LocalPool::new();
    let block = filled(&first);
    // SAFETY: just allocated, freed once.
    unsafe { first.free_layout(block, self::block()) };
    drop(first);
    let before = resident();
    let pool = LocalPool::new();
    let blocks: Vec<_> = (0..100).map(|_| filled(&pool)).collect();
    assert!(resident() - before >= 100 * BLOCK);
    for block in blocks {
        // SAFETY: allocated above, freed once.
        unsafe { pool.free_layout(block, self::block()) };
    }
    drop(pool);
    let left = resident().saturating_sub(before);
    assert!(left < 4 * BLOCK, "{left} bytes stay resident");
}

#[test]
fn locked_pages_that_a_slab_gives_back_take_no_memory() {
    if !in_child("locked_pages_that_a_slab_gives_back_take_no_memory", false) {
        return;
    }
    lock_or_skip!(false, false);
    recycler().set_policy(Release::AtOnce);
    let slab = RawSlab::builder(layout(4096, 8)).release(Release::AtOnce).build();
    let mut objects: Vec<_> = (0..2000).map(|_| slab.alloc()).collect();
    // Every range keeps a live object, so that none is unmapped.
    let stay: Vec<_> = objects.iter().copied().step_by(128).collect();
    objects.retain(|object| !stay.contains(object));
    for object in &objects {
        // SAFETY: allocated above, freed once.
        unsafe { slab.free(*object) };
    }
    slab.flush();
    let _ = slab.trim();
    let resident =
        objects.iter().filter(|object| is_resident(object.addr().get()) == Some(true)).count();
    // Pages of a slab that have a live object stay.
    assert!(resident <= stay.len() * 16, "{resident} of {} have memory", objects.len());
    for object in stay {
        // SAFETY: as above.
        unsafe { slab.free(object) };
    }
}
