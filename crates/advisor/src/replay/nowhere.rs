//! What some groups cost at the C library's: their blocks come from nowhere, all others from malloc. What that saves against malloc
//! for all is the most that any allocator can save there.
//!
//! # Invariant
//!
//! A block from nowhere is a thread's scratch, whose address is compared and never written to through a block: it may be another
//! thread's, and gone. Which blocks are from nowhere is said by their forms alone.

use super::memory::{Calls, Form, Malloc, Memory, Nothing, Row};
use bench::peers::Global;

/// A malloc for all but some.
#[derive(Debug)]
pub struct Without<G>(Malloc<G>);

impl<G> Without<G> {
    pub fn new() -> Self {
        Self(Malloc::new())
    }
}

impl<G: Global> Row for Without<G> {
    type Memory<'r> = Partly<G>;

    fn within<R>(&self, thread: usize, leaves: bool, work: impl FnOnce(&mut Partly<G>) -> R) -> R {
        self.0.within(thread, leaves, |calls| {
            let malloc = std::mem::replace(calls, Calls::new());
            work(&mut Partly { malloc, nothing: Nothing::new() })
        })
    }
}

/// One thread's.
#[derive(Debug)]
pub struct Partly<G> {
    malloc: Calls<G>,
    nothing: Nothing,
}

impl<G: Global> Memory for Partly<G> {
    #[inline(always)]
    fn alloc(&mut self, form: &Form) -> *mut u8 {
        if form.way == 0 { self.malloc.alloc(form) } else { self.nothing.place() }
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: *mut u8, form: &Form) {
        if form.way == 0 {
            // SAFETY: a block of malloc's: the caller's promise, and the invariant.
            unsafe { self.malloc.free(block, form) };
        }
    }

    #[inline(always)]
    unsafe fn resize(&mut self, block: *mut u8, old: &Form, new: &Form) -> *mut u8 {
        match (old.way, new.way) {
            // SAFETY: a block of malloc's: the caller's promise, and the invariant.
            (0, 0) => unsafe { self.malloc.resize(block, old, new) },
            (0, _) => {
                // SAFETY: as above.
                unsafe { self.malloc.free(block, old) };
                self.nothing.place()
            }
            (_, 0) => {
                let fresh = self.malloc.alloc(new);
                // SAFETY: a fresh block, as long as its form says.
                unsafe { self.touch(fresh, 0, old.layout.size().min(new.layout.size())) };
                fresh
            }
            _ => self.nothing.place(),
        }
    }

    #[inline(always)]
    unsafe fn touch(&mut self, block: *mut u8, from: usize, to: usize) {
        if block == self.nothing.place() {
            self.nothing.write(to - from);
        } else {
            // SAFETY: `alloc` and `resize` return malloc's blocks or this thread's scratch, so it is malloc's.
            unsafe { self.malloc.touch(block, from, to) };
        }
    }
}
