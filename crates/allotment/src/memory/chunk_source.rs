//! Where an allocator's chunks come from: the size, the charge and the source of the next one.

use super::acquired_chunk::{AcquiredChunk, SmallTouch, WarmChunk};
use super::budget::Budget;
use super::layout::{HUGE_PAGE, MAX_GROWTH, next_chunk};
use super::source::SharedSource;
use crate::error::{AllocError, ErrorKind};

/// Where an allocator's chunks come from, and on which terms.
#[derive(Clone, Copy)]
pub(crate) struct ChunkSource<'s> {
    pub source: &'s SharedSource,
    pub budget: Option<&'s Budget>,
    /// Whether chunks come from the recycler and go back to it.
    pub recycles: bool,
    /// Whether a chunk must have exactly the size asked for. If not, a thread chunk may be larger.
    pub exact: bool,
    /// The unit of chunks that are registered as segments, or 1 if none are registered.
    pub segment_unit: usize,
    /// Whether chunks are huge pages from [`MAX_GROWTH`] on, if the source has huge pages.
    pub grows_huge: bool,
    /// How small pages are touched.
    pub small: SmallTouch,
}

impl ChunkSource<'_> {
    /// Every chunk size is a multiple of this.
    pub(crate) fn unit(&self) -> usize {
        self.source.chunk_unit().max(self.segment_unit)
    }

    fn align(&self) -> usize {
        self.source.chunk_align().max(self.segment_unit)
    }

    /// A thread chunk of at least `need` bytes, with its size and alignment, if [`take`](Self::take)
    /// would return one. It comes back in registers, where `take` writes its result to memory: that
    /// is half of what a chunk costs here. There is none with a budget, which is charged first.
    #[inline]
    pub(crate) fn take_thread_chunk(
        &self,
        need: usize,
        grown: usize,
    ) -> Option<(WarmChunk, usize, usize)> {
        if self.budget.is_some() || !self.recycles {
            return None;
        }
        let (wanted, align) = self.next_shape(need, grown).ok()?;
        let (chunk, size) = self.source.take_thread_chunk(wanted, align, self.exact)?;
        Some((chunk, size, align))
    }

    /// Charges and takes a chunk of at least `need` bytes. If possible, it has twice the size of
    /// the last chunk (`grown`). On an error nothing has changed.
    #[inline]
    pub(crate) fn take(&self, need: usize, grown: usize) -> Result<AcquiredChunk, AllocError> {
        let (wanted, align) = self.next_shape(need, grown)?;
        match self.charge_and_take(wanted, align) {
            Ok(chunk) => Ok(chunk),
            // Doubling, huge pages and a size that can be recycled are optional. Try just what is
            // needed.
            Err(error) => match need.checked_next_multiple_of(self.unit()) {
                Some(least) if least < wanted => self.charge_and_take(least, self.align()),
                _ => Err(error),
            },
        }
    }

    /// A chunk of the recycler that has several times `need` bytes, for an object that will grow
    /// again. There is none with a budget, which would be charged for the room.
    pub(crate) fn take_roomy(&self, need: usize) -> Option<AcquiredChunk> {
        if !self.recycles || self.budget.is_some() {
            return None;
        }
        [8, 4, 2].into_iter().find_map(|times| {
            let (size, align) = self.next_shape(need.checked_mul(times)?, MAX_GROWTH).ok()?;
            self.source.take_if_cached(size, align)
        })
    }

    /// The size and alignment of the chunk to take for `need` bytes.
    #[inline]
    fn next_shape(&self, need: usize, grown: usize) -> Result<(usize, usize), AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, need);
        let has_grown = grown >= MAX_GROWTH || need >= 2 * HUGE_PAGE;
        if has_grown && self.grows_huge && self.source.grows_to_huge_pages() {
            let size = next_chunk(need.max(HUGE_PAGE), 0, HUGE_PAGE).ok_or(overflow)?;
            return Ok((size, HUGE_PAGE));
        }
        let size = next_chunk(need, grown, self.unit()).ok_or(overflow)?;
        Ok((size, self.align()))
    }

    #[inline]
    fn charge_and_take(&self, size: usize, align: usize) -> Result<AcquiredChunk, AllocError> {
        if let Some(budget) = self.budget {
            budget.charge(size)?;
        }
        self.source
            .take(size, align, self.recycles, self.exact, self.small)
            .inspect_err(|_| self.credit(size))
    }

    fn credit(&self, bytes: usize) {
        if let Some(budget) = self.budget {
            budget.credit(bytes);
        }
    }

    /// Undoes [`take`](Self::take) for a chunk that was not used.
    #[cold]
    pub(crate) fn return_unused(&self, chunk: AcquiredChunk) {
        let mut batch = self.source.release_batch(0, false);
        // SAFETY: taken with this size and alignment, and not used.
        unsafe { batch.add(chunk.start, chunk.size, chunk.align, chunk.mapping) };
        batch.finish();
        self.credit(chunk.size);
    }
}
