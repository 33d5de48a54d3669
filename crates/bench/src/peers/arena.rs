//! Allocators that free a task's objects together.
//!
//! Each file below implements [`TaskArena`] with the calls of one library. [`ArenaPerTask`] makes
//! an arena for each task; [`ArenaPerThread`] keeps one for each thread, and resets it when a task
//! ends. The files of `std::pmr` are an exception: a resource can't be moved, so a thread has
//! storage for it.
//!
//! # Invariant of this file and those below
//!
//! A block is used with the arena that it came from: a task hands out only blocks of its own arena,
//! and its callers return only blocks that they got from it.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::peers::{Allocator, Collections, Line, Task};

pub(crate) mod allotment_arena;
pub(crate) mod allotment_reap;
pub(crate) mod bump_scope;
pub(crate) mod bumpalo;
pub(crate) mod typed_arena;

#[cfg(feature = "fast-peers")]
pub(crate) mod mimalloc_heap;
#[cfg(feature = "catalogue")]
pub(crate) mod multitude;
#[cfg(feature = "fast-peers")]
pub(crate) mod pmr;

/// An arena, by its own calls. Dropping it frees all of its objects.
pub(crate) trait TaskArena: Sized + 'static {
    /// An arena without objects.
    fn create() -> Self;

    /// As [`Task::alloc`].
    fn alloc(&self, layout: Layout) -> NonNull<u8>;

    /// As [`Task::free`].
    ///
    /// # Safety
    /// The block is this arena's (the invariant), live, and has this layout.
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout);

    /// As [`Task::grow`].
    ///
    /// # Safety
    /// The block is this arena's (the invariant), live, and has the layout `old`. `new` has the
    /// same alignment, and is no smaller.
    unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> NonNull<u8>;

    /// As [`Task::put`].
    #[inline(always)]
    fn put<V>(&self, value: V) -> NonNull<V> {
        raw::put(self, value)
    }

    /// As [`Task::put_str`].
    #[inline(always)]
    fn put_str(&self, text: &str) -> NonNull<u8> {
        raw::put_str(self, text)
    }
}

/// Values and texts in blocks of bytes.
mod raw {
    use super::{Layout, NonNull, TaskArena};

    #[inline(always)]
    pub fn put<A: TaskArena, V>(arena: &A, value: V) -> NonNull<V> {
        let place = arena.alloc(Layout::new::<V>()).cast::<V>();
        // SAFETY: a fresh block of this layout.
        unsafe { place.write(value) };
        place
    }

    #[inline(always)]
    pub fn put_str<A: TaskArena>(arena: &A, text: &str) -> NonNull<u8> {
        let place = arena.alloc(Layout::for_value(text));
        // SAFETY: a fresh block, as long as the text.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(text).cast(), text.len()) };
        place
    }
}

/// An arena that can free all of its objects and be used again.
pub(crate) trait ResetArena: TaskArena {
    /// Frees all objects.
    fn reset(&mut self);
}

/// An arena with a vector and a string of its own.
pub(crate) trait CollectionsArena: TaskArena {
    /// As [`Collections::push`], without the end of the task.
    fn push(&self, numbers: u64);

    /// As [`Collections::format`], without the end of the task.
    fn format<'l>(&self, lines: impl Iterator<Item = Line<'l>>);
}

/// A new arena for each task.
pub(crate) struct ArenaPerTask<A>(PhantomData<fn() -> A>);

/// A task with an arena of its own.
pub(crate) struct OwnedArenaTask<A>(A);

/// One arena for each thread.
pub(crate) struct ArenaPerThread<A>(pub(crate) A);

/// A task that borrows its thread's arena.
pub(crate) struct BorrowedArenaTask<'t, A: ResetArena>(&'t mut A);

impl<A: TaskArena> Allocator for ArenaPerTask<A> {
    type Task<'t> = OwnedArenaTask<A>;

    fn start() -> Self {
        Self(PhantomData)
    }

    #[inline]
    fn begin(&mut self) -> OwnedArenaTask<A> {
        OwnedArenaTask(A::create())
    }
}

impl<A: ResetArena> Allocator for ArenaPerThread<A> {
    type Task<'t> = BorrowedArenaTask<'t, A>;

    fn start() -> Self {
        Self(A::create())
    }

    #[inline]
    fn begin(&mut self) -> BorrowedArenaTask<'_, A> {
        BorrowedArenaTask(&mut self.0)
    }
}

impl<A: ResetArena> Drop for BorrowedArenaTask<'_, A> {
    #[inline]
    fn drop(&mut self) {
        self.0.reset();
    }
}

impl<A: CollectionsArena> Collections for ArenaPerTask<A> {
    fn push(&mut self, numbers: u64) {
        A::create().push(numbers);
    }

    fn format<'l>(&mut self, lines: impl Iterator<Item = Line<'l>>) {
        A::create().format(lines);
    }
}

impl<A: CollectionsArena + ResetArena> Collections for ArenaPerThread<A> {
    fn push(&mut self, numbers: u64) {
        self.begin().0.push(numbers);
    }

    fn format<'l>(&mut self, lines: impl Iterator<Item = Line<'l>>) {
        self.begin().0.format(lines);
    }
}

/// A task of this file.
trait HasArena {
    type Arena: TaskArena;

    fn arena(&self) -> &Self::Arena;
}

impl<A: TaskArena> HasArena for OwnedArenaTask<A> {
    type Arena = A;

    #[inline(always)]
    fn arena(&self) -> &A {
        &self.0
    }
}

impl<A: ResetArena> HasArena for BorrowedArenaTask<'_, A> {
    type Arena = A;

    #[inline(always)]
    fn arena(&self) -> &A {
        self.0
    }
}

impl<T: HasArena> Task for T {
    const FREED_TOGETHER: bool = true;

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.arena().alloc(layout)
    }

    #[inline]
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the invariant above, and the caller's promise that the block is live with this
        // layout.
        unsafe { self.arena().free(ptr, layout) }
    }

    #[inline]
    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        // SAFETY: the caller promises that `new_size` is valid for the alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, old.align()) };
        // SAFETY: the invariant above, and the caller's promise that the block is live with the
        // layout `old` and that the new size is no smaller.
        unsafe { self.arena().grow(ptr, old, new) }
    }

    #[inline(always)]
    fn put<V>(&self, value: V) -> NonNull<V> {
        self.arena().put(value)
    }

    #[inline(always)]
    fn put_str(&self, text: &str) -> NonNull<u8> {
        self.arena().put_str(text)
    }
}
