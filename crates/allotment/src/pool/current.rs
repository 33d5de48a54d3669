//! The thread's current pool.
//!
//! A thread-local without initialisation or destructor: it can be read at any time in a thread's
//! life, and by a global allocator.
//!
//! The pointer is untyped, so that this file needs nothing of what pools are made of.
//! `PoolShared::current` gives it its type.

use core::cell::Cell;
use core::ptr;

thread_local! {
    /// The address of the shared part of the pool that this thread entered last and has not left,
    /// or null. Only [`replace_current`] writes it.
    static CURRENT: Cell<*const ()> = const { Cell::new(ptr::null()) };
}

/// Returns the address of the shared part of the thread's current pool, or null.
#[inline(always)]
pub(super) fn current_address() -> *const () {
    CURRENT.with(Cell::get)
}

/// Identifies the thread while it runs: its thread pointer, which locates its thread-local
/// variables and differs from that of every other running thread. The address of a thread-local
/// variable would identify it too, but takes one more instruction, and a call in a shared library.
#[cfg(not(miri))]
#[inline(always)]
pub(super) fn thread_token() -> usize {
    let token;
    // SAFETY: reads a register, or the word that the ABI of thread-local storage puts at the thread
    // pointer: its own address. Neither changes while the thread runs.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "mov {token}, qword ptr fs:[0]",
            token = lateout(reg) token,
            options(pure, readonly, nostack, preserves_flags),
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "mrs {token}, tpidr_el0",
            token = lateout(reg) token,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    token
}

/// As above; Miri does not run assembly.
#[cfg(miri)]
pub(super) fn thread_token() -> usize {
    CURRENT.with(|current| ptr::from_ref(current).addr())
}

/// Makes another pool, or with null none, the current one. Returns the one that was current before.
///
/// # Safety
/// The pointer is null, or the address of the shared part of a pool that the calling thread owns
/// for as long as the pool is current.
pub(super) unsafe fn replace_current(pool: *const ()) -> *const () {
    CURRENT.with(|current| current.replace(pool))
}

/// Makes no pool the current one while this value exists.
pub(super) struct CurrentPoolGuard {
    previous: *const (),
}

impl CurrentPoolGuard {
    pub(super) fn outside() -> Self {
        // SAFETY: null.
        Self { previous: unsafe { replace_current(ptr::null()) } }
    }
}

impl Drop for CurrentPoolGuard {
    fn drop(&mut self) {
        // SAFETY: it was current before, and the thread has not ended that pool: pools end only in
        // code of their users, and none runs while a guard exists.
        unsafe { replace_current(self.previous) };
    }
}
