//! The ranges that the kernel refused to unmap, and how threads merge them.
//!
//! A *run* is a number of contiguous granules. Its record consists of two entries: those of its
//! first and its last granule, which no allocator uses. So a record needs no memory.
//!
//! # Invariants
//!
//! 1. The entries of a run's first and last granule hold [`mark`] of its length. Those between them
//!    are 0. No other entry has the mark's highest bit.
//! 2. A run belongs to the thread that exchanges its first entry for 0. That thread clears the last
//!    entry too, before it unmaps the run or enters it again. So an entry of a last granule may be
//!    out of date, but that of a first granule never is.
//! 3. The store to the first entry hands the run over. So it is the last store of a thread that
//!    enters a run, and happens once.

use crate::sync::{AtomicUsize, Ordering, fence, mutant, order};

/// Marks an entry as part of a run. It is the highest bit, which no address has.
pub const REFUSED_RUN: usize = 1 << (usize::BITS - 1);

/// How often at most a thread searches for neighbours after the kernel refused.
const MAX_ROUNDS: usize = 8;

/// A word for each granule that the process ever used.
pub trait RunEntries {
    /// The entry of a granule. `None` if there is none.
    fn entry(&self, granule: usize) -> Option<&AtomicUsize>;
}

/// Contiguous granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The number of the first granule.
    pub first: usize,
    /// How many granules there are, not 0.
    pub count: usize,
}

/// The entry of the first and of the last granule of a run of `count` granules.
pub const fn mark(count: usize) -> usize {
    REFUSED_RUN | count
}

impl Run {
    /// The number of the last granule.
    pub const fn last(self) -> usize {
        self.first + self.count - 1
    }

    /// Enters the run, which this thread owns.
    fn enter(self, entries: &impl RunEntries) {
        // Release pairs with the Acquire in `claim`: the memory was discarded.
        let release = order(Ordering::Release, "enter run: relaxed");
        let store = |granule| {
            if let Some(entry) = entries.entry(granule) {
                entry.store(mark(self.count), release);
            }
        };
        if self.count > 1 || mutant("enter run: one granule stored twice") {
            store(self.last());
        }
        store(self.first);
    }

    /// Takes the run, if it is still entered. Returns whether this thread owns it now.
    fn claim(self, entries: &impl RunEntries) -> bool {
        let acquire = order(Ordering::Acquire, "claim run: relaxed");
        let claimed = entries.entry(self.first).is_some_and(|entry| {
            entry.compare_exchange(mark(self.count), 0, acquire, Ordering::Relaxed).is_ok()
        });
        if let Some(entry) = entries.entry(self.last()).filter(|_| claimed && self.count > 1) {
            entry.store(0, Ordering::Relaxed);
        }
        claimed
    }

    /// The run before this one, which may be gone.
    fn before(self, entries: &impl RunEntries) -> Option<Self> {
        let last = self.first.checked_sub(1)?;
        let count = length_at(entries, last)?;
        Some(Self { first: self.first.checked_sub(count)?, count })
    }

    /// The run behind this one, which may be gone.
    fn behind(self, entries: &impl RunEntries) -> Option<Self> {
        let first = self.first + self.count;
        Some(Self { first, count: length_at(entries, first)? })
    }

    /// Enters the run, which this thread owns. Returns `false` if there may be a run next to it and
    /// this thread has claimed the run again.
    ///
    /// Two threads may enter neighbours at the same time. Each enters its run and then looks for
    /// the other's; at least one of them finds it.
    fn enter_unless_adjacent(self, entries: &impl RunEntries) -> bool {
        self.enter(entries);
        if !mutant("enter run: unordered") {
            fence(Ordering::SeqCst);
        }
        let is_alone = self.before(entries).is_none() && self.behind(entries).is_none();
        is_alone || !self.claim(entries)
    }

    /// This run, which this thread owns, and all runs next to it, which it takes.
    #[must_use]
    pub fn with_neighbours(mut self, entries: &impl RunEntries) -> Self {
        while let Some(run) = self.before(entries).filter(|run| run.claim(entries)) {
            self = Self { first: run.first, count: run.count + self.count };
        }
        while let Some(run) = self.behind(entries).filter(|run| run.claim(entries)) {
            self.count += run.count;
        }
        self
    }

    /// Leaves the run, which this thread owns and the kernel refused to unmap, to a thread that
    /// unmaps a neighbour. If there is a neighbour already, takes it and tries again.
    pub fn leave(mut self, entries: &impl RunEntries, mut unmap: impl FnMut(Self) -> bool) {
        // After a fork, an entry may stay out of date, so the number of rounds is limited.
        for _ in 0..MAX_ROUNDS {
            if self.enter_unless_adjacent(entries) {
                return;
            }
            self = self.with_neighbours(entries);
            if unmap(self) {
                return;
            }
        }
        self.enter(entries);
    }
}

/// The length of the run that begins or ends with this granule.
fn length_at(entries: &impl RunEntries, granule: usize) -> Option<usize> {
    let entry = entries.entry(granule)?.load(Ordering::Relaxed);
    (entry & REFUSED_RUN != 0).then_some(entry & !REFUSED_RUN)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    impl RunEntries for Vec<AtomicUsize> {
        fn entry(&self, granule: usize) -> Option<&AtomicUsize> {
            self.get(granule)
        }
    }

    fn entries(count: usize) -> Vec<AtomicUsize> {
        (0..count).map(|_| AtomicUsize::new(0)).collect()
    }

    fn run(first: usize, count: usize) -> Run {
        Run { first, count }
    }

    #[test]
    fn a_range_takes_the_refused_runs_on_both_sides() {
        let entries = entries(10);
        for run in [run(0, 2), run(2, 1), run(6, 3)] {
            run.enter(&entries);
        }
        let whole = run(3, 3).with_neighbours(&entries);
        assert_eq!(whole, run(0, 9));
        assert!((0..10).all(|granule| length_at(&entries, granule).is_none()), "none is left");
        whole.enter(&entries);
        assert_eq!([0, 8].map(|granule| length_at(&entries, granule)), [Some(9); 2]);
        assert!(whole.claim(&entries) && !whole.claim(&entries));
    }

    #[test]
    fn threads_that_leave_neighbours_leave_one_run() {
        const PARTS: usize = 8;
        let entries = entries(PARTS);
        for _ in 0..if cfg!(miri) { 3 } else { 300 } {
            std::thread::scope(|scope| {
                for number in 0..PARTS {
                    let entries = &entries;
                    scope.spawn(move || {
                        let mut run = run(number, 1).with_neighbours(entries);
                        // Without the bound on rounds, which a slow machine may reach.
                        while !run.enter_unless_adjacent(entries) {
                            run = run.with_neighbours(entries);
                        }
                    });
                }
            });
            assert!(run(0, PARTS).claim(&entries), "one run of all granules is left");
        }
    }
}
