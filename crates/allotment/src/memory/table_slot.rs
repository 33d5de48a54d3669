//! A slot for a table that is made when a thread first needs it, and that then stays.
//!
//! Several threads may make the table at the same time. One of them installs its table, and the
//! others free theirs. No thread waits for another, so a fork leaves nothing half done.
//!
//! # Invariant
//!
//! A slot is null, or has its placeholder, or has a table. Once it has a table, it does not change.

use core::mem;
use core::ptr::{self, NonNull};

#[cfg(not(loom))]
use super::layout::checked_align_up;
#[cfg(not(loom))]
use super::os;
#[cfg(not(loom))]
use crate::error::{AllocError, ErrorKind};
use crate::sync::{AtomicPtr, Ordering, mutant, order};

/// A table that is in no slot yet. Dropping it frees it.
pub trait NewTable<T> {
    /// The table's first entry.
    fn start(&self) -> NonNull<T>;
}

/// The slot of one table, by the address of the table's first entry.
#[derive(Debug)]
#[repr(transparent)]
pub struct TableSlot<T>(AtomicPtr<T>);

impl<T> TableSlot<T> {
    /// A slot without a table.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn empty() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// As above, for loom, whose atomics can't be made in a constant.
    #[cfg(loom)]
    #[must_use]
    pub fn empty() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The start of the table. If there is none: null, or the placeholder.
    #[inline(always)]
    pub fn get(&self) -> *mut T {
        // Acquire pairs with the Release in `replace_absent`: the table was made before.
        self.0.load(Ordering::Acquire)
    }

    /// As [`get`](Self::get), for a caller that knows that there is a table, and that is ordered
    /// after the making of the table by other means.
    #[inline(always)]
    pub fn get_installed(&self) -> *mut T {
        self.0.load(Ordering::Relaxed)
    }

    /// The start of the table, which `make` makes if there is none.
    ///
    /// # Errors
    /// That of `make`.
    pub fn get_or_install<N: NewTable<T>, E>(
        &self,
        make: impl FnOnce() -> Result<N, E>,
    ) -> Result<NonNull<T>, E> {
        self.get_or_replace(ptr::null_mut(), make)
    }

    /// As [`get_or_install`](Self::get_or_install), for a slot that may have a placeholder.
    ///
    /// # Errors
    /// That of `make`.
    pub fn get_or_replace<N: NewTable<T>, E>(
        &self,
        placeholder: *mut T,
        make: impl FnOnce() -> Result<N, E>,
    ) -> Result<NonNull<T>, E> {
        match NonNull::new(self.get()) {
            Some(table) if table.as_ptr() != placeholder => Ok(table),
            _ => make().map(|made| self.replace_absent(placeholder, made)),
        }
    }

    /// Installs a table if there is none. Returns the start of the table that is installed then.
    pub fn install(&self, made: impl NewTable<T>) -> NonNull<T> {
        self.replace_absent(ptr::null_mut(), made)
    }

    fn replace_absent(&self, placeholder: *mut T, made: impl NewTable<T>) -> NonNull<T> {
        let start = made.start();
        let mut present = self.get();
        while present.is_null() || present == placeholder || mutant("install: table replaced") {
            // Release pairs with the Acquire in `get`. Acquire on failure, for the other thread's
            // table.
            match self.0.compare_exchange_weak(
                present,
                start.as_ptr(),
                order(Ordering::Release, "install: relaxed"),
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    mem::forget(made);
                    return start;
                }
                Err(now) => present = now,
            }
        }
        // Another thread has installed its table; this one is freed.
        NonNull::new(present).expect("a table")
    }

    /// Sets the placeholder, if there is neither one nor a table.
    pub fn set_placeholder(&self, placeholder: *mut T) {
        if self.0.load(Ordering::Relaxed).is_null() {
            // Release pairs with the Acquire in `get`.
            let null = ptr::null_mut();
            let _ =
                self.0.compare_exchange(null, placeholder, Ordering::Release, Ordering::Relaxed);
        }
    }
}

/// A table in a mapping of its own, all bytes zero.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct MappedTable<T> {
    start: NonNull<T>,
    size: usize,
}

#[cfg(not(loom))]
impl<T> MappedTable<T> {
    /// Maps a table of `len` entries.
    pub(crate) fn new(len: usize) -> Result<Self, AllocError> {
        let bytes = size_of::<T>().checked_mul(len);
        let size = bytes.and_then(|bytes| checked_align_up(bytes, os::page_size()));
        let size = size.ok_or(AllocError::new(ErrorKind::SizeOverflow, len))?;
        Ok(Self { start: os::map(size, align_of::<T>())?.cast(), size })
    }
}

#[cfg(not(loom))]
impl<T> NewTable<T> for MappedTable<T> {
    fn start(&self) -> NonNull<T> {
        self.start
    }
}

#[cfg(not(loom))]
impl<T> Drop for MappedTable<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; it was in no slot, so no other thread has seen it.
        let _ = unsafe { os::unmap(self.start.cast(), self.size) };
    }
}
