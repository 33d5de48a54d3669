//! Hooks for locks. A lock is first tried, so that only a wait is recorded.

use super::call_site;
use crate::clock::ticks;
use crate::next_functions::{self as next, NextFunction};
use crate::raw_file;
use crate::threads::enter_without_allocating;
use crate::unwind::CallSite;
use core::ffi::{c_int, c_void};
use trace_format::raw::LockKind;

entry!(pthread_mutex_lock, on_mutex_lock, 1);
entry!(pthread_rwlock_rdlock, on_read_lock, 1);
entry!(pthread_rwlock_wrlock, on_write_lock, 1);
entry!(pthread_mutex_timedlock, on_mutex_timed_lock, 2);
entry!(pthread_mutex_clocklock, on_mutex_clock_lock, 3);
entry!(pthread_rwlock_timedrdlock, on_read_timed_lock, 2);
entry!(pthread_rwlock_clockrdlock, on_read_clock_lock, 3);
entry!(pthread_rwlock_timedwrlock, on_write_timed_lock, 2);
entry!(pthread_rwlock_clockwrlock, on_write_clock_lock, 3);

const EBUSY: c_int = 16;
const ENOSYS: c_int = 38;
const ETIMEDOUT: c_int = 110;

/// Takes a lock at once, or waits for it and records how long that took.
#[inline(always)]
fn lock(
    try_function: &NextFunction,
    lock: *mut c_void,
    kind: LockKind,
    site: CallSite,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    let try_function = try_function.get();
    if try_function.is_null() {
        return wait();
    }
    // Any result but EBUSY is final. For example, EOWNERDEAD also means that the lock was taken.
    let result = call!(try_function, fn(*mut c_void) -> c_int, lock);
    if result != EBUSY {
        return result;
    }
    if !raw_file::is_recording() {
        return wait();
    }
    let before = ticks();
    let result = wait();
    if matches!(result, 0 | ETIMEDOUT)
        && let Some(entry) = enter_without_allocating()
    {
        let now = ticks();
        // SAFETY: the thread is in the hooked call.
        unsafe { entry.waited(now, now.saturating_sub(before), lock as u64, kind, site) };
    }
    result
}

/// Waits for a lock without a time limit.
#[inline(always)]
fn wait(next: &NextFunction, lock: *mut c_void) -> c_int {
    let address = next.get();
    if address.is_null() {
        // The loader itself, while it looks up the next functions. There is no second thread yet.
        return 0;
    }
    call!(address, fn(*mut c_void) -> c_int, lock)
}

/// Waits for a lock until a time of the realtime clock.
#[inline(always)]
fn wait_until(next: &NextFunction, lock: *mut c_void, time: *const c_void) -> c_int {
    let address = next.get();
    if address.is_null() {
        return ENOSYS;
    }
    call!(address, fn(*mut c_void, *const c_void) -> c_int, lock, time)
}

/// Waits for a lock until a time of a clock.
#[inline(always)]
fn wait_until_clock(
    next: &NextFunction,
    lock: *mut c_void,
    clock: c_int,
    time: *const c_void,
) -> c_int {
    let address = next.get();
    if address.is_null() {
        return ENOSYS;
    }
    call!(address, fn(*mut c_void, c_int, *const c_void) -> c_int, lock, clock, time)
}

/// The three hooks of one kind of lock.
macro_rules! locks {
    ($kind:expr, $try_function:ident, $($hook:ident = $wait:ident($next:ident $(, $argument:ident: $type:ty)*);)*) => {
        $(extern "C" fn $hook(
            address: *mut c_void,
            $($argument: $type,)*
            stack: u64,
            frame: u64,
            return_address: u64,
        ) -> c_int {
            lock(&next::$try_function, address, $kind, call_site(stack, frame, return_address), || {
                $wait(&next::$next, address $(, $argument)*)
            })
        })*
    };
}

locks! { LockKind::Mutex, MUTEX_TRYLOCK,
    on_mutex_lock = wait(MUTEX_LOCK);
    on_mutex_timed_lock = wait_until(MUTEX_TIMEDLOCK, time: *const c_void);
    on_mutex_clock_lock = wait_until_clock(MUTEX_CLOCKLOCK, clock: c_int, time: *const c_void);
}

locks! { LockKind::Read, READ_TRYLOCK,
    on_read_lock = wait(READ_LOCK);
    on_read_timed_lock = wait_until(READ_TIMEDLOCK, time: *const c_void);
    on_read_clock_lock = wait_until_clock(READ_CLOCKLOCK, clock: c_int, time: *const c_void);
}

locks! { LockKind::Write, WRITE_TRYLOCK,
    on_write_lock = wait(WRITE_LOCK);
    on_write_timed_lock = wait_until(WRITE_TIMEDLOCK, time: *const c_void);
    on_write_clock_lock = wait_until_clock(WRITE_CLOCKLOCK, clock: c_int, time: *const c_void);
}
