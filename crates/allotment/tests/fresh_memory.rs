//! What `recycler().fresh_memory()` tells of memory that came from the system.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::ffi::CString;

use allotment::recycler::FreshMemory;
use allotment::{Arena, ArenaVec, LocalPool, Mmap, RawFreeList, RawSlab, Release, recycler};
use support::child::{self, Child, Directory};
use support::kernel::{is_resident, mapping_flags, page_size};
use support::list::{passed_through, under_a_tool};
use support::slab::layout;

const MIB: u64 = 1 << 20;

/// Whether the caller is the child that runs the test, in a process of its own.
fn alone(test: &str) -> bool {
    if under_a_tool() || passed_through() {
        println!("skipped: a memory tool or malloc has the memory");
        return false;
    }
    if !child::is(test) {
        Child::new(test, test).succeeds();
        return false;
    }
    true
}

fn all_bytes(memory: FreshMemory) -> u64 {
    memory.huge_bytes + memory.refused_bytes + memory.small_bytes
}

/// The figures of what `work` takes from the system.
fn taken_by(work: impl FnOnce()) -> FreshMemory {
    let before = recycler().fresh_memory();
    work();
    let after = recycler().fresh_memory();
    let mut taken = after;
    taken.huge_bytes -= before.huge_bytes;
    taken.refused_bytes -= before.refused_bytes;
    taken.small_bytes -= before.small_bytes;
    taken
}

fn fill(arena: &Arena) {
    for _ in 0..8 << 8 {
        arena.alloc([1u8; 4096]);
    }
}

#[test]
fn what_allocators_take_from_the_system_is_counted_and_what_is_recycled_is_not() {
    if !alone("what_allocators_take_from_the_system_is_counted_and_what_is_recycled_is_not") {
        return;
    }
    recycler().set_policy(Release::Keep(usize::MAX));
    let taken = taken_by(|| fill(&Arena::new()));
    assert!((8 * MIB..12 * MIB).contains(&all_bytes(taken)), "{taken:?}");
    let taken = taken_by(|| fill(&Arena::new()));
    assert_eq!(all_bytes(taken), 0, "{taken:?}");
    let list = RawFreeList::builder(layout(4096, 8)).release(Release::AtOnce).build();
    let taken = taken_by(|| drop((0..8 << 8).map(|_| list.alloc()).collect::<Vec<_>>()));
    assert!((8 * MIB..12 * MIB).contains(&all_bytes(taken)), "{taken:?}");
    let slab = RawSlab::builder(layout(4096, 8)).build();
    let mut slots = Vec::new();
    let taken = taken_by(|| slots.extend((0..8 << 8).map(|_| slab.alloc())));
    assert!((8 * MIB..12 * MIB).contains(&all_bytes(taken)), "{taken:?}");
    for slot in slots {
        // SAFETY: allocated above, freed once.
        unsafe { slab.free(slot) };
    }
    let pool = LocalPool::new();
    let mut blocks = Vec::new();
    let taken = taken_by(|| blocks.extend((0..8).map(|_| pool.alloc_layout(layout(1 << 20, 8)))));
    assert!((8 * MIB..12 * MIB).contains(&taken.small_bytes), "{taken:?}");
    assert_eq!(all_bytes(taken), taken.small_bytes);
    for block in blocks {
        // SAFETY: as above.
        unsafe { pool.free_layout(block, layout(1 << 20, 8)) };
    }
}

#[test]
fn small_pages_are_never_advised_and_huge_pages_always() {
    if !alone("small_pages_are_never_advised_and_huge_pages_always") {
        return;
    }
    let arena = |source| Arena::builder().source(source).release(Release::AtOnce).build();
    let taken = taken_by(|| fill(&arena(Mmap::small_pages())));
    assert_eq!(all_bytes(taken), taken.small_bytes, "{taken:?}");
    let taken = taken_by(|| fill(&arena(Mmap::huge_pages())));
    assert_eq!(taken.small_bytes, 0, "{taken:?}");
    assert!(all_bytes(taken) >= 8 * MIB, "{taken:?}");
}

/// Puts a file in the place of the system's setting, in this process's own view of the mounts. Returns
/// whether that is permitted.
fn mount_setting(file: &str) -> bool {
    let file = CString::new(file).expect("a path");
    let setting = c"/sys/kernel/mm/transparent_hugepage/enabled";
    let none = core::ptr::null();
    // SAFETY: the strings end with a nul byte.
    unsafe { libc::mount(file.as_ptr(), setting.as_ptr(), none, libc::MS_BIND, none.cast()) == 0 }
}

#[test]
fn where_the_system_prefers_huge_pages_small_ones_are_requested() {
    let test = "where_the_system_prefers_huge_pages_small_ones_are_requested";
    if under_a_tool() || passed_through() {
        println!("skipped: a memory tool or malloc has the memory");
        return;
    }
    if !child::is(test) {
        for setting in ["always [madvise] never\n", "[always] madvise never\n"] {
            let directory = Directory::new(test);
            let file = directory.0.join("enabled");
            std::fs::write(&file, setting).expect("a file can be written");
            let child = Child::new(test, test).env("SETTING", file.to_str().expect("in UTF-8"));
            let text = child.own_mounts().succeeds();
            for line in text.lines().filter(|line| line.starts_with("skipped")) {
                println!("{line}");
            }
        }
        return;
    }
    let file = std::env::var("SETTING").expect("the parent gave one");
    let is_always = std::fs::read_to_string(&file).expect("it is there").starts_with("[always]");
    if !mount_setting(&file) {
        println!("skipped {test}: mounting a file is not permitted here");
        return;
    }
    let word = |arena: &Arena| core::ptr::from_ref(arena.alloc(1u8)).addr();
    let arena = |source: Mmap, hint| Arena::builder().source(source).hint(hint).build();
    let small = arena(Mmap::small_pages(), 8 << 20);
    let grown = arena(Mmap::new(), 1 << 20);
    let pool = LocalPool::new();
    let block = pool.alloc_layout(layout(64, 8));
    let fresh = [
        ("small pages", word(&small)),
        ("a chunk below 2 MiB", word(&grown)),
        ("a pool", block.addr().get()),
    ];
    for (name, address) in fresh {
        let flags = mapping_flags(address);
        assert_eq!(flags.iter().any(|flag| flag == "nh"), is_always, "{name}: {flags:?}");
    }
    // SAFETY: allocated above, freed once.
    unsafe { pool.free_layout(block, layout(64, 8)) };
    let tiny = Arena::new();
    let flags = mapping_flags(word(&tiny));
    assert!(!is_always || flags.iter().any(|flag| flag == "nh"), "a small chunk: {flags:?}");
}

#[test]
fn huge_pages_are_measured_against_small_ones() {
    if !alone("huge_pages_are_measured_against_small_ones") {
        return;
    }
    fill(&Arena::builder().release(Release::AtOnce).build());
    let memory = recycler().fresh_memory();
    if memory.huge_bytes + memory.refused_bytes > 0 {
        assert!(memory.populated_pages_nanos > 0, "{memory:?}");
    }
    assert_eq!(memory.huge_page_nanos > 0, memory.huge_bytes > 0, "{memory:?}");
}

#[test]
fn a_large_hint_takes_memory_for_its_first_huge_page_at_most() {
    if !alone("a_large_hint_takes_memory_for_its_first_huge_page_at_most") {
        return;
    }
    let arena = Arena::with_capacity(64 << 20);
    let first = core::ptr::from_ref(arena.alloc(1u8)).addr();
    assert_ne!(is_resident(first + (4 << 20)), Some(true));
}

/// The number of pages with memory among the first `bytes` bytes from an address on.
fn resident_pages(address: usize, bytes: usize) -> usize {
    let pages = (0..bytes).step_by(page_size());
    pages.filter(|page| is_resident(address + page) == Some(true)).count()
}

#[test]
fn an_arena_faults_in_64_kib_at_a_time_and_no_more() {
    if !alone("an_arena_faults_in_64_kib_at_a_time_and_no_more") {
        return;
    }
    let step = 64 << 10;
    let mut arena = Arena::builder().source(Mmap::small_pages()).hint(1 << 20).build();
    let first = core::ptr::from_ref(arena.alloc(1u8)).addr();
    let pages = |bytes| resident_pages(first, 1 << 20) * page_size() <= bytes;
    assert!(pages(step + page_size()), "{} pages", resident_pages(first, 1 << 20));
    if resident_pages(first, step) == 1 {
        return println!("skipped: the system faults in single pages only");
    }
    for filled in 1..=160 {
        let _ = arena.alloc_layout(layout(1 << 10, 8));
        let needed = (filled << 10) / page_size();
        assert!(resident_pages(first, 1 << 20) >= needed, "after {filled} KiB");
        assert!(pages((filled << 10) + step + 2 * page_size()), "after {filled} KiB");
    }
    // A window that a scope opens, and one that a rewind restores, end where these pages end.
    for _ in 0..3 {
        arena.scope(|scope| _ = scope.alloc_slice_copy(&[1u8; 40 << 10]));
        assert!(pages((200 << 10) + step + 2 * page_size()));
    }
    arena.reset();
    assert!(pages((200 << 10) + step + 2 * page_size()));
    // Untouched by the allocation itself: a large object's pages get memory when they are written.
    let large = arena.alloc_layout(layout(600 << 10, 8));
    assert!(resident_pages(large.addr().get() + (300 << 10), 200 << 10) == 0);
}

/// A recursion of this depth, with a vector in the arena at each level.
fn recursion(arena: &Arena, depth: u64) -> u64 {
    if depth == 0 {
        return 0;
    }
    let mut numbers = ArenaVec::new_in(arena);
    numbers.extend((0..64).map(|_| depth));
    recursion(arena, depth - 1) + numbers[63]
}

#[test]
fn objects_freed_in_reverse_order_give_all_their_bytes_back_in_small_pages_too() {
    if under_a_tool() {
        return println!("skipped: a checked arena keeps what was freed");
    }
    let layout = layout(256, 8);
    for objects in [200, 800, 1600] {
        let arena = Arena::builder().source(Mmap::small_pages()).build();
        let mut held = Vec::new();
        for _ in 0..100 {
            let taken: Vec<_> = (0..objects).map(|_| arena.alloc_layout(layout)).collect();
            for object in taken.into_iter().rev() {
                // SAFETY: allocated above with this layout, and not used any more.
                unsafe { arena.free_layout(object, layout) };
            }
            let depth = objects / 2;
            assert_eq!(recursion(&arena, depth), depth * (depth + 1) / 2);
            let statistics = arena.statistics();
            assert_eq!(statistics.live_objects, 0);
            held.push(statistics.held_bytes);
        }
        let settled = held[3];
        assert!(held[3..].iter().all(|bytes| *bytes == settled), "{objects} objects: {held:?}");
    }
}

#[test]
fn a_slab_gives_a_range_back_that_is_a_huge_page() {
    if !alone("a_slab_gives_a_range_back_that_is_a_huge_page") {
        return;
    }
    for source in [Mmap::new(), Mmap::huge_pages()] {
        let slab =
            RawSlab::builder(layout(4096, 8)).source(source).release(Release::AtOnce).build();
        let mut slots: Vec<_> = (0..4 << 10).map(|_| slab.alloc()).collect();
        // One live slot in each 2 MiB, so that no range is unmapped.
        let stay: Vec<_> = slots.iter().copied().step_by(512).collect();
        slots.retain(|slot| !stay.contains(slot));
        for slot in &slots {
            // SAFETY: allocated above, freed once.
            unsafe { slab.free(*slot) };
        }
        slab.flush();
        let _ = slab.trim();
        let resident = slots.iter().filter(|slot| is_resident(slot.addr().get()) == Some(true));
        let resident = resident.count();
        assert!(resident <= stay.len() * 16, "{resident} of {} have memory", slots.len());
        for slot in stay {
            // SAFETY: as above.
            unsafe { slab.free(slot) };
        }
    }
}
