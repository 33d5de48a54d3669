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
//!   mapped, touched and unmapped for this purpose from time to time.
//! - Each huge page adds what it saved to a *credit*, or takes what it lost from it. Small pages add
//!   a sixteenth of their cost. Huge pages are used while the credit is not negative. So against
//!   small pages alone, they lose at most a sixteenth of the time, and one touch.
//! - Huge pages are used only if the kernel has enough free blocks (`/proc/buddyinfo`), so that a
//!   first touch does not wait for compaction.
//!
//! | allocator | pieces for which this file decides |
//! |---|---|
//! | arenas, reaps, free lists | each chunk after the first 2 MiB |
//! | slabs | each range after the first 2 MiB |
//! | pools | none: chunks of several pools lie in the same 2 MiB, and go back one by one |
//!
//! Smaller fresh memory has small pages. A larger piece is measured by its first huge page, because
//! a touch of the others would give memory to what the program may never use.
//!
//! All accesses to atomics are relaxed: the values are numbers, and hand over no memory. If two
//! threads measure at the same time, one measurement may be lost.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::layout::HUGE_PAGE;
use super::os;

/// The bytes of small pages that are touched to learn their cost; at least one page.
const SAMPLE: usize = 32 << 10;
/// The largest credit and the largest debt, in nanoseconds. So what was measured long ago does not
/// count for ever.
const MAX_CREDIT: i64 = 20_000_000;
/// Small pages add their cost divided by this to the credit, so that huge pages are tried again.
const RETRY_DIVISOR: i64 = 16;
/// A cost of small pages is out of date after this many milliseconds.
const SMALL_COST_MILLIS: u64 = 1000;
/// It is measured again after huge pages have cost this many nanoseconds.
const SMALL_COST_NANOS: u64 = 4_000_000;
/// The number of free blocks is out of date after this many milliseconds.
const COUNT_MILLIS: u64 = 100;

/// How much fresh memory the process has taken from the system, and what its first touch costs.
///
/// Memory from the system is *fresh*: its first touch is a page fault. Memory from the
/// [`recycler`](crate::recycler()) is not. A *piece* is a mapping of 2 MiB or more. The figures
/// count [`Mmap`](crate::Mmap) and pools, from the start of the process on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FreshMemory {
    /// Bytes of pieces whose first page is a huge page.
    pub huge_bytes: u64,
    /// Bytes of pieces for which huge pages were requested, and the kernel gave small ones.
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

/// Counts fresh memory that gets small pages without a decision.
pub(crate) fn count_small(len: usize) {
    EXPERIENCE.small_bytes.fetch_add(len as u64, Ordering::Relaxed);
}

/// Decides which pages fresh memory gets, and touches its beginning. Returns whether that is a huge
/// page. `small` is how the program would touch small pages.
///
/// # Safety
/// The range was just mapped, at a multiple of [`HUGE_PAGE`], and nothing uses it.
pub(crate) unsafe fn touch(start: NonNull<u8>, len: usize, small: SmallTouch) -> bool {
    // Memory that is locked has its pages already.
    if len < HUGE_PAGE || os::is_resident(start) == Some(true) {
        count_small(len);
        return false;
    }
    let now = os::coarse_millis();
    // SAFETY: guaranteed by the caller.
    unsafe {
        if EXPERIENCE.prefers_huge() && EXPERIENCE.has_blocks((len / HUGE_PAGE) as u64, now) {
            EXPERIENCE.touch_measured_huge(start, len, small, now)
        } else {
            EXPERIENCE.touch_measured_small(start, len, small, now);
            false
        }
    }
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
    let _ = os::advise_huge(start, len);
    // SAFETY: the range is mapped, and nothing uses it.
    unsafe { start.write_volatile(0) };
    // SAFETY: the last page of the first 2 MiB.
    let last = unsafe { start.add(HUGE_PAGE - os::page_size()) };
    // It has memory only if it is part of a huge page. If the system does not say, assume that.
    let is_huge = os::is_resident(last).unwrap_or(true);
    let bytes = if is_huge { &EXPERIENCE.huge_bytes } else { &EXPERIENCE.refused_bytes };
    bytes.fetch_add(len as u64, Ordering::Relaxed);
    is_huge
}

impl Experience {
    const fn new() -> Self {
        Self {
            small: [const { SmallCost::new() }; 2],
            huge_nanos: AtomicU64::new(0),
            credit: AtomicI64::new(0),
            blocks: AtomicU64::new(0),
            counted_at: AtomicU64::new(0),
            huge_bytes: AtomicU64::new(0),
            refused_bytes: AtomicU64::new(0),
            small_bytes: AtomicU64::new(0),
        }
    }

    /// Whether the next piece should have huge pages.
    fn prefers_huge(&self) -> bool {
        self.credit.load(Ordering::Relaxed) >= 0
    }

    fn add_credit(&self, nanos: i64) {
        let credit = self.credit.load(Ordering::Relaxed).saturating_add(nanos);
        self.credit.store(credit.clamp(-MAX_CREDIT, MAX_CREDIT), Ordering::Relaxed);
    }

    /// Whether the kernel has free blocks for this many huge pages. Takes them off the count.
    fn has_blocks(&self, wanted: u64, now: u64) -> bool {
        let take = |blocks: u64| blocks.checked_sub(wanted);
        let counted_at = self.counted_at.load(Ordering::Relaxed);
        let is_recent = now.saturating_sub(counted_at) < COUNT_MILLIS;
        if is_recent && self.blocks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
        {
            return true;
        }
        if now == counted_at {
            // Counted at this tick of the clock: there were not enough.
            return false;
        }
        self.counted_at.store(now, Ordering::Relaxed);
        // Other threads and processes take blocks too, so half of them may be used until the next
        // count.
        self.blocks.store(count_free_blocks() / 2, Ordering::Relaxed);
        self.blocks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// # Safety
    /// As for [`touch`].
    unsafe fn touch_measured_huge(
        &self,
        start: NonNull<u8>,
        len: usize,
        small: SmallTouch,
        now: u64,
    ) -> bool {
        let small_cost = self.small_cost(small, now);
        let before = os::thread_nanos();
        // SAFETY: guaranteed by the caller.
        let is_huge = unsafe { touch_huge(start, len) };
        let nanos = os::thread_nanos().saturating_sub(before);
        self.small[small as usize].spent_nanos.fetch_add(nanos, Ordering::Relaxed);
        if is_huge {
            self.huge_nanos.store(nanos, Ordering::Relaxed);
            self.learn_huge(nanos, small_cost);
        } else {
            // The piece has small pages, so the touch saved nothing.
            self.learn_huge(nanos, 0);
        }
        is_huge
    }

    /// Learns from the touch of a huge page what that saved or lost.
    fn learn_huge(&self, nanos: u64, small_cost: u64) {
        self.add_credit(small_cost as i64 - nanos as i64);
    }

    /// Learns what small pages cost.
    fn learn_small(&self, nanos: u64, small: SmallTouch, now: u64) {
        let cost = self.small[small as usize].learn(nanos, now);
        self.add_credit(cost as i64 / RETRY_DIVISOR);
    }

    /// # Safety
    /// As for [`touch`].
    unsafe fn touch_measured_small(
        &self,
        start: NonNull<u8>,
        len: usize,
        small: SmallTouch,
        now: u64,
    ) {
        let _ = os::advise_small(start, len);
        // SAFETY: guaranteed by the caller.
        let nanos = unsafe { sample_small(start, small) };
        self.learn_small(nanos, small, now);
        count_small(len);
    }

    /// The cost of small pages, measured if it is not known or out of date.
    fn small_cost(&self, small: SmallTouch, now: u64) -> u64 {
        let cost = &self.small[small as usize];
        let known = cost.nanos.load(Ordering::Relaxed);
        if !cost.is_out_of_date(now) {
            return known;
        }
        let Ok(scratch) = os::map(sample_len(), 1) else { return known };
        // SAFETY: just mapped, and unmapped once.
        unsafe {
            let nanos = sample_small(scratch, small);
            let _ = os::unmap(scratch, sample_len());
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

    fn is_old(&self, now: u64) -> bool {
        let age = now.saturating_sub(self.measured_at.load(Ordering::Relaxed));
        self.nanos.load(Ordering::Relaxed) == 0 || age >= SMALL_COST_MILLIS
    }

    fn is_out_of_date(&self, now: u64) -> bool {
        self.is_old(now) || self.spent_nanos.load(Ordering::Relaxed) >= SMALL_COST_NANOS
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

/// Touches the first small pages of a range. Returns what 2 MiB would cost, in nanoseconds.
///
/// # Safety
/// The range was just mapped, has at least [`sample_len`] bytes, and nothing uses it.
unsafe fn sample_small(start: NonNull<u8>, small: SmallTouch) -> u64 {
    let before = os::thread_nanos();
    if small == SmallTouch::Faults || os::populate(start, sample_len()).is_err() {
        for page in (0..sample_len()).step_by(os::page_size()) {
            // SAFETY: guaranteed by the caller. Volatile, because only the page fault matters.
            unsafe { start.add(page).write_volatile(0) };
        }
    }
    os::thread_nanos().saturating_sub(before) * (HUGE_PAGE / sample_len()) as u64
}

/// The number of free blocks of 2 MiB that the kernel has. A large number if it does not say.
fn count_free_blocks() -> u64 {
    const FILE: &CStr = c"/proc/buddyinfo";
    let mut text = [0; 4096];
    let len = os::read_start(FILE, &mut text);
    let order = (HUGE_PAGE / os::page_size()).ilog2();
    free_blocks_in(&text[..len], order).unwrap_or(u64::from(u32::MAX))
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
    use super::*;

    const MICRO: u64 = 1000;

    /// What first touches of the same pieces cost.
    #[derive(Debug, Default)]
    struct Totals {
        ours: u64,
        all_huge: u64,
        all_small: u64,
        dearest: u64,
    }

    /// Touches pieces in turn, on a kernel where a huge page and 2 MiB of small pages cost this much.
    fn simulate(experience: &Experience, pieces: impl IntoIterator<Item = (u64, u64)>) -> Totals {
        let mut totals = Totals::default();
        for (huge, small) in pieces {
            let now = totals.ours / (1000 * MICRO);
            if experience.prefers_huge() {
                totals.ours += huge;
                let cost = &experience.small[SmallTouch::Faults as usize];
                cost.spent_nanos.fetch_add(huge, Ordering::Relaxed);
                let small_cost = if cost.is_out_of_date(now) {
                    totals.ours += small * SAMPLE as u64 / HUGE_PAGE as u64;
                    cost.learn(small, now)
                } else {
                    cost.nanos.load(Ordering::Relaxed)
                };
                experience.learn_huge(huge, small_cost);
            } else {
                totals.ours += small;
                experience.learn_small(small, SmallTouch::Faults, now);
            }
            totals.all_huge += huge;
            totals.all_small += small;
            totals.dearest = totals.dearest.max(huge);
        }
        totals
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
    fn a_change_of_costs_is_followed_soon() {
        let experience = Experience::new();
        simulate(&experience, [(300 * MICRO, 800 * MICRO); 1000]);
        let totals = simulate(&experience, [(2400 * MICRO, 800 * MICRO); 1000]);
        let bound = totals.all_small * 17 / 16 + MAX_CREDIT as u64 + totals.dearest;
        assert!(totals.ours <= bound * 101 / 100, "{totals:?}");
        let totals = simulate(&experience, [(300 * MICRO, 800 * MICRO); 1000]);
        assert!(totals.ours <= totals.all_huge * 110 / 100, "{totals:?}");
    }

    #[test]
    fn a_single_dear_touch_among_cheap_ones_changes_nothing() {
        let pieces = (0..1000)
            .map(|piece| (if piece % 20 == 19 { 2400 * MICRO } else { 300 * MICRO }, 800 * MICRO));
        let totals = simulate(&Experience::new(), pieces);
        assert!(totals.ours <= totals.all_huge * 102 / 100, "{totals:?}");
    }

    #[test]
    fn a_kernel_that_refuses_huge_pages_costs_next_to_nothing() {
        let experience = Experience::new();
        let mut lost = 0;
        for piece in 0..1000 {
            if experience.prefers_huge() {
                lost += 3 * MICRO;
                experience.learn_huge(3 * MICRO, 0);
            } else {
                experience.learn_small(800 * MICRO, SmallTouch::Faults, piece);
            }
        }
        assert!(lost <= 1000 * 800 * MICRO / 16, "{lost}");
    }

    proptest::proptest! {
        #[test]
        fn whatever_huge_pages_cost_the_loss_is_bounded(
            huge in proptest::collection::vec(100 * MICRO..10_000 * MICRO, 1..300),
            small in 200 * MICRO..3000 * MICRO,
        ) {
            let totals = simulate(&Experience::new(), huge.into_iter().map(|huge| (huge, small)));
            let bound = totals.all_small * 17 / 16 + totals.dearest;
            proptest::prop_assert!(totals.ours <= bound * 102 / 100, "{:?}", totals);
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
