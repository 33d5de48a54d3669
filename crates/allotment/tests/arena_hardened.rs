//! What is particular to a hardened arena: scopes, writes after a reset, owners of addresses. The
//! misuses that every hardened allocator detects are in `claims_misuse.rs`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;

use allotment::arena::Retain;
use allotment::source::SharedSource;
use allotment::{Arena, ErrorKind, Malloc, Source, owner_of};
use support::fork::forked;
use support::kernel::{is_resident, mappings, page_size};
use support::misuse::{self, print_address};

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

fn hardened() -> Arena {
    Arena::builder().name("victim").hardened(true).build()
}

/// Allocates an object, and prints its address.
fn object(arena: &Arena, size: usize) -> NonNull<u8> {
    let object = arena.alloc_layout(layout(size));
    print_address(object);
    object
}

/// Runs `misuse` in a child process, which must be stopped.
fn is_stopped(test: &str, words: &str, size: usize, misuse: fn()) -> String {
    misuse::is_stopped(test, test, "arena 'victim'", words, size, misuse)
}

#[test]
fn an_overrun_by_one_byte_is_stopped_at_the_drop_and_at_a_scopes_end() {
    let test = "an_overrun_by_one_byte_is_stopped_at_the_drop_and_at_a_scopes_end";
    is_stopped(test, "overrun", 100, || {
        let mut arena = hardened();
        arena.scope(|scope| {
            let object = object(scope, 100);
            // SAFETY: none: this is the misuse.
            unsafe { object.add(100).write(1) };
        });
    });
}

#[test]
fn a_write_after_reset_is_stopped_when_the_memory_is_used_again() {
    let test = "a_write_after_reset_is_stopped_when_the_memory_is_used_again";
    is_stopped(test, "write after reset", 24, || {
        let retain = Retain::UpTo(1 << 20);
        let mut arena = Arena::builder().name("victim").hardened(true).retain(retain).build();
        let object = object(&arena, 24);
        arena.reset();
        // SAFETY: none: this is the misuse.
        unsafe { object.write(1) };
        _ = arena.alloc_layout(layout(24));
    });
}

#[test]
fn a_write_after_a_scope_is_stopped_when_the_memory_is_used_again() {
    let test = "a_write_after_a_scope_is_stopped_when_the_memory_is_used_again";
    is_stopped(test, "write after reset", 24, || {
        let mut arena = hardened();
        arena.alloc(1u64);
        let object = arena.scope(|scope| object(scope, 24));
        // SAFETY: none: this is the misuse.
        unsafe { object.write(1) };
        _ = arena.alloc_layout(layout(24));
    });
}

#[test]
fn correct_programs_are_not_stopped_on_any_source() {
    struct Own;
    // SAFETY: malloc keeps the contract.
    unsafe impl Source for Own {
        fn name(&self) -> &str {
            "own"
        }

        fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, allotment::AllocError> {
            Malloc.acquire(layout)
        }

        unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
            // SAFETY: guaranteed by the caller.
            unsafe { Malloc.release(block, layout) }
        }
    }
    let own = SharedSource::from(std::sync::Arc::new(Own));
    for source in [SharedSource::default(), SharedSource::from(Malloc), own] {
        let mut arena = Arena::builder().hardened(true).source(source).build();
        for _ in 0..3 {
            let mut words = allotment::ArenaVec::new_in(&arena);
            for number in 0..300 {
                words.push(arena.alloc_str(&format!("number {number}")));
            }
            assert_eq!(*words[299], *"number 299");
            drop(words);
            arena.scope(|scope| {
                scope.alloc_slice_with(1000, |index| index);
            });
            let object = arena.alloc_layout(layout(100));
            // SAFETY: live, with this layout, and written within its bounds.
            unsafe {
                object.write_bytes(0xff, 100);
                arena.free_layout(object, layout(100));
            }
            arena.reset();
        }
        assert_eq!(arena.statistics().live_objects, 0);
    }
}

#[test]
fn the_owner_of_an_address_is_found_until_the_arena_is_dropped() {
    let arena = Arena::builder().name("landlord").hardened(true).build();
    let small = arena.alloc_layout(layout(8)).as_ptr();
    let large = arena.alloc_layout(layout(5 << 20)).as_ptr();
    let inside = [small, large, large.wrapping_add((5 << 20) - 1)];
    for address in inside {
        let owner = owner_of(address).expect("a hardened arena registers its segments");
        assert_eq!((owner.name.as_str(), owner.kind), ("landlord", "arena"));
        assert_eq!(owner.statistics.live_objects, 2);
    }
    assert_eq!(owner_of(&0u8), None);
    assert_eq!(owner_of(core::ptr::null::<u8>()), None);
    drop(arena);
    for address in inside {
        assert!(owner_of(address).is_none_or(|owner| owner.name != "landlord"));
    }
}

#[test]
fn a_rewound_scopes_segments_have_no_owner() {
    let mut arena = Arena::builder().name("scoped").hardened(true).build();
    arena.alloc(1);
    let address = arena.scope(|scope| scope.alloc_layout(layout(1 << 20)).as_ptr());
    assert!(owner_of(address).is_none_or(|owner| owner.name != "scoped"));
}

/// Makes mappings until the process can have only about `left` more. They are never unmapped. Returns
/// how many it can have in all.
fn leave_mappings(left: usize) -> usize {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("Linux has it");
    let most: usize = most.trim().parse().expect("a number");
    let pairs = (most - mappings()).saturating_sub(left) / 2;
    let bytes = 2 * pairs * page_size();
    // SAFETY: a mapping without memory, which nothing else uses. Of its pages every second becomes
    // readable, so each page is a mapping of its own.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        for pair in 0..pairs {
            let page = start.byte_add(2 * pair * page_size());
            assert_eq!(libc::mprotect(page, page_size(), libc::PROT_READ), 0);
        }
    }
    most
}

#[test]
fn at_the_limit_of_mappings_hardened_arenas_stay_usable_and_their_memory_goes_back() {
    const ARENAS: usize = 3000;
    const LEFT: usize = 500;
    // SAFETY: no other thread of this process holds a lock that the child takes.
    let status = unsafe {
        forked(|| {
            let mut arenas: Vec<Option<(Arena, NonNull<usize>)>> = (0..ARENAS)
                .map(|number| {
                    let arena = hardened();
                    let object = NonNull::from(arena.alloc(number));
                    Some((arena, object))
                })
                .collect();
            let most = leave_mappings(LEFT);
            // Each would leave a gap between two others, which splits a mapping.
            let mut released = Vec::new();
            for (_, object) in arenas.iter_mut().step_by(2).filter_map(Option::take) {
                released.push(object.addr().get());
            }
            assert!(mappings() + LEFT / 2 > most, "the limit was not reached");
            let resident = released.iter().filter(|&&address| is_resident(address) == Some(true));
            assert_eq!(resident.count(), 0, "released chunks that have memory");
            // What lives is as it was, and can be used.
            for (index, arena) in arenas.iter().enumerate() {
                let Some((arena, object)) = arena else { continue };
                assert_eq!(object.read(), index);
                assert_eq!(arena.try_alloc(7).map(|object| *object), Ok(7));
            }
            // A new arena works, or reports the system's error.
            let new: Vec<Arena> = (0..100).map(|_| hardened()).collect();
            for arena in &new {
                if let Err(error) = arena.try_alloc(7) {
                    assert_eq!(error.kind(), ErrorKind::System(libc::ENOMEM));
                }
            }
            drop((arenas, new));
            // With the neighbours of a chunk, its addresses go too.
            let mapped = released.iter().filter(|&&address| is_resident(address).is_some());
            assert_eq!(mapped.count(), 0, "released chunks that are still mapped");
        })
    };
    assert_eq!(status, 0);
}
