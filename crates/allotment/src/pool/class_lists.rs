//! Free blocks by size class, and the range that new blocks are carved from: the fast paths of
//! reaps and pools.
//!
//! ```text
//! lists[class].head ──▶ block ──▶ block ──▶ null    free blocks; each holds the next one's address
//!
//! │ carved: live or on a list │ pos … never handed out … end │
//!
//! aside[class] ──▶ block ──▶ block ──▶ null         free blocks that an ended pool left
//! ```
//!
//! A pool with a budget does not take what an ended pool left for nothing: the free blocks and the
//! range are set aside, and come back in small pieces, each charged to the budget.
//!
//! # Invariants
//!
//! 1. A block on a list of a class, `aside` too, has [`size`](super::size_classes::SizeClass::size) bytes at
//!    [`align`](super::size_classes::SizeClass::align). It lies in memory that the lists' owner
//!    holds, nothing else uses it, and it is on the list once.
//! 2. The owner holds the memory `[pos, end)`, and no byte of it belongs to a block. `pos` and
//!    `end` are multiples of [`STEP`], or both null. If `aside_end` is not null, the same holds for
//!    `[end, aside_end)`.
//! 3. `live >= 0` for each class: the number of blocks handed out, without the `inherited` ones. In
//!    checked mode it is 0 and the lists are empty, so that each call takes the slow path: a free
//!    that would make it negative is refused. In a pool with a budget, such a free is one of a
//!    block that the ended pool handed out: the block is set aside too, because nothing was charged
//!    for it.
//! 4. One thread at a time has access, so `Cell` is enough.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::size_classes::{CLASSES, SIZES, STEP, SizeClass};
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
    aside: [Cell<*mut FreeBlock>; CLASSES],
    /// The end of what was set aside of the range, or null.
    aside_end: Cell<*mut u8>,
    /// The bytes that were set aside and have not come back.
    aside_bytes: Cell<usize>,
    /// Whether blocks and the range were set aside. They may all be back.
    has_aside: Cell<bool>,
    /// The blocks of each class that an ended pool handed out and that count as live there.
    inherited: [Cell<usize>; CLASSES],
    /// Their number, and their bytes.
    inherited_sum: Cell<(usize, usize)>,
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
        Self {
            lists: [const { ClassList::empty() }; CLASSES],
            range: CarveRange::empty(),
            aside: [const { Cell::new(ptr::null_mut()) }; CLASSES],
            aside_end: Cell::new(ptr::null_mut()),
            aside_bytes: Cell::new(0),
            has_aside: Cell::new(false),
            inherited: [const { Cell::new(0) }; CLASSES],
            inherited_sum: Cell::new((0, 0)),
        }
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
    /// the caller must then call [`undo_refused_free`](Self::undo_refused_free). The same holds in
    /// a pool with a budget if the block is an inherited one; the caller must then call
    /// [`free_inherited`](Self::free_inherited).
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
        unsafe { push(&list.head, block) };
        true
    }

    /// Restores the number of live blocks after a refused [`free`](Self::free), if the layout's
    /// class is one that `free` was called for.
    pub(super) fn undo_refused_free(&self, layout: Layout) {
        if let Some(class) = SizeClass::of_common(layout) {
            self.list(class).live.set(0);
        }
    }

    /// Counts the blocks that are handed out as those of an ended pool from now on. Returns their
    /// number and their bytes. (One pass over the classes: it is a part of each request's cost.)
    pub(super) fn inherit(&self) -> (usize, usize) {
        let (mut blocks, mut bytes) = self.inherited_sum.get();
        for ((list, inherited), size) in self.lists.iter().zip(&self.inherited).zip(&SIZES) {
            let live = list.live.replace(0) as usize;
            inherited.set(inherited.get() + live);
            blocks += live;
            bytes += live * *size as usize;
        }
        self.inherited_sum.set((blocks, bytes));
        (blocks, bytes)
    }

    /// Counts inherited blocks like all others again.
    pub(super) fn disinherit(&self) {
        if self.inherited_sum.replace((0, 0)).0 > 0 {
            for (list, inherited) in self.lists.iter().zip(&self.inherited) {
                list.live.set(list.live.get() + inherited.take() as isize);
            }
        }
    }

    /// Sets a block aside that [`free`](Self::free) has refused. Returns whether it was inherited;
    /// if not, it is left alone.
    ///
    /// # Safety
    /// As for [`free`](Self::free), outside checked mode.
    pub(super) unsafe fn free_inherited(&self, class: SizeClass, block: NonNull<u8>) -> bool {
        self.list(class).live.set(0);
        let inherited = &self.inherited[class.index()];
        let Some(left) = inherited.get().checked_sub(1) else { return false };
        inherited.set(left);
        let (blocks, bytes) = self.inherited_sum.get();
        self.inherited_sum.set((blocks - 1, bytes - class.size()));
        // SAFETY: passed on to the caller.
        unsafe { push(self.aside_head(class), block) };
        self.more_aside(class.size());
        true
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
            unsafe { self.push_leftover(before.as_ptr(), gap, |class| &self.list(class).head) };
        }
        self.carve_common(class)
    }

    /// Puts leftover bytes on the lists with these heads, as blocks of the largest classes that
    /// fit.
    ///
    /// # Safety
    /// The owner holds the bytes, nothing uses them, and their start and number are multiples of a
    /// step.
    unsafe fn push_leftover<'l>(
        &self,
        start: *mut u8,
        bytes: usize,
        head: impl Fn(SizeClass) -> &'l Cell<*mut FreeBlock>,
    ) {
        let mut offset = 0;
        while let Some(class) = SizeClass::largest_within(bytes - offset) {
            // SAFETY: at least `class.size()` bytes are left from there on.
            unsafe { push(head(class), NonNull::new_unchecked(start.add(offset))) };
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
        let aside = (self.range.end.get(), self.full_end());
        self.aside_end.set(ptr::null_mut());
        self.range.open(start, end);
        // SAFETY: these bytes belonged to no block (invariant 2).
        unsafe {
            self.push_leftover(pos, remaining, |class| &self.list(class).head);
            let (start, end) = aside;
            self.push_leftover(start, end.addr() - start.addr(), |class| self.aside_head(class));
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
            || (to > from && (!self.list(to).head.get().is_null() || self.has_aside(to)))
        {
            return false;
        }
        // SAFETY: within the block and the range behind it.
        self.range.pos.set(unsafe { block.as_ptr().add(to.size()) });
        self.list(from).live.set(self.list(from).live.get() - 1);
        self.list(to).live.set(self.list(to).live.get() + 1);
        true
    }

    /// Sets all free blocks and the range aside: `bytes` bytes.
    pub(super) fn set_aside(&self, bytes: usize) {
        self.merge_aside();
        self.aside_bytes.set(bytes);
        for (list, aside) in self.lists.iter().zip(&self.aside) {
            aside.set(list.head.replace(ptr::null_mut()));
        }
        let CarveRange { pos, end } = &self.range;
        self.aside_end.set(end.replace(pos.get()));
        self.has_aside.set(true);
    }

    /// Sets the free blocks aside for which `is_set_aside` returns `true`. The others keep their
    /// order.
    pub(super) fn set_blocks_aside(&self, is_set_aside: impl Fn(NonNull<u8>) -> bool) {
        for class in SizeClass::all() {
            let mut previous = &self.list(class).head;
            while let Some(block) = NonNull::new(previous.get()) {
                // SAFETY: a free block, which holds the next one's address (invariant 1); only this
                // thread writes it.
                let next = unsafe { &(*block.as_ptr()).next };
                if is_set_aside(block.cast()) {
                    previous.set(next.get());
                    // SAFETY: a free block of this class, which is on no list any more.
                    unsafe { push(self.aside_head(class), block.cast()) };
                    self.more_aside(class.size());
                } else {
                    previous = next;
                }
            }
        }
    }

    /// Sets the rest of the range aside.
    pub(super) fn set_range_aside(&self) {
        let bytes = self.range.remaining();
        if bytes > 0 {
            self.aside_end.set(self.full_end());
            self.range.end.set(self.range.pos.get());
            self.more_aside(bytes);
        }
    }

    /// Whether free blocks of a class are aside.
    #[inline(always)]
    pub(super) fn has_aside(&self, class: SizeClass) -> bool {
        // SAFETY: a class's index is less than `CLASSES`, the number of lists.
        !unsafe { self.aside.get_unchecked(class.index()) }.get().is_null()
    }

    /// Adds bytes that were set aside to the range, if it is too short for a block of this class
    /// and `charge` allows the bytes: `bytes` of them, or as many as the block needs or are left.
    pub(super) fn extend_range(
        &self,
        class: SizeClass,
        bytes: usize,
        charge: impl FnOnce(usize) -> bool,
    ) {
        let CarveRange { pos, end } = &self.range;
        let need = self.range.gap(class.align()) + class.size();
        let (have, full) = (self.range.remaining(), self.full_end().addr() - pos.get().addr());
        if have < need && need <= full {
            let more = (need - have).max(bytes).min(full - have);
            if charge(more) {
                end.set(end.get().wrapping_add(more));
                self.less_aside(more);
            }
        }
    }

    /// Returns the bytes that were set aside and have not come back, unless all of them have.
    pub(super) fn aside_bytes(&self) -> Option<usize> {
        self.has_aside.get().then(|| self.aside_bytes.get())
    }

    /// The end of the range, with what is aside of it.
    fn full_end(&self) -> *mut u8 {
        let aside = self.aside_end.get();
        if aside.is_null() { self.range.end.get() } else { aside }
    }

    /// Moves blocks that were set aside to their list, which is empty: as many as have `bytes`
    /// bytes, at least one, if `charge` allows their bytes. Returns whether it did.
    pub(super) fn take_aside(
        &self,
        class: SizeClass,
        bytes: usize,
        charge: impl FnOnce(usize) -> bool,
    ) -> bool {
        let (list, aside) = (self.list(class), self.aside_head(class));
        debug_assert!(list.head.get().is_null());
        let Some(first) = NonNull::new(aside.get()) else { return false };
        let (mut last, mut count) = (first, 1);
        while (count + 1) * class.size() <= bytes {
            // SAFETY: a free block, which holds the next one's address (invariant 1).
            let Some(next) = NonNull::new(unsafe { last.as_ref() }.next.get()) else { break };
            last = next;
            count += 1;
        }
        if !charge(count * class.size()) {
            return false;
        }
        self.less_aside(count * class.size());
        // SAFETY: as above.
        aside.set(unsafe { last.as_ref() }.next.replace(ptr::null_mut()));
        list.head.set(first.as_ptr());
        true
    }

    /// Puts the blocks that are still aside behind the others, and the rest of the range back. The
    /// cost grows with the number of the others.
    pub(super) fn merge_aside(&self) {
        if !self.has_aside.replace(false) {
            return;
        }
        for (list, aside) in self.lists.iter().zip(&self.aside) {
            let rest = aside.replace(ptr::null_mut());
            if rest.is_null() {
                continue;
            }
            let mut last = &list.head;
            while let Some(block) = NonNull::new(last.get()) {
                // SAFETY: a free block, which holds the next one's address (invariant 1).
                last = unsafe { &(*block.as_ptr()).next };
            }
            last.set(rest);
        }
        self.range.end.set(self.full_end());
        self.aside_end.set(ptr::null_mut());
    }

    /// Forgets every block and the range. The owner may reuse all of that memory.
    pub(super) fn clear(&self) {
        for aside in &self.aside {
            aside.set(ptr::null_mut());
        }
        self.has_aside.set(false);
        for list in &self.lists {
            list.head.set(ptr::null_mut());
            list.live.set(0);
        }
        self.close();
        self.aside_bytes.set(0);
        if self.inherited_sum.replace((0, 0)).0 > 0 {
            self.inherited.iter().for_each(|inherited| inherited.set(0));
        }
    }

    /// Returns the number of blocks handed out.
    pub(super) fn live_blocks(&self) -> usize {
        let own: usize = self.lists.iter().map(|list| list.live.get() as usize).sum();
        own + self.inherited_sum.get().0
    }

    /// Returns the number of blocks handed out and their bytes.
    pub(super) fn live(&self) -> (usize, usize) {
        let inherited = self.inherited_sum.get();
        self.lists.iter().zip(&SIZES).fold(inherited, |(blocks, bytes), (list, size)| {
            let live = list.live.get() as usize;
            (blocks + live, bytes + live * *size as usize)
        })
    }

    /// Returns the number of inherited blocks that count as live, and their bytes.
    pub(super) fn inherited(&self) -> (usize, usize) {
        self.inherited_sum.get()
    }

    /// Returns the size of each class with blocks that are handed out, and their number.
    pub(super) fn live_by_size(&self) -> impl Iterator<Item = (usize, usize)> {
        let each = SizeClass::all().map(|class| {
            let live = self.list(class).live.get() as usize;
            (class.size(), live + self.inherited[class.index()].get())
        });
        each.filter(|(_, live)| *live > 0)
    }

    /// Returns the start of the range, and its number of bytes with what is aside of it.
    pub(super) fn range(&self) -> (usize, usize) {
        let pos = self.range.pos.get().addr();
        (pos, self.full_end().addr() - pos)
    }

    /// Stops carving until the next range is opened.
    pub(super) fn close(&self) {
        self.less_aside(self.full_end().addr() - self.range.end.get().addr());
        self.range.open(ptr::null_mut(), ptr::null_mut());
        self.aside_end.set(ptr::null_mut());
    }

    /// Counts bytes that are not aside any more.
    fn less_aside(&self, bytes: usize) {
        debug_assert!(bytes <= self.aside_bytes.get());
        self.aside_bytes.set(self.aside_bytes.get().saturating_sub(bytes));
    }

    /// Counts bytes that are aside from now on.
    fn more_aside(&self, bytes: usize) {
        self.aside_bytes.set(self.aside_bytes.get() + bytes);
        self.has_aside.set(true);
    }

    fn aside_head(&self, class: SizeClass) -> &Cell<*mut FreeBlock> {
        &self.aside[class.index()]
    }

    /// Returns the free blocks of a class, those that are aside too.
    pub(super) fn free_blocks(&self, class: SizeClass) -> impl Iterator<Item = NonNull<u8>> {
        let lists = [&self.list(class).head, self.aside_head(class)];
        lists.into_iter().flat_map(|head| {
            let mut next = head.get();
            core::iter::from_fn(move || {
                let block = NonNull::new(next)?;
                // SAFETY: a free block, which holds the next one's address (invariant 1).
                next = unsafe { block.as_ref() }.next.get();
                Some(block.cast())
            })
        })
    }

    /// Removes from a class's list the free blocks for which `keep` returns `false`. The others
    /// keep their order.
    ///
    /// # Safety
    /// The removed blocks are not handed out again.
    pub(super) unsafe fn retain(&self, class: SizeClass, keep: impl Fn(NonNull<u8>) -> bool) {
        let lists = [(&self.list(class).head, false), (self.aside_head(class), true)];
        for (mut previous, is_aside) in lists {
            while let Some(block) = NonNull::new(previous.get()) {
                // SAFETY: a free block, which holds the next one's address (invariant 1); only this
                // thread writes it.
                let next = unsafe { &(*block.as_ptr()).next };
                if keep(block.cast()) {
                    previous = next;
                } else {
                    previous.set(next.get());
                    if is_aside {
                        self.less_aside(class.size());
                    }
                }
            }
        }
    }
}

/// # Safety
/// The block is of the list's class, lies in the owner's memory, is not in use, and is on no list.
#[inline(always)]
unsafe fn push(head: &Cell<*mut FreeBlock>, block: NonNull<u8>) {
    let free_block = block.cast::<FreeBlock>();
    // SAFETY: a block is at least a step long and aligned to a step, and nothing else uses it.
    unsafe { free_block.write(FreeBlock { next: Cell::new(head.get()) }) };
    head.set(free_block.as_ptr());
}

const _: () = assert!(size_of::<FreeBlock>() <= STEP);
