//! Slabs shared by size: all callers that need objects of about the same size get the same slab.

use core::alloc::Layout;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use super::RawSlab;
use crate::error::{AllocError, or_fail};
use crate::memory::layout::checked_align_up;
use crate::memory::process_identity::ProcessIdentity;

type SlabsBySize = BTreeMap<(usize, usize), Weak<RawSlab>>;

/// The shared slabs that are alive. The lock is held while a slab is looked up or made, never while
/// a slab is used.
static SLABS: Mutex<(u32, SlabsBySize)> = Mutex::new((0, SlabsBySize::new()));

/// Rounds a layout up to a size that is shared: multiples of 16 up to 1 KiB, then eight steps per
/// doubling.
fn shared_layout(layout: Layout) -> Option<Layout> {
    let size = layout.size().max(1);
    let step = if size <= 1024 { 16 } else { 1 << (size - 1).ilog2().saturating_sub(3) };
    let align = layout.align().max(16);
    Layout::from_size_align(checked_align_up(size, step.max(align))?, align).ok()
}

/// Takes the lock. Returns `None` if a fork left the lock held by a thread that this process does
/// not have, or if forks can't be counted.
fn lock() -> Option<MutexGuard<'static, (u32, SlabsBySize)>> {
    static OWNER: AtomicU64 = AtomicU64::new(0);
    ProcessIdentity::count_forks().ok()?;
    let process = ProcessIdentity::current().get();
    let guard = match SLABS.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            // The holder belongs to this process, or to the process before the fork and does not
            // exist here. An owner of 0 means that a thread has just taken the lock for the first
            // time in the program.
            let owner = OWNER.load(Ordering::Relaxed);
            if owner != 0 && owner != process {
                return None;
            }
            SLABS.lock().unwrap_or_else(PoisonError::into_inner)
        }
    };
    OWNER.store(process, Ordering::Relaxed);
    Some(guard)
}

/// # Slabs that are shared by size
impl RawSlab {
    /// Returns the slab that all callers share for objects of about this size.
    ///
    /// The first call for a size makes its slab. The slab is closed when the last `Arc` to it is
    /// dropped. Sizes are rounded up to multiples of 16 up to 1 KiB, and above that to eight steps
    /// per doubling. Alignments are rounded up to at least 16.
    ///
    /// The slab has no name, no budget and the default options. The call takes a lock and looks the
    /// size up, so keep what it returns.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_by_size`](Self::try_by_size) returns an error: see
    /// [`AllocError`](crate::AllocError).
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
    #[track_caller]
    pub fn by_size(layout: Layout) -> Arc<Self> {
        or_fail(Self::try_by_size(layout))
    }

    /// Fallible version of [`by_size`](Self::by_size).
    ///
    /// # Errors
    /// Same as [`try_new`](Self::try_new).
    pub fn try_by_size(layout: Layout) -> Result<Arc<Self>, AllocError> {
        // A layout that can't be rounded up has no slab; `try_new` returns the error.
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
