//! Blocks that are freed where their pool is not: by other threads, or after the pool's end.
//!
//! The invariants are those of core.rs and of life.rs.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::blocks::Blocks;
use super::classes::{Class, class_of};
use super::core::Core;
use super::current::CURRENT;
use super::from_region::FromRegion;
use super::life::Remote;

/// Blocks of another pool wait for so many others before they go to it together.
const MOST_OUTGOING: usize = 32;
/// A large block on a remote list.
const LARGE: usize = usize::MAX;

/// Blocks of another core that this one's thread freed, not pushed yet.
#[derive(Debug)]
pub(super) struct Outgoing {
    to: Cell<*const Core>,
    first: Cell<*mut Remote>,
    last: Cell<*mut Remote>,
    count: Cell<usize>,
}

impl Outgoing {
    pub(super) fn none() -> Self {
        Self {
            to: Cell::new(ptr::null()),
            first: Cell::new(ptr::null_mut()),
            last: Cell::new(ptr::null_mut()),
            count: Cell::new(0),
        }
    }
}

impl Core {
    /// Puts back what other threads freed.
    pub(super) fn take_remote(&self) {
        if self.life.has_remote() {
            // SAFETY: the caller owns the core; the list is its blocks.
            unsafe { self.put_back(self.life.take()) };
        }
    }

    /// # Safety
    /// The caller has the core; the list holds blocks of it that were freed.
    pub(super) unsafe fn put_back(&self, mut list: *mut Remote) {
        // SAFETY: passed on to the caller.
        unsafe {
            let blocks = self.blocks();
            while let Some(block) = NonNull::new(list) {
                let Remote { next, class } = block.read();
                list = next;
                match Class::of_index(class) {
                    Some(class) => {
                        blocks.lists.put(class, block.cast());
                    }
                    None => blocks.free_large(block.cast()),
                }
            }
        }
    }

    /// Frees a block of this core, on whatever thread. The arguments as those of [`free_others`](Self::free_others).
    ///
    /// # Safety
    /// The block is this core's, of a layout of this size class, live until now.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn free_elsewhere(
        block: NonNull<u8>,
        size: usize,
        align: usize,
        core: &Self,
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            let layout = Layout::from_size_align_unchecked(size, align);
            if core.is_mine() {
                core.free(block, layout);
            } else {
                core.free_remote(block, layout);
            }
        }
    }

    /// Frees a block of this core, on a thread that does not own it.
    ///
    /// # Safety
    /// The block is this core's, of a layout of this size class, live until now.
    pub(super) unsafe fn free_remote(&self, block: NonNull<u8>, layout: Layout) {
        if self.is_watched() {
            return self.free_watched(block, layout);
        }
        let remote = block.cast::<Remote>();
        let class = class_of(layout).map_or(LARGE, Class::index);
        // SAFETY: the caller's block, of at least a step.
        unsafe { remote.write(Remote { next: ptr::null_mut(), class }) };
        let mine = CURRENT.with(Cell::get);
        // A large block waits for no others: it may be any number of bytes.
        if mine.is_null() || class == LARGE {
            // SAFETY: as written above.
            return unsafe { self.push_remote(remote.as_ptr(), remote.as_ptr()) };
        }
        // SAFETY: a thread that has entered a pool owns its core.
        unsafe { Self::at(mine) }.send(self, remote.as_ptr());
    }

    /// Lets a block of another core wait for others.
    pub(super) fn send(&self, to: &Self, block: *mut Remote) {
        let out = &self.outgoing;
        if !ptr::eq(out.to.get(), to) {
            self.push_outgoing();
            out.to.set(to);
        }
        if out.count.get() == 0 {
            out.last.set(block);
        }
        // SAFETY: the caller's block, which holds a `Remote`.
        unsafe { (*block).next = out.first.replace(block) };
        out.count.set(out.count.get() + 1);
        if out.count.get() >= MOST_OUTGOING {
            self.push_outgoing();
        }
    }

    /// Sends what waits to other pools.
    pub(super) fn push_outgoing(&self) {
        let out = &self.outgoing;
        if out.count.replace(0) > 0 {
            let first = out.first.replace(ptr::null_mut());
            // SAFETY: blocks of that core, which the thread freed.
            unsafe { Self::at(out.to.replace(ptr::null())).push_remote(first, out.last.get()) };
        }
    }

    /// # Safety
    /// As for [`Life::push`].
    pub(super) unsafe fn push_remote(&self, first: *mut Remote, last: *mut Remote) {
        // SAFETY: passed on to the caller.
        if unsafe { self.life.push(first, last) } {
            self.life.collect(|list| {
                // SAFETY: `collect` gives us the core, and its list.
                unsafe { self.put_back_parked(list) }
            });
            self.stack_if_empty();
        }
    }

    /// Puts blocks back for a parked core; whether nothing lives any more. Then its memory has gone.
    ///
    /// # Safety
    /// The caller has the core by the state of its life; the list is its.
    pub(super) unsafe fn put_back_parked(&self, list: *mut Remote) -> bool {
        // SAFETY: passed on to the caller.
        unsafe {
            self.put_back(list);
            let blocks = self.blocks();
            let empty = blocks.live().0 == 0;
            if empty {
                blocks.clear(None);
                blocks.record.release();
            } else {
                blocks.note_live();
            }
            empty
        }
    }

    /// Ends the blocks of a pool that has ended, under the lock, if nothing lives; whether that is so.
    pub(super) fn end_watched(blocks: &Blocks<FromRegion>) -> bool {
        let empty = blocks.live().0 == 0;
        if empty {
            // SAFETY: nothing is live.
            unsafe { blocks.clear(None) };
            blocks.watch.as_deref().expect("watched").end();
            blocks.record.release();
        }
        empty
    }

    pub(super) fn free_watched(&self, block: NonNull<u8>, layout: Layout) {
        let last = self.watched(|blocks, ended| {
            // A pool that ended let nothing rest: what is freed now is not handed out again.
            blocks.watch.as_deref().expect("watched").free(blocks, block, layout);
            *ended && Self::end_watched(blocks)
        });
        if last {
            self.life.end(|_| true);
            self.stack_if_empty();
        }
    }
}
