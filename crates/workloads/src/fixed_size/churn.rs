//! `churn`: what is left of a burst after most of it was freed, while the rest is replaced for long.
//!
//! A million objects are allocated at once; nine in ten, chosen at random, are freed; then the rest is
//! replaced at random, one object at a time, which is what is timed; then all are freed; then each thread asks
//! the allocator to give back what it keeps. After each of these steps the watch looks at the memory held.

use super::Figures;
use super::places::{Indices, Places, empty, fill, replace};
use crate::crew;
use crate::random::Random;
use crate::watch::Watch;
use peers::{FixedSize, FixedSizeLocal, OBJECT};
use std::sync::OnceLock;

/// How much of it, on each thread.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// Objects of the burst.
    pub burst: usize,
    /// Those that are not freed after it.
    pub live: usize,
    /// Replacements of one of these.
    pub replacements: usize,
}

/// As the contract has it.
pub const FULL: Amount = Amount { burst: 1_000_000, live: 100_000, replacements: 5_000_000 };

/// The steps after which memory is looked at. The last one is there only where the allocator can be asked.
pub const STEPS: [&str; 5] = ["burst", "frees", "replacements", "all_freed", "trimmed"];

struct Seat<O> {
    places: Places<O>,
    /// What is freed after the burst.
    freed: Indices,
    /// What stays and is replaced.
    stays: Indices,
    replaced: Indices,
}

/// Runs it.
pub fn run<A: FixedSize>(amount: Amount, threads: usize, watch: &dyn Watch) -> Figures {
    let store = OnceLock::new();
    let walls = crew::run(
        threads,
        watch,
        |index| {
            let mut random = Random::stream(index as u64);
            let mut freed = Indices::shuffled(amount.burst, &mut random);
            let stays = freed.split_off(amount.burst - amount.live);
            let replaced = stays.drawn_from(amount.replacements, &mut random);
            Seat { places: Places::<A::Object>::touched(amount.burst), freed, stays, replaced }
        },
        |worker, Seat { mut places, freed, stays, replaced }| {
            let [after_burst, after_frees, after_replacements, after_all, after_trim] = STEPS;
            let local = store.get_or_init(|| A::new(OBJECT)).local();
            fill(&local, places.all());
            worker.step(after_burst);
            // SAFETY: all places are full, and the indices were made for them.
            unsafe { empty(&local, &mut places, &freed) };
            worker.step(after_frees);
            // SAFETY: these places are full still, and a replacement leaves its place full.
            let wall = worker.measured(|| unsafe { replace(&local, &mut places, &replaced) });
            worker.step(after_replacements);
            // SAFETY: they are full, and not used after.
            unsafe { empty(&local, &mut places, &stays) };
            worker.step(after_all);
            let trims = local.trim();
            // Every thread has given back its own when the last one looks.
            worker.lead(|| ());
            if trims {
                worker.step(after_trim);
            }
            wall
        },
    );
    Figures {
        ops: (threads * amount.replacements) as u64,
        wall: walls[0],
        live_bytes: (threads * amount.live * OBJECT.size()) as u64,
        seconds: None,
        walk: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Audited, audited};
    use std::sync::Mutex;

    const SMALL: Amount = Amount { burst: 1000, live: 100, replacements: 5000 };

    /// Writes down how many objects live at each step.
    #[derive(Default)]
    struct Live(Mutex<Vec<(&'static str, u64)>>);

    impl Watch for Live {
        fn step(&self, name: &'static str) {
            self.0.lock().unwrap().push((name, crate::testing::live()));
        }
    }

    #[test]
    fn the_steps_are_those_of_the_contract() {
        for threads in [1, 2] {
            let live = Live::default();
            let (figures, audit) = audited(|| run::<Audited>(SMALL, threads, &live));
            let threads = threads as u64;
            let expected = [
                ("burst", 1000 * threads),
                ("frees", 100 * threads),
                ("replacements", 100 * threads),
                ("all_freed", 0),
                ("trimmed", 0),
            ];
            assert_eq!(*live.0.lock().unwrap(), expected);
            assert_eq!(figures.ops, 5000 * threads);
            assert_eq!(figures.live_bytes, 100 * threads * OBJECT.size() as u64);
            assert_eq!((audit.allocated, audit.freed), (6000 * threads, 6000 * threads));
            assert_eq!((audit.trims, audit.freed_elsewhere), (threads, 0));
        }
    }

    #[test]
    fn only_what_stayed_is_replaced_and_all_of_it_may_be() {
        let (_, audit) = audited(|| run::<Audited>(SMALL, 1, &crate::watch::Unwatched));
        let first: std::collections::HashSet<u64> =
            audit.words_freed[..900].iter().copied().collect();
        let replaced: std::collections::HashSet<u64> =
            audit.words_freed[900..5900].iter().copied().collect();
        assert_eq!((first.len(), replaced.len()), (900, 100));
        assert!(first.is_disjoint(&replaced));
    }
}
