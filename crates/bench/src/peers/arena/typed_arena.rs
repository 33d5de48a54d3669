//! `typed-arena`: four arenas for each task, one for each object size of the workload
//! `query-alloc`.
//!
//! A typed arena holds values of one type, so the row serves only those four sizes and can't grow
//! objects. It takes part only in `query-alloc` and `query-small`. A typed arena can't be reset, so
//! each task makes four new ones. If the size of an object is known at compile time, so is the
//! arena that serves it.

use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use ::typed_arena::Arena;

use crate::peers::about::Listed;
use crate::peers::{About, Allocator, AllocatorKind, Task};

/// The object sizes in bytes that the row `typed-arena` serves, with alignments up to 8.
pub const SIZES: [usize; 4] = [192, 24, 40, 64];

/// An object of `N` words.
type Object<const N: usize> = MaybeUninit<[u64; N]>;

pub(crate) struct TypedArena;

/// A task with four arenas of its own.
pub(crate) struct TypedArenaTask {
    of_192: Arena<Object<24>>,
    of_24: Arena<Object<3>>,
    of_40: Arena<Object<5>>,
    of_64: Arena<Object<8>>,
}

impl Listed for TypedArena {
    const ABOUT: About = About {
        any_size: false,
        ..About::peer(
            AllocatorKind::Arena,
            "typed-arena",
            "typed-arena 2.0.2",
            "every chunk goes back to the C library's malloc when its task ends",
        )
    };
}

impl Allocator for TypedArena {
    type Task<'t> = TypedArenaTask;

    fn start() -> Self {
        Self
    }

    #[inline]
    fn begin(&mut self) -> TypedArenaTask {
        TypedArenaTask {
            of_192: Arena::new(),
            of_24: Arena::new(),
            of_40: Arena::new(),
            of_64: Arena::new(),
        }
    }
}

#[inline]
fn object<const N: usize>(arena: &Arena<Object<N>>) -> NonNull<u8> {
    NonNull::from(arena.alloc(MaybeUninit::uninit())).cast()
}

impl Task for TypedArenaTask {
    const FREED_TOGETHER: bool = true;

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        if layout.align() > align_of::<u64>() {
            no_arena_for(layout);
        }
        match layout.size() {
            192 => object(&self.of_192),
            24 => object(&self.of_24),
            40 => object(&self.of_40),
            64 => object(&self.of_64),
            _ => no_arena_for(layout),
        }
    }

    #[inline]
    unsafe fn free(&self, _: NonNull<u8>, _: Layout) {
        // A typed arena frees all or nothing.
    }

    #[inline]
    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        if new_size != old.size() {
            grows_nothing();
        }
        ptr
    }
}

#[cold]
#[inline(never)]
fn no_arena_for(layout: Layout) -> ! {
    panic!(
        "typed-arena serves objects of {SIZES:?} bytes with alignments up to 8, not {} bytes aligned to {}",
        layout.size(),
        layout.align()
    )
}

#[cold]
#[inline(never)]
fn grows_nothing() -> ! {
    panic!("typed-arena can't grow an object")
}
