//! The process-wide map from an address to the segment that holds it.
//!
//! A segment is an aligned range, a multiple of 64 KiB, that one allocator registered. Looking an address up
//! takes two loads, no lock and no read of the segment itself, so that a foreign pointer can be asked about
//! safely. No range of addresses is reserved ahead (that fails under `ulimit -v`): leaves are mapped as
//! segments appear, 512 KiB of addresses for each 4 GiB of address space in use, of which only the touched
//! pages have memory.
//!
//! # Invariants
//!
//! 1. `root[i]` is null, or a leaf that stays mapped for ever.
//! 2. An entry is zero, or the owner that registered the granule and has not unregistered it.
//! 3. A granule has one owner at a time: whoever registers it holds the memory of the whole granule.
//!
//! An answer is certain for an address whose memory the caller keeps alive, and a snapshot for any other.

use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::layout::SEGMENT_GRANULE;
use super::os;
use crate::error::AllocError;

const LEAF_BITS: u32 = 16;
const LEAF_ENTRIES: usize = 1 << LEAF_BITS;
const GRANULE_BITS: u32 = SEGMENT_GRANULE.ilog2();
/// User addresses that a mapping without an address hint gets: 48 bits on every supported platform.
const ADDRESS_BITS: u32 = 48;
const ROOT_ENTRIES: usize = 1 << (ADDRESS_BITS - GRANULE_BITS - LEAF_BITS);

type Leaf = [AtomicUsize; LEAF_ENTRIES];

static ROOT: [AtomicPtr<Leaf>; ROOT_ENTRIES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; ROOT_ENTRIES];

fn leaf_of(granule: usize) -> Option<&'static Leaf> {
    // Acquire pairs with the Release in `leaf_or_new`: the leaf is mapped and zero.
    let leaf = ROOT.get(granule >> LEAF_BITS)?.load(Ordering::Acquire);
    // SAFETY: null, or a leaf that stays mapped (invariant 1) and is only ever used through atomics.
    unsafe { leaf.as_ref() }
}

fn leaf_or_new(granule: usize) -> Result<&'static Leaf, AllocError> {
    if let Some(leaf) = leaf_of(granule) {
        return Ok(leaf);
    }
    let size = size_of::<Leaf>();
    let fresh = os::map(size, 1)?;
    let slot = &ROOT[granule >> LEAF_BITS];
    // Release pairs with the Acquire in `leaf_of`; Acquire on failure, for the other thread's leaf.
    match slot.compare_exchange(
        ptr::null_mut(),
        fresh.as_ptr().cast(),
        Ordering::Release,
        Ordering::Acquire,
    ) {
        // SAFETY: mapped just now, zeroed, which is a valid leaf, and never unmapped.
        Ok(_) => Ok(unsafe { fresh.cast::<Leaf>().as_ref() }),
        Err(theirs) => {
            // SAFETY: `fresh` was published to nobody. `theirs` is not null, so it is a leaf (1).
            unsafe {
                let _ = os::unmap(fresh, size);
                Ok(&*theirs)
            }
        }
    }
}

/// The number of granules of a range, which must be made of whole ones.
fn granules(start: NonNull<u8>, len: usize) -> core::ops::Range<usize> {
    let first = start.addr().get() >> GRANULE_BITS;
    debug_assert!(start.addr().get() % SEGMENT_GRANULE == 0 && len % SEGMENT_GRANULE == 0);
    debug_assert!((start.addr().get() + len) >> ADDRESS_BITS == 0);
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
        // Release pairs with the Acquire in `owner_of`: what the owner wrote before it registered.
        let before = leaf[granule & (LEAF_ENTRIES - 1)].swap(owner.get(), Ordering::Release);
        debug_assert_eq!(before, 0, "a granule has one owner");
    }
    Ok(())
}

/// Unregisters a segment. Before its memory goes: afterwards another owner may get the same addresses.
pub(crate) fn unregister(start: NonNull<u8>, len: usize) {
    for granule in granules(start, len) {
        if let Some(leaf) = leaf_of(granule) {
            leaf[granule & (LEAF_ENTRIES - 1)].store(0, Ordering::Release);
        }
    }
}

/// The owner of the segment that holds `address`, if one does.
pub(crate) fn owner_of(address: usize) -> Option<NonZeroUsize> {
    let granule = address >> GRANULE_BITS;
    let leaf = leaf_of(granule)?;
    // Acquire pairs with the Release in `register`.
    NonZeroUsize::new(leaf[granule & (LEAF_ENTRIES - 1)].load(Ordering::Acquire))
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
