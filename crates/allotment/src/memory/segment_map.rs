//! The process-wide map from an address to the segment that holds it.
//!
//! A segment is an aligned range, a multiple of 64 KiB, that one allocator registered. A lookup
//! takes two loads, no lock, and no read of the segment itself, so a foreign pointer can be looked
//! up safely. No range of addresses is reserved ahead of time (that fails under `ulimit -v`).
//! Leaves are mapped as segments appear: 1.75 MiB of addresses for each 4 GiB of address space in
//! use. Only the leaf pages that were accessed have memory.
//!
//! A granule (64 KiB) has five entries. Each is in a separate array, so that a lookup brings the
//! entries of neighbouring granules into the cache:
//!
//! | entry | content |
//! |---|---|
//! | *tag* | the word that a slab's fast path uses |
//! | *page* | the descriptor of a slab's page |
//! | *bits* | the bits of that page |
//! | *owner* | the statistics record of the allocator, which may be of any kind |
//! | *extent* | how much of the granule the page has: units of 4 KiB, 0 for all of it |
//!
//! # Invariants
//!
//! 1. `ROOT[i]` is null, or [`EMPTY_LEAF`] (the leaf without entries), or a leaf that is never
//!    unmapped.
//! 2. An entry is zero, or what an allocator registered that holds the granule and has not
//!    unregistered it. The owner entry of a granule that no allocator holds may also be a mark
//!    of `refused_runs.rs`.
//! 3. A granule is registered by one allocator at a time: the allocator that holds the memory at
//!    the granule's start.
//! 4. An extent is stored before its granule's tag. It stays when the tag is removed.
//! 5. A tag is stored only by a thread that prevents the granule from being unregistered meanwhile.
//!    Any thread may set the tag's highest bit, which is a hint.
//!
//! The answer for an address is certain if the caller keeps its memory alive. Otherwise it is a
//! snapshot.

use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::layout::SEGMENT_GRANULE;
use super::refused_runs::REFUSED_RUN;
use super::table_slot::{MappedTable, TableSlot};
use crate::error::{AllocError, ErrorKind};

/// Miri visits a whole leaf for each reference to it, and gives out low addresses. So under Miri
/// leaves are small and few.
const LEAF_BITS: u32 = if cfg!(miri) { 10 } else { 16 };
const LEAF_ENTRIES: usize = 1 << LEAF_BITS;
const GRANULE_BITS: u32 = SEGMENT_GRANULE.ilog2();
/// The unit of an extent, in bytes: no page of memory is smaller.
const EXTENT_UNIT: usize = 4096;
/// The bits of a user address from a mapping without an address hint: 48 on every supported
/// platform.
const ADDRESS_BITS: u32 = if cfg!(miri) { 36 } else { 48 };
const ROOT_ENTRIES: usize = 1 << (ADDRESS_BITS - GRANULE_BITS - LEAF_BITS);

/// The entries for 4 GiB of addresses. All-zero bytes are a valid leaf.
#[repr(C)]
struct SegmentLeaf {
    tag: [AtomicU32; LEAF_ENTRIES],
    page: [AtomicPtr<()>; LEAF_ENTRIES],
    bits: [AtomicPtr<AtomicU64>; LEAF_ENTRIES],
    owner: [AtomicUsize; LEAF_ENTRIES],
    extent: [AtomicU8; LEAF_ENTRIES],
}

// Inline C code also looks up tags (allotment.h): bits 32 and up of an address select its leaf,
// bits 16 to 31 its entry.
const _: () = {
    assert!(GRANULE_BITS == 16 && (LEAF_BITS == 16 || cfg!(miri)));
    assert!(core::mem::offset_of!(SegmentLeaf, tag) == 0 && size_of::<AtomicU32>() == 4);
};

static ROOT: [TableSlot<SegmentLeaf>; ROOT_ENTRIES] = [const { TableSlot::empty() }; ROOT_ENTRIES];

/// The leaf without entries. It is never written.
static EMPTY_LEAF: SegmentLeaf = SegmentLeaf {
    tag: [const { AtomicU32::new(0) }; LEAF_ENTRIES],
    page: [const { AtomicPtr::new(ptr::null_mut()) }; LEAF_ENTRIES],
    bits: [const { AtomicPtr::new(ptr::null_mut()) }; LEAF_ENTRIES],
    owner: [const { AtomicUsize::new(0) }; LEAF_ENTRIES],
    extent: [const { AtomicU8::new(0) }; LEAF_ENTRIES],
};

/// The placeholder of the root's slots.
const EMPTY: *mut SegmentLeaf = (&raw const EMPTY_LEAF).cast_mut();

/// Ensures that [`tag_of_live`] can be called for this address.
pub(crate) fn allow_lookup(address: usize) -> Result<(), AllocError> {
    leaf_or_new(address >> GRANULE_BITS).map(|_| ())
}

/// Ensures that [`tag_of_live`] can be called for any user address.
pub(crate) fn allow_all_lookups() {
    ROOT.iter().for_each(|slot| slot.set_placeholder(EMPTY));
}

/// The map's root, for inline C code. That code looks addresses up as [`tag_of_live`] does, and
/// also null.
pub(crate) fn root() -> *const () {
    ROOT[0].set_placeholder(EMPTY);
    (&raw const ROOT).cast()
}

fn leaf_of(granule: usize) -> Option<&'static SegmentLeaf> {
    let leaf = ROOT.get(granule >> LEAF_BITS)?.get();
    // SAFETY: null, or a leaf that is never unmapped (invariant 1) and is only used through
    // atomics.
    unsafe { leaf.as_ref() }
}

/// The owner entry of a granule, if the map has one.
pub(super) fn owner_entry(granule: usize) -> Option<&'static AtomicUsize> {
    let leaf = leaf_of(granule).filter(|leaf| !ptr::eq(*leaf, &EMPTY_LEAF))?;
    Some(&leaf.owner[granule & (LEAF_ENTRIES - 1)])
}

fn leaf_or_new(granule: usize) -> Result<&'static SegmentLeaf, AllocError> {
    // A user's own source may have addresses that no mapping without a hint gets.
    let beyond = AllocError::new(ErrorKind::LimitReached, granule);
    let slot = ROOT.get(granule >> LEAF_BITS).ok_or(beyond)?;
    let leaf = slot.get_or_replace(EMPTY, || MappedTable::new(1))?;
    // SAFETY: a leaf, all zero when it was mapped, which is never unmapped (invariant 1).
    Ok(unsafe { leaf.as_ref() })
}

/// The indexes of the granules of a range, which must consist of whole granules.
fn granules(start: NonNull<u8>, len: usize) -> core::ops::Range<usize> {
    let first = start.addr().get() >> GRANULE_BITS;
    debug_assert!(start.addr().get() % SEGMENT_GRANULE == 0 && len % SEGMENT_GRANULE == 0);
    first..first + (len >> GRANULE_BITS)
}

/// Registers a segment under its owner: an address, or any other word that is not zero.
///
/// # Errors
/// If a leaf can't be mapped. In that case nothing is registered.
pub(crate) fn register(
    start: NonNull<u8>,
    len: usize,
    owner: NonZeroUsize,
) -> Result<(), AllocError> {
    for granule in granules(start, len) {
        leaf_or_new(granule)?;
    }
    for granule in granules(start, len) {
        let leaf = leaf_of(granule).expect("mapped above");
        // Release pairs with the Acquire in `owner_of`, for what the owner wrote before it
        // registered. Acquire pairs with the Release in `unregister`: the former owner's last use
        // happens before. If the addresses went through the kernel, that is so anyway, but a tool
        // that checks threads can't know it.
        let before = leaf.owner[granule & (LEAF_ENTRIES - 1)].swap(owner.get(), Ordering::AcqRel);
        debug_assert_eq!(before, 0, "a granule has one owner");
    }
    Ok(())
}

/// Unregisters a segment. Must be called before its memory goes back: afterwards another owner may
/// get the same addresses.
pub(crate) fn unregister(start: NonNull<u8>, len: usize) {
    for granule in granules(start, len) {
        if let Some(leaf) = leaf_of(granule) {
            leaf.owner[granule & (LEAF_ENTRIES - 1)].store(0, Ordering::Release);
        }
    }
}

/// Enters a slab's page, its bits and its tag for granules that are registered. The page has
/// `bytes` of them, a multiple of 4 KiB; the rest of the last granule may be others'.
pub(crate) fn enter_page(
    start: NonNull<u8>,
    bytes: usize,
    page: NonNull<()>,
    bits: NonNull<AtomicU64>,
    tag: u32,
) {
    debug_assert!(bytes % EXTENT_UNIT == 0);
    let granules = granules(start, bytes.next_multiple_of(SEGMENT_GRANULE));
    let last = granules.end - 1;
    for granule in granules {
        let leaf = leaf_of(granule).expect("registered, so mapped");
        let entry = granule & (LEAF_ENTRIES - 1);
        let used = if granule == last { bytes % SEGMENT_GRANULE } else { 0 };
        let extent = (used / EXTENT_UNIT) as u8;
        // Relaxed: ordered by the Release store of the tag, which pairs with the Acquire in
        // `tag_of_page_at`.
        if leaf.extent[entry].load(Ordering::Relaxed) != extent {
            leaf.extent[entry].store(extent, Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `page_of`. For a slot, the way the slot itself reached
        // the other thread orders the rest.
        leaf.page[entry].store(page.as_ptr(), Ordering::Release);
        leaf.bits[entry].store(bits.as_ptr(), Ordering::Release);
        leaf.tag[entry].store(tag, Ordering::Release);
    }
}

/// Removes the page, the bits and the tag of these granules.
pub(crate) fn remove_page(start: NonNull<u8>, len: usize) {
    for granule in granules(start, len) {
        if let Some(leaf) = leaf_of(granule) {
            let entry = granule & (LEAF_ENTRIES - 1);
            leaf.tag[entry].store(0, Ordering::Release);
            leaf.page[entry].store(ptr::null_mut(), Ordering::Release);
            leaf.bits[entry].store(ptr::null_mut(), Ordering::Release);
        }
    }
}

/// Sets the tag of these granules.
pub(crate) fn set_tag(start: NonNull<u8>, len: usize, tag: u32) {
    for granule in granules(start, len) {
        if let Some(leaf) = leaf_of(granule) {
            // SeqCst for the sake of `mark_tag`. To readers, a tag is a hint; its slab's number
            // does not change.
            leaf.tag[granule & (LEAF_ENTRIES - 1)].store(tag, Ordering::SeqCst);
        }
    }
}

/// Sets the highest bit of these granules' tags, even if they have another owner by now.
pub(crate) fn mark_tag(start: NonNull<u8>, len: usize, mark: u32) {
    debug_assert_eq!(mark, 1 << 31);
    for granule in granules(start, len) {
        if let Some(leaf) = leaf_of(granule) {
            // SeqCst: a thread that stores a tag afterwards loads the reason for the mark (store,
            // then load).
            leaf.tag[granule & (LEAF_ENTRIES - 1)].fetch_or(mark, Ordering::SeqCst);
        }
    }
}

/// The leaf of an address in a registered segment.
///
/// # Safety
/// The caller keeps the memory at this address, and with it its segment's registration, alive.
#[inline(always)]
unsafe fn leaf_of_live(address: usize) -> &'static SegmentLeaf {
    // SAFETY: user addresses have `ADDRESS_BITS` bits, and the leaf of a registered granule is
    // never unmapped (invariants 1 and 2). The thread that gave the memory to the caller saw the
    // leaf before.
    unsafe { &*ROOT.get_unchecked(address >> (GRANULE_BITS + LEAF_BITS)).get_installed() }
}

/// The entry of an address in its leaf: bits 16 to 31, which a shift of the low half gives.
#[inline(always)]
fn entry_of_live(address: usize) -> usize {
    let entry = (address as u32 >> GRANULE_BITS) as usize;
    if cfg!(miri) { entry & (LEAF_ENTRIES - 1) } else { entry }
}

/// The tag of the granule of a slot.
///
/// # Safety
/// The caller keeps the memory at this address alive, and a slab registered it.
#[inline(always)]
pub(crate) unsafe fn tag_of_live(address: usize) -> u32 {
    let entry = entry_of_live(address);
    // SAFETY: guaranteed by the caller. The entry is 16 bits of the address.
    unsafe { leaf_of_live(address).tag.get_unchecked(entry).load(Ordering::Relaxed) }
}

/// The tag of the granule of any address, or 0. Never accesses the address itself.
#[inline(always)]
pub(crate) fn tag_of(address: usize) -> u32 {
    let granule = address >> GRANULE_BITS;
    let Some(root) = ROOT.get(granule >> LEAF_BITS) else { return 0 };
    // SAFETY: null, or a leaf that is never unmapped (invariant 1).
    match unsafe { root.get().as_ref() } {
        Some(leaf) => leaf.tag[granule & (LEAF_ENTRIES - 1)].load(Ordering::Relaxed),
        None => 0,
    }
}

/// The tag of the page that holds this address. It is 0 if there is none, also if the granule's page
/// ends before the address.
///
/// The answer is certain while the caller keeps the memory at the address alive, whoever it belongs
/// to. If it is a slot, the slot keeps its page. If it is not, no page that shares the granule with
/// it reaches so far.
pub(crate) fn tag_of_page_at(address: usize) -> u32 {
    let granule = address >> GRANULE_BITS;
    let Some(leaf) = leaf_of(granule) else { return 0 };
    let entry = granule & (LEAF_ENTRIES - 1);
    // Acquire pairs with the Release in `enter_page`: the extent read below is that of this tag's
    // page, or of a later one.
    let tag = leaf.tag[entry].load(Ordering::Acquire);
    let extent = usize::from(leaf.extent[entry].load(Ordering::Relaxed)) * EXTENT_UNIT;
    if extent == 0 || address % SEGMENT_GRANULE < extent { tag } else { 0 }
}

/// The page of the granule of a slot, and the page's bits.
///
/// # Safety
/// As for [`tag_of_live`].
#[inline(always)]
pub(crate) unsafe fn page_of_live(address: usize) -> (*mut (), *mut AtomicU64) {
    let entry = entry_of_live(address);
    // SAFETY: as above.
    unsafe {
        let leaf = leaf_of_live(address);
        let page = leaf.page.get_unchecked(entry).load(Ordering::Relaxed);
        (page, leaf.bits.get_unchecked(entry).load(Ordering::Relaxed))
    }
}

/// The page and the tag of any address, if a slab entered them.
pub(crate) fn page_of(address: usize) -> Option<(NonNull<()>, u32)> {
    let granule = address >> GRANULE_BITS;
    let leaf = leaf_of(granule)?;
    let entry = granule & (LEAF_ENTRIES - 1);
    // Acquire pairs with the Release in `enter_page`.
    let page = NonNull::new(leaf.page[entry].load(Ordering::Acquire))?;
    Some((page, leaf.tag[entry].load(Ordering::Acquire)))
}

/// The owner of the segment that holds `address`, if there is one.
pub(crate) fn owner_of(address: usize) -> Option<NonZeroUsize> {
    let granule = address >> GRANULE_BITS;
    let leaf = leaf_of(granule)?;
    // Acquire pairs with the Release in `register`.
    let owner = leaf.owner[granule & (LEAF_ENTRIES - 1)].load(Ordering::Acquire);
    NonZeroUsize::new(owner).filter(|owner| owner.get() & REFUSED_RUN == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::os;

    #[test]
    fn an_address_is_found_from_its_segments_first_byte_to_its_last() {
        let len = 3 * SEGMENT_GRANULE;
        let start = os::map(len, SEGMENT_GRANULE).unwrap();
        let owner = NonZeroUsize::new(0x1234).unwrap();
        let first = start.addr().get();
        assert_eq!(owner_of(first), None);
        register(start, len, owner).unwrap();
        for address in [first, first + 1, first + SEGMENT_GRANULE, first + len - 1] {
            assert_eq!(owner_of(address), Some(owner));
        }
        assert_ne!(owner_of(first - 1), Some(owner));
        assert_ne!(owner_of(first + len), Some(owner));
        unregister(start, len);
        assert_eq!(owner_of(first), None);
        // SAFETY: our own mapping, unmapped once.
        unsafe { os::unmap(start, len).unwrap() };
    }

    #[test]
    fn an_address_that_the_map_has_no_place_for_is_an_error() {
        let beyond = NonNull::new(ptr::without_provenance_mut(1 << 50)).unwrap();
        let error = register(beyond, SEGMENT_GRANULE, NonZeroUsize::MIN).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitReached);
    }

    #[test]
    fn any_word_can_be_looked_up() {
        for address in [0, 1, 0x1000, 1 << 47, 1 << 48, 1 << 60, usize::MAX] {
            assert_eq!(owner_of(address), None);
        }
    }

    #[test]
    fn threads_that_register_neighbouring_segments_find_their_own() {
        std::thread::scope(|scope| {
            for id in 1..=8usize {
                scope.spawn(move || {
                    for _ in 0..50 {
                        let start = os::map(SEGMENT_GRANULE, SEGMENT_GRANULE).unwrap();
                        let owner = NonZeroUsize::new(id).unwrap();
                        register(start, SEGMENT_GRANULE, owner).unwrap();
                        assert_eq!(owner_of(start.addr().get() + 17), Some(owner));
                        unregister(start, SEGMENT_GRANULE);
                        // SAFETY: our own mapping, unmapped once.
                        unsafe { os::unmap(start, SEGMENT_GRANULE).unwrap() };
                    }
                });
            }
        });
    }
}
