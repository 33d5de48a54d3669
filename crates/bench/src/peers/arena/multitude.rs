//! `multitude`, used in two ways: a new `Arena` for each task, and one `Arena` for each thread that
//! is reset after each task.
//!
//! Both use its defaults. Its calls for bytes count a reference to the chunk for each block, and a
//! block that is not freed would keep its chunk. So blocks are slices of words here, which die with
//! the arena; they are not freed one by one, and grow by a copy.
//!
//! The invariant is that of [`arena`](crate::peers::arena).

use std::alloc::Layout;
use std::ptr::NonNull;

use ::multitude::{Alloc, Arena};

use super::{ArenaPerTask, ArenaPerThread, CollectionsArena, ResetArena, TaskArena};
use crate::peers::about::Listed;
use crate::peers::assume_read::{assume_read, push_all};
use crate::peers::{About, Line, PeerKind};

const ORIGIN: &str = "multitude 0.12.0";

impl Listed for ArenaPerTask<Arena> {
    const ABOUT: About = About::peer(
        PeerKind::Arena,
        "multitude",
        ORIGIN,
        "every chunk goes back to the C library's malloc when its task ends",
    );
}

impl Listed for ArenaPerThread<Arena> {
    const ABOUT: About = About::peer(
        PeerKind::Arena,
        "multitude-reset",
        ORIGIN,
        "each thread keeps its arena's chunks of up to 64 KiB, as the arena's own cache does",
    );
}

impl TaskArena for Arena {
    #[inline]
    fn create() -> Self {
        Self::new()
    }

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        const WORD: usize = size_of::<u64>();
        let slack = if layout.align() > WORD { layout.align() } else { 0 };
        let words = (layout.size() + slack).div_ceil(WORD);
        let block = NonNull::from(Alloc::leak(self.alloc_uninit_slice::<u64>(words))).cast::<u8>();
        if slack == 0 {
            return block;
        }
        // SAFETY: the slice is longer than the layout by its alignment.
        unsafe { block.add(block.align_offset(layout.align())) }
    }

    #[inline]
    unsafe fn free(&self, _: NonNull<u8>, _: Layout) {}

    #[inline]
    unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> NonNull<u8> {
        let grown = TaskArena::alloc(self, new);
        // SAFETY: both blocks are live, don't overlap, and have at least `old.size()` bytes.
        unsafe { grown.copy_from_nonoverlapping(block, old.size()) };
        grown
    }

    #[inline(always)]
    fn put<V>(&self, value: V) -> NonNull<V> {
        NonNull::from(Alloc::leak(Self::alloc(self, value)))
    }

    #[inline(always)]
    fn put_str(&self, text: &str) -> NonNull<u8> {
        NonNull::from(Alloc::leak(self.alloc_str(text))).cast()
    }
}

impl ResetArena for Arena {
    #[inline]
    fn reset(&mut self) {
        Self::reset(self);
    }
}

impl CollectionsArena for Arena {
    fn push(&self, numbers: u64) {
        push_all!(self.alloc_vec(), numbers);
    }

    fn format<'l>(&self, lines: impl Iterator<Item = Line<'l>>) {
        for Line { name, number, value } in lines {
            let text = ::multitude::strings::format!(in self, "{name}.{number}={value}");
            assume_read(text.leak().as_ptr());
        }
    }
}
