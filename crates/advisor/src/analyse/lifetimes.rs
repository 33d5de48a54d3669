//! How the blocks of a group live and die together. These figures can't be summed over stacks.
//!
//! They are kept for each allocating thread, because each thread would have an arena of its own.
//! The clock is the program's number of allocations, so that time spent waiting doesn't count.

/// The least number of consecutive frees that count as a burst.
pub const BURST: u32 = 16;

/// The figures of a group's blocks that one thread allocated.
#[derive(Debug, Clone, Default)]
pub struct ThreadLifetimes {
    live: u64,
    live_bytes: u64,
    /// Blocks allocated since the live count was last zero, and their bytes.
    objects: u64,
    held: u64,
    clock: u64,
    /// The integrals of live and held bytes over the clock: products of two 64-bit numbers.
    live_area: u128,
    held_area: u128,
    /// The sum over the returns to zero of the squared number of blocks allocated since the
    /// previous one.
    squared_objects: f64,
    run: u32,
    pub peak_live: u64,
    pub peak_live_bytes: u64,
    pub peak_held: u64,
    pub allocated: u64,
    pub returns: u64,
    pub freed: u64,
    pub freed_in_bursts: u64,
    pub runs: u64,
}

impl ThreadLifetimes {
    #[inline]
    fn advance(&mut self, clock: u64) {
        let passed = u128::from(clock - self.clock);
        self.live_area += u128::from(self.live_bytes) * passed;
        self.held_area += u128::from(self.held) * passed;
        self.clock = clock;
    }

    #[inline]
    pub fn allocate(&mut self, size: u64, clock: u64) {
        self.advance(clock);
        if self.run > 0 {
            self.end_run();
        }
        self.allocated += 1;
        self.live += 1;
        self.objects += 1;
        self.live_bytes = self.live_bytes.saturating_add(size);
        self.held = self.held.saturating_add(size);
        self.peak_live = self.peak_live.max(self.live);
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
        self.peak_held = self.peak_held.max(self.held);
    }

    #[inline]
    pub fn free(&mut self, size: u64, clock: u64) {
        self.advance(clock);
        self.run += 1;
        self.freed += 1;
        self.live -= 1;
        self.live_bytes = self.live_bytes.saturating_sub(size);
        if self.live == 0 {
            self.returns += 1;
            self.return_to_zero();
        }
    }

    fn end_run(&mut self) {
        self.runs += 1;
        if self.run >= BURST {
            self.freed_in_bursts += u64::from(self.run);
        }
        self.run = 0;
    }

    fn return_to_zero(&mut self) {
        self.squared_objects += (self.objects as f64) * (self.objects as f64);
        self.objects = 0;
        self.held = 0;
    }

    /// Ends the run. Blocks that are still live stay live.
    pub fn finish(&mut self, clock: u64) {
        self.advance(clock);
        if self.run > 0 {
            self.end_run();
        }
        if self.objects > 0 {
            self.return_to_zero();
        }
    }
}

/// The figures of a group's blocks, over all threads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupLifetimes {
    live_area: u128,
    held_area: u128,
    squared_objects: f64,
    pub allocated: u64,
    pub returns: u64,
    pub freed: u64,
    pub freed_in_bursts: u64,
    pub runs: u64,
    pub peak_held: u64,
    /// The sum of the threads' peaks.
    pub peak_live: u64,
    pub peak_live_bytes: u64,
}

impl GroupLifetimes {
    /// Adds those of a thread, which are [finished](ThreadLifetimes::finish).
    pub fn add(&mut self, thread: &ThreadLifetimes) {
        self.live_area = self.live_area.saturating_add(thread.live_area);
        self.held_area = self.held_area.saturating_add(thread.held_area);
        self.squared_objects += thread.squared_objects;
        self.allocated += thread.allocated;
        self.returns += thread.returns;
        self.freed += thread.freed;
        self.freed_in_bursts += thread.freed_in_bursts;
        self.runs += thread.runs;
        self.peak_held = self.peak_held.saturating_add(thread.peak_held);
        self.peak_live += thread.peak_live;
        self.peak_live_bytes = self.peak_live_bytes.saturating_add(thread.peak_live_bytes);
    }

    /// Adds those of other blocks.
    pub fn merge(&mut self, other: &Self) {
        self.live_area = self.live_area.saturating_add(other.live_area);
        self.held_area = self.held_area.saturating_add(other.held_area);
        self.squared_objects += other.squared_objects;
        self.allocated += other.allocated;
        self.returns += other.returns;
        self.freed += other.freed;
        self.freed_in_bursts += other.freed_in_bursts;
        self.runs += other.runs;
        self.peak_held = self.peak_held.saturating_add(other.peak_held);
        self.peak_live += other.peak_live;
        self.peak_live_bytes = self.peak_live_bytes.saturating_add(other.peak_live_bytes);
    }

    /// The mean bytes that an arena would hold, divided by the mean live bytes.
    pub fn drag(&self) -> f64 {
        // Blocks that are freed before the next allocation have no area.
        if self.live_area > 0 { self.held_area as f64 / self.live_area as f64 } else { 1.0 }
    }

    /// The peak bytes that arenas would hold, divided by the peak of live bytes.
    pub fn peak_drag(&self) -> f64 {
        if self.peak_live_bytes > 0 {
            self.peak_held as f64 / self.peak_live_bytes as f64
        } else {
            1.0
        }
    }

    /// The number of blocks that were allocated between the same two returns to zero, for an
    /// average block.
    pub fn objects(&self) -> f64 {
        if self.allocated > 0 { self.squared_objects / self.allocated as f64 } else { 0.0 }
    }

    pub fn burst_share(&self) -> f64 {
        super::block_statistics::share(self.freed_in_bursts, self.freed).unwrap_or(0.0)
    }

    pub fn mean_burst(&self) -> f64 {
        super::block_statistics::share(self.freed, self.runs).unwrap_or(0.0)
    }
}

/// The most blocks of a [`YoungestBlocks`].
const CAPACITY: usize = 16;

/// The youngest live blocks of a site and thread, to count the frees in last-in-first-out order.
#[derive(Debug, Clone, Default)]
pub struct YoungestBlocks {
    births: [u32; CAPACITY],
    length: u32,
    /// Older blocks than those in `births` were live.
    has_older: bool,
    pub in_order: u64,
}

impl YoungestBlocks {
    #[inline]
    pub fn allocate(&mut self, birth: u32) {
        if self.length as usize == CAPACITY {
            self.births.copy_within(1.., 0);
            self.length -= 1;
            self.has_older = true;
        }
        self.births[self.length as usize] = birth;
        self.length += 1;
    }

    #[inline]
    pub fn free(&mut self, birth: u32) {
        let length = self.length as usize;
        if length == 0 {
            // Its birth was dropped; it counts as in order.
            self.in_order += u64::from(self.has_older);
            return;
        }
        if self.births[length - 1] == birth {
            self.in_order += 1;
            self.length -= 1;
        } else if let Some(at) = self.births[..length].iter().rposition(|&kept| kept == birth) {
            self.births.copy_within(at + 1..length, at);
            self.length -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(mut thread: ThreadLifetimes, clock: u64) -> GroupLifetimes {
        thread.finish(clock);
        let mut lifetimes = GroupLifetimes::default();
        lifetimes.add(&thread);
        lifetimes
    }

    #[test]
    fn a_document_freed_whole_drags_nothing_and_dies_in_one_burst() {
        let mut thread = ThreadLifetimes::default();
        for document in 0..10 {
            for i in 0..100 {
                thread.allocate(32, document * 100 + i);
            }
            (0..100).for_each(|_| thread.free(32, document * 100 + 99));
        }
        let lifetimes = finished(thread, 1000);
        assert_eq!((lifetimes.returns, lifetimes.runs, lifetimes.freed_in_bursts), (10, 10, 1000));
        assert_eq!(
            (lifetimes.drag(), lifetimes.objects(), lifetimes.mean_burst()),
            (1.0, 100.0, 100.0)
        );
        assert_eq!(lifetimes.peak_drag(), 1.0);
    }

    #[test]
    fn a_block_at_a_time_beside_one_that_stays_drags_all_that_ever_was() {
        let mut thread = ThreadLifetimes::default();
        thread.allocate(32, 0);
        for i in 1..1000 {
            thread.allocate(32, i);
            thread.free(32, i + 1);
        }
        let lifetimes = finished(thread, 1000);
        assert_eq!((lifetimes.returns, lifetimes.freed_in_bursts), (0, 0));
        assert!((240.0..260.0).contains(&lifetimes.drag()), "{}", lifetimes.drag());
        assert_eq!(lifetimes.peak_drag(), 500.0);
        assert_eq!(lifetimes.objects(), 1000.0);
    }

    #[test]
    fn frees_of_a_stack_are_in_order_and_frees_of_a_queue_are_not() {
        let (mut stack, mut queue) = (YoungestBlocks::default(), YoungestBlocks::default());
        for birth in 0..100 {
            stack.allocate(birth);
            queue.allocate(birth);
        }
        for birth in 0..99 {
            stack.free(99 - birth);
            queue.free(birth);
        }
        assert_eq!((stack.in_order, queue.in_order), (99, 0));
    }
}
