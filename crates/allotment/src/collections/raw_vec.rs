//! `RawVec`: uninitialised memory for values.
//!
//! # Invariant
//!
//! `first` points to memory for `capacity` values that came from `source` and was last resized to
//! that layout. If that memory has no bytes, `first` is dangling. Only this `RawVec` may access the
//! memory. Its users don't change the fields.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::block_source::BlockSource;
use crate::error::{AllocError, ErrorKind, OnFailure};

/// This many values do not fit the address space.
#[cold]
pub(super) const fn overflow(values: usize) -> AllocError {
    AllocError::new(ErrorKind::SizeOverflow, values)
}

/// Uninitialised memory for values.
pub(super) struct RawVec<T, S: BlockSource> {
    pub first: NonNull<T>,
    pub capacity: usize,
    pub source: S,
}

// SAFETY: the `RawVec` owns its memory (the invariant), and the values in it belong to its user.
unsafe impl<T: Send, S: BlockSource + Send> Send for RawVec<T, S> {}
// SAFETY: as above; shared access only reads.
unsafe impl<T: Sync, S: BlockSource + Sync> Sync for RawVec<T, S> {}

impl<T, S: BlockSource> RawVec<T, S> {
    pub(super) const fn new_in(source: S) -> Self {
        let capacity = if size_of::<T>() == 0 { usize::MAX } else { 0 };
        Self { first: NonNull::dangling(), capacity, source }
    }

    /// Memory for `capacity` values.
    #[inline]
    pub(super) fn with_capacity_in<F: OnFailure>(
        capacity: usize,
        source: S,
    ) -> Result<Self, F::Error> {
        let layout = Layout::array::<T>(capacity).map_err(|_| F::fail(overflow(capacity)))?;
        if layout.size() == 0 {
            return Ok(Self::new_in(source));
        }
        let first = source.alloc::<F>(layout)?.cast();
        Ok(Self { first, capacity, source })
    }

    fn layout(&self) -> Layout {
        let size = if size_of::<T>() == 0 { 0 } else { self.capacity * size_of::<T>() };
        // SAFETY: the memory was allocated with this size and alignment, so they are valid.
        unsafe { Layout::from_size_align_unchecked(size, align_of::<T>()) }
    }

    /// Resizes the memory to exactly `capacity` values. On an error nothing has changed.
    pub(super) fn resize<F: OnFailure>(&mut self, capacity: usize) -> Result<(), F::Error> {
        let new = Layout::array::<T>(capacity).map_err(|_| F::fail(overflow(capacity)))?;
        let old = self.layout();
        if new.size() == old.size() {
            return Ok(());
        }
        let block = if old.size() == 0 {
            self.source.alloc::<F>(new)?
        } else if new.size() == 0 {
            self.free();
            NonNull::<T>::dangling().cast()
        } else {
            // SAFETY: memory of `source` with the layout `old` (the invariant).
            unsafe { self.source.resize::<F>(self.first.cast(), old, new) }?
        };
        self.first = block.cast();
        self.capacity = capacity;
        Ok(())
    }

    /// Frees the memory. The caller must resize or drop `self` afterwards.
    fn free(&mut self) {
        let layout = self.layout();
        if layout.size() > 0 {
            // SAFETY: memory of `source` with this layout (the invariant); nothing else accesses
            // it.
            unsafe { self.source.free(self.first.cast(), layout) };
        }
    }
}

impl<T, S: BlockSource> Drop for RawVec<T, S> {
    fn drop(&mut self) {
        self.free();
    }
}
