//! A slab's arithmetic: slots, pages and the words of their bitmaps. No pointer, no memory, no
//! unsafe code.
#![forbid(unsafe_code)]

use core::alloc::Layout;

use crate::memory::layout::{SEGMENT_GRANULE, checked_align_up};

/// The number of slots that one word of a bitmap describes.
pub const WORD: usize = 64;
/// The smallest slot, in bytes.
pub const MIN_SLOT: usize = 8;
/// The largest slot, in bytes: a descriptor stores a page's size in units of 4 KiB, in 32 bits.
pub const MAX_SLOT: usize = 8 << 40;
/// The largest page that holds several slots, in bytes.
pub const MAX_PAGE: usize = 2 << 20;
/// The largest page of small slots, in bytes, and the default of a slab's own maximum.
pub const USUAL_PAGE: usize = SEGMENT_GRANULE;
/// Slots above this size have pages larger than [`USUAL_PAGE`], so that the end of a page wastes
/// little.
const LARGE_SLOT: usize = USUAL_PAGE / SLOTS_WANTED;
const SLOTS_WANTED: usize = 8;
/// Slots above this size have one page each.
const ALONE: usize = MAX_PAGE / SLOTS_WANTED;
/// The most slots that a thread's cache ever holds. By default, their bytes are limited to
/// `MOST_CACHED_BYTES` as well.
pub const MOST_CACHED: usize = 4096;
const MOST_CACHED_BYTES: usize = 256 << 10;
/// A cache's first capacity is this part of its maximum.
const FIRST_CACHED: usize = 8;
const LEAST_CACHED: usize = 8;
/// A cache holds at most this part of a budget.
const BUDGET_CACHED: usize = 64;
/// The number of fractional bits of a reciprocal.
const POINT: u32 = 40;

/// The sizes of one slab, which never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The bytes from one slot to the next.
    pub slot: usize,
    /// The smallest and the largest page, in bytes; multiples of the hardware page.
    pub page_min: usize,
    /// See `page_min`.
    pub page_max: usize,
    /// The first capacity of a thread's cache, in slots.
    pub first_cached: usize,
    /// The maximal capacity of a thread's cache, in slots.
    pub most_cached: usize,
    /// The number of freed slots of marked pages that a thread collects before it sends them back.
    pub most_outgoing: usize,
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
        Self((1 << POINT) / slot as u64 + 1)
    }

    /// The number of the slot that begins at `offset` bytes from its page's start.
    ///
    /// Needs `offset` to be a slot's, in a page of its geometry: `offset = n * slot`, with `offset
    /// <= MAX_PAGE` or `n = 0`. The reciprocal is `(2^40 + r) / slot` with `0 < r <= slot`. So the
    /// product, divided by `2^40`, is `n + n * r / 2^40`, and `n * r <= offset < 2^40`.
    #[inline(always)]
    #[must_use]
    pub const fn index(self, offset: usize) -> usize {
        ((offset as u64).wrapping_mul(self.0) >> POINT) as usize
    }
}

impl Geometry {
    /// The geometry for objects of this layout, with pages of at most `page_max` bytes if the slot
    /// allows it. Returns `None` if the size with its alignment exceeds the address space.
    ///
    /// Needs `hardware` to be a power of two of at least 4096, and `page_max` at most [`MAX_PAGE`].
    #[must_use]
    pub const fn new(layout: Layout, page_max: usize, hardware: usize) -> Option<Self> {
        let size = if layout.size() < MIN_SLOT { MIN_SLOT } else { layout.size() };
        let Some(slot) = checked_align_up(size, layout.align()) else { return None };
        let Some(one) = checked_align_up(slot, hardware) else { return None };
        if one > MAX_SLOT {
            return None;
        }
        let wanted = if slot > ALONE {
            one
        } else if slot > LARGE_SLOT {
            let Some(several) = checked_align_up(slot * SLOTS_WANTED, hardware) else {
                return None;
            };
            several
        } else {
            let Some(asked) = checked_align_up(page_max, hardware) else { return None };
            if asked < one { one } else { asked }
        };
        let slots = if wanted > MAX_PAGE { 1 } else { wanted / slot };
        let words = slots.div_ceil(WORD);
        Some(
            Self {
                slot,
                page_min: one,
                sample_bits: match words {
                    0..=1 => 0x1111_1111_1111_1111,
                    2..=4 => 0x0001_0001_0001_0001,
                    _ => 1,
                },
                sample_words: if words <= 8 { 0 } else { words.next_power_of_two() / 8 - 1 },
                page_max: wanted,
                first_cached: 0,
                most_cached: 0,
                most_outgoing: 0,
                reciprocal: Reciprocal::of(slot),
            }
            .with_caches_of(MOST_CACHED_BYTES),
        )
    }

    /// The same geometry for a slab with a budget of this many bytes.
    #[must_use]
    pub const fn within(self, budget: usize) -> Self {
        self.with_caches_of(at_most(budget / BUDGET_CACHED, MOST_CACHED_BYTES))
    }

    /// The same geometry with at most this many bytes of slots in each thread's cache, but with
    /// room for at least 8 slots and at most 4096.
    #[must_use]
    pub const fn with_caches_of(mut self, bytes: usize) -> Self {
        let most = at_most(bytes / self.slot, MOST_CACHED);
        self.most_cached = at_least(most, LEAST_CACHED);
        self.first_cached = at_least(most / FIRST_CACHED, LEAST_CACHED);
        self.most_outgoing = at_least(self.first_cached / FIRST_CACHED, LEAST_CACHED);
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
    pub const fn fits_a_granule(&self) -> bool {
        self.page_max <= SEGMENT_GRANULE
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
        self.slots(self.page_max).div_ceil(WORD)
    }

    /// The bytes of the next page of a slab that holds `held` bytes of pages. The result is at most
    /// `held`, but at least the smallest page. It is a power of two times the smallest page, or the
    /// largest page. So a slab's pages grow and shrink with what it holds.
    #[must_use]
    pub const fn next_page(&self, held: usize) -> usize {
        let mut bytes = self.page_min;
        while bytes * 2 <= self.page_max && bytes * 2 <= held {
            bytes *= 2;
        }
        // The largest page may not be a power of two times the smallest.
        if bytes * 2 > self.page_max && self.page_max <= held { self.page_max } else { bytes }
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

    fn geometry(size: usize, align: usize) -> Geometry {
        let layout = Layout::from_size_align(size, align).unwrap();
        Geometry::new(layout, USUAL_PAGE, 4096).unwrap()
    }

    #[test]
    fn every_slot_of_every_size_has_its_own_index() {
        for size in (1..5000).chain([8191, 8192, 8193, 65_535, 65_536, 100_000, ALONE, ALONE + 1]) {
            let sizes = geometry(size, 8);
            for bytes in [sizes.page_min, sizes.page_max] {
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
        assert_eq!(sizes.next_page(usize::MAX / 4), USUAL_PAGE);
        assert_eq!(sizes.next_page(4096), 4096);
        let large = geometry(10_000, 8);
        assert_eq!(large.page_max, 81_920);
        assert_eq!(large.next_page(1 << 30), 81_920);
    }

    #[test]
    fn the_end_of_a_page_wastes_at_most_a_ninth() {
        for size in 1..ALONE {
            let sizes = geometry(size, 1);
            let used = sizes.slots(sizes.page_max) * sizes.slot;
            assert!((sizes.page_max - used) * 9 <= sizes.page_max, "size {size}");
        }
    }

    #[test]
    fn a_cache_grows_to_256_kib_or_4096_slots_or_a_part_of_the_budget_and_holds_at_least_eight() {
        let cached = |sizes: Geometry| (sizes.first_cached, sizes.most_cached);
        assert_eq!(cached(geometry(64, 8)), (512, 4096));
        assert_eq!(cached(geometry(8, 8)), (512, 4096));
        assert_eq!(cached(geometry(2048, 8)), (16, 128));
        assert_eq!(cached(geometry(1 << 20, 8)), (8, 8));
        assert_eq!(cached(geometry(64, 8).within(usize::MAX)), (512, 4096));
        assert_eq!(cached(geometry(64, 8).within(1 << 20)), (32, 256));
        assert_eq!(cached(geometry(64, 8).within(0)), (8, 8));
    }

    #[test]
    fn a_layout_beyond_the_address_space_has_no_geometry() {
        let huge = Layout::from_size_align(isize::MAX as usize - 7, 8).unwrap();
        assert_eq!(Geometry::new(huge, USUAL_PAGE, 4096), None);
    }
}
