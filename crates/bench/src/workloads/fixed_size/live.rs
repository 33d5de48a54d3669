//! `pair`, `lifo`, `fifo`, `random`: one object is allocated and one is freed, while 10,000 are
//! live.

use super::prepared::{Indices, ObjectSlots, fill, replace};
use crate::peers::{FixedSize, FixedSizeLocal, OBJECT};
use crate::workloads::measurement::{LIVE_BYTES, Measurement};
use crate::workloads::observer::Observer;
use crate::workloads::random::Random;
use crate::workloads::setting::Effort;
use crate::workloads::thread_group::{self, Worker};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::time::Duration;

/// Live objects on each thread.
pub const LIVE: usize = 10_000;

/// The number of random draws, after which `random` begins again with the first.
const DRAWS: usize = 1 << 16;

/// The choice of the object to free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeOrder {
    /// The object that was just allocated, while [`LIVE`] others are live.
    AtOnce,
    /// [`LIVE`] objects are allocated, then freed from last to first.
    Lifo,
    /// [`LIVE`] objects are allocated, then freed from first to last.
    Fifo,
    /// A random one of [`LIVE`] objects. A new object replaces it.
    Random,
}

impl FreeOrder {
    /// The number of pairs in one round.
    fn round(self) -> usize {
        if self == Self::Random { DRAWS } else { LIVE }
    }

    /// The number of rounds of each thread. It is large enough that the fastest allocators take a
    /// tenth of a second, and that each of many threads runs on its core several times.
    pub fn rounds(self, threads: usize, effort: Effort) -> usize {
        let pairs: usize = if effort.is_quick() { 16_000_000 } else { 64_000_000 };
        let pairs = if threads > 4 { 2 * pairs } else { pairs };
        pairs.div_ceil(threads * self.round())
    }

    /// The results of `rounds` rounds on each thread.
    pub fn figures(self, threads: usize, rounds: usize, wall: Duration) -> Measurement {
        let beside = usize::from(self == Self::AtOnce);
        Measurement::timed((threads * rounds * self.round()) as u64, wall)
            .with(&LIVE_BYTES, (threads * (LIVE + beside) * OBJECT.size()) as f64)
    }
}

/// A worker's data.
struct WorkerState<O> {
    places: ObjectSlots<O>,
    draws: Indices,
}

/// Runs it.
pub fn run<A: FixedSize>(
    order: FreeOrder,
    threads: usize,
    effort: Effort,
    observer: &dyn Observer,
) -> Measurement {
    rounds::<A>(order, threads, order.rounds(threads, effort), observer)
}

fn rounds<A: FixedSize>(
    order: FreeOrder,
    threads: usize,
    rounds: usize,
    observer: &dyn Observer,
) -> Measurement {
    let store = OnceLock::new();
    let walls = thread_group::run(
        threads,
        observer,
        |index| WorkerState {
            places: ObjectSlots::<A::Object>::touched(LIVE),
            draws: Indices::drawn(DRAWS, LIVE, &mut Random::stream(index as u64)),
        },
        |worker: Worker<'_, '_>, mut state| {
            let local = store.get_or_init(|| A::new(OBJECT)).local();
            let places = &mut state.places;
            match order {
                FreeOrder::AtOnce | FreeOrder::Random => {
                    fill(&local, places.all());
                    let wall = worker.measured(|| {
                        for _ in 0..rounds {
                            if order == FreeOrder::AtOnce {
                                pairs(&local);
                            } else {
                                // SAFETY: the index was drawn below the number of places, and the
                                // places are full.
                                unsafe { replace(&local, places, &state.draws) };
                            }
                        }
                    });
                    // SAFETY: the places are full.
                    unsafe { empty(&local, places.all().iter()) };
                    wall
                }
                FreeOrder::Lifo => worker.measured(|| {
                    for _ in 0..rounds {
                        fill(&local, places.all());
                        // SAFETY: just filled.
                        unsafe { empty(&local, places.all().iter().rev()) };
                    }
                }),
                FreeOrder::Fifo => worker.measured(|| {
                    for _ in 0..rounds {
                        fill(&local, places.all());
                        // SAFETY: just filled.
                        unsafe { empty(&local, places.all().iter()) };
                    }
                }),
            }
        },
    );
    order.figures(threads, rounds, walls[0])
}

/// Frees the object of each place.
///
/// # Safety
/// Each place has an object of this allocator, which is not used afterwards.
#[inline(always)]
unsafe fn empty<'p, L: FixedSizeLocal>(
    local: &L,
    places: impl Iterator<Item = &'p MaybeUninit<L::Object>>,
) where
    L::Object: 'p,
{
    for place in places {
        // SAFETY: the caller's promise.
        unsafe { local.free(place.assume_init()) };
    }
}

#[inline(never)]
fn pairs<L: FixedSizeLocal>(local: &L) {
    for word in 0..LIVE as u64 {
        let object = local.alloc(word);
        // SAFETY: the object came from this allocator and is not used afterwards.
        unsafe { local.free(object) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{Audit, audited};

    const ORDERS: [FreeOrder; 4] =
        [FreeOrder::AtOnce, FreeOrder::Lifo, FreeOrder::Fifo, FreeOrder::Random];

    #[test]
    fn each_operation_is_one_allocation_and_one_free_and_nothing_is_left() {
        for order in ORDERS {
            for threads in [1, 3] {
                let (figures, audit) = audited(|| {
                    rounds::<crate::workloads::testing::Audited>(order, threads, 2, &Unobserved)
                });
                assert_eq!(figures.ops(), (threads * 2 * order.round()) as u64);
                // The objects that stay live, or that are there before the first replacement, are
                // not operations.
                let beside = match order {
                    FreeOrder::AtOnce | FreeOrder::Random => (threads * LIVE) as u64,
                    FreeOrder::Lifo | FreeOrder::Fifo => 0,
                };
                assert_eq!(audit.allocated, figures.ops() + beside, "{order:?}");
                assert_eq!(audit.freed, audit.allocated, "{order:?}");
            }
        }
    }

    #[test]
    fn no_more_objects_live_than_are_said_to() {
        for order in ORDERS {
            let (figures, audit): (Measurement, Audit) =
                audited(|| rounds::<crate::workloads::testing::Audited>(order, 1, 1, &Unobserved));
            assert_eq!(audit.most_live as usize * OBJECT.size(), figures.live_bytes() as usize);
        }
    }

    #[test]
    fn the_orders_are_what_their_names_say() {
        let freed = |order| {
            let (_, audit) =
                audited(|| rounds::<crate::workloads::testing::Audited>(order, 1, 1, &Unobserved));
            audit.words_freed
        };
        let up: Vec<u64> = (0..LIVE as u64).collect();
        let down: Vec<u64> = up.iter().rev().copied().collect();
        assert_eq!(freed(FreeOrder::Fifo), up);
        assert_eq!(freed(FreeOrder::Lifo), down);
        assert_eq!(freed(FreeOrder::AtOnce)[..LIVE], up);
        let random = freed(FreeOrder::Random);
        assert_eq!(random.len(), DRAWS + LIVE);
        assert!(random != freed(FreeOrder::AtOnce) && random[..LIVE] != up);
    }

    #[test]
    fn quick_runs_are_shorter_and_no_thread_has_nothing_to_do() {
        for order in ORDERS {
            for threads in [1, 2, 16, crate::workloads::catalogue::MOST_THREADS] {
                let quick = order.rounds(threads, Effort::Quick);
                assert!((1..=order.rounds(threads, Effort::Full)).contains(&quick));
            }
        }
    }
}
