//! Memory for the library's own metadata.
//!
//! It comes from the system's malloc, independent of the program's global allocator. So the library
//! may itself serve as that global allocator, and a refusal is an error instead of an abort.
//!
//! # Invariants
//!
//! 1. `start` is a block for `len` values (dangling if they have no size), and only this value owns
//!    it. The first `made` values are initialised; outside [`SystemArray::try_new`], `made == len`.

use core::alloc::Layout;
#[cfg(system_memory)]
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
use core::slice;

use super::malloc;
#[cfg(system_memory)]
use super::table_slot::NewTable;
use crate::error::{AllocError, ErrorKind};

/// A fixed number of values in a block of malloc.
#[derive(Debug)]
pub(crate) struct SystemArray<T> {
    start: NonNull<T>,
    len: usize,
    made: usize,
}

// SAFETY: it owns its values as a `Box` does (invariant 1).
unsafe impl<T: Send> Send for SystemArray<T> {}
// SAFETY: sharing it shares only the values.
unsafe impl<T: Sync> Sync for SystemArray<T> {}

impl<T> SystemArray<T> {
    /// `len` values, made one after the other.
    ///
    /// # Errors
    /// If malloc refuses. `make` has not been called then.
    pub(crate) fn new(len: usize, mut make: impl FnMut(usize) -> T) -> Result<Self, AllocError> {
        Self::try_new(len, |index| Ok(make(index)))
    }

    /// As [`new`](Self::new), for values that may be refused.
    ///
    /// # Errors
    /// If malloc refuses, or with the first error of `make`.
    pub(crate) fn try_new(
        len: usize,
        mut make: impl FnMut(usize) -> Result<T, AllocError>,
    ) -> Result<Self, AllocError> {
        let layout =
            Layout::array::<T>(len).map_err(|_| AllocError::new(ErrorKind::SizeOverflow, len))?;
        let start = if layout.size() == 0 {
            NonNull::dangling()
        } else {
            let refused = AllocError::new(ErrorKind::SourceRefused, layout.size());
            malloc::alloc(layout).ok_or(refused)?.cast::<T>()
        };
        // The block is owned from here on: if `make` fails or panics, the values made and the block
        // are dropped.
        let mut values = Self { start, len, made: 0 };
        while values.made < len {
            let value = make(values.made)?;
            // SAFETY: the block has room for `len` values.
            unsafe { start.add(values.made).write(value) };
            values.made += 1;
        }
        Ok(values)
    }
}

/// What the tables that never end need.
#[cfg(system_memory)]
impl<T> SystemArray<T> {
    /// Gives the values up, so that they are not dropped until they are adopted. Returns the
    /// address of the first one.
    pub(crate) fn leak(self) -> NonNull<T> {
        ManuallyDrop::new(self).start
    }

    /// Takes over the values of a `SystemArray` that was leaked.
    ///
    /// # Safety
    /// `start` and `len` are those of the leaked value, and it is adopted once.
    pub(crate) unsafe fn adopt(start: NonNull<T>, len: usize) -> Self {
        Self { start, len, made: len }
    }

    /// The bytes of `len` values.
    pub(crate) const fn bytes_of(len: usize) -> usize {
        len * size_of::<T>()
    }

    /// The address of the first value. Its provenance allows writes to all of them.
    pub(crate) fn as_ptr(&self) -> NonNull<T> {
        self.start
    }
}

#[cfg(system_memory)]
impl<T> NewTable<T> for SystemArray<T> {
    fn start(&self) -> NonNull<T> {
        self.as_ptr()
    }
}

impl<T> Deref for SystemArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the first `made` values are initialised (invariant 1).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.made) }
    }
}

impl<T> DerefMut for SystemArray<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.made) }
    }
}

impl<T> Drop for SystemArray<T> {
    fn drop(&mut self) {
        // SAFETY: initialised, owned by this value, dropped once. The block was allocated with this
        // layout.
        unsafe {
            ptr::drop_in_place(ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.made));
            let layout = Layout::array::<T>(self.len).unwrap_unchecked();
            if layout.size() > 0 {
                malloc::free(self.start.cast(), layout);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn every_value_is_made_once_and_dropped_once() {
        struct Counted<'c>(&'c Cell<usize>, usize);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let dropped = Cell::new(0);
        let values = SystemArray::new(5, |index| Counted(&dropped, index)).unwrap();
        assert!(values.iter().map(|value| value.1).eq(0..5));
        drop(values);
        assert_eq!(dropped.get(), 5);
    }

    #[test]
    fn a_constructor_that_panics_or_fails_leaves_no_value_behind() {
        let value = std::sync::Arc::new(());
        let result = std::panic::catch_unwind(|| {
            SystemArray::new(4, |index| {
                assert!(index < 2, "the third");
                value.clone()
            })
        });
        assert!(result.is_err());
        let refused = AllocError::new(ErrorKind::SourceRefused, 1);
        let third = |index| if index < 2 { Ok(value.clone()) } else { Err(refused) };
        assert!(SystemArray::try_new(4, third).is_err());
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_count_that_overflows_is_an_error() {
        let refused = SystemArray::<u64>::new(usize::MAX / 4, |_| 0).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::SizeOverflow);
    }
}
