//! What all threads have to know at least, as a number: of the recording that they are in, and of modules that have gone.
//!
//! It is 0 in a process that has not begun its recording. A child of a fork is one, whose memory says otherwise in all else: its header,
//! its file and its chunks are the parent's until it has begun.

use crate::sys;
use core::sync::atomic::{AtomicU32, Ordering};

/// A page that is zero in the child of a fork.
#[repr(C, align(4096))]
struct Wiped {
    generation: AtomicU32,
    rest: [u8; 4092],
}

static WIPED: Wiped = Wiped { generation: AtomicU32::new(0), rest: [0; 4092] };
static GENERATIONS: AtomicU32 = AtomicU32::new(0);

/// The generation; what was done before the one that it has is seen.
#[inline(always)]
pub fn get() -> u32 {
    // Pairs with the stores below.
    WIPED.generation.load(Ordering::Acquire)
}

/// The same, where it is only compared.
#[inline(always)]
pub fn compared() -> u32 {
    WIPED.generation.load(Ordering::Relaxed)
}

/// Whether this process has begun its own recording.
pub fn is_begun() -> bool {
    compared() != 0
}

/// The process begins its recording.
pub fn begin() {
    let next = GENERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
    WIPED.generation.store(next, Ordering::Release);
}

/// Something has changed for all threads. In a child that has not begun there is nothing that they know; one that a handler forks off
/// right here stays such a child.
pub fn next() {
    let before = compared();
    if before != 0 {
        let next = GENERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
        // Whoever else has stored one did so behind our begin, and all threads will see that.
        let _ =
            WIPED.generation.compare_exchange(before, next, Ordering::Release, Ordering::Relaxed);
    }
}

/// In the child of a fork.
pub fn forget() {
    WIPED.generation.store(0, Ordering::Relaxed);
}

/// Has the kernel forget it in every child.
pub fn wipe_on_fork() {
    // SAFETY: the page is ours alone, and nothing else is in it.
    let _ = unsafe { sys::wipe_on_fork((&raw const WIPED).cast(), size_of::<Wiped>()) };
}
