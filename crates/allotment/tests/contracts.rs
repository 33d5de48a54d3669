//! What the types promise, and pitfalls that other arenas fell into.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::cell::Cell;

use allotment::arena::{ArenaBuilder, Mark, Retain, Scope};
use allotment::collections::IntoIter;
use allotment::recycler::Recycler;
use allotment::report::Report;
use allotment::source::SharedSource;
use allotment::{
    AllocError, Arena, ArenaBox, ArenaString, ArenaVec, Budget, File, Malloc, Mmap, Statistics,
};
use support::program::{caught, throw};
use support::sources::{Recorder, Refuse};

/// Whether a type has a trait, without asking that it has: an inherent constant hides the trait's
/// where the bound holds.
macro_rules! has {
    ($type:ty: $bound:path) => {{
        #[allow(dead_code, reason = "unused where the bound holds")]
        trait Otherwise {
            const HAS: bool = false;
        }
        impl<T: ?Sized> Otherwise for T {}
        struct Probe<T: ?Sized>(core::marker::PhantomData<T>);
        #[allow(dead_code, reason = "unused where the bound does not hold")]
        impl<T: ?Sized + $bound> Probe<T> {
            const HAS: bool = true;
        }
        <Probe<$type>>::HAS
    }};
}

#[test]
fn an_arena_moves_between_threads_and_is_used_by_one_at_a_time() {
    const { assert!(has!(Arena: Send) && !has!(Arena: Sync)) };
    const { assert!(has!(Arena<16>: Send) && !has!(Arena<16>: Sync)) };
    const { assert!(has!(ArenaBuilder: Send) && has!(ArenaBuilder: Sync)) };
    let arena = Arena::builder().name("on the way").hardened(true).build();
    arena.alloc_str("made here");
    let arena = std::thread::spawn(move || {
        arena.alloc_str("and used there");
        arena
    });
    assert_eq!(arena.join().unwrap().statistics().live_objects, 2);
}

#[test]
fn what_reaches_an_arena_stays_on_its_thread() {
    const { assert!(!has!(&Arena: Send) && !has!(&Arena: Sync)) };
    const { assert!(!has!(Mark<'static>: Send) && !has!(Mark<'static>: Sync)) };
    const { assert!(!has!(Scope<'static>: Send) && !has!(Scope<'static>: Sync)) };
    const { assert!(!has!(ArenaVec<'static, u8>: Send) && !has!(ArenaVec<'static, u8>: Sync)) };
    const { assert!(!has!(ArenaString<'static>: Send) && !has!(ArenaString<'static>: Sync)) };
    // Dropping the iterator gives memory back to the arena.
    const { assert!(!has!(IntoIter<u8, &'static Arena>: Send)) };
}

#[test]
fn a_box_may_go_where_its_value_may() {
    const { assert!(has!(ArenaBox<'static, u8>: Send) && has!(ArenaBox<'static, u8>: Sync)) };
    const { assert!(!has!(ArenaBox<'static, std::rc::Rc<u8>>: Send)) };
    const { assert!(!has!(ArenaBox<'static, Cell<u8>>: Sync)) };
    const { assert!(has!(ArenaBox<'static, [u8]>: Send)) };
    const { assert!(!has!(ArenaBox<'static, [std::rc::Rc<u8>]>: Send)) };
    const { assert!(!has!(ArenaBox<'static, dyn Fn()>: Send)) };
    const { assert!(has!(ArenaBox<'static, dyn Fn() + Send>: Send)) };
    let arena = Arena::new();
    let mut boxed = arena.alloc_boxed(vec![1, 2, 3]);
    std::thread::scope(|scope| {
        scope.spawn(|| boxed.push(4));
    });
    assert_eq!(*boxed, [1, 2, 3, 4]);
}

#[test]
fn limits_sources_and_reports_are_shared_by_threads() {
    const { assert!(has!(Budget: Send) && has!(Budget: Sync)) };
    const { assert!(has!(SharedSource: Send) && has!(SharedSource: Sync)) };
    const { assert!(has!(File: Send) && has!(File: Sync)) };
    const { assert!(has!(Recycler: Send) && has!(Recycler: Sync)) };
    const { assert!(has!(Report: Send) && has!(Statistics: Send) && has!(AllocError: Sync)) };
    const { assert!(has!(AllocError: std::error::Error)) };
}

#[test]
fn growing_copies_the_old_size_and_no_more() {
    // Right at the end of its chunk: reading the new size from the old place would leave the
    // mapping.
    let arena = Arena::builder().source(Mmap::new()).build();
    let old = Layout::from_size_align(100, 1).unwrap();
    let new = Layout::from_size_align(3 << 20, 1).unwrap();
    let object = arena.alloc_layout(old);
    // SAFETY: a live object with its layout.
    unsafe {
        object.write_bytes(7, 100);
        arena.alloc(1u8);
        let grown = arena.resize(object, old, new);
        let bytes = core::slice::from_raw_parts(grown.as_ptr(), 100);
        assert!(bytes.iter().all(|&byte| byte == 7));
    }
}

#[test]
fn an_object_of_an_outer_scope_is_not_freed_or_moved_back_over_in_an_inner_one() {
    let mut arena = Arena::new();
    let layout = Layout::new::<[u64; 4]>();
    let outer = arena.alloc_layout(layout);
    // SAFETY: a live object of this layout; in the scope freeing it is asked for and refused.
    unsafe {
        outer.write_bytes(5, layout.size());
        arena.scope(|scope| {
            scope.free_layout(outer, layout);
            let inner = scope.alloc_layout(layout);
            assert_ne!(inner, outer);
            inner.write_bytes(6, layout.size());
            let mut mark = scope.mark();
            mark.free_layout(inner, layout);
            assert_ne!(mark.alloc_layout(layout), inner);
            mark.rewind();
            drop(mark);
            assert_eq!(inner.read(), 6);
        });
        assert_eq!(outer.read(), 5);
        assert_eq!(arena.statistics().live_objects, 1);
        arena.free_layout(outer, layout);
    }
    assert_eq!(arena.statistics().live_objects, 0);
}

#[test]
fn a_forgotten_mark_frees_nothing_and_an_outer_one_frees_all() {
    let mut arena = Arena::new();
    arena.alloc(1u64);
    {
        let mut outer = arena.mark();
        outer.alloc(2u64);
        let inner = outer.mark();
        inner.alloc_slice_copy(&[3u64; 10_000]);
        core::mem::forget(inner);
        assert_eq!(outer.statistics().live_objects, 3);
        outer.alloc(4u64);
    }
    assert_eq!(arena.statistics().live_objects, 1);
    core::mem::forget(arena.mark());
    arena.alloc(5u64);
    arena.reset();
    assert_eq!(arena.statistics().live_objects, 0);
    let last = arena.alloc_layout(Layout::new::<u64>());
    // SAFETY: live, of this layout.
    unsafe { arena.free_layout(last, Layout::new::<u64>()) };
    assert_eq!(arena.statistics().live_bytes, 0, "a reset closes the forgotten mark's scope");
}

#[test]
fn a_scope_that_panics_frees_what_it_made() {
    let mut arena = Arena::new();
    let kept = arena.alloc_layout(Layout::new::<u64>());
    for _ in 0..100 {
        let thrown = caught(|| {
            arena.scope(|outer| {
                outer.alloc_slice_copy(&[1u8; 5000]);
                outer.scope(|inner| {
                    inner.alloc(2u64);
                    throw()
                })
            })
        });
        assert!(thrown.is_none());
        assert_eq!(arena.statistics().live_objects, 1);
    }
    assert!(arena.statistics().held_bytes <= 64 << 10);
    // SAFETY: live, of this layout.
    unsafe { arena.free_layout(kept, Layout::new::<u64>()) };
}

#[test]
fn a_constructor_that_panics_leaves_no_value_and_no_byte() {
    let arena = Arena::new();
    let drops = Cell::new(0);
    struct Counted<'c>(&'c Cell<u32>);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    for fail_at in 0..10 {
        let make = |index| {
            if index == fail_at {
                throw();
            }
            Counted(&drops)
        };
        assert!(caught(|| arena.alloc_slice_boxed(10, make).len()).is_none());
        assert_eq!(drops.replace(0), fail_at as u32, "those made before are dropped");
        assert!(caught(|| *arena.alloc_with::<u64>(|| throw())).is_none());
        assert_eq!(arena.statistics().live_bytes, 0);
    }
    let held = arena.statistics().held_bytes;
    assert_eq!(held, 4096, "the memory is used again");
}

#[test]
fn memory_does_not_double_with_each_failed_constructor() {
    let recorder = Recorder::new(Malloc, Refuse::None);
    let arena = Arena::builder().source(recorder.clone()).build();
    for _ in 0..1000 {
        let failed = arena.try_alloc_slice_try_with(2000, |index| {
            if index < 1999 { Ok(index) } else { Err("the last one") }
        });
        assert_eq!(failed.unwrap().unwrap_err(), "the last one");
    }
    assert!(recorder.lent_bytes() <= 64 << 10, "{}", recorder.lent_bytes());
}

#[test]
fn a_constructor_may_use_the_arena_and_its_value_stays_its_own() {
    let arena = Arena::new();
    let outer = arena.alloc_with(|| {
        let inner = arena.alloc_with(|| [7u32; 8]);
        let slice = arena.alloc_slice_with(5, |index| *arena.alloc(index * 2));
        (inner[7], slice[4])
    });
    assert_eq!(*outer, (7, 8));
    assert_eq!(arena.statistics().live_objects, 8);
    let texts = arena.alloc_slice_from_iter((0..100).map(|number| {
        let text: &str = arena.alloc_str(&number.to_string());
        text
    }));
    assert!(texts.iter().enumerate().all(|(number, text)| *text == number.to_string()));
}

#[test]
fn an_arena_with_a_fresh_chunk_for_each_scope_holds_no_more_after_many() {
    let mut arena = Arena::new();
    arena.alloc(1u8);
    for round in 0..2000usize {
        arena.scope(|scope| {
            scope.alloc_slice_uninit::<u8>(1000 + round % 7 * 3000);
        });
        assert!(arena.statistics().chunks <= 1 && arena.statistics().held_bytes <= 4096);
    }
}

#[test]
fn one_large_object_does_not_end_the_use_of_a_roomy_chunk() {
    let arena = Arena::with_capacity(60_000);
    arena.alloc(1u64);
    arena.alloc_slice_uninit::<u8>(200_000);
    let chunks = arena.statistics().chunks;
    for _ in 0..5000 {
        arena.alloc(1u64);
    }
    assert_eq!(arena.statistics().chunks, chunks, "the first chunk had room");
}

#[test]
fn a_kept_chunk_serves_an_object_only_if_it_fits() {
    let recorder = Recorder::new(Malloc, Refuse::None);
    let source = SharedSource::from(recorder.clone());
    let mut arena = Arena::builder().source(source).retain(Retain::UpTo(usize::MAX)).build();
    for size in 3990..4110usize {
        arena.alloc_slice_uninit::<u8>(1000);
        arena.alloc_slice_uninit::<u8>(3500);
        arena.reset();
        arena.alloc_slice_uninit::<u8>(100);
        for _ in 0..3 {
            let object = arena.alloc_slice_uninit::<u8>(size);
            assert!(recorder.holds(object.as_ptr().addr(), size), "{size} bytes");
        }
        arena.reset();
    }
}

#[test]
fn the_last_object_grows_shrinks_and_is_freed_in_place() {
    for retain in [Retain::Newest, Retain::Nothing] {
        let arena = Arena::builder().retain(retain).hint(100_000).build();
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        let object = arena.alloc_layout(layout(100));
        // SAFETY: the object is live, each time with the layout that it was last given.
        unsafe {
            assert_eq!(arena.resize(object, layout(100), layout(50_000)), object);
            assert_eq!(arena.try_resize(object, layout(50_000), layout(16)).unwrap(), object);
            assert_eq!(arena.statistics().live_bytes, 16);
            let next = arena.alloc_layout(layout(8));
            assert_eq!(next.addr().get(), object.addr().get() + 16);
            arena.free_layout(next, layout(8));
            arena.free_layout(object, layout(16));
            assert_eq!(arena.alloc_layout(layout(8)), object, "its memory serves the next one");
        }
    }
}

#[test]
fn ten_thousand_living_arenas_each_have_statistics_of_their_own() {
    let arenas: Vec<_> = (0..10_000u64)
        .map(|number| {
            let arena = Arena::new();
            if number % 100 == 0 {
                arena.alloc_slice_copy(&vec![1u8; number as usize + 1]);
            }
            arena
        })
        .collect();
    for (number, arena) in arenas.iter().enumerate() {
        let live = if number % 100 == 0 { number as u64 + 1 } else { 0 };
        assert_eq!(arena.statistics().live_bytes, live);
    }
}

#[test]
fn an_arena_that_has_grown_goes_on_in_huge_pages_unless_it_is_told_not_to() {
    if std::env::var_os("ALLOTMENT_EXPECT_TOOL").is_some() {
        println!("skipped under a memory tool: a checked arena uses ordinary pages only");
        return;
    }
    // On a thread of its own each, which has no chunk at hand.
    let chunks = |source: Mmap, bytes: usize| {
        let fill = move || {
            let arena = Arena::builder().source(source).build();
            for _ in 0..bytes / 4096 {
                arena.alloc([0u8; 4096]);
            }
            arena.statistics().chunks
        };
        std::thread::spawn(fill).join().unwrap()
    };
    let (few, many) = (1 << 20, 16 << 20);
    assert_eq!(chunks(Mmap::new(), few), chunks(Mmap::small_pages(), few), "small ones are alike");
    assert!(chunks(Mmap::new(), many) < chunks(Mmap::small_pages(), many), "2 MiB instead of 1");
}
