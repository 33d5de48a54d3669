//! `tiers-cold`, `tiers-reserved` and `tiers-steady`: the hour boundary of a metrics store.
//!
//! Each metric collects one point each second into a buffer of tier 0, which has room for 1024
//! points of four bytes. The first buffer has room for 3 to 1024 points, drawn at random, so about
//! a thousandth of all metrics needs a new buffer in each second. At the end of the first minute,
//! which is also the end of an hour, all metrics at once need a buffer of tier 1 and one of tier 2.
//! This is measured. Every buffer comes from the allocator of its size, and is written to when it
//! is allocated.
//!
//! The ordinary seconds collect points, so the buffers are in the state of a real program's: partly
//! written, and not in the processor's caches. In these seconds only the replacement of full
//! buffers is timed.

use super::prepared::ObjectSlots;
use crate::peers::{FixedSize, FixedSizeLocal};
use crate::workloads::measurement::{
    LIVE_BYTES, Measurement, RESERVE_MS, SECOND_MS_AVG, SECOND_MS_MAX, milliseconds,
};
use crate::workloads::observer::Observer;
use crate::workloads::random::Random;
use crate::workloads::thread_group::{self, Worker};
use std::alloc::Layout;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The state of the memory at the boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// It is the first one.
    Cold,
    /// It is the first one, and memory was reserved beforehand.
    Reserved,
    /// It is the second one. The buffers of the first were freed.
    Steady,
}

/// The number of metrics at full size.
pub const METRICS: usize = 1_000_000;

/// Ordinary seconds before the boundary.
const SECONDS: usize = 60;

/// The smallest number of points of a first buffer, and the number of points of a buffer of tier 0.
const FEWEST_POINTS: u16 = 3;
const POINTS: u16 = 1024;

type Point = u32;

/// The bytes of a buffer of tier 1, needed each minute, and of tier 2, needed each hour.
const TIERS: [usize; 2] = [2048, 384];

/// The allocators, by the size of their buffers.
struct Stores<A> {
    /// The allocators of buffers of tier 0, by their number of points, from [`FEWEST_POINTS`] on.
    points: Vec<A>,
    tiers: [A; 2],
}

/// One thread's part of the allocators.
struct Locals<'s, A: FixedSize> {
    points: Vec<A::Local<'s>>,
    tiers: [A::Local<'s>; 2],
}

impl<A: FixedSize> Stores<A> {
    fn new() -> Self {
        let bytes = |points: u16| usize::from(points) * size_of::<Point>();
        Self {
            points: (FEWEST_POINTS..=POINTS)
                .map(|points| A::by_size(layout(bytes(points))))
                .collect(),
            tiers: TIERS.map(|bytes| A::by_size(layout(bytes))),
        }
    }

    fn locals(&self) -> Locals<'_, A> {
        Locals {
            points: self.points.iter().map(A::local).collect(),
            tiers: self.tiers.each_ref().map(A::local),
        }
    }
}

impl<'s, A: FixedSize> Locals<'s, A> {
    /// The allocator of buffers with room for `points` points.
    #[inline(always)]
    fn of(&self, points: u16) -> &A::Local<'s> {
        &self.points[usize::from(points - FEWEST_POINTS)]
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, align_of::<u64>()).expect("a buffer is small")
}

/// One metric's buffer of tier 0: its capacity in points, and its number of points.
#[derive(Clone, Copy)]
struct BufferFill {
    capacity: u16,
    length: u16,
}

/// A worker's data: its own metrics.
struct WorkerState<O> {
    fills: Vec<BufferFill>,
    buffers: ObjectSlots<O>,
    tiers: [ObjectSlots<O>; 2],
    due: Vec<u32>,
    seconds: Vec<Duration>,
}

/// A worker's results.
struct WorkerResults {
    wall: Duration,
    live_bytes: u64,
    reserve: Option<Duration>,
    seconds: Vec<Duration>,
}

/// Runs it with `metrics` metrics, which the threads share out.
pub fn run<A: FixedSize>(
    metrics: usize,
    boundary: Boundary,
    threads: usize,
    observer: &dyn Observer,
) -> Measurement {
    let stores = OnceLock::new();
    let found = thread_group::run(
        threads,
        observer,
        |index| {
            // The first threads take the remainder.
            let own = metrics / threads + usize::from(index < metrics % threads);
            state::<A::Object>(own, index)
        },
        |worker, state| {
            let stores = stores.get_or_init(Stores::<A>::new);
            work(worker, stores, state, boundary, metrics)
        },
    );
    // A second takes as long as its slowest worker.
    let worst_of = |second: usize| found.iter().map(|one| one.seconds[second]).max();
    let seconds: Vec<Duration> = (0..SECONDS).filter_map(worst_of).collect();
    let live_bytes: u64 = found.iter().map(|one| one.live_bytes).sum();
    Measurement::timed((metrics * TIERS.len()) as u64, found[0].wall)
        .with(&LIVE_BYTES, live_bytes as f64)
        // The first worker makes the reservation.
        .with(&RESERVE_MS, found[0].reserve.map(milliseconds))
        .with(&SECOND_MS_AVG, milliseconds(seconds.iter().sum::<Duration>() / SECONDS as u32))
        .with(&SECOND_MS_MAX, seconds.iter().max().copied().map(milliseconds))
}

fn state<O: Copy>(metrics: usize, index: usize) -> WorkerState<O> {
    let mut random = Random::stream(index as u64);
    let capacities = u32::from(POINTS - FEWEST_POINTS) + 1;
    let fills = (0..metrics)
        .map(|_| BufferFill {
            capacity: FEWEST_POINTS + random.below(capacities) as u16,
            length: 0,
        })
        .collect();
    let mut due = vec![u32::MAX; metrics];
    std::hint::black_box(&mut due).clear();
    WorkerState {
        fills,
        buffers: ObjectSlots::touched(metrics),
        tiers: TIERS.map(|_| ObjectSlots::touched(metrics)),
        due,
        seconds: Vec::with_capacity(SECONDS),
    }
}

fn work<A: FixedSize>(
    worker: Worker<'_, '_>,
    stores: &Stores<A>,
    mut state: WorkerState<A::Object>,
    boundary: Boundary,
    metrics: usize,
) -> WorkerResults {
    let locals = stores.locals();
    for (fill, buffer) in state.fills.iter().zip(state.buffers.all()) {
        buffer.write(locals.of(fill.capacity).alloc(0));
    }
    for second in 0..SECONDS {
        worker.lead(|| ());
        // SAFETY: every metric has a buffer with room for a point, because a full buffer is
        // replaced at once.
        unsafe { collect(&locals, &mut state, second as Point) };
        let began = Instant::now();
        // SAFETY: the metrics that are due have a buffer.
        unsafe { replace_due(&locals, &mut state) };
        state.seconds.push(began.elapsed());
    }
    let mut reserve = None;
    match boundary {
        Boundary::Cold => {}
        Boundary::Reserved => worker.lead(|| {
            let began = Instant::now();
            let reserves = stores.tiers.iter().all(|tier| tier.reserve(metrics));
            reserve = reserves.then(|| began.elapsed());
        }),
        Boundary::Steady => {
            fill_tiers(&locals, &mut state);
            // SAFETY: the tiers are full, and full again when they are next used.
            unsafe { free_tiers(&locals, &mut state) };
            worker.lead(|| ());
        }
    }
    let wall = worker.measured(|| fill_tiers(&locals, &mut state));
    let points: u64 = state.fills.iter().map(|fill| u64::from(fill.capacity)).sum();
    let tiers = (state.fills.len() * TIERS.iter().sum::<usize>()) as u64;
    // SAFETY: every metric has its three buffers, which are not used afterwards.
    unsafe { free_all(&locals, &mut state) };
    WorkerResults {
        wall,
        live_bytes: points * size_of::<Point>() as u64 + tiers,
        reserve,
        seconds: state.seconds,
    }
}

/// Every metric collects a point. Metrics whose buffer is then full are due.
///
/// # Safety
/// Every metric has a live buffer with room for one more point.
#[inline(never)]
unsafe fn collect<A: FixedSize>(
    locals: &Locals<'_, A>,
    state: &mut WorkerState<A::Object>,
    point: Point,
) {
    state.due.clear();
    for (metric, (fill, buffer)) in (0..).zip(state.fills.iter_mut().zip(state.buffers.all())) {
        // SAFETY: the caller's promise: the place is full and the buffer live, from this allocator;
        // there is room at its end.
        unsafe {
            let bytes = locals.of(fill.capacity).bytes(buffer.assume_init());
            bytes.cast::<Point>().add(usize::from(fill.length)).write(point);
        }
        fill.length += 1;
        if fill.length == fill.capacity {
            state.due.push(metric);
        }
    }
}

/// Replaces the buffers of the metrics that are due.
///
/// # Safety
/// They have a buffer.
#[inline(never)]
unsafe fn replace_due<A: FixedSize>(locals: &Locals<'_, A>, state: &mut WorkerState<A::Object>) {
    let full_size = locals.of(POINTS);
    for metric in &state.due {
        let fill = &mut state.fills[*metric as usize];
        // SAFETY: the caller's promise, and a metric's number is below their count; the buffer came
        // from the allocator of its capacity.
        unsafe {
            let place = state.buffers.at(*metric);
            locals.of(fill.capacity).free(place.assume_init());
            place.write(full_size.alloc(0));
        }
        *fill = BufferFill { capacity: POINTS, length: 0 };
    }
}

/// The end of the minute, and of the hour: every metric gets a buffer of tier 1 and one of tier 2.
#[inline(never)]
fn fill_tiers<A: FixedSize>(locals: &Locals<'_, A>, state: &mut WorkerState<A::Object>) {
    let [tier_1, tier_2] = &mut state.tiers;
    for (word, (tier_1, tier_2)) in (0..).zip(tier_1.all().iter_mut().zip(tier_2.all())) {
        tier_1.write(locals.tiers[0].alloc(word));
        tier_2.write(locals.tiers[1].alloc(word));
    }
    std::hint::black_box(&mut state.tiers);
}

/// # Safety
/// Every metric has its three buffers, which are not used afterwards.
unsafe fn free_all<A: FixedSize>(locals: &Locals<'_, A>, state: &mut WorkerState<A::Object>) {
    for (fill, buffer) in state.fills.iter().zip(state.buffers.all()) {
        // SAFETY: the caller's promise; the buffer came from the allocator of its capacity.
        unsafe { locals.of(fill.capacity).free(buffer.assume_init()) };
    }
    // SAFETY: the caller's promise.
    unsafe { free_tiers(locals, state) };
}

/// # Safety
/// Every metric has its buffers of tier 1 and 2, which are not used afterwards.
unsafe fn free_tiers<A: FixedSize>(locals: &Locals<'_, A>, state: &mut WorkerState<A::Object>) {
    for (local, tier) in locals.tiers.iter().zip(&mut state.tiers) {
        for buffer in tier.all() {
            // SAFETY: the caller's promise.
            unsafe { local.free(buffer.assume_init()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{Audited, audited};

    #[test]
    fn the_boundary_is_two_buffers_a_metric_and_nothing_is_left() {
        for threads in [1, 3] {
            let (figures, audit) =
                audited(|| run::<Audited>(5_000, Boundary::Cold, threads, &Unobserved));
            assert_eq!(figures.ops(), 10_000);
            assert_eq!((audit.freed, audit.freed_elsewhere), (audit.allocated, 0));
            // All first buffers, the replacements, and the buffers of the boundary.
            let replaced = audit.allocated - 5_000 - 10_000;
            assert!((150..450).contains(&replaced), "{replaced} of about 5000 x 60 / 1022");
            assert_eq!(audit.most_live, 15_000);
            assert_eq!(audit.most_live_bytes, figures.live_bytes());
            assert_eq!((audit.reserved, figures.get(&RESERVE_MS)), (0, None));
        }
    }

    #[test]
    fn the_steady_boundary_follows_one_whose_buffers_were_freed() {
        let (figures, audit) = audited(|| run::<Audited>(1_000, Boundary::Steady, 2, &Unobserved));
        assert_eq!((figures.ops(), audit.freed), (2_000, audit.allocated));
        assert!(audit.allocated >= 1_000 + 2 * 2_000, "two boundaries: {}", audit.allocated);
        assert_eq!(audit.most_live, 3_000);
    }

    #[test]
    fn what_is_reserved_is_what_the_boundary_needs_and_it_is_timed_apart() {
        let (figures, audit) =
            audited(|| run::<Audited>(1_001, Boundary::Reserved, 2, &Unobserved));
        assert_eq!(audit.reserved, 2 * 1_001);
        assert!(figures.get(&RESERVE_MS).is_some());
        assert!(figures.get(&SECOND_MS_AVG).unwrap() <= figures.get(&SECOND_MS_MAX).unwrap());
    }

    #[test]
    fn an_allocator_that_can_not_reserve_has_no_time_for_it() {
        struct Tiny;

        impl crate::peers::FixedSizeVisitor for Tiny {
            type Output = Measurement;

            fn visit<A: FixedSize>(self, _: &'static crate::peers::About) -> Measurement {
                run::<A>(100, Boundary::Reserved, 1, &Unobserved)
            }
        }

        let libc = crate::peers::known()[0].name;
        let figures = crate::peers::FixedSizeVisitor::with(Tiny, libc).unwrap();
        assert_eq!(figures.get(&RESERVE_MS), None);
    }
}
