//! Decisions about huge pages, on a simulated kernel.

use core::cell::Cell;

use super::free_blocks::COUNT_MILLIS;
use super::kernel::sample_len;
use super::*;
use crate::error::AllocError;

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
fn take(policy: &HugePagePolicy, kernel: &SimulatedKernel, pages: usize) -> Piece {
    kernel.piece.set(Piece { start: PIECE_START, ..Piece::default() });
    let len = pages * HUGE_PAGE;
    // SAFETY: the simulated kernel accesses no memory.
    let is_huge = unsafe { policy.touch(kernel, address(PIECE_START), len, SmallTouch::Faults) };
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
    /// The highest cost of a piece with huge pages.
    dearest: u64,
}

/// Takes pieces in turn. Each is given by its number of huge pages, the cost of one of them, and
/// the cost of 2 MiB of small pages. The program touches all of each piece.
fn simulate_pieces(
    policy: &HugePagePolicy,
    pieces: impl IntoIterator<Item = (usize, u64, u64)>,
) -> Totals {
    let kernel = SimulatedKernel::new(Some(1_000_000));
    let mut totals = Totals::default();
    for (pages, huge, small) in pieces {
        kernel.huge_nanos.set(huge);
        kernel.small_nanos.set(small);
        let before = kernel.nanos.get();
        let piece = take(policy, &kernel, pages);
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
fn simulate(policy: &HugePagePolicy, pieces: impl IntoIterator<Item = (u64, u64)>) -> Totals {
    simulate_pieces(policy, pieces.into_iter().map(|(huge, small)| (1, huge, small)))
}

#[test]
fn cheap_huge_pages_are_used_from_the_first_piece_on() {
    let totals = simulate(&HugePagePolicy::new(), [(300 * MICRO, 800 * MICRO); 1000]);
    assert!(totals.ours <= totals.all_huge * 102 / 100, "{totals:?}");
}

#[test]
fn dear_huge_pages_cost_a_sixteenth_and_one_touch_at_most() {
    for huge in [801, 1000, 2400, 10_000] {
        for pieces in [1, 30, 1000] {
            let dear = core::iter::repeat_n((huge * MICRO, 800 * MICRO), pieces);
            let totals = simulate(&HugePagePolicy::new(), dear);
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
    let totals = simulate_pieces(&HugePagePolicy::new(), pieces);
    let bound = totals.all_small * 17 / 16 + totals.dearest;
    assert!(totals.ours <= bound * 101 / 100, "{totals:?}");
}

#[test]
fn a_change_of_costs_is_followed_soon() {
    for pages in [1, 32] {
        let policy = HugePagePolicy::new();
        let pieces = |huge| [(pages, huge * MICRO, 800 * MICRO); 1000];
        simulate_pieces(&policy, pieces(300));
        let totals = simulate_pieces(&policy, pieces(2400));
        let credit = MAX_CREDIT as u64 * pages as u64;
        let bound = totals.all_small * 17 / 16 + credit + totals.dearest;
        assert!(totals.ours <= bound * 101 / 100, "{totals:?}");
        let totals = simulate_pieces(&policy, pieces(300));
        assert!(totals.ours <= totals.all_huge * 110 / 100, "{totals:?}");
    }
}

#[test]
fn a_single_dear_touch_among_cheap_ones_changes_nothing() {
    for pages in [1, 32] {
        let pieces = (0..1000).map(|piece| {
            (pages, if piece % 20 == 19 { 2400 * MICRO } else { 300 * MICRO }, 800 * MICRO)
        });
        let totals = simulate_pieces(&HugePagePolicy::new(), pieces);
        assert!(totals.ours <= totals.all_huge * 102 / 100, "{totals:?}");
    }
}

#[test]
fn a_kernel_that_refuses_huge_pages_costs_next_to_nothing() {
    let policy = HugePagePolicy::new();
    let kernel =
        SimulatedKernel { refuses: Some(3 * MICRO), ..SimulatedKernel::new(Some(1_000_000)) };
    let pieces = (0..1000).map(|_| take(&policy, &kernel, 1));
    let tries = pieces.filter(|piece| piece.huge > 0).count() as u64;
    assert!(tries * 3 * MICRO <= 1000 * 800 * MICRO / 16, "{tries}");
    let load = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
    assert_eq!(load(&policy.huge_bytes), 0);
    assert_eq!(load(&policy.refused_bytes), tries * HUGE_PAGE as u64);
    assert_eq!(load(&policy.small_bytes), (1000 - tries) * HUGE_PAGE as u64);
}

#[test]
fn no_huge_page_is_requested_if_the_kernel_has_no_free_block() {
    let policy = HugePagePolicy::new();
    let kernel = SimulatedKernel::new(Some(0));
    for pages in [1, 32].into_iter().cycle().take(1000) {
        assert_eq!(take(&policy, &kernel, pages).huge, 0);
        kernel.spend(MILLI);
    }
}

#[test]
fn half_of_the_free_blocks_are_used_until_they_are_counted_again() {
    let policy = HugePagePolicy::new();
    let kernel = SimulatedKernel::new(Some(20));
    let huge = (0..30).filter(|_| take(&policy, &kernel, 1).huge > 0).count();
    assert_eq!(huge, 10);
    // A large piece has huge pages as far as there are blocks.
    let policy = HugePagePolicy::new();
    let kernel = SimulatedKernel::new(Some(20));
    let Piece { huge, small, .. } = take(&policy, &kernel, 32);
    assert_eq!((huge, small), (10 * HUGE_PAGE, 22 * HUGE_PAGE));
    assert_eq!(policy.huge_bytes.load(Ordering::Relaxed), 10 * HUGE_PAGE as u64);
    assert_eq!(policy.small_bytes.load(Ordering::Relaxed), 22 * HUGE_PAGE as u64);
    assert_eq!(take(&policy, &kernel, 1).huge, 0, "they are used up");
}

#[test]
fn blocks_that_are_short_are_counted_ten_times_a_second() {
    for free in [Some(0), Some(1), Some(20), None] {
        let policy = HugePagePolicy::new();
        // A count that worked, and is out of date.
        let kernel = SimulatedKernel::new(Some(2));
        take(&policy, &kernel, 1);
        kernel.spend(COUNT_MILLIS * MILLI);
        kernel.counts.set(0);
        kernel.free.set(free);
        let until = kernel.nanos.get() + 1000 * MILLI;
        while kernel.nanos.get() < until {
            take(&policy, &kernel, 32);
            kernel.spend(MILLI);
        }
        let counts = kernel.counts.get();
        assert!((5..=11).contains(&counts), "{counts} counts with {free:?}");
    }
}

#[test]
fn blocks_that_were_used_up_are_counted_again_at_the_next_tick() {
    let policy = HugePagePolicy::new();
    let kernel = SimulatedKernel::new(Some(8));
    for _ in 0..4 {
        assert_eq!(take(&policy, &kernel, 1).huge, HUGE_PAGE);
    }
    kernel.spend(8 * MILLI);
    assert_eq!(take(&policy, &kernel, 1).huge, HUGE_PAGE);
    assert_eq!(kernel.counts.get(), 2);
}

#[test]
fn a_count_that_fails_leaves_what_is_left_of_the_last_one() {
    let policy = HugePagePolicy::new();
    let kernel = SimulatedKernel::new(Some(8));
    assert_eq!(take(&policy, &kernel, 1).huge, HUGE_PAGE);
    kernel.free.set(None);
    let mut huge = 0;
    for _ in 0..100 {
        kernel.spend(COUNT_MILLIS * MILLI);
        huge += take(&policy, &kernel, 1).huge / HUGE_PAGE;
    }
    assert_eq!(huge, 3, "three of the four blocks");
}

#[test]
fn a_kernel_that_never_counted_blocks_leaves_the_decision_to_the_credit() {
    let policy = HugePagePolicy::new();
    let kernel = SimulatedKernel::new(None);
    for _ in 0..1000 {
        assert_eq!(take(&policy, &kernel, 32).huge, 32 * HUGE_PAGE);
    }
    assert!(kernel.counts.get() <= 1 + 1000 * 300 / 1000 / COUNT_MILLIS);
    kernel.huge_nanos.set(2400 * MICRO);
    let huge = (0..1000).filter(|_| take(&policy, &kernel, 1).huge > 0).count();
    assert!(huge < 500, "{huge}");
}

#[test]
fn small_pages_are_sampled_ten_times_a_second_at_most() {
    let policy = HugePagePolicy::new();
    let kernel = SimulatedKernel::new(Some(1_000_000));
    let until = kernel.nanos.get() + 1000 * MILLI;
    while kernel.nanos.get() < until {
        take(&policy, &kernel, 1);
    }
    let samples = kernel.samples.get();
    assert!((5..=11).contains(&samples), "{samples}");
}

#[test]
fn locked_memory_is_not_touched() {
    let policy = HugePagePolicy::new();
    let kernel = SimulatedKernel::new(Some(1_000_000));
    let start = PIECE_START;
    kernel.piece.set(Piece { start, is_locked: true, ..Piece::default() });
    let before = kernel.nanos.get();
    // SAFETY: the simulated kernel accesses no memory.
    let is_huge = unsafe { policy.touch(&kernel, address(start), HUGE_PAGE, SmallTouch::Faults) };
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
        let totals = simulate_pieces(&HugePagePolicy::new(), pieces);
        let bound = totals.all_small * 17 / 16 + totals.dearest;
        proptest::prop_assert!(totals.ours <= bound * 102 / 100, "{:?}", totals);
    }
}
