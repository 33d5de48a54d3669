//! Which thread owns a thread cache, if one does.
//!
//! A cache that its thread has left stays allocated, and the next thread that needs one attaches to
//! it. The thread that ends a slab seizes the caches of threads that sleep (`cache_seizure.rs`).
//!
//! # Invariants
//!
//! 1. Only the owner of a cache accesses what the cache holds: the thread that has attached to it
//!    and not left it. The thread that has seized a cache becomes its owner if no slot of the slab
//!    is in use, the cache's thread is in no visit, and there was none since before the slots were
//!    counted. Otherwise it gives the cache back.
//! 2. A *visit* is a section in which the owner accesses its cache, and one of two things may be
//!    true: a slot is counted as free twice, or all slots already count as free. A fast path is not
//!    a visit: its last store makes the slot count as free, and it accesses nothing afterwards.
//! 3. A thread that leaves its cache begins a visit, and then looks whether the cache was seized. A
//!    thread that seizes it does so, and then looks for a visit. One of the two sees the other.
//! 4. `visits` is odd during a visit, and grows by two with each one.

use core::sync::atomic::compiler_fence;

use crate::memory::fences::light;
use crate::sync::{AtomicU32, Ordering, mutant, order};

/// No thread owns the cache, and it is empty.
const FREE: u32 = 0;
/// A thread owns the cache.
const OWNED: u32 = 1;
/// The thread that ends the slab has seized the cache, whose thread has not left it.
const SEIZED: u32 = 2;
/// The thread that ends the slab has seized the cache. Its thread has left it, and accesses it no
/// more.
const ABANDONED: u32 = 3;

/// Whether a thread owns a cache.
#[derive(Debug)]
pub struct CacheOwnership {
    state: AtomicU32,
    visits: AtomicU32,
}

/// A visit; ends when it is dropped.
#[derive(Debug)]
pub struct Visit<'c> {
    ownership: &'c CacheOwnership,
    /// The number of visits before, if this is not part of another one.
    before: Option<u32>,
}

impl CacheOwnership {
    /// Owned by the thread that makes the cache.
    #[cfg(not(loom))]
    pub const fn owned() -> Self {
        Self { state: AtomicU32::new(OWNED), visits: AtomicU32::new(0) }
    }

    /// The same for loom, whose atomics can't be made in a constant.
    #[cfg(loom)]
    pub fn owned() -> Self {
        Self { state: AtomicU32::new(OWNED), visits: AtomicU32::new(0) }
    }

    /// Makes the calling thread the owner, if there is none. Returns whether it succeeded.
    pub fn try_acquire(&self) -> bool {
        // Acquire pairs with the Release in `release`: the previous owner's accesses happen before.
        self.state.load(Ordering::Relaxed) == FREE
            && self
                .state
                .compare_exchange(FREE, OWNED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Whether there is an owner.
    pub fn is_in_use(&self) -> bool {
        self.state.load(Ordering::Relaxed) != FREE
    }

    /// Gives up the ownership. The caller has emptied the cache.
    pub fn release(&self) {
        // Release pairs with the Acquire in `try_acquire`.
        self.state.store(FREE, order(Ordering::Release, "detach: relaxed"));
    }

    // ---- for the cache's thread ----

    /// Begins a visit. The caller holds a slot of the slab, which keeps the cache from being taken
    /// over, or looks next whether it was seized.
    #[inline]
    pub fn visit(&self) -> Visit<'_> {
        let visits = self.visits.load(Ordering::Relaxed);
        if visits % 2 == 1 {
            return Visit { ownership: self, before: None };
        }
        // Relaxed: the caller's slot counts as free after this only. The thread that counts it has
        // the kernel run a fence on this one, and looks for visits once more after that.
        self.visits.store(visits.wrapping_add(1), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        Visit { ownership: self, before: Some(visits) }
    }

    /// Begins a visit in which the thread leaves the cache. Returns `None` if the cache was seized:
    /// then it is no longer this thread's. The caller has a reference to the slab.
    pub fn visit_to_leave(&self) -> Option<Visit<'_>> {
        let looked_before = mutant("leave: look before the visit") && self.keep_or_abandon();
        let visit = self.visit();
        // Pairs with the heavy fence of the thread that seizes (invariant 3).
        light();
        (looked_before || self.keep_or_abandon()).then_some(visit)
    }

    /// Abandons the cache if it was seized. Returns whether it is still its thread's.
    fn keep_or_abandon(&self) -> bool {
        loop {
            // Acquire pairs with the Release in `give_back`.
            match self.state.load(Ordering::Acquire) {
                OWNED => return true,
                SEIZED => {
                    // Release pairs with the Acquire in `give_back`: this thread's accesses happen
                    // before those of the thread that takes the cache over.
                    let release = order(Ordering::Release, "abandon: relaxed");
                    let abandoned =
                        self.state.compare_exchange(SEIZED, ABANDONED, release, Ordering::Relaxed);
                    if abandoned.is_ok() {
                        return false;
                    }
                }
                // Taken over, and emptied.
                _ => return false,
            }
        }
    }

    // ---- for the thread that ends the slab ----

    /// Seizes the cache, if a thread owns it. Returns whether it did.
    pub fn seize(&self) -> bool {
        // Relaxed: a heavy fence follows.
        self.state.compare_exchange(OWNED, SEIZED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether the cache is seized.
    pub fn is_seized(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= SEIZED
    }

    /// The number that counts the visits of the cache's thread; `None` during a visit.
    pub fn visits(&self) -> Option<u32> {
        // Acquire pairs with the Release at the end of a visit.
        let visits = self.visits.load(order(Ordering::Acquire, "visits: relaxed"));
        (visits % 2 == 0).then_some(visits)
    }

    /// Gives a seized cache back to its thread. Returns `false` if that has abandoned it: then the
    /// caller is the owner.
    pub fn give_back(&self) -> bool {
        // Release pairs with the Acquire in `keep_or_abandon`, Acquire with the Release there.
        let given =
            self.state.compare_exchange(SEIZED, OWNED, Ordering::Release, Ordering::Acquire);
        given != Err(ABANDONED)
    }
}

impl Drop for Visit<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // Release pairs with the Acquire in `visits`.
            self.ownership.visits.store(before.wrapping_add(2), Ordering::Release);
        }
    }
}
