//! Freed memory of arenas and free lists is poisoned: AddressSanitizer and Valgrind catch the
//! access. The claims about every allocator are in `claims_sanitizers.rs`.
//!
//! Each test runs one misuse in a child process under the tool that is there (see
//! `support/tool.rs`).
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::alloc::Layout;
use std::ptr::NonNull;

use allotment::arena::Retain;
use allotment::{Arena, ArenaVec, FreeList, ListBox, RawFreeList, Release, recycler};
use support::tool::{self, Access, CASE, fill, is_caught, read, write};

/// An address of an object without the borrow that would forbid the misuse.
fn bytes_of<T>(object: &mut T) -> *mut u8 {
    std::ptr::from_mut(object).cast()
}

const EIGHT: Layout = Layout::new::<u64>();

/// The misuses, and beside them uses that are right and must pass.
fn run_case(case: &str) {
    let mut arena = Arena::with_capacity(20_000);
    // An object that stays, so that no case is about a chunk's first byte alone.
    let kept = bytes_of(arena.alloc(0u64));
    match case {
        "clean" => clean(&mut arena),
        "write after rewind" => {
            let object = bytes_of(arena.mark().alloc([7u64; 4]));
            write(object);
        }
        "read after scope" => {
            let object = arena.scope(|scope| bytes_of(scope.alloc(7u64)).addr());
            read(kept.with_addr(object));
        }
        "write to a shrunk tail" => {
            let sixteen = Layout::new::<[u64; 2]>();
            let object = arena.alloc_layout(sixteen);
            // SAFETY: allocated just now with this layout, and smaller afterwards.
            let shrunk = unsafe { arena.try_resize(object, sixteen, EIGHT) }.unwrap();
            write(shrunk.as_ptr().wrapping_add(8));
        }
        "read from a vector's old place" => {
            let mut vec = ArenaVec::with_capacity_in(4, &arena);
            vec.push(1u64);
            let old = vec.as_ptr().cast::<u8>();
            arena.alloc(2u64);
            vec.reserve(100);
            read(old);
        }
        "write to a chunk that a reset kept" => {
            let mut arena = Arena::builder().retain(Retain::UpTo(1 << 20)).build();
            let first = bytes_of(arena.alloc([1u8; 4000]));
            arena.alloc([2u8; 8000]);
            arena.reset();
            write(first);
        }
        "write to a chunk in the recycler" => {
            // More than a thread would keep at hand.
            let arena = Arena::with_capacity(200_000);
            let object = bytes_of(arena.alloc(1u64));
            drop(arena);
            assert!(recycler().cached_bytes() > 0, "the chunk is cached");
            write(object);
        }
        "write to a small chunk that was given back" => {
            drop(arena);
            write(kept);
        }
        "read of a recycled chunk beyond the position" => {
            drop(arena);
            let next = Arena::with_capacity(20_000);
            assert_eq!(next.statistics().recycled_chunks, 1, "the chunk came back");
            read(kept.wrapping_add(3000));
        }
        "branch on bytes that were never written" => {
            drop(arena);
            let next = Arena::with_capacity(20_000);
            let object = next.alloc_layout(EIGHT);
            tool::branch_on(object);
        }
        other => run_list_case(other),
    }
}

/// As above, for a free list.
fn run_list_case(case: &str) {
    let list = RawFreeList::new(Layout::new::<[u64; 3]>());
    let kept = list.alloc();
    fill(kept, 24);
    let free = |object: NonNull<u8>| {
        // SAFETY: allocated below, and freed once.
        unsafe { list.free(object) };
        object.as_ptr()
    };
    match case {
        "clean list" => clean_list(&list),
        "write to a value whose box was dropped" => {
            let values = FreeList::new();
            let _kept = values.alloc([1u64; 3]);
            let mut boxed = values.alloc([1u64; 3]);
            let value = bytes_of(&mut *boxed);
            drop(boxed);
            write(value);
        }
        "read behind an object of a list's run" => {
            let run = list.alloc_run(3);
            read(run.as_ptr().wrapping_add(list.stride() + 24));
        }
        "write to a freed object of a list's run" => {
            let run = list.alloc_run(3);
            // SAFETY: the run has three.
            write(free(unsafe { run.add(list.stride()) }));
        }
        "write to a list's chunk that a trim gave back" => {
            // SAFETY: the only object.
            unsafe { list.free(kept) };
            assert!(list.trim() > 0);
            write(kept.as_ptr());
        }
        "write to a list's chunk that went to the recycler" => {
            let list = RawFreeList::builder(EIGHT).objects_per_chunk(20_000).build();
            let object = list.alloc();
            drop(list);
            assert!(recycler().cached_bytes() > 0, "the slab is cached");
            write(object.as_ptr());
        }
        other => panic!("no case '{other}'"),
    }
}

/// Every way to get and give back objects of a list, each byte of them touched.
fn clean_list(list: &RawFreeList) {
    for _ in 0..3 {
        let mut objects: Vec<_> = (0..3000).map(|_| list.alloc()).collect();
        let run = list.alloc_run(1000);
        // SAFETY: the run has 1000 objects.
        objects.extend((0..1000).map(|index| unsafe { run.add(index * list.stride()) }));
        objects.push(list.alloc_fresh());
        for object in objects {
            fill(object, 24);
            // SAFETY: allocated above, and freed once.
            unsafe { list.free(object) };
        }
        list.trim();
    }
    for hardened in [false, true] {
        let values = FreeList::builder().hardened(hardened).build();
        let mut boxes: Vec<ListBox<'_, String>> =
            (0..2000).map(|number| values.alloc(number.to_string())).collect();
        boxes.retain(|boxed| boxed.len() < 4);
        boxes.extend(values.alloc_run(50).map(|slot| slot.fill("of a run".to_owned())));
        assert_eq!(boxes.iter().map(|boxed| boxed.len()).sum::<usize>(), 2890 + 400);
    }
    recycler().trim();
}

/// Every way to get and give back memory, each byte of it touched.
fn clean(arena: &mut Arena) {
    for round in 0..3 {
        for size in [1, 7, 8, 9, 64, 1000, 5000, 70_000] {
            let layout = Layout::from_size_align(size, 64).unwrap();
            let object = arena.alloc_layout(layout);
            fill(object, size);
            let larger = Layout::from_size_align(size + 9, 64).unwrap();
            // SAFETY: allocated just now with this layout.
            let object = unsafe { arena.resize(object, layout, larger) };
            fill(object, size + 9);
            // SAFETY: grown just now to this layout.
            unsafe { arena.free_layout(object, larger) };
        }
        assert!(arena.calloc(100, 33).iter().all(|&byte| byte == 0));
        arena.scope(|scope| {
            let outer = scope.alloc([1u8; 100]);
            scope.scope(|inner| inner.alloc_slice_copy(outer).fill(2));
            outer.fill(3);
        });
        let text: String = (0..2000).map(|n| char::from(b'a' + n as u8 % 26)).collect();
        let mut vec: ArenaVec<'_, &str> = ArenaVec::new_in(arena);
        vec.extend(text.as_bytes().chunks(3).map(|part| std::str::from_utf8(part).unwrap()));
        assert_eq!(vec.concat(), text);
        drop(vec);
        match round {
            0 => arena.reset(),
            1 => *arena = Arena::builder().release(Release::AtOnce).build(),
            _ => *arena = Arena::builder().hardened(true).build(),
        }
    }
    recycler().trim();
}

/// Not a claim of its own: what [`run`] starts in a child.
#[test]
fn the_child_runs_its_case() {
    if let Ok(case) = std::env::var(CASE) {
        run_case(&case);
    }
}

#[test]
fn what_is_right_makes_no_report() {
    for case in ["clean", "clean list"] {
        tool::is_clean_in("the_child_runs_its_case", case);
    }
}

#[test]
fn a_write_after_a_marks_rewind_is_caught() {
    is_caught("write after rewind", Access::Write);
}

#[test]
fn a_read_after_the_end_of_a_scope_is_caught() {
    is_caught("read after scope", Access::Read);
}

#[test]
fn a_write_to_the_tail_that_a_shrink_cut_off_is_caught() {
    is_caught("write to a shrunk tail", Access::Write);
}

#[test]
fn a_read_where_a_vector_was_before_it_grew_is_caught() {
    is_caught("read from a vector's old place", Access::Read);
}

#[test]
fn a_write_to_a_chunk_that_a_reset_kept_is_caught() {
    is_caught("write to a chunk that a reset kept", Access::Write);
}

#[test]
fn a_write_to_a_chunk_in_the_recycler_is_caught() {
    is_caught("write to a chunk in the recycler", Access::Write);
}

#[test]
fn a_write_to_a_small_chunk_that_was_given_back_is_caught() {
    is_caught("write to a small chunk that was given back", Access::Write);
}

#[test]
fn a_read_of_the_free_part_of_a_recycled_chunk_is_caught() {
    is_caught("read of a recycled chunk beyond the position", Access::Read);
}

#[test]
fn a_write_to_a_freed_object_of_a_run_or_a_dropped_box_is_caught() {
    is_caught("write to a freed object of a list's run", Access::Write);
    is_caught("write to a value whose box was dropped", Access::Write);
}

#[test]
fn a_read_behind_an_object_of_a_run_is_caught() {
    is_caught("read behind an object of a list's run", Access::Read);
}

#[test]
fn a_write_to_a_chunk_that_a_list_released_is_caught() {
    is_caught("write to a list's chunk that a trim gave back", Access::Write);
    is_caught("write to a list's chunk that went to the recycler", Access::Write);
}

#[test]
fn recycled_bytes_count_as_unwritten_for_valgrind() {
    tool::is_unwritten_in("the_child_runs_its_case", "branch on bytes that were never written");
}
