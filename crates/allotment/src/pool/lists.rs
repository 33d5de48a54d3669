//! Free blocks by size class, and the range that new blocks are carved from: the fast paths of
//! reaps and pools.
//!
//! ```text
//! bins[class].head ──▶ block ──▶ block ──▶ null     free blocks; each holds the next one's address
//!
//! │ carved: live or on a list │ pos … never handed out … end │
//! ```
//!
//! # Invariants
//!
//! 1. A block on the list of a class has [`size_of`](super::classes::size_of) bytes at
//!    [`align_of`](super::classes::align_of). It lies in memory that the lists' owner holds,
//!    nothing else uses it, and it is on the list once.
//! 2. The owner holds the memory `[pos, end)`, and no byte of it belongs to a block. `pos` and
//!    `end` are multiples of [`STEP`], or both null.
//! 3. `live >= 0` for each class: the number of blocks handed out. In checked lists it is 0 and the
//!    lists are empty, so that each call takes the slow path: a free that would make it negative is
//!    refused.
//! 4. One thread at a time has access, so `Cell` is enough.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::classes::{CLASSES, Class, STEP, align_of, class_within, common_class_of, size_of};
use crate::memory::layout::align_up;

/// The contents of a free block: the address of the next one.
#[repr(transparent)]
struct Link(Cell<*mut Link>);

#[derive(Debug)]
#[repr(C)]
struct Bin {
    head: Cell<*mut Link>,
    live: Cell<isize>,
}

impl core::fmt::Debug for Link {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// Free blocks by class, and a range to carve more from. The bins come first, so that addressing
/// them needs no offset.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Lists {
    bins: [Bin; CLASSES],
    range: Range,
}

/// The range `[pos, end)` that new blocks are carved from.
#[derive(Debug)]
pub(super) struct Range {
    pos: Cell<*mut u8>,
    end: Cell<*mut u8>,
}

impl Range {
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
        if self.left() < bytes {
            return None;
        }
        self.pos.set(start.wrapping_add(bytes));
        NonNull::new(start)
    }

    #[inline(always)]
    fn left(&self) -> usize {
        self.end.get().addr() - self.pos.get().addr()
    }

    /// Returns the number of bytes up to the next multiple of an alignment.
    pub(super) fn gap(&self, align: usize) -> usize {
        let pos = self.pos.get().addr();
        align_up(pos, align) - pos
    }
}

impl Lists {
    pub(super) const fn new() -> Self {
        Self {
            bins: [const { Bin { head: Cell::new(ptr::null_mut()), live: Cell::new(0) } }; CLASSES],
            range: Range::empty(),
        }
    }

    #[inline(always)]
    fn bin(&self, class: Class) -> &Bin {
        // SAFETY: a class's index is less than `CLASSES`, the number of bins.
        unsafe { self.bins.get_unchecked(class.index()) }
    }

    /// Takes the block of this class that was freed last.
    #[inline(always)]
    pub(super) fn take(&self, class: Class) -> Option<NonNull<u8>> {
        let bin = self.bin(class);
        let first = NonNull::new(bin.head.get())?;
        // SAFETY: a free block, which holds a link (invariant 1).
        bin.head.set(unsafe { first.as_ref() }.0.get());
        bin.live.set(bin.live.get().wrapping_add(1));
        Some(first.cast())
    }

    /// Puts a block on the list of its class. Returns `false`, without doing so, if the lists are
    /// checked.
    ///
    /// # Safety
    /// The block is of this class, lies in the owner's memory, was handed out, and is not used
    /// again by its former user.
    #[inline(always)]
    pub(super) unsafe fn put(&self, class: Class, block: NonNull<u8>) -> bool {
        let bin = self.bin(class);
        let live = bin.live.get().wrapping_sub(1);
        bin.live.set(live);
        if live < 0 {
            return false;
        }
        // SAFETY: passed on to the caller.
        unsafe { self.push(class, block) };
        true
    }

    /// Undoes a refused [`put`](Self::put), if the layout's class has a list.
    pub(super) fn unput(&self, layout: Layout) {
        if let Some(class) = common_class_of(layout) {
            self.bin(class).live.set(0);
        }
    }

    /// # Safety
    /// The block is of this class, lies in the owner's memory, is not in use, and is on no list.
    #[inline(always)]
    unsafe fn push(&self, class: Class, block: NonNull<u8>) {
        let bin = self.bin(class);
        let link = block.cast::<Link>();
        // SAFETY: a block is at least a step long and aligned to a step, and nothing else uses it.
        unsafe { link.write(Link(Cell::new(bin.head.get()))) };
        bin.head.set(link.as_ptr());
    }

    /// Carves a new block of a class whose alignment is a step, if the range has room.
    #[inline(always)]
    pub(super) fn carve_common(&self, class: Class) -> Option<NonNull<u8>> {
        let block = self.range.advance(size_of(class))?;
        let bin = self.bin(class);
        bin.live.set(bin.live.get() + 1);
        Some(block)
    }

    /// Carves a new block of this class, if the range has room.
    pub(super) fn carve(&self, class: Class) -> Option<NonNull<u8>> {
        let gap = self.range.gap(align_of(class));
        if self.range.left() < gap + size_of(class) {
            return None;
        }
        if gap > 0 {
            let before = self.range.advance(gap)?;
            // SAFETY: the gap was part of the range, and of no block.
            unsafe { self.leave(before.as_ptr(), gap) };
        }
        self.carve_common(class)
    }

    /// Puts leftover bytes on the lists, as blocks of the largest classes that fit.
    ///
    /// # Safety
    /// The owner holds the bytes, nothing uses them, and their start and number are multiples of a
    /// step.
    unsafe fn leave(&self, start: *mut u8, bytes: usize) {
        let mut at = 0;
        while let Some(class) = class_within(bytes - at) {
            // SAFETY: at least `size_of(class)` bytes are left from there on.
            unsafe { self.push(class, NonNull::new_unchecked(start.add(at))) };
            at += size_of(class);
        }
    }

    /// Carves from this range from now on. The rest of the previous range becomes free blocks of
    /// smaller classes.
    ///
    /// # Safety
    /// The owner holds the range, nothing uses it, and its ends are multiples of a step.
    pub(super) unsafe fn open(&self, start: *mut u8, end: *mut u8) {
        let (pos, left) = (self.range.pos.get(), self.range.left());
        self.range.open(start, end);
        if left > 0 {
            // SAFETY: these bytes belonged to no block (invariant 2).
            unsafe { self.leave(pos, left) };
        }
    }

    /// Changes the class of the block that was carved last, in place, if the block is that one and
    /// the range has room. A block does not grow in place while a free block of the larger class
    /// waits: otherwise work that repeats itself would carve a new block each time, and more and
    /// more free blocks would wait.
    ///
    /// # Safety
    /// The block is live, of class `from`, and the owner's. Both classes have alignment [`STEP`].
    pub(super) unsafe fn resize_last(&self, block: NonNull<u8>, from: Class, to: Class) -> bool {
        let (start, pos) = (block.addr().get(), self.range.pos.get());
        if start + size_of(from) != pos.addr()
            || self.range.end.get().addr() - start < size_of(to)
            || self.bin(from).live.get() == 0
            || (to > from && !self.bin(to).head.get().is_null())
        {
            return false;
        }
        // SAFETY: within the block and the range behind it.
        self.range.pos.set(unsafe { block.as_ptr().add(size_of(to)) });
        self.bin(from).live.set(self.bin(from).live.get() - 1);
        self.bin(to).live.set(self.bin(to).live.get() + 1);
        true
    }

    /// Forgets every block and the range. The owner may reuse all of that memory.
    pub(super) fn clear(&self) {
        for bin in &self.bins {
            bin.head.set(ptr::null_mut());
            bin.live.set(0);
        }
        self.close();
    }

    /// Returns the number of blocks handed out and their bytes.
    pub(super) fn live(&self) -> (usize, usize) {
        Class::all().fold((0, 0), |(blocks, bytes), class| {
            let live = self.bin(class).live.get() as usize;
            (blocks + live, bytes + live * size_of(class))
        })
    }

    /// Returns the start of the range and its number of bytes.
    pub(super) fn range(&self) -> (usize, usize) {
        (self.range.pos.get().addr(), self.range.left())
    }

    /// Stops carving until the next range is opened.
    pub(super) fn close(&self) {
        self.range.open(ptr::null_mut(), ptr::null_mut());
    }

    /// Returns the free blocks of a class.
    pub(super) fn each_free(&self, class: Class) -> impl Iterator<Item = NonNull<u8>> {
        let mut next = self.bin(class).head.get();
        core::iter::from_fn(move || {
            let link = NonNull::new(next)?;
            // SAFETY: a free block, which holds a link (invariant 1).
            next = unsafe { link.as_ref() }.0.get();
            Some(link.cast())
        })
    }

    /// Removes from a class's list the free blocks for which `stays` returns `false`. The others
    /// keep their order.
    ///
    /// # Safety
    /// The removed blocks are not handed out again.
    pub(super) unsafe fn retain(&self, class: Class, stays: impl Fn(NonNull<u8>) -> bool) {
        let mut last = &self.bin(class).head;
        while let Some(link) = NonNull::new(last.get()) {
            // SAFETY: a free block, which holds a link (invariant 1); only this thread writes it.
            let next = unsafe { &(*link.as_ptr()).0 };
            if stays(link.cast()) {
                last = next;
            } else {
                last.set(next.get());
            }
        }
    }
}

const _: () = assert!(core::mem::size_of::<Link>() <= STEP);
