//! An asymmetric pair of memory fences: one side is frequent and cheap, the other side is rare and
//! expensive.
//!
//! One thread writes A and then reads B. Another thread writes B and then reads A. At least one of
//! the two must see the other's write. For that, both threads need a full fence between the write
//! and the read.
//!
//! Here, one side runs often and the other rarely. The rare side has the kernel run a full fence on
//! every processor that runs a thread of this process (`membarrier`). The frequent side then needs
//! only a compiler fence.
//!
//! If the kernel lacks that call, or a sandbox forbids it, both sides are ordinary full fences.
//! [`decide`] chooses once. Until then, light fences are full ones.
//!
//! Under loom both variants exist, and each model chooses one.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

#[cfg(not(loom))]
use super::os;

#[cfg(not(loom))]
const UNDECIDED: u8 = 0;
#[cfg(not(loom))]
const BY_KERNEL: u8 = 1;
#[cfg(not(loom))]
const BOTH_FULL: u8 = 2;

#[cfg(not(loom))]
static METHOD: AtomicU8 = AtomicU8::new(UNDECIDED);

/// Chooses how the fences work in this process. Must be called before the first [`heavy`] fence. A
/// [`light`] fence before it is a full one.
#[cfg(not(loom))]
pub fn decide() {
    if METHOD.load(Ordering::Relaxed) != UNDECIDED {
        return;
    }
    let method = if os::register_process_fences().is_ok() { BY_KERNEL } else { BOTH_FULL };
    // The first decision stands, because threads may already rely on it. A registration holds for
    // the whole process.
    let _ = METHOD.compare_exchange(UNDECIDED, method, Ordering::Relaxed, Ordering::Relaxed);
}

/// The frequent side.
#[cfg(not(loom))]
#[inline(always)]
pub fn light() {
    // Relaxed: a thread that sees no decision yet runs a full fence, which pairs with both methods.
    if METHOD.load(Ordering::Relaxed) == BY_KERNEL {
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

/// Whether the kernel runs the fences. Then [`heavy`] orders everything that the other threads did
/// before it, also where they have no [`light`] fence.
#[cfg(not(loom))]
pub fn are_by_kernel() -> bool {
    METHOD.load(Ordering::Relaxed) == BY_KERNEL
}

/// The rare side. Returns `false` if the kernel refused the fence although it accepted the
/// registration. That happens if a sandbox was set up after [`decide`].
#[cfg(not(loom))]
#[must_use]
pub fn heavy() -> bool {
    fence(Ordering::SeqCst);
    let passed = METHOD.load(Ordering::Relaxed) != BY_KERNEL || os::fence_process().is_ok();
    // A fence for the compiler, in case it assumes that the call accesses no memory.
    compiler_fence(Ordering::SeqCst);
    passed
}

#[cfg(loom)]
pub use of_loom::{KernelFences, are_by_kernel, as_thread, heavy, light};

/// Both variants, for the models.
#[cfg(loom)]
mod of_loom {
    use core::cell::Cell;

    use crate::sync::{AtomicUsize, Ordering, fence};

    const THREADS: usize = 4;

    std::thread_local! {
        /// Whether the model on this system thread has the kernel's fences. Loom runs all threads
        /// of a model on one system thread.
        static BY_KERNEL: Cell<bool> = const { Cell::new(false) };
    }

    loom::thread_local! {
        static NUMBER: Cell<usize> = Cell::new(0);
    }

    loom::lazy_static! {
        /// One word for each thread. A thread's light fence changes its own word; a heavy fence
        /// changes all words. So each heavy fence comes either before or after each light fence,
        /// and the thread of the later fence sees what the thread of the earlier one wrote before
        /// it. Two light fences are not ordered with each other, nor is a light fence with an
        /// ordinary fence. The same is true of the kernel's fences.
        static ref WORDS: [AtomicUsize; THREADS] = core::array::from_fn(|_| AtomicUsize::new(0));
    }

    /// While this value lives, the models that run on this system thread have the kernel's fences
    /// instead of two full ones.
    pub struct KernelFences(());

    impl KernelFences {
        #[allow(clippy::new_without_default)]
        pub fn new() -> Self {
            BY_KERNEL.set(true);
            Self(())
        }
    }

    impl Drop for KernelFences {
        fn drop(&mut self) {
            BY_KERNEL.set(false);
        }
    }

    /// Sets the number of the model's calling thread. Each thread has its own number.
    pub fn as_thread(number: usize) {
        NUMBER.with(|mine| mine.set(number));
    }

    pub fn are_by_kernel() -> bool {
        BY_KERNEL.get()
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
