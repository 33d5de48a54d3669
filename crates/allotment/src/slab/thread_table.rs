//! Each thread's table of its thread caches, by slab number. The odd number after a slab's number
//! is for long-lived objects.
//!
//! The caches of the first [`DIRECT_CACHES`] slabs, for short-lived objects, are in a second table,
//! too. It lies in thread-local storage, so that the fast paths find a cache by one load.
//!
//! # Invariants
//!
//! 1. `CACHES` is the address of an array of pointers. Each points to [`NO_CACHE`], or to a cache
//!    that is in use by this thread. The number of pointers stands before the first one, so that
//!    the fast paths read one thread-local word. Only this thread reads or writes the array. A
//!    thread without an array has the address behind [`EMPTY_ARRAY_LEN`].
//! 2. A cache in the array holds a reference to its slab. But the thread that ends the slab may
//!    have taken the cache over (`cache_seizure.rs`), and the slab may be destroyed. So before a
//!    cache of a slab that may have ended is accessed, a reference is added. While a number is in
//!    the array it is not reused, so it names the slab to which the thread attached.
//! 3. `DIRECT[n]`, with `n` above 0, is the entry of the slab number `2 n` in the array, or
//!    [`NO_CACHE`] if the array is too short. `DIRECT[0]` is [`NO_CACHE`]: it stands for all slabs
//!    without an entry of their own.
//! 4. The array has no destructor, so that it can be used until the thread's last instruction.
//!    `EMPTY_AT_END` empties it for good. A thread has caches only if that will run.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::cache_steps::CacheSteps;
use super::registry;
use super::shared::SlabShared;
use super::thread_cache::{NO_CACHE, ThreadCache};
use crate::error::AllocError;
use crate::memory::system_array::SystemArray;
use crate::memory::thread_end::{EndStage, ThreadEnd};
use crate::memory::{file_mappings, os};

/// The thread's state beside the array.
struct TableState {
    /// The value of `CLOSED_SLABS` when the caches of closed slabs were last detached.
    closed_seen: Cell<usize>,
    ended: Cell<bool>,
    end: EndStage,
}

/// The number that stands before an array without caches.
static EMPTY_ARRAY_LEN: usize = 0;

const fn empty_array() -> *mut *const ThreadCache {
    // The address just behind the number.
    (&raw const EMPTY_ARRAY_LEN).wrapping_add(1).cast::<*const ThreadCache>().cast_mut()
}

/// The number of entries in the direct table: 384 bytes for each thread.
const DIRECT_CACHES: usize = 48;

/// A place in the direct table.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectIndex(u32);

impl DirectIndex {
    /// The place of all slabs that have none of their own.
    pub(super) const NONE: Self = Self(0);

    /// The place of a slab, by its number.
    pub(super) const fn of(number: u32) -> Self {
        let index = number / 2;
        if (index as usize) < DIRECT_CACHES { Self(index) } else { Self::NONE }
    }

    #[inline(always)]
    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }
}

thread_local! {
    static DIRECT: [Cell<*const ThreadCache>; DIRECT_CACHES] =
        const { [const { Cell::new(NO_CACHE) }; DIRECT_CACHES] };
    static CACHES: Cell<*mut *const ThreadCache> = const { Cell::new(empty_array()) };
    static TABLE_STATE: TableState =
        const { TableState {
            closed_seen: Cell::new(0),
            ended: Cell::new(false),
            end: EndStage::new(),
        } };
}

/// The number of caches in an array.
///
/// # Safety
/// `caches` is this thread's `CACHES`.
#[inline(always)]
unsafe fn len_of(caches: *mut *const ThreadCache) -> usize {
    // SAFETY: the number stands before the first pointer (invariant 1).
    unsafe { *caches.cast::<usize>().sub(1) }
}

fn len() -> u32 {
    // SAFETY: this thread's array.
    unsafe { len_of(CACHES.get()) as u32 }
}

/// The number of slabs dropped in this process.
static CLOSED_SLABS: AtomicUsize = AtomicUsize::new(0);

/// Counts a dropped slab. Each thread detaches from the caches of closed slabs when it next takes a
/// cache.
pub(super) fn count_closed() {
    // Release pairs with the Acquire in `detach_closed`: a thread that sees the count sees that the
    // slab is closed.
    CLOSED_SLABS.fetch_add(1, Ordering::Release);
}

/// The calling thread's cache for a slab number, or [`NO_CACHE`]. It stays the thread's until its
/// array changes: until the thread takes a cache, detaches from one, or ends.
pub(super) fn cache(number: u32) -> *const ThreadCache {
    lookup(number).unwrap_or(NO_CACHE)
}

/// The calling thread's cache for a slab with a place of its own, or [`NO_CACHE`].
#[inline(always)]
pub(super) fn direct(index: DirectIndex) -> *const ThreadCache {
    // SAFETY: below `DIRECT_CACHES` (`DirectIndex::of`).
    DIRECT.with(|caches| unsafe { caches.get_unchecked(index.0 as usize) }.get())
}

/// Sets an entry of the array, which is long enough, and that of the direct table. The caller counts
/// the entry of a cache in the registry.
fn set_cache(number: u32, cache: *const ThreadCache) {
    assert!(number < len());
    // SAFETY: in the bounds of this thread's array, as was just checked.
    unsafe { *CACHES.get().add(number as usize) = cache };
    let index = DirectIndex::of(number);
    if number % 2 == 0 && !index.is_none() {
        DIRECT.with(|caches| caches[index.0 as usize].set(cache));
    }
}

/// Same as [`cache`], but `None` if the array is too short, so that the fast paths need no further
/// check.
#[inline(always)]
pub(super) fn lookup(number: u32) -> Option<*const ThreadCache> {
    let caches = CACHES.get();
    // SAFETY: this thread's array, and the index is in its bounds (invariant 1).
    unsafe { ((number as usize) < len_of(caches)).then(|| *caches.add(number as usize)) }
}

/// The calling thread's cache for a slab and a lifetime; takes one if the thread has none yet.
/// Returns `None` if there is no memory, the slab is closed or the thread is ending.
#[cold]
pub(super) fn cache_or_new(shared: &SlabShared, lifetime: usize) -> Option<*const ThreadCache> {
    let number = shared.number + lifetime as u32;
    let found = cache(number);
    if !ptr::eq(found, NO_CACHE) {
        return Some(found);
    }
    if has_ended()
        || shared.waiters.is_closed()
        || !TABLE_STATE.with(|state| EMPTY_AT_END.will_run(&state.end))
    {
        return None;
    }
    detach_closed();
    // That may have dropped another slab's source or name. Its destructor may use this slab.
    let found = cache(number);
    if !ptr::eq(found, NO_CACHE) {
        return Some(found);
    }
    if !lengthen(number) {
        return None;
    }
    let cache = ThreadCache::attach(shared, lifetime).ok()?.as_ptr().cast_const();
    registry::add_table_entry(number);
    set_cache(number, cache);
    Some(cache)
}

fn has_ended() -> bool {
    TABLE_STATE.with(|state| state.ended.get())
}

/// Flushes what the calling thread caches of a slab for the other lifetime, before the thread waits
/// for a slot for this one, or is refused one. Returns whether there was anything.
#[cold]
pub(super) fn flush_other(number: u32, lifetime: usize) -> bool {
    let other = cache(number + 1 - lifetime as u32);
    if ptr::eq(other, NO_CACHE) {
        return false;
    }
    // SAFETY: a cache in the array is in use, and stays as long as its slab (1, 2).
    let other = unsafe { &*other };
    let any = other.header.held_slots() > 0;
    other.flush();
    any
}

/// Makes the array long enough for a number. Returns whether it succeeded.
fn lengthen(number: u32) -> bool {
    let len = len();
    if number < len {
        return true;
    }
    let longer = (number as usize + 1).next_power_of_two().max(16);
    let element = |index: usize| match index {
        0 => ptr::without_provenance(longer),
        // SAFETY: in the bounds of the previous array (invariant 1).
        _ if index <= len as usize => unsafe { *CACHES.get().add(index - 1) },
        _ => NO_CACHE,
    };
    let Ok(caches) = SystemArray::new(longer + 1, element) else { return false };
    // SAFETY: the block has room for the number and at least one pointer.
    let old = CACHES.replace(unsafe { caches.leak().as_ptr().add(1) });
    free_array(old);
    true
}

fn free_array(caches: *mut *const ThreadCache) {
    // SAFETY: a thread's array that is no longer in use. `lengthen` made it with one element more
    // than it has caches.
    unsafe {
        let len = len_of(caches);
        if len > 0 {
            let start = ptr::NonNull::new_unchecked(caches.sub(1));
            drop(SystemArray::adopt(start, len + 1));
        }
    }
}

/// Detaches the calling thread from its caches of slabs that were dropped.
fn detach_closed() {
    let closed = CLOSED_SLABS.load(Ordering::Acquire);
    if TABLE_STATE.with(|state| state.closed_seen.replace(closed)) != closed {
        for number in 0..len() {
            detach_if(number, |cache| cache.shared().waiters.is_closed());
        }
    }
}

/// Detaches the calling thread from its caches of a slab, except those with handles.
pub(super) fn detach(number: u32) {
    detach_if(number, |_| true);
    detach_if(number + 1, |_| true);
}

fn detach_if(number: u32, wanted: impl FnOnce(&ThreadCache) -> bool) {
    let found = cache(number);
    if ptr::eq(found, NO_CACHE) {
        return;
    }
    if registry::try_add_reference(number) {
        // SAFETY: a cache in the array is in use by this thread, or was taken over. It stays as
        // long as its slab, to which this call has a reference (1, 2).
        let cache = unsafe { &*found };
        // This call may be nested in a visit, in which the slab was dropped; the cache is then still
        // in use.
        let stays =
            cache.has_handles() || cache.header.ownership.visits().is_none() || !wanted(cache);
        if !stays {
            remove_cache(number);
            // SAFETY: just taken out of the array; the reference was added above.
            unsafe { detach_removed(found) };
        }
        SlabShared::release_reference(number);
    } else {
        // Taken over, and gone with its slab.
        remove_cache(number);
    }
}

fn remove_cache(number: u32) {
    set_cache(number, NO_CACHE);
    registry::remove_table_entry(number);
}

/// Detaches from a cache that is no longer in the array, if it was not taken over.
///
/// # Safety
/// The calling thread attached to the cache, and has not detached from it. The caller has a
/// reference to the slab beside the cache's.
unsafe fn detach_removed(cache: *const ThreadCache) {
    // SAFETY: it stays as long as its slab, which has the caller's reference.
    let cache = unsafe { &*cache };
    if let Some(visit) = cache.header.ownership.visit_to_leave() {
        cache.detach();
        drop(visit);
        SlabShared::release_reference(cache.shared().number);
    }
}

/// Ends a handle to a cache. If the thread's array was emptied before, the last handle detaches the
/// thread from the cache.
///
/// # Safety
/// The handle is this thread's, and is not used again.
pub(super) unsafe fn drop_handle(cache: *const ThreadCache) {
    // SAFETY: the handle keeps the cache in use; the borrow ends with this line.
    let left = unsafe { (*cache).drop_handle() };
    if left == 0 && has_ended() {
        // SAFETY: the array was emptied, so the cache is not in it, and the last handle is gone.
        // Its slab is borrowed, and so has another reference.
        unsafe { detach_removed(cache) };
    }
}

/// Registers the handler that adjusts the slabs in children made by fork. A slab without it would
/// hand out memory that the child does not have, so no slab is made before.
pub(super) fn watch_forks() -> Result<(), AllocError> {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    os::on_fork(after_fork, &REGISTERED)
}

/// Uses only atomics and the calling thread's own caches. The child loses what other threads had
/// cached or claimed, and nothing else. A second call in the same child changes nothing.
extern "C" fn after_fork() {
    // A slab reserves what its source has left unmapped, so files reserve theirs first.
    file_mappings::reserve_in_child();
    SlabShared::visit_live(SlabShared::after_fork);
    for number in 0..len() {
        let cache = cache(number);
        if !ptr::eq(cache, NO_CACHE) && registry::try_add_reference(number) {
            // SAFETY: as in `detach_if`.
            unsafe { &*cache }.after_fork();
            SlabShared::release_reference(number);
        }
    }
}

static EMPTY_AT_END: ThreadEnd = ThreadEnd::new(empty_at_end);

extern "C" fn empty_at_end(_: *mut c_void) {
    TABLE_STATE.with(|state| {
        state.end.end();
        state.ended.set(true);
    });
    for number in 0..len() {
        detach_if(number, |_| true);
        // A cache with handles stays in use until the last handle ends.
        if !ptr::eq(cache(number), NO_CACHE) {
            remove_cache(number);
        }
    }
    DIRECT.with(|caches| caches.iter().for_each(|cache| cache.set(NO_CACHE)));
    free_array(CACHES.replace(empty_array()));
}
