//! A pair of fences of which one side is free.
//!
//! Where one thread writes A and then reads B, and another writes B and then reads A, at least one of them has to see the other's
//! write; that takes a full fence on both sides, between the write and the read. Here one side is taken often and the other one
//! seldom: the seldom one has the kernel run a full fence on every processor that runs a thread of this process (`membarrier`),
//! and the other is left with telling the compiler.
//!
//! A kernel without that call, or a sandbox that forbids it, leaves two ordinary full fences. It is decided once, by [`decide`], before
//! anybody can be between the two accesses.
//!
//! Under loom both are full fences.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

#[cfg(not(loom))]
use crate::memory::os;

#[cfg(not(loom))]
const UNDECIDED: u8 = 0;
#[cfg(not(loom))]
const BY_KERNEL: u8 = 1;
#[cfg(not(loom))]
const BOTH_FULL: u8 = 2;

#[cfg(not(loom))]
static HOW: AtomicU8 = AtomicU8::new(UNDECIDED);

/// Finds out how it is done in this process. Comes before the first of the fences below.
#[cfg(not(loom))]
pub(super) fn decide() {
    if HOW.load(Ordering::Relaxed) != UNDECIDED {
        return;
    }
    let how = if os::register_process_fences().is_ok() { BY_KERNEL } else { BOTH_FULL };
    // The first decision stands: threads may rely on it already. What was registered holds for all.
    let _ = HOW.compare_exchange(UNDECIDED, how, Ordering::Relaxed, Ordering::Relaxed);
}

/// The side that is taken often.
#[cfg(not(loom))]
#[inline(always)]
pub(super) fn light() {
    // Relaxed: whoever has what the fences are for has it from someone who decided before.
    if HOW.load(Ordering::Relaxed) == BY_KERNEL {
        compiler_fence(Ordering::SeqCst);
    } else {
        full();
    }
}

#[cfg(not(loom))]
#[cold]
fn full() {
    fence(Ordering::SeqCst);
}

/// The side that is taken seldom. `false` if it could not be had: the kernel has gone back on its word, as it does where a
/// sandbox was put up after [`decide`].
#[cfg(not(loom))]
#[must_use]
pub(super) fn heavy() -> bool {
    fence(Ordering::SeqCst);
    let passed = HOW.load(Ordering::Relaxed) != BY_KERNEL || os::fence_process().is_ok();
    // Whatever the compiler holds the call to touch.
    compiler_fence(Ordering::SeqCst);
    passed
}

#[cfg(loom)]
pub(super) fn light() {
    crate::sync::fence(crate::sync::Ordering::SeqCst);
}

#[cfg(loom)]
pub(super) fn heavy() -> bool {
    crate::sync::fence(crate::sync::Ordering::SeqCst);
    true
}
