//! `bump-scope` in its fastest configuration: one `Bump` for each thread, reset after each task.
//!
//! The row uses the default settings (upwards, minimum alignment 1). On the objects of
//! `query-alloc`, bumping downwards and a minimum alignment of 8 are slower, and disabling claims,
//! deallocation and shrinking is no faster. A reset keeps the largest chunk.
//!
//! The invariant is that of [`arena`](crate::peers::arena).

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use ::bump_scope::alloc::Allocator;
use ::bump_scope::traits::BumpAllocatorTyped as _;
use ::bump_scope::{Bump, BumpVec, bump_format};

use super::{ArenaPerThread, CollectionsArena, ResetArena, TaskArena};
use crate::peers::about::Listed;
use crate::peers::assume_read::{assume_read, push_all};
use crate::peers::{About, Line, PeerKind, SCOPED, Scopes};

impl Listed for ArenaPerThread<Bump> {
    const ABOUT: About = About::peer(
        PeerKind::Arena,
        "bump-scope",
        "bump-scope 2.4.1",
        "each thread keeps its largest chunk; the others go back to the C library's malloc when a task ends",
    );
}

impl TaskArena for Bump {
    #[inline]
    fn create() -> Self {
        Self::new()
    }

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.allocate_layout(layout)
    }

    #[inline]
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.deallocate(block, layout) }
    }

    #[inline]
    unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> NonNull<u8> {
        // SAFETY: the caller's promise.
        match unsafe { Allocator::grow(self, block, old, new) } {
            Ok(grown) => grown.cast(),
            Err(_) => handle_alloc_error(new),
        }
    }

    #[inline(always)]
    fn put<V>(&self, value: V) -> NonNull<V> {
        Self::alloc(self, value).into_raw()
    }

    #[inline(always)]
    fn put_str(&self, text: &str) -> NonNull<u8> {
        self.alloc_str(text).into_raw().cast()
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
        push_all!(BumpVec::new_in(self), numbers);
    }

    fn format<'l>(&self, lines: impl Iterator<Item = Line<'l>>) {
        for Line { name, number, value } in lines {
            let text = bump_format!(in self, "{name}.{number}={value}");
            assume_read(text.into_str().as_ptr());
        }
    }
}

impl Scopes for ArenaPerThread<Bump> {
    fn start() -> Self {
        Self(Bump::new())
    }

    fn scope(&mut self, places: &mut [NonNull<u8>]) -> Duration {
        self.0.scoped(|scope| {
            for place in &mut *places {
                *place = scope.allocate_layout(SCOPED);
                // SAFETY: a fresh object, which has a word and is aligned to one.
                unsafe { place.cast::<u64>().write(1) };
            }
            let began = Instant::now();
            for place in places {
                // SAFETY: allocated in this scope with this layout, and not used after.
                unsafe { scope.deallocate(*place, SCOPED) };
            }
            began.elapsed()
        })
    }
}
