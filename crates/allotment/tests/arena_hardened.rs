//! What is particular to a hardened arena: scopes, writes after a reset, owners of addresses. The
//! misuses that every hardened allocator detects are in `claims_misuse.rs`.

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;

use allotment::{Arena, Malloc, Retain, SharedSource, Source, owner_of};
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
        arena.alloc_layout(layout(24));
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
        arena.alloc_layout(layout(24));
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
                arena.free(object, layout(100));
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
