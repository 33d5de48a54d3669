//! Each thread's array of fronts, by slab number (and the odd number behind it, for long-lived objects).
//!
//! # Invariants
//!
//! 1. `FRONTS` is the address of an array of pointers, each to [`NOBODY`] or to a front that is this thread's and in
//!    use; in the place before the first stands their number, so that the fast paths look at one thread-local word.
//!    Only this thread reads or writes them. A thread without an array has [`NONE`], whose number is 0.
//! 2. A front in the array is a reference to its core; so a number in the array stands for the same slab as when
//!    the front was taken.
//! 3. The array has no destructor, so that it may be used to the thread's last instruction; `GUARD` has one, which
//!    empties the array for good.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::core::Core;
use super::front::{Front, NOBODY};
use super::registry;
use crate::memory::os;
use crate::memory::structures::Structures;

struct Guard;

/// The thread's own bookkeeping beside the array.
struct Thread {
    /// The count of closed slabs when the array was last swept.
    swept: Cell<usize>,
    ended: Cell<bool>,
}

/// The number of an array without fronts.
static NONE: usize = 0;

const fn no_fronts() -> *mut *const Front {
    // One past the number.
    (&raw const NONE).wrapping_add(1).cast::<*const Front>().cast_mut()
}

thread_local! {
    static FRONTS: Cell<*mut *const Front> = const { Cell::new(no_fronts()) };
    static THREAD: Thread = const { Thread { swept: Cell::new(0), ended: Cell::new(false) } };
    static GUARD: Guard = const { Guard };
}

/// The number of fronts in an array.
///
/// # Safety
/// It is `FRONTS` of this thread.
#[inline(always)]
unsafe fn len_of(fronts: *mut *const Front) -> usize {
    // SAFETY: the number stands before the first place (invariant 1).
    unsafe { *fronts.cast::<usize>().sub(1) }
}

fn len() -> u32 {
    // SAFETY: asked about this thread's array.
    unsafe { len_of(FRONTS.get()) as u32 }
}

/// Slabs that were dropped, ever.
static CLOSED: AtomicUsize = AtomicUsize::new(0);

/// Counts a dropped slab: each thread looks through its array when it next takes a front.
pub(super) fn count_closed() {
    // Release pairs with the Acquire in `sweep`: who sees the count sees that the slab is closed.
    CLOSED.fetch_add(1, Ordering::Release);
}

/// The calling thread's front for a slab number, or [`NOBODY`]. It is the thread's as long as its array does not
/// change: until it takes or leaves a front, or ends.
pub(super) fn front(number: u32) -> *const Front {
    found(number).unwrap_or(NOBODY)
}

/// As [`front`], or nothing where the array is too short: the fast paths then have nothing else to find out.
#[inline(always)]
pub(super) fn found(number: u32) -> Option<*const Front> {
    let fronts = FRONTS.get();
    // SAFETY: this thread's array, and in its bounds (invariant 1).
    unsafe { ((number as usize) < len_of(fronts)).then(|| *fronts.add(number as usize)) }
}

/// The calling thread's front for a slab and a lifetime, taken if it has none yet. Nothing when that can't be had:
/// no memory, or the thread is at its end.
#[cold]
pub(super) fn front_or_new(core: &Core, lifetime: usize) -> Option<*const Front> {
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
    // SAFETY: `make_room` has made the place.
    unsafe { *FRONTS.get().add(number as usize) = front };
    Some(front)
}

fn has_ended() -> bool {
    THREAD.with(|thread| thread.ended.get())
}

/// Gives back what the calling thread has at hand of a slab for the other lifetime, before it would be refused a slot
/// for this one. Whether there was something.
#[cold]
pub(super) fn flush_other(number: u32, lifetime: usize) -> bool {
    let other = front(number + 1 - lifetime as u32);
    if ptr::eq(other, NOBODY) {
        return false;
    }
    // SAFETY: a front in the table is in use, and stays as long as its core (1, 2).
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
        // SAFETY: in the bounds of the array before (invariant 1).
        _ if index <= len as usize => unsafe { *FRONTS.get().add(index - 1) },
        _ => NOBODY,
    };
    let Ok(fronts) = Structures::new(longer + 1, place) else { return false };
    // SAFETY: the block has the number and at least one place.
    let old = FRONTS.replace(unsafe { fronts.as_ptr().as_ptr().add(1) });
    core::mem::forget(fronts);
    free_array(old);
    true
}

fn free_array(fronts: *mut *const Front) {
    // SAFETY: a thread's array, no longer in use: made by `make_room` with one place more than it has fronts.
    unsafe {
        let len = len_of(fronts);
        if len > 0 {
            let start = ptr::NonNull::new_unchecked(fronts.sub(1));
            drop(Structures::adopt(start, len + 1));
        }
    }
}

/// Leaves the fronts of slabs that were dropped.
fn sweep() {
    let closed = CLOSED.load(Ordering::Acquire);
    if THREAD.with(|thread| thread.swept.replace(closed)) != closed {
        for number in 0..len() {
            leave_if(number, Front::is_closed);
        }
    }
}

/// Leaves the calling thread's fronts for a slab, if it has any without handles.
pub(super) fn leave(number: u32) {
    leave_if(number, |_| true);
    leave_if(number + 1, |_| true);
}

fn leave_if(number: u32, wanted: impl FnOnce(&Front) -> bool) {
    let front = front(number);
    if ptr::eq(front, NOBODY) {
        return;
    }
    // SAFETY: a front in the array is in use, and stays as long as its core (1, 2).
    let front = unsafe { &*front };
    if front.has_handles() || !wanted(front) {
        return;
    }
    // SAFETY: a front that is not `NOBODY` is in the array's bounds.
    unsafe { *FRONTS.get().add(number as usize) = NOBODY };
    give_up(front);
}

/// Gives up a front that is no longer in the array.
fn give_up(front: &Front) {
    let number = front.core().number;
    front.leave();
    registry::unrefer(number);
}

/// A handle to a front ends. If its thread's array has ended before, the front is left now.
pub(super) fn drop_handle(front: &Front) {
    if front.drop_handle() == 0 && has_ended() {
        give_up(front);
    }
}

/// Sees to it that children made by fork know.
pub(super) fn watch_forks() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.load(Ordering::Relaxed) && !WATCHED.swap(true, Ordering::Relaxed) {
        os::on_fork(now_a_child);
    }
}

/// Atomics alone, and the calling thread's own fronts: what other threads had at hand, or had claimed, is lost to the
/// child, and nothing else.
extern "C" fn now_a_child() {
    registry::each(Core::now_a_child);
    for number in 0..len() {
        let front = front(number);
        if !ptr::eq(front, NOBODY) {
            // SAFETY: a front in the array is in use, and stays as long as its core (1, 2).
            unsafe { &*front }.now_a_child();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.ended.set(true));
        for number in 0..len() {
            // A front with handles stays in use until the last of them goes.
            leave_if(number, |_| true);
        }
        free_array(FRONTS.replace(no_fronts()));
    }
}
