//! `SlabBox`: a value in a slab that its box owns, and `SlabSlot`: a slot without a value.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::slow_paths;
use crate::collections::{BoxIn, BoxMemory, LendingMemory, SlabMemory, SlotIn};

/// An owned value in a slab. The box is one word; any thread may drop it, even after its
/// [`Slab`](super::Slab). Its methods are those of [`BoxIn`].
///
/// It dereferences to the value, and is `Send` and `Sync` if the value is. Dropping it frees the
/// slot by the address alone.
pub type SlabBox<T> = BoxIn<T, SlabMemory>;

/// A slot of a slab that holds no value yet. It is one word; any thread may fill or drop it, even
/// after its [`Slab`](super::Slab). Dropping it frees the slot.
///
/// ```
/// let slab = allotment::Slab::new();
/// let slot = slab.alloc_slot();
/// let address = slot.as_ptr();
/// let value = slot.fill(7);
/// assert_eq!(address.as_ptr().cast_const(), std::ptr::from_ref(&*value));
/// drop(slab.alloc_slot());
/// assert_eq!(slab.statistics().live_objects, 1);
/// ```
pub type SlabSlot<T> = SlotIn<T, SlabMemory>;

// SAFETY: a box or a slot owns a slot of a slab, and frees it once, on any thread.
unsafe impl BoxMemory for SlabMemory {
    #[inline(always)]
    unsafe fn free(self, slot: NonNull<u8>, _layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { slow_paths::free_by_address(slot) };
    }
}

// SAFETY: a slot stays valid until it is freed, even after its slab's end.
unsafe impl LendingMemory<'_> for SlabMemory {}
