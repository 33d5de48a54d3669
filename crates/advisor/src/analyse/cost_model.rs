//! Estimates what allocating costs, in nanoseconds.
//!
//! The recorder measures about one call in 256 of the program's own allocator. Each group's part of
//! that, and the part that another allocator would take, are estimated with constants from this
//! project's measurements (`allot bench`), because cold caches, fresh pages and slow machines are
//! slow for all allocators. In recordings without measured costs, the constants stand for all of
//! it. The replay replaces both by its own figures.

use super::findings::{AdvisedAllocator, BlockFigures, Gain};
use super::stack_pass::ProcessTotals;
use trace_format::container::{AllocatorCosts, SampledCost};

/// The C library's malloc: from its cache of small blocks; with many live blocks, so that it
/// touches cold memory; freed by another thread; beyond the cached sizes; and mapped from the
/// system.
const GLIBC_CACHED: f64 = 18.0;
const GLIBC_COLD: f64 = 45.0;
const GLIBC_REMOTE: f64 = 75.0;
const GLIBC_UNCACHED: f64 = 60.0;
const GLIBC_MAPPED: f64 = 2_000.0;
/// The largest size that it caches, and the size from which on it maps blocks, by default.
const CACHED_SIZE: u64 = 1032;
const MAPPED_SIZE: u64 = 32 << 20;
/// With more live blocks than this, malloc touches cold memory.
const COLD: u64 = 5_000;
/// The share of the cost that the allocation has; the free has the rest.
const ALLOCATING: f64 = 0.6;

/// This project's allocators.
const ARENA: f64 = 4.5;
const FREE_LIST: f64 = 5.0;
const POOL: f64 = 7.0;
const SLAB: f64 = 5.0;
const SLAB_REMOTE: f64 = 10.0;

/// CPU time of the recorder per event, if it wasn't measured.
const RECORDING: f64 = 25.0;
/// The least share of the recorded CPU time that counts as the program's own.
const LEAST_OWN: f64 = 0.1;
/// The fewest measured calls for a reliable mean: one call in a thousand takes a hundred times as
/// long as the others.
const LEAST_SAMPLES: u64 = 64;

/// The run that a group is judged in.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// The program's own CPU time.
    pub cpu_ns: Option<f64>,
    pub wall_ns: u64,
    /// When each thread was first and last seen.
    pub threads: Vec<(u64, u64)>,
    pub allocator_share: Option<f64>,
    /// The time of malloc in this run, divided by the constants' estimate.
    pub pace: f64,
    pub peak_live_bytes: u64,
}

impl RunContext {
    /// The number of threads besides the allocating one that have events after a time. A thread
    /// that doesn't allocate has none.
    pub fn threads_after(&self, time_ns: u64) -> u32 {
        let after = self.threads.iter().filter(|(_, last)| *last > time_ns).count() as u32;
        // Usually the first thread is the one that built.
        let builder = self.threads.first().is_some_and(|(_, last)| *last > time_ns);
        after - u32::from(builder)
    }
}

/// The mean times of calls in a run; `None` if too few of them were measured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MeanCallTimes {
    /// The program's own allocator, for one call.
    pub allocation_ns: Option<f64>,
    pub free_ns: Option<f64>,
    reallocation_ns: Option<f64>,
    /// The recorder, for one call.
    pub recorder_ns: Option<f64>,
}

impl MeanCallTimes {
    pub fn new(costs: Option<&AllocatorCosts>) -> Self {
        let Some(costs) = costs else { return Self::default() };
        // What took no longer than reading the clock was not measured: on a disturbed machine the
        // clock's share, which is subtracted, can be larger than the rest.
        let mean = |cost: &SampledCost| {
            cost.mean_ns().filter(|ns| cost.samples >= LEAST_SAMPLES && *ns > 0.0)
        };
        Self {
            allocation_ns: mean(&costs.allocations),
            free_ns: mean(&costs.frees),
            reallocation_ns: mean(&costs.reallocations),
            recorder_ns: mean(&costs.recorder),
        }
    }

    /// What allocating and freeing took in all; `None` if too few calls were measured.
    pub fn allocator_ns(&self, totals: &ProcessTotals) -> Option<f64> {
        let moved = totals.reallocations;
        let frees = totals.frees.saturating_sub(moved);
        let allocation = self.allocation_ns?;
        // With few frees, their cost hardly matters.
        let free = self.free_ns.or((frees < LEAST_SAMPLES * 256).then_some(allocation))?;
        let move_ns = self.reallocation_ns.unwrap_or(allocation + free);
        let allocations = totals.allocations.saturating_sub(moved);
        Some(allocations as f64 * allocation + frees as f64 * free + moved as f64 * move_ns)
    }

    /// The program's CPU time without the recorder's share.
    pub fn without_recorder(&self, cpu_ns: u64, totals: &ProcessTotals) -> u64 {
        let calls = totals.events.saturating_sub(totals.reallocations) as f64;
        let recorder = match self.recorder_ns {
            Some(ns) => calls * ns,
            None => totals.events as f64 * RECORDING,
        };
        (cpu_ns as f64 - recorder).max(cpu_ns as f64 * LEAST_OWN) as u64
    }
}

/// The constants' estimate of what a group's blocks take with the C library's malloc, in
/// nanoseconds.
pub fn glibc(b: &BlockFigures) -> f64 {
    let size = b.bytes / b.count.max(1);
    let own = match size {
        MAPPED_SIZE.. => GLIBC_MAPPED,
        size if size > CACHED_SIZE => GLIBC_UNCACHED,
        _ if b.peak_live_objects > COLD => GLIBC_COLD,
        _ => GLIBC_CACHED,
    };
    let pair = own + (1.0 - b.same_thread_share) * (GLIBC_REMOTE - own).max(0.0);
    pairs(b) * pair
}

/// Allocations with their frees; one that is never freed costs its allocation only.
fn pairs(b: &BlockFigures) -> f64 {
    b.count as f64 - b.never_freed as f64 * (1.0 - ALLOCATING)
}

fn own_allocator(b: &BlockFigures, allocator: AdvisedAllocator) -> f64 {
    match allocator {
        AdvisedAllocator::Arena | AdvisedAllocator::Sealed => b.count as f64 * ARENA,
        AdvisedAllocator::FreeList => pairs(b) * FREE_LIST,
        AdvisedAllocator::Pool | AdvisedAllocator::Reap => pairs(b) * POOL,
        AdvisedAllocator::Slab => {
            pairs(b) * (SLAB + (1.0 - b.same_thread_share) * (SLAB_REMOTE - SLAB))
        }
        // What the best other mallocs usually take.
        AdvisedAllocator::None => glibc(b) * 0.5,
    }
}

/// What an allocator may save.
pub fn gain(
    b: &BlockFigures,
    allocator: AdvisedAllocator,
    run_context: &RunContext,
) -> Option<Gain> {
    let cpu = run_context.cpu_ns.filter(|&cpu| cpu > 0.0)?;
    let before = glibc(b);
    // Estimates may sum to more than there is.
    let ceiling =
        (before * run_context.pace / cpu).min(run_context.allocator_share.unwrap_or(1.0)).min(1.0);
    let saved = 1.0 - (own_allocator(b, allocator) / before.max(1.0)).min(1.0);
    Some(Gain {
        share: ceiling * saved,
        ceiling,
        measured: false,
        ceiling_measured: false,
        tried: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals() -> ProcessTotals {
        ProcessTotals {
            events: 1_900_000,
            allocations: 1_000_000,
            frees: 900_000,
            reallocations: 100_000,
            ..ProcessTotals::default()
        }
    }

    fn cost(samples: u64, mean: f64) -> SampledCost {
        SampledCost { samples, ns: samples as f64 * mean }
    }

    #[test]
    fn what_was_measured_counts_for_each_kind_of_call() {
        let costs = AllocatorCosts {
            allocations: cost(4_000, 20.0),
            frees: cost(4_000, 5.0),
            reallocations: cost(400, 100.0),
            recorder: cost(8_400, 40.0),
            ..AllocatorCosts::default()
        };
        let measured = MeanCallTimes::new(Some(&costs));
        // 900,000 allocations, 800,000 frees and 100,000 moves, each of which is two events.
        assert_eq!(measured.allocator_ns(&totals()), Some(18e6 + 4e6 + 10e6));
        assert_eq!(measured.without_recorder(100_000_000, &totals()), 100_000_000 - 72_000_000);
        assert_eq!(measured.without_recorder(60_000_000, &totals()), 6_000_000);
    }

    #[test]
    fn where_little_was_measured_the_constants_stand() {
        let few = AllocatorCosts {
            allocations: cost(10, 20.0),
            frees: cost(10, 5.0),
            ..AllocatorCosts::default()
        };
        for costs in [None, Some(&few)] {
            let measured = MeanCallTimes::new(costs);
            assert_eq!(measured.allocator_ns(&totals()), None);
            let recorder = (1_900_000.0 * RECORDING) as u64;
            assert_eq!(measured.without_recorder(1 << 30, &totals()), (1 << 30) - recorder);
        }
        // A program that frees nothing has no free to measure.
        let costs = AllocatorCosts { allocations: cost(1_000, 20.0), ..AllocatorCosts::default() };
        let keeps =
            ProcessTotals { allocations: 1_000_000, frees: 0, reallocations: 0, ..totals() };
        assert_eq!(MeanCallTimes::new(Some(&costs)).allocator_ns(&keeps), Some(20e6));
        assert_eq!(MeanCallTimes::new(Some(&costs)).allocator_ns(&totals()), None);
    }

    #[test]
    fn a_mean_that_does_not_exceed_reading_the_clock_was_not_measured() {
        let nothing_left = AllocatorCosts {
            allocations: cost(1_000, 0.0),
            frees: cost(1_000, 5.0),
            recorder: cost(2_000, 0.0),
            ..AllocatorCosts::default()
        };
        let measured = MeanCallTimes::new(Some(&nothing_left));
        assert_eq!((measured.allocator_ns(&totals()), measured.recorder_ns), (None, None));
    }

    #[test]
    fn a_slow_malloc_leaves_more_to_gain_and_a_quick_one_less() {
        let blocks =
            BlockFigures { count: 1_000_000, same_thread_share: 1.0, ..BlockFigures::default() };
        let share = |pace| {
            let run_context = RunContext {
                cpu_ns: Some(1e9),
                wall_ns: 1_000_000_000,
                threads: Vec::new(),
                allocator_share: None,
                pace,
                peak_live_bytes: 0,
            };
            gain(&blocks, AdvisedAllocator::FreeList, &run_context).unwrap()
        };
        assert_eq!((share(1.0).ceiling, share(2.0).ceiling), (0.018, 0.036));
        assert!((share(1.0).share - 0.013).abs() < 1e-9);
        assert!((share(2.0).share - 0.026).abs() < 1e-9);
        assert!((share(0.5).share - 0.0065).abs() < 1e-9);
    }
}
