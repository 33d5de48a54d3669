//! Tags: one word for each granule of addresses (64 KiB), which names the slab of the granule's
//! page.
//!
//! The segment map keeps the tags. A tag is a slab's number times [`TAG_STEP`], plus
//! [`TAG_MIXED`] if the slab's source gives no whole granules, plus [`TAG_MARK`] if the page is
//! marked. Tag 0 is that of memory that belongs to no slab.

use super::geometry::MAX_CACHED;

/// A tag is a slab's number times this step. So the tags of two slabs differ by more than the
/// number of entries of a thread cache.
const TAG_STEP: u32 = 8192;
/// The bit of a tag that keeps frees out of the caches. It is set if the page is sparse or of
/// long-lived objects, if threads wait for slots, or if the slab is closed.
pub(super) const TAG_MARK: u32 = 1 << 31;
/// The bit of the tags of a slab whose pages end within a granule. The rest of that granule may
/// belong to anyone: malloc, for a page from [`Malloc`](crate::Malloc).
const TAG_MIXED: u32 = 1;
/// All slab numbers are below this.
pub(super) const SLAB_NUMBERS: u32 = TAG_MARK / TAG_STEP;

const _: () = assert!((TAG_STEP - TAG_MIXED) as usize > MAX_CACHED);

/// The tag of a slab's pages, without a mark. `mixed` says that the slab's source gives no whole
/// granules.
pub(super) const fn tag_of_slab(number: u32, mixed: bool) -> u32 {
    number * TAG_STEP + if mixed { TAG_MIXED } else { 0 }
}

/// The slab number in a tag. For a marked tag, the result is above any number in use.
#[inline(always)]
pub(super) const fn slab_number(tag: u32) -> u32 {
    tag / TAG_STEP
}

/// The number by which a free looks up its thread's cache, if the address may be any. If the tag is
/// marked, or the page ends within its granule, the result is above any number in use.
#[inline(always)]
pub(super) const fn slab_number_if_whole(tag: u32) -> u32 {
    // `TAG_MIXED` becomes a high bit of the number.
    tag.rotate_right(TAG_STEP.ilog2())
}
