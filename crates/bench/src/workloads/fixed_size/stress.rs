//! `stress`: the same work as the array allocator's own stress test.
//!
//! Each thread has a number of elements. In a cycle it allocates all of them. Then it frees a fifth
//! of them, from the first on, and allocates these again; then the same with a quarter, a third and
//! a half. Then it does the same with every 50th, 40th, 30th, 20th and 10th element. Then it frees
//! all. All threads use one allocator.

use super::prepared::{ObjectSlots, fill};
use crate::peers::{About, FixedSize, FixedSizeLocal, FixedSizeVisitor, OBJECT, UnknownAllocator};
use crate::workloads::measurement::{LIVE_BYTES, Measurement};
use crate::workloads::observer::Observer;
use crate::workloads::setting::Effort;
use crate::workloads::thread_group;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The default number of elements of each thread.
pub const ELEMENTS: usize = 10_000;

/// The parts that are replaced, as divisors of the whole.
const DIVISORS: [usize; 4] = [5, 4, 3, 2];

/// The distances of the elements that are replaced after that.
const STRIDES: [usize; 5] = [50, 40, 30, 20, 10];

/// The counts of one thread so far. Other threads may read them at any time.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ThreadCounts {
    allocated: AtomicU64,
    freed: AtomicU64,
}

impl ThreadCounts {
    /// Objects allocated.
    pub fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Objects freed.
    pub fn freed(&self) -> u64 {
        self.freed.load(Ordering::Relaxed)
    }

    // Only one thread writes, so no atomic addition is needed. The order does not matter: these are
    // only counts.
    fn add(counter: &AtomicU64, more: usize) {
        counter.store(counter.load(Ordering::Relaxed) + more as u64, Ordering::Relaxed);
    }
}

/// The number of allocations of one cycle, and of its frees.
pub fn pairs_a_cycle(elements: usize) -> u64 {
    let parts: usize = DIVISORS.iter().map(|divisor| elements / divisor).sum();
    let strides: usize = STRIDES.iter().map(|stride| elements.div_ceil(*stride)).sum();
    (elements + parts + strides) as u64
}

/// Runs it for a time. Each thread finishes the cycle that it is in.
pub(crate) fn run<A: FixedSize>(
    threads: usize,
    elements: usize,
    time: Duration,
    observer: &dyn Observer,
) -> Measurement {
    let counts: Vec<ThreadCounts> = (0..threads).map(|_| ThreadCounts::default()).collect();
    let wall = cycles::<A, _>(&counts, elements, observer, || {
        let began = Instant::now();
        move || began.elapsed() < time
    });
    figures(threads, elements, counts.iter().map(ThreadCounts::allocated).sum(), wall)
}

/// The figures of a run with this number of allocations and threads.
pub(crate) fn figures(threads: usize, elements: usize, ops: u64, wall: Duration) -> Measurement {
    let live_bytes = (threads * elements * OBJECT.size()) as f64;
    Measurement::timed(ops, wall).with(&LIVE_BYTES, live_bytes)
}

/// The duration of a run.
pub(crate) fn time(effort: Effort) -> Duration {
    Duration::from_millis(if effort.is_quick() { 300 } else { 1000 })
}

/// Runs it with the allocator called `allocator`, on one thread for each count, until `stop` is
/// set. Returns the time from the common start until the last thread finishes.
pub fn until_stopped(
    allocator: &str,
    elements: usize,
    counts: &[ThreadCounts],
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<Duration, UnknownAllocator> {
    struct UntilStopped<'c> {
        elements: usize,
        counts: &'c [ThreadCounts],
        stop: &'c AtomicBool,
        observer: &'c dyn Observer,
    }

    impl FixedSizeVisitor for UntilStopped<'_> {
        type Output = Duration;

        fn visit<A: FixedSize>(self, _: &'static About) -> Duration {
            cycles::<A, _>(self.counts, self.elements, self.observer, || {
                || !self.stop.load(Ordering::Relaxed)
            })
        }
    }

    UntilStopped { elements, counts, stop, observer }.with(allocator)
}

/// Runs cycles on one thread for each count. Each thread calls `begin` when it begins, and
/// continues as long as the result says so.
fn cycles<A: FixedSize, G: Fn() -> bool>(
    counts: &[ThreadCounts],
    elements: usize,
    observer: &dyn Observer,
    begin: impl Fn() -> G + Sync,
) -> Duration {
    let store = OnceLock::new();
    let walls = thread_group::run(
        counts.len(),
        observer,
        |_| ObjectSlots::<A::Object>::touched(elements),
        |worker, mut places| {
            let local = store.get_or_init(|| A::new(OBJECT)).local();
            worker.measured(|| {
                let go_on = begin();
                loop {
                    // SAFETY: the places are this worker's, and a cycle leaves them empty.
                    unsafe { cycle(&local, places.all(), &counts[worker.index]) };
                    if !go_on() {
                        break;
                    }
                }
            })
        },
    );
    walls[0]
}

/// One cycle: the places are empty before and after.
///
/// # Safety
/// No other code frees the objects while they are in the places.
unsafe fn cycle<L: FixedSizeLocal>(
    local: &L,
    places: &mut [MaybeUninit<L::Object>],
    count: &ThreadCounts,
) {
    fill(local, places);
    ThreadCounts::add(&count.allocated, places.len());
    for divisor in DIVISORS {
        let part = places.len() / divisor;
        // SAFETY: all places are full.
        unsafe { empty_every(local, &places[..part], 1) };
        ThreadCounts::add(&count.freed, part);
        fill(local, &mut places[..part]);
        ThreadCounts::add(&count.allocated, part);
    }
    for stride in STRIDES {
        let part = places.len().div_ceil(stride);
        // SAFETY: all places are full.
        unsafe { empty_every(local, places, stride) };
        ThreadCounts::add(&count.freed, part);
        fill_every(local, places, stride);
        ThreadCounts::add(&count.allocated, part);
    }
    // SAFETY: all places are full.
    unsafe { empty_every(local, places, 1) };
    ThreadCounts::add(&count.freed, places.len());
}

#[inline(never)]
fn fill_every<L: FixedSizeLocal>(local: &L, places: &mut [MaybeUninit<L::Object>], stride: usize) {
    for (word, place) in (0..).zip(places.iter_mut().step_by(stride)) {
        place.write(local.alloc(word));
    }
}

/// Frees every `step`th object.
///
/// # Safety
/// Each of these places has an object of this allocator, which is not used afterwards.
#[inline(never)]
unsafe fn empty_every<L: FixedSizeLocal>(
    local: &L,
    places: &[MaybeUninit<L::Object>],
    stride: usize,
) {
    for place in places.iter().step_by(stride) {
        // SAFETY: the caller's promise.
        unsafe { local.free(place.assume_init()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{Audited, audited};

    /// Runs cycles until each thread has asked this number of times whether to continue.
    fn some_cycles(threads: usize, elements: usize, cycles: usize) -> Vec<ThreadCounts> {
        let counts: Vec<ThreadCounts> = (0..threads).map(|_| ThreadCounts::default()).collect();
        super::cycles::<Audited, _>(&counts, elements, &Unobserved, || {
            let asked = std::cell::Cell::new(0);
            move || asked.replace(asked.get() + 1) + 1 < cycles
        });
        counts
    }

    #[test]
    fn a_cycle_replaces_the_parts_of_the_seed_and_leaves_nothing() {
        // 100 + (20 + 25 + 33 + 50) + (2 + 3 + 4 + 5 + 10)
        assert_eq!(pairs_a_cycle(100), 252);
        let (counts, audit) = audited(|| some_cycles(1, 100, 1));
        assert_eq!((counts[0].allocated(), counts[0].freed()), (252, 252));
        assert_eq!((audit.allocated, audit.freed, audit.most_live), (252, 252, 100));
        // After the first hundred objects: a fifth from the first on, then a quarter, with new
        // words each time.
        let expected: Vec<u64> = (0..20).chain(0..20).chain(20..25).collect();
        assert_eq!(audit.words_freed[..45], expected);
    }

    #[test]
    fn every_thread_counts_what_it_does() {
        let (counts, audit) = audited(|| some_cycles(3, 1000, 4));
        for count in &counts {
            assert_eq!(count.allocated(), 4 * pairs_a_cycle(1000));
            assert_eq!(count.freed(), count.allocated());
        }
        assert_eq!(audit.allocated, 3 * 4 * pairs_a_cycle(1000));
        assert_eq!(audit.freed, audit.allocated);
        assert!(audit.most_live <= 3 * 1000);
    }

    #[test]
    fn it_ends_when_its_time_is_over_or_when_it_is_told_to() {
        let (figures, audit) =
            audited(|| run::<Audited>(2, 50, Duration::from_millis(1), &Unobserved));
        assert_eq!(figures.ops(), audit.allocated);
        assert_eq!(figures.ops() % pairs_a_cycle(50), 0);
        let counts = [ThreadCounts::default()];
        let stopped = AtomicBool::new(true);
        until_stopped("slab", 50, &counts, &stopped, &Unobserved).unwrap();
        assert_eq!(counts[0].allocated(), pairs_a_cycle(50));
    }
}
