//! Slabs shared by size: all callers that need objects of about the same size get the same slab.

use core::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::RawSlab;
use crate::error::{AllocError, or_fail};
use crate::memory::fork_mutex::{self, ForkMutex};
use crate::memory::layout::checked_align_up;

type SlabsBySize = BTreeMap<(usize, usize), Weak<RawSlab>>;

/// The shared slabs that are alive: the ordinary ones, and the hardened ones of the C interface. A
/// lock is held while a slab is looked up or entered, never while one is made or used.
static SLABS: ForkMutex<SlabsBySize> = ForkMutex::new(SlabsBySize::new());
static HARDENED_SLABS: ForkMutex<SlabsBySize> = ForkMutex::new(SlabsBySize::new());

/// Rounds a layout up to a size that is shared: multiples of 16 up to 1 KiB, then eight steps per
/// doubling.
fn shared_layout(layout: Layout) -> Option<Layout> {
    let size = layout.size().max(1);
    let step = if size <= 1024 { 16 } else { 1 << (size - 1).ilog2().saturating_sub(3) };
    let align = layout.align().max(16);
    Layout::from_size_align(checked_align_up(size, step.max(align))?, align).ok()
}

/// The slab that all callers share for objects of about this size, in one of the tables.
fn shared_slab(
    slabs: &ForkMutex<SlabsBySize>,
    layout: Layout,
    hardened: bool,
) -> Result<Arc<RawSlab>, AllocError> {
    fork_mutex::watch_forks()?;
    // A layout that can't be rounded up has no slab; the builder returns the error.
    let layout = shared_layout(layout).unwrap_or(layout);
    let key = (layout.size(), layout.align());
    let find = |slabs: &SlabsBySize| slabs.get(&key).and_then(Weak::upgrade);
    if let Some(slab) = find(&slabs.lock()) {
        return Ok(slab);
    }
    // Dropped after the lock, if another thread enters one first.
    let fresh = Arc::new(RawSlab::builder(layout).hardened(hardened).try_build()?);
    let mut slabs = slabs.lock();
    if let Some(slab) = find(&slabs) {
        return Ok(slab);
    }
    slabs.retain(|_, slab| slab.strong_count() > 0);
    slabs.insert(key, Arc::downgrade(&fresh));
    Ok(fresh)
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
        shared_slab(&SLABS, layout, false)
    }

    /// As [`try_by_size`](Self::try_by_size), but the slab is hardened. For the C interface.
    #[doc(hidden)]
    pub fn try_hardened_by_size(layout: Layout) -> Result<Arc<Self>, AllocError> {
        shared_slab(&HARDENED_SLABS, layout, true)
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
