//! What a checked arena records: a ledger, and the order of its objects.
//!
//! A checked arena reuses no byte before it is reset or rewound, so the ledger's quarantine stays
//! empty: a freed object keeps its entry, and its free bytes are checked when the arena goes back
//! behind its allocation.
//!
//! # Invariants
//!
//! 1. `order` lists the objects in the order of their allocation, by address and number. Tool mode
//!    records no objects: an arena would keep each entry until it is reset, and the tool has its
//!    own record of what is free.
//! 2. In hardened mode, every byte in `[pos, end(bumped))` and of every spare chunk is free, and at
//!    least [`GUARD`] bytes behind each object are its red zone.
//! 3. One thread at a time has access, as to the arena itself.

use core::cell::RefCell;
use core::ptr::NonNull;

use crate::checked::{CheckMode, CheckedObject, GUARD, Ledger, Misuse};
use crate::error::AllocError;
use crate::memory::layout::align_up;
use crate::memory::source::SharedSource;
use crate::statistics::{AllocatorKind, Record};

/// What a checked arena records in addition to its chunks.
#[derive(Debug)]
pub(super) struct CheckedObjects {
    pub ledger: Ledger,
    pub order: RefCell<Vec<(usize, u64)>>,
}

impl CheckedObjects {
    /// The records of an arena, or `None` if there is no reason to check it.
    pub(super) fn wanted(hardened: bool, name: Option<&str>) -> Option<Box<Self>> {
        let ledger = *Ledger::wanted(hardened, AllocatorKind::Arena, name, 0)?;
        Some(Box::new(Self { ledger, order: RefCell::default() }))
    }

    pub(super) fn records_objects(&self) -> bool {
        self.ledger.mode() != CheckMode::Tool
    }

    /// Whether each object comes from malloc by itself.
    pub(super) fn has_no_chunks(&self) -> bool {
        self.ledger.is_passthrough()
    }

    /// The unit of chunks that are registered as segments, or 1.
    pub(super) fn segment_unit(&self, source: &SharedSource) -> usize {
        self.ledger.mode().segment_unit(source)
    }

    /// The number of the next object. All objects that are allocated later have a number that is
    /// not below it.
    pub(super) fn next_number(&self) -> u64 {
        self.ledger.next_number()
    }

    /// A chunk was taken. It holds only its header.
    pub(super) fn chunk_taken(
        &self,
        record: &'static Record,
        start: NonNull<u8>,
        size: usize,
        header: usize,
        registered: bool,
    ) -> Result<(), AllocError> {
        // SAFETY: the arena has just taken the chunk, which is larger than its header.
        unsafe { self.ledger.chunk_taken(record, start, size, header, registered) }
    }

    /// A chunk is about to go back to its source.
    pub(super) fn chunk_released(&self, start: NonNull<u8>, size: usize, registered: bool) {
        self.ledger.chunk_released(start, size, registered);
    }

    /// Marks bytes of a chunk as belonging to no object.
    pub(super) fn now_free(&self, start: *mut u8, len: usize) {
        if let Some(start) = NonNull::new(start).filter(|_| len > 0) {
            // SAFETY: free bytes of a chunk that the arena holds (invariant 4 of `raw.rs`).
            unsafe { self.ledger.fill_free(start, len) };
        }
    }

    /// Checks, before free bytes of a chunk are given up, that no stray write changed them.
    pub(super) fn still_free(&self, start: *mut u8, len: usize) {
        if let Some(start) = NonNull::new(start) {
            self.ledger.check_free(start, len, Misuse::WriteAfterReset, len);
        }
    }

    /// Notes the address of an object that may have moved.
    pub(super) fn note_move(&self, object: &CheckedObject) {
        let mut order = self.order.borrow_mut();
        let at = order.binary_search_by_key(&object.number, |(_, number)| *number);
        order[at.expect("a live object is in the order")].0 = object.start.addr().get();
    }

    pub(super) fn check_zone(&self, object: &CheckedObject) {
        let size = object.size;
        self.ledger.check_zone(object.start, size, align_up(size + GUARD, GUARD) - size);
    }
}
