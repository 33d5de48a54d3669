//! The source of blocks of a replayed thread: a malloc, or no allocator, to measure the replay
//! alone.
//!
//! # Invariants
//!
//! 1. A block that `alloc` or `resize` returned overlaps no other block and fits the layout of its
//!    shape, until it is freed or resized. [`NullMemory`]'s blocks do not, and are written only by
//!    [`NullMemory::touch`].
//! 2. The callers promise that a block is freed to the memory that it came from, with its own
//!    shape.

use bench::peers::Global;
use std::alloc::{Layout, handle_alloc_error};
use std::marker::PhantomData;

/// A recorded shape as the step loop needs it: with a layout, and a route to an allocator.
#[derive(Debug, Clone, Copy)]
pub struct RoutedShape {
    pub layout: Layout,
    /// The number of the plan's route that serves it, from 1; 0 for malloc.
    pub route: u32,
    pub zeroed: bool,
    /// Another thread frees it.
    pub crosses: bool,
}

/// The value that is written to fresh bytes.
const WRITTEN: u8 = 0xa7;

/// One thread's memory.
pub trait ThreadMemory {
    /// Allocates a block. Aborts if memory runs out.
    fn alloc(&mut self, shape: &RoutedShape) -> *mut u8;

    /// Frees a block.
    ///
    /// # Safety
    /// The block came from memory of this row, is live and has this shape. Unless the shape
    /// crosses, it came from this thread's memory.
    unsafe fn free(&mut self, block: *mut u8, shape: &RoutedShape);

    /// Gives a block another shape. Its bytes are kept up to the smaller of the two sizes.
    ///
    /// # Safety
    /// As for [`ThreadMemory::free`], of the old shape.
    unsafe fn resize(&mut self, block: *mut u8, old: &RoutedShape, new: &RoutedShape) -> *mut u8;

    /// Called when no block of the group is live on this thread.
    fn reset(&mut self, _group: u32) {}

    /// Writes to the bytes `from..to` of a block.
    ///
    /// # Safety
    /// The block came from this memory, is live, and has at least `to` bytes.
    #[inline(always)]
    unsafe fn touch(&mut self, block: *mut u8, from: usize, to: usize) {
        // SAFETY: the bytes are the block's.
        unsafe { block.add(from).write_bytes(WRITTEN, to - from) };
    }
}

/// Creates the memory of each thread, for one row of the table.
pub trait MemoryFactory: Sync {
    /// The memory of a thread.
    type Memory<'r>: ThreadMemory
    where
        Self: 'r;

    /// Runs a thread's work with memory of its own. `leaves`: the memory is not freed at the end,
    /// because some of its blocks are live or the process ends.
    fn within<R>(
        &self,
        thread: usize,
        leaves: bool,
        work: impl FnOnce(&mut Self::Memory<'_>) -> R,
    ) -> R;
}

/// `null`: no allocator. What the program would write to its blocks is written to a few scratch
/// pages.
#[derive(Debug)]
pub struct NullFactory;

/// Bytes of the scratch pages.
const SCRATCH: usize = 16 << 10;

impl MemoryFactory for NullFactory {
    type Memory<'r> = NullMemory;

    fn within<R>(&self, _: usize, _: bool, work: impl FnOnce(&mut NullMemory) -> R) -> R {
        work(&mut NullMemory::new())
    }
}

/// Scratch pages whose address stands for every block.
#[derive(Debug)]
pub struct NullMemory([u8; SCRATCH]);

impl NullMemory {
    pub fn new() -> Self {
        Self([1; SCRATCH])
    }

    /// The address that stands for every block.
    #[inline(always)]
    pub fn scratch(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    /// Writes `bytes` bytes.
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

impl ThreadMemory for NullMemory {
    #[inline(always)]
    fn alloc(&mut self, _: &RoutedShape) -> *mut u8 {
        self.scratch()
    }

    #[inline(always)]
    unsafe fn free(&mut self, _: *mut u8, _: &RoutedShape) {}

    #[inline(always)]
    unsafe fn resize(&mut self, block: *mut u8, _: &RoutedShape, _: &RoutedShape) -> *mut u8 {
        block
    }

    #[inline(always)]
    unsafe fn touch(&mut self, _: *mut u8, from: usize, to: usize) {
        self.write(to - from);
    }
}

/// Creates a thread's memory from a malloc, which is called as by a program that has it as its
/// global allocator.
#[derive(Debug)]
pub struct MallocFactory<G>(PhantomData<fn() -> G>);

impl<G> MallocFactory<G> {
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<G: Global> MemoryFactory for MallocFactory<G> {
    type Memory<'r> = MallocCalls<G>;

    fn within<R>(&self, _: usize, leaves: bool, work: impl FnOnce(&mut MallocCalls<G>) -> R) -> R {
        let entered = G::start();
        let result = entered.request(|| work(&mut MallocCalls::new()));
        if leaves {
            std::mem::forget(entered);
        }
        result
    }
}

/// A thread's memory from a malloc.
#[derive(Debug)]
pub struct MallocCalls<G>(PhantomData<fn() -> G>);

impl<G> MallocCalls<G> {
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<G: Global> ThreadMemory for MallocCalls<G> {
    #[inline(always)]
    fn alloc(&mut self, shape: &RoutedShape) -> *mut u8 {
        // SAFETY: no layout has size zero (`RecordedShape::size`).
        let block = unsafe {
            if shape.zeroed {
                (G::CALLS.alloc_zeroed)(shape.layout)
            } else {
                (G::CALLS.alloc)(shape.layout)
            }
        };
        if block.is_null() {
            handle_alloc_error(shape.layout);
        }
        block
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: *mut u8, shape: &RoutedShape) {
        // SAFETY: the caller's promise.
        unsafe { (G::CALLS.dealloc)(block, shape.layout) };
    }

    #[inline(always)]
    unsafe fn resize(&mut self, block: *mut u8, old: &RoutedShape, new: &RoutedShape) -> *mut u8 {
        // The alignment of `realloc` in C. Up to this, the two alignments may differ.
        const PLAIN: usize = 16;
        if old.layout.align() > PLAIN || new.layout.align() > PLAIN {
            // SAFETY: the caller's promise.
            return unsafe { by_copy(self, block, old, new) };
        }
        let align = old.layout.align().min(new.layout.align());
        // SAFETY: both alignments are powers of two, and a size that is valid with the larger one
        // is valid with the smaller one. The block is the caller's, and its size isn't zero. Every
        // block of its size has this alignment.
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

/// Resizes by allocating a new block, copying, and freeing the old one.
///
/// # Safety
/// As for [`ThreadMemory::resize`].
pub unsafe fn by_copy<M: ThreadMemory>(
    memory: &mut M,
    block: *mut u8,
    old: &RoutedShape,
    new: &RoutedShape,
) -> *mut u8 {
    let resized = memory.alloc(new);
    // SAFETY: two live blocks of at least these sizes (invariant 1); the old one is freed once.
    unsafe {
        resized.copy_from_nonoverlapping(block, old.layout.size().min(new.layout.size()));
        memory.free(block, old);
    }
    resized
}
