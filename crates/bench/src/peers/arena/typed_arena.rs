//! `typed-arena`: four arenas for each task, one for each object size of the workloads `typed` and
//! `query-alloc`.
//!
//! A typed arena holds values of one type, so the row serves only those four sizes and can't grow
//! objects. A typed arena can't be reset, so each task makes four new ones. If the size of an
//! object is known at compile time, so is the arena that serves it.

use std::alloc::Layout;
use std::mem::{self, MaybeUninit};
use std::ptr::NonNull;

use ::typed_arena::Arena;

use super::{ArenaPerTask, TaskArena};
use crate::peers::about::Listed;
use crate::peers::{About, PeerKind};

/// The object sizes in bytes that the row `typed-arena` serves, with alignments up to 8.
pub const SIZES: [usize; 4] = [192, 24, 40, 64];

/// An object of `N` words.
type Object<const N: usize> = MaybeUninit<[u64; N]>;

pub(crate) struct TypedArenas {
    of_192: Arena<Object<24>>,
    of_24: Arena<Object<3>>,
    of_40: Arena<Object<5>>,
    of_64: Arena<Object<8>>,
}

impl Listed for ArenaPerTask<TypedArenas> {
    const ABOUT: About = About {
        any_size: false,
        ..About::peer(
            PeerKind::Arena,
            "typed-arena",
            "typed-arena 2.0.2",
            "every chunk goes back to the C library's malloc when its task ends",
        )
    };
}

#[inline(always)]
fn object<const N: usize>(arena: &Arena<Object<N>>, value: Object<N>) -> NonNull<u8> {
    NonNull::from(arena.alloc(value)).cast()
}

/// The bits of a value that has the size of an object.
#[inline(always)]
fn bits<V, const N: usize>(value: &V) -> Object<N> {
    assert!(size_of::<V>() == size_of::<Object<N>>());
    // SAFETY: of the same size, and an object may have any bits.
    unsafe { mem::transmute_copy(value) }
}

impl TaskArena for TypedArenas {
    #[inline]
    fn create() -> Self {
        Self { of_192: Arena::new(), of_24: Arena::new(), of_40: Arena::new(), of_64: Arena::new() }
    }

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        match (layout.size(), layout.align()) {
            (192, ..=8) => object(&self.of_192, MaybeUninit::uninit()),
            (24, ..=8) => object(&self.of_24, MaybeUninit::uninit()),
            (40, ..=8) => object(&self.of_40, MaybeUninit::uninit()),
            (64, ..=8) => object(&self.of_64, MaybeUninit::uninit()),
            _ => no_arena_for(layout),
        }
    }

    #[inline]
    unsafe fn free(&self, _: NonNull<u8>, _: Layout) {
        // A typed arena frees all or nothing.
    }

    #[inline]
    unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> NonNull<u8> {
        if new.size() != old.size() {
            grows_nothing();
        }
        block
    }

    #[inline(always)]
    fn put<V>(&self, value: V) -> NonNull<V> {
        let layout = Layout::new::<V>();
        let placed = match (layout.size(), layout.align()) {
            (192, ..=8) => object(&self.of_192, bits(&value)),
            (24, ..=8) => object(&self.of_24, bits(&value)),
            (40, ..=8) => object(&self.of_40, bits(&value)),
            (64, ..=8) => object(&self.of_64, bits(&value)),
            _ => no_arena_for(layout),
        };
        mem::forget(value);
        placed.cast()
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
