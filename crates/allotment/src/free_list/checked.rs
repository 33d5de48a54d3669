//! The checked list: the slow path of hardened mode, memory tools and pass-through mode.
//!
//! All blocks are of one class: the slots of the list's chunks, with room for a red zone. Vacant
//! blocks are recorded in the ledger, outside the chunks, so that a write after free destroys no
//! evidence.
//!
//! # Invariant
//!
//! Hardened: every byte of a chunk behind its header that is in no live object's block is free, in
//! the ledger's sense, also where no object was ever handed out.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::chunk_header::{HEADER, ListChunk};
use super::raw::{ListChecks, RawFreeList};
use crate::checked::{CheckedAllocator, Ledger, guarded};
use crate::error::{AllocError, ErrorKind};
use crate::memory::source::SharedSource;
use crate::statistics::{AllocatorKind, Record};

/// The class of all blocks.
const CLASS: usize = 0;

/// Makes the records that a list needs; `None` if it is not checked.
pub(super) fn new_if_checked(
    hardened: bool,
    name: Option<&str>,
) -> Result<Option<Box<dyn ListChecks>>, AllocError> {
    let ledger = Ledger::new_if_checked(hardened, AllocatorKind::FreeList, name, CLASS + 1)?;
    Ok(ledger.map(|ledger| -> Box<dyn ListChecks> { ledger }))
}

impl CheckedAllocator for RawFreeList {
    fn record(&self) -> &'static Record {
        self.record
    }

    fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        RawFreeList::charge(self, bytes)
    }

    fn credit(&self, bytes: usize) {
        RawFreeList::credit(self, bytes);
    }

    fn block_size(&self, _: Layout) -> usize {
        self.stride()
    }

    fn vacant_class(&self, _: Layout) -> Option<usize> {
        Some(CLASS)
    }

    fn class_layout(&self, _: usize) -> Layout {
        self.layout()
    }

    fn new_block(&self, ledger: &Ledger, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let block = self.take_fresh(1)?;
        ledger.check_free_block(self, block, layout);
        Ok(block)
    }
}

impl ListChecks for Ledger {
    fn has_no_chunks(&self) -> bool {
        self.is_passthrough()
    }

    fn slot_layout(&self, layout: Layout) -> Option<Layout> {
        guarded(layout)
    }

    fn segment_unit(&self, source: &SharedSource) -> usize {
        self.mode().segment_unit(source)
    }

    fn live(&self) -> usize {
        Ledger::live(self).0
    }

    fn chunk_taken(
        &self,
        list: &RawFreeList,
        start: NonNull<u8>,
        size: usize,
    ) -> Result<(), AllocError> {
        let registered = list.segment_unit() > 1;
        // SAFETY: the list has just taken the chunk, which is larger than its header.
        unsafe { Ledger::chunk_taken(self, list.record, start, size, HEADER, registered) }
    }

    fn chunk_released(&self, list: &RawFreeList, chunk: ListChunk) {
        Ledger::chunk_released(self, chunk.header.cast(), chunk.size, list.segment_unit() > 1);
    }

    fn record_fresh(&self, list: &RawFreeList, first: *mut u8, objects: usize) {
        // The lowest is handed out first.
        let slots = (0..objects).rev().map(|index| {
            NonNull::new(first.wrapping_add(index * list.stride())).expect("a slot of a chunk")
        });
        self.add_vacant(CLASS, slots);
    }

    fn alloc(&self, list: &RawFreeList) -> Result<NonNull<u8>, AllocError> {
        Ledger::alloc(self, list, list.layout())
    }

    fn alloc_run(&self, list: &RawFreeList, objects: usize) -> Result<NonNull<u8>, AllocError> {
        if self.is_passthrough() {
            return match objects {
                1 => Ledger::alloc(self, list, list.layout()),
                _ => Err(AllocError::new(ErrorKind::LimitReached, objects)),
            };
        }
        // The list refuses first: the ledger's memory is charged to no budget, and is kept.
        let run = list.take_fresh(objects)?;
        if let Err(error) = self.reserve(Some(CLASS), objects, objects) {
            // No other code has seen them: they are fresh again.
            list.fresh.set(run.as_ptr());
            return Err(error);
        }
        for index in 0..objects {
            // SAFETY: the run has `objects` objects.
            let block = unsafe { run.add(index * list.stride()) };
            self.check_free_block(list, block, list.layout());
            self.hand_out(list, block, list.layout());
        }
        Ok(run)
    }

    fn free(&self, list: &RawFreeList, object: NonNull<u8>) {
        Ledger::free(self, list, object, list.layout());
    }

    fn trim(&self, list: &RawFreeList) -> usize {
        self.empty_quarantine(list);
        if Ledger::live(self).0 > 0 || self.is_passthrough() {
            return 0;
        }
        self.clear(list);
        list.release_all()
    }

    fn end(&self, list: &RawFreeList) {
        self.clear(list);
    }
}
