//! Hooks for calls that change the process: `dlclose` unloads modules, `prctl` and `syscall` can
//! forbid system calls or reading the clock.

use crate::clock::ticks;
use crate::generation;
use crate::modules;
use crate::next_functions as next;
use crate::raw_file;
use crate::seccomp;
use crate::threads::enter;
use core::ffi::{c_int, c_long, c_void};

/// The function that the program calls.
///
/// # Safety
///
/// As for the next function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let result = call!(next::DLCLOSE.get(), fn(*mut c_void) -> c_int, handle);
    if let Some(entry) = enter() {
        // SAFETY: the state is this thread's while it is in the hook.
        unsafe { modules::mark_unloaded(entry.state(), ticks()) };
    }
    result
}

/// The result of a call that the C library does not have.
const FAILED: c_int = -1;
const PR_SET_SECCOMP: c_int = 22;
/// Makes reading the processor's clock raise a signal. The strict mode of seccomp does the same.
const PR_SET_TSC: c_int = 26;
const PR_TSC_SIGSEGV: usize = 2;
/// The modes of `PR_SET_SECCOMP`: only reads and writes are allowed, or what a filter allows. The
/// operations of the system call `seccomp` are these less one.
const SECCOMP_MODE_STRICT: usize = 1;
const SECCOMP_MODE_FILTER: usize = 2;
#[cfg(target_arch = "x86_64")]
const SYS_SECCOMP: c_long = 317;
#[cfg(target_arch = "x86_64")]
const SYS_PRCTL: c_long = 157;
#[cfg(target_arch = "aarch64")]
const SYS_SECCOMP: c_long = 277;
#[cfg(target_arch = "aarch64")]
const SYS_PRCTL: c_long = 167;

/// Ends the recording if what the program is about to forbid itself would harm it.
#[cold]
fn before_restriction(option: c_int, mode: usize, filter: usize) {
    let forbidden = match option {
        PR_SET_SECCOMP if mode == SECCOMP_MODE_FILTER => {
            seccomp::forbids(core::ptr::with_exposed_provenance(filter))
        }
        PR_SET_SECCOMP => mode == SECCOMP_MODE_STRICT,
        _ => mode == PR_TSC_SIGSEGV,
    };
    if forbidden {
        // The child of a fork first begins its own recording, so that the parent's does not end.
        drop(enter());
        raw_file::end_before_filter();
        // All threads check their state again, and make no system call for their current chunks.
        generation::advance();
    }
}

/// The function that the program calls. Arguments that the program does not pass are whatever is in
/// their registers, as for the kernel.
///
/// # Safety
///
/// As for the next function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if matches!(option, PR_SET_SECCOMP | PR_SET_TSC) {
        before_restriction(option, a, b);
    }
    let address = next::PRCTL.get();
    if address.is_null() {
        return FAILED;
    }
    call!(address, fn(c_int, usize, usize, usize, usize) -> c_int, option, a, b, c, d)
}

/// The function that the program calls, as for [`prctl`].
///
/// # Safety
///
/// As for the next function of that name.
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
        // The first argument is the operation, from 0 on; the third is the filter.
        SYS_SECCOMP if a < SECCOMP_MODE_FILTER => {
            before_restriction(PR_SET_SECCOMP, a + SECCOMP_MODE_STRICT, c)
        }
        SYS_PRCTL if matches!(a as c_int, PR_SET_SECCOMP | PR_SET_TSC) => {
            before_restriction(a as c_int, b, c);
        }
        _ => {}
    }
    let address = next::SYSCALL.get();
    if address.is_null() {
        return FAILED.into();
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
