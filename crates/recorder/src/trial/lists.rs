//! Lists of free blocks, by size. A block goes to the list of the thread that frees it.
//!
//! Invariant: a free block has at least 16 bytes, and belongs to the list or the batch that it is
//! linked in: a link to the next block and, in the first block of a batch, one to the next batch.

use super::chunks::{Bump, GRANULE, LOCK, NONE};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Sizes of lists: multiples of 16 up to 1 KiB, then four for each doubling.
const SMALL_CLASSES: usize = 64;
const CLASSES: usize = SMALL_CLASSES + 4 * 5;
/// A list with more bytes than this gives half of its blocks to other threads.
const MOST_BYTES: usize = 64 << 10;

/// Batches of free blocks that any thread may take, by size.
#[derive(Debug)]
pub struct Batches([AtomicPtr<FreeBlock>; CLASSES]);

impl Batches {
    /// No batches.
    pub const fn none() -> Self {
        Self([const { AtomicPtr::new(null_mut()) }; CLASSES])
    }
}

#[repr(C)]
#[derive(Debug)]
struct FreeBlock {
    next: *mut FreeBlock,
    next_batch: *mut FreeBlock,
}

#[derive(Debug, Clone, Copy)]
struct FreeBlocks {
    first: *mut FreeBlock,
    count: u32,
}

/// The lists of a thread and a route. Zeroed memory has none.
#[derive(Debug)]
pub struct Lists {
    free: [FreeBlocks; CLASSES],
    carved: [Bump; CLASSES],
}

fn class_of(size: usize) -> usize {
    let units = size.max(1).div_ceil(GRANULE);
    if units <= SMALL_CLASSES {
        return units - 1;
    }
    // Four classes for each doubling: the two bits below the highest one.
    let bits = (units - 1).ilog2();
    let quarter = ((units - 1) >> (bits - 2)) & 3;
    SMALL_CLASSES + (bits as usize - 6) * 4 + quarter
}

fn size_of_class(class: usize) -> usize {
    if class < SMALL_CLASSES {
        return (class + 1) * GRANULE;
    }
    let (doubling, quarter) = ((class - SMALL_CLASSES) / 4, (class - SMALL_CLASSES) % 4);
    ((5 + quarter) << (doubling + 4)) * GRANULE
}

impl Lists {
    /// A block of at least `size` bytes; null if there is no memory. `take_chunk` takes a chunk for
    /// blocks of a size.
    ///
    /// # Safety
    ///
    /// The lists are the calling thread's, and those of the route that the batches are of.
    #[inline(always)]
    pub unsafe fn allocate(
        &mut self,
        size: usize,
        batches: &Batches,
        take_chunk: impl FnOnce(u32) -> u32,
    ) -> *mut u8 {
        let class = class_of(size);
        let list = &mut self.free[class];
        let first = list.first;
        if first.is_null() {
            // SAFETY: as the caller promised.
            return unsafe { self.refill(class, batches, take_chunk) };
        }
        // SAFETY: a free block of this list, which holds a link (the invariant).
        list.first = unsafe { (*first).next };
        list.count -= 1;
        first.cast()
    }

    /// A block where the list has none: of a batch, or new.
    ///
    /// # Safety
    ///
    /// As for [`allocate`](Self::allocate).
    #[cold]
    unsafe fn refill(
        &mut self,
        class: usize,
        batches: &Batches,
        take_chunk: impl FnOnce(u32) -> u32,
    ) -> *mut u8 {
        let batches = &batches.0[class];
        if !batches.load(Ordering::Relaxed).is_null() {
            let lock = LOCK.take();
            let batch = batches.load(Ordering::Relaxed);
            if !batch.is_null() {
                // SAFETY: the first block of a batch (the invariant).
                batches.store(unsafe { (*batch).next_batch }, Ordering::Relaxed);
            }
            drop(lock);
            if !batch.is_null() {
                // SAFETY: the batch is this thread's now, with all of its blocks.
                unsafe {
                    let (mut count, mut last) = (0, (*batch).next);
                    while !last.is_null() {
                        count += 1;
                        last = (*last).next;
                    }
                    self.free[class] = FreeBlocks { first: (*batch).next, count };
                }
                return batch.cast();
            }
        }
        let size = size_of_class(class);
        if let Some(block) = self.carved[class].take(size) {
            return block;
        }
        match take_chunk(size as u32) {
            NONE => null_mut(),
            chunk => {
                self.carved[class] = Bump::of(chunk);
                self.carved[class].take(size).unwrap_or(null_mut())
            }
        }
    }

    /// Frees a block of `size` bytes.
    ///
    /// # Safety
    ///
    /// As for [`allocate`](Self::allocate). The block is of this route, free, and no one's.
    #[inline(always)]
    pub unsafe fn free(&mut self, block: *mut u8, size: u32, batches: &Batches) {
        let (block, class) = (block.cast::<FreeBlock>(), class_of(size as usize));
        let list = &mut self.free[class];
        // SAFETY: as the caller promised; the block has space for the link (the invariant).
        unsafe { (*block).next = list.first };
        list.first = block;
        list.count += 1;
        if list.count as usize * size as usize > MOST_BYTES {
            // SAFETY: as the caller promised.
            unsafe { self.give_half(class, batches) };
        }
    }

    /// Gives half of a list to all threads.
    ///
    /// # Safety
    ///
    /// As for [`allocate`](Self::allocate). The list has more than one block.
    #[cold]
    unsafe fn give_half(&mut self, class: usize, batches: &Batches) {
        let list = &mut self.free[class];
        let keep = list.count / 2;
        let mut last = list.first;
        // SAFETY: the list has `count` blocks, which are the thread's. The last one that is kept is
        // followed by the first one that is given.
        unsafe {
            for _ in 1..keep {
                last = (*last).next;
            }
            let batch = core::mem::replace(&mut (*last).next, null_mut());
            list.count = keep;
            let batches = &batches.0[class];
            let _lock = LOCK.take();
            (*batch).next_batch = batches.load(Ordering::Relaxed);
            // Release: the child of a fork in a signal handler finds the link.
            batches.store(batch, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::heap::LARGEST;
    use super::*;

    #[test]
    fn a_class_holds_every_size_up_to_its_own_and_wastes_at_most_a_fifth() {
        let mut last = 0;
        for size in 1..=LARGEST {
            let class = class_of(size);
            assert!(class == last || class == last + 1);
            last = class;
            let most = size_of_class(class);
            assert!(
                most >= size
                    && most.is_multiple_of(GRANULE)
                    && (most < size + GRANULE || most * 4 <= size * 5 + 64),
                "{size} {most}"
            );
        }
        assert_eq!(last, CLASSES - 1);
    }
}
