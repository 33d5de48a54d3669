//! The memory of a model's pages: cells that loom watches, which hold what their owner left there.

use allotment::for_loom::page::SLOTS_PER_WORD;
use loom::cell::UnsafeCell;

/// Cells of memory for each word of slots: the slots from the fourth on share the last, and are
/// taken together.
const CELLS: usize = 4;

/// Slots of one word that a thread owns.
#[derive(Debug)]
#[must_use = "slots that are lost keep their page"]
pub struct Slots {
    pub page: usize,
    pub word: usize,
    pub mask: u64,
    pub mark: u32,
}

/// An address holds this while its memory was given back.
pub const GONE: u32 = 0;
/// An address holds this while its slot is free.
pub const FREE: u32 = 1;

/// The memory of one page.
#[derive(Debug)]
pub struct Memory(Vec<UnsafeCell<u32>>);

impl Memory {
    /// The memory of a page of this many slots, which is not mapped.
    pub fn new(slots: usize) -> Self {
        let cells = |word: usize| (slots - word * SLOTS_PER_WORD).min(CELLS);
        let cells = (0..slots.div_ceil(SLOTS_PER_WORD)).map(cells).sum();
        Self((0..cells).map(|_| UnsafeCell::new(GONE)).collect())
    }

    pub fn change(&self, cell: usize, from: u32, to: u32) {
        // SAFETY: the caller has the slots or the page; loom fails the model if another thread
        // touches it.
        let before = self.0[cell].with_mut(|value| unsafe { core::mem::replace(&mut *value, to) });
        assert_eq!(before, from, "memory holds what its owner left there");
    }

    pub fn change_slots(&self, slots: &Slots, from: u32, to: u32) {
        let width = self.0.len().min(CELLS);
        let mut rest = slots.mask;
        for cell in 0..width {
            let bits = if cell + 1 == CELLS { !0 << cell } else { 1 << cell };
            if rest & bits != 0 {
                rest &= !bits;
                self.change(slots.word * CELLS + cell, from, to);
            }
        }
        assert_eq!(rest, 0, "the slots are the page's");
    }

    pub fn change_all(&self, from: u32, to: u32) {
        (0..self.0.len()).for_each(|cell| self.change(cell, from, to));
    }
}
