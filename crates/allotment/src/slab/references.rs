//! Counted references to one object at a time, which is destroyed when the last one is released.
//!
//! # Invariants
//!
//! 1. While `count > 0`, `object` is the address of a live object. A thread that increments the
//!    count from a value above zero may use the object until it decrements the count.
//! 2. The thread that decrements the count to zero destroys the object. Only after that may another
//!    object be set.

use core::ptr::{self, NonNull};

use crate::sync::{AtomicPtr, AtomicUsize, Ordering, mutant, order};

/// The references to one object.
#[derive(Debug)]
pub struct References<T> {
    count: AtomicUsize,
    object: AtomicPtr<T>,
}

impl<T> References<T> {
    /// Makes a count of zero, without an object.
    #[must_use]
    pub fn none() -> Self {
        Self { count: AtomicUsize::new(0), object: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Sets the object, with one reference, which belongs to the caller. The count is zero, and no
    /// other thread sets an object at the same time.
    pub fn set(&self, object: NonNull<T>) {
        self.object.store(object.as_ptr(), Ordering::Relaxed);
        // Release pairs with the Acquire in `try_add`.
        self.count.store(1, order(Ordering::Release, "set: relaxed"));
    }

    /// The address of the object. The caller has a reference, or something that keeps one from
    /// being released.
    pub fn object(&self) -> *mut T {
        self.object.load(Ordering::Relaxed)
    }

    /// Adds a reference. The caller has one already, or something that keeps one from being
    /// released.
    pub fn add(&self) {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a reference to nothing");
    }

    /// Adds a reference, if there is an object. Returns the object.
    pub fn try_add(&self) -> Option<NonNull<T>> {
        let mut count = self.count.load(Ordering::Relaxed);
        while count > 0 || mutant("try add: up from zero") {
            // Acquire pairs with the Release in `set`.
            match self.count.compare_exchange_weak(
                count,
                count + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return NonNull::new(self.object()),
                Err(now) => count = now,
            }
        }
        None
    }

    /// Releases a reference. If it was the last one, calls `destroy` with the object. After that
    /// call another object may be set.
    pub fn release(&self, destroy: impl FnOnce(NonNull<T>)) {
        // Release, and Acquire for the last reference: every use of the object happens before its
        // destruction.
        if self.count.fetch_sub(1, order(Ordering::AcqRel, "release: relaxed")) != 1 {
            return;
        }
        let object = NonNull::new(self.object()).expect("an object with references");
        if !mutant("release: object forgotten late") {
            self.object.store(ptr::null_mut(), Ordering::Relaxed);
        }
        destroy(object);
        if mutant("release: object forgotten late") {
            self.object.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }
}
