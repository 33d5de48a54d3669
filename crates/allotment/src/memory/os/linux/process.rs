//! Clocks, forks, fences and waiting threads.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::thread::MembarrierCommand;
use rustix::time::ClockId;

use super::refused;
use crate::error::{AllocError, ErrorKind};

/// The milliseconds of a monotonic clock, at the resolution of the kernel's tick (1 to 10 ms).
/// Costs a few nanoseconds: with a vDSO there is no system call.
pub fn coarse_millis() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// The nanoseconds of a monotonic clock. Costs about 20 ns: with a vDSO there is no system call.
pub fn nanos() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The nanoseconds that the calling thread has run. Costs a few hundred nanoseconds: a system call.
pub fn thread_nanos() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Registers a function that every later child made by fork calls, on its only thread. Sets
/// `registered`, and does nothing if it was set before. The function must be async-signal-safe, and
/// a second call in the same child must be harmless: two threads may register it at the same time.
pub fn on_fork(child: extern "C" fn(), registered: &AtomicBool) -> Result<(), AllocError> {
    register_at_fork(None, None, child, registered)
}

/// Registers a function that every later fork calls before it forks, and functions that it calls
/// afterwards in the parent and in the child, all on the forking thread. The rest is as for
/// [`on_fork`]: a second call of each must be harmless.
pub fn around_fork(
    before: extern "C" fn(),
    in_parent: extern "C" fn(),
    in_child: extern "C" fn(),
    registered: &AtomicBool,
) -> Result<(), AllocError> {
    register_at_fork(Some(before), Some(in_parent), in_child, registered)
}

fn register_at_fork(
    prepare: Option<extern "C" fn()>,
    parent: Option<extern "C" fn()>,
    child: extern "C" fn(),
    registered: &AtomicBool,
) -> Result<(), AllocError> {
    unsafe extern "C" {
        /// POSIX; every supported C library has it.
        safe fn pthread_atfork(
            prepare: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> core::ffi::c_int;
    }
    // Acquire pairs with the Release below: a thread that sees the flag forks after the functions
    // were registered.
    if registered.load(Ordering::Acquire) {
        return Ok(());
    }
    match pthread_atfork(prepare, parent, Some(child)) {
        0 => {
            registered.store(true, Ordering::Release);
            Ok(())
        }
        // The C library has no memory to record the three functions.
        code => Err(AllocError::new(ErrorKind::System(code), 3 * size_of_val(&child))),
    }
}

/// Declares that this process will call [`fence_process`]. Kernels before 4.14 and some sandboxes
/// refuse.
pub fn register_process_fences() -> Result<(), AllocError> {
    membarrier(MembarrierCommand::RegisterPrivateExpedited)
}

/// Makes every thread of this process, including the calling thread, execute a full memory fence
/// between the call and its return. A child made by fork need not register again.
pub fn fence_process() -> Result<(), AllocError> {
    membarrier(MembarrierCommand::PrivateExpedited).or_else(|error| {
        if error.kind() != ErrorKind::System(Errno::PERM.raw_os_error()) {
            return Err(error);
        }
        // Not registered: the kernel may not pass the registration on to children.
        register_process_fences()?;
        membarrier(MembarrierCommand::PrivateExpedited)
    })
}

fn membarrier(command: MembarrierCommand) -> Result<(), AllocError> {
    rustix::thread::membarrier(command).map_err(|errno| refused(errno, 0))
}

/// Sleeps until a thread calls [`wake_all`] on `word`. Returns immediately if `word` is not
/// `expected`. May also return without cause, so callers check the word again.
pub fn wait_on(word: &AtomicU32, expected: u32) {
    let _ = rustix::thread::futex::wait(word, futex_flags(), expected, None);
}

/// Wakes every thread that sleeps on `word`.
pub fn wake_all(word: &AtomicU32) {
    let _ = rustix::thread::futex::wake(word, futex_flags(), i32::MAX as u32);
}

fn futex_flags() -> rustix::thread::futex::Flags {
    rustix::thread::futex::Flags::PRIVATE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_registered_can_have_its_threads_fenced() {
        match register_process_fences() {
            Ok(()) => fence_process().unwrap(),
            Err(error) => println!("skipped: this kernel has no fences for a process: {error}"),
        }
    }

    #[test]
    fn the_coarse_clock_does_not_go_back() {
        let first = coarse_millis();
        assert!(coarse_millis() >= first);
    }
}
