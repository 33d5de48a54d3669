//! `Room`: memory for values, without them.
//!
//! # Invariant
//!
//! `first` is the start of `capacity` values' memory, of `home` and last resized to that layout; or dangling while that is no
//! byte. The room alone may reach it. Its users leave both fields as they are.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::home::Home;
use crate::error::{AllocError, ErrorKind, OnFailure};

/// Memory for values, and none of them.
pub(super) struct Room<T, H: Home> {
    pub first: NonNull<T>,
    pub capacity: usize,
    pub home: H,
}

// SAFETY: the room's memory is its own (the invariant), and its values are the buffer's.
unsafe impl<T: Send, H: Home + Send> Send for Room<T, H> {}
// SAFETY: as above; what is shared is read alone.
unsafe impl<T: Sync, H: Home + Sync> Sync for Room<T, H> {}

impl<T, H: Home> Room<T, H> {
    pub(super) const fn new_in(home: H) -> Self {
        let capacity = if size_of::<T>() == 0 { usize::MAX } else { 0 };
        Self { first: NonNull::dangling(), capacity, home }
    }

    fn layout(&self) -> Layout {
        let size = if size_of::<T>() == 0 { 0 } else { self.capacity * size_of::<T>() };
        // SAFETY: the memory was allocated with this size and alignment, so they are valid.
        unsafe { Layout::from_size_align_unchecked(size, align_of::<T>()) }
    }

    /// Makes room for exactly so many values. On an error it is as it was.
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

    /// Frees the memory, of which the caller makes nothing or drops the room.
    fn free(&mut self) {
        let layout = self.layout();
        if layout.size() > 0 {
            // SAFETY: the home's memory of this layout (the invariant), reached by nobody else.
            unsafe { self.home.free(self.first.cast(), layout) };
        }
    }
}

impl<T, H: Home> Drop for Room<T, H> {
    fn drop(&mut self) {
        self.free();
    }
}
