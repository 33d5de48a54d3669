//! Where a replayed thread gets its blocks from: nowhere, for the harness alone, or from a malloc.
//!
//! # Invariants
//!
//! 1. A block that `alloc` or `resize` returned is fresh, aligned as its shape's layout asks and at least as long, until it is freed
//!    or resized; except [`Nothing`]'s, which is never written to but by [`Nothing::touch`].
//! 2. A block goes back to the memory that it came from, with the shape that it has: the promise of the callers.

use bench::peers::Global;
use std::alloc::{Layout, handle_alloc_error};
use std::marker::PhantomData;

/// What a block is like, as the loop needs it.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    pub layout: Layout,
    /// Where a plan puts it; 0 is malloc.
    pub way: u32,
    pub zeroed: bool,
    /// Another thread frees it.
    pub crosses: bool,
}

/// What fresh bytes are overwritten with.
const WRITTEN: u8 = 0xa7;

/// One thread's memory.
pub trait Memory {
    /// A block. Aborts when there is none.
    fn alloc(&mut self, form: &Form) -> *mut u8;

    /// Frees a block.
    ///
    /// # Safety
    /// The block came from memory of this row, is live and has this form; if the form doesn't cross, it came from this very thread's.
    unsafe fn free(&mut self, block: *mut u8, form: &Form);

    /// Gives a block another form; its bytes stay as far as there is room for them.
    ///
    /// # Safety
    /// As for [`Memory::free`], of the old form.
    unsafe fn resize(&mut self, block: *mut u8, old: &Form, new: &Form) -> *mut u8;

    /// Nothing of the group is live on this thread.
    fn reset(&mut self, _group: u32) {}

    /// Writes to the bytes of a block from one place to another.
    ///
    /// # Safety
    /// The block came from this memory, is live, and as long as `to`.
    #[inline(always)]
    unsafe fn touch(&mut self, block: *mut u8, from: usize, to: usize) {
        // SAFETY: the bytes are the block's.
        unsafe { block.add(from).write_bytes(WRITTEN, to - from) };
    }
}

/// A row of the tables: makes each thread's memory.
pub trait Row: Sync {
    /// A thread's memory.
    type Memory<'r>: Memory
    where
        Self: 'r;

    /// Does a thread's work with memory of its own. `leaves`: at the end some of its own blocks are live, or the process ends.
    fn within<R>(
        &self,
        thread: usize,
        leaves: bool,
        work: impl FnOnce(&mut Self::Memory<'_>) -> R,
    ) -> R;
}

/// `null`: no allocator at all. What a block's owner would write goes to a few pages that are always the same.
#[derive(Debug)]
pub struct Null;

/// Bytes that `null` writes to.
const SCRATCH: usize = 16 << 10;

impl Row for Null {
    type Memory<'r> = Nothing;

    fn within<R>(&self, _: usize, _: bool, work: impl FnOnce(&mut Nothing) -> R) -> R {
        work(&mut Nothing::new())
    }
}

/// No memory.
#[derive(Debug)]
pub struct Nothing([u8; SCRATCH]);

impl Nothing {
    pub fn new() -> Self {
        Self([1; SCRATCH])
    }

    /// What stands for every block.
    #[inline(always)]
    pub fn place(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    /// Writes as much as a block's owner would.
    #[inline(always)]
    pub fn write(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            let part = left.min(SCRATCH);
            std::hint::black_box(&mut self.0[..part]).fill(WRITTEN);
            left -= part;
        }
    }
}

impl Memory for Nothing {
    #[inline(always)]
    fn alloc(&mut self, _: &Form) -> *mut u8 {
        self.place()
    }

    #[inline(always)]
    unsafe fn free(&mut self, _: *mut u8, _: &Form) {}

    #[inline(always)]
    unsafe fn resize(&mut self, block: *mut u8, _: &Form, _: &Form) -> *mut u8 {
        block
    }

    #[inline(always)]
    unsafe fn touch(&mut self, _: *mut u8, from: usize, to: usize) {
        self.write(to - from);
    }
}

/// A malloc, by the calls that a program makes which has it as its global allocator.
#[derive(Debug)]
pub struct Malloc<G>(PhantomData<fn() -> G>);

impl<G> Malloc<G> {
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<G: Global> Row for Malloc<G> {
    type Memory<'r> = Calls<G>;

    fn within<R>(&self, _: usize, leaves: bool, work: impl FnOnce(&mut Calls<G>) -> R) -> R {
        let entered = G::start();
        let result = entered.request(|| work(&mut Calls::new()));
        if leaves {
            std::mem::forget(entered);
        }
        result
    }
}

/// A malloc's calls.
#[derive(Debug)]
pub struct Calls<G>(PhantomData<fn() -> G>);

impl<G> Calls<G> {
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<G: Global> Memory for Calls<G> {
    #[inline(always)]
    fn alloc(&mut self, form: &Form) -> *mut u8 {
        // SAFETY: no layout has size zero (`Shape::size`).
        let block = unsafe {
            if form.zeroed {
                (G::CALLS.alloc_zeroed)(form.layout)
            } else {
                (G::CALLS.alloc)(form.layout)
            }
        };
        if block.is_null() {
            handle_alloc_error(form.layout);
        }
        block
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: *mut u8, form: &Form) {
        // SAFETY: the caller's promise.
        unsafe { (G::CALLS.dealloc)(block, form.layout) };
    }

    #[inline(always)]
    unsafe fn resize(&mut self, block: *mut u8, old: &Form, new: &Form) -> *mut u8 {
        // What `realloc` in C aligns to anyhow: then the alignments of the two may differ.
        const PLAIN: usize = 16;
        if old.layout.align() > PLAIN || new.layout.align() > PLAIN {
            // SAFETY: the caller's promise.
            return unsafe { by_copy(self, block, old, new) };
        }
        let align = old.layout.align().min(new.layout.align());
        // SAFETY: both are powers of two, and the smaller of two alignments suits the size that the larger suited; the block is the
        // caller's, and the size isn't zero. The alignment is one that every block of its size has.
        let resized = unsafe {
            let layout = Layout::from_size_align_unchecked(old.layout.size(), align);
            (G::CALLS.realloc)(block, layout, new.layout.size())
        };
        if resized.is_null() {
            handle_alloc_error(new.layout);
        }
        resized
    }
}

/// Resizes by a new block.
///
/// # Safety
/// As for [`Memory::resize`].
pub unsafe fn by_copy<M: Memory>(
    memory: &mut M,
    block: *mut u8,
    old: &Form,
    new: &Form,
) -> *mut u8 {
    let resized = memory.alloc(new);
    // SAFETY: two live blocks of at least these sizes (invariant 1); the old one is freed once.
    unsafe {
        resized.copy_from_nonoverlapping(block, old.layout.size().min(new.layout.size()));
        memory.free(block, old);
    }
    resized
}
