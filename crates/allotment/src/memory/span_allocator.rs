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
//! `ranges.rs` holds the ranges and the invariants of their granules.

mod ranges;

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use self::ranges::{ReservedRange, ReservedRanges, SMALL, WHOLE, first_granules};
use super::acquired_chunk::SmallTouch;
use super::layout::{HUGE_PAGE, SEGMENT_GRANULE, checked_align_up};
use super::os;
use super::source::{PagedSource, SharedSource};
use crate::error::{AllocError, ErrorKind};

/// The number of granules of a full range.
const MAX_GRANULES: u32 = 32;
/// The number of granules of the longest span that shares a range. Longer spans have separate
/// mappings.
const MAX_SHARED_GRANULES: u32 = MAX_GRANULES / 2;
/// The range number of a span without a range.
const NO_RANGE: u32 = u32::MAX;
/// A piece of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub start: NonNull<u8>,
    /// Needed by [`SpanAllocator::release`].
    pub range: u32,
}

/// Takes spans from one source, and releases them.
#[derive(Debug)]
pub(crate) struct SpanAllocator {
    source: SharedSource,
    ranges: ReservedRanges,
    /// The number of granules of all ranges.
    granules: AtomicU32,
    /// Calls made to the source or the system.
    calls: AtomicU64,
}

fn layout_for(len: usize, align: usize) -> Result<Layout, AllocError> {
    Layout::from_size_align(len, align).map_err(|_| AllocError::new(ErrorKind::SizeOverflow, len))
}

fn granules_for(len: usize) -> u32 {
    len.div_ceil(SEGMENT_GRANULE).try_into().unwrap_or(u32::MAX)
}

/// Whether no other memory lies in the granules of a span of this length and alignment.
pub(crate) fn takes_whole_granules(source: &SharedSource, len: usize, align: usize) -> bool {
    source.as_source().paged().is_some()
        && granules_for(len) <= MAX_SHARED_GRANULES
        && align <= SEGMENT_GRANULE
}

impl SpanAllocator {
    pub(crate) fn new(source: SharedSource) -> Self {
        Self {
            source,
            ranges: ReservedRanges::new(),
            granules: AtomicU32::new(0),
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

    /// Returns an error if the source can't have this many bytes. Without an error it may still
    /// refuse a part of them.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), AllocError> {
        self.source.check_room(bytes)
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
        let (index, mask) = match self.ranges.claim(granules) {
            Some(claimed) => claimed,
            None => self.reserve_range(source, granules, small)?,
        };
        let range = &self.ranges.table[index];
        let start = range.start.load(Ordering::Relaxed);
        // SAFETY: the claimed granules lie in the range's mapping, which stays while any are
        // claimed (ranges.rs, 2).
        let start = unsafe {
            NonNull::new_unchecked(start.add(mask.trailing_zeros() as usize * SEGMENT_GRANULE))
        };
        // SAFETY: a claimed part of a reserved range, not committed (ranges.rs, 1).
        if let Err(error) = unsafe { source.commit(start, len) } {
            self.free_granules(source, index, mask);
            return Err(error);
        }
        Ok(Span { start, range: index })
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
        let index = self.ranges.take_vacant()?;
        self.count_call();
        let (start, is_huge) = match self.source.reserve(source, layout, small) {
            Ok(reserved) => reserved,
            Err(error) => {
                self.ranges.table.put_back(index);
                return Err(error);
            }
        };
        let range = &self.ranges.table[index];
        range.start.store(start.as_ptr(), Ordering::Relaxed);
        range.granules.store(granules, Ordering::Relaxed);
        range.align.store(layout.align(), Ordering::Relaxed);
        range.pages.store(if is_huge { WHOLE } else { SMALL }, Ordering::Relaxed);
        self.granules.fetch_add(granules, Ordering::Relaxed);
        let mask = first_granules(wanted);
        self.ranges.set_free(index, first_granules(granules) & !mask);
        Ok((index, mask))
    }

    fn free_granules(&self, source: &dyn PagedSource, index: u32, mask: u32) {
        let free = self.ranges.set_free(index, mask);
        let range = &self.ranges.table[index];
        let granules = range.granules.load(Ordering::Relaxed);
        // Another thread may have made the entry vacant, and a third may have taken it again, in
        // the meantime. Then either its bits are not all set, or they are all set again, and this
        // range can be unmapped like the one before (ranges.rs, 2).
        if free != first_granules(granules)
            || range.free.compare_exchange(free, 0, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        // This thread owns the whole range.
        let granules = range.granules.load(Ordering::Relaxed);
        let start = range.start.load(Ordering::Relaxed);
        if free != first_granules(granules) {
            // A larger range, whose free bits equalled all bits of the smaller one before: this
            // thread owns only a part.
            if self.ranges.set_free(index, free) == first_granules(granules) {
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
        // decommitted (ranges.rs, 1).
        unsafe { source.unreserve(start, layout) };
        self.ranges.table.put_back(index);
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
        let range = &self.ranges.table[span.range];
        if range.pages.load(Ordering::Relaxed) != SMALL {
            // SAFETY: guaranteed by the caller.
            unsafe { range.break_up(span.start, len, granules_for(len)) };
        }
        // SAFETY: committed when it was taken; nothing refers to it.
        unsafe { source.decommit(span.start, len) };
        let start = range.start.load(Ordering::Relaxed).addr();
        let first = (span.start.addr().get() - start) / SEGMENT_GRANULE;
        self.free_granules(source, span.range, first_granules(granules_for(len)) << first);
    }

    /// Faults the pages of a span in, if that is known to help. A huge page has its memory already.
    pub(crate) fn populate(&self, span: Span, len: usize) {
        let range = self.ranges.table.get(span.range);
        let is_whole = range.is_some_and(|range| range.pages.load(Ordering::Relaxed) == WHOLE);
        if self.source.as_source().paged().is_some() && !is_whole {
            let _ = os::populate(span.start, len);
        }
    }
}

impl Drop for SpanAllocator {
    fn drop(&mut self) {
        let is_gone = |range: &ReservedRange| range.free.load(Ordering::Relaxed) == 0;
        debug_assert!(
            self.ranges.table.iter().all(|(_, range)| is_gone(range)),
            "each page went back"
        );
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
