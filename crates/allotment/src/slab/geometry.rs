//! A slab's arithmetic: slots, pages and the words of their bitmaps. No pointers, no memory, no
//! unsafe code.
#![forbid(unsafe_code)]

use core::alloc::Layout;

use crate::memory::layout::{SEGMENT_GRANULE, checked_align_up};

/// The number of slots that one word of a bitmap describes.
pub const SLOTS_PER_WORD: usize = 64;
/// The smallest slot, in bytes.
pub const MIN_SLOT: usize = 8;
/// The largest slot, in bytes: a descriptor stores a page's size in units of 4 KiB, in 32 bits.
pub const MAX_SLOT: usize = 8 << 40;
/// The largest page that holds several slots, in bytes.
pub const MAX_PAGE: usize = 2 << 20;
/// The largest page of small slots, in bytes, and the default of a slab's own maximum.
pub const DEFAULT_PAGE: usize = SEGMENT_GRANULE;
/// Slots above this size, in bytes, have pages larger than [`DEFAULT_PAGE`], so that the end of a
/// page wastes little.
const LARGE_SLOT: usize = DEFAULT_PAGE / LARGE_PAGE_SLOTS;
/// The slots of a page of large slots.
const LARGE_PAGE_SLOTS: usize = 8;
/// Slots above this size, in bytes, have one page each.
const SINGLE_SLOT: usize = MAX_PAGE / LARGE_PAGE_SLOTS;
/// The most slots that a thread's cache ever holds. By default, their bytes are limited to
/// `MAX_CACHED_BYTES` as well.
pub const MAX_CACHED: usize = 4096;
const MAX_CACHED_BYTES: usize = 256 << 10;
/// A cache's initial capacity is its maximum divided by this.
const INITIAL_CACHE_DIVISOR: usize = 8;
const MIN_CACHED: usize = 8;
/// A cache holds at most a budget's bytes divided by this.
const BUDGET_DIVISOR: usize = 64;
/// The number of fractional bits of a reciprocal.
const FRACTION_BITS: u32 = 40;

/// The sizes of one slab, which never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabGeometry {
    /// The bytes from one slot to the next.
    pub slot: usize,
    /// The smallest and the largest page, in bytes; multiples of the hardware page.
    pub min_page: usize,
    /// See `min_page`.
    pub max_page: usize,
    /// The first capacity of a thread's cache, in slots.
    pub initial_cached: usize,
    /// The maximal capacity of a thread's cache, in slots.
    pub max_cached: usize,
    /// The number of freed slots of marked pages that a thread collects before it sends them back.
    pub max_outgoing: usize,
    /// Computes a slot's number from its offset.
    pub reciprocal: Reciprocal,
    /// The frees at which a page's fullness is sampled: those of a slot at one of these bits, in a
    /// word whose number has no bit of `sample_words` set.
    sample_bits: u64,
    sample_words: usize,
}

/// The reciprocal of one slot's size, for division by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reciprocal(u64);

impl Reciprocal {
    /// The reciprocal of a slot's size.
    #[must_use]
    pub const fn of(slot: usize) -> Self {
        Self((1 << FRACTION_BITS) / slot as u64 + 1)
    }

    /// The number of the slot that begins at `offset` bytes from its page's start.
    ///
    /// Needs `offset` to be a slot's, in a page of its geometry: `offset = n * slot`, with `offset
    /// <= MAX_PAGE` or `n = 0`. The reciprocal is `(2^40 + r) / slot` with `0 < r <= slot`. So the
    /// product, divided by `2^40`, is `n + n * r / 2^40`, and `n * r <= offset < 2^40`.
    #[inline(always)]
    #[must_use]
    pub const fn index(self, offset: usize) -> usize {
        ((offset as u64).wrapping_mul(self.0) >> FRACTION_BITS) as usize
    }
}

impl SlabGeometry {
    /// The geometry for objects of this layout, with pages of at most `max_page` bytes if the slot
    /// allows it. Returns `None` if the size with its alignment exceeds the address space.
    ///
    /// Needs `hardware_page` to be a power of two of at least 4096, and `max_page` at most
    /// [`MAX_PAGE`].
    #[must_use]
    pub const fn new(layout: Layout, max_page: usize, hardware_page: usize) -> Option<Self> {
        let size = if layout.size() < MIN_SLOT { MIN_SLOT } else { layout.size() };
        let Some(slot) = checked_align_up(size, layout.align()) else { return None };
        let Some(one) = checked_align_up(slot, hardware_page) else { return None };
        if one > MAX_SLOT {
            return None;
        }
        let largest = if slot > SINGLE_SLOT {
            one
        } else if slot > LARGE_SLOT {
            let Some(several) = checked_align_up(slot * LARGE_PAGE_SLOTS, hardware_page) else {
                return None;
            };
            several
        } else {
            let Some(asked) = checked_align_up(max_page, hardware_page) else { return None };
            if asked < one { one } else { asked }
        };
        let slots = if largest > MAX_PAGE { 1 } else { largest / slot };
        let words = slots.div_ceil(SLOTS_PER_WORD);
        Some(
            Self {
                slot,
                min_page: one,
                sample_bits: match words {
                    0..=1 => 0x1111_1111_1111_1111,
                    2..=4 => 0x0001_0001_0001_0001,
                    _ => 1,
                },
                sample_words: if words <= 8 { 0 } else { words.next_power_of_two() / 8 - 1 },
                max_page: largest,
                initial_cached: 0,
                max_cached: 0,
                max_outgoing: 0,
                reciprocal: Reciprocal::of(slot),
            }
            .with_cache_bytes(MAX_CACHED_BYTES),
        )
    }

    /// The same geometry for a slab with a budget of this many bytes.
    #[must_use]
    pub const fn with_budget(self, budget: usize) -> Self {
        self.with_cache_bytes(at_most(budget / BUDGET_DIVISOR, MAX_CACHED_BYTES))
    }

    /// The same geometry with at most this many bytes of slots in each thread's cache, but with
    /// room for at least 8 slots and at most 4096.
    #[must_use]
    pub const fn with_cache_bytes(mut self, bytes: usize) -> Self {
        let most = at_most(bytes / self.slot, MAX_CACHED);
        self.max_cached = at_least(most, MIN_CACHED);
        self.initial_cached = at_least(most / INITIAL_CACHE_DIVISOR, MIN_CACHED);
        self.max_outgoing = at_least(self.initial_cached / INITIAL_CACHE_DIVISOR, MIN_CACHED);
        self
    }

    /// Same as [`Reciprocal::index`].
    #[inline(always)]
    #[must_use]
    pub const fn index(&self, offset: usize) -> usize {
        self.reciprocal.index(offset)
    }

    /// Whether the free of these slots samples the page's fullness. That holds for five to sixteen
    /// of the frees of a page.
    #[inline(always)]
    #[must_use]
    pub const fn samples(&self, word: usize, mask: u64) -> bool {
        mask & self.sample_bits != 0 && word & self.sample_words == 0
    }

    /// Whether each page lies in one granule.
    #[inline(always)]
    #[must_use]
    pub const fn fits_granule(&self) -> bool {
        self.max_page <= SEGMENT_GRANULE
    }

    /// The number of slots of a page of `bytes`.
    #[inline]
    #[must_use]
    pub const fn slots(&self, bytes: usize) -> usize {
        if bytes > MAX_PAGE { 1 } else { bytes / self.slot }
    }

    /// The number of words of the largest page's bitmap.
    #[must_use]
    pub const fn words(&self) -> usize {
        self.slots(self.max_page).div_ceil(SLOTS_PER_WORD)
    }

    /// The bytes of the next page of a slab that holds `held` bytes of pages. The result is at most
    /// `held`, but at least the smallest page. It is a power of two times the smallest page, or the
    /// largest page. So a slab's pages grow and shrink with what it holds.
    #[must_use]
    pub const fn next_page(&self, held: usize) -> usize {
        let mut bytes = self.min_page;
        while bytes * 2 <= self.max_page && bytes * 2 <= held {
            bytes *= 2;
        }
        // The largest page may not be a power of two times the smallest.
        if bytes * 2 > self.max_page && self.max_page <= held { self.max_page } else { bytes }
    }
}

const fn at_most(number: usize, most: usize) -> usize {
    if number > most { most } else { number }
}

const fn at_least(number: usize, least: usize) -> usize {
    if number < least { least } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(size: usize, align: usize) -> SlabGeometry {
        let layout = Layout::from_size_align(size, align).unwrap();
        SlabGeometry::new(layout, DEFAULT_PAGE, 4096).unwrap()
    }

    #[test]
    fn every_slot_of_every_size_has_its_own_index() {
        for size in (1..5000).chain([
            8191,
            8192,
            8193,
            65_535,
            65_536,
            100_000,
            SINGLE_SLOT,
            SINGLE_SLOT + 1,
        ]) {
            let sizes = geometry(size, 8);
            for bytes in [sizes.min_page, sizes.max_page] {
                let slots = sizes.slots(bytes);
                assert!(slots >= 1 && slots * sizes.slot <= bytes.max(sizes.slot));
                for n in 0..slots {
                    assert_eq!(sizes.index(n * sizes.slot), n, "size {size}");
                }
            }
        }
    }

    #[test]
    fn a_slot_has_room_and_alignment_for_its_layout() {
        for (size, align) in
            [(0, 1), (1, 1), (24, 8), (1, 64), (65, 64), (4096, 4096), (1, 1 << 16)]
        {
            let sizes = geometry(size, align);
            assert!(sizes.slot >= size && sizes.slot % align == 0 && sizes.slot >= MIN_SLOT);
        }
    }

    #[test]
    fn pages_begin_small_and_grow_with_what_is_held_and_shrink_with_it() {
        let sizes = geometry(64, 8);
        assert_eq!(sizes.next_page(0), 4096);
        assert_eq!(sizes.next_page(8191), 4096);
        assert_eq!(sizes.next_page(8192), 8192);
        assert_eq!(sizes.next_page(usize::MAX / 4), DEFAULT_PAGE);
        assert_eq!(sizes.next_page(4096), 4096);
        let large = geometry(10_000, 8);
        assert_eq!(large.max_page, 81_920);
        assert_eq!(large.next_page(1 << 30), 81_920);
    }

    #[test]
    fn the_end_of_a_page_wastes_at_most_a_ninth() {
        for size in 1..SINGLE_SLOT {
            let sizes = geometry(size, 1);
            let used = sizes.slots(sizes.max_page) * sizes.slot;
            assert!((sizes.max_page - used) * 9 <= sizes.max_page, "size {size}");
        }
    }

    #[test]
    fn a_cache_grows_to_256_kib_or_4096_slots_or_a_part_of_the_budget_and_holds_at_least_eight() {
        let cached = |sizes: SlabGeometry| (sizes.initial_cached, sizes.max_cached);
        assert_eq!(cached(geometry(64, 8)), (512, 4096));
        assert_eq!(cached(geometry(8, 8)), (512, 4096));
        assert_eq!(cached(geometry(2048, 8)), (16, 128));
        assert_eq!(cached(geometry(1 << 20, 8)), (8, 8));
        assert_eq!(cached(geometry(64, 8).with_budget(usize::MAX)), (512, 4096));
        assert_eq!(cached(geometry(64, 8).with_budget(1 << 20)), (32, 256));
        assert_eq!(cached(geometry(64, 8).with_budget(0)), (8, 8));
    }

    #[test]
    fn a_layout_beyond_the_address_space_has_no_geometry() {
        let huge = Layout::from_size_align(isize::MAX as usize - 7, 8).unwrap();
        assert_eq!(SlabGeometry::new(huge, DEFAULT_PAGE, 4096), None);
    }
}
