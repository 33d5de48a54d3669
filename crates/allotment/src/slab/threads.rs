//! Each thread's table of fronts, by slab number (and the odd number behind it, for long-lived objects).
//!
//! # Invariants
//!
//! 1. `TABLE.fronts` is an array of `TABLE.len` pointers, each to [`NOBODY`] or to a front that is this thread's and
//!    in use. Only this thread reads or writes it.
//! 2. A front in the table is a reference to its core; so a number in the table stands for the same slab as when
//!    the front was taken.
//! 3. The table has no destructor, so that it may be used to the thread's last instruction; `GUARD` has one, which
//!    empties the table for good.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::core::Core;
use super::front::{Front, NOBODY};
use super::registry;
use crate::memory::os;
use crate::memory::structures::Structures;

struct Table {
    fronts: Cell<*mut *const Front>,
    len: Cell<u32>,
    /// The count of closed slabs when the table was last swept.
    swept: Cell<usize>,
    ended: Cell<bool>,
}

struct Guard;

thread_local! {
    static TABLE: Table = const {
        Table {
            fronts: Cell::new(ptr::null_mut()),
            len: Cell::new(0),
            swept: Cell::new(0),
            ended: Cell::new(false),
        }
    };
    static GUARD: Guard = const { Guard };
}

/// Slabs that were dropped, ever.
static CLOSED: AtomicUsize = AtomicUsize::new(0);

/// Counts a dropped slab: each thread looks through its table when it next takes a front.
pub(super) fn count_closed() {
    CLOSED.fetch_add(1, Ordering::Relaxed);
}

/// The calling thread's front for a slab number, or [`NOBODY`]. It is the thread's as long as its table does not
/// change: until it takes or leaves a front, or ends.
pub(super) fn front(number: u32) -> *const Front {
    found(number).unwrap_or(&raw const NOBODY)
}

/// As [`front`], or nothing where the table is too short: the fast paths then have nothing else to find out.
#[inline(always)]
pub(super) fn found(number: u32) -> Option<*const Front> {
    TABLE.with(|table| {
        // SAFETY: in the table's bounds (invariant 1).
        (number < table.len.get()).then(|| unsafe { *table.fronts.get().add(number as usize) })
    })
}

/// The calling thread's front for a slab and a lifetime, taken if it has none yet. Nothing when that can't be had:
/// no memory, or the thread is at its end.
#[cold]
pub(super) fn front_or_new(core: &Core, lifetime: usize) -> Option<*const Front> {
    let number = core.number + lifetime as u32;
    let front = front(number);
    if !ptr::eq(front, &NOBODY) {
        return Some(front);
    }
    let ended = TABLE.with(|table| table.ended.get());
    if ended || core.is_closed() || GUARD.try_with(|_| ()).is_err() || !make_room(number) {
        return None;
    }
    sweep();
    let front = core.take_front(lifetime).ok()?.as_ptr().cast_const();
    // SAFETY: `make_room` has made the place.
    TABLE.with(|table| unsafe { *table.fronts.get().add(number as usize) = front });
    Some(front)
}

fn make_room(number: u32) -> bool {
    TABLE.with(|table| {
        let len = table.len.get();
        if number < len {
            return true;
        }
        let longer = (number + 1).next_power_of_two().max(16);
        let place = |index: usize| {
            if index < len as usize {
                // SAFETY: in the old table's bounds (invariant 1).
                unsafe { *table.fronts.get().add(index) }
            } else {
                &raw const NOBODY
            }
        };
        let Ok(fronts) = Structures::new(longer as usize, place) else { return false };
        let old = table.fronts.replace(fronts.as_ptr().as_ptr());
        core::mem::forget(fronts);
        table.len.set(longer);
        free_table(old, len);
        true
    })
}

fn free_table(fronts: *mut *const Front, len: u32) {
    if let Some(fronts) = ptr::NonNull::new(fronts) {
        // SAFETY: made by `make_room` with this length, and no longer in use.
        drop(unsafe { Structures::adopt(fronts, len as usize) });
    }
}

/// Leaves the fronts of slabs that were dropped.
fn sweep() {
    TABLE.with(|table| {
        let closed = CLOSED.load(Ordering::Relaxed);
        if table.swept.replace(closed) == closed {
            return;
        }
        for number in 0..table.len.get() {
            leave_if(number, Front::is_closed);
        }
    });
}

/// Leaves the calling thread's fronts for a slab, if it has any without handles.
pub(super) fn leave(number: u32) {
    leave_if(number, |_| true);
    leave_if(number + 1, |_| true);
}

fn leave_if(number: u32, wanted: impl FnOnce(&Front) -> bool) {
    let front = front(number);
    if ptr::eq(front, &NOBODY) {
        return;
    }
    // SAFETY: a front in the table is in use, and stays as long as its core (1, 2).
    let front = unsafe { &*front };
    if front.has_handles() || !wanted(front) {
        return;
    }
    // SAFETY: a front that is not `NOBODY` is in the table's bounds.
    TABLE.with(|table| unsafe { *table.fronts.get().add(number as usize) = &raw const NOBODY });
    give_up(front);
}

/// Gives up a front that is no longer in the table.
fn give_up(front: &Front) {
    let number = front.core().number;
    front.leave();
    registry::unrefer(number);
}

/// A handle to a front ends. If its thread's table has ended before, the front is left now.
pub(super) fn drop_handle(front: &Front) {
    if front.drop_handle() == 0 && TABLE.with(|table| table.ended.get()) {
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
    TABLE.with(|table| {
        for number in 0..table.len.get() {
            let front = front(number);
            if !ptr::eq(front, &NOBODY) {
                // SAFETY: a front in the table is in use, and stays as long as its core (1, 2).
                unsafe { &*front }.now_a_child();
            }
        }
    });
}

impl Drop for Guard {
    fn drop(&mut self) {
        TABLE.with(|table| {
            for number in 0..table.len.get() {
                // A front with handles stays in use until the last of them goes.
                leave_if(number, |_| true);
            }
            table.ended.set(true);
            let len = table.len.replace(0);
            free_table(table.fronts.replace(ptr::null_mut()), len);
        });
    }
}
