//! One tier of a chart: for each dimension the buffer that is being filled, and a list of full
//! buffers.
//!
//! # Invariants
//!
//! 1. A dimension whose `capacity` is not zero owns a live buffer of `tier` and `capacity` from
//!    `memory` at `current`. The first `used` points of the buffer are written; `used` is at most
//!    `capacity`.
//! 2. A node in a dimension's list is live, came from `memory` and belongs to that dimension. So
//!    does the buffer that the node names, of `tier` and the node's `capacity`, whose first `used`
//!    points are written. The list is acyclic and leads from `oldest` to `newest`, whose `next` is
//!    `None`. Both are `None` when the list is empty.
//! 3. Buffers are aligned to 8 bytes. A point needs no larger alignment and no destructor.
//! 4. A buffer that is not full ends with the newest point of the chart: `start + used` is `next`,
//!    unless `used` is zero.

use crate::buffer_node::FullBufferNode;
use crate::memory::Memory;
use crate::tier::{Summary, Tier};
use allotment::AllocError;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// A point of a tier: a value, or a summary.
pub trait Point: Copy + Send + Sync + 'static {
    /// The point of a time in which nothing was collected.
    const GAP: Self;
}

impl Point for f32 {
    const GAP: Self = f32::NAN;
}

impl Point for Summary {
    const GAP: Self = Self::EMPTY;
}

/// One dimension's buffers. 32 bytes.
struct DimensionBuffers {
    current: NonNull<u8>,
    /// The slot of the current buffer's first point.
    start: u32,
    capacity: u16,
    used: u16,
    oldest: Option<NonNull<FullBufferNode>>,
    newest: Option<NonNull<FullBufferNode>>,
}

const _: () = assert!(size_of::<DimensionBuffers>() == 32);

/// The statistics of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStatistics {
    /// Points that are written.
    pub points: u64,
    /// Points that all buffers together can hold.
    pub capacity: u64,
    /// The number of buffers.
    pub buffers: u64,
    /// Points that were collected and dropped early because memory was not available.
    pub lost: u64,
}

impl std::ops::AddAssign for TierStatistics {
    fn add_assign(&mut self, other: Self) {
        self.points += other.points;
        self.capacity += other.capacity;
        self.buffers += other.buffers;
        self.lost += other.lost;
    }
}

/// One tier of a chart. Time is counted in slots: steps of the tier since 1970.
pub struct ChartTier<M: Memory, P: Point> {
    memory: Arc<M>,
    tier: Tier,
    dimensions: Box<[DimensionBuffers]>,
    /// The number of the first dimension among all metrics. It determines the sizes of first
    /// buffers.
    first_metric: u64,
    /// The slot after the newest point; 0 before the first.
    next: u32,
    /// How many slots are kept.
    retained: u32,
    statistics: TierStatistics,
    points: PhantomData<P>,
}

// SAFETY: the tier owns the buffers and nodes (1, 2). They may be freed on any thread, because
// every `Memory` is `Sync`. Points are `Send`.
unsafe impl<M: Memory, P: Point> Send for ChartTier<M, P> {}
// SAFETY: as above. Nothing changes behind a shared reference.
unsafe impl<M: Memory, P: Point> Sync for ChartTier<M, P> {}

/// Returns the capacity of a metric's first buffer. It is pseudo-random but always the same, so
/// that metrics that began together do not need their next buffers together.
#[must_use]
pub fn first_capacity(tier: Tier, metric: u64) -> u16 {
    const MIN_CAPACITY: u16 = 3;
    // SplitMix64 of the metric and the tier.
    let mut bits = metric.wrapping_mul(4).wrapping_add(tier as u64 + 1);
    bits = bits.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    let capacities = u64::from(tier.capacity() - MIN_CAPACITY) + 1;
    MIN_CAPACITY + (((bits >> 32) * capacities) >> 32) as u16
}

impl<M: Memory, P: Point> ChartTier<M, P> {
    /// Creates a tier without buffers.
    pub fn new(
        memory: Arc<M>,
        tier: Tier,
        dimensions: usize,
        first_metric: u64,
        retained: u32,
    ) -> Self {
        assert_eq!(size_of::<P>(), tier.point_bytes(), "a tier has points of one type");
        const { assert!(align_of::<P>() <= 8 && !std::mem::needs_drop::<P>()) };
        let none = || DimensionBuffers {
            current: NonNull::dangling(),
            start: 0,
            capacity: 0,
            used: 0,
            oldest: None,
            newest: None,
        };
        Self {
            memory,
            tier,
            dimensions: (0..dimensions).map(|_| none()).collect(),
            first_metric,
            next: 0,
            retained,
            statistics: TierStatistics::default(),
            points: PhantomData,
        }
    }

    /// Returns the slot after the newest point, or 0 before the first.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Returns the statistics.
    pub fn statistics(&self) -> TierStatistics {
        self.statistics
    }

    /// Returns the slot of the oldest point of any dimension.
    pub fn oldest(&self) -> Option<u32> {
        let first_slot = |buffers: &DimensionBuffers| match buffers.oldest {
            // SAFETY: a node in the list is live (2), and nothing changes while the tier is
            // borrowed.
            Some(node) => Some(unsafe { node.as_ref() }.start),
            None => (buffers.used > 0).then_some(buffers.start),
        };
        self.dimensions.iter().filter_map(first_slot).min()
    }

    /// Allocates the first buffers before they are needed, and writes to them.
    ///
    /// # Errors
    /// When memory is refused. The buffers that were allocated stay.
    pub fn alloc_first_buffers(&mut self) -> Result<(), AllocError> {
        for index in 0..self.dimensions.len() {
            if self.dimensions[index].capacity == 0 {
                self.next_buffer(index, 0)?;
                // SAFETY: the buffer is live, aligned and can hold a point (1, 3).
                unsafe { self.dimensions[index].current.cast::<P>().write(P::GAP) };
            }
        }
        Ok(())
    }

    /// Appends a point for each dimension. Does nothing for a slot that is not after the newest, or
    /// that is the largest possible. Slots in between become gaps.
    pub fn append(&mut self, slot: u32, points: &[P]) {
        assert_eq!(points.len(), self.dimensions.len(), "a point for each dimension");
        if slot < self.next || slot == u32::MAX {
            return;
        }
        match self.next {
            0 => self.dimensions.iter_mut().for_each(|buffers| buffers.start = slot),
            next if slot > next => self.fill_gap(slot - next),
            _ => {}
        }
        let mut refused = 0;
        for (index, point) in points.iter().enumerate() {
            let buffers = &self.dimensions[index];
            // After one refusal, other dimensions without a buffer do not try.
            let will_fail = buffers.capacity == 0 && refused > 0;
            if buffers.used == buffers.capacity
                && (will_fail || self.next_buffer(index, slot).is_err())
                && !self.restart_buffer(index, slot)
            {
                refused += 1;
                continue;
            }
            let buffers = &mut self.dimensions[index];
            // SAFETY: `used` is below `capacity`, so the address lies in the live buffer (1),
            // aligned (3).
            unsafe { buffers.current.cast::<P>().add(usize::from(buffers.used)).write(*point) };
            buffers.used += 1;
        }
        self.statistics.lost += refused;
        self.statistics.points += self.dimensions.len() as u64 - refused;
        self.next = slot + 1;
    }

    /// Fills this many slots, in which nothing was collected, with gaps until the buffers are full.
    #[cold]
    fn fill_gap(&mut self, slots: u32) {
        for buffers in &mut self.dimensions {
            let gaps = slots.min(u32::from(buffers.capacity - buffers.used)) as u16;
            if buffers.used == 0 {
                continue;
            }
            for position in buffers.used..buffers.used + gaps {
                // SAFETY: `position` is below `capacity`, so the address lies in the live buffer
                // (1), aligned (3).
                unsafe { buffers.current.cast::<P>().add(usize::from(position)).write(P::GAP) };
            }
            buffers.used += gaps;
            self.statistics.points += u64::from(gaps);
        }
    }

    /// Allocates a buffer for a dimension whose buffer is full, or that has none. The full buffer
    /// goes to the list, and buffers that are too old are freed.
    #[cold]
    fn next_buffer(&mut self, index: usize, slot: u32) -> Result<(), AllocError> {
        while self.oldest_ends(index).is_some_and(|end| end.saturating_add(self.retained) <= slot) {
            self.drop_oldest(index);
        }
        let first = self.dimensions[index].capacity == 0;
        let metric = self.first_metric + index as u64;
        let capacity = if first { first_capacity(self.tier, metric) } else { self.tier.capacity() };
        let tier = self.tier;
        let buffer =
            self.retry_dropping_oldest(index, |memory| memory.alloc_buffer(tier, capacity))?;
        if !first && let Err(error) = self.list_full_buffer(index) {
            // SAFETY: allocated above with these arguments, and not used yet.
            unsafe { self.memory.free_buffer(self.tier, capacity, buffer) };
            return Err(error);
        }
        let buffers = &mut self.dimensions[index];
        buffers.current = buffer;
        buffers.capacity = capacity;
        buffers.used = 0;
        buffers.start = slot;
        self.statistics.capacity += u64::from(capacity);
        self.statistics.buffers += 1;
        Ok(())
    }

    /// Calls `alloc` and, while memory is refused, frees the dimension's oldest full buffers early
    /// and tries again. One buffer may not be enough: a first buffer may be smaller than the new
    /// one.
    fn retry_dropping_oldest<T>(
        &mut self,
        index: usize,
        alloc: impl Fn(&M) -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        loop {
            match alloc(&self.memory) {
                Err(_) if self.drop_oldest_early(index) => {}
                result => return result,
            }
        }
    }

    /// Moves the full buffer of a dimension to its list. The dimension then has no current buffer.
    fn list_full_buffer(&mut self, index: usize) -> Result<(), AllocError> {
        let node = self.retry_dropping_oldest(index, M::alloc_node)?;
        let buffers = &mut self.dimensions[index];
        let DimensionBuffers { current, start, capacity, used, .. } = *buffers;
        // SAFETY: the node is ours, uninitialised, and has this layout. The newest node is live, if
        // there is one (2).
        unsafe {
            node.write(FullBufferNode { next: None, buffer: current, start, capacity, used });
            match buffers.newest.replace(node) {
                Some(mut newest) => newest.as_mut().next = Some(node),
                None => buffers.oldest = Some(node),
            }
        }
        buffers.capacity = 0;
        buffers.used = 0;
        Ok(())
    }

    /// Without memory for another buffer, drops the points of the current buffer and fills it
    /// again, because the newest points matter most. Returns whether there is a buffer.
    #[cold]
    fn restart_buffer(&mut self, index: usize, slot: u32) -> bool {
        let buffers = &mut self.dimensions[index];
        self.statistics.points -= u64::from(buffers.used);
        self.statistics.lost += u64::from(buffers.used);
        buffers.used = 0;
        buffers.start = slot;
        buffers.capacity > 0
    }

    /// Returns the slot after the last point of a dimension's oldest full buffer.
    fn oldest_ends(&self, index: usize) -> Option<u32> {
        // SAFETY: a node in the list is live (2).
        let node = unsafe { self.dimensions[index].oldest?.as_ref() };
        Some(node.start + u32::from(node.used))
    }

    fn drop_oldest_early(&mut self, index: usize) -> bool {
        let before = self.statistics.points;
        let dropped = self.drop_oldest(index);
        self.statistics.lost += before - self.statistics.points;
        dropped
    }

    /// Frees the oldest full buffer of a dimension, if there is one.
    fn drop_oldest(&mut self, index: usize) -> bool {
        let buffers = &mut self.dimensions[index];
        let Some(oldest) = buffers.oldest else { return false };
        // SAFETY: the node is live (2). It is removed from the list, so nothing refers to it or its
        // buffer any more.
        unsafe {
            let FullBufferNode { next, buffer, capacity, used, .. } = oldest.read();
            buffers.oldest = next;
            if next.is_none() {
                buffers.newest = None;
            }
            self.memory.free_buffer(self.tier, capacity, buffer);
            self.memory.free_node(oldest);
            self.statistics.points -= u64::from(used);
            self.statistics.capacity -= u64::from(capacity);
            self.statistics.buffers -= 1;
        }
        true
    }

    /// Returns the points of one dimension in the slots from `from` up to, not including, `to`:
    /// runs in the order of time, each with its first slot. A dimension that does not exist has
    /// none.
    pub fn runs(&self, dimension: usize, from: u32, to: u32) -> ChartTierRuns<'_, P> {
        let buffers = self.dimensions.get(dimension);
        ChartTierRuns {
            full: buffers.and_then(|buffers| buffers.oldest),
            current: buffers,
            from,
            to,
            borrow: PhantomData,
        }
    }
}

impl<M: Memory, P: Point> Drop for ChartTier<M, P> {
    fn drop(&mut self) {
        for index in 0..self.dimensions.len() {
            while self.drop_oldest(index) {}
            let DimensionBuffers { current, capacity, .. } = self.dimensions[index];
            if capacity > 0 {
                // SAFETY: the live buffer of a dimension (1), which nothing uses after the tier.
                unsafe { self.memory.free_buffer(self.tier, capacity, current) };
            }
        }
    }
}

/// Runs of a dimension's points; see [`ChartTier::runs`].
pub struct ChartTierRuns<'t, P> {
    full: Option<NonNull<FullBufferNode>>,
    current: Option<&'t DimensionBuffers>,
    from: u32,
    to: u32,
    borrow: PhantomData<&'t [P]>,
}

impl<'t, P: Point> Iterator for ChartTierRuns<'t, P> {
    type Item = (u32, &'t [P]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (buffer, start, used) = if let Some(node) = self.full {
                // SAFETY: a node in the list is live (2), and nothing changes while the tier is
                // borrowed.
                let node = unsafe { node.as_ref() };
                self.full = node.next;
                (node.buffer, node.start, node.used)
            } else {
                let buffers = self.current.take()?;
                (buffers.current, buffers.start, buffers.used)
            };
            let from = self.from.max(start);
            let to = self.to.min(start + u32::from(used));
            if from < to {
                // SAFETY: the buffer is live, and its first `used` points are written (1, 2) and
                // aligned (3). `from` and `to` lie between `start` and `start + used`. Nothing
                // changes while the tier is borrowed.
                let points = unsafe {
                    let first = buffer.cast::<P>().add((from - start) as usize);
                    std::slice::from_raw_parts(first.as_ptr(), (to - from) as usize)
                };
                return Some((from, points));
            }
        }
    }
}
