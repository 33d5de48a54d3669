//! The checked arena: the slow path of hardened mode, memory tools and pass-through mode.
//!
//! The invariants are those of `checked_objects.rs`.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::{GlobalAlloc, System};

use super::checked_objects::CheckedObjects;
use super::raw::RawArena;
use crate::checked::{CheckedAllocator, CheckedObject, GUARD, Ledger, Misuse};
use crate::error::{AllocError, ErrorKind};
use crate::memory::layout::align_up;
use crate::memory::tools;
use crate::statistics::Record;

impl CheckedAllocator for RawArena {
    fn record(&self) -> &'static Record {
        self.record()
    }

    fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        self.settings().budget.as_ref().map_or(Ok(()), |budget| budget.charge(bytes))
    }

    fn credit(&self, bytes: usize) {
        if let Some(budget) = &self.settings().budget {
            budget.credit(bytes);
        }
    }

    /// An object that has shrunk in place keeps the alignment of its first layout.
    fn is_of_layout(&self, object: &CheckedObject, layout: Layout) -> bool {
        object.size == layout.size()
    }

    fn block_size(&self, layout: Layout) -> usize {
        align_up(layout.size() + GUARD, GUARD)
    }

    /// The next bytes of the bumped chunk, or of a new one.
    fn new_block(&self, ledger: &Ledger, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let (size, align) = (layout.size(), layout.align().max(GUARD));
        let overflow = AllocError::new(ErrorKind::SizeOverflow, size);
        let whole = size
            .checked_add(GUARD)
            .and_then(|sum| sum.checked_next_multiple_of(GUARD))
            .ok_or(overflow)?;
        let need = whole.checked_add(align - GUARD).ok_or(overflow)?;
        if self.left_in_bumped() < need {
            self.grow_by_chunk(need)?;
        }
        // `pos` is a multiple of `GUARD`: the starts of chunks are, and so is every sum below.
        let pos = self.advance(0).addr().get();
        let padding = align_up(pos, align) - pos;
        let start = self.advance(padding + whole);
        ledger.check_free(start, padding + whole, Misuse::WriteAfterReset, size);
        // SAFETY: `padding + whole` bytes from `start` lie in the chunk.
        Ok(unsafe { start.add(padding) })
    }
}

impl RawArena {
    /// Memory for one object. The size must not be zero.
    pub(super) fn checked_alloc(
        &self,
        checked: &CheckedObjects,
        layout: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        let size = layout.size();
        let object = if checked.records_objects() {
            let mut order = checked.order.borrow_mut();
            order.try_reserve(1).map_err(|_| AllocError::new(ErrorKind::SourceRefused, size))?;
            let object = checked.ledger.alloc(self, layout)?;
            order.push((object.addr().get(), checked.ledger.next_number() - 1));
            object
        } else {
            let object = self.new_block(&checked.ledger, layout)?;
            tools::allow(object, size);
            object
        };
        let record = self.record();
        record.live_objects.add(1);
        record.live_bytes.add(size as u64);
        Ok(object)
    }

    /// Frees one object of the open scope. An older object is left as it is.
    pub(super) fn checked_free(
        &self,
        checked: &CheckedObjects,
        object: NonNull<u8>,
        layout: Layout,
    ) {
        let size = layout.size();
        if checked.records_objects() {
            let found = checked.ledger.live_object(self, object, layout);
            if found.number < self.first_of_scope() {
                return;
            }
            checked.ledger.mark_freed(&found);
            if checked.ledger.is_passthrough() {
                // SAFETY: the object was live until here, and its block has this layout.
                unsafe { checked.ledger.free_malloc_block(self, found.start, found.layout) };
            } else {
                checked.check_zone(&found);
                checked.now_free(found.start.as_ptr(), size);
            }
        } else if self.in_scope(object) {
            tools::forbid(object, size);
        } else {
            return;
        }
        self.record().live_objects.sub(1);
        self.record().live_bytes.sub(size as u64);
    }

    /// Makes one object of the open scope smaller. It stays in place, except that malloc may move
    /// it in pass-through mode. The new size must not be zero.
    pub(super) fn checked_shrink(
        &self,
        checked: &CheckedObjects,
        mut object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> NonNull<u8> {
        let (old_size, new_size) = (old.size(), new.size());
        if checked.records_objects() {
            let found = checked.ledger.live_object(self, object, old);
            if found.number < self.first_of_scope() {
                return object;
            }
            let mut changed = CheckedObject { size: new_size, ..found };
            if checked.ledger.is_passthrough() {
                (changed.start, changed.layout) = self.shrink_by_malloc(&found, new);
                checked.note_move(&changed);
            } else {
                checked.check_zone(&found);
            }
            checked.ledger.change(&found, changed);
            object = changed.start;
        } else if !self.in_scope(object) {
            return object;
        }
        if !checked.ledger.is_passthrough() {
            // SAFETY: the bytes from the new size to the old one belong to the object, and were
            // given up.
            unsafe { checked.ledger.mark_zone(object.add(new_size), old_size - new_size) };
        }
        self.record().live_bytes.sub((old_size - new_size) as u64);
        object
    }

    /// Lets malloc shrink the block, so that its tools see the new end. Returns the block and its
    /// layout. If malloc refuses, the block stays as it is.
    fn shrink_by_malloc(&self, object: &CheckedObject, wanted: Layout) -> (NonNull<u8>, Layout) {
        let (block, old) = (object.start, object.layout);
        let align = old.align().max(wanted.align());
        let Ok(new) = Layout::from_size_align(wanted.size(), align) else { return (block, old) };
        // SAFETY: the block is malloc's, has this layout and is live; the new size is not zero.
        // `realloc` keeps only the alignment with which the block was allocated. So a block that
        // happens to have the larger alignment asked for is moved by hand.
        let moved = unsafe {
            if align == old.align() {
                NonNull::new(System.realloc(block.as_ptr(), old, new.size()))
            } else {
                let moved = NonNull::new(System.alloc(new));
                if let Some(moved) = moved {
                    moved.copy_from_nonoverlapping(block, new.size());
                    System.dealloc(block.as_ptr(), old);
                }
                moved
            }
        };
        let Some(moved) = moved else { return (block, old) };
        let released = old.size() - new.size();
        self.record().held_bytes.sub(released as u64);
        self.record().source_calls.add(1);
        self.credit(released);
        (moved, new)
    }

    /// The objects from this number on are gone. Checks the bytes that they left.
    pub(super) fn checked_rewind(&self, checked: &CheckedObjects, first: u64) {
        let mut order = checked.order.borrow_mut();
        let first_gone = order.partition_point(|(_, number)| *number < first);
        for (address, number) in order.drain(first_gone..) {
            let Some(object) = checked.ledger.remove(address, number) else { continue };
            match (checked.ledger.is_passthrough(), object.freed) {
                // SAFETY: the object was live until here, and its block has this layout.
                (true, false) => unsafe {
                    checked.ledger.free_malloc_block(self, object.start, object.layout);
                },
                (true, true) => {}
                (false, false) => checked.check_zone(&object),
                (false, true) => {
                    let (size, misuse) = (object.size, Misuse::WriteAfterFree);
                    checked.ledger.check_free(object.start, size, misuse, size);
                }
            }
        }
    }
}
