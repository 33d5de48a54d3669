//! Unmapping memory in spite of the limit on mappings.
//!
//! To unmap a range in the middle of a mapping, the kernel splits the mapping. It refuses at the
//! limit on the number of mappings (`vm.max_map_count`). The range's memory then goes back, and its
//! addresses stay mapped as a *refused run*. They are unmapped together with a neighbour that is
//! unmapped later: once the run reaches the edge of its mapping, nothing has to be split.
//!
//! Runs consist of whole granules. So do the chunks of hardened arenas, the ranges of slabs, and
//! sealed chunks. The segment map records a run in the entries of its granules, which are no longer
//! in use. So a record needs no memory. The addresses of other ranges are lost.
//!
//! # Invariants
//!
//! 1. The owner entries of a run's first and last granule hold [`mark`] of its length. Those
//!    between them are 0. No other entry has the mark's highest bit.
//! 2. A run belongs to the thread that exchanges its first entry for 0. That thread clears the last
//!    entry too, before it unmaps the run or enters it again. So an entry of a last granule may be
//!    out of date, but that of a first granule never is.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering, fence};

use super::layout::SEGMENT_GRANULE;
use super::os;
use super::segment_map::{REFUSED_RUN, owner_entry};

/// Whether a run was ever entered. Until then, threads don't search for runs.
static ANY_RUN: AtomicBool = AtomicBool::new(false);

/// How often at most a thread searches for neighbours after the kernel refused.
const MAX_ROUNDS: usize = 8;

/// Contiguous granules: the first one, and their number.
#[derive(Clone, Copy)]
struct Run {
    first: usize,
    count: usize,
}

const fn mark(count: usize) -> usize {
    REFUSED_RUN | count
}

impl Run {
    /// The granules of a range. `None` if it does not consist of granules that the segment map has
    /// entries for.
    fn of(start: NonNull<u8>, len: usize) -> Option<Self> {
        let first = start.addr().get() / SEGMENT_GRANULE;
        let run = Self { first, count: len / SEGMENT_GRANULE };
        let is_whole = start.addr().get() % SEGMENT_GRANULE == 0 && len % SEGMENT_GRANULE == 0;
        (is_whole
            && run.count > 0
            && owner_entry(first).is_some()
            && owner_entry(run.last()).is_some())
        .then_some(run)
    }

    const fn last(self) -> usize {
        self.first + self.count - 1
    }

    /// Enters the run, which this thread owns.
    fn enter(self) {
        for granule in [self.last(), self.first] {
            if let Some(entry) = owner_entry(granule) {
                // Release pairs with the Acquire in `claim`: the memory was discarded.
                entry.store(mark(self.count), Ordering::Release);
            }
        }
    }

    /// Takes the run, if it is still entered. Returns whether this thread owns it now.
    fn claim(self) -> bool {
        let claimed = owner_entry(self.first).is_some_and(|entry| {
            entry
                .compare_exchange(mark(self.count), 0, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        });
        if claimed {
            if let Some(entry) = owner_entry(self.last()) {
                entry.store(0, Ordering::Relaxed);
            }
        }
        claimed
    }

    /// The run before this one, which may be gone.
    fn before(self) -> Option<Self> {
        let last = self.first.checked_sub(1)?;
        let count = run_at(last)?;
        Some(Self { first: self.first.checked_sub(count)?, count })
    }

    /// The run behind this one.
    fn behind(self) -> Option<Self> {
        let first = self.first + self.count;
        Some(Self { first, count: run_at(first)? })
    }

    /// Enters the run, which this thread owns. Returns `false` if there may be a run next to it and
    /// this thread has claimed the run again.
    ///
    /// Two threads may enter neighbours at the same time. Each enters its run and then looks for
    /// the other's; at least one of them finds it.
    fn enter_unless_adjacent(self) -> bool {
        self.enter();
        fence(Ordering::SeqCst);
        (self.before().is_none() && self.behind().is_none()) || !self.claim()
    }

    /// This run, which this thread owns, and all runs next to it, which it takes.
    fn with_neighbours(mut self) -> Self {
        while let Some(run) = self.before().filter(|run| run.claim()) {
            self = Self { first: run.first, count: run.count + self.count };
        }
        while let Some(run) = self.behind().filter(|run| run.claim()) {
            self.count += run.count;
        }
        self
    }
}

/// The length of the run that begins or ends with this granule.
fn run_at(granule: usize) -> Option<usize> {
    let entry = owner_entry(granule)?.load(Ordering::Relaxed);
    (entry & REFUSED_RUN != 0).then_some(entry & !REFUSED_RUN)
}

/// Unmaps a range. If the kernel refuses, gives its memory back, and unmaps it together with a
/// neighbour later.
///
/// # Safety
/// As for [`os::unmap`]. The range is not registered.
pub(super) unsafe fn unmap(start: NonNull<u8>, len: usize) {
    // Relaxed: a run that this thread does not see yet is unmapped with another neighbour.
    // SAFETY: guaranteed by the caller.
    if !ANY_RUN.load(Ordering::Relaxed) && unsafe { os::unmap(start, len) }.is_ok() {
        return;
    }
    let run = Run::of(start, len);
    // SAFETY: guaranteed by the caller.
    unsafe { unmap_with_neighbours(start, len, run) };
}

/// # Safety
/// As for [`unmap`]; `run` has the granules of the range.
#[cold]
unsafe fn unmap_with_neighbours(start: NonNull<u8>, len: usize, run: Option<Run>) {
    let whole = run.map(Run::with_neighbours);
    // SAFETY: the caller's range, and the runs that this thread has taken: nothing refers to them.
    let unmapped = |whole: Option<Run>| unsafe {
        match whole {
            Some(whole) => {
                let address = start.as_ptr().with_addr(whole.first * SEGMENT_GRANULE);
                os::unmap(NonNull::new_unchecked(address), whole.count * SEGMENT_GRANULE)
            }
            None => os::unmap(start, len),
        }
        .is_ok()
    };
    if unmapped(whole) {
        return;
    }
    // The neighbours' memory went back when they were refused.
    // SAFETY: guaranteed by the caller.
    let _ = unsafe { os::discard(start, len) };
    let Some(mut run) = whole else { return };
    ANY_RUN.store(true, Ordering::Relaxed);
    // After a fork, an entry may stay out of date, so the number of rounds is limited.
    for _ in 0..MAX_ROUNDS {
        if run.enter_unless_adjacent() {
            return;
        }
        run = run.with_neighbours();
        if unmapped(Some(run)) {
            return;
        }
    }
    run.enter();
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroUsize;

    use super::super::segment_map;
    use super::*;

    /// Granules that the segment map has entries for, mapped for the length of a test.
    fn granules(count: usize) -> (NonNull<u8>, Run) {
        let len = count * SEGMENT_GRANULE;
        let start = os::map(len, SEGMENT_GRANULE).unwrap();
        segment_map::register(start, len, NonZeroUsize::new(128).unwrap()).unwrap();
        segment_map::unregister(start, len);
        (start, Run::of(start, len).unwrap())
    }

    fn part(run: Run, from: usize, count: usize) -> Run {
        Run { first: run.first + from, count }
    }

    #[test]
    fn a_range_takes_the_refused_runs_on_both_sides() {
        let (start, all) = granules(10);
        part(all, 0, 2).enter();
        part(all, 2, 1).enter();
        part(all, 6, 3).enter();
        let whole = part(all, 3, 3).with_neighbours();
        assert_eq!((whole.first, whole.count), (all.first, 9));
        // Nothing is left behind.
        assert!((0..10).all(|granule| run_at(all.first + granule).is_none()));
        whole.enter();
        assert_eq!((run_at(all.first), run_at(all.first + 8)), (Some(9), Some(9)));
        let address = start.addr().get();
        assert_eq!(segment_map::owner_of(address), None, "a refused run has no owner");
        assert!(whole.claim() && !whole.claim());
        // SAFETY: mapped above, unmapped once.
        unsafe { os::unmap(start, 10 * SEGMENT_GRANULE).unwrap() };
    }

    #[test]
    fn a_range_that_is_no_granule_has_no_run() {
        let (start, _) = granules(2);
        let page = os::page_size();
        // SAFETY: inside the mapping.
        let inside = unsafe { start.add(page) };
        assert!(Run::of(inside, SEGMENT_GRANULE).is_none());
        assert!(Run::of(start, page).is_none() && Run::of(start, 0).is_none());
        // SAFETY: mapped above, unmapped once.
        unsafe { os::unmap(start, 2 * SEGMENT_GRANULE).unwrap() };
    }

    #[test]
    fn threads_that_enter_neighbours_leave_one_run() {
        const PARTS: usize = 8;
        let (start, all) = granules(PARTS);
        for _ in 0..if cfg!(miri) { 3 } else { 300 } {
            std::thread::scope(|scope| {
                for number in 0..PARTS {
                    scope.spawn(move || {
                        // As if the kernel refused everything.
                        let mut run = part(all, number, 1).with_neighbours();
                        while !run.enter_unless_adjacent() {
                            run = run.with_neighbours();
                        }
                    });
                }
            });
            assert!(all.claim(), "one run of all granules is left");
        }
        // SAFETY: mapped above, unmapped once.
        unsafe { os::unmap(start, PARTS * SEGMENT_GRANULE).unwrap() };
    }
}
