//! Blocks that are freed outside their pool: by other threads, or after the pool's end.
//!
//! The invariants are those of core.rs and of life.rs.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::blocks::Blocks;
use super::classes::{Class, class_of};
use super::current::CURRENT;
use super::from_region::FromRegion;
use super::ownership::Remote;
use super::shared::Shared;

/// This many blocks of another pool are collected before they are sent to it together.
const MOST_OUTGOING: usize = 32;
/// Marks a large block on a remote list.
const LARGE: usize = usize::MAX;

/// Blocks of another core that this core's thread freed and has not sent yet.
#[derive(Debug)]
pub(super) struct Outgoing {
    to: Cell<*const Shared>,
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

impl Shared {
    /// Puts the blocks that other threads freed on the free lists.
    pub(super) fn take_remote(&self) {
        if self.life.has_remote() {
            // SAFETY: the caller owns the core, and the list holds its blocks.
            unsafe { self.put_back(self.life.take()) };
        }
    }

    /// # Safety
    /// The caller has exclusive access to the core. The list holds freed blocks of the core.
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

    /// Frees a block of this core, on any thread. The order of the parameters is explained at
    /// [`free_others`](Self::free_others).
    ///
    /// # Safety
    /// The block belongs to this core, was allocated with a layout of this size class, and has not
    /// been freed.
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
    /// The block belongs to this core, was allocated with a layout of this size class, and has not
    /// been freed.
    pub(super) unsafe fn free_remote(&self, block: NonNull<u8>, layout: Layout) {
        if self.is_watched() {
            return self.free_watched(block, layout);
        }
        let remote = block.cast::<Remote>();
        let class = class_of(layout).map_or(LARGE, Class::index);
        // SAFETY: the caller gave the block up, and it has at least one step of bytes.
        unsafe { remote.write(Remote { next: ptr::null_mut(), class }) };
        let mine = CURRENT.with(Cell::get);
        // A large block is sent at once: it may hold any number of bytes.
        if mine.is_null() || class == LARGE {
            // SAFETY: the block holds a `Remote`, written above.
            return unsafe { self.push_remote(remote.as_ptr(), remote.as_ptr()) };
        }
        // SAFETY: a thread that has entered a pool owns its core.
        unsafe { Self::at(mine) }.send(self, remote.as_ptr());
    }

    /// Collects a block of another core, to be sent with others.
    pub(super) fn send(&self, to: &Self, block: *mut Remote) {
        let out = &self.outgoing;
        if !ptr::eq(out.to.get(), to) {
            self.push_outgoing();
            out.to.set(to);
        }
        if out.count.get() == 0 {
            out.last.set(block);
        }
        // SAFETY: the block was given up by its user, and holds a `Remote`.
        unsafe { (*block).next = out.first.replace(block) };
        out.count.set(out.count.get() + 1);
        if out.count.get() >= MOST_OUTGOING {
            self.push_outgoing();
        }
    }

    /// Sends the collected blocks to their pool.
    pub(super) fn push_outgoing(&self) {
        let out = &self.outgoing;
        if out.count.replace(0) > 0 {
            let first = out.first.replace(ptr::null_mut());
            // SAFETY: blocks of that core, freed by this thread.
            unsafe { Self::at(out.to.replace(ptr::null())).push_remote(first, out.last.get()) };
        }
    }

    /// # Safety
    /// As for [`Ownership::push`].
    pub(super) unsafe fn push_remote(&self, first: *mut Remote, last: *mut Remote) {
        // SAFETY: passed on to the caller.
        if unsafe { self.life.push(first, last) } {
            self.life.collect(|list| {
                // SAFETY: `collect` gives this thread the core and its list.
                unsafe { self.put_back_parked(list) }
            });
            self.stack_if_empty();
        }
    }

    /// Puts blocks of a parked core on its free lists. Returns whether no block is live; in that
    /// case the core's memory has been given back.
    ///
    /// # Safety
    /// The state of `life` gives the caller the core, and the list holds its freed blocks.
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

    /// Clears a watched core whose pool has ended, under the lock, if no block is live. Returns
    /// whether it did.
    pub(super) fn end_watched(blocks: &Blocks<FromRegion>) -> bool {
        let empty = blocks.live().0 == 0;
        if empty {
            // SAFETY: nothing is live.
            unsafe { blocks.clear(None) };
            blocks.ledger.as_deref().expect("checked").end();
            blocks.record.release();
        }
        empty
    }

    pub(super) fn free_watched(&self, block: NonNull<u8>, layout: Layout) {
        let last = self.watched(|blocks, ended| {
            // When a pool ends, all resting blocks are released: a block freed after that is not
            // handed out again.
            blocks.ledger.as_deref().expect("checked").free(blocks, block, layout);
            *ended && Self::end_watched(blocks)
        });
        if last {
            self.life.end(|_| true);
            self.stack_if_empty();
        }
    }
}
