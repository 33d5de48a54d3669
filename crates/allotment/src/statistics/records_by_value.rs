//! The records of a build without the system's mappings: each allocator has its own inside, and no
//! report lists them.

use core::cell::Cell;

use super::snapshot::Statistics;
use crate::error::{AllocError, ErrorKind, MAX_NAME_LEN};
use crate::memory::position_word;

/// The kind of allocator that a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocatorKind {
    Arena,
    FreeList,
}

/// A counter that only its allocator's thread accesses.
#[derive(Debug, Default)]
pub(crate) struct Counter(Cell<u64>);

impl Counter {
    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }

    #[inline(always)]
    pub(crate) fn set(&self, value: u64) {
        self.0.set(value);
    }

    #[inline(always)]
    pub(crate) fn fast_get(&self) -> u64 {
        self.get()
    }

    #[inline(always)]
    pub(crate) fn fast_set(&self, value: u64) {
        self.set(value);
    }

    #[inline(always)]
    pub(crate) fn add(&self, amount: u64) {
        self.set(self.get().wrapping_add(amount));
    }

    #[inline(always)]
    pub(crate) fn sub(&self, amount: u64) {
        self.set(self.get().wrapping_sub(amount));
    }
}

/// One allocator's statistics.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// What was allocated in the open window of an arena (see memory/position_word.rs); 0 for a free
    /// list. The statistics add it to the next two counters. Each of these may be negative by itself.
    pub position_word: Counter,
    pub live_objects: Counter,
    pub live_bytes: Counter,
    pub held_bytes: Counter,
    pub peak_held_bytes: Counter,
    pub wasted_bytes: Counter,
    pub free_bytes: Counter,
    pub structure_bytes: Counter,
    pub chunks: Counter,
    pub recycled_chunks: Counter,
    pub source_calls: Counter,
}

/// What an allocator has of its record: the record itself.
pub(crate) type HeldRecord = Record;

/// A reference to an allocator's record.
pub(crate) type RecordRef<'a> = &'a Record;

/// The record of an allocator.
#[inline(always)]
pub(crate) fn record_ref(held: &HeldRecord) -> &Record {
    held
}

impl Record {
    /// A record for an allocator that is about to be made.
    pub(crate) fn acquire(_: AllocatorKind, name: Option<&str>) -> Result<Self, AllocError> {
        match name.map_or(0, str::len) {
            len if len > MAX_NAME_LEN => Err(AllocError::new(ErrorKind::NameTooLong, len)),
            _ => Ok(Self::default()),
        }
    }

    /// The record ends with its allocator.
    pub(crate) fn release(&self) {}

    /// Counts a chunk of `bytes` bytes, which came from the source.
    pub(crate) fn hold_chunk(&self, bytes: usize, _recycled: bool) {
        let held = self.held_bytes.get() + bytes as u64;
        self.held_bytes.set(held);
        self.peak_held_bytes.set(held.max(self.peak_held_bytes.get()));
        self.chunks.add(1);
        self.source_calls.add(1);
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let word = self.position_word.get();
        Statistics {
            live_objects: self.live_objects.get().wrapping_add(position_word::objects(word)),
            live_bytes: self.live_bytes.get().wrapping_add(position_word::bytes(word)),
            held_bytes: self.held_bytes.get(),
            peak_held_bytes: self.peak_held_bytes.get(),
            wasted_bytes: self.wasted_bytes.get(),
            free_bytes: self.free_bytes.get(),
            structure_bytes: self.structure_bytes.get(),
            chunks: self.chunks.get(),
            recycled_chunks: self.recycled_chunks.get(),
            source_calls: self.source_calls.get(),
        }
    }
}
