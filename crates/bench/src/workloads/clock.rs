//! The processor's time stamp counter.
//!
//! It costs a few nanoseconds where `Instant` costs tens, so it can time single allocator calls.

/// Whether this processor has a counter that this module can read.
pub const AVAILABLE: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// The current count. Always 0 if there is no counter ([`AVAILABLE`]).
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has `rdtsc`, and Linux lets user space read it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let now: u64;
        // SAFETY: `cntvct_el0` is readable from user space on Linux; reading it changes nothing.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) now, options(nomem, nostack, preserves_flags));
        }
        now
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        0
    }
}

/// The cost of timing one call, in ticks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overhead {
    /// The part between the two readings, which counts as the call's own time.
    pub inside: f64,
    /// The whole cost of both readings, which the timed program loses for each call.
    pub whole: f64,
}

impl Overhead {
    /// Times a call that does nothing. Takes the minimum of several rounds, because interruptions
    /// only add time.
    pub fn calibrate() -> Self {
        const CALLS: u64 = 10_000;
        const ROUNDS: usize = 16;
        let mut least = Self { inside: f64::INFINITY, whole: f64::INFINITY };
        for _ in 0..ROUNDS {
            let mut inside = 0;
            let start = ticks();
            for _ in 0..CALLS {
                let before = ticks();
                std::hint::black_box(());
                inside += ticks().wrapping_sub(before);
            }
            let whole = ticks().wrapping_sub(start);
            least.inside = least.inside.min(inside as f64 / CALLS as f64);
            least.whole = least.whole.min(whole as f64 / CALLS as f64);
        }
        least
    }
}
