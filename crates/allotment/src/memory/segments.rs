//! The process-wide map from an address to the segment that holds it.
//!
//! A segment is an aligned range, a multiple of 64 KiB, that one allocator registered. Looking an address up
//! takes two loads, no lock and no read of the segment itself, so that a foreign pointer can be asked about
//! safely. No range of addresses is reserved ahead (that fails under `ulimit -v`): leaves are mapped as
//! segments appear, 1.75 MiB of addresses for each 4 GiB of address space in use, of which only the touched
//! pages have memory.
//!
//! A granule has four entries, each in an array of its own so that a look at one brings its neighbours into
//! the cache: its *tag*, the word of a slab's fast path; its *page*, a slab's descriptor, and the *bits* of that;
//! and its *owner*, the statistics record of whatever allocator it is.
//!
//! # Invariants
//!
//! 1. `root[i]` is null, or [`NOTHING`], the leaf without entries, or a leaf that stays mapped for ever.
//! 2. An entry is zero, or what the allocator registered that holds the granule and has not unregistered it.
//! 3. A granule is registered by one allocator at a time: whoever registers it holds the memory at its start.
//! 4. A tag is stored only by a thread that keeps the granule from being unregistered meanwhile; its highest bit,
//!    a hint, may be set by any thread.
//!
//! An answer is certain for an address whose memory the caller keeps alive, and a snapshot for any other.

use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::layout::SEGMENT_GRANULE;
use super::os;
use crate::error::{AllocError, ErrorKind};

const LEAF_BITS: u32 = 16;
const LEAF_ENTRIES: usize = 1 << LEAF_BITS;
const GRANULE_BITS: u32 = SEGMENT_GRANULE.ilog2();
/// User addresses that a mapping without an address hint gets: 48 bits on every supported platform.
const ADDRESS_BITS: u32 = 48;
const ROOT_ENTRIES: usize = 1 << (ADDRESS_BITS - GRANULE_BITS - LEAF_BITS);

/// The entries of 4 GiB of addresses. Zero bytes are a valid one.
#[repr(C)]
struct Leaf {
    tag: [AtomicU32; LEAF_ENTRIES],
    page: [AtomicPtr<()>; LEAF_ENTRIES],
    bits: [AtomicPtr<AtomicU64>; LEAF_ENTRIES],
    owner: [AtomicUsize; LEAF_ENTRIES],
}

// Inline C code asks for tags, too (allotment.h): the upper half of an address is its leaf, the next quarter its entry.
const _: () = {
    assert!(GRANULE_BITS == 16 && LEAF_BITS == 16);
    assert!(core::mem::offset_of!(Leaf, tag) == 0 && size_of::<AtomicU32>() == 4);
};

static ROOT: [AtomicPtr<Leaf>; ROOT_ENTRIES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; ROOT_ENTRIES];

/// The leaf without entries: never written.
static NOTHING: Leaf = Leaf {
    tag: [const { AtomicU32::new(0) }; LEAF_ENTRIES],
    page: [const { AtomicPtr::new(ptr::null_mut()) }; LEAF_ENTRIES],
    bits: [const { AtomicPtr::new(ptr::null_mut()) }; LEAF_ENTRIES],
    owner: [const { AtomicUsize::new(0) }; LEAF_ENTRIES],
};

/// Sees to it that [`tag_of_live`] may be asked about this address.
pub(crate) fn make_askable(address: usize) -> Result<(), AllocError> {
    leaf_or_new(address >> GRANULE_BITS).map(|_| ())
}

/// Sees to it that [`tag_of_live`] may be asked about any user address.
pub(crate) fn make_all_askable() {
    let nothing = (&raw const NOTHING).cast_mut();
    for root in &ROOT {
        if root.load(Ordering::Relaxed).is_null() {
            let _ = root.compare_exchange(
                ptr::null_mut(),
                nothing,
                Ordering::Release,
                Ordering::Relaxed,
            );
        }
    }
}

/// The map's root, for inline C code, which asks as [`tag_of_live`] does, or about null.
pub(crate) fn root() -> *const () {
    let nothing = (&raw const NOTHING).cast_mut();
    let _ =
        ROOT[0].compare_exchange(ptr::null_mut(), nothing, Ordering::Release, Ordering::Relaxed);
    (&raw const ROOT).cast()
}

fn leaf_of(granule: usize) -> Option<&'static Leaf> {
    // Acquire pairs with the Release in `leaf_or_new`: the leaf is mapped and zero.
    let leaf = ROOT.get(granule >> LEAF_BITS)?.load(Ordering::Acquire);
    // SAFETY: null, or a leaf that stays mapped (invariant 1) and is only ever used through atomics.
    unsafe { leaf.as_ref() }
}

fn leaf_or_new(granule: usize) -> Result<&'static Leaf, AllocError> {
    // A source of a user's own may know addresses that no mapping gets unasked.
    let beyond = AllocError::new(ErrorKind::SizeOverflow, granule);
    let slot = ROOT.get(granule >> LEAF_BITS).ok_or(beyond)?;
    let before = slot.load(Ordering::Acquire);
    if !before.is_null() && !ptr::eq(before, &NOTHING) {
        // SAFETY: a leaf that stays mapped (invariant 1).
        return Ok(unsafe { &*before });
    }
    let size = size_of::<Leaf>();
    let fresh = os::map(size, 1)?;
    // Release pairs with the Acquire in `leaf_of`; Acquire on failure, for the other thread's leaf.
    match slot.compare_exchange(before, fresh.as_ptr().cast(), Ordering::Release, Ordering::Acquire)
    {
        // SAFETY: mapped just now, zeroed, which is a valid leaf, and never unmapped.
        Ok(_) => Ok(unsafe { fresh.cast::<Leaf>().as_ref() }),
        Err(_) => {
            // SAFETY: `fresh` was published to nobody.
            let _ = unsafe { os::unmap(fresh, size) };
            // Another thread's leaf is there, or the one without entries, which is replaced next time.
            leaf_or_new(granule)
        }
    }
}

/// The number of granules of a range, which must be made of whole ones.
fn granules(start: NonNull<u8>, len: usize) -> core::ops::Range<usize> {
    let first = start.addr().get() >> GRANULE_BITS;
    debug_assert!(start.addr().get() % SEGMENT_GRANULE == 0 && len % SEGMENT_GRANULE == 0);
    first..first + (len >> GRANULE_BITS)
}

/// Registers a segment under its owner, an address or any other word that is not zero.
///
/// # Errors
/// When a leaf can't be mapped; nothing is registered then.
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
        // Release pairs with the Acquire in `owner_of`: what the owner wrote before it registered. Acquire pairs with the
        // Release in `unregister`: the former owner's last use comes before. Where the addresses went by way of the
        // kernel that is so anyway, but a tool that watches threads can't know.
        let before = leaf.owner[granule & (LEAF_ENTRIES - 1)].swap(owner.get(), Ordering::AcqRel);
        debug_assert_eq!(before, 0, "a granule has one owner");
    }
    Ok(())
}

/// Unregisters a segment. Before its memory goes: afterwards another owner may get the same addresses.
pub(crate) fn unregister(start: NonNull<u8>, len: usize) {
    for granule in granules(start, len) {
        if let Some(leaf) = leaf_of(granule) {
            leaf.owner[granule & (LEAF_ENTRIES - 1)].store(0, Ordering::Release);
        }
    }
}

/// Notes a slab's page over granules that are registered, its bits, and their tag.
pub(crate) fn note_page(
    start: NonNull<u8>,
    len: usize,
    page: NonNull<()>,
    bits: NonNull<AtomicU64>,
    tag: u32,
) {
    for granule in granules(start, len) {
        let leaf = leaf_of(granule).expect("registered, so mapped");
        let entry = granule & (LEAF_ENTRIES - 1);
        // Release pairs with the Acquire in `page_of`; a slot's own way to a thread orders the rest.
        leaf.page[entry].store(page.as_ptr(), Ordering::Release);
        leaf.bits[entry].store(bits.as_ptr(), Ordering::Release);
        leaf.tag[entry].store(tag, Ordering::Release);
    }
}

/// Forgets the page and the tag of these granules.
pub(crate) fn forget_page(start: NonNull<u8>, len: usize) {
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
            // SeqCst for `mark_tag`'s sake; to readers a tag is a hint, and its slab's number does not change.
            leaf.tag[granule & (LEAF_ENTRIES - 1)].store(tag, Ordering::SeqCst);
        }
    }
}

/// Sets the highest bit of these granules' tags, whosever they are by now.
pub(crate) fn mark_tag(start: NonNull<u8>, len: usize, mark: u32) {
    debug_assert_eq!(mark, 1 << 31);
    for granule in granules(start, len) {
        if let Some(leaf) = leaf_of(granule) {
            // SeqCst: who stores a tag looks after that for the reason of the mark (store, then load).
            leaf.tag[granule & (LEAF_ENTRIES - 1)].fetch_or(mark, Ordering::SeqCst);
        }
    }
}

/// The leaf of an address in a registered segment.
///
/// # Safety
/// The caller keeps the memory at this address, and with it its segment's registration, alive.
#[inline(always)]
unsafe fn leaf_of_live(address: usize) -> &'static Leaf {
    // SAFETY: user addresses have `ADDRESS_BITS` bits, and the leaf of a registered granule is mapped for ever
    // (invariants 1 and 2). Relaxed: whoever gave the caller the memory saw the leaf before.
    unsafe {
        let leaf =
            ROOT.get_unchecked(address >> (GRANULE_BITS + LEAF_BITS)).load(Ordering::Relaxed);
        &*leaf
    }
}

/// The tag of a slot's granule.
///
/// # Safety
/// The caller keeps the memory at this address alive, and a slab registered it.
#[inline(always)]
pub(crate) unsafe fn tag_of_live(address: usize) -> u32 {
    let entry = (address as u32 >> GRANULE_BITS) as usize;
    // SAFETY: passed on to the caller. 16 bits of the address are the entry.
    unsafe { leaf_of_live(address).tag.get_unchecked(entry).load(Ordering::Relaxed) }
}

/// The tag of an address's granule, or 0. Never touches the address itself.
#[inline(always)]
pub(crate) fn tag_of(address: usize) -> u32 {
    let granule = address >> GRANULE_BITS;
    let Some(root) = ROOT.get(granule >> LEAF_BITS) else { return 0 };
    // SAFETY: null, or a leaf that stays mapped (invariant 1). Acquire pairs with the Release in `leaf_or_new`.
    match unsafe { root.load(Ordering::Acquire).as_ref() } {
        Some(leaf) => leaf.tag[granule & (LEAF_ENTRIES - 1)].load(Ordering::Relaxed),
        None => 0,
    }
}

/// The page of a slot's granule, and the page's bits.
///
/// # Safety
/// As for [`tag_of_live`].
#[inline(always)]
pub(crate) unsafe fn page_of_live(address: usize) -> (*mut (), *mut AtomicU64) {
    let entry = (address as u32 >> GRANULE_BITS) as usize;
    // SAFETY: as above.
    unsafe {
        let leaf = leaf_of_live(address);
        let page = leaf.page.get_unchecked(entry).load(Ordering::Relaxed);
        (page, leaf.bits.get_unchecked(entry).load(Ordering::Relaxed))
    }
}

/// The page and the tag of any address at all, if a slab noted them.
pub(crate) fn page_of(address: usize) -> Option<(NonNull<()>, u32)> {
    let granule = address >> GRANULE_BITS;
    let leaf = leaf_of(granule)?;
    let entry = granule & (LEAF_ENTRIES - 1);
    // Acquire pairs with the Release in `note_page`.
    let page = NonNull::new(leaf.page[entry].load(Ordering::Acquire))?;
    Some((page, leaf.tag[entry].load(Ordering::Acquire)))
}

/// The owner of the segment that holds `address`, if one does.
pub(crate) fn owner_of(address: usize) -> Option<NonZeroUsize> {
    let granule = address >> GRANULE_BITS;
    let leaf = leaf_of(granule)?;
    // Acquire pairs with the Release in `register`.
    NonZeroUsize::new(leaf.owner[granule & (LEAF_ENTRIES - 1)].load(Ordering::Acquire))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn any_word_may_be_asked_about() {
        for address in [0, 1, 0x1000, 1 << 47, 1 << 48, 1 << 60, usize::MAX] {
            assert_eq!(owner_of(address), None);
        }
    }

    #[test]
    fn threads_that_register_neighbours_find_their_own() {
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
