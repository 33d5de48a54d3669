//! What the C interface needs of slabs beyond the Rust interface: fast paths that leave the slow
//! path to the caller, and the data that its inline code reads. All of it is hidden and carries no
//! stability promise for other users.
//!
//! The invariants are those of raw.rs and front.rs.

use core::ptr::NonNull;

use super::raw::{RawSlab, RawSlabHandle, free_on};
use super::shared::{MARK, number_in};
use super::thread_cache::{FRONT_BYTES, NOBODY, ThreadCache};
use super::{malloc_blocks, registry, thread_table};
use crate::memory::segments;

impl RawSlab {
    /// Allocates a slot from the calling thread's cache. Returns `None` if the cache holds none;
    /// the slow path is the caller's.
    #[doc(hidden)]
    #[inline(always)]
    pub fn take_at_hand(&self) -> Option<NonNull<u8>> {
        // SAFETY: this thread's cache, used before the thread's table changes.
        thread_table::found(self.number).and_then(|front| unsafe { ThreadCache::pop(front) })
    }

    /// Frees a slot of any slab by its address alone if this thread has a cache of that slab with
    /// room. Calls `otherwise` if not.
    ///
    /// # Safety
    /// As for [`free_if_slot`](Self::free_if_slot).
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn free_at_hand_or(slot: NonNull<u8>, otherwise: impl FnOnce()) {
        // An address without a tag belongs to no slab, and no thread has a cache for number 0.
        // SAFETY: a cache of this thread, used before the thread's table changes. The caller
        // upholds the rest.
        unsafe {
            match thread_table::found(number_in(segments::tag_of(slot.addr().get()))) {
                Some(front) if ThreadCache::push_known(front, slot) => {}
                _ => otherwise(),
            }
        }
    }

    /// Frees a slot of any slab by its address alone. Returns whether the address was a slab's
    /// slot; for any other address nothing happens.
    ///
    /// # Safety
    /// If the address lies in a slab's memory: the slot came from a slab, is freed once, and is not
    /// used afterwards.
    #[doc(hidden)]
    pub unsafe fn free_if_slot(slot: NonNull<u8>) -> bool {
        // SAFETY: the caller upholds the contract.
        unsafe { free_if_slot(slot) }
    }
}

#[inline(never)]
pub(super) unsafe fn free_if_slot(slot: NonNull<u8>) -> bool {
    // SAFETY: if the address has a tag, the slot keeps its page, and the page holds a reference to
    // the core. Freeing the slot may release the page, so if no thread cache holds a reference, one
    // is taken before the free. The caller upholds the rest.
    unsafe {
        let mut number = number_in(segments::tag_of(slot.addr().get()) & !MARK);
        if let Some(front) = thread_table::found(number) {
            if ThreadCache::free_slowly(front, slot) {
                return true;
            }
        }
        if number == 0 {
            let Some(known) = malloc_blocks::slab_of(slot) else { return false };
            number = known;
        }
        registry::refer_more(number);
        free_on(registry::core_of(number), slot);
        registry::unrefer(number);
        true
    }
}

#[doc(hidden)]
impl RawSlabHandle<'_> {
    /// The bytes of a `ThreadCache` (thread cache); its entries lie behind it.
    pub const FRONT_BYTES: usize = FRONT_BYTES;

    /// A cache that holds no slot and has no room, so that every call takes the slow path.
    #[must_use]
    pub fn nobody() -> *const () {
        NOBODY.cast()
    }

    /// The cache that this handle keeps in use. It stays valid as long as the handle.
    #[must_use]
    pub fn front(&self) -> *const () {
        self.front.cast()
    }

    /// The root of the map from granules to tags. It stays where it is.
    #[must_use]
    pub fn tags() -> *const () {
        segments::root()
    }
}
