//! `churn`: the memory that is left of a burst after most of it was freed, while the rest is
//! replaced many times.
//!
//! A million objects are allocated at once. Nine in ten, chosen at random, are freed. Then random
//! objects of the rest are replaced, one at a time; this part is timed. Then all objects are freed.
//! Then each thread asks the allocator to release what it keeps. After each of these steps the
//! observer reads the resident memory.

use super::prepared::{Indices, ObjectSlots, empty, fill, replace};
use crate::peers::{FixedSize, FixedSizeLocal, OBJECT};
use crate::workloads::measurement::{LIVE_BYTES, Measurement};
use crate::workloads::observer::Observer;
use crate::workloads::random::Random;
use crate::workloads::thread_group;
use std::sync::OnceLock;

/// The amount of work on each thread.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// Objects of the burst.
    pub burst: usize,
    /// Objects that are not freed after the burst.
    pub live: usize,
    /// Replacements among these.
    pub replacements: usize,
}

/// The full amount of work.
pub const FULL: Amount = Amount { burst: 1_000_000, live: 100_000, replacements: 5_000_000 };

/// The steps after which resident memory is read. The last one exists only if the allocator has a
/// call to release memory.
pub const STEPS: [&str; 5] = ["burst", "frees", "replacements", "all_freed", "trimmed"];

struct WorkerState<O> {
    places: ObjectSlots<O>,
    /// The objects that are freed after the burst.
    freed: Indices,
    /// The objects that stay and are replaced.
    stays: Indices,
    replaced: Indices,
}

/// Runs it.
pub fn run<A: FixedSize>(amount: Amount, threads: usize, observer: &dyn Observer) -> Measurement {
    let store = OnceLock::new();
    let walls = thread_group::run(
        threads,
        observer,
        |index| {
            let mut random = Random::stream(index as u64);
            let mut freed = Indices::shuffled(amount.burst, &mut random);
            let stays = freed.split_off(amount.burst - amount.live);
            let replaced = stays.drawn_from(amount.replacements, &mut random);
            WorkerState {
                places: ObjectSlots::<A::Object>::touched(amount.burst),
                freed,
                stays,
                replaced,
            }
        },
        |worker, WorkerState { mut places, freed, stays, replaced }| {
            let [after_burst, after_frees, after_replacements, after_all, after_trim] = STEPS;
            let local = store.get_or_init(|| A::new(OBJECT)).local();
            fill(&local, places.all());
            worker.step(after_burst);
            // SAFETY: all places are full, and the indices were made for them.
            unsafe { empty(&local, &mut places, &freed) };
            worker.step(after_frees);
            // SAFETY: these places are still full, and a replacement leaves its place full.
            let wall = worker.measured(|| unsafe { replace(&local, &mut places, &replaced) });
            worker.step(after_replacements);
            // SAFETY: they are full, and not used after.
            unsafe { empty(&local, &mut places, &stays) };
            worker.step(after_all);
            let trims = local.trim();
            // Every thread has released its own memory when resident memory is read.
            worker.lead(|| ());
            if trims {
                worker.step(after_trim);
            }
            wall
        },
    );
    Measurement::timed((threads * amount.replacements) as u64, walls[0])
        .with(&LIVE_BYTES, (threads * amount.live * OBJECT.size()) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::{Audited, LiveSteps, audited};

    const SMALL: Amount = Amount { burst: 1000, live: 100, replacements: 5000 };

    #[test]
    fn the_steps_are_those_of_the_contract() {
        for threads in [1, 2] {
            let live = LiveSteps::default();
            let (figures, audit) = audited(|| run::<Audited>(SMALL, threads, &live));
            let threads = threads as u64;
            let expected = [
                ("burst", 1000 * threads),
                ("frees", 100 * threads),
                ("replacements", 100 * threads),
                ("all_freed", 0),
                ("trimmed", 0),
            ];
            assert_eq!(live.steps(), expected);
            assert_eq!(figures.ops(), 5000 * threads);
            assert_eq!(figures.live_bytes(), 100 * threads * OBJECT.size() as u64);
            assert_eq!((audit.allocated, audit.freed), (6000 * threads, 6000 * threads));
            assert_eq!((audit.trims, audit.freed_elsewhere), (threads, 0));
        }
    }

    #[test]
    fn only_what_stayed_is_replaced_and_all_of_it_may_be() {
        let (_, audit) =
            audited(|| run::<Audited>(SMALL, 1, &crate::workloads::observer::Unobserved));
        let first: std::collections::HashSet<u64> =
            audit.words_freed[..900].iter().copied().collect();
        let replaced: std::collections::HashSet<u64> =
            audit.words_freed[900..5900].iter().copied().collect();
        assert_eq!((first.len(), replaced.len()), (900, 100));
        assert!(first.is_disjoint(&replaced));
    }
}
