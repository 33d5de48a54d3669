//! `RawVec`: uninitialised memory for values.
//!
//! # Invariant
//!
//! `first` points to memory for `capacity` values that came from `home` and was last resized to
//! that layout. If that memory has no bytes, `first` is dangling. Only this `RawVec` may access the
//! memory. Its users don't change the two fields.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::block_source::BlockSource;
use crate::error::{AllocError, ErrorKind, OnFailure};

/// Uninitialised memory for values.
pub(super) struct RawVec<T, H: BlockSource> {
    pub first: NonNull<T>,
    pub capacity: usize,
    pub home: H,
}

// SAFETY: the `RawVec` owns its memory (the invariant), and the values in it belong to the buffer.
unsafe impl<T: Send, H: BlockSource + Send> Send for RawVec<T, H> {}
// SAFETY: as above; shared access only reads.
unsafe impl<T: Sync, H: BlockSource + Sync> Sync for RawVec<T, H> {}

impl<T, H: BlockSource> RawVec<T, H> {
    pub(super) const fn new_in(home: H) -> Self {
        let capacity = if size_of::<T>() == 0 { usize::MAX } else { 0 };
        Self { first: NonNull::dangling(), capacity, home }
    }

    fn layout(&self) -> Layout {
        let size = if size_of::<T>() == 0 { 0 } else { self.capacity * size_of::<T>() };
        // SAFETY: the memory was allocated with this size and alignment, so they are valid.
        unsafe { Layout::from_size_align_unchecked(size, align_of::<T>()) }
    }

    /// Resizes the memory to exactly `capacity` values. On an error nothing has changed.
    pub(super) fn resize<F: OnFailure>(&mut self, capacity: usize) -> Result<(), F::Error> {
        let new = Layout::array::<T>(capacity)
            .map_err(|_| F::fail(AllocError::new(ErrorKind::SizeOverflow, capacity)))?;
        let old = self.layout();
        if new.size() == old.size() {
            return Ok(());
        }
        let place = if old.size() == 0 {
            self.home.alloc::<F>(new)?
        } else if new.size() == 0 {
            self.free();
            NonNull::<T>::dangling().cast()
        } else {
            // SAFETY: the home's memory of the layout `old` (the invariant).
            unsafe { self.home.resize::<F>(self.first.cast(), old, new) }?
        };
        self.first = place.cast();
        self.capacity = capacity;
        Ok(())
    }

    /// Frees the memory. The caller must resize or drop `self` afterwards.
    fn free(&mut self) {
        let layout = self.layout();
        if layout.size() > 0 {
            // SAFETY: memory of `home` with this layout (the invariant); nothing else accesses it.
            unsafe { self.home.free(self.first.cast(), layout) };
        }
    }
}

impl<T, H: BlockSource> Drop for RawVec<T, H> {
    fn drop(&mut self) {
        self.free();
    }
}
