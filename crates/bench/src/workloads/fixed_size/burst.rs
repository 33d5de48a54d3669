//! `burst-alloc`, `burst-alloc-cold` and `burst-free`: a million objects at once, then freed in
//! random order.
//!
//! One program, of which one part is measured. In `burst-alloc-cold` the allocator gets its memory
//! from the system during that part; in `burst-alloc` it has had as many objects before.

use super::prepared::{Indices, ObjectSlots, empty, fill};
use crate::peers::{FixedSize, OBJECT};
use crate::workloads::measurement::{LIVE_BYTES, Measurement};
use crate::workloads::observer::Observer;
use crate::workloads::random::Random;
use crate::workloads::thread_group;
use std::sync::OnceLock;

/// Objects of each thread.
pub const OBJECTS: usize = 1_000_000;

/// The part that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BurstPart {
    /// Allocating all objects for the first time.
    FirstAlloc,
    /// Allocating all objects again.
    Alloc,
    /// Freeing all objects, in random order.
    Free,
}

/// Runs it with `objects` objects on each thread.
pub fn run<A: FixedSize>(
    part: BurstPart,
    objects: usize,
    threads: usize,
    observer: &dyn Observer,
) -> Measurement {
    let store = OnceLock::new();
    let walls = thread_group::run(
        threads,
        observer,
        |index| {
            let order = Indices::shuffled(objects, &mut Random::stream(index as u64));
            (ObjectSlots::<A::Object>::touched(objects), order)
        },
        |worker, (mut places, order)| {
            let local = store.get_or_init(|| A::new(OBJECT)).local();
            let alloc = |places: &mut ObjectSlots<A::Object>| fill(&local, places.all());
            // SAFETY: `alloc` has filled all places, and the order was made for the same number.
            let free =
                |places: &mut ObjectSlots<A::Object>| unsafe { empty(&local, places, &order) };
            match part {
                BurstPart::FirstAlloc | BurstPart::Alloc => {
                    if part == BurstPart::Alloc {
                        alloc(&mut places);
                        free(&mut places);
                        worker.lead(|| ());
                    }
                    let wall = worker.measured(|| alloc(&mut places));
                    free(&mut places);
                    wall
                }
                BurstPart::Free => {
                    alloc(&mut places);
                    worker.measured(|| free(&mut places))
                }
            }
        },
    );
    Measurement::timed((threads * objects) as u64, walls[0])
        .with(&LIVE_BYTES, (threads * objects * OBJECT.size()) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{Audited, audited};

    #[test]
    fn all_live_at_once_and_are_freed_once_in_random_order() {
        for (part, bursts) in
            [(BurstPart::FirstAlloc, 1), (BurstPart::Alloc, 2), (BurstPart::Free, 1)]
        {
            let (figures, audit) = audited(|| run::<Audited>(part, 1000, 1, &Unobserved));
            let objects = 1000 * bursts;
            assert_eq!((figures.ops(), audit.allocated, audit.freed), (1000, objects, objects));
            assert_eq!(audit.most_live * OBJECT.size() as u64, figures.live_bytes());
            for words in audit.words_freed.chunks(1000) {
                let mut words = words.to_vec();
                assert!(!words.is_sorted());
                words.sort_unstable();
                assert_eq!(words, (0..1000).collect::<Vec<u64>>());
            }
        }
    }

    #[test]
    fn each_thread_has_its_own() {
        let (figures, audit) = audited(|| run::<Audited>(BurstPart::Free, 500, 3, &Unobserved));
        assert_eq!((figures.ops(), audit.freed, audit.freed_elsewhere), (1500, 1500, 0));
    }
}
