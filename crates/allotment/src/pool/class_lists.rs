//! Free blocks by size class, and the range that new blocks are carved from: the fast paths of
//! reaps and pools.
//!
//! ```text
//! lists[class].head ──▶ block ──▶ block ──▶ null    free blocks; each holds the next one's address
//!
//! │ carved: live or on a list │ pos … never handed out … end │
//! ```
//!
//! # Invariants
//!
//! 1. A block on the list of a class has [`size`](super::size_classes::SizeClass::size) bytes at
//!    [`align`](super::size_classes::SizeClass::align). It lies in memory that the lists' owner
//!    holds, nothing else uses it, and it is on the list once.
//! 2. The owner holds the memory `[pos, end)`, and no byte of it belongs to a block. `pos` and
//!    `end` are multiples of [`STEP`], or both null.
//! 3. `live >= 0` for each class: the number of blocks handed out. In checked mode it is 0 and the
//!    lists are empty, so that each call takes the slow path: a free that would make it negative is
//!    refused.
//! 4. One thread at a time has access, so `Cell` is enough.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::size_classes::{CLASSES, STEP, SizeClass};
use crate::memory::layout::align_up;

/// The contents of a free block: the address of the next one.
#[repr(transparent)]
struct FreeBlock {
    next: Cell<*mut FreeBlock>,
}

/// The free blocks of one class, and the number of blocks of the class that are handed out.
#[derive(Debug)]
#[repr(C)]
struct ClassList {
    head: Cell<*mut FreeBlock>,
    live: Cell<isize>,
}

impl ClassList {
    const fn empty() -> Self {
        Self { head: Cell::new(ptr::null_mut()), live: Cell::new(0) }
    }
}

impl core::fmt::Debug for FreeBlock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.next.fmt(f)
    }
}

/// Free blocks by class, and a range to carve more from. The lists come first, so that addressing
/// them needs no offset.
#[derive(Debug)]
#[repr(C)]
pub(super) struct ClassLists {
    lists: [ClassList; CLASSES],
    range: CarveRange,
}

/// The range `[pos, end)` that new blocks are carved from.
#[derive(Debug)]
pub(super) struct CarveRange {
    pos: Cell<*mut u8>,
    end: Cell<*mut u8>,
}

impl CarveRange {
    /// An empty range.
    pub(super) const fn empty() -> Self {
        Self { pos: Cell::new(ptr::null_mut()), end: Cell::new(ptr::null_mut()) }
    }

    pub(super) fn open(&self, start: *mut u8, end: *mut u8) {
        self.pos.set(start);
        self.end.set(end);
    }

    /// Takes the next `bytes` bytes, if the range has them.
    #[inline(always)]
    pub(super) fn advance(&self, bytes: usize) -> Option<NonNull<u8>> {
        let start = self.pos.get();
        if self.remaining() < bytes {
            return None;
        }
        self.pos.set(start.wrapping_add(bytes));
        NonNull::new(start)
    }

    #[inline(always)]
    fn remaining(&self) -> usize {
        self.end.get().addr() - self.pos.get().addr()
    }

    /// Returns the number of bytes up to the next multiple of an alignment.
    pub(super) fn gap(&self, align: usize) -> usize {
        let pos = self.pos.get().addr();
        align_up(pos, align) - pos
    }
}

impl ClassLists {
    pub(super) const fn new() -> Self {
        Self { lists: [const { ClassList::empty() }; CLASSES], range: CarveRange::empty() }
    }

    #[inline(always)]
    fn list(&self, class: SizeClass) -> &ClassList {
        // SAFETY: a class's index is less than `CLASSES`, the number of lists.
        unsafe { self.lists.get_unchecked(class.index()) }
    }

    /// Takes the block of this class that was freed last.
    #[inline(always)]
    pub(super) fn alloc(&self, class: SizeClass) -> Option<NonNull<u8>> {
        let list = self.list(class);
        let first = NonNull::new(list.head.get())?;
        // SAFETY: a free block, which holds the next one's address (invariant 1).
        list.head.set(unsafe { first.as_ref() }.next.get());
        list.live.set(list.live.get().wrapping_add(1));
        Some(first.cast())
    }

    /// Puts a block on the list of its class. Returns `false`, without doing so, in checked mode;
    /// the caller must then call [`undo_refused_free`](Self::undo_refused_free).
    ///
    /// # Safety
    /// The block is of this class, lies in the owner's memory, was handed out, and is not used
    /// again by its former user.
    #[inline(always)]
    pub(super) unsafe fn free(&self, class: SizeClass, block: NonNull<u8>) -> bool {
        let list = self.list(class);
        let live = list.live.get().wrapping_sub(1);
        list.live.set(live);
        if live < 0 {
            return false;
        }
        // SAFETY: passed on to the caller.
        unsafe { self.push(class, block) };
        true
    }

    /// Restores the number of live blocks after a refused [`free`](Self::free), if the layout's
    /// class is one that `free` was called for.
    pub(super) fn undo_refused_free(&self, layout: Layout) {
        if let Some(class) = SizeClass::of_common(layout) {
            self.list(class).live.set(0);
        }
    }

    /// # Safety
    /// The block is of this class, lies in the owner's memory, is not in use, and is on no list.
    #[inline(always)]
    unsafe fn push(&self, class: SizeClass, block: NonNull<u8>) {
        let list = self.list(class);
        let free_block = block.cast::<FreeBlock>();
        // SAFETY: a block is at least a step long and aligned to a step, and nothing else uses it.
        unsafe { free_block.write(FreeBlock { next: Cell::new(list.head.get()) }) };
        list.head.set(free_block.as_ptr());
    }

    /// Carves a new block of a class whose alignment is a step, if the range has that many bytes.
    #[inline(always)]
    pub(super) fn carve_common(&self, class: SizeClass) -> Option<NonNull<u8>> {
        let block = self.range.advance(class.size())?;
        let list = self.list(class);
        list.live.set(list.live.get() + 1);
        Some(block)
    }

    /// Carves a new block of this class, if the range has enough bytes.
    pub(super) fn carve(&self, class: SizeClass) -> Option<NonNull<u8>> {
        let gap = self.range.gap(class.align());
        if self.range.remaining() < gap + class.size() {
            return None;
        }
        if gap > 0 {
            let before = self.range.advance(gap)?;
            // SAFETY: the gap was part of the range, and of no block.
            unsafe { self.push_leftover(before.as_ptr(), gap) };
        }
        self.carve_common(class)
    }

    /// Puts leftover bytes on the lists, as blocks of the largest classes that fit.
    ///
    /// # Safety
    /// The owner holds the bytes, nothing uses them, and their start and number are multiples of a
    /// step.
    unsafe fn push_leftover(&self, start: *mut u8, bytes: usize) {
        let mut offset = 0;
        while let Some(class) = SizeClass::largest_within(bytes - offset) {
            // SAFETY: at least `class.size()` bytes are left from there on.
            unsafe { self.push(class, NonNull::new_unchecked(start.add(offset))) };
            offset += class.size();
        }
    }

    /// Carves from this range from now on. The rest of the previous range becomes free blocks of
    /// smaller classes.
    ///
    /// # Safety
    /// The owner holds the range, nothing uses it, and its ends are multiples of a step.
    pub(super) unsafe fn open(&self, start: *mut u8, end: *mut u8) {
        let (pos, remaining) = (self.range.pos.get(), self.range.remaining());
        self.range.open(start, end);
        if remaining > 0 {
            // SAFETY: these bytes belonged to no block (invariant 2).
            unsafe { self.push_leftover(pos, remaining) };
        }
    }

    /// Changes the class of a block in place, if it is the block that was carved last and the range
    /// has enough bytes. A block does not grow in place while the list of the larger class has a
    /// free block: otherwise work that repeats itself would carve a new block each time, and free
    /// blocks of the larger class would accumulate.
    ///
    /// # Safety
    /// The block is live, of class `from`, and the owner's. Both classes have alignment [`STEP`].
    pub(super) unsafe fn resize_last(
        &self,
        block: NonNull<u8>,
        from: SizeClass,
        to: SizeClass,
    ) -> bool {
        let (start, pos) = (block.addr().get(), self.range.pos.get());
        if start + from.size() != pos.addr()
            || self.range.end.get().addr() - start < to.size()
            || self.list(from).live.get() == 0
            || (to > from && !self.list(to).head.get().is_null())
        {
            return false;
        }
        // SAFETY: within the block and the range behind it.
        self.range.pos.set(unsafe { block.as_ptr().add(to.size()) });
        self.list(from).live.set(self.list(from).live.get() - 1);
        self.list(to).live.set(self.list(to).live.get() + 1);
        true
    }

    /// Forgets every block and the range. The owner may reuse all of that memory.
    pub(super) fn clear(&self) {
        for list in &self.lists {
            list.head.set(ptr::null_mut());
            list.live.set(0);
        }
        self.close();
    }

    /// Returns the number of blocks handed out and their bytes.
    pub(super) fn live(&self) -> (usize, usize) {
        SizeClass::all().fold((0, 0), |(blocks, bytes), class| {
            let live = self.list(class).live.get() as usize;
            (blocks + live, bytes + live * class.size())
        })
    }

    /// Returns the start of the range and its number of bytes.
    pub(super) fn range(&self) -> (usize, usize) {
        (self.range.pos.get().addr(), self.range.remaining())
    }

    /// Stops carving until the next range is opened.
    pub(super) fn close(&self) {
        self.range.open(ptr::null_mut(), ptr::null_mut());
    }

    /// Returns the free blocks of a class.
    pub(super) fn free_blocks(&self, class: SizeClass) -> impl Iterator<Item = NonNull<u8>> {
        let mut next = self.list(class).head.get();
        core::iter::from_fn(move || {
            let block = NonNull::new(next)?;
            // SAFETY: a free block, which holds the next one's address (invariant 1).
            next = unsafe { block.as_ref() }.next.get();
            Some(block.cast())
        })
    }

    /// Removes from a class's list the free blocks for which `keep` returns `false`. The others
    /// keep their order.
    ///
    /// # Safety
    /// The removed blocks are not handed out again.
    pub(super) unsafe fn retain(&self, class: SizeClass, keep: impl Fn(NonNull<u8>) -> bool) {
        let mut previous = &self.list(class).head;
        while let Some(block) = NonNull::new(previous.get()) {
            // SAFETY: a free block, which holds the next one's address (invariant 1); only this
            // thread writes it.
            let next = unsafe { &(*block.as_ptr()).next };
            if keep(block.cast()) {
                previous = next;
            } else {
                previous.set(next.get());
            }
        }
    }
}

const _: () = assert!(size_of::<FreeBlock>() <= STEP);
