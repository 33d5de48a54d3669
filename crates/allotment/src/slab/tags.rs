//! Tags: one word for each granule of addresses (64 KiB), which names the slab of the granule's
//! page.
//!
//! The segment map keeps the tags. A tag is a slab's number times [`TAG_STEP`], plus [`TAG_MARK`]
//! if the page is marked. Tag 0 is that of memory that belongs to no slab.

use super::geometry::MAX_CACHED;

/// A tag is a slab's number times this step. So two different tags differ by more than the number
/// of entries of a thread cache.
const TAG_STEP: u32 = 8192;
/// The bit of a tag that keeps frees out of the caches. It is set if the page is sparse or of
/// long-lived objects, if threads wait for slots, or if the slab is closed.
pub(super) const TAG_MARK: u32 = 1 << 31;
/// All slab numbers are below this.
pub(super) const SLAB_NUMBERS: u32 = TAG_MARK / TAG_STEP;

const _: () = assert!(TAG_STEP as usize > MAX_CACHED);

/// The tag of a slab's pages, without a mark.
pub(super) const fn tag_of_slab(number: u32) -> u32 {
    number * TAG_STEP
}

/// The slab number in a tag. For a marked tag, the result is above any number in use.
#[inline(always)]
pub(super) const fn slab_number(tag: u32) -> u32 {
    tag / TAG_STEP
}
