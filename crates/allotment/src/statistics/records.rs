//! The table of statistics records: one record for each allocator that is alive, named or not.
//!
//! # Invariants
//!
//! 1. A record is never unmapped. So a `&'static Record` is always valid, and any thread may read
//!    any record at any time, through atomics.
//! 2. A record is in exactly one of three places: among the table's vacant entries, in one thread's
//!    [`ThreadRecord`], or with one allocator. Only the allocator's owner writes the record, with
//!    relaxed loads and relaxed stores. So an update needs no lock prefix, and there is no
//!    undefined behaviour when the report reads the record at the same time.
//! 3. The record's sequence lock (`sequence_lock.rs`) is open while the record is with an
//!    allocator, and closed otherwise. So a snapshot holds one allocator's name and figures.

use core::cell::Cell;
use core::ffi::c_void;
use core::ops::Deref;
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::sequence_lock::SequenceLock;
use super::snapshot::Statistics;
use crate::error::{AllocError, ErrorKind, MAX_NAME_LEN};
use crate::memory::growing_table::{GrowingTable, TableEntry};
use crate::memory::relaxed_access::RelaxedAccess;
use crate::memory::thread_end::{EndStage, ThreadEnd};
use crate::memory::{os, position_word};

/// The kind of allocator that a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum AllocatorKind {
    Arena = 1,
    Slab = 2,
    FreeList = 3,
    Reap = 4,
    Pool = 5,
    Sealed = 6,
}

impl AllocatorKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Arena => "arena",
            Self::Slab => "slab",
            Self::FreeList => "free list",
            Self::Reap => "reap",
            Self::Pool => "pool",
            Self::Sealed => "sealed",
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        let kinds = [Self::Arena, Self::Slab, Self::FreeList, Self::Reap, Self::Pool, Self::Sealed];
        kinds.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A counter with one writer: plain arithmetic for the writer, an atomic for concurrent readers.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// As [`get`](Self::get), for a fast path that takes a value (see memory/relaxed_access.rs).
    #[inline(always)]
    pub(crate) fn fast_get(&self) -> u64 {
        self.0.relaxed_load()
    }

    /// As [`set`](Self::set), for a fast path that takes a value.
    #[inline(always)]
    pub(crate) fn fast_set(&self, value: u64) {
        self.0.relaxed_store(value);
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

/// One allocator's statistics and name. Aligned to two cache lines, so that owners on different
/// threads don't write to the same line.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Record {
    /// What was allocated in the open window of an arena, for the fast path (see
    /// memory/position_word.rs); 0 for all other allocators. The statistics add it to the next two
    /// counters. Each of these may be negative by itself.
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
    sequence_lock: SequenceLock,
    next: AtomicU32,
    index: AtomicU32,
    kind: AtomicU8,
    name_len: AtomicU8,
    name: [AtomicU64; MAX_NAME_LEN / 8],
}

impl TableEntry for Record {
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
}

/// What an allocator has of its record, which lies in the table.
pub(crate) type HeldRecord = &'static Record;

/// A reference to an allocator's record.
pub(crate) type RecordRef<'a> = HeldRecord;

/// The record of an allocator.
#[inline(always)]
pub(crate) fn record_ref(held: &HeldRecord) -> HeldRecord {
    held
}

/// A separate mapping for records. Those that were never issued take no memory.
struct RecordBucket {
    first: NonNull<Record>,
    len: usize,
}

// SAFETY: it owns its records as a `Box` does.
unsafe impl Send for RecordBucket {}
// SAFETY: sharing it shares only the records.
unsafe impl Sync for RecordBucket {}

impl RecordBucket {
    fn new(len: usize) -> Result<Self, AllocError> {
        let first = os::map(Self::mapped_bytes(len), align_of::<Record>())?.cast();
        Ok(Self { first, len })
    }

    fn mapped_bytes(len: usize) -> usize {
        (len * size_of::<Record>()).next_multiple_of(os::page_size())
    }
}

impl Deref for RecordBucket {
    type Target = [Record];

    fn deref(&self) -> &[Record] {
        // SAFETY: the mapping has this many records, stays until the drop, and all-zero bytes are a
        // record. It is only used through atomics.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl Drop for RecordBucket {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and dropped once.
        let _ = unsafe { os::unmap(self.first.cast(), Self::mapped_bytes(self.len)) };
    }
}

static RECORDS: GrowingTable<RecordBucket, 64> = GrowingTable::new();

/// The record that a thread keeps for the next allocator it makes. The record is free, and belongs
/// to the thread until it is taken or the thread ends (invariant 2).
struct ThreadRecord {
    record: Cell<Option<&'static Record>>,
    end: EndStage,
}

thread_local! {
    static THREAD_RECORD: ThreadRecord =
        const { ThreadRecord { record: Cell::new(None), end: EndStage::new() } };
}

static FREE_AT_END: ThreadEnd = ThreadEnd::new(free_at_end);

extern "C" fn free_at_end(_: *mut c_void) {
    THREAD_RECORD.with(|own| {
        own.end.end();
        if let Some(record) = own.record.take() {
            record.push_free();
        }
    });
}

/// Adds the word's part to a counter, which may be negative by itself. The sum is negative only
/// while the owner is between its two updates, and counts as zero then.
fn sum(counter: u64, word: u64) -> u64 {
    let sum = counter.wrapping_add(word);
    if sum > i64::MAX as u64 { 0 } else { sum }
}

impl Record {
    /// Takes a record for an allocator that is about to be made. Usually the thread keeps one;
    /// otherwise this costs one compare-and-exchange, or a new record.
    pub(crate) fn acquire(
        kind: AllocatorKind,
        name: Option<&str>,
    ) -> Result<&'static Self, AllocError> {
        let name = name.unwrap_or("");
        if name.len() > MAX_NAME_LEN {
            return Err(AllocError::new(ErrorKind::NameTooLong, name.len()));
        }
        let record = match THREAD_RECORD.with(|own| own.record.take()) {
            Some(record) => record,
            None => Self::take()?,
        };
        record.sequence_lock.open(|| {
            record.kind.store(kind as u8, Ordering::Relaxed);
            record.name_len.store(name.len() as u8, Ordering::Relaxed);
            for (word, bytes) in record.name.iter().zip(name.as_bytes().chunks(8)) {
                let mut eight = [0; 8];
                eight[..bytes.len()].copy_from_slice(bytes);
                word.store(u64::from_ne_bytes(eight), Ordering::Relaxed);
            }
        });
        Ok(record)
    }

    #[cold]
    fn take() -> Result<&'static Self, AllocError> {
        let index = RECORDS.take(|_, len| RecordBucket::new(len), |_| ())?;
        let record = &RECORDS[index];
        record.index.store(index, Ordering::Relaxed);
        Ok(record)
    }

    /// Returns the record after its allocator has ended.
    pub(crate) fn release(&'static self) {
        self.sequence_lock.close(|| {
            for counter in [
                &self.position_word,
                &self.live_objects,
                &self.live_bytes,
                &self.held_bytes,
                &self.peak_held_bytes,
                &self.wasted_bytes,
                &self.free_bytes,
                &self.structure_bytes,
                &self.chunks,
                &self.recycled_chunks,
                &self.source_calls,
            ] {
                counter.set(0);
            }
        });
        THREAD_RECORD.with(|own| {
            let displaced = match FREE_AT_END.will_run(&own.end) {
                true => own.record.replace(Some(self)),
                false => Some(self),
            };
            if let Some(record) = displaced {
                record.push_free();
            }
        });
    }

    fn push_free(&'static self) {
        RECORDS.put_back(self.index.load(Ordering::Relaxed));
    }

    /// Adds `bytes` to the bytes held, and raises the peak.
    pub(crate) fn add_held_bytes(&self, bytes: usize) {
        let held = self.held_bytes.get() + bytes as u64;
        self.held_bytes.set(held);
        if held > self.peak_held_bytes.get() {
            self.peak_held_bytes.set(held);
        }
    }

    /// Counts a chunk of `bytes` bytes, which came from the recycler or else from the source.
    pub(crate) fn hold_chunk(&self, bytes: usize, recycled: bool) {
        self.add_held_bytes(bytes);
        self.chunks.add(1);
        let origin = if recycled { &self.recycled_chunks } else { &self.source_calls };
        origin.add(1);
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let word = self.position_word.get();
        Statistics {
            live_objects: sum(self.live_objects.get(), position_word::objects(word)),
            live_bytes: sum(self.live_bytes.get(), position_word::bytes(word)),
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

    /// The name, the kind and the statistics. `None` if the record is free or changed its owner
    /// meanwhile.
    pub(crate) fn snapshot(&self) -> Option<(String, AllocatorKind, Statistics)> {
        let (kind, len, bytes, statistics) = self.sequence_lock.read(|| {
            let mut bytes = [0; MAX_NAME_LEN];
            for (eight, word) in bytes.chunks_mut(8).zip(&self.name) {
                eight.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            let kind = self.kind.load(Ordering::Relaxed);
            (kind, self.name_len.load(Ordering::Relaxed), bytes, self.statistics())
        })?;
        let name = core::str::from_utf8(bytes.get(..usize::from(len))?).ok()?;
        Some((name.to_owned(), AllocatorKind::from_byte(kind)?, statistics))
    }

    /// Whether the record's allocator has a name.
    pub(crate) fn is_named(&self) -> bool {
        self.name_len.load(Ordering::Relaxed) > 0
    }

    /// Every record that was ever issued.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        RECORDS.iter().map(|(_, record)| record)
    }

    /// The record at an address under which a segment was registered.
    pub(crate) fn at(address: NonNull<Self>) -> &'static Self {
        // SAFETY: only addresses of records are registered as owners, and a record is never
        // unmapped (invariant 1).
        unsafe { address.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_record_serves_the_next_allocator_with_counters_at_zero() {
        let record = Record::acquire(AllocatorKind::Arena, Some("first")).unwrap();
        record.live_objects.add(3);
        assert_eq!(record.snapshot().unwrap().0, "first");
        record.release();
        let next = Record::acquire(AllocatorKind::Arena, None).unwrap();
        assert_eq!(next.statistics(), Statistics::default());
        next.release();
    }

    #[test]
    fn a_name_of_64_bytes_fits_and_one_of_65_is_an_error() {
        let record = Record::acquire(AllocatorKind::Arena, Some(&"n".repeat(64))).unwrap();
        assert_eq!(record.snapshot().unwrap().0.len(), 64);
        record.release();
        let error = Record::acquire(AllocatorKind::Arena, Some(&"n".repeat(65))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NameTooLong);
    }

    #[test]
    fn a_reader_never_sees_a_name_of_two_allocators() {
        let stop = AtomicU8::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20_000 {
                    let name = if round % 2 == 0 { "aaaaaaaaaaaaaaaa" } else { "bbbbbbbbbbbbbbbb" };
                    Record::acquire(AllocatorKind::Arena, Some(name)).unwrap().release();
                }
                stop.store(1, Ordering::Relaxed);
            });
            while stop.load(Ordering::Relaxed) == 0 {
                for (name, _, _) in Record::all().filter_map(Record::snapshot) {
                    assert!(!(name.contains('a') && name.contains('b')), "{name}");
                }
            }
        });
    }
}
