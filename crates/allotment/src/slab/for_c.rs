//! What the C interface needs of slabs beside what Rust callers have: fast paths that leave the slow ones to it, and what its
//! inline code reads. Hidden, and no promise to anybody else.
//!
//! The invariants are those of raw.rs and front.rs.

use core::ptr::NonNull;

use super::core::{MARK, number_in};
use super::front::{FRONT_BYTES, Front, NOBODY};
use super::raw::{RawSlab, RawSlabHandle, free_on};
use super::{registry, threads, watch};
use crate::memory::segments;

impl RawSlab {
    /// A slot at hand, if there is one; else there is more to do. The slow path is the caller's.
    #[doc(hidden)]
    #[inline(always)]
    pub fn take_at_hand(&self) -> Option<NonNull<u8>> {
        // SAFETY: this thread's front, used before the table changes.
        threads::found(self.number).and_then(|front| unsafe { Front::pop(front) })
    }

    /// Frees a slot of whichever slab by its address alone, if this thread has used the slab: else the other way is taken.
    ///
    /// # Safety
    /// As for [`free_if_slot`](Self::free_if_slot).
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn free_at_hand_or(slot: NonNull<u8>, otherwise: impl FnOnce()) {
        // What has no tag is no slab's, and nobody has a front for the number 0.
        // SAFETY: a front of this thread's, used before the table changes; passed on to the caller.
        unsafe {
            match threads::found(number_in(segments::tag_of(slot.addr().get()))) {
                Some(front) if Front::push_known(front, slot) => {}
                _ => otherwise(),
            }
        }
    }

    /// Frees a slot of whichever slab by its address alone. Whether it was one of a slab's: for any other address nothing
    /// happens.
    ///
    /// # Safety
    /// If the address lies in a slab's memory: the slot came from a slab, was not freed since, and is not used any more.
    #[doc(hidden)]
    pub unsafe fn free_if_slot(slot: NonNull<u8>) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { free_if_slot(slot) }
    }
}

#[inline(never)]
pub(super) unsafe fn free_if_slot(slot: NonNull<u8>) -> bool {
    // SAFETY: where the address has a tag, the slot keeps its page, and that is a reference to the core; once it is freed
    // the page may go, so where no front is a reference, one is taken before. The rest is passed on to the caller.
    unsafe {
        let mut number = number_in(segments::tag_of(slot.addr().get()) & !MARK);
        if let Some(front) = threads::found(number) {
            if Front::free_slowly(front, slot) {
                return true;
            }
        }
        if number == 0 {
            let Some(known) = watch::slab_of_malloc_block(slot) else { return false };
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
    /// The bytes of a front; its places lie behind it.
    pub const FRONT_BYTES: usize = FRONT_BYTES;

    /// A front that has no slot at hand and no room for one, so that every call takes the slow path.
    #[must_use]
    pub fn nobody() -> *const () {
        NOBODY.cast()
    }

    /// The front; it stays while the handle does.
    #[must_use]
    pub fn front(&self) -> *const () {
        self.front.cast()
    }

    /// The root of the map from granules to tags, which stays.
    #[must_use]
    pub fn tags() -> *const () {
        segments::root()
    }
}
