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
//! Under loom it is both ways, as a model wants it.

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
pub fn decide() {
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
pub fn light() {
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
pub fn heavy() -> bool {
    fence(Ordering::SeqCst);
    let passed = HOW.load(Ordering::Relaxed) != BY_KERNEL || os::fence_process().is_ok();
    // Whatever the compiler holds the call to touch.
    compiler_fence(Ordering::SeqCst);
    passed
}

#[cfg(loom)]
pub use of_loom::{ByKernel, as_thread, heavy, light};

/// Both ways, for the models in `tests/loom_published.rs`.
#[cfg(loom)]
mod of_loom {
    use core::cell::Cell;

    use crate::sync::{AtomicUsize, Ordering, fence};

    const THREADS: usize = 4;

    std::thread_local! {
        /// Whether the model on this thread of the system has fences by the kernel. Loom runs all threads of a model on one.
        static BY_KERNEL: Cell<bool> = const { Cell::new(false) };
    }

    loom::thread_local! {
        static NUMBER: Cell<usize> = Cell::new(0);
    }

    loom::lazy_static! {
        /// A word for each thread. The thread's light fence changes its own one, and a heavy fence all of them: so each
        /// heavy fence comes before or after each light one, and whatever comes first is seen by the other's thread. Two light fences know
        /// nothing of each other, nor does one of an ordinary fence, and so it is with the kernel's.
        static ref WORDS: [AtomicUsize; THREADS] = core::array::from_fn(|_| AtomicUsize::new(0));
    }

    /// While it lives the models that run on this thread of the system have fences by the kernel instead of two full ones.
    pub struct ByKernel(());

    impl ByKernel {
        #[allow(clippy::new_without_default)]
        pub fn new() -> Self {
            BY_KERNEL.set(true);
            Self(())
        }
    }

    impl Drop for ByKernel {
        fn drop(&mut self) {
            BY_KERNEL.set(false);
        }
    }

    /// Tells the model's calling thread its number, which no other one has.
    pub fn as_thread(number: usize) {
        NUMBER.with(|mine| mine.set(number));
    }

    pub fn light() {
        if BY_KERNEL.get() {
            WORDS[NUMBER.with(Cell::get)].fetch_add(1, Ordering::AcqRel);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    pub fn heavy() -> bool {
        if BY_KERNEL.get() {
            for word in WORDS.iter() {
                word.fetch_add(1, Ordering::AcqRel);
            }
        } else {
            fence(Ordering::SeqCst);
        }
        true
    }
}
