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
//!   have cost is known from the last pieces with small pages, or from [`SAMPLE`] bytes that are
//!   mapped, touched and unmapped for this purpose, at most ten times a second for each
//!   [`SmallTouch`].
//! - Each piece adds what its huge pages saved to a *credit*, or takes what they lost from it. Its
//!   other huge pages count as the first one. Small pages add a sixteenth of their cost. Huge pages
//!   are used while the credit is not negative.
//! - Only as much of a piece gets huge pages as the kernel has free blocks (`/proc/buddyinfo`), so
//!   that a first touch does not wait for compaction. Blocks are taken off the count, and they are
//!   counted again after a tenth of a second, or when they are used up. If they were too few, it is
//!   always a tenth of a second. If the file can't be read, the last count stays; if it never could
//!   be, the credit alone decides.
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
//! All other fresh memory has small pages. If the system uses huge pages without being asked
//! (`always` in [`SETTING`]), small pages are requested for it, by one call for each mapping.
//!
//! All accesses to atomics are relaxed: the values are numbers, and hand over no memory. If two
//! threads measure at the same time, one measurement may be lost.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};

use super::layout::HUGE_PAGE;
use super::os;
use crate::error::AllocError;

/// The bytes of small pages that are touched to learn their cost; at least one page.
const SAMPLE: usize = 32 << 10;
/// The largest credit and the largest debt for each huge page of a piece, in nanoseconds. So old
/// measurements stop counting, and a touch that loses more than this counts as this much.
const MAX_CREDIT: i64 = 20_000_000;
/// Small pages add their cost divided by this to the credit, so that huge pages are tried again.
const RETRY_DIVISOR: i64 = 16;
/// A cost of small pages is out of date after this many milliseconds.
const SMALL_COST_MILLIS: u64 = 1000;
/// It is measured again after huge pages have cost this many nanoseconds.
const SMALL_COST_NANOS: u64 = 4_000_000;
/// It is measured at most once in this many milliseconds.
const SAMPLE_MILLIS: u64 = 100;
/// The number of free blocks is out of date after this many milliseconds.
const COUNT_MILLIS: u64 = 100;

/// The file with the system's setting for huge pages: `always [madvise] never`.
const SETTING: &CStr = c"/sys/kernel/mm/transparent_hugepage/enabled";

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
    /// The same for small pages that are faulted in together, as those of a slab that one thread
    /// uses.
    pub populated_pages_nanos: u64,
}

/// How small pages would be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SmallTouch {
    /// Each by its own page fault.
    Faults,
    /// Many with one system call ([`os::populate`]), which takes less time.
    Populate,
}

/// What small pages cost.
struct SmallCost {
    /// The average cost of 2 MiB in nanoseconds; 0 if not measured.
    nanos: AtomicU64,
    /// The time of the last measurement in milliseconds.
    measured_at: AtomicU64,
    /// What huge pages have cost since that measurement, in nanoseconds.
    spent_nanos: AtomicU64,
}

/// What the process has learned.
struct Experience {
    /// By [`SmallTouch`].
    small: [SmallCost; 2],
    /// The last cost of a huge page, for statistics.
    huge_nanos: AtomicU64,
    /// What huge pages may lose, in nanoseconds.
    credit: AtomicI64,
    /// The number of blocks of 2 MiB that may be used until they are counted again.
    blocks: AtomicU64,
    /// The time of the last count in milliseconds.
    counted_at: AtomicU64,
    /// Whether the last count found fewer blocks than were wanted, or could not be made.
    is_short: AtomicBool,
    /// Whether the blocks could be counted once.
    is_countable: AtomicBool,
    huge_bytes: AtomicU64,
    refused_bytes: AtomicU64,
    small_bytes: AtomicU64,
}

static EXPERIENCE: Experience = Experience::new();

/// The figures of this process.
pub(crate) fn fresh_memory() -> FreshMemory {
    let figure = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
    FreshMemory {
        huge_bytes: figure(&EXPERIENCE.huge_bytes),
        refused_bytes: figure(&EXPERIENCE.refused_bytes),
        small_bytes: figure(&EXPERIENCE.small_bytes),
        huge_page_nanos: figure(&EXPERIENCE.huge_nanos),
        small_pages_nanos: figure(&EXPERIENCE.small[SmallTouch::Faults as usize].nanos),
        populated_pages_nanos: figure(&EXPERIENCE.small[SmallTouch::Populate as usize].nanos),
    }
}

/// What a decision asks the kernel for. Tests simulate one.
trait Kernel {
    /// A clock that ticks every few milliseconds.
    fn coarse_millis(&self) -> u64;

    /// The processor time of the thread.
    fn thread_nanos(&self) -> u64;

    /// The number of free blocks of 2 MiB. `None` if the kernel does not say.
    fn free_blocks(&self) -> Option<u64>;

    /// Whether a page has memory. `None` if the kernel does not say.
    fn is_resident(&self, page: NonNull<u8>) -> Option<bool>;

    fn advise_huge(&self, start: NonNull<u8>, len: usize);

    fn advise_small(&self, start: NonNull<u8>, len: usize);

    /// Touches a page. The write is volatile, because only the page fault matters.
    ///
    /// # Safety
    /// The page is mapped, and nothing uses it.
    unsafe fn touch(&self, page: NonNull<u8>);

    /// Touches [`sample_len`] bytes with one system call.
    ///
    /// # Errors
    /// If there is no such call.
    fn populate_sample(&self, start: NonNull<u8>) -> Result<(), AllocError>;

    /// Maps [`sample_len`] bytes.
    fn map_sample(&self) -> Result<NonNull<u8>, AllocError>;

    /// # Safety
    /// The sample was mapped by [`map_sample`](Self::map_sample), and is unmapped once.
    unsafe fn unmap_sample(&self, start: NonNull<u8>);
}

/// The kernel that runs this process.
struct RunningKernel;

impl Kernel for RunningKernel {
    fn coarse_millis(&self) -> u64 {
        os::coarse_millis()
    }

    fn thread_nanos(&self) -> u64 {
        os::thread_nanos()
    }

    fn free_blocks(&self) -> Option<u64> {
        const FILE: &CStr = c"/proc/buddyinfo";
        let mut text = [0; 4096];
        let len = os::read_start(FILE, &mut text);
        let order = (HUGE_PAGE / os::page_size()).ilog2();
        free_blocks_in(&text[..len], order)
    }

    fn is_resident(&self, page: NonNull<u8>) -> Option<bool> {
        os::is_resident(page)
    }

    fn advise_huge(&self, start: NonNull<u8>, len: usize) {
        let _ = os::advise_huge(start, len);
    }

    fn advise_small(&self, start: NonNull<u8>, len: usize) {
        let _ = os::advise_small(start, len);
    }

    unsafe fn touch(&self, page: NonNull<u8>) {
        // SAFETY: guaranteed by the caller.
        unsafe { page.write_volatile(0) };
    }

    fn populate_sample(&self, start: NonNull<u8>) -> Result<(), AllocError> {
        os::populate(start, sample_len())
    }

    fn map_sample(&self) -> Result<NonNull<u8>, AllocError> {
        let start = os::map(sample_len(), 1)?;
        // The kernel may join it to a larger mapping.
        refuse_huge(start, sample_len());
        Ok(start)
    }

    unsafe fn unmap_sample(&self, start: NonNull<u8>) {
        // SAFETY: guaranteed by the caller.
        let _ = unsafe { os::unmap(start, sample_len()) };
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
    EXPERIENCE.count_small(len);
}

/// Requests small pages for a range if the system uses huge pages without being asked.
pub(crate) fn refuse_huge(start: NonNull<u8>, len: usize) {
    if system_prefers_huge() {
        let _ = os::advise_small(start, len);
    }
}

/// Whether the system uses huge pages without being asked. The setting is read once.
fn system_prefers_huge() -> bool {
    const UNKNOWN: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    let known = ANSWER.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == 1;
    }
    let mut text = [0; 64];
    let len = os::read_start(SETTING, &mut text);
    let is_always = setting_is_always(&text[..len]);
    ANSWER.store(u8::from(is_always), Ordering::Relaxed);
    is_always
}

/// The setting in force stands in brackets.
fn setting_is_always(text: &[u8]) -> bool {
    text.split(|byte| byte.is_ascii_whitespace()).any(|word| word == b"[always]")
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
    unsafe { EXPERIENCE.touch(&RunningKernel, start, len, small) }
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
    unsafe { EXPERIENCE.touch_huge(&RunningKernel, start, len) }
}

impl Experience {
    const fn new() -> Self {
        Self {
            small: [const { SmallCost::new() }; 2],
            huge_nanos: AtomicU64::new(0),
            credit: AtomicI64::new(0),
            blocks: AtomicU64::new(0),
            counted_at: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            is_countable: AtomicBool::new(false),
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
        let granted = if self.prefers_huge() { self.take_blocks(kernel, wanted, now) } else { 0 };
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

    /// Takes at most `wanted` free blocks off the count. Returns how many.
    fn take_blocks(&self, kernel: &impl Kernel, wanted: u64, now: u64) -> u64 {
        let counted_at = self.counted_at.load(Ordering::Relaxed);
        let is_recent = now.saturating_sub(counted_at) < COUNT_MILLIS;
        let take_all = |blocks: u64| blocks.checked_sub(wanted);
        if is_recent
            && self.blocks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_all).is_ok()
        {
            return wanted;
        }
        // If blocks are short, or were counted at this tick of the clock, another count would find
        // no more.
        if !is_recent || (now != counted_at && !self.is_short.load(Ordering::Relaxed)) {
            self.count_blocks(kernel, wanted, now);
        }
        let take_some = |blocks: u64| Some(blocks.saturating_sub(wanted));
        let before = self.blocks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_some);
        before.map_or(0, |blocks| blocks.min(wanted))
    }

    fn count_blocks(&self, kernel: &impl Kernel, wanted: u64, now: u64) {
        self.counted_at.store(now, Ordering::Relaxed);
        let blocks = match kernel.free_blocks() {
            Some(blocks) => {
                self.is_countable.store(true, Ordering::Relaxed);
                // Other threads and processes take blocks too, so half of them may be used until
                // the next count.
                blocks / 2
            }
            // What is left of the last count stays.
            None if self.is_countable.load(Ordering::Relaxed) => {
                self.is_short.store(true, Ordering::Relaxed);
                return;
            }
            None => u64::from(u32::MAX),
        };
        self.is_short.store(blocks < wanted, Ordering::Relaxed);
        self.blocks.store(blocks, Ordering::Relaxed);
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
        let small_cost = self.small_cost(kernel, small, now);
        let before = kernel.thread_nanos();
        // SAFETY: guaranteed by the caller.
        let is_huge = unsafe { self.touch_huge(kernel, start, len) };
        let nanos = kernel.thread_nanos().saturating_sub(before);
        self.small[small as usize].spent_nanos.fetch_add(nanos, Ordering::Relaxed);
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

    /// The cost of small pages, measured if it is not known or out of date.
    fn small_cost(&self, kernel: &impl Kernel, small: SmallTouch, now: u64) -> u64 {
        let cost = &self.small[small as usize];
        let known = cost.nanos.load(Ordering::Relaxed);
        if !cost.is_out_of_date(now) {
            return known;
        }
        let Ok(scratch) = kernel.map_sample() else { return known };
        // SAFETY: just mapped, and unmapped once.
        unsafe {
            let nanos = sample_small(kernel, scratch, small);
            kernel.unmap_sample(scratch);
            cost.learn(nanos, now)
        }
    }
}

impl SmallCost {
    const fn new() -> Self {
        Self {
            nanos: AtomicU64::new(0),
            measured_at: AtomicU64::new(0),
            spent_nanos: AtomicU64::new(0),
        }
    }

    fn age(&self, now: u64) -> u64 {
        now.saturating_sub(self.measured_at.load(Ordering::Relaxed))
    }

    fn is_old(&self, now: u64) -> bool {
        self.nanos.load(Ordering::Relaxed) == 0 || self.age(now) >= SMALL_COST_MILLIS
    }

    fn is_out_of_date(&self, now: u64) -> bool {
        let is_spent = self.spent_nanos.load(Ordering::Relaxed) >= SMALL_COST_NANOS;
        self.is_old(now) || (is_spent && self.age(now) >= SAMPLE_MILLIS)
    }

    /// Adds a measurement. Returns the new average.
    fn learn(&self, nanos: u64, now: u64) -> u64 {
        let known = self.nanos.load(Ordering::Relaxed);
        let average = if self.is_old(now) { nanos } else { (3 * known + nanos) / 4 };
        self.nanos.store(average.max(1), Ordering::Relaxed);
        self.measured_at.store(now, Ordering::Relaxed);
        self.spent_nanos.store(0, Ordering::Relaxed);
        average
    }
}

fn sample_len() -> usize {
    SAMPLE.max(os::page_size())
}

/// The address `offset` bytes into a range.
fn at(start: NonNull<u8>, offset: usize) -> NonNull<u8> {
    start.map_addr(|address| address.saturating_add(offset))
}

/// Touches the first small pages of a range. Returns what 2 MiB would cost, in nanoseconds.
///
/// # Safety
/// The range was just mapped, has at least [`sample_len`] bytes, and nothing uses it.
unsafe fn sample_small(kernel: &impl Kernel, start: NonNull<u8>, small: SmallTouch) -> u64 {
    let before = kernel.thread_nanos();
    if small == SmallTouch::Faults || kernel.populate_sample(start).is_err() {
        for page in (0..sample_len()).step_by(os::page_size()) {
            // SAFETY: guaranteed by the caller.
            unsafe { kernel.touch(at(start, page)) };
        }
    }
    kernel.thread_nanos().saturating_sub(before) * (HUGE_PAGE / sample_len()) as u64
}

/// Adds up `/proc/buddyinfo`: for each zone a line `Node 0, zone Normal 5 3 ...` with the numbers of
/// free blocks of 1, 2, 4, ... pages. `order` is the logarithm of the pages of a huge page. `None`
/// if there is no such line.
fn free_blocks_in(text: &[u8], order: u32) -> Option<u64> {
    let mut sum: Option<u64> = None;
    for line in text.split(|&byte| byte == b'\n') {
        let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        if !words.any(|word| word == b"zone") {
            continue;
        }
        let counts = words.skip(1 + order as usize).enumerate();
        for (double, count) in counts {
            let count: u64 = core::str::from_utf8(count).ok()?.parse().ok()?;
            let blocks = count.saturating_mul(1u64.checked_shl(double as u32).unwrap_or(0));
            sum = Some(sum.unwrap_or(0).saturating_add(blocks));
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    const MICRO: u64 = 1000;
    const MILLI: u64 = 1_000_000;

    /// A piece that the simulated kernel has mapped, by address.
    #[derive(Clone, Copy, Debug, Default)]
    struct Piece {
        start: usize,
        /// The bytes at its start for which huge pages were requested.
        huge: usize,
        /// The bytes behind them for which small pages were requested.
        small: usize,
        first_is_huge: bool,
        is_locked: bool,
    }

    /// A kernel where first touches cost what a test says.
    struct SimulatedKernel {
        nanos: Cell<u64>,
        /// The cost of the next huge page.
        huge_nanos: Cell<u64>,
        /// The cost of 2 MiB of small pages.
        small_nanos: Cell<u64>,
        /// The cost of a huge page that the kernel refuses, if it has none.
        refuses: Option<u64>,
        free: Cell<Option<u64>>,
        piece: Cell<Piece>,
        counts: Cell<u64>,
        samples: Cell<u64>,
    }

    impl SimulatedKernel {
        fn new(free: Option<u64>) -> Self {
            Self {
                // The clock starts when the machine does.
                nanos: Cell::new(60_000 * MILLI),
                huge_nanos: Cell::new(300 * MICRO),
                small_nanos: Cell::new(800 * MICRO),
                refuses: None,
                free: Cell::new(free),
                piece: Cell::default(),
                counts: Cell::new(0),
                samples: Cell::new(0),
            }
        }

        fn spend(&self, nanos: u64) {
            self.nanos.set(self.nanos.get() + nanos);
        }

        fn update(&self, change: impl FnOnce(&mut Piece)) {
            let mut piece = self.piece.get();
            change(&mut piece);
            self.piece.set(piece);
        }
    }

    fn plus_one(count: &Cell<u64>) {
        count.set(count.get() + 1);
    }

    /// Where the simulated kernel maps samples.
    const SAMPLE_START: usize = HUGE_PAGE;
    /// Where it maps pieces.
    const PIECE_START: usize = 2 * HUGE_PAGE;

    fn address(start: usize) -> NonNull<u8> {
        NonNull::new(core::ptr::without_provenance_mut(start)).expect("no null")
    }

    impl Kernel for SimulatedKernel {
        fn coarse_millis(&self) -> u64 {
            self.nanos.get() / MILLI / 4 * 4
        }

        fn thread_nanos(&self) -> u64 {
            self.nanos.get()
        }

        fn free_blocks(&self) -> Option<u64> {
            plus_one(&self.counts);
            self.free.get()
        }

        fn is_resident(&self, page: NonNull<u8>) -> Option<bool> {
            let Piece { start, first_is_huge, is_locked, .. } = self.piece.get();
            assert!((start..start + HUGE_PAGE).contains(&page.addr().get()));
            Some(is_locked || first_is_huge)
        }

        fn advise_huge(&self, start: NonNull<u8>, len: usize) {
            self.update(|piece| {
                assert_eq!(start.addr().get(), piece.start);
                piece.huge += len;
            });
        }

        fn advise_small(&self, start: NonNull<u8>, len: usize) {
            self.update(|piece| {
                assert!(start.addr().get() >= piece.start + piece.huge);
                piece.small += len;
            });
        }

        unsafe fn touch(&self, page: NonNull<u8>) {
            let piece = self.piece.get();
            if page.addr().get() >= piece.start && piece.huge > 0 {
                assert_eq!(page.addr().get(), piece.start, "only the first huge page is touched");
                self.spend(self.refuses.unwrap_or(self.huge_nanos.get()));
                self.update(|piece| piece.first_is_huge = self.refuses.is_none());
            } else {
                self.spend(self.small_nanos.get() * os::page_size() as u64 / HUGE_PAGE as u64);
            }
        }

        fn populate_sample(&self, _: NonNull<u8>) -> Result<(), AllocError> {
            Err(AllocError::new(crate::error::ErrorKind::SourceRefused, 0))
        }

        fn map_sample(&self) -> Result<NonNull<u8>, AllocError> {
            plus_one(&self.samples);
            Ok(address(SAMPLE_START))
        }

        unsafe fn unmap_sample(&self, start: NonNull<u8>) {
            assert_eq!(start.addr().get(), SAMPLE_START);
        }
    }

    /// Takes a piece of this many huge pages. Returns what was requested for it.
    fn take(experience: &Experience, kernel: &SimulatedKernel, pages: usize) -> Piece {
        kernel.piece.set(Piece { start: PIECE_START, ..Piece::default() });
        let len = pages * HUGE_PAGE;
        // SAFETY: the simulated kernel accesses no memory.
        let is_huge =
            unsafe { experience.touch(kernel, address(PIECE_START), len, SmallTouch::Faults) };
        let piece = kernel.piece.get();
        assert_eq!(piece.huge + piece.small, len);
        assert_eq!(is_huge, piece.first_is_huge);
        piece
    }

    /// What first touches of the same pieces cost.
    #[derive(Debug, Default)]
    struct Totals {
        ours: u64,
        all_huge: u64,
        all_small: u64,
        /// The cost of the dearest piece with huge pages.
        dearest: u64,
    }

    /// Takes pieces in turn. Each is given by its number of huge pages, the cost of one of them, and
    /// the cost of 2 MiB of small pages. The program touches all of each piece.
    fn simulate_pieces(
        experience: &Experience,
        pieces: impl IntoIterator<Item = (usize, u64, u64)>,
    ) -> Totals {
        let kernel = SimulatedKernel::new(Some(1_000_000));
        let mut totals = Totals::default();
        for (pages, huge, small) in pieces {
            kernel.huge_nanos.set(huge);
            kernel.small_nanos.set(small);
            let before = kernel.nanos.get();
            let piece = take(experience, &kernel, pages);
            // The other pages.
            if piece.huge > 0 {
                kernel.spend((pages as u64 - 1) * huge);
            } else {
                let sample = small * sample_len() as u64 / HUGE_PAGE as u64;
                kernel.spend(pages as u64 * small - sample);
            }
            totals.ours += kernel.nanos.get() - before;
            totals.all_huge += pages as u64 * huge;
            totals.all_small += pages as u64 * small;
            totals.dearest = totals.dearest.max(pages as u64 * huge);
        }
        totals
    }

    /// The same with pieces of 2 MiB.
    fn simulate(experience: &Experience, pieces: impl IntoIterator<Item = (u64, u64)>) -> Totals {
        simulate_pieces(experience, pieces.into_iter().map(|(huge, small)| (1, huge, small)))
    }

    #[test]
    fn cheap_huge_pages_are_used_from_the_first_piece_on() {
        let totals = simulate(&Experience::new(), [(300 * MICRO, 800 * MICRO); 1000]);
        assert!(totals.ours <= totals.all_huge * 102 / 100, "{totals:?}");
    }

    #[test]
    fn dear_huge_pages_cost_a_sixteenth_and_one_touch_at_most() {
        for huge in [801, 1000, 2400, 10_000] {
            for pieces in [1, 30, 1000] {
                let dear = core::iter::repeat_n((huge * MICRO, 800 * MICRO), pieces);
                let totals = simulate(&Experience::new(), dear);
                let bound = totals.all_small * 17 / 16 + totals.dearest;
                assert!(totals.ours <= bound * 101 / 100, "{totals:?}");
            }
        }
    }

    #[test]
    fn a_large_piece_counts_with_all_of_its_huge_pages() {
        // What small pieces save does not pay for large ones.
        let pieces = (0..1000).map(|piece| match piece % 20 {
            19 => (32, 2400 * MICRO, 800 * MICRO),
            _ => (1, 300 * MICRO, 800 * MICRO),
        });
        let totals = simulate_pieces(&Experience::new(), pieces);
        let bound = totals.all_small * 17 / 16 + totals.dearest;
        assert!(totals.ours <= bound * 101 / 100, "{totals:?}");
    }

    #[test]
    fn a_change_of_costs_is_followed_soon() {
        for pages in [1, 32] {
            let experience = Experience::new();
            let pieces = |huge| [(pages, huge * MICRO, 800 * MICRO); 1000];
            simulate_pieces(&experience, pieces(300));
            let totals = simulate_pieces(&experience, pieces(2400));
            let credit = MAX_CREDIT as u64 * pages as u64;
            let bound = totals.all_small * 17 / 16 + credit + totals.dearest;
            assert!(totals.ours <= bound * 101 / 100, "{totals:?}");
            let totals = simulate_pieces(&experience, pieces(300));
            assert!(totals.ours <= totals.all_huge * 110 / 100, "{totals:?}");
        }
    }

    #[test]
    fn a_single_dear_touch_among_cheap_ones_changes_nothing() {
        for pages in [1, 32] {
            let pieces = (0..1000).map(|piece| {
                (pages, if piece % 20 == 19 { 2400 * MICRO } else { 300 * MICRO }, 800 * MICRO)
            });
            let totals = simulate_pieces(&Experience::new(), pieces);
            assert!(totals.ours <= totals.all_huge * 102 / 100, "{totals:?}");
        }
    }

    #[test]
    fn a_kernel_that_refuses_huge_pages_costs_next_to_nothing() {
        let experience = Experience::new();
        let kernel =
            SimulatedKernel { refuses: Some(3 * MICRO), ..SimulatedKernel::new(Some(1_000_000)) };
        let pieces = (0..1000).map(|_| take(&experience, &kernel, 1));
        let tries = pieces.filter(|piece| piece.huge > 0).count() as u64;
        assert!(tries * 3 * MICRO <= 1000 * 800 * MICRO / 16, "{tries}");
        let load = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        assert_eq!(load(&experience.huge_bytes), 0);
        assert_eq!(load(&experience.refused_bytes), tries * HUGE_PAGE as u64);
        assert_eq!(load(&experience.small_bytes), (1000 - tries) * HUGE_PAGE as u64);
    }

    #[test]
    fn no_huge_page_is_requested_if_the_kernel_has_no_free_block() {
        let experience = Experience::new();
        let kernel = SimulatedKernel::new(Some(0));
        for pages in [1, 32].into_iter().cycle().take(1000) {
            assert_eq!(take(&experience, &kernel, pages).huge, 0);
            kernel.spend(MILLI);
        }
    }

    #[test]
    fn half_of_the_free_blocks_are_used_until_they_are_counted_again() {
        let experience = Experience::new();
        let kernel = SimulatedKernel::new(Some(20));
        let huge = (0..30).filter(|_| take(&experience, &kernel, 1).huge > 0).count();
        assert_eq!(huge, 10);
        // A large piece has huge pages as far as there are blocks.
        let experience = Experience::new();
        let kernel = SimulatedKernel::new(Some(20));
        let Piece { huge, small, .. } = take(&experience, &kernel, 32);
        assert_eq!((huge, small), (10 * HUGE_PAGE, 22 * HUGE_PAGE));
        assert_eq!(experience.huge_bytes.load(Ordering::Relaxed), 10 * HUGE_PAGE as u64);
        assert_eq!(experience.small_bytes.load(Ordering::Relaxed), 22 * HUGE_PAGE as u64);
        assert_eq!(take(&experience, &kernel, 1).huge, 0, "they are used up");
    }

    #[test]
    fn blocks_that_are_short_are_counted_ten_times_a_second() {
        for free in [Some(0), Some(1), Some(20), None] {
            let experience = Experience::new();
            // A count that worked, and is out of date.
            let kernel = SimulatedKernel::new(Some(2));
            take(&experience, &kernel, 1);
            kernel.spend(COUNT_MILLIS * MILLI);
            kernel.counts.set(0);
            kernel.free.set(free);
            let until = kernel.nanos.get() + 1000 * MILLI;
            while kernel.nanos.get() < until {
                take(&experience, &kernel, 32);
                kernel.spend(MILLI);
            }
            let counts = kernel.counts.get();
            assert!((5..=11).contains(&counts), "{counts} counts with {free:?}");
        }
    }

    #[test]
    fn blocks_that_were_used_up_are_counted_again_at_the_next_tick() {
        let experience = Experience::new();
        let kernel = SimulatedKernel::new(Some(8));
        for _ in 0..4 {
            assert_eq!(take(&experience, &kernel, 1).huge, HUGE_PAGE);
        }
        kernel.spend(8 * MILLI);
        assert_eq!(take(&experience, &kernel, 1).huge, HUGE_PAGE);
        assert_eq!(kernel.counts.get(), 2);
    }

    #[test]
    fn a_count_that_fails_leaves_what_is_left_of_the_last_one() {
        let experience = Experience::new();
        let kernel = SimulatedKernel::new(Some(8));
        assert_eq!(take(&experience, &kernel, 1).huge, HUGE_PAGE);
        kernel.free.set(None);
        let mut huge = 0;
        for _ in 0..100 {
            kernel.spend(COUNT_MILLIS * MILLI);
            huge += take(&experience, &kernel, 1).huge / HUGE_PAGE;
        }
        assert_eq!(huge, 3, "three of the four blocks");
    }

    #[test]
    fn a_kernel_that_never_counted_blocks_leaves_the_decision_to_the_credit() {
        let experience = Experience::new();
        let kernel = SimulatedKernel::new(None);
        for _ in 0..1000 {
            assert_eq!(take(&experience, &kernel, 32).huge, 32 * HUGE_PAGE);
        }
        assert!(kernel.counts.get() <= 1 + 1000 * 300 / 1000 / COUNT_MILLIS);
        kernel.huge_nanos.set(2400 * MICRO);
        let huge = (0..1000).filter(|_| take(&experience, &kernel, 1).huge > 0).count();
        assert!(huge < 500, "{huge}");
    }

    #[test]
    fn small_pages_are_sampled_ten_times_a_second_at_most() {
        let experience = Experience::new();
        let kernel = SimulatedKernel::new(Some(1_000_000));
        let until = kernel.nanos.get() + 1000 * MILLI;
        while kernel.nanos.get() < until {
            take(&experience, &kernel, 1);
        }
        let samples = kernel.samples.get();
        assert!((5..=11).contains(&samples), "{samples}");
    }

    #[test]
    fn locked_memory_is_not_touched() {
        let experience = Experience::new();
        let kernel = SimulatedKernel::new(Some(1_000_000));
        let start = PIECE_START;
        kernel.piece.set(Piece { start, is_locked: true, ..Piece::default() });
        let before = kernel.nanos.get();
        // SAFETY: the simulated kernel accesses no memory.
        let is_huge =
            unsafe { experience.touch(&kernel, address(start), HUGE_PAGE, SmallTouch::Faults) };
        assert!(!is_huge);
        let Piece { huge, small, .. } = kernel.piece.get();
        assert_eq!((huge, small, kernel.nanos.get()), (0, 0, before));
    }

    proptest::proptest! {
        #[test]
        fn whatever_huge_pages_cost_the_loss_is_bounded(
            huge in proptest::collection::vec((1usize..40, 100 * MICRO..10_000 * MICRO), 1..300),
            small in 200 * MICRO..3000 * MICRO,
        ) {
            let pieces = huge.into_iter().map(|(pages, huge)| (pages, huge, small));
            let totals = simulate_pieces(&Experience::new(), pieces);
            let bound = totals.all_small * 17 / 16 + totals.dearest;
            proptest::prop_assert!(totals.ours <= bound * 102 / 100, "{:?}", totals);
        }
    }

    #[test]
    fn the_setting_in_force_stands_in_brackets() {
        assert!(setting_is_always(b"[always] madvise never\n"));
        for text in
            ["always [madvise] never\n", "always madvise [never]\n", "", "always", "[always"]
        {
            assert!(!setting_is_always(text.as_bytes()), "{text:?}");
        }
    }

    const LINES: &str = "\
Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3
Node 0, zone   Normal   1306  10862   6517   1830   1203   1927   1254    643    445    923   2446
Node 1, zone   Normal      0      0      0      0      0      0      0      0      0      0      0
";

    #[test]
    fn free_blocks_of_all_nodes_and_zones_are_added_up() {
        assert_eq!(free_blocks_in(LINES.as_bytes(), 9), Some(1 + 2 * 3 + 923 + 2 * 2446));
        assert_eq!(free_blocks_in(LINES.as_bytes(), 10), Some(3 + 2446));
        assert_eq!(free_blocks_in(LINES.as_bytes(), 11), None);
    }

    #[test]
    fn what_is_not_such_a_text_has_no_number() {
        let huge = format!("Node 0, zone Normal{}", " 18446744073709551615".repeat(80));
        assert_eq!(free_blocks_in(huge.as_bytes(), 9), Some(u64::MAX));
        for text in ["", "\n\n", "Node 0, zone", "Node 0, zone Normal", "zone zone zone"] {
            assert_eq!(free_blocks_in(text.as_bytes(), 9), None, "{text:?}");
        }
        for text in
            ["zone N 0 x", "zone N 0 -1", "zone N 0 99999999999999999999", "zone N 0 \u{e9}"]
        {
            assert_eq!(free_blocks_in(text.as_bytes(), 1), None, "{text:?}");
        }
    }
}
