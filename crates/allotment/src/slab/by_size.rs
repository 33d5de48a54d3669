//! Slabs that are shared by size: whoever needs objects of about the same size gets the same slab.

use core::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use super::RawSlab;
use crate::error::AllocError;
use crate::memory::layout::checked_align_up;

type Slabs = BTreeMap<(usize, usize), Weak<RawSlab>>;

/// The living ones. The lock is held while a slab is looked up or made, never while one is used.
static SLABS: Mutex<(u32, Slabs)> = Mutex::new((0, Slabs::new()));

/// Sizes that are shared: multiples of 16 up to 1 KiB, then eight steps a doubling.
fn shared_layout(layout: Layout) -> Option<Layout> {
    let size = layout.size().max(1);
    let step = if size <= 1024 { 16 } else { 1 << (size - 1).ilog2().saturating_sub(3) };
    let align = layout.align().max(16);
    Layout::from_size_align(checked_align_up(size, step.max(align))?, align).ok()
}

/// Nothing where the lock can't be had because its holder was left behind by a fork.
fn lock() -> Option<MutexGuard<'static, (u32, Slabs)>> {
    static OWNER: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);
    let process = std::process::id();
    let guard = match SLABS.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            // Whoever holds it is of this process, or was of the one before the fork and is not here.
            // 0: somebody has just got it, for the first time in the program.
            let owner = OWNER.load(core::sync::atomic::Ordering::Relaxed);
            if owner != 0 && owner != process {
                return None;
            }
            SLABS.lock().unwrap_or_else(PoisonError::into_inner)
        }
    };
    OWNER.store(process, core::sync::atomic::Ordering::Relaxed);
    Some(guard)
}

impl RawSlab {
    /// The slab that everyone shares who asks for objects of about this size; it is made for the first and closed
    /// after the last. Sizes are rounded up to multiples of 16 up to 1 KiB, then to eight steps a doubling;
    /// alignments to 16 at least.
    ///
    /// Names nothing, has no budget and the default options. Costs a lock and a look-up; keep what it returns.
    ///
    /// # Panics
    /// Aborts where [`try_by_size`](Self::try_by_size) returns an error.
    ///
    /// ```
    /// use allotment::RawSlab;
    /// use core::alloc::Layout;
    ///
    /// let items = RawSlab::by_size(Layout::new::<[u8; 40]>());
    /// let nodes = RawSlab::by_size(Layout::new::<[u8; 48]>());
    /// assert!(std::sync::Arc::ptr_eq(&items, &nodes));
    /// ```
    #[must_use]
    pub fn by_size(layout: Layout) -> Arc<Self> {
        use crate::error::{Abort, OnFailure, always};
        always(Self::try_by_size(layout).map_err(Abort::fail))
    }

    /// The fallible twin of [`by_size`](Self::by_size).
    ///
    /// # Errors
    /// As [`try_new`](Self::try_new).
    pub fn try_by_size(layout: Layout) -> Result<Arc<Self>, AllocError> {
        // A layout that can't be rounded up has no slab: `try_new` says so.
        let layout = shared_layout(layout).unwrap_or(layout);
        let Some(mut slabs) = lock() else { return Self::try_new(layout).map(Arc::new) };
        let key = (layout.size(), layout.align());
        if let Some(slab) = slabs.1.get(&key).and_then(Weak::upgrade) {
            return Ok(slab);
        }
        let slab = Arc::new(Self::try_new(layout)?);
        slabs.1.retain(|_, slab| slab.strong_count() > 0);
        slabs.1.insert(key, Arc::downgrade(&slab));
        Ok(slab)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_by_an_eighth_at_most() {
        for size in 1..100_000 {
            let layout = Layout::from_size_align(size, 8).unwrap();
            let shared = shared_layout(layout).unwrap();
            assert!(shared.size() >= size && shared.size() - size < 16.max(size / 8 + 1), "{size}");
        }
    }
}
