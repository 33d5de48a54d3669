//! Scopes of an arena: what frees inside them change, and which chunks their ends keep.

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;

use allotment::arena::{ArenaBuilder, Retain};
use allotment::source::SharedSource;
use allotment::{Arena, Malloc};
#[cfg(not(system_memory))]
use support::absent_options::*;
use support::sources::{Recorder, Refuse};

/// An arena without huge pages.
fn small_pages() -> ArenaBuilder {
    #[cfg(system_memory)]
    return Arena::builder().source(allotment::Mmap::small_pages());
    #[cfg(not(system_memory))]
    Arena::builder()
}

fn live(arena: &Arena) -> (u64, u64) {
    let statistics = arena.statistics();
    (statistics.live_objects, statistics.live_bytes)
}

#[test]
fn objects_freed_in_a_scope_of_many_chunks_are_counted_in_any_order() {
    let mut arena = small_pages().build();
    arena.alloc(1u64);
    let layout = Layout::from_size_align(48, 8).unwrap();
    arena.scope(|scope| {
        let objects: Vec<NonNull<u8>> = (0..50_000).map(|_| scope.alloc_layout(layout)).collect();
        assert!(scope.statistics().chunks > 5);
        // Every third from the front, every third from the back, then the rest: those at the end of
        // a window are given back, the others are counted only.
        let (mut first, mut second, mut third) = (Vec::new(), Vec::new(), Vec::new());
        for (index, object) in objects.into_iter().enumerate() {
            [&mut first, &mut second, &mut third][index % 3].push(object);
        }
        let mut count = 50_000;
        for object in first.into_iter().chain(second.into_iter().rev()).chain(third) {
            // SAFETY: live, of this layout, and of the scope.
            unsafe { scope.free_layout(object, layout) };
            count -= 1;
            assert_eq!(live(scope), (1 + count, 8 + 48 * count));
        }
    });
    assert_eq!(live(&arena), (1, 8));
}

#[test]
fn an_object_from_outside_a_scope_counts_as_freed_until_the_scope_ends() {
    for hardened in [false, true] {
        let mut arena = Arena::builder().hardened(hardened).build();
        let layout = Layout::new::<[u64; 4]>();
        let [kept, freed] = [arena.alloc_layout(layout), arena.alloc_layout(layout)];
        // SAFETY: live objects of this layout; the one that is freed is not used in the scope.
        unsafe {
            kept.write_bytes(5, layout.size());
            freed.write_bytes(6, layout.size());
            for _ in 0..3 {
                arena.scope(|scope| {
                    scope.free_layout(freed, layout);
                    assert_eq!(live(scope), (1, 32), "hardened: {hardened}");
                    let inner = scope.alloc_layout(layout);
                    inner.write_bytes(7, layout.size());
                    // The inner scope's end does not count the object again.
                    scope.scope(|inner| assert_eq!(live(inner), (2, 64)));
                    assert_eq!(live(scope), (2, 64));
                });
                assert_eq!((live(&arena), kept.read(), freed.read()), ((2, 64), 5, 6));
            }
            arena.free_layout(freed, layout);
        }
        assert_eq!(live(&arena), (1, 32), "hardened: {hardened}");
    }
}

#[test]
fn an_object_from_outside_a_scope_never_grows_over_the_scopes_objects() {
    let mut arena = Arena::new();
    let (small, large) = (Layout::new::<[u8; 16]>(), Layout::new::<[u8; 64]>());
    let outer = arena.alloc_layout(small);
    // SAFETY: a live object of this layout. What it grows to is used inside the scope only.
    unsafe {
        outer.write_bytes(5, 16);
        arena.scope(|scope| {
            let grown = scope.resize(outer, small, large);
            assert_ne!(grown, outer, "the position of the scope's start is after it");
            assert_eq!(grown.add(15).read(), 5);
        });
        assert_eq!(outer.add(15).read(), 5);
        assert_eq!(
            arena.resize(outer, small, large),
            outer,
            "after the scope it is the last object"
        );
    }
}

#[test]
fn an_object_larger_than_a_window_still_grows_in_place_after_a_scope() {
    let mut arena = small_pages().hint(8 << 20).build();
    let layout = |mib: usize| Layout::from_size_align(mib << 20, 8).unwrap();
    let object = arena.alloc_layout(layout(2));
    arena.scope(|scope| {
        scope.alloc_slice_copy(&[1u8; 1000]);
    });
    // SAFETY: live, of this layout.
    let grown = unsafe { arena.resize(object, layout(2), layout(3)) };
    assert_eq!(grown, object);
    assert_eq!(live(&arena), (1, 3 << 20));
}

/// Allocates slices of these sizes in a scope.
fn scope_of(arena: &mut Arena, sizes: &[usize]) {
    arena.scope(|scope| {
        for &size in sizes {
            scope.alloc_slice_uninit::<u8>(size);
        }
    });
}

#[test]
fn equal_scopes_that_cross_chunks_take_none_from_the_source_after_the_first() {
    for older in [0, 3000, 70_000] {
        let source = Recorder::new(Malloc, Refuse::None);
        let retain = Retain::UpTo(1 << 20);
        let mut arena =
            Arena::builder().source(SharedSource::from(source.clone())).retain(retain).build();
        if older > 0 {
            arena.alloc_slice_uninit::<u8>(older);
        }
        // Small before large and large before small: the chunks serve the same slices again.
        let sizes = [15_000, 30_000, 200, 60_000, 9_000, 100_000, 40];
        scope_of(&mut arena, &sizes);
        let (calls, after_one) = (source.calls(), arena.statistics());
        for _ in 0..100 {
            scope_of(&mut arena, &sizes);
        }
        assert_eq!(source.calls(), calls, "{older} bytes before the scopes");
        assert_eq!(arena.statistics(), after_one);
        assert_eq!(source.lent_bytes() as u64, after_one.held_bytes);
    }
}

#[test]
fn a_mark_and_a_position_keep_chunks_as_a_scope_does() {
    let source = Recorder::new(Malloc, Refuse::None);
    let mut arena = Arena::builder()
        .source(SharedSource::from(source.clone()))
        .retain(Retain::UpTo(1 << 20))
        .build();
    arena.alloc(1u64);
    let mut mark = arena.mark();
    let mut calls = None;
    for _ in 0..10 {
        mark.alloc_slice_uninit::<u8>(50_000);
        mark.rewind();
        assert_eq!(*calls.get_or_insert(source.calls()), source.calls());
    }
    drop(mark);
    let position = arena.position();
    for _ in 0..10 {
        arena.alloc_slice_uninit::<u8>(50_000);
        // SAFETY: nothing is used that was allocated after the position, and nothing changed
        // before.
        unsafe { arena.rewind(&position) };
    }
    assert_eq!(calls, Some(source.calls()));
    assert_eq!(live(&arena), (1, 8));
}

#[test]
fn the_end_of_a_scope_keeps_no_more_than_the_retain_policy() {
    let limits = [0, 4096, 50_000, 200_000, 1 << 20];
    for (older, limit) in [0, 3000, 150_000].into_iter().flat_map(|o| limits.map(|l| (o, l))) {
        let source = Recorder::new(Malloc, Refuse::None);
        let retain = if limit == 0 { Retain::Nothing } else { Retain::UpTo(limit) };
        let mut arena =
            Arena::builder().source(SharedSource::from(source.clone())).retain(retain).build();
        if older > 0 {
            arena.alloc_slice_uninit::<u8>(older);
        }
        let in_use = arena.statistics().held_bytes;
        for round in 0..60 {
            scope_of(&mut arena, &[1000 + round % 7 * 9000, 300, 40_000 + round % 3 * 100_000]);
            let held = arena.statistics().held_bytes;
            assert!(held <= in_use.max(limit as u64), "{held} of {in_use} and {limit}");
            assert_eq!(source.lent_bytes() as u64, held);
        }
        arena.reset();
        assert!(arena.statistics().held_bytes <= limit as u64);
    }
}

#[test]
fn scopes_of_an_empty_arena_keep_the_newest_chunk_and_drop_one_that_is_too_small() {
    let source = Recorder::new(Malloc, Refuse::None);
    let mut arena = Arena::builder().source(SharedSource::from(source.clone())).build();
    for size in [3000, 100_000, 2000] {
        scope_of(&mut arena, &[size; 2]);
        scope_of(&mut arena, &[size; 2]);
        let calls = source.calls();
        for _ in 0..10 {
            scope_of(&mut arena, &[size; 1]);
            let statistics = arena.statistics();
            assert!(statistics.chunks <= 1 && statistics.held_bytes <= 1 << 20, "{statistics:?}");
        }
        assert_eq!(source.calls(), calls, "{size} bytes");
    }
}

#[test]
fn scopes_that_need_more_and_more_take_chunks_that_double() {
    let mut arena = Arena::builder().source(Malloc).retain(Retain::UpTo(16 << 20)).build();
    arena.alloc(1u64);
    for round in 0..150 {
        scope_of(&mut arena, &vec![1000; 10 * round]);
    }
    let statistics = arena.statistics();
    assert!(statistics.held_bytes >= 1_490_000, "all that the last scope had is kept");
    assert!(statistics.chunks <= 11, "{statistics:?}");
}
