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

use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::classes::{CLASSES, STEP, align_of, class_within, size_of};
use crate::memory::layout::align_up;

/// What a free block holds: the next one.
#[repr(transparent)]
struct Link(Cell<*mut Link>);

#[derive(Debug)]
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
#[derive(Debug)]
pub(super) struct Lists {
    bins: [Bin; CLASSES],
    pos: Cell<*mut u8>,
    end: Cell<*mut u8>,
}

impl Lists {
    pub(super) const fn new() -> Self {
        Self {
            bins: [const { Bin { head: Cell::new(ptr::null_mut()), live: Cell::new(0) } }; CLASSES],
            pos: Cell::new(ptr::null_mut()),
            end: Cell::new(ptr::null_mut()),
        }
    }

    /// The block of this class that was freed last.
    #[inline(always)]
    pub(super) fn take(&self, class: usize) -> Option<NonNull<u8>> {
        let bin = &self.bins[class];
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
    pub(super) unsafe fn put(&self, class: usize, block: NonNull<u8>) -> bool {
        let bin = &self.bins[class];
        let live = bin.live.get().wrapping_sub(1);
        bin.live.set(live);
        if live < 0 {
            return false;
        }
        // SAFETY: passed on to the caller.
        unsafe { self.push(class, block) };
        true
    }

    /// Takes the refused step of a [`put`](Self::put) back.
    pub(super) fn unput(&self, class: usize) {
        self.bins[class].live.set(0);
    }

    /// # Safety
    /// The block is of this class, in the owner's memory, nobody's and on no list.
    #[inline(always)]
    unsafe fn push(&self, class: usize, block: NonNull<u8>) {
        let bin = &self.bins[class];
        let link = block.cast::<Link>();
        // SAFETY: a block is at least a step long and so aligned, and nobody else's.
        unsafe { link.write(Link(Cell::new(bin.head.get()))) };
        bin.head.set(link.as_ptr());
    }

    /// A new block of this class, if the range has room.
    #[inline]
    pub(super) fn carve(&self, class: usize) -> Option<NonNull<u8>> {
        let (block, gap, before) = self.advance(class)?;
        if gap > 0 {
            // SAFETY: the gap was the range's, and no block's.
            unsafe { self.leave(before, gap) };
        }
        let bin = &self.bins[class];
        bin.live.set(bin.live.get() + 1);
        Some(block)
    }

    /// The same for watched lists, which count nothing and leave nothing over.
    pub(super) fn carve_watched(&self, class: usize) -> Option<NonNull<u8>> {
        self.advance(class).map(|(block, ..)| block)
    }

    /// A block of the range, and the bytes that its alignment skips.
    #[inline(always)]
    fn advance(&self, class: usize) -> Option<(NonNull<u8>, usize, *mut u8)> {
        let (pos, size) = (self.pos.get(), size_of(class));
        let gap = align_up(pos.addr(), align_of(class)) - pos.addr();
        if self.end.get().addr() - pos.addr() < gap + size || pos.is_null() {
            return None;
        }
        // SAFETY: the range has so many bytes (invariant 2).
        let (block, after) = unsafe { (pos.add(gap), pos.add(gap + size)) };
        self.pos.set(after);
        Some((NonNull::new(block)?, gap, pos))
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

    /// Carves from this range from now on; what is left of the one before serves smaller blocks, unless the lists are
    /// watched.
    ///
    /// # Safety
    /// The range is the owner's and nobody's; its ends are multiples of a step.
    pub(super) unsafe fn open(&self, start: *mut u8, end: *mut u8, watched: bool) {
        let (pos, before) = (self.pos.replace(start), self.end.replace(end));
        if !watched && !pos.is_null() {
            // SAFETY: no block's bytes until now (invariant 2).
            unsafe { self.leave(pos, before.addr() - pos.addr()) };
        }
    }

    /// Makes the block that was carved last one of another class, in place, if it is that and there is room.
    ///
    /// # Safety
    /// The block is live, of class `from`, and the owner's; both classes are of alignment [`STEP`].
    pub(super) unsafe fn resize_last(&self, block: NonNull<u8>, from: usize, to: usize) -> bool {
        let (start, pos) = (block.addr().get(), self.pos.get());
        if start + size_of(from) != pos.addr()
            || self.end.get().addr() - start < size_of(to)
            || self.bins[from].live.get() == 0
        {
            return false;
        }
        // SAFETY: within the range and the block before it.
        self.pos.set(unsafe { block.as_ptr().add(size_of(to)) });
        self.bins[from].live.set(self.bins[from].live.get() - 1);
        self.bins[to].live.set(self.bins[to].live.get() + 1);
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
        let bins = self.bins.iter().enumerate();
        bins.fold((0, 0), |(blocks, bytes), (class, bin)| {
            let live = bin.live.get() as usize;
            (blocks + live, bytes + live * size_of(class))
        })
    }

    /// Where the range begins, and how many bytes it has.
    pub(super) fn range(&self) -> (usize, usize) {
        let pos = self.pos.get().addr();
        (pos, self.end.get().addr() - pos)
    }

    /// Carves nothing any more until the next range.
    pub(super) fn close(&self) {
        self.pos.set(ptr::null_mut());
        self.end.set(ptr::null_mut());
    }

    /// The free blocks of a class.
    pub(super) fn each_free(&self, class: usize) -> impl Iterator<Item = NonNull<u8>> {
        let mut next = self.bins[class].head.get();
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
    pub(super) unsafe fn retain(&self, class: usize, stays: impl Fn(NonNull<u8>) -> bool) {
        let mut last = &self.bins[class].head;
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
