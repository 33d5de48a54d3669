//! `SlotIn`: memory for one value, with an owner that fills or frees it; and the typed calls that
//! slots give to lists and slabs.
//!
//! # Invariant
//!
//! `block` is a block of `memory` with the layout of a `T`. The slot alone owns it, and it holds no
//! value.

use core::alloc::Layout;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use super::boxed::{BoxIn, BoxMemory};

/// Memory for one value, without a value. Dropping the slot frees it.
///
/// Use it under the name for its memory: [`ListSlot`](crate::free_list::ListSlot) or
/// [`SlabSlot`](crate::slab::SlabSlot).
#[must_use = "a slot that is dropped is free again"]
pub struct SlotIn<T, M: BoxMemory> {
    block: NonNull<T>,
    memory: M,
}

// SAFETY: the slot owns memory and no value (the invariant).
unsafe impl<T, M: BoxMemory + Send> Send for SlotIn<T, M> {}
// SAFETY: a shared slot gives its address and nothing else.
unsafe impl<T, M: BoxMemory + Sync> Sync for SlotIn<T, M> {}

impl<T, M: BoxMemory> SlotIn<T, M> {
    /// # Safety
    /// A block of this memory with the layout of a `T`, which the caller owns.
    #[inline(always)]
    pub(crate) unsafe fn new(block: NonNull<u8>, memory: M) -> Self {
        Self { block: block.cast(), memory }
    }

    /// Puts a value into the slot.
    #[inline(always)]
    pub fn fill(self, value: T) -> BoxIn<T, M> {
        let slot = ManuallyDrop::new(self);
        // SAFETY: the slot owns the block, which has a `T`'s layout (the invariant). The box owns
        // it from here on.
        unsafe {
            slot.block.write(value);
            BoxIn::from_raw_in(slot.block, slot.memory)
        }
    }

    /// The address that the value will have.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<T> {
        self.block
    }
}

impl<T, M: BoxMemory> Drop for SlotIn<T, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the slot owns the block (the invariant), and frees it once.
        unsafe { self.memory.free(self.block.cast(), Layout::new::<T>()) };
    }
}

impl<T, M: BoxMemory> fmt::Debug for SlotIn<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slot").field(&self.block).finish()
    }
}

/// Defines the calls that allocate boxes and slots, for a type with the methods `slot_or` and
/// `slot_fast`. `$raw` is the allocator whose errors they return.
macro_rules! slot_calls {
    ($slot:ty, $boxed:ty, $raw:literal) => {
        /// Allocates a box that holds `value`.
        ///
        /// # Panics
        /// Panics or ends the process if [`try_alloc`](Self::try_alloc) returns an error: see
        /// [`AllocError`](crate::AllocError).
        #[inline(always)]
        pub fn alloc(&self, value: T) -> $boxed {
            // If the slow path unwound and the value had to be dropped here, the value would have
            // to lie in memory. So the slow path gets a value that needs drop. Any other is
            // forgotten.
            let value = ::core::mem::ManuallyDrop::new(value);
            let slot = if ::core::mem::needs_drop::<T>() {
                match self.slot_fast() {
                    Some(slot) => slot,
                    None => return self.alloc_slow(::core::mem::ManuallyDrop::into_inner(value)),
                }
            } else {
                $crate::error::always(self.slot_or::<$crate::error::PanicOrAbort>())
            };
            slot.fill(::core::mem::ManuallyDrop::into_inner(value))
        }

        #[cold]
        #[inline(never)]
        fn alloc_slow(&self, value: T) -> $boxed {
            self.alloc_slot().fill(value)
        }

        /// Allocates a box that holds `value`.
        ///
        /// # Errors
        #[doc = concat!("Same as [`", $raw, "::try_alloc`](crate::", $raw, "::try_alloc).")]
        /// The error carries `value` back to the caller.
        #[inline]
        pub fn try_alloc(&self, value: T) -> Result<$boxed, ($crate::AllocError, T)> {
            let value = ::core::mem::ManuallyDrop::new(value);
            let slot = self.try_alloc_slot();
            let value = ::core::mem::ManuallyDrop::into_inner(value);
            match slot {
                Ok(slot) => Ok(slot.fill(value)),
                Err(error) => Err((error, value)),
            }
        }

        /// Allocates a slot, then calls `make` and puts what it returns into the slot. If `make`
        /// panics, the slot is freed.
        ///
        /// # Panics
        /// Panics or ends the process if [`try_alloc_slot`](Self::try_alloc_slot) returns an error:
        /// see [`AllocError`](crate::AllocError).
        #[inline]
        pub fn alloc_with(&self, make: impl FnOnce() -> T) -> $boxed {
            let slot = self.alloc_slot();
            let value = make();
            slot.fill(value)
        }

        /// Allocates a slot, then calls `make` and puts what it returns into the slot. If `make`
        /// panics, the slot is freed.
        ///
        /// # Errors
        #[doc = concat!("Same as [`", $raw, "::try_alloc`](crate::", $raw, "::try_alloc).")]
        /// `make` was not called then.
        ///
        /// # Panics
        /// If `make` panics.
        #[inline]
        pub fn try_alloc_with(
            &self,
            make: impl FnOnce() -> T,
        ) -> Result<$boxed, $crate::AllocError> {
            let slot = self.try_alloc_slot()?;
            let value = make();
            Ok(slot.fill(value))
        }

        /// Allocates a slot without a value.
        ///
        /// # Panics
        /// Panics or ends the process if [`try_alloc_slot`](Self::try_alloc_slot) returns an error:
        /// see [`AllocError`](crate::AllocError).
        #[inline]
        pub fn alloc_slot(&self) -> $slot {
            $crate::error::always(self.slot_or::<$crate::error::PanicOrAbort>())
        }

        /// Allocates a slot without a value.
        ///
        /// # Errors
        #[doc = concat!("Same as [`", $raw, "::try_alloc`](crate::", $raw, "::try_alloc).")]
        #[inline]
        pub fn try_alloc_slot(&self) -> Result<$slot, $crate::AllocError> {
            self.slot_or::<$crate::error::ReturnError>()
        }
    };
}

pub(crate) use slot_calls;
