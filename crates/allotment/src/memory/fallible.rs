//! A box and a shared value whose creation is refused without memory, instead of ending
//! the process.
//!
//! # Invariants
//!
//! 1. A `Shared` has the address of a living [`Counted`], allocated with its own layout. `count` is
//!    the number of its `Shared`s, and the last of them frees it.

use alloc::boxed::Box;
use core::alloc::Layout;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::error::{AllocError, ErrorKind};
use crate::standard_error;

/// Uninitialised memory of the global allocator for a value, which is not zero-sized.
fn allocate<T>() -> Result<NonNull<T>, AllocError> {
    let layout = Layout::new::<T>();
    assert!(layout.size() > 0);
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { alloc::alloc::alloc(layout) }.cast::<T>())
        .ok_or(AllocError::new(ErrorKind::SourceRefused, layout.size()))
}

/// Puts a value into a box. Without memory, the value is dropped.
pub(crate) fn try_box<T>(value: T) -> Result<Box<T>, AllocError> {
    let memory = allocate::<T>()?;
    // SAFETY: fresh memory of the global allocator with the value's layout, as a box has it.
    unsafe {
        memory.write(value);
        Ok(Box::from_raw(memory.as_ptr()))
    }
}

/// A value and the number of its owners.
pub(crate) struct Counted<T: ?Sized> {
    count: AtomicUsize,
    value: T,
}

/// A value with a count of its owners, as an [`Arc`](std::sync::Arc).
pub(crate) struct Shared<T: ?Sized>(NonNull<Counted<T>>);

// SAFETY: as for an `Arc`: any owner's thread may use the value, and drop it.
unsafe impl<T: ?Sized + Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Shares a value. Without memory, the value is dropped.
    pub(crate) fn try_new(value: T) -> Result<Self, AllocError> {
        let memory = allocate::<Counted<T>>()?;
        // SAFETY: fresh memory of this layout.
        unsafe { memory.write(Counted { count: AtomicUsize::new(1), value }) };
        Ok(Self(memory))
    }

    /// Ends this owner. Returns the value if it was the last one.
    pub(crate) fn into_inner(self) -> Option<T> {
        let this = ManuallyDrop::new(self);
        if !this.leave() {
            return None;
        }
        // SAFETY: no owner is left, so the value is moved out once, and the memory freed once (1).
        unsafe {
            let value = core::ptr::read(&raw const (*this.0.as_ptr()).value);
            alloc::alloc::dealloc(this.0.as_ptr().cast(), Layout::new::<Counted<T>>());
            Some(value)
        }
    }

    /// Changes the type of the pointer to the value, as `&T` to `&dyn Trait`.
    ///
    /// # Safety
    /// `unsize` returns a pointer to the same value.
    pub(crate) unsafe fn unsize<U: ?Sized>(
        self,
        unsize: impl FnOnce(*mut Counted<T>) -> *mut Counted<U>,
    ) -> Shared<U> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the caller guarantees the address, which is not null.
        Shared(unsafe { NonNull::new_unchecked(unsize(this.0.as_ptr())) })
    }
}

impl<T: ?Sized> Shared<T> {
    /// Whether both are owners of the same value.
    pub(crate) fn ptr_eq(&self, other: &Self) -> bool {
        core::ptr::addr_eq(self.0.as_ptr(), other.0.as_ptr())
    }

    /// Whether there is no other owner. Another one can come only by a clone of this one.
    #[cfg(system_memory)]
    pub(crate) fn has_one_owner(&self) -> bool {
        // Acquire pairs with the Release in `leave`: what the others did comes before.
        self.counted().count.load(Ordering::Acquire) == 1
    }

    fn counted(&self) -> &Counted<T> {
        // SAFETY: it lives as long as an owner does (1).
        unsafe { self.0.as_ref() }
    }

    /// Ends an owner's part of the count. Returns whether it was the last one.
    fn leave(&self) -> bool {
        // Release pairs with the fence: what each owner did comes before the value's end.
        if self.counted().count.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        fence(Ordering::Acquire);
        true
    }
}

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        // Relaxed: this owner keeps the value meanwhile. Clones that are forgotten could make the
        // count overflow, so half of the range ends the process, as for an `Arc`.
        if self.counted().count.fetch_add(1, Ordering::Relaxed) > isize::MAX as usize {
            standard_error::abort_with(format_args!("allotment: too many owners of one value\n"));
        }
        Self(self.0)
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T: ?Sized> Drop for Shared<T> {
    fn drop(&mut self) {
        if self.leave() {
            // SAFETY: no owner is left, so it is dropped and freed once, with its layout (1).
            unsafe {
                let layout = Layout::for_value(self.0.as_ref());
                core::ptr::drop_in_place(self.0.as_ptr());
                alloc::alloc::dealloc(self.0.as_ptr().cast(), layout);
            }
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicUsize as Counter;

    use super::*;

    #[test]
    fn a_shared_value_ends_with_its_last_owner_on_whichever_thread() {
        struct Ends<'a>(&'a Counter);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let ends = Counter::new(0);
        let first = Shared::try_new(Ends(&ends)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let other = first.clone();
                assert!(other.ptr_eq(&first));
                scope.spawn(move || drop(other));
            }
        });
        assert_eq!(ends.load(Ordering::Relaxed), 0);
        let second = first.clone();
        assert!(first.into_inner().is_none());
        let value = second.into_inner().expect("the last owner");
        assert_eq!(ends.load(Ordering::Relaxed), 0);
        drop(value);
        assert_eq!(ends.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_box_has_its_value() {
        assert_eq!(*try_box([7u64; 9]).unwrap(), [7; 9]);
    }
}
