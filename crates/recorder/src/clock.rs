//! Time stamps.

use core::sync::atomic::{AtomicPtr, Ordering};
use trace_format::raw::{ClockPair, TICK_SHIFT};

static ZERO: u8 = 0;
/// A byte that is not zero while the process has one thread.
static SINGLE_THREADED: AtomicPtr<u8> = AtomicPtr::new((&raw const ZERO).cast_mut());

/// Sets the address of the C library's `__libc_single_threaded`. Does nothing for null.
///
/// # Safety
///
/// It is null, or a byte that stays readable as long as the process exists.
pub unsafe fn set_single_threaded(byte: *mut u8) {
    if !byte.is_null() {
        SINGLE_THREADED.store(byte, Ordering::Relaxed);
    }
}

/// The processor's time stamp, shifted, read after everything before in the program has ended.
///
/// The stamp of an allocation waits for the call to end, because the thread that freed the block
/// before has read its clock before that. The stamp of a free waits for the load that gave the
/// thread the block. Otherwise a processor that speculates on that load would read its clock
/// first, and the block would be freed before it was allocated. Waiting takes longer than reading
/// the clock, and is skipped while there is no other thread.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: the byte stays readable. Only this thread can create the second thread.
    if unsafe { SINGLE_THREADED.load(Ordering::Relaxed).read_volatile() } != 0 {
        return read_counter() >> TICK_SHIFT;
    }
    stamp() >> TICK_SHIFT
}

/// A time stamp that is not shifted, read after everything before has ended.
#[inline(always)]
pub fn stamp() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut processor = 0;
        // SAFETY: every processor that runs 64-bit Linux has the instruction.
        unsafe { core::arch::x86_64::__rdtscp(&raw mut processor) }
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: the instruction only waits.
        unsafe { core::arch::asm!("isb", options(nomem, nostack, preserves_flags)) };
        read_counter()
    }
}

/// About 20 microseconds, in units of [`stamp`].
pub fn stamps_of_20_us() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // At 3 GHz.
        60_000
    }
    #[cfg(target_arch = "aarch64")]
    {
        let hertz: u64;
        // SAFETY: the instruction reads a register.
        unsafe {
            core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack, preserves_flags));
        }
        (hertz << TICK_SHIFT) / 50_000
    }
}

#[inline(always)]
fn read_counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every processor that runs 64-bit Linux has the instruction.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let now: u64;
        // SAFETY: the instruction reads a register.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) now, options(nomem, nostack, preserves_flags));
        }
        // This counter runs at 25 to 1000 MHz, not at the frequency of the processor.
        now << TICK_SHIFT
    }
}

/// Both clocks now.
pub fn now() -> ClockPair {
    ClockPair { ticks: ticks(), ns: crate::sys::monotonic_ns() }
}
