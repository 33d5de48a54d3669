//! A global allocator that counts the bytes in use.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Passes each call on, and counts the bytes that the program asked for and has not freed.
///
/// A block that a pool takes from `G` counts once, because pools and `G` get their memory from the
/// system and not from this allocator.
#[derive(Debug)]
pub struct Counting<G> {
    inner: G,
    in_use: AtomicUsize,
}

impl<G> Counting<G> {
    /// Counts the bytes of an allocator.
    pub const fn new(inner: G) -> Self {
        Self { inner, in_use: AtomicUsize::new(0) }
    }

    /// Returns the bytes in use, as the program asked for them.
    pub fn bytes_in_use(&self) -> usize {
        // Relaxed: a statistic. The reader has joined the tasks that it wants counted.
        self.in_use.load(Ordering::Relaxed)
    }

    fn count(&self, block: *mut u8, added: usize) -> *mut u8 {
        if !block.is_null() {
            self.in_use.fetch_add(added, Ordering::Relaxed);
        }
        block
    }
}

// SAFETY: every call goes to an allocator that keeps the contract, with the caller's arguments.
unsafe impl<G: GlobalAlloc> GlobalAlloc for Counting<G> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on to the caller.
        self.count(unsafe { self.inner.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on to the caller.
        self.count(unsafe { self.inner.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.in_use.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: passed on to the caller.
        unsafe { self.inner.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: passed on to the caller.
        let moved = unsafe { self.inner.realloc(block, old, new_size) };
        if !moved.is_null() {
            self.in_use.fetch_sub(old.size(), Ordering::Relaxed);
        }
        self.count(moved, new_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    #[test]
    fn bytes_in_use_are_those_asked_for() {
        let counting = Counting::new(System);
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        // SAFETY: blocks of this allocator, with their layouts, each freed once.
        unsafe {
            let first = counting.alloc(layout(100));
            let second = counting.alloc_zeroed(layout(50));
            assert_eq!(counting.bytes_in_use(), 150);
            let first = counting.realloc(first, layout(100), 30);
            assert_eq!(counting.bytes_in_use(), 80);
            // A call that fails leaves the block, and its count.
            let huge = isize::MAX as usize - 64;
            assert!(counting.realloc(first, layout(30), huge).is_null());
            assert!(counting.alloc(layout(huge)).is_null());
            assert_eq!(counting.bytes_in_use(), 80);
            counting.dealloc(first, layout(30));
            counting.dealloc(second, layout(50));
        }
        assert_eq!(counting.bytes_in_use(), 0);
    }
}
