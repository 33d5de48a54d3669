//! What changes the process: the modules that it consists of, and what it forbids itself.

use crate::clock::ticks;
use crate::generation;
use crate::next;
use crate::raw_file;
use crate::seccomp;
use crate::thread::enter;
use crate::unwind::modules;
use core::ffi::{c_int, c_long, c_void};

/// The program's way in.
///
/// # Safety
///
/// As the function of that name says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let result = call!(next::DLCLOSE.get(), fn(*mut c_void) -> c_int, handle);
    if let Some(entered) = enter() {
        // SAFETY: the state is this thread's while it is entered.
        unsafe { modules::look_for_gone(entered.thread(), ticks()) };
    }
    result
}

const NO_SUCH_CALL: c_int = -1;
const PRCTL_SECCOMP: c_int = 22;
/// Asks for a signal at a look at the processor's clock; so does the strict way of forbidding calls.
const PRCTL_CLOCK: c_int = 26;
const CLOCK_FORBIDDEN: usize = 2;
/// What both calls call their ways: nothing but reading and writing, or a filter.
const STRICT: usize = 1;
const FILTER: usize = 2;
#[cfg(target_arch = "x86_64")]
const CALL_SECCOMP: c_long = 317;
#[cfg(target_arch = "x86_64")]
const CALL_PRCTL: c_long = 157;
#[cfg(target_arch = "aarch64")]
const CALL_SECCOMP: c_long = 277;
#[cfg(target_arch = "aarch64")]
const CALL_PRCTL: c_long = 167;

/// Before the program forbids itself something.
#[cold]
fn forbids_itself(option: c_int, how: usize, filter: usize) {
    let forbidden = match option {
        PRCTL_SECCOMP if how == FILTER => {
            seccomp::forbids(core::ptr::with_exposed_provenance(filter))
        }
        PRCTL_SECCOMP => how == STRICT,
        _ => how == CLOCK_FORBIDDEN,
    };
    if forbidden {
        // A child of a fork begins its recording, so that it's not the parent's that ends.
        drop(enter());
        raw_file::forbidden();
        // So that no thread makes a call for the chunk that it has.
        generation::next();
    }
}

/// The program's way in. Arguments that the program doesn't give are what happens to be in their registers, for the kernel too.
///
/// # Safety
///
/// As the function of that name says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if matches!(option, PRCTL_SECCOMP | PRCTL_CLOCK) {
        forbids_itself(option, a, b);
    }
    let address = next::PRCTL.get();
    if address.is_null() {
        return NO_SUCH_CALL;
    }
    call!(address, fn(c_int, usize, usize, usize, usize) -> c_int, option, a, b, c, d)
}

/// The program's way in, as for [`prctl`].
///
/// # Safety
///
/// As the function of that name says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    match number {
        // Its first argument says which way, from 0 on; the filter is the third.
        CALL_SECCOMP if a < FILTER => forbids_itself(PRCTL_SECCOMP, a + STRICT, c),
        CALL_PRCTL if matches!(a as c_int, PRCTL_SECCOMP | PRCTL_CLOCK) => {
            forbids_itself(a as c_int, b, c);
        }
        _ => {}
    }
    let address = next::SYSCALL.get();
    if address.is_null() {
        return NO_SUCH_CALL.into();
    }
    call!(
        address,
        fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long,
        number,
        a,
        b,
        c,
        d,
        e,
        f
    )
}
