//! `bumpalo`, used in two ways: a new `Bump` for each task, and one `Bump` for each thread that is
//! reset after each task.
//!
//! Both use its defaults: minimum alignment 1, a first chunk of 512 bytes, and chunks that double.
//! The chunks come from the global allocator, which here is the system's. A reset keeps the newest
//! chunk, which is the largest, so a thread keeps what its largest task needed.
//!
//! The invariant is that of [`arena`](crate::peers::arena).

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

use ::bumpalo::Bump;
use ::bumpalo::collections::Vec;
use allocator_api2::alloc::Allocator as _;

use super::{ArenaPerTask, ArenaPerThread, CollectionsArena, ResetArena, TaskArena};
use crate::peers::about::Listed;
use crate::peers::assume_read::{assume_read, push_all};
use crate::peers::{About, Line, PeerKind};

const ORIGIN: &str = "bumpalo 3.20.3";

impl Listed for ArenaPerTask<Bump> {
    const ABOUT: About = About::peer(
        PeerKind::Arena,
        "bumpalo",
        ORIGIN,
        "every chunk goes back to the C library's malloc when its task ends",
    );
}

impl Listed for ArenaPerThread<Bump> {
    const ABOUT: About = About::peer(
        PeerKind::Arena,
        "bumpalo-reset",
        ORIGIN,
        "each thread keeps its newest and largest chunk; the others go back to the C library's malloc when \
         a task ends",
    );
}

impl TaskArena for Bump {
    #[inline]
    fn create() -> Self {
        Self::new()
    }

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.alloc_layout(layout)
    }

    #[inline]
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.deallocate(block, layout) }
    }

    #[inline]
    unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> NonNull<u8> {
        // SAFETY: the caller's promise.
        match unsafe { allocator_api2::alloc::Allocator::grow(&self, block, old, new) } {
            Ok(grown) => grown.cast(),
            Err(_) => handle_alloc_error(new),
        }
    }

    #[inline(always)]
    fn put<V>(&self, value: V) -> NonNull<V> {
        NonNull::from(Self::alloc(self, value))
    }

    #[inline(always)]
    fn put_str(&self, text: &str) -> NonNull<u8> {
        NonNull::from(self.alloc_str(text)).cast()
    }
}

impl ResetArena for Bump {
    #[inline]
    fn reset(&mut self) {
        Self::reset(self);
    }
}

impl CollectionsArena for Bump {
    fn push(&self, numbers: u64) {
        push_all!(Vec::new_in(self), numbers);
    }

    fn format<'l>(&self, lines: impl Iterator<Item = Line<'l>>) {
        for Line { name, number, value } in lines {
            let text = ::bumpalo::format!(in self, "{}.{}={}", name, number, value);
            assume_read(text.into_bump_str().as_ptr());
        }
    }
}
