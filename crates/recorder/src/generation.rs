//! The generation: a number whose change tells all threads to check again which recording they
//! belong to, and which modules are loaded.
//!
//! The generation is 0 in a process that has not begun its recording. That includes a child of a
//! fork, although all other memory of the child says otherwise: its header, its file and its chunks
//! are the parent's until it has begun.

use crate::sys;
use core::sync::atomic::{AtomicU32, Ordering};

/// A page that is zero in the child of a fork.
#[repr(C, align(4096))]
struct WipedPage {
    generation: AtomicU32,
    rest: [u8; 4092],
}

static PAGE: WipedPage = WipedPage { generation: AtomicU32::new(0), rest: [0; 4092] };
/// The newest generation of this process and its ancestors.
static NEWEST: AtomicU32 = AtomicU32::new(0);

/// The generation. What was done before it was stored is visible afterwards.
#[inline(always)]
pub fn get() -> u32 {
    // Pairs with the stores below.
    PAGE.generation.load(Ordering::Acquire)
}

/// The generation, for a comparison only.
#[inline(always)]
pub fn get_relaxed() -> u32 {
    PAGE.generation.load(Ordering::Relaxed)
}

/// Whether this process has begun its own recording.
pub fn has_begun() -> bool {
    get_relaxed() != 0
}

/// Begins the recording of this process.
pub fn begin() {
    let next = NEWEST.fetch_add(1, Ordering::Relaxed) + 1;
    PAGE.generation.store(next, Ordering::Release);
}

/// Makes all threads check again. Does nothing in a child that has not begun: its threads know
/// nothing yet. If a signal handler forks in the middle of this function, the child stays one that
/// has not begun.
pub fn advance() {
    let before = get_relaxed();
    if before != 0 {
        let next = NEWEST.fetch_add(1, Ordering::Relaxed) + 1;
        // If the exchange fails, another thread has stored a generation after this function began,
        // and all threads will see that one.
        let _ =
            PAGE.generation.compare_exchange(before, next, Ordering::Release, Ordering::Relaxed);
    }
}

/// Resets the generation in the child of a fork.
pub fn reset_in_child() {
    PAGE.generation.store(0, Ordering::Relaxed);
}

/// Asks the kernel to reset the generation in every child.
pub fn wipe_on_fork() {
    // SAFETY: the page holds nothing but the generation.
    let _ = unsafe { sys::wipe_on_fork((&raw const PAGE).cast(), size_of::<WipedPage>()) };
}
