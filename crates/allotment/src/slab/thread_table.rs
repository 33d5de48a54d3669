//! Each thread's table of thread caches (`ThreadCache`), by slab number. The odd number behind a slab's
//! number is for long-lived objects.
//!
//! # Invariants
//!
//! 1. `FRONTS` is the address of an array of pointers. Each points to [`NOBODY`], or to a cache
//!    that is in use by this thread. The number of pointers stands before the first one, so that
//!    the fast paths read one thread-local word. Only this thread reads or writes the array. A
//!    thread without an array has [`NONE`], whose number is 0.
//! 2. A cache in the array holds a reference to its core. So a number in the array stands for the
//!    same slab as when the cache was taken.
//! 3. The array has no destructor, so that it can be used until the thread's last instruction.
//!    `GUARD` has a destructor, which empties the array for good.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::registry;
use super::shared::Shared;
use super::thread_cache::{NOBODY, ThreadCache};
use crate::memory::metadata::Metadata;
use crate::memory::os;

struct Guard;

/// The thread's bookkeeping beside the array.
struct Thread {
    /// The value of `CLOSED` when the array was last swept.
    swept: Cell<usize>,
    ended: Cell<bool>,
}

/// The number that stands before an array without caches.
static NONE: usize = 0;

const fn no_fronts() -> *mut *const ThreadCache {
    // The address just behind the number.
    (&raw const NONE).wrapping_add(1).cast::<*const ThreadCache>().cast_mut()
}

thread_local! {
    static FRONTS: Cell<*mut *const ThreadCache> = const { Cell::new(no_fronts()) };
    static THREAD: Thread = const { Thread { swept: Cell::new(0), ended: Cell::new(false) } };
    static GUARD: Guard = const { Guard };
}

/// The number of caches in an array.
///
/// # Safety
/// `fronts` is this thread's `FRONTS`.
#[inline(always)]
unsafe fn len_of(fronts: *mut *const ThreadCache) -> usize {
    // SAFETY: the number stands before the first pointer (invariant 1).
    unsafe { *fronts.cast::<usize>().sub(1) }
}

fn len() -> u32 {
    // SAFETY: this thread's array.
    unsafe { len_of(FRONTS.get()) as u32 }
}

/// The number of slabs dropped in this process.
static CLOSED: AtomicUsize = AtomicUsize::new(0);

/// Counts a dropped slab. Each thread sweeps its array when it next takes a cache.
pub(super) fn count_closed() {
    // Release pairs with the Acquire in `sweep`: a thread that sees the count sees that the slab is
    // closed.
    CLOSED.fetch_add(1, Ordering::Release);
}

/// The calling thread's cache for a slab number, or [`NOBODY`]. It stays the thread's until its
/// array changes: until the thread takes a cache, leaves one, or ends.
pub(super) fn front(number: u32) -> *const ThreadCache {
    found(number).unwrap_or(NOBODY)
}

/// Same as [`front`], but `None` if the array is too short, so that the fast paths need no further
/// check.
#[inline(always)]
pub(super) fn found(number: u32) -> Option<*const ThreadCache> {
    let fronts = FRONTS.get();
    // SAFETY: this thread's array, and the index is in its bounds (invariant 1).
    unsafe { ((number as usize) < len_of(fronts)).then(|| *fronts.add(number as usize)) }
}

/// The calling thread's cache for a slab and a lifetime; takes one if the thread has none yet.
/// Returns `None` if there is no memory, the slab is closed or the thread is ending.
#[cold]
pub(super) fn front_or_new(core: &Shared, lifetime: usize) -> Option<*const ThreadCache> {
    let number = core.number + lifetime as u32;
    let front = front(number);
    if !ptr::eq(front, NOBODY) {
        return Some(front);
    }
    if has_ended() || core.is_closed() || GUARD.try_with(|_| ()).is_err() || !make_room(number) {
        return None;
    }
    sweep();
    let front = core.take_front(lifetime).ok()?.as_ptr().cast_const();
    // SAFETY: `make_room` has made the array long enough.
    unsafe { *FRONTS.get().add(number as usize) = front };
    Some(front)
}

fn has_ended() -> bool {
    THREAD.with(|thread| thread.ended.get())
}

/// Flushes what the calling thread caches of a slab for the other lifetime, before the thread is
/// refused a slot for this one. Returns whether there was anything.
#[cold]
pub(super) fn flush_other(number: u32, lifetime: usize) -> bool {
    let other = front(number + 1 - lifetime as u32);
    if ptr::eq(other, NOBODY) {
        return false;
    }
    // SAFETY: a cache in the array is in use, and stays as long as its core (1, 2).
    let other = unsafe { &*other };
    let any = other.cached() > 0;
    other.flush();
    any
}

fn make_room(number: u32) -> bool {
    let len = len();
    if number < len {
        return true;
    }
    let longer = (number as usize + 1).next_power_of_two().max(16);
    let place = |index: usize| match index {
        0 => ptr::without_provenance(longer),
        // SAFETY: in the bounds of the previous array (invariant 1).
        _ if index <= len as usize => unsafe { *FRONTS.get().add(index - 1) },
        _ => NOBODY,
    };
    let Ok(fronts) = Metadata::new(longer + 1, place) else { return false };
    // SAFETY: the block has room for the number and at least one pointer.
    let old = FRONTS.replace(unsafe { fronts.as_ptr().as_ptr().add(1) });
    core::mem::forget(fronts);
    free_array(old);
    true
}

fn free_array(fronts: *mut *const ThreadCache) {
    // SAFETY: a thread's array that is no longer in use. `make_room` made it with one element more
    // than it has caches.
    unsafe {
        let len = len_of(fronts);
        if len > 0 {
            let start = ptr::NonNull::new_unchecked(fronts.sub(1));
            drop(Metadata::adopt(start, len + 1));
        }
    }
}

/// Leaves the caches of slabs that were dropped.
fn sweep() {
    let closed = CLOSED.load(Ordering::Acquire);
    if THREAD.with(|thread| thread.swept.replace(closed)) != closed {
        for number in 0..len() {
            leave_if(number, ThreadCache::is_closed);
        }
    }
}

/// Leaves the calling thread's caches of a slab, except those with handles.
pub(super) fn leave(number: u32) {
    leave_if(number, |_| true);
    leave_if(number + 1, |_| true);
}

fn leave_if(number: u32, wanted: impl FnOnce(&ThreadCache) -> bool) {
    let front = front(number);
    if ptr::eq(front, NOBODY) {
        return;
    }
    {
        // SAFETY: a cache in the array is in use, and stays as long as its core (1, 2).
        let front = unsafe { &*front };
        if front.has_handles() || !wanted(front) {
            return;
        }
    }
    // SAFETY: a cache other than `NOBODY` came from the array, so the index is in its bounds.
    unsafe { *FRONTS.get().add(number as usize) = NOBODY };
    // SAFETY: this thread's, just taken out of the array; no reference to it is left here.
    unsafe { give_up(front) };
}

/// Gives up a cache that is no longer in the array. Its memory goes with its slab's last reference, which may be this one. So the cache
/// comes as a pointer: a reference in the arguments would promise that it lives until the call returns.
///
/// # Safety
/// The cache is in use by this thread, and nothing refers to it.
unsafe fn give_up(front: *const ThreadCache) {
    // SAFETY: in use, so its reference to the core keeps it until `unrefer`; neither borrow lasts until then.
    let number = unsafe { (*front).core().number };
    // SAFETY: as above.
    unsafe { (*front).leave() };
    registry::unrefer(number);
}

/// Ends a handle to a cache. If its thread's array has ended before, the last handle leaves the
/// cache.
///
/// # Safety
/// The handle is this thread's, and is not used again.
pub(super) unsafe fn drop_handle(front: *const ThreadCache) {
    // SAFETY: the handle keeps the cache in use; the borrow ends with this line.
    let left = unsafe { (*front).drop_handle() };
    if left == 0 && has_ended() {
        // SAFETY: the array has ended, so the cache is not in it, and the last handle is gone.
        unsafe { give_up(front) };
    }
}

/// Registers the handler that adjusts the slabs in children made by fork.
pub(super) fn watch_forks() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.load(Ordering::Relaxed) && !WATCHED.swap(true, Ordering::Relaxed) {
        os::on_fork(now_a_child);
    }
}

/// Uses only atomics and the calling thread's own caches. The child loses what other threads had
/// cached or claimed, and nothing else.
extern "C" fn now_a_child() {
    registry::each(Shared::now_a_child);
    for number in 0..len() {
        let front = front(number);
        if !ptr::eq(front, NOBODY) {
            // SAFETY: a cache in the array is in use, and stays as long as its core (1, 2).
            unsafe { &*front }.now_a_child();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.ended.set(true));
        for number in 0..len() {
            // A cache with handles stays in use until the last handle ends.
            leave_if(number, |_| true);
        }
        free_array(FRONTS.replace(no_fronts()));
    }
}
