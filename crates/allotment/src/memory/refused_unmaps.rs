//! Unmapping memory in spite of the limit on mappings.
//!
//! To unmap a range in the middle of a mapping, the kernel splits the mapping. It refuses at the
//! limit on the number of mappings (`vm.max_map_count`). The range's memory then goes back, and its
//! addresses stay mapped as a *refused run* (see `refused_runs.rs`). They are unmapped together with
//! a neighbour that is unmapped later: once the run reaches the edge of its mapping, nothing has to
//! be split.
//!
//! Runs consist of whole granules. So do the chunks of hardened arenas, the ranges of slabs, and
//! sealed chunks. The segment map records a run in the owner entries of its granules, which are no
//! longer in use. The addresses of other ranges are lost.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::layout::SEGMENT_GRANULE;
use super::os;
use super::refused_runs::{Run, RunEntries};
use super::segment_map::owner_entry;

/// Whether a run was ever entered. Until then, threads don't search for runs.
static ANY_RUN: AtomicBool = AtomicBool::new(false);

/// The owner entries of the segment map.
struct SegmentMap;

impl RunEntries for SegmentMap {
    fn entry(&self, granule: usize) -> Option<&AtomicUsize> {
        owner_entry(granule)
    }
}

/// The granules of a range. `None` if it does not consist of granules that the segment map has
/// entries for.
fn granules_of(start: NonNull<u8>, len: usize) -> Option<Run> {
    let run = Run { first: start.addr().get() / SEGMENT_GRANULE, count: len / SEGMENT_GRANULE };
    let is_whole = start.addr().get() % SEGMENT_GRANULE == 0 && len % SEGMENT_GRANULE == 0;
    let has_entries =
        |run: Run| [run.first, run.last()].map(owner_entry).iter().all(Option::is_some);
    (is_whole && run.count > 0 && has_entries(run)).then_some(run)
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
    let run = granules_of(start, len);
    // SAFETY: guaranteed by the caller.
    unsafe { unmap_with_neighbours(start, len, run) };
}

/// # Safety
/// As for [`unmap`]; `run` has the granules of the range.
#[cold]
unsafe fn unmap_with_neighbours(start: NonNull<u8>, len: usize, run: Option<Run>) {
    let whole = run.map(|run| run.with_neighbours(&SegmentMap));
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
    let Some(run) = whole else { return };
    ANY_RUN.store(true, Ordering::Relaxed);
    run.leave(&SegmentMap, |run| unmapped(Some(run)));
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroUsize;

    use super::super::segment_map;
    use super::*;

    /// Granules that the segment map has entries for, mapped for the length of a test.
    fn granules(count: usize) -> NonNull<u8> {
        let len = count * SEGMENT_GRANULE;
        let start = os::map(len, SEGMENT_GRANULE).unwrap();
        segment_map::register(start, len, NonZeroUsize::new(128).unwrap()).unwrap();
        segment_map::unregister(start, len);
        start
    }

    #[test]
    fn a_refused_run_has_no_owner_and_a_neighbour_takes_it() {
        let len = SEGMENT_GRANULE;
        let start = granules(2);
        let [low, high] = [0, len].map(|offset| {
            // SAFETY: inside the mapping.
            granules_of(unsafe { start.add(offset) }, len).unwrap()
        });
        low.leave(&SegmentMap, |_| false);
        assert_eq!(segment_map::owner_of(start.addr().get()), None);
        assert_eq!(high.with_neighbours(&SegmentMap), Run { first: low.first, count: 2 });
        // SAFETY: mapped above, unmapped once.
        unsafe { os::unmap(start, 2 * len).unwrap() };
    }

    #[test]
    fn a_range_that_is_no_granule_has_no_run() {
        let start = granules(2);
        let page = os::page_size();
        // SAFETY: inside the mapping.
        let inside = unsafe { start.add(page) };
        assert!(granules_of(inside, SEGMENT_GRANULE).is_none());
        assert!(granules_of(start, page).is_none() && granules_of(start, 0).is_none());
        // SAFETY: mapped above, unmapped once.
        unsafe { os::unmap(start, 2 * SEGMENT_GRANULE).unwrap() };
    }
}
