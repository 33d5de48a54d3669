//! Free blocks by class, and the range that new ones are carved from: the fast paths of reaps and pools.
//!
//! ```text
//! bins[class].head ──▶ block ──▶ block ──▶ null      freed blocks of the class: each holds the next one's address
//!
//! │ carved: live or on a list │ pos … never handed out … end │
//! ```
//!
//! # Invariants
//!
//! 1. A block on the list of a class is [`size_of`](super::classes::size_of) bytes at
//!    [`align_of`](super::classes::align_of), in memory that the lists' owner holds, nobody's, and there once.
//! 2. `[pos, end)` is memory that the owner holds, of which no byte belongs to a block; `pos` and `end` are multiples of
//!    [`STEP`], or both null.
//! 3. `live >= 0` for each class: the blocks handed out. Of watched lists it is 0, and nothing is on them, so that each
//!    call takes the slow path: the free that would make it negative is refused.
//! 4. One thread at a time has access: `Cell` is enough.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::classes::{CLASSES, Class, STEP, align_of, class_within, common_class_of, size_of};
use crate::memory::layout::align_up;

/// What a free block holds: the next one.
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

/// Free blocks by class, and a range to carve more from.
/// The bins come first: their offset costs nothing.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Lists {
    bins: [Bin; CLASSES],
    range: Range,
}

/// A range that blocks are carved from: `[pos, end)`.
#[derive(Debug)]
pub(super) struct Range {
    pos: Cell<*mut u8>,
    end: Cell<*mut u8>,
}

impl Range {
    /// One with nothing in it.
    pub(super) const fn empty() -> Self {
        Self { pos: Cell::new(ptr::null_mut()), end: Cell::new(ptr::null_mut()) }
    }

    pub(super) fn open(&self, start: *mut u8, end: *mut u8) {
        self.pos.set(start);
        self.end.set(end);
    }

    /// Its next so many bytes, if it has them.
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

    /// The bytes up to the next multiple of an alignment.
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
        // SAFETY: a class's index is less than the number of classes, and so many bins there are.
        unsafe { self.bins.get_unchecked(class.index()) }
    }

    /// The block of this class that was freed last.
    #[inline(always)]
    pub(super) fn take(&self, class: Class) -> Option<NonNull<u8>> {
        let bin = self.bin(class);
        let first = NonNull::new(bin.head.get())?;
        // SAFETY: a free block, which holds a link (invariant 1).
        bin.head.set(unsafe { first.as_ref() }.0.get());
        bin.live.set(bin.live.get().wrapping_add(1));
        Some(first.cast())
    }

    /// Puts a block on the list of its class; not if the lists are watched.
    ///
    /// # Safety
    /// The block is of this class, in the owner's memory, handed out, and nobody's from now on.
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

    /// Takes the refused step of a [`put`](Self::put) back, if there was one.
    pub(super) fn unput(&self, layout: Layout) {
        if let Some(class) = common_class_of(layout) {
            self.bin(class).live.set(0);
        }
    }

    /// # Safety
    /// The block is of this class, in the owner's memory, nobody's and on no list.
    #[inline(always)]
    unsafe fn push(&self, class: Class, block: NonNull<u8>) {
        let bin = self.bin(class);
        let link = block.cast::<Link>();
        // SAFETY: a block is at least a step long and so aligned, and nobody else's.
        unsafe { link.write(Link(Cell::new(bin.head.get()))) };
        bin.head.set(link.as_ptr());
    }

    /// A new block of a class that is aligned to a step, if the range has room.
    #[inline(always)]
    pub(super) fn carve_common(&self, class: Class) -> Option<NonNull<u8>> {
        let block = self.range.advance(size_of(class))?;
        let bin = self.bin(class);
        bin.live.set(bin.live.get() + 1);
        Some(block)
    }

    /// A new block of this class, if the range has room.
    pub(super) fn carve(&self, class: Class) -> Option<NonNull<u8>> {
        let gap = self.range.gap(align_of(class));
        if self.range.left() < gap + size_of(class) {
            return None;
        }
        if gap > 0 {
            let before = self.range.advance(gap)?;
            // SAFETY: the gap was the range's, and no block's.
            unsafe { self.leave(before.as_ptr(), gap) };
        }
        self.carve_common(class)
    }

    /// Puts bytes that are too few for what was wanted on the lists of what they are enough for.
    ///
    /// # Safety
    /// They are the owner's, nobody's, and a multiple of a step at a multiple of one.
    unsafe fn leave(&self, start: *mut u8, bytes: usize) {
        let mut at = 0;
        while let Some(class) = class_within(bytes - at) {
            // SAFETY: so many bytes are left from there on.
            unsafe { self.push(class, NonNull::new_unchecked(start.add(at))) };
            at += size_of(class);
        }
    }

    /// Carves from this range from now on; what is left of the one before serves smaller blocks.
    ///
    /// # Safety
    /// The range is the owner's and nobody's; its ends are multiples of a step.
    pub(super) unsafe fn open(&self, start: *mut u8, end: *mut u8) {
        let (pos, left) = (self.range.pos.get(), self.range.left());
        self.range.open(start, end);
        if left > 0 {
            // SAFETY: no block's bytes until now (invariant 2).
            unsafe { self.leave(pos, left) };
        }
    }

    /// Makes the block that was carved last one of another class, in place, if it is that and there is room. Not if it grows
    /// and a free block of that class waits: work that repeats itself would carve anew each time, and leave more and more of
    /// them waiting.
    ///
    /// # Safety
    /// The block is live, of class `from`, and the owner's; both classes are of alignment [`STEP`].
    pub(super) unsafe fn resize_last(&self, block: NonNull<u8>, from: Class, to: Class) -> bool {
        let (start, pos) = (block.addr().get(), self.range.pos.get());
        if start + size_of(from) != pos.addr()
            || self.range.end.get().addr() - start < size_of(to)
            || self.bin(from).live.get() == 0
            || (to > from && !self.bin(to).head.get().is_null())
        {
            return false;
        }
        // SAFETY: within the range and the block before it.
        self.range.pos.set(unsafe { block.as_ptr().add(size_of(to)) });
        self.bin(from).live.set(self.bin(from).live.get() - 1);
        self.bin(to).live.set(self.bin(to).live.get() + 1);
        true
    }

    /// Forgets every block and the range: all of it is nobody's again.
    pub(super) fn clear(&self) {
        for bin in &self.bins {
            bin.head.set(ptr::null_mut());
            bin.live.set(0);
        }
        self.close();
    }

    /// The blocks handed out, and their bytes.
    pub(super) fn live(&self) -> (usize, usize) {
        Class::all().fold((0, 0), |(blocks, bytes), class| {
            let live = self.bin(class).live.get() as usize;
            (blocks + live, bytes + live * size_of(class))
        })
    }

    /// Where the range begins, and how many bytes it has.
    pub(super) fn range(&self) -> (usize, usize) {
        (self.range.pos.get().addr(), self.range.left())
    }

    /// Carves nothing any more until the next range.
    pub(super) fn close(&self) {
        self.range.open(ptr::null_mut(), ptr::null_mut());
    }

    /// The free blocks of a class.
    pub(super) fn each_free(&self, class: Class) -> impl Iterator<Item = NonNull<u8>> {
        let mut next = self.bin(class).head.get();
        core::iter::from_fn(move || {
            let link = NonNull::new(next)?;
            // SAFETY: a free block, which holds a link (invariant 1).
            next = unsafe { link.as_ref() }.0.get();
            Some(link.cast())
        })
    }

    /// Takes those free blocks of a class off its list that are not to stay; the others stay in their order.
    ///
    /// # Safety
    /// What is taken off is not handed out again.
    pub(super) unsafe fn retain(&self, class: Class, stays: impl Fn(NonNull<u8>) -> bool) {
        let mut last = &self.bin(class).head;
        while let Some(link) = NonNull::new(last.get()) {
            // SAFETY: a free block, which holds a link (invariant 1), and is written by us alone.
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
