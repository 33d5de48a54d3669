//! Time stamps.

use core::sync::atomic::{AtomicPtr, Ordering};
use trace_format::raw::{Clock, TICK_SHIFT};

static MANY_THREADS: u8 = 0;
/// A byte that isn't zero while the process has one thread.
static ONE_THREAD: AtomicPtr<u8> = AtomicPtr::new((&raw const MANY_THREADS).cast_mut());

/// Says where the C library keeps such a byte, if it does: `__libc_single_threaded`, which stays as long as the process.
///
/// # Safety
///
/// It is null or that byte.
pub unsafe fn set_one_thread(byte: *mut u8) {
    if !byte.is_null() {
        ONE_THREAD.store(byte, Ordering::Relaxed);
    }
}

/// The processor's time stamps now, shifted, once everything before in the program has ended.
///
/// An allocation's stamp waits for the call, since whoever freed the block has asked his clock before. A free's waits for
/// what gave the thread the block: else the processor, which guesses that a block will have come, would ask its clock while
/// it still looks for it, and the block be freed before it was allocated. Where there is no other thread nothing need be
/// waited for, which takes longer than reading the clock.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: the byte stays; another thread is created by this one, if at all.
    if unsafe { ONE_THREAD.load(Ordering::Relaxed).read_volatile() } != 0 {
        return raw() >> TICK_SHIFT;
    }
    stamp() >> TICK_SHIFT
}

/// A time stamp that is not shifted, once everything before has ended.
#[inline(always)]
pub fn stamp() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut processor = 0;
        // SAFETY: all processors that run 64-bit Linux have it.
        unsafe { core::arch::x86_64::__rdtscp(&raw mut processor) }
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: it waits and does nothing else.
        unsafe { core::arch::asm!("isb", options(nomem, nostack, preserves_flags)) };
        raw()
    }
}

/// About 20 microseconds in such stamps.
pub fn long() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // At 3 GHz.
        60_000
    }
    #[cfg(target_arch = "aarch64")]
    {
        let hertz: u64;
        // SAFETY: it reads a register.
        unsafe {
            core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack, preserves_flags));
        }
        (hertz << TICK_SHIFT) / 50_000
    }
}

#[inline(always)]
fn raw() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: all processors that run 64-bit Linux have it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let now: u64;
        // SAFETY: it reads a register.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) now, options(nomem, nostack, preserves_flags));
        }
        // This counter has 25 to 1000 MHz, not the processor's gigahertz.
        now << TICK_SHIFT
    }
}

/// Both clocks now.
pub fn now() -> Clock {
    Clock { ticks: ticks(), ns: crate::sys::monotonic_ns() }
}
