//! How the thread that ends a slab takes over the caches of threads that sleep.
//!
//! A thread that sleeps does not learn that a slab has ended. What it caches of the slab would stay
//! until it wakes. So the thread that ends the slab seizes these caches, if no slot of the slab is
//! in use, and empties them.
//!
//! No thread can take a slot of a slab that has ended. So if all slots are free, they stay free, and
//! no thread is about to free one: a thread that frees a slot holds it until the free is done. What
//! is left are threads in a slow path, which may move slots from a cache to their pages, and threads
//! that leave their caches. Both are *visits* (`cache_ownership.rs`).
//!
//! The fast paths have no fence. So the caller needs the kernel's, by which all that the other
//! threads did is seen. Where the kernel has none, nothing is seized.

use super::cache_ownership::CacheOwnership;
use crate::memory::fences::{are_by_kernel, heavy};
use crate::sync::mutant;

/// How often a thread looks again for the end of another thread's visit. A visit is short, but its
/// thread may wait for a processor.
const MAX_LOOKS: usize = if cfg!(loom) { 1 } else { 100 };

/// How often the caches are seized at most, if all slots are free but a thread visits a cache.
const MAX_TRIES: usize = if cfg!(loom) { 1 } else { 3 };

/// A slab that has ended, in the process that made it: no cache is in use by a thread that is gone.
pub trait EndedSlab {
    /// A cache of the slab.
    type Cache: Copy;

    /// All caches of the slab. There are no new ones if no slot is in use.
    fn caches(&self) -> impl Iterator<Item = Self::Cache>;
    /// The ownership of a cache.
    fn ownership(&self, cache: Self::Cache) -> &CacheOwnership;
    /// Whether all slots are free, in their pages or in a cache. A `true` is reliable only if slots
    /// move in one direction meanwhile: from their user to a page or a cache.
    fn all_slots_are_free(&self) -> bool;
    /// Empties a cache, as its owner, and leaves it.
    fn empty(&self, cache: Self::Cache);
    /// Lets another thread run.
    fn wait(&self);
}

/// Takes over and empties the caches of all threads, if no slot is in use.
pub fn seize_caches<S: EndedSlab>(slab: &S) {
    for _ in 0..MAX_TRIES {
        // Checked first because it is cheaper than a seizure.
        if !are_by_kernel() || !slab.all_slots_are_free() || try_to_seize(slab) {
            return;
        }
    }
}

/// Returns whether there is nothing left to seize.
fn try_to_seize<S: EndedSlab>(slab: &S) -> bool {
    if slab.caches().filter(|cache| slab.ownership(*cache).seize()).count() == 0 {
        return true;
    }
    let is_quiet = slots_are_free_and_no_thread_visits(slab);
    for cache in slab.caches() {
        let ownership = slab.ownership(cache);
        if ownership.is_seized() && (is_quiet || !ownership.give_back()) {
            slab.empty(cache);
        }
    }
    is_quiet
}

/// Whether no thread visits a cache, nor did while the slots were counted, and all are free.
/// If so, no thread accesses the caches from now on but the caller.
fn slots_are_free_and_no_thread_visits<S: EndedSlab>(slab: &S) -> bool {
    let Some(before) = visits(slab, MAX_LOOKS) else { return false };
    if !slab.all_slots_are_free() {
        return false;
    }
    // All that the other threads did before the fence is seen after it: the slots that were counted
    // in the caches, and the visits that began. A thread that begins to leave its cache later sees
    // that it is seized: this pairs with its light fence.
    (mutant("seize: no fence") || heavy())
        && (mutant("seize: visits not counted again") || visits(slab, 0) == Some(before))
}

/// The sum of the numbers that count the visits to caches. These numbers only grow. `None` if a
/// thread visits one; looks up to `looks` more times for the end of that.
///
/// A cache that its thread left after the seizure counts too: leaving is a visit.
fn visits<S: EndedSlab>(slab: &S, mut looks: usize) -> Option<u32> {
    let mut sum = 0_u32;
    let counts =
        |cache| slab.ownership(cache).is_seized() || !mutant("seize: only seized caches count");
    for cache in slab.caches().filter(|cache| counts(*cache)) {
        let visits = loop {
            if let Some(visits) = slab.ownership(cache).visits() {
                break visits;
            }
            looks = looks.checked_sub(1)?;
            slab.wait();
        };
        sum = sum.wrapping_add(visits);
    }
    Some(sum)
}
