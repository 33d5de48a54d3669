//! Locks, which are tried before they are waited for.

use super::caller;
use crate::clock::ticks;
use crate::next::{self, Next};
use crate::raw_file;
use crate::thread::enter;
use crate::unwind::Caller;
use core::ffi::{c_int, c_void};
use trace_format::raw::Lock;

entry!(pthread_mutex_lock, on_mutex_lock, 1);
entry!(pthread_rwlock_rdlock, on_read_lock, 1);
entry!(pthread_rwlock_wrlock, on_write_lock, 1);
entry!(pthread_mutex_timedlock, on_mutex_timed_lock, 2);
entry!(pthread_mutex_clocklock, on_mutex_clock_lock, 3);
entry!(pthread_rwlock_timedrdlock, on_read_timed_lock, 2);
entry!(pthread_rwlock_clockrdlock, on_read_clock_lock, 3);
entry!(pthread_rwlock_timedwrlock, on_write_timed_lock, 2);
entry!(pthread_rwlock_clockwrlock, on_write_clock_lock, 3);

const BUSY: c_int = 16;
const NO_SUCH_FUNCTION: c_int = 38;
const TIMED_OUT: c_int = 110;

/// Takes a lock at once, or waits for it and says how long.
#[inline(always)]
fn lock(
    attempt: &Next,
    lock: *mut c_void,
    kind: Lock,
    caller: Caller,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    let attempt = attempt.get();
    if attempt.is_null() {
        return wait();
    }
    // All answers but that another has it are final: that its owner died may be told by giving it.
    let result = call!(attempt, fn(*mut c_void) -> c_int, lock);
    if result != BUSY {
        return result;
    }
    if !raw_file::is_on() {
        return wait();
    }
    let before = ticks();
    let result = wait();
    if matches!(result, 0 | TIMED_OUT)
        && let Some(entered) = enter()
    {
        let now = ticks();
        // SAFETY: the thread is in the call that the entry has taken over.
        unsafe { entered.waited(now, now.saturating_sub(before), lock as u64, kind, caller) };
    }
    result
}

/// Waits for a lock as long as it takes.
#[inline(always)]
fn wait(next: &Next, lock: *mut c_void) -> c_int {
    let address = next.get();
    if address.is_null() {
        // The loader itself, while it looks for what comes next; there is no second thread yet.
        return 0;
    }
    call!(address, fn(*mut c_void) -> c_int, lock)
}

/// Waits for a lock until a time of the wall clock.
#[inline(always)]
fn wait_until(next: &Next, lock: *mut c_void, time: *const c_void) -> c_int {
    let address = next.get();
    if address.is_null() {
        return NO_SUCH_FUNCTION;
    }
    call!(address, fn(*mut c_void, *const c_void) -> c_int, lock, time)
}

/// Waits for a lock until a time of a clock.
#[inline(always)]
fn wait_by(next: &Next, lock: *mut c_void, clock: c_int, time: *const c_void) -> c_int {
    let address = next.get();
    if address.is_null() {
        return NO_SUCH_FUNCTION;
    }
    call!(address, fn(*mut c_void, c_int, *const c_void) -> c_int, lock, clock, time)
}

/// The three ways to take one kind of lock.
macro_rules! locks {
    ($kind:expr, $attempt:ident, $($hook:ident = $wait:ident($next:ident $(, $more:ident: $type:ty)*);)*) => {
        $(extern "C" fn $hook(
            address: *mut c_void,
            $($more: $type,)*
            stack: u64,
            frame: u64,
            back: u64,
        ) -> c_int {
            lock(&next::$attempt, address, $kind, caller(stack, frame, back), || {
                $wait(&next::$next, address $(, $more)*)
            })
        })*
    };
}

locks! { Lock::Mutex, MUTEX_TRYLOCK,
    on_mutex_lock = wait(MUTEX_LOCK);
    on_mutex_timed_lock = wait_until(MUTEX_TIMEDLOCK, time: *const c_void);
    on_mutex_clock_lock = wait_by(MUTEX_CLOCKLOCK, clock: c_int, time: *const c_void);
}

locks! { Lock::Read, READ_TRYLOCK,
    on_read_lock = wait(READ_LOCK);
    on_read_timed_lock = wait_until(READ_TIMEDLOCK, time: *const c_void);
    on_read_clock_lock = wait_by(READ_CLOCKLOCK, clock: c_int, time: *const c_void);
}

locks! { Lock::Write, WRITE_TRYLOCK,
    on_write_lock = wait(WRITE_LOCK);
    on_write_timed_lock = wait_until(WRITE_TIMEDLOCK, time: *const c_void);
    on_write_clock_lock = wait_by(WRITE_CLOCKLOCK, clock: c_int, time: *const c_void);
}
