//! Counts of the locks that a request takes.

use std::cell::Cell;

/// The object that a lock guards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarded {
    /// The list of sessions.
    SessionList,
    /// The configuration.
    Configuration,
    /// The buffers for replies.
    Replies,
    /// The heap.
    Heap,
}

/// The guarded objects, with their names in `locks_per_op`.
const GUARDED: [(Guarded, &str); 4] = [
    (Guarded::SessionList, "session_list"),
    (Guarded::Configuration, "configuration"),
    (Guarded::Replies, "replies"),
    (Guarded::Heap, "heap"),
];

/// One worker's counts of the locks that it takes.
#[derive(Debug, Default)]
pub struct Tally([Cell<u64>; GUARDED.len()]);

impl Tally {
    /// Counts a lock. Called by the code that takes it.
    #[inline(always)]
    pub fn takes(&self, lock: Guarded) {
        let count = &self.0[lock as usize];
        count.set(count.get() + 1);
    }

    pub fn counts(&self) -> [u64; GUARDED.len()] {
        self.0.each_ref().map(Cell::get)
    }
}

/// The label of all locks together in `locks_per_op`.
pub const ALL_LOCKS: &str = "total";

/// Lock acquisitions for each of `requests` requests, from the counts of all workers: the total,
/// and a figure for each guarded object.
pub(super) fn locks_per_request(
    workers: impl IntoIterator<Item = [u64; GUARDED.len()]>,
    requests: u64,
) -> Vec<(&'static str, f64)> {
    let mut sums = [0; GUARDED.len()];
    for counts in workers {
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    let each = guarded().into_iter().zip(sums.map(|sum| sum as f64 / requests as f64));
    let total = sums.iter().sum::<u64>() as f64 / requests as f64;
    std::iter::once((ALL_LOCKS, total)).chain(each).collect()
}

/// The names of the guarded objects.
pub fn guarded() -> [&'static str; GUARDED.len()] {
    GUARDED.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_counted_under_its_name() {
        let tally = Tally::default();
        for (index, (lock, _)) in GUARDED.iter().enumerate() {
            for _ in 0..=index {
                tally.takes(*lock);
            }
        }
        let locks = locks_per_request([tally.counts(), tally.counts()], 4);
        let expected = [
            ("total", 5.0),
            ("session_list", 0.5),
            ("configuration", 1.0),
            ("replies", 1.5),
            ("heap", 2.0),
        ];
        assert_eq!(locks, expected);
    }
}
