//! How threads wait for slots, and how other threads wake them.
//!
//! If each page is a call to the source, one thread of a slab at a time makes that call: it has the
//! *source turn*. A thread that finds no slot and does not get the turn waits, until there is a
//! slot or the turn is free. While a thread waits, no free may be cached: all pages are *marked*.
//!
//! # Invariants
//!
//! 1. A thread is counted in `attention` before it marks the pages and looks for a slot. A thread
//!    that makes a slot available reads `attention` after that (store, then load, on both sides).
//!    So either the waiting thread finds the slot, or the other thread wakes it.
//! 2. A thread reads `event` before it looks for a slot, and sleeps only while `event` has that
//!    value. A thread that wakes others changes `event` first.
//! 3. A thread that finds no slot says so in `attention`, if no slot became available since its
//!    search began: a thread that makes one available changes the generation. It reads `attention`
//!    as in (1). So until then no other thread needs to search.
//! 4. A page's mark is cleared, and a new page is left unmarked, only if `attention` is 0 both
//!    before and after. So a waiting thread finds every page marked, or the other thread marks it.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, mutant, store_before_load};

/// The bit of `attention` that says that the slab was dropped.
const CLOSED: u64 = 1 << 31;
/// The bit of `attention` that says that this is a child made by fork, which does not have the
/// slab's memory.
const ORPHANED: u64 = 1 << 30;
/// The part of `attention` that counts the waiting threads.
const WAITING: u64 = ORPHANED - 1;
/// The part of `attention` with the reasons for which no free may be cached.
const NO_CACHING: u64 = CLOSED | ORPHANED | WAITING;
/// The bit of `attention` that says that a thread has begun to search all pages for a slot in this
/// generation.
const SEARCHED: u64 = 1 << 32;
/// The bit of `attention` that says that a search of this generation found no slot.
const NONE_FOUND: u64 = 1 << 33;
/// The bits of `attention` from here on count the generations. A new one begins when a slot becomes
/// available after a search.
const GENERATION: u64 = 1 << 34;

/// The mark of one page: while it is set, no free of the page's slots is cached.
pub trait PageMark {
    /// Whether the mark is as it should be.
    fn is(&self, marked: bool) -> bool;
    /// Stores the mark; SeqCst.
    fn store(&self, marked: bool);
    /// Sets the mark; SeqCst.
    fn set(&self);
}

/// The waiting threads of one slab, and the other reasons for which no free may be cached.
#[derive(Debug)]
pub struct Waiters {
    /// The number of threads that wait for a slot, [`CLOSED`] and [`ORPHANED`]; [`SEARCHED`],
    /// [`NONE_FOUND`] and the generation.
    attention: AtomicU64,
    /// Changes whenever there may be something for a waiting thread.
    event: AtomicU32,
    /// The process id of the thread that is taking a page from the source, or 0.
    source_turn: AtomicU32,
}

impl Waiters {
    /// Makes a slab's words: no thread waits.
    #[must_use]
    pub fn none() -> Self {
        Self {
            attention: AtomicU64::new(0),
            event: AtomicU32::new(0),
            source_turn: AtomicU32::new(0),
        }
    }

    // ---- reasons not to cache ----

    /// Whether frees may be cached: no thread waits, and the slab is open and has its memory.
    #[inline(always)]
    pub fn allow_caching(&self) -> bool {
        self.attention.load(Ordering::SeqCst) & NO_CACHING == 0
    }

    /// Notes that the slab was dropped. The caller then marks all pages and looks for empty pages.
    pub fn close(&self) {
        self.attention.fetch_or(CLOSED, Ordering::SeqCst);
        store_before_load();
    }

    /// Whether the slab was dropped. SeqCst: read after an empty page was listed, and set before a
    /// thread looks for listed pages.
    pub fn is_closed(&self) -> bool {
        self.attention.load(Ordering::SeqCst) & CLOSED != 0
    }

    /// Notes that this process does not have the slab's memory.
    pub fn orphan(&self) {
        self.attention.fetch_or(ORPHANED, Ordering::SeqCst);
    }

    /// Whether this process does not have the slab's memory.
    pub fn is_orphaned(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & ORPHANED != 0
    }

    /// In a child made by fork: the child does not have the threads that waited, nor the thread that
    /// had the source turn.
    pub fn after_fork(&self) {
        self.attention.fetch_and(!WAITING, Ordering::SeqCst);
        // Relaxed: the child has one thread, and starts the others after this.
        self.source_turn.store(0, Ordering::Relaxed);
    }

    // ---- marks ----

    /// Sets or clears the mark of a page. The mark is set if `marked`, or while no free may be
    /// cached.
    #[inline(always)]
    pub fn update_mark(&self, marked: bool, mark: &impl PageMark) {
        let marked = marked || !self.allow_caching();
        if mark.is(marked) {
            return;
        }
        mark.store(marked);
        store_before_load();
        // Read after the store: a thread that has begun to wait after the first check is seen here,
        // or has marked the page again itself (invariant 4).
        if !marked && !self.allow_caching() && !mutant("update mark: no second look") {
            mark.set();
        }
    }

    /// Marks a new page if no free may be cached. Called after the page was made visible to other
    /// threads.
    pub fn mark_new(&self, mark: &impl PageMark) {
        // The page was made visible by a Release store, which a later load may overtake.
        fence(Ordering::SeqCst);
        if !self.allow_caching() {
            mark.set();
        }
    }

    // ---- waiting ----

    /// Waits until `find` finds something. `mark_all` marks all pages. `sleep` sleeps while the
    /// word has the given value.
    ///
    /// # Errors
    /// If `sleep` returns an error, which only the models do. The thread is then still counted as
    /// waiting.
    pub fn wait<T, E>(
        &self,
        mark_all: impl FnOnce(),
        mut find: impl FnMut() -> Option<T>,
        mut sleep: impl FnMut(&AtomicU32, u32) -> Result<(), E>,
    ) -> Result<T, E> {
        if mutant("wait: looks before it is counted") {
            if let Some(found) = find() {
                return Ok(found);
            }
        }
        self.attention.fetch_add(1, Ordering::SeqCst);
        // Orders the count before all loads of `find`, some of which are relaxed (invariant 1).
        fence(Ordering::SeqCst);
        mark_all();
        let found = loop {
            let mut event = self.event.load(Ordering::SeqCst);
            if !mutant("wait: looks before it is counted") {
                if let Some(found) = find() {
                    break found;
                }
            }
            if mutant("wait: event read late") {
                event = self.event.load(Ordering::SeqCst);
            }
            sleep(&self.event, event)?;
        };
        self.attention.fetch_sub(1, Ordering::SeqCst);
        Ok(found)
    }

    /// Wakes the waiting threads, if there are any: there may be something for them. The caller has
    /// written it by a SeqCst operation.
    #[inline(always)]
    pub fn wake(&self, wake_all: impl FnOnce(&AtomicU32)) {
        if !mutant("wake: unordered") {
            store_before_load();
        }
        let attention = self.attention.load(Ordering::SeqCst);
        if attention & (WAITING | SEARCHED) != 0 {
            self.tell(attention, wake_all);
        }
    }

    #[cold]
    fn tell(&self, attention: u64, wake_all: impl FnOnce(&AtomicU32)) {
        if attention & SEARCHED != 0 && !mutant("search: result kept") {
            let next = |now: u64| {
                let next = (now & !(SEARCHED | NONE_FOUND)).wrapping_add(GENERATION);
                (now & SEARCHED != 0).then_some(next)
            };
            // An error says that another thread has begun the next generation. A search of that one
            // began after this thread's slot became available.
            let _ = self.attention.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        }
        if attention & WAITING != 0 {
            self.event.fetch_add(1, Ordering::SeqCst);
            wake_all(&self.event);
        }
    }

    /// Same as [`wake`](Self::wake), for a caller that has written by weaker stores.
    pub fn wake_after_stores(&self, wake_all: impl FnOnce(&AtomicU32)) {
        fence(Ordering::SeqCst);
        self.wake(wake_all);
    }

    // ---- searches ----

    /// Searches all pages by `find`. Returns `None` at once if an earlier search found nothing, and
    /// no slot became available since then.
    pub fn search<T>(&self, find: impl FnOnce() -> Option<T>) -> Option<T> {
        let begin = |now: u64| (now & SEARCHED == 0).then_some(now | SEARCHED);
        let begun = match self.attention.fetch_update(Ordering::SeqCst, Ordering::SeqCst, begin) {
            Ok(before) => before,
            Err(now) if now & NONE_FOUND != 0 => return None,
            Err(now) => now,
        };
        // The bit is stored before `find` loads anything, also where it loads relaxed (invariant 3).
        fence(Ordering::SeqCst);
        let found = find();
        if found.is_none() {
            let same = |now: u64| now / GENERATION == begun / GENERATION;
            let end = |now: u64| {
                let ends = same(now) || mutant("search: generation ignored");
                ends.then_some(now | SEARCHED | NONE_FOUND)
            };
            // An error says that a slot became available after this search began.
            let _ = self.attention.fetch_update(Ordering::SeqCst, Ordering::SeqCst, end);
        }
        found
    }

    // ---- the source turn ----

    /// Takes the source turn, if it is free. `process` is the id of this process. A turn of another
    /// process counts as free: it belonged to a thread of the process that this one was cloned from
    /// without [`after_fork`](Self::after_fork), and can't end here.
    pub fn try_take_turn(&self, process: u32) -> bool {
        let holder = self.source_turn.load(Ordering::Relaxed);
        holder != process
            && self
                .source_turn
                .compare_exchange(holder, process, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Ends the calling thread's source turn.
    pub fn end_turn(&self, wake_all: impl FnOnce(&AtomicU32)) {
        // SeqCst: `wake` reads `attention` after this store, and a waiting thread reads this word
        // after it was counted.
        let unordered = mutant("wake: unordered");
        let order = if unordered { Ordering::Release } else { Ordering::SeqCst };
        self.source_turn.store(0, order);
        self.wake(wake_all);
    }

    /// The event, on which waiting threads sleep.
    #[cfg(loom)]
    pub fn event(&self) -> &AtomicU32 {
        &self.event
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_child_with_its_parents_process_id_takes_the_source_turn_over() {
        let waiters = Waiters::none();
        assert!(waiters.try_take_turn(1));
        assert!(!waiters.try_take_turn(1));
        waiters.after_fork();
        assert!(waiters.try_take_turn(1));
    }

    #[test]
    fn pages_are_searched_once_for_each_change() {
        let waiters = Waiters::none();
        let mut searches = 0;
        for change in 0..3 {
            for _ in 0..10 {
                let found: Option<()> = waiters.search(|| {
                    searches += 1;
                    None
                });
                assert!(found.is_none());
                assert!(waiters.allow_caching(), "a search keeps no free from being cached");
            }
            assert_eq!(searches, change + 1);
            waiters.wake(|_| unreachable!("no thread waits"));
        }
        let found = waiters.search(|| {
            waiters.wake(|_| unreachable!("no thread waits"));
            None::<()>
        });
        assert!(found.is_none());
        assert_eq!(waiters.search(|| Some(7)), Some(7), "a slot came while the last one searched");
        assert_eq!(waiters.search(|| Some(8)), Some(8), "there may be more");
    }
}
