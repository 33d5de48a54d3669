//! Locks that no other thread holds while the process forks.
//!
//! A child made by fork has only the thread that forked. A lock that another thread held at that
//! moment would stay locked in the child, and what it protects could be half changed. So a fork
//! waits until no thread holds such a lock, and a thread that wants one waits until the fork is
//! done. Only what several threads may lock needs this: the ledgers of slabs and pools.
//!
//! # Invariants
//!
//! 1. A thread whose `DEPTH` is above zero holds `FORKS`: for reading if it holds locks, for writing
//!    if it forks. At most one guard of a thread owns the read lock: the one that was made first,
//!    and that is dropped last, because guards are dropped in the reverse order.
//! 2. A thread waits for `FORKS` only at depth zero. So a fork never waits for a thread that waits
//!    for the fork.
//! 3. A thread that holds such a lock does not wait for another thread, except for further locks.

use core::cell::Cell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::memory::os;

static FORKS: RwLock<()> = RwLock::new(());

thread_local! {
    /// How many guards this thread has, plus one while it forks.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// What this thread holds while it forks.
    static FORKING: Cell<Option<RwLockWriteGuard<'static, ()>>> = const { Cell::new(None) };
}

/// Prevents forks while it lives.
struct NoFork {
    _forks: Option<RwLockReadGuard<'static, ()>>,
}

impl NoFork {
    fn begin() -> Self {
        let depth = DEPTH.get();
        let forks = (depth == 0).then(|| FORKS.read().unwrap_or_else(PoisonError::into_inner));
        DEPTH.set(depth + 1);
        Self { _forks: forks }
    }
}

impl Drop for NoFork {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// A locked mutex.
pub(crate) struct ForkGuard<'m, T> {
    // The fields are dropped in this order.
    value: MutexGuard<'m, T>,
    _no_fork: Option<NoFork>,
}

impl<T> Deref for ForkGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for ForkGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Locks a mutex. If it `is_shared`, so that several threads may lock it, the process does not fork
/// while it is locked.
pub(crate) fn lock<T>(mutex: &Mutex<T>, is_shared: bool) -> ForkGuard<'_, T> {
    let no_fork = is_shared.then(NoFork::begin);
    ForkGuard { value: mutex.lock().unwrap_or_else(PoisonError::into_inner), _no_fork: no_fork }
}

/// Has each later fork wait for these locks. Called before the first of them is locked.
pub(crate) fn watch_forks() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.load(Ordering::Relaxed) && !WATCHED.swap(true, Ordering::Relaxed) {
        os::around_forks(before_fork, after_fork);
    }
}

extern "C" fn before_fork() {
    if DEPTH.get() > 0 {
        // This thread holds such a lock itself, and must not wait for itself.
        return;
    }
    // A thread that forks after its thread-locals were destroyed does not wait.
    let _ = FORKING.try_with(|forking| {
        forking.set(Some(FORKS.write().unwrap_or_else(PoisonError::into_inner)));
        DEPTH.set(1);
    });
}

/// In the parent and in the child.
extern "C" fn after_fork() {
    let _ = FORKING.try_with(|forking| {
        if forking.take().is_some() {
            DEPTH.set(0);
        }
    });
}
