//! Spans: pieces of a source, each at the start of a granule, that are taken and released one at a
//! time.
//!
//! A slab takes its pages here. A source that lends addresses and memory separately
//! ([`PagedSource`]) gives ranges of up to 32 granules, 2 MiB, so that even a large slab needs
//! few mappings. The memory of a span is committed when the span is taken, and decommitted when it
//! is released. From any other source, each span is a separate block.
//!
//! From `Mmap`, full ranges may be huge pages; `first_touch.rs` decides. When a span of such a
//! range goes back, the process no longer has its memory, but the kernel keeps it until the whole
//! huge page is unused or memory is short. So a range is *split* when more than half of it has gone
//! back: its memory then goes back page by page. Splitting takes longer than unmapping the whole
//! range, and ranges often become empty one span after the other.
//!
//! # Invariants
//!
//! 1. A bit of `free` is 1 while its granule has no owner. A thread that clears bits by an exchange
//!    owns the granules. Setting the bits gives the granules back, after their memory was
//!    decommitted.
//! 2. If all bits of a range are set, they may be cleared together. The thread that did so owns
//!    the whole range, unmaps it, and makes its entry vacant. A vacant entry is then taken as a
//!    whole, and its bits are set last.
//! 3. `tables` only grows, and stays until the allocator of the spans is dropped.

use core::alloc::Layout;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::first_touch::SmallTouch;
use super::index_stack::{IndexStack, Links};
use super::layout::{HUGE_PAGE, SEGMENT_GRANULE, checked_align_up};
use super::os;
use super::source::{PagedSource, SharedSource};
use super::system_array::SystemArray;
use crate::error::{AllocError, ErrorKind};

/// The number of granules of a full range.
const MAX_GRANULES: u32 = 32;
/// The number of granules of the longest span that shares a range. Longer spans have separate
/// mappings.
const MAX_SHARED_GRANULES: u32 = MAX_GRANULES / 2;
/// The range number of a span without a range.
const NO_RANGE: u32 = u32::MAX;
/// Pages of a range: small ones.
const SMALL: u8 = 0;
/// Pages of a range: a huge page, with memory for every span.
const WHOLE: u8 = 1;
/// Pages of a range: a huge page, from which some spans have gone back.
const BROKEN: u8 = 2;
/// The number of entries of the first table. Each further table has twice as many.
const FIRST_TABLE: u32 = 8;
const MAX_TABLES: usize = 24;

/// A piece of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub start: NonNull<u8>,
    /// Needed by [`SpanAllocator::release`].
    pub range: u32,
}

#[derive(Debug)]
struct ReservedRange {
    start: AtomicPtr<u8>,
    granules: AtomicU32,
    align: AtomicUsize,
    free: AtomicU32,
    /// [`SMALL`], [`WHOLE`] or [`BROKEN`].
    pages: AtomicU8,
    next: AtomicU32,
}

/// Takes spans from one source, and releases them.
#[derive(Debug)]
pub(crate) struct SpanAllocator {
    source: SharedSource,
    tables: [AtomicPtr<ReservedRange>; MAX_TABLES],
    issued: AtomicU32,
    vacant: IndexStack,
    /// The number of granules of all ranges.
    granules: AtomicU32,
    /// `count << 32 | first`: no range before `first` has a free granule, so searches start
    /// there. `count` rises each time granules are given back, so that a search that began earlier
    /// can't move `first` past their range.
    search_start: AtomicU64,
    /// Calls made to the source or the system.
    calls: AtomicU64,
}

/// The table of an entry, and the entry's index in that table.
fn table_and_index(index: u32) -> (usize, usize) {
    let table = (index / FIRST_TABLE + 1).ilog2();
    (table as usize, (index - FIRST_TABLE * ((1 << table) - 1)) as usize)
}

impl Links for SpanAllocator {
    fn next(&self, index: u32) -> &AtomicU32 {
        &self.range(index).expect("an issued entry stays").next
    }
}

fn layout_for(len: usize, align: usize) -> Result<Layout, AllocError> {
    Layout::from_size_align(len, align).map_err(|_| AllocError::new(ErrorKind::SizeOverflow, len))
}

fn granules_for(len: usize) -> u32 {
    len.div_ceil(SEGMENT_GRANULE).try_into().unwrap_or(u32::MAX)
}

/// The lowest run of `count` ones, as a mask.
fn lowest_run(free: u32, count: u32) -> Option<u32> {
    let mut starts = free;
    for shift in 1..count {
        starts &= free >> shift;
    }
    let ones = if count == 32 { !0 } else { (1 << count) - 1 };
    (starts != 0).then(|| ones << starts.trailing_zeros())
}

/// A mask of the lowest bits.
fn low_bits(granules: u32) -> u32 {
    if granules == 32 { !0 } else { (1 << granules) - 1 }
}

impl SpanAllocator {
    pub(crate) fn new(source: SharedSource) -> Self {
        Self {
            source,
            tables: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_TABLES],
            issued: AtomicU32::new(0),
            vacant: IndexStack::new(),
            granules: AtomicU32::new(0),
            search_start: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        }
    }

    fn range_align(&self, granules: u32) -> usize {
        let may_be_huge =
            self.source.chunk_align() == HUGE_PAGE || self.source.grows_to_huge_pages();
        if granules == MAX_GRANULES && may_be_huge { HUGE_PAGE } else { SEGMENT_GRANULE }
    }

    /// Whether each span may need a call to the source.
    pub(crate) fn needs_call_per_span(&self) -> bool {
        self.source.as_source().paged().is_none()
    }

    /// Whether a child made by fork also has the memory.
    pub(crate) fn is_inherited(&self) -> bool {
        self.source.as_source().is_inherited()
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn range(&self, index: u32) -> Option<&ReservedRange> {
        let (table, offset) = table_and_index(index);
        // Acquire pairs with the Release in `take_vacant_entry`.
        let table = self.tables.get(table)?.load(Ordering::Acquire);
        // SAFETY: null, or a table of `FIRST_TABLE << table` entries that stays (invariant 3).
        (!table.is_null()).then(|| unsafe { &*table.add(offset) })
    }

    /// Takes `len` bytes (whole hardware pages), ready to be written. They begin at the start of a
    /// granule, or are aligned to `align` if that is more. `small` is how the caller touches small
    /// pages.
    pub(crate) fn take(
        &self,
        len: usize,
        align: usize,
        small: SmallTouch,
    ) -> Result<Span, AllocError> {
        self.source.check_owned(len)?;
        let align = align.max(SEGMENT_GRANULE);
        let layout = layout_for(len, align)?;
        let Some(source) = self.source.as_source().paged() else {
            self.count_call();
            return Ok(Span { start: self.source.as_source().acquire(layout)?, range: NO_RANGE });
        };
        let granules = granules_for(len);
        if granules > MAX_SHARED_GRANULES || align > SEGMENT_GRANULE {
            self.count_call();
            let start = source.reserve(layout)?;
            // SAFETY: just reserved, and whole pages.
            return match unsafe { source.commit(start, len) } {
                Ok(()) => Ok(Span { start, range: NO_RANGE }),
                Err(error) => {
                    // SAFETY: just reserved with this layout, and not committed.
                    unsafe { source.unreserve(start, layout) };
                    Err(error)
                }
            };
        }
        let (index, mask) = match self.claim_granules(granules) {
            Some(claimed) => claimed,
            None => self.reserve_range(source, granules, small)?,
        };
        let range = self.range(index).expect("an entry with claimed granules");
        let start = range.start.load(Ordering::Relaxed);
        // SAFETY: the claimed granules lie in the range's mapping, which stays while any are
        // claimed (2).
        let start = unsafe {
            NonNull::new_unchecked(start.add(mask.trailing_zeros() as usize * SEGMENT_GRANULE))
        };
        // SAFETY: a claimed part of a reserved range, not committed (1).
        if let Err(error) = unsafe { source.commit(start, len) } {
            self.free_granules(source, index, mask);
            return Err(error);
        }
        Ok(Span { start, range: index })
    }

    fn claim_granules(&self, granules: u32) -> Option<(u32, u32)> {
        let seen = self.search_start.load(Ordering::Acquire);
        let first = seen as u32;
        let mut first_with_free = None;
        for index in first..self.issued.load(Ordering::Acquire) {
            let Some(range) = self.range(index) else { break };
            let mut free = range.free.load(Ordering::Relaxed);
            if free != 0 && first_with_free.is_none() {
                first_with_free = Some(index);
            }
            while let Some(mask) = lowest_run(free, granules) {
                // Acquire pairs with the Release that set the bits: the memory was decommitted
                // before, and the range's start belongs to these bits.
                match range.free.compare_exchange_weak(
                    free,
                    free & !mask,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        self.search_from(seen, first_with_free.unwrap_or(index));
                        return Some((index, mask));
                    }
                    Err(now) => free = now,
                }
            }
        }
        None
    }

    /// Lets searches begin at `first`, unless something was given back after `seen` was read.
    fn search_from(&self, seen: u64, first: u32) {
        if seen as u32 != first {
            let next = (seen & !u64::from(u32::MAX)) | u64::from(first);
            let _ = self.search_start.compare_exchange(
                seen,
                next,
                Ordering::Release,
                Ordering::Relaxed,
            );
        }
    }

    fn reserve_range(
        &self,
        source: &dyn PagedSource,
        wanted: u32,
        small: SmallTouch,
    ) -> Result<(u32, u32), AllocError> {
        // As many granules as the slab has already, so that a small slab reserves little: 1, 1, 2,
        // 4, ... 32.
        let held = self.granules.load(Ordering::Relaxed);
        let granules = (1 << held.clamp(1, MAX_GRANULES).ilog2())
            .max(wanted.next_power_of_two())
            .min(MAX_GRANULES);
        match self.reserve_granules(source, granules, wanted, small) {
            Err(_) if granules > wanted => self.reserve_granules(source, wanted, wanted, small),
            result => result,
        }
    }

    /// Reserves a range, and claims its first `wanted` granules.
    fn reserve_granules(
        &self,
        source: &dyn PagedSource,
        granules: u32,
        wanted: u32,
        small: SmallTouch,
    ) -> Result<(u32, u32), AllocError> {
        let layout = layout_for(granules as usize * SEGMENT_GRANULE, self.range_align(granules))?;
        let index = self.take_vacant_entry()?;
        self.count_call();
        let (start, is_huge) = match self.source.reserve(source, layout, small) {
            Ok(reserved) => reserved,
            Err(error) => {
                self.vacant.push(self, index);
                return Err(error);
            }
        };
        let range = self.range(index).expect("issued above");
        range.start.store(start.as_ptr(), Ordering::Relaxed);
        range.granules.store(granules, Ordering::Relaxed);
        range.align.store(layout.align(), Ordering::Relaxed);
        range.pages.store(if is_huge { WHOLE } else { SMALL }, Ordering::Relaxed);
        self.granules.fetch_add(granules, Ordering::Relaxed);
        let mask = low_bits(wanted);
        self.set_free(index, low_bits(granules) & !mask);
        Ok((index, mask))
    }

    /// Sets bits of a range, and lets searches find them. Returns all free bits.
    fn set_free(&self, index: u32, mask: u32) -> u32 {
        let range = self.range(index).expect("an entry in use");
        // Release pairs with the Acquire in `claim_granules`.
        let free = range.free.fetch_or(mask, Ordering::AcqRel) | mask;
        let mut search_start = self.search_start.load(Ordering::Relaxed);
        loop {
            let count = (search_start >> 32).wrapping_add(1) << 32;
            let next = count | u64::from((search_start as u32).min(index));
            match self.search_start.compare_exchange_weak(
                search_start,
                next,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return free,
                Err(now) => search_start = now,
            }
        }
    }

    fn free_granules(&self, source: &dyn PagedSource, index: u32, mask: u32) {
        let free = self.set_free(index, mask);
        let range = self.range(index).expect("an entry in use");
        let granules = range.granules.load(Ordering::Relaxed);
        // Another thread may have made the entry vacant, and a third may have taken it again, in
        // the meantime. Then either its bits are not all set, or they are all set again, and this
        // range can be unmapped like the one before (2).
        if free != low_bits(granules)
            || range.free.compare_exchange(free, 0, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        // This thread owns the whole range.
        let granules = range.granules.load(Ordering::Relaxed);
        let start = range.start.load(Ordering::Relaxed);
        if free != low_bits(granules) {
            // A larger range, whose free bits equalled all bits of the smaller one before: this
            // thread owns only a part.
            if self.set_free(index, free) == low_bits(granules) {
                // The other granules were given back meanwhile.
                self.free_granules(source, index, 0);
            }
            return;
        }
        self.count_call();
        self.granules.fetch_sub(granules, Ordering::Relaxed);
        let len = granules as usize * SEGMENT_GRANULE;
        let start = NonNull::new(start).expect("a range with granules has a mapping");
        let align = range.align.load(Ordering::Relaxed);
        let layout = layout_for(len, align).expect("it was reserved with this layout");
        // SAFETY: reserved with this layout; this thread owns all granules, and they are
        // decommitted (1).
        unsafe { source.unreserve(start, layout) };
        self.vacant.push(self, index);
    }

    fn take_vacant_entry(&self) -> Result<u32, AllocError> {
        if let Some(index) = self.vacant.pop(self) {
            return Ok(index);
        }
        let mut index = self.issued.load(Ordering::Relaxed);
        loop {
            let (table, _) = table_and_index(index);
            if table >= MAX_TABLES {
                return Err(AllocError::new(ErrorKind::SizeOverflow, SEGMENT_GRANULE));
            }
            if self.range(index).is_none() {
                self.make_table(table)?;
            }
            match self.issued.compare_exchange_weak(
                index,
                index + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(index),
                Err(now) => index = now,
            }
        }
    }

    fn make_table(&self, table: usize) -> Result<(), AllocError> {
        let fresh = SystemArray::new((FIRST_TABLE as usize) << table, |_| ReservedRange {
            start: AtomicPtr::new(ptr::null_mut()),
            granules: AtomicU32::new(0),
            align: AtomicUsize::new(0),
            free: AtomicU32::new(0),
            pages: AtomicU8::new(SMALL),
            next: AtomicU32::new(0),
        })?;
        let start = fresh.as_ptr().as_ptr();
        let null = ptr::null_mut();
        // Release pairs with the Acquire in `range`.
        if self.tables[table]
            .compare_exchange(null, start, Ordering::Release, Ordering::Relaxed)
            .is_ok()
        {
            core::mem::forget(fresh);
        }
        Ok(())
    }

    /// Gives a span back.
    ///
    /// # Safety
    /// The span was taken here with this `len` and `align`, is given back once, and nothing refers
    /// to its bytes.
    pub(crate) unsafe fn release(&self, span: Span, len: usize, align: usize) {
        let align = align.max(SEGMENT_GRANULE);
        let layout = layout_for(len, align).expect("it was taken with this layout");
        self.count_call();
        let Some(source) = self.source.as_source().paged() else {
            // SAFETY: acquired with this layout; the rest is guaranteed by the caller.
            return unsafe { self.source.as_source().release(span.start, layout) };
        };
        if span.range == NO_RANGE {
            // SAFETY: committed when it was taken; nothing refers to it. Reserved with this layout.
            return unsafe {
                source.decommit(span.start, len);
                source.unreserve(span.start, layout);
            };
        }
        let range = self.range(span.range).expect("an entry in use");
        if range.pages.load(Ordering::Relaxed) != SMALL {
            // SAFETY: guaranteed by the caller.
            unsafe { Self::break_up(range, span.start, len) };
        }
        // SAFETY: committed when it was taken; nothing refers to it.
        unsafe { source.decommit(span.start, len) };
        let start = range.start.load(Ordering::Relaxed).addr();
        let first = (span.start.addr().get() - start) / SEGMENT_GRANULE;
        self.free_granules(source, span.range, low_bits(granules_for(len)) << first);
    }

    /// Prepares a range that is a huge page for the return of a span.
    ///
    /// # Safety
    /// The caller has the span, and nothing refers to its bytes.
    unsafe fn break_up(range: &ReservedRange, span: NonNull<u8>, len: usize) {
        let change = |from, to| {
            range.pages.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let granules = range.granules.load(Ordering::Relaxed);
        if change(WHOLE, BROKEN) {
            // Otherwise the kernel may make the range a whole huge page again.
            let start = range.start.load(Ordering::Relaxed);
            let start = NonNull::new(start).expect("a range with granules has a mapping");
            let _ = os::advise_small(start, granules as usize * SEGMENT_GRANULE);
        }
        let free = range.free.load(Ordering::Relaxed).count_ones() + granules_for(len);
        if free > granules / 2 && change(BROKEN, SMALL) {
            // SAFETY: guaranteed by the caller.
            unsafe { os::split_huge(span, len) };
        }
    }

    /// Faults the pages of a span in, if that is known to help. A huge page has its memory already.
    pub(crate) fn populate(&self, span: Span, len: usize) {
        let range = self.range(span.range);
        let is_whole = range.is_some_and(|range| range.pages.load(Ordering::Relaxed) == WHOLE);
        if self.source.as_source().paged().is_some() && !is_whole {
            let _ = os::populate(span.start, len);
        }
    }
}

impl Drop for SpanAllocator {
    fn drop(&mut self) {
        for index in 0..*self.issued.get_mut() {
            let range = self.range(index).expect("an issued entry stays");
            debug_assert_eq!(
                range.free.load(Ordering::Relaxed),
                0,
                "a range without pages went back"
            );
        }
        for (table, start) in self.tables.iter_mut().enumerate() {
            if let Some(start) = NonNull::new(*start.get_mut()) {
                // SAFETY: made by `make_table` with this length, and owned by the spans.
                drop(unsafe { SystemArray::adopt(start, (FIRST_TABLE as usize) << table) });
            }
        }
    }
}

/// The bytes of addresses that a span of `len` bytes takes: `len` rounded up to whole granules.
pub(crate) fn addresses_of(len: usize) -> usize {
    checked_align_up(len, SEGMENT_GRANULE).unwrap_or(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::source::{Malloc, Mmap};

    #[test]
    fn runs_are_found_from_the_lowest_on() {
        assert_eq!(lowest_run(0b1011_0110, 1), Some(0b10));
        assert_eq!(lowest_run(0b1011_0110, 2), Some(0b110));
        assert_eq!(lowest_run(0b1011_0110, 3), None);
        assert_eq!(lowest_run(!0, 32), Some(!0));
        assert_eq!(lowest_run(0, 1), None);
    }

    #[test]
    fn spans_of_one_segment_neither_overlap_nor_outlive_it() {
        let spans = SpanAllocator::new(Mmap::new().into());
        let mut taken: Vec<Span> =
            (0..100).map(|_| spans.take(SEGMENT_GRANULE, 1, SmallTouch::Faults).unwrap()).collect();
        for (byte, span) in taken.iter().enumerate() {
            // SAFETY: a span of a granule, ours.
            unsafe { span.start.write_bytes(byte as u8, SEGMENT_GRANULE) };
        }
        for (byte, span) in taken.iter().enumerate() {
            // SAFETY: as above.
            assert_eq!(unsafe { span.start.add(SEGMENT_GRANULE - 1).read() }, byte as u8);
        }
        taken.sort_by_key(|span| span.start);
        let starts: Vec<usize> = taken.iter().map(|span| span.start.addr().get()).collect();
        assert!(starts.windows(2).all(|two| two[0] + SEGMENT_GRANULE <= two[1]));
        assert!(spans.calls() < 20);
        for span in taken {
            // SAFETY: taken above with this length, given back once.
            unsafe { spans.release(span, SEGMENT_GRANULE, 1) };
        }
        assert_eq!(spans.granules.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_span_of_a_huge_page_goes_back_by_itself() {
        let spans = SpanAllocator::new(Mmap::huge_pages().into());
        let taken: Vec<Span> =
            (0..128).map(|_| spans.take(SEGMENT_GRANULE, 1, SmallTouch::Faults).unwrap()).collect();
        for span in &taken {
            // SAFETY: a span of a granule, ours.
            unsafe { span.start.write_bytes(7, SEGMENT_GRANULE) };
        }
        for span in taken {
            // SAFETY: taken above with this length, given back once.
            unsafe { spans.release(span, SEGMENT_GRANULE, 1) };
        }
        assert_eq!(spans.granules.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn long_and_aligned_spans_and_those_of_malloc_stand_alone() {
        for source in [SharedSource::from(Mmap::new()), Malloc.into()] {
            let spans = SpanAllocator::new(source);
            for (len, align) in [(4096, 1), (3 << 20, 1), (8192, 1 << 20), (SEGMENT_GRANULE * 3, 1)]
            {
                let span = spans.take(len, align, SmallTouch::Faults).unwrap();
                assert_eq!(span.start.addr().get() % align.max(SEGMENT_GRANULE), 0);
                // SAFETY: as in the test above.
                unsafe {
                    span.start.write_bytes(7, len);
                    spans.release(span, len, align);
                }
            }
        }
    }

    #[test]
    fn threads_that_take_and_release_share_ranges() {
        let spans = SpanAllocator::new(Mmap::new().into());
        std::thread::scope(|scope| {
            for id in 1..=8u8 {
                let spans = &spans;
                scope.spawn(move || {
                    for round in 0..200 {
                        let len = SEGMENT_GRANULE * (1 + round % 3);
                        let span = spans.take(len, 1, SmallTouch::Faults).unwrap();
                        // SAFETY: ours until it is given back.
                        unsafe {
                            span.start.write_bytes(id, len);
                            assert_eq!(span.start.add(len / 2).read(), id);
                            spans.release(span, len, 1);
                        }
                    }
                });
            }
        });
        assert_eq!(spans.granules.load(Ordering::Relaxed), 0);
    }
}
