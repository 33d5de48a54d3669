//! Typed calls of a reap: values, strings and slices, with the names and the semantics of an
//! arena's; and the box of a value.
//!
//! # Invariant
//!
//! A block belongs to the caller of the allocation alone until an unsafe call or its box frees it,
//! or until the reap is reset or dropped, which ends every borrow of the reap. So it can be lent
//! for as long as `&self` is borrowed.
#![allow(clippy::mut_from_ref, reason = "each call lends another block")]

use core::alloc::Layout;
use core::convert::Infallible;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::reap::Reap;
use crate::collections::{BoxIn, BoxMemory, LendingMemory, LendingSource, NoDrop, typed_calls};
use crate::error::{AllocError, OnFailure, PanicOrAbort, ReturnError, always};

/// A value in a [`Reap`] that is dropped with the box, which then frees its block. The box takes
/// two words (three for slices). Its methods are those of [`BoxIn`].
///
/// ```
/// use allotment::{Reap, ReapBox, unsize_box};
///
/// let reap = Reap::new();
/// let name = reap.alloc_boxed(String::from("system.cpu"));
/// let shown: ReapBox<'_, dyn std::fmt::Display> = unsize_box!(name);
/// assert_eq!(shown.to_string(), "system.cpu");
/// drop(shown); // drops the string and frees its block
/// assert_eq!(reap.statistics().live_objects, 0);
/// ```
///
/// A box can't outlive its reap, and the reap can't be reset while the box is alive:
///
/// ```compile_fail,E0505
/// let reap = allotment::Reap::new();
/// let boxed = reap.alloc_boxed(7);
/// drop(reap);
/// assert_eq!(*boxed, 7);
/// ```
///
/// ```compile_fail,E0502
/// let mut reap = allotment::Reap::new();
/// let boxed = reap.alloc_boxed(7);
/// reap.reset();
/// assert_eq!(*boxed, 7);
/// ```
///
/// A box can't move to another thread, which would free it there:
///
/// ```compile_fail,E0277
/// let reap = allotment::Reap::new();
/// let boxed = reap.alloc_boxed(7);
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(boxed));
/// });
/// ```
///
/// A forgotten box keeps its block until the reap is reset or dropped. Its value is never dropped.
pub type ReapBox<'r, T> = BoxIn<T, &'r Reap>;

// SAFETY: a box or a slot owns a block of the reap with the layout of its value, and frees it once.
unsafe impl BoxMemory for &Reap {
    #[inline(always)]
    unsafe fn free(self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.free_layout(block, layout) };
    }
}

// SAFETY: a reset and the drop of the reap end `'r`.
unsafe impl<'r> LendingMemory<'r> for &'r Reap {}

// SAFETY: the blocks are the reap's.
unsafe impl<'r> LendingSource<'r> for &'r Reap {
    type Memory = &'r Reap;

    #[inline(always)]
    fn memory(self) -> &'r Reap {
        self
    }

    #[inline(always)]
    fn alloc_fast(self, layout: Layout) -> Option<NonNull<u8>> {
        self.blocks.alloc_fast(layout)
    }

    #[inline(always)]
    fn alloc_slow<F: OnFailure>(self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        self.blocks.alloc_slow_or::<F>(layout.size(), layout.align())
    }
}

typed_calls! {
    impl[] Reap, ReapBox;
    ///
    /// ```compile_fail
    /// let reap = allotment::Reap::new();
    /// reap.alloc(String::from("nothing would drop this"));
    /// ```
    ///
    /// The value lives until the reap is reset or dropped:
    ///
    /// ```compile_fail,E0502
    /// let mut reap = allotment::Reap::new();
    /// let number = reap.alloc(7);
    /// reap.reset();
    /// *number += 1;
    /// ```
    ///
    /// [`alloc_boxed`](Self::alloc_boxed) and [`alloc_slice_boxed`](Self::alloc_slice_boxed) return
    /// a box, whose drop frees the block before that.
    alloc;
    ///
    /// ```
    /// let reap = allotment::Reap::new();
    /// let table = reap.alloc_with(|| [0_u32; 4096]);
    /// assert_eq!(table[4095], 0);
    /// ```
    alloc_with;
    /// The box then frees its block.
    ///
    /// ```
    /// let reap = allotment::Reap::new();
    /// let names = reap.alloc_boxed(vec![String::from("dropped with the box")]);
    /// assert_eq!(names.len(), 1);
    /// drop(names);
    /// assert_eq!(reap.statistics().live_objects, 0);
    /// ```
    alloc_boxed;
    /// An empty slice takes the smallest block.
    alloc_slice_copy;
    ///
    /// ```
    /// let reap = allotment::Reap::new();
    /// let squares = reap.alloc_slice_with(4, |index| index * index);
    /// assert_eq!(squares, [0, 1, 4, 9]);
    /// ```
    alloc_slice_with;
}
