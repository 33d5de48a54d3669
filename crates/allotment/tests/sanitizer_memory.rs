//! Freed memory of arenas and free lists is poisoned: AddressSanitizer and Valgrind catch who touches it.
//!
//! Each test runs one misuse in a child process under the tool that is there (see `support/tool.rs`).

#[path = "support/mod.rs"]
mod support;

use std::alloc::Layout;
use std::hint::black_box;
use std::ptr::NonNull;

use allotment::{Arena, ArenaVec, FreeList, ListBox, RawFreeList, Release, Retain, recycler};
use support::tool::{Access, CASE, Tool, expected_tool, fill, is_caught, read, run, write};

/// An address of an object without the borrow that would forbid the misuse.
fn bytes_of<T>(object: &mut T) -> *mut u8 {
    std::ptr::from_mut(object).cast()
}

const EIGHT: Layout = Layout::new::<u64>();

/// The misuses, and beside them uses that are right and must pass.
fn run_case(case: &str) {
    let mut arena = Arena::with_hint(20_000);
    // An object that stays, so that no case is about a chunk's first byte alone.
    let kept = bytes_of(arena.alloc(0u64));
    match case {
        "clean" => clean(&mut arena),
        "write after reset" => {
            arena.reset();
            write(kept);
        }
        "read after reset" => {
            arena.reset();
            read(kept);
        }
        "write after rewind" => {
            let object = bytes_of(arena.mark().alloc([7u64; 4]));
            write(object);
        }
        "read after scope" => {
            let object = arena.scope(|scope| bytes_of(scope.alloc(7u64)).addr());
            read(kept.with_addr(object));
        }
        "write after free" => {
            let object = arena.alloc_layout(EIGHT);
            // SAFETY: allocated just now with this layout.
            unsafe { arena.free(object, EIGHT) };
            write(object.as_ptr());
        }
        "write to a shrunk tail" => {
            let sixteen = Layout::new::<[u64; 2]>();
            let object = arena.alloc_layout(sixteen);
            // SAFETY: allocated just now with this layout, and smaller afterwards.
            let shrunk = unsafe { arena.try_shrink(object, sixteen, EIGHT) }.unwrap();
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
        "overrun by one byte" => {
            let five = Layout::from_size_align(5, 1).unwrap();
            let object = arena.alloc_layout(five);
            write(object.as_ptr().wrapping_add(5));
        }
        "read behind an object with another one after it" => {
            let object = bytes_of(arena.alloc(1u64));
            arena.alloc(2u64);
            read(object.wrapping_add(8));
        }
        "read beyond the position" => read(kept.wrapping_add(3000)),
        "write to a chunk that a reset kept" => {
            let mut arena = Arena::builder().retain(Retain::UpTo(1 << 20)).build();
            let first = bytes_of(arena.alloc([1u8; 4000]));
            arena.alloc([2u8; 8000]);
            arena.reset();
            write(first);
        }
        "write to a chunk in the recycler" => {
            // More than a thread would keep at hand.
            let arena = Arena::with_hint(200_000);
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
            let next = Arena::with_hint(20_000);
            assert_eq!(next.statistics().recycled_chunks, 1, "the chunk came back");
            read(kept.wrapping_add(3000));
        }
        "branch on bytes that were never written" => {
            drop(arena);
            let next = Arena::with_hint(20_000);
            let object = next.alloc_layout(EIGHT);
            // SAFETY: the object's own bytes, which the tool must know to be unwritten.
            if black_box(unsafe { object.cast::<u64>().read_volatile() }) == 7 {
                println!("seven");
            }
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
        "write to a freed object of a list" => write(free(list.alloc())),
        "read of a freed object of a list" => {
            let object = list.alloc();
            fill(object, 24);
            read(free(object).wrapping_add(23));
        }
        "write to the object that was freed last but a thousand" => {
            let object = free(list.alloc());
            for _ in 0..1000 {
                free(list.alloc());
            }
            write(object);
        }
        "write to a value whose box was dropped" => {
            let values = FreeList::new();
            let _kept = values.alloc([1u64; 3]);
            let mut boxed = values.alloc([1u64; 3]);
            let value = bytes_of(&mut *boxed);
            drop(boxed);
            write(value);
        }
        "overrun of a list's object by one byte" => write(kept.as_ptr().wrapping_add(24)),
        "read behind an object of a list's run" => {
            let run = list.alloc_run(3);
            read(run.as_ptr().wrapping_add(list.stride() + 24));
        }
        "write to a freed object of a list's run" => {
            let run = list.alloc_run(3);
            // SAFETY: the run has three.
            write(free(unsafe { run.add(list.stride()) }));
        }
        "read of a place that nobody had" => {
            read(kept.as_ptr().wrapping_add(5 * list.stride()));
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
        "branch on bytes of a list's object that were never written" => {
            let object = list.alloc();
            fill(object, 24);
            free(object);
            for _ in 0..2000 {
                free(list.alloc());
            }
            let again = list.alloc();
            // SAFETY: the object's own bytes, which the tool must know to be unwritten.
            if black_box(unsafe { again.cast::<u64>().read_volatile() }) == 7 {
                println!("seven");
            }
        }
        other => panic!("no case '{other}'"),
    }
}

/// Every way to get and give back objects of a list, each byte of them touched.
fn clean_list(list: &RawFreeList) {
    for _ in 0..3 {
        let mut objects: Vec<_> = (0..3000).map(|_| list.alloc()).collect();
        let run = list.alloc_run(1000);
        // SAFETY: the run has so many.
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
        boxes.extend(values.run(50).map(|slot| slot.fill("of a run".to_owned())));
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
            let object = unsafe { arena.grow(object, layout, larger) };
            fill(object, size + 9);
            // SAFETY: grown just now to this layout.
            unsafe { arena.free(object, larger) };
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
        let Some((_, output)) = run(case) else { return };
        let report = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{report}");
        for word in ["AddressSanitizer", "Invalid", "uninitialised"] {
            assert!(!report.contains(word), "{report}");
        }
    }
}

#[test]
fn a_write_after_reset_is_caught() {
    is_caught("write after reset", Access::Write);
}

#[test]
fn a_read_after_reset_is_caught() {
    is_caught("read after reset", Access::Read);
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
fn a_write_after_free_is_caught() {
    is_caught("write after free", Access::Write);
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
fn an_overrun_by_one_byte_is_caught() {
    is_caught("overrun by one byte", Access::Write);
}

#[test]
fn a_read_between_two_objects_is_caught() {
    is_caught("read behind an object with another one after it", Access::Read);
}

#[test]
fn a_read_beyond_the_position_is_caught() {
    is_caught("read beyond the position", Access::Read);
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
fn a_write_to_a_freed_object_of_a_list_is_caught() {
    is_caught("write to a freed object of a list", Access::Write);
    is_caught("write to a freed object of a list's run", Access::Write);
    is_caught("write to a value whose box was dropped", Access::Write);
}

#[test]
fn a_read_of_a_freed_object_of_a_list_is_caught() {
    is_caught("read of a freed object of a list", Access::Read);
}

#[test]
fn a_write_to_an_object_of_a_list_is_caught_while_it_rests() {
    is_caught("write to the object that was freed last but a thousand", Access::Write);
}

#[test]
fn an_overrun_of_a_lists_object_is_caught() {
    is_caught("overrun of a list's object by one byte", Access::Write);
    is_caught("read behind an object of a list's run", Access::Read);
}

#[test]
fn a_read_of_a_lists_place_that_nobody_had_is_caught() {
    is_caught("read of a place that nobody had", Access::Read);
}

#[test]
fn a_write_to_a_chunk_that_a_list_released_is_caught() {
    is_caught("write to a list's chunk that a trim gave back", Access::Write);
    is_caught("write to a list's chunk that went to the recycler", Access::Write);
}

#[test]
fn recycled_bytes_count_as_unwritten_for_valgrind() {
    if expected_tool() == Some(Tool::AddressSanitizer) {
        println!("skipped: AddressSanitizer does not know which bytes were written");
        return;
    }
    for case in [
        "branch on bytes that were never written",
        "branch on bytes of a list's object that were never written",
    ] {
        let Some((_, output)) = run(case) else { return };
        let report = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(99), "{report}");
        assert!(report.contains("depends on uninitialised value"), "{report}");
    }
}
