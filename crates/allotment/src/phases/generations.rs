//! The read-only objects, one generation after the other.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

pub(super) struct Generations<R> {
    current: RwLock<Arc<R>>,
    number: AtomicU64,
}

impl<R> Generations<R> {
    pub(super) fn new(first: R) -> Self {
        Self { current: RwLock::new(Arc::new(first)), number: AtomicU64::new(1) }
    }

    pub(super) fn read(&self) -> Arc<R> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn publish(&self, next: R) -> u64 {
        let next = Arc::new(next);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let before = core::mem::replace(&mut *current, next);
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        drop(current);
        drop(before);
        number
    }

    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }
}
