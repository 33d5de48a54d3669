//! Blocks that are freed outside their pool: by other threads, or after the pool's end.
//!
//! The invariants are those of shared.rs, ownership.rs and outgoing.rs.

use core::alloc::Layout;
use core::ptr::{self, NonNull};

use super::block_allocator::BlockAllocator;
use super::ownership::RemoteBlock;
use super::region_supply::RegionSupply;
use super::shared::{CheckedState, PoolShared};
use super::size_classes::SizeClass;
use crate::memory::layout::align_up;
use crate::memory::os;

/// Marks a large block on a remote list.
const LARGE: usize = usize::MAX;
/// An ended pool looks at what it holds once in this number of frees, and more often at its last
/// blocks: each time their number falls below a power of two.
const PARKED_FREES: usize = 64;

/// The memory of a longer block goes back to the system at once: its pool might wait for long until
/// it takes the block.
const MAX_SENT_BYTES: usize = 4 << 20;

/// Gives the memory of the pages in a block back, except that of the block's first bytes.
///
/// # Safety
/// The block has `size` bytes, and nothing refers to them but to a [`RemoteBlock`] at its start.
unsafe fn discard_pages(block: NonNull<u8>, size: usize) {
    let (start, page) = (block.addr().get(), os::page_size());
    let first = align_up(start + size_of::<RemoteBlock>(), page) - start;
    let last = (start + size) / page * page - start;
    if first < last {
        // SAFETY: whole pages of the block; the rest is guaranteed by the caller. If the system
        // refuses, the memory goes back with the block.
        let _ = unsafe { os::discard(block.add(first), last - first) };
    }
}

impl PoolShared {
    /// Puts the blocks that other threads freed on the free lists. The caller owns this value.
    pub(super) fn reclaim_remote(&self) {
        if self.ownership.has_remote() {
            // SAFETY: the caller owns this value, and the list holds its blocks.
            unsafe { self.reclaim(self.ownership.take()) };
        }
    }

    /// Puts a list of freed blocks on the free lists. Returns their number.
    ///
    /// # Safety
    /// The caller has exclusive access to this value. The list holds freed blocks of it.
    pub(super) unsafe fn reclaim(&self, mut list: *mut RemoteBlock) -> usize {
        let mut count = 0;
        // SAFETY: passed on to the caller.
        unsafe {
            let blocks = self.blocks();
            while let Some(block) = NonNull::new(list) {
                let RemoteBlock { next, class } = block.read();
                list = next;
                match SizeClass::of_index(class) {
                    Some(class) => blocks.free_to_list(class, block.cast()),
                    None => blocks.free_large(block.cast()),
                }
                count += 1;
            }
        }
        count
    }

    /// Frees a block of this pool, on any thread. It is the slow path for a pool that is not the
    /// current one. The order of the parameters is explained at [`free_slow`](Self::free_slow).
    ///
    /// # Safety
    /// The block belongs to this pool, was allocated with a layout of this size class, and has not
    /// been freed.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn free_on_any_thread(
        block: NonNull<u8>,
        size: usize,
        align: usize,
        shared: &Self,
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            let layout = Layout::from_size_align_unchecked(size, align);
            if shared.is_owned_by_this_thread() {
                shared.free(block, layout);
            } else {
                shared.free_remote(block, layout);
            }
        }
    }

    /// Frees a block of this pool, on a thread that does not own it.
    ///
    /// # Safety
    /// The block belongs to this pool, was allocated with a layout of this size class, and has not
    /// been freed.
    unsafe fn free_remote(&self, block: NonNull<u8>, layout: Layout) {
        if self.is_checked() {
            return self.free_checked(block, layout);
        }
        let remote = block.cast::<RemoteBlock>();
        let class = SizeClass::of(layout).map_or(LARGE, SizeClass::index);
        // SAFETY: the caller gave the block up, and it has at least one step of bytes.
        unsafe { remote.write(RemoteBlock { next: ptr::null_mut(), class }) };
        if layout.size() > MAX_SENT_BYTES {
            // SAFETY: the caller gave the block up; its pool needs only the `RemoteBlock`.
            unsafe { discard_pages(block, layout.size()) };
        }
        // A large block is sent at once: it may hold any number of bytes.
        // SAFETY: the block holds a `RemoteBlock`, written above, and only this call refers to it.
        unsafe {
            match Self::current() {
                Some(current) if class != LARGE => current.add_outgoing(self, remote.as_ptr()),
                _ => self.push_remote(remote.as_ptr(), remote.as_ptr()),
            }
        }
    }

    /// Collects a freed block of another pool, to be sent with others. This value is that of the
    /// thread's current pool.
    ///
    /// # Safety
    /// The block belongs to the pool `to` and holds a [`RemoteBlock`]. Its user has freed it, and
    /// nothing else refers to it.
    unsafe fn add_outgoing(&self, to: &Self, block: *mut RemoteBlock) {
        if !self.outgoing.accepts(to) {
            self.flush_outgoing();
        }
        // SAFETY: passed on to the caller.
        if unsafe { self.outgoing.add(to, block) } {
            self.flush_outgoing();
        }
    }

    /// Sends the collected blocks to their pool.
    pub(super) fn flush_outgoing(&self) {
        if let Some((to, first, last)) = self.outgoing.take() {
            // SAFETY: `to` is never unmapped. The blocks belong to it, and only the batch referred
            // to them (the invariant of outgoing.rs).
            unsafe { (*to).push_remote(first, last) };
        }
    }

    /// Pushes freed blocks on this pool's remote list. If the pool is parked, reclaims the list.
    ///
    /// # Safety
    /// As for [`Ownership::push`](super::ownership::Ownership::push).
    unsafe fn push_remote(&self, first: *mut RemoteBlock, last: *mut RemoteBlock) {
        let mut empty = false;
        let mut reclaim = |list| {
            // SAFETY: called with exclusive access, and with a list of this pool's blocks.
            empty = unsafe { self.reclaim_while_parked(list) };
            empty
        };
        // SAFETY: passed on to the caller.
        unsafe {
            if !self.ownership.reclaim_if_parked(first, last, &mut reclaim)
                && self.ownership.push(first, last)
            {
                self.ownership.reclaim_parked(reclaim);
            }
        }
        if empty {
            self.stack_if_empty();
        }
    }

    /// Puts blocks of a parked pool on its free lists. Returns whether no block is live; in that
    /// case the pool's memory has been released. Once in [`PARKED_FREES`] blocks, and more often at
    /// the last ones, it may search for empty chunks.
    ///
    /// # Safety
    /// The state of `ownership` gives the caller exclusive access, and the list holds freed blocks
    /// of this pool.
    unsafe fn reclaim_while_parked(&self, list: *mut RemoteBlock) -> bool {
        // SAFETY: passed on to the caller.
        unsafe {
            let before = self.parked_blocks.get();
            let left = before - self.reclaim(list);
            self.parked_blocks.set(left);
            let blocks = self.blocks();
            if left == 0 {
                blocks.clear(None);
                blocks.record.release();
            } else if left / PARKED_FREES < before / PARKED_FREES || left.ilog2() < before.ilog2() {
                self.sweep_if_due();
                blocks.publish_live_if_named();
            }
            left == 0
        }
    }

    /// Clears the blocks of a checked pool that has ended, if none is live. Returns whether it did.
    /// The caller holds the lock, and passes the state that it protects.
    pub(super) fn end_checked(
        blocks: &BlockAllocator<RegionSupply>,
        state: &mut CheckedState,
    ) -> bool {
        let empty = blocks.live().0 == 0;
        if empty {
            // SAFETY: nothing is live.
            unsafe { blocks.clear(None) };
            blocks.checked.as_deref().expect("checked mode").ledger.end();
            blocks.record.release();
            *state = CheckedState::Empty;
        }
        empty
    }

    /// Frees a block in checked mode, on any thread.
    pub(super) fn free_checked(&self, block: NonNull<u8>, layout: Layout) {
        let last = self.with_checked(|blocks, state| {
            // When a pool ends, its quarantine is emptied: a block freed after that is not handed
            // out again.
            let checked = blocks.checked.as_deref().expect("checked mode");
            checked.ledger.free(blocks, block, layout);
            *state == CheckedState::Ended && Self::end_checked(blocks, state)
        });
        if last {
            self.ownership.end(|_| true);
            self.stack_if_empty();
        }
    }
}
