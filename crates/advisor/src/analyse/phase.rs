//! What can't be added up: how the blocks of a group come and go together.
//!
//! All of it is kept for each thread that allocates, because that thread would have an arena of its own. The clock is the
//! number of allocations that the program has made: a program that waits doesn't weigh more.

/// Frees in a row from which on they count as a burst.
pub const BURST: u32 = 16;

/// The blocks of a group that one thread made.
#[derive(Debug, Clone, Default)]
pub struct Phase {
    live: u64,
    live_bytes: u64,
    /// Since the live count was last zero.
    objects: u64,
    held: u64,
    clock: u64,
    /// The integrals of live and held bytes over the clock. The clock has 64 bits and so have the bytes.
    live_area: u128,
    held_area: u128,
    /// The sum of the squares of the numbers of objects between two returns to zero.
    squares: f64,
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

impl Phase {
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
            self.end_phase();
        }
    }

    fn end_run(&mut self) {
        self.runs += 1;
        if self.run >= BURST {
            self.freed_in_bursts += u64::from(self.run);
        }
        self.run = 0;
    }

    fn end_phase(&mut self) {
        self.squares += (self.objects as f64) * (self.objects as f64);
        self.objects = 0;
        self.held = 0;
    }

    /// At the end: what is still live stays so.
    pub fn finish(&mut self, clock: u64) {
        self.advance(clock);
        if self.run > 0 {
            self.end_run();
        }
        if self.objects > 0 {
            self.end_phase();
        }
    }
}

/// The phases of all threads together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Phases {
    live_area: u128,
    held_area: u128,
    squares: f64,
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

impl Phases {
    /// Adds a thread's, which is [finished](Phase::finish).
    pub fn add(&mut self, phase: &Phase) {
        self.live_area = self.live_area.saturating_add(phase.live_area);
        self.held_area = self.held_area.saturating_add(phase.held_area);
        self.squares += phase.squares;
        self.allocated += phase.allocated;
        self.returns += phase.returns;
        self.freed += phase.freed;
        self.freed_in_bursts += phase.freed_in_bursts;
        self.runs += phase.runs;
        self.peak_held = self.peak_held.saturating_add(phase.peak_held);
        self.peak_live += phase.peak_live;
        self.peak_live_bytes = self.peak_live_bytes.saturating_add(phase.peak_live_bytes);
    }

    /// Adds those of other blocks.
    pub fn merge(&mut self, other: &Self) {
        self.live_area = self.live_area.saturating_add(other.live_area);
        self.held_area = self.held_area.saturating_add(other.held_area);
        self.squares += other.squares;
        self.allocated += other.allocated;
        self.returns += other.returns;
        self.freed += other.freed;
        self.freed_in_bursts += other.freed_in_bursts;
        self.runs += other.runs;
        self.peak_held = self.peak_held.saturating_add(other.peak_held);
        self.peak_live += other.peak_live;
        self.peak_live_bytes = self.peak_live_bytes.saturating_add(other.peak_live_bytes);
    }

    /// Bytes that an arena would hold over bytes live, on average.
    pub fn drag(&self) -> f64 {
        // Blocks that live between two allocations only have no area.
        if self.live_area > 0 { self.held_area as f64 / self.live_area as f64 } else { 1.0 }
    }

    /// The most that arenas would hold over the most that was live.
    pub fn peak_drag(&self) -> f64 {
        if self.peak_live_bytes > 0 {
            self.peak_held as f64 / self.peak_live_bytes as f64
        } else {
            1.0
        }
    }

    /// How many objects an average one shares its phase with.
    pub fn objects(&self) -> f64 {
        if self.allocated > 0 { self.squares / self.allocated as f64 } else { 0.0 }
    }

    pub fn burst_share(&self) -> f64 {
        super::tally::share(self.freed_in_bursts, self.freed).unwrap_or(0.0)
    }

    pub fn mean_burst(&self) -> f64 {
        super::tally::share(self.freed, self.runs).unwrap_or(0.0)
    }
}

/// Rungs of a [`Ladder`].
const RUNGS: usize = 16;

/// The youngest live blocks of a site and thread, to see which frees are last in, first out.
#[derive(Debug, Clone, Default)]
pub struct Ladder {
    rungs: [u32; RUNGS],
    length: u32,
    /// Blocks older than the lowest rung were live, and all younger ones have gone in order.
    below: bool,
    pub in_order: u64,
}

impl Ladder {
    #[inline]
    pub fn allocate(&mut self, birth: u32) {
        if self.length as usize == RUNGS {
            self.rungs.copy_within(1.., 0);
            self.length -= 1;
            self.below = true;
        }
        self.rungs[self.length as usize] = birth;
        self.length += 1;
    }

    #[inline]
    pub fn free(&mut self, birth: u32) {
        let length = self.length as usize;
        if length == 0 {
            // It was pushed off; as long as that one goes that came before, the order is kept.
            self.in_order += u64::from(self.below);
            return;
        }
        if self.rungs[length - 1] == birth {
            self.in_order += 1;
            self.length -= 1;
        } else if let Some(at) = self.rungs[..length].iter().rposition(|&rung| rung == birth) {
            self.rungs.copy_within(at + 1..length, at);
            self.length -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(mut phase: Phase, clock: u64) -> Phases {
        phase.finish(clock);
        let mut phases = Phases::default();
        phases.add(&phase);
        phases
    }

    #[test]
    fn a_document_freed_whole_drags_nothing_and_dies_in_one_burst() {
        let mut phase = Phase::default();
        for document in 0..10 {
            for i in 0..100 {
                phase.allocate(32, document * 100 + i);
            }
            (0..100).for_each(|_| phase.free(32, document * 100 + 99));
        }
        let phases = finished(phase, 1000);
        assert_eq!((phases.returns, phases.runs, phases.freed_in_bursts), (10, 10, 1000));
        assert_eq!((phases.drag(), phases.objects(), phases.mean_burst()), (1.0, 100.0, 100.0));
        assert_eq!(phases.peak_drag(), 1.0);
    }

    #[test]
    fn a_block_at_a_time_beside_one_that_stays_drags_all_that_ever_was() {
        let mut phase = Phase::default();
        phase.allocate(32, 0);
        for i in 1..1000 {
            phase.allocate(32, i);
            phase.free(32, i + 1);
        }
        let phases = finished(phase, 1000);
        assert_eq!((phases.returns, phases.freed_in_bursts), (0, 0));
        assert!((240.0..260.0).contains(&phases.drag()), "{}", phases.drag());
        assert_eq!(phases.peak_drag(), 500.0);
        assert_eq!(phases.objects(), 1000.0);
    }

    #[test]
    fn the_ladder_knows_the_order_of_a_stack_and_of_a_queue() {
        let (mut stack, mut queue) = (Ladder::default(), Ladder::default());
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
