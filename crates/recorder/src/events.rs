//! Writes the events of a thread: allocations, frees, waits for locks.

use crate::call_stack::walk;
use crate::raw_file;
use crate::stream_keys::KindKey;
use crate::thread_state::ThreadState;
use crate::threads::HookEntry;
use crate::unwind::CallSite;
use crate::unwind::cache::CacheHit;
use trace_format::raw::{AllocationFlags, LockKind, LockWait};

impl HookEntry {
    /// Records an allocation that ended at `tick`.
    ///
    /// # Safety
    ///
    /// The thread is in the call that was made at `site`.
    #[inline(always)]
    pub unsafe fn allocated(
        &self,
        tick: u64,
        address: u64,
        size: u64,
        flags: AllocationFlags,
        site: CallSite,
    ) {
        let state = self.state();
        // SAFETY: the state is this thread's while it is in the hook, and each borrow ends before
        // the next begins.
        unsafe {
            if let Some(hit) = (*state).cache.find(&site)
                && let Some(kind) = (*state).cache.kind(hit, size, flags)
                && (*state).encoder.has_space()
                && !raw_file::verifies_cache()
            {
                (*state).encoder.allocated(tick, address, kind);
            } else {
                allocated_slow(state, tick, address, size, flags, site);
            }
        }
    }

    /// Records a free that begins at `tick`.
    #[inline(always)]
    pub fn freed(&self, tick: u64, address: u64) {
        // SAFETY: the state is this thread's while it is in the hook; there is space.
        unsafe {
            if (*self.state()).make_space(tick, 0) {
                (*self.state()).encoder.freed(tick, address);
            }
        }
    }

    /// Records the free, from `tick` on, by a reallocation that has succeeded.
    #[inline(always)]
    pub fn freed_by_realloc(&self, tick: u64, address: u64) {
        // SAFETY: the state is this thread's while it is in the hook; there is space.
        unsafe {
            if (*self.state()).make_space(tick, 0) {
                (*self.state()).encoder.freed_by_realloc(tick, address);
            }
        }
    }

    /// Records a query for the usable size of a block.
    pub fn usable_size_queried(&self, tick: u64, address: u64) {
        // SAFETY: the state is this thread's while it is in the hook; there is space.
        unsafe {
            if (*self.state()).make_space(tick, 0) {
                (*self.state()).encoder.usable_size_queried(tick, address);
            }
        }
    }

    /// Records a wait for a lock that ended at `tick`.
    ///
    /// # Safety
    ///
    /// The thread is in the call that was made at `site`.
    pub unsafe fn waited(
        &self,
        tick: u64,
        ticks: u64,
        address: u64,
        lock: LockKind,
        site: CallSite,
    ) {
        let state = self.state();
        // SAFETY: the state is this thread's while it is in the hook; there is space.
        unsafe {
            let Some((node, _)) = find_stack(state, tick, site) else { return };
            if (*state).make_space(tick, 0) {
                (*state).encoder.waited(tick, LockWait { node, address, lock, ticks });
            }
        }
    }
}

/// Records an allocation whose stack is not in the cache, or whose kind differs from the last one
/// there.
///
/// # Safety
///
/// The state is this thread's, which is in the call that was made at `site`.
#[cold]
#[inline(never)]
unsafe fn allocated_slow(
    state: *mut ThreadState,
    tick: u64,
    address: u64,
    size: u64,
    flags: AllocationFlags,
    site: CallSite,
) {
    // SAFETY: as the caller promised.
    unsafe {
        let Some((node, hit)) = find_stack(state, tick, site) else { return };
        let key = KindKey { size, node, flags };
        let known = (*state).kinds.get(key);
        let kind = match known {
            Some(known) => known,
            None => {
                if !(*state).make_space(tick, 0) {
                    return;
                }
                let Some(number) = (*state).kinds.add(key) else {
                    return raw_file::count_missed();
                };
                (*state).encoder.kind(node, size, flags);
                number
            }
        };
        if let Some(hit) = hit {
            (*state).cache.set_kind(hit, size, flags, kind);
        }
        if (*state).make_space(tick, 0) {
            match known {
                Some(kind) => (*state).encoder.allocated(tick, address, kind),
                None => (*state).encoder.allocated_of_newest_kind(tick, address),
            }
        }
    }
}

/// The node of a call's stack, and its entry in the cache if there is one.
///
/// # Safety
///
/// The state is this thread's, which is in the call that was made at `site`.
unsafe fn find_stack(
    state: *mut ThreadState,
    tick: u64,
    site: CallSite,
) -> Option<(u32, Option<CacheHit>)> {
    // SAFETY: as the caller promised.
    unsafe {
        if !(*state).has_numbers(tick) {
            return None;
        }
        if let Some(hit) = (*state).cache.find(&site) {
            if raw_file::verifies_cache() {
                let correct = walk(state, tick, site, true)?;
                raw_file::count_verified(correct.node == hit.node);
            }
            return Some((hit.node, Some(hit)));
        }
        let walked = walk(state, tick, site, false)?;
        if raw_file::verifies_cache() {
            let correct = walk(state, tick, site, true)?;
            raw_file::count_verified(correct.node == walked.node);
        }
        let hit = walked
            .is_cacheable
            .then(|| (*state).cache.insert(&site, &(*state).frames, walked.node));
        Some((walked.node, hit))
    }
}
