//! How fresh memory is touched first: in huge pages of 2 MiB, or in small pages.
//!
//! The first touch of a huge page costs a third of that of 512 small pages, if the kernel has a
//! free block of that size whose memory the host has touched before. It costs several times as much
//! if the kernel must move pages to make such a block (*compaction*), or if the host must find the
//! memory. So this file decides for each fresh *piece*, a mapping of 2 MiB or more, by what first
//! touches currently cost:
//!
//! - The first huge page of each piece is touched at once, and the processor time of the thread is
//!   measured. (Other threads and other machines on the host don't count.) What small pages would
//!   have cost is known from the last pieces with small pages, or from 32 KiB that are
//!   mapped, touched and unmapped for this purpose, at most ten times a second for each
//!   [`SmallTouch`].
//! - Each piece adds what its huge pages saved to a *credit*, or takes what they lost from it. Its
//!   other huge pages count as the first one. Small pages add a sixteenth of their cost. Huge pages
//!   are used while the credit is not negative.
//! - Only as much of a piece gets huge pages as the kernel has free blocks (`/proc/buddyinfo`), so
//!   that a first touch does not wait for compaction. Blocks are taken off the count, and they are
//!   counted again after a tenth of a second, or when they are used up. If the last count found too
//!   few, the next one is always a tenth of a second later. If the file can't be read, the last
//!   count stays; if it never could be, the credit alone decides.
//!
//! | allocator | pieces for which this file decides |
//! |---|---|
//! | arenas, reaps, free lists | each chunk after the first 2 MiB |
//! | slabs | each range after the first 2 MiB |
//! | pools | none: chunks of several pools lie in the same 2 MiB, and go back one by one |
//!
//! What holds for a piece, against small pages alone:
//!
//! | piece | loss of time | compaction |
//! |---|---|---|
//! | 2 MiB | all pieces together lose a sixteenth, and one touch | none, unless other processes take half of the free blocks at once |
//! | larger | the same and one piece, if the program touches all of it, and each huge page costs what the first one did | the same until the first touch of the last block; blocks that the program touches late may be gone |
//!
//! A larger piece is measured by its first huge page only, because a touch of the others would give
//! memory to what the program may never use.
//!
//! All other fresh memory has small pages. If the system uses huge pages without being asked, small
//! pages are requested for it, by one call for each mapping.
//!
//! All accesses to atomics, here and in the files below, are relaxed: the values are numbers, and
//! hand over no memory. If two threads measure at the same time, one measurement may be lost.
//!
//! | file | what it holds |
//! |---|---|
//! | `kernel` | what a decision asks the kernel for, which tests simulate |
//! | `small_cost` | what small pages cost |
//! | `free_blocks` | how many huge pages the kernel can give without compaction |

mod free_blocks;
mod kernel;
mod small_cost;
#[cfg(test)]
mod tests;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use self::free_blocks::FreeBlocks;
pub(crate) use self::kernel::refuse_huge;
use self::kernel::{Kernel, RunningKernel, at};
use self::small_cost::{SmallCost, sample_small};
use super::acquired_chunk::SmallTouch;
use super::layout::HUGE_PAGE;
use super::os;

/// The largest credit and the largest debt for each huge page of a piece, in nanoseconds. So old
/// measurements stop counting, and a touch that loses more than this counts as this much.
const MAX_CREDIT: i64 = 20_000_000;
/// Small pages add their cost divided by this to the credit, so that huge pages are tried again.
const RETRY_DIVISOR: i64 = 16;

/// How much fresh memory the process has taken from the system, and what its first touch costs.
///
/// Memory from the system is *fresh*: its first touch is a page fault. Memory from the
/// [`recycler`](crate::recycler()) is not. A *piece* is a mapping of 2 MiB or more. The figures
/// count [`Mmap`](crate::Mmap) and pools, from the start of the process on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FreshMemory {
    /// Bytes for which huge pages were requested, in pieces whose first page is a huge page.
    pub huge_bytes: u64,
    /// Bytes for which huge pages were requested, in pieces whose first page is a small one.
    pub refused_bytes: u64,
    /// All other fresh bytes. They have small pages.
    pub small_bytes: u64,
    /// The processor time of the first touch of a huge page (2 MiB), in nanoseconds: the last one
    /// measured. 0 if none was measured.
    pub huge_page_nanos: u64,
    /// The average processor time of the first touch of 2 MiB of small pages, one page fault each,
    /// in nanoseconds. 0 if none was measured.
    pub small_pages_nanos: u64,
    /// The same for small pages that are faulted in together: those of arenas, and of slabs that one
    /// thread uses.
    pub populated_pages_nanos: u64,
}

/// Decides by what first touches have cost so far.
struct HugePagePolicy {
    /// By [`SmallTouch`].
    small: [SmallCost; 2],
    /// The last cost of a huge page, for statistics.
    huge_nanos: AtomicU64,
    /// What huge pages may lose, in nanoseconds.
    credit: AtomicI64,
    free_blocks: FreeBlocks,
    huge_bytes: AtomicU64,
    refused_bytes: AtomicU64,
    small_bytes: AtomicU64,
}

static POLICY: HugePagePolicy = HugePagePolicy::new();

/// The figures of this process.
pub(crate) fn fresh_memory() -> FreshMemory {
    let figure = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
    FreshMemory {
        huge_bytes: figure(&POLICY.huge_bytes),
        refused_bytes: figure(&POLICY.refused_bytes),
        small_bytes: figure(&POLICY.small_bytes),
        huge_page_nanos: figure(&POLICY.huge_nanos),
        small_pages_nanos: POLICY.small[SmallTouch::Faults as usize].known(),
        populated_pages_nanos: POLICY.small[SmallTouch::Populate as usize].known(),
    }
}

/// Counts fresh memory that gets small pages without a decision, and requests them if the system uses
/// huge pages otherwise.
pub(crate) fn use_small(start: NonNull<u8>, len: usize) {
    refuse_huge(start, len);
    count_small(len);
}

/// Counts fresh memory that gets small pages without a decision.
pub(crate) fn count_small(len: usize) {
    POLICY.count_small(len);
}

/// Decides which pages fresh memory gets, and touches its beginning. Returns whether that is a huge
/// page. `small` is how the program would touch small pages.
///
/// # Safety
/// The range was just mapped, at a multiple of [`HUGE_PAGE`], and nothing uses it.
pub(crate) unsafe fn touch(start: NonNull<u8>, len: usize, small: SmallTouch) -> bool {
    if len < HUGE_PAGE {
        use_small(start, len);
        return false;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { POLICY.touch(&RunningKernel, start, len, small) }
}

/// Requests huge pages for fresh memory without a decision, and touches its beginning. Returns
/// whether that is a huge page.
///
/// # Safety
/// As for [`touch`].
pub(crate) unsafe fn touch_huge(start: NonNull<u8>, len: usize) -> bool {
    if len < HUGE_PAGE {
        count_small(len);
        return false;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { POLICY.touch_huge(&RunningKernel, start, len) }
}

impl HugePagePolicy {
    const fn new() -> Self {
        Self {
            small: [const { SmallCost::new() }; 2],
            huge_nanos: AtomicU64::new(0),
            credit: AtomicI64::new(0),
            free_blocks: FreeBlocks::new(),
            huge_bytes: AtomicU64::new(0),
            refused_bytes: AtomicU64::new(0),
            small_bytes: AtomicU64::new(0),
        }
    }

    fn count_small(&self, len: usize) {
        self.small_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// As [`touch`], for a piece.
    ///
    /// # Safety
    /// As for [`touch`].
    unsafe fn touch(
        &self,
        kernel: &impl Kernel,
        start: NonNull<u8>,
        len: usize,
        small: SmallTouch,
    ) -> bool {
        // Memory that is locked has its pages already.
        if kernel.is_resident(start) == Some(true) {
            self.count_small(len);
            return false;
        }
        let now = kernel.coarse_millis();
        let wanted = (len / HUGE_PAGE) as u64;
        let granted =
            if self.prefers_huge() { self.free_blocks.take(kernel, wanted, now) } else { 0 };
        // SAFETY: guaranteed by the caller.
        unsafe {
            if granted == 0 {
                self.touch_measured_small(kernel, start, len, small, now);
                return false;
            }
            let huge = if granted == wanted { len } else { granted as usize * HUGE_PAGE };
            if huge < len {
                kernel.advise_small(at(start, huge), len - huge);
                self.count_small(len - huge);
            }
            self.touch_measured_huge(kernel, start, huge, small, now)
        }
    }

    /// As the function [`touch_huge`], for a piece.
    ///
    /// # Safety
    /// As for [`touch`].
    unsafe fn touch_huge(&self, kernel: &impl Kernel, start: NonNull<u8>, len: usize) -> bool {
        kernel.advise_huge(start, len);
        // SAFETY: the range is mapped, and nothing uses it.
        unsafe { kernel.touch(start) };
        // The last page of the first 2 MiB has memory only if it is part of a huge page. If the
        // system does not say, assume that.
        let last = at(start, HUGE_PAGE - os::page_size());
        let is_huge = kernel.is_resident(last).unwrap_or(true);
        let bytes = if is_huge { &self.huge_bytes } else { &self.refused_bytes };
        bytes.fetch_add(len as u64, Ordering::Relaxed);
        is_huge
    }

    /// Whether the next piece should have huge pages.
    fn prefers_huge(&self) -> bool {
        self.credit.load(Ordering::Relaxed) >= 0
    }

    /// Adds what each huge page of a piece of `len` bytes saved, or would have to save.
    fn add_credit(&self, nanos: i64, len: usize) {
        let pages = (len / HUGE_PAGE) as i64;
        let most = MAX_CREDIT.saturating_mul(pages);
        let credit = self.credit.load(Ordering::Relaxed);
        let sum = credit.saturating_add(nanos.saturating_mul(pages));
        // The debt of a larger piece stays until it is paid.
        self.credit.store(sum.clamp(credit.min(-most), most), Ordering::Relaxed);
    }

    /// # Safety
    /// As for [`touch`].
    unsafe fn touch_measured_huge(
        &self,
        kernel: &impl Kernel,
        start: NonNull<u8>,
        len: usize,
        small: SmallTouch,
        now: u64,
    ) -> bool {
        let small_cost = self.small[small as usize].current(kernel, small, now);
        let before = kernel.thread_nanos();
        // SAFETY: guaranteed by the caller.
        let is_huge = unsafe { self.touch_huge(kernel, start, len) };
        let nanos = kernel.thread_nanos().saturating_sub(before);
        if is_huge {
            self.huge_nanos.store(nanos, Ordering::Relaxed);
            self.add_credit(small_cost as i64 - nanos as i64, len);
        } else {
            // The piece has small pages, so the touch saved nothing.
            self.add_credit(-(nanos as i64), len);
        }
        is_huge
    }

    /// # Safety
    /// As for [`touch`].
    unsafe fn touch_measured_small(
        &self,
        kernel: &impl Kernel,
        start: NonNull<u8>,
        len: usize,
        small: SmallTouch,
        now: u64,
    ) {
        kernel.advise_small(start, len);
        // SAFETY: guaranteed by the caller.
        let nanos = unsafe { sample_small(kernel, start, small) };
        let cost = self.small[small as usize].learn(nanos, now);
        self.add_credit(cost as i64 / RETRY_DIVISOR, len);
        self.count_small(len);
    }
}
