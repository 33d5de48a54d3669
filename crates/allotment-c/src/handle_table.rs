//! The handles that hardened mode checks pointers against, in a table of their addresses.
//!
//! Lock-free, so that a child created by fork cannot find it locked.
//!
//! # Invariants
//!
//! 1. A slot is [`EMPTY`], [`REMOVED`], or an address with its kind in the four low bits, which are
//!    zero in the address. A slot that was used never becomes empty again.
//! 2. An address is in the table at most once. The thread that allocates a handle inserts its
//!    address, and the address is removed before the handle's memory is freed.
//! 3. A block of the table is never freed.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::ptr;

use crate::handle_kind::HandleKind;

const EMPTY: usize = 0;
const REMOVED: usize = 0xF;
const KIND_BITS: usize = 0xF;

/// Slots of the first block. Each further block has twice as many.
const FIRST_BLOCK_SLOTS: usize = 256;
const MAX_BLOCKS: usize = 32;
/// Slots of a block that an address may be in.
const PROBES: usize = 16;

static BLOCKS: [AtomicPtr<AtomicUsize>; MAX_BLOCKS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_BLOCKS];

fn block(index: usize) -> Option<&'static [AtomicUsize]> {
    let first = BLOCKS.get(index)?.load(Ordering::Acquire);
    // SAFETY: null, or a block of `FIRST_BLOCK_SLOTS << index` slots that is never freed (invariant
    // 3).
    (!first.is_null())
        .then(|| unsafe { core::slice::from_raw_parts(first, FIRST_BLOCK_SLOTS << index) })
}

fn block_or_new(index: usize) -> Option<&'static [AtomicUsize]> {
    if let Some(block) = block(index) {
        return Some(block);
    }
    let slot = BLOCKS.get(index)?;
    let mut slots = Vec::new();
    slots.try_reserve_exact(FIRST_BLOCK_SLOTS << index).ok()?;
    slots.resize_with(FIRST_BLOCK_SLOTS << index, || AtomicUsize::new(EMPTY));
    let fresh = Box::leak(slots.into_boxed_slice()).as_mut_ptr();
    let stored = slot.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
    if stored.is_err() {
        // SAFETY: leaked above with this length, and not published.
        drop(unsafe {
            Box::from_raw(ptr::slice_from_raw_parts_mut(fresh, FIRST_BLOCK_SLOTS << index))
        });
    }
    block(index)
}

/// The slots of a block that an address may be in.
fn probes(block: &[AtomicUsize], address: usize) -> impl Iterator<Item = &AtomicUsize> {
    let hash = (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    (0..PROBES).map(move |step| &block[(hash + step) % block.len()])
}

/// Inserts an address. Returns false if there is no memory for it.
pub(crate) fn insert(address: usize, kind: HandleKind) -> bool {
    let entry = address | kind as usize;
    (0..MAX_BLOCKS).map_while(block_or_new).any(|block| {
        probes(block, address).any(|slot| {
            let before = slot.load(Ordering::Relaxed);
            (before == EMPTY || before == REMOVED)
                && slot
                    .compare_exchange(before, entry, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
        })
    })
}

fn find(address: usize) -> Option<&'static AtomicUsize> {
    (0..MAX_BLOCKS).map_while(block).find_map(|block| {
        probes(block, address).find(|slot| slot.load(Ordering::Acquire) & !KIND_BITS == address)
    })
}

/// The kind with which an address was inserted, as a number.
pub(crate) fn kind_at(address: usize) -> Option<usize> {
    if address & KIND_BITS != 0 || address == 0 {
        return None;
    }
    find(address).map(|slot| slot.load(Ordering::Acquire) & KIND_BITS)
}

/// Removes an address, if it is in the table.
#[cold]
#[inline(never)]
pub(crate) fn remove(address: usize) {
    if let Some(slot) = find(address) {
        slot.store(REMOVED, Ordering::Release);
    }
}

/// Whether handles are looked up: [`UNDETERMINED`], [`OFF`] or [`ON`].
static LOOKUP: AtomicU8 = AtomicU8::new(UNDETERMINED);
const UNDETERMINED: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// Whether there are handles that are not in the table.
static UNLISTED_EXIST: AtomicBool = AtomicBool::new(false);

/// Whether every allocator is hardened, and handles are looked up before they are followed.
#[inline]
pub(crate) fn all_hardened() -> bool {
    match LOOKUP.load(Ordering::Relaxed) {
        UNDETERMINED => read_environment(),
        lookup => lookup == ON,
    }
}

/// Whether it is certain that handles are not looked up. For fast paths; the slow path handles
/// everything else.
#[inline(always)]
pub(crate) fn lookup_is_off() -> bool {
    LOOKUP.load(Ordering::Relaxed) == OFF
}

#[cold]
fn read_environment() -> bool {
    let set = std::env::var_os("ALLOTMENT_HARDENED")
        .is_some_and(|value| !value.is_empty() && value != "0");
    let lookup = if set { ON } else { OFF };
    // If `allot_set_hardened` runs at the same time, its value counts.
    let before =
        LOOKUP.compare_exchange(UNDETERMINED, lookup, Ordering::Relaxed, Ordering::Relaxed);
    before.map_or_else(|stored| stored == ON, |_| set)
}

/// Notes that a handle exists which is not in the table.
#[inline]
pub(crate) fn note_unlisted() {
    if !UNLISTED_EXIST.load(Ordering::Relaxed) {
        UNLISTED_EXIST.store(true, Ordering::Relaxed);
    }
}

/// Whether a pointer may be a handle although it is not in the table.
pub(crate) fn unlisted_exist() -> bool {
    UNLISTED_EXIST.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_set_hardened(hardened: bool) {
    LOOKUP.store(if hardened { ON } else { OFF }, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inserted_address_is_found_until_it_is_removed() {
        // Addresses that no allocation of this process has.
        let address = |index: usize| (1 << 60) + index * 16;
        for index in 0..10_000 {
            assert!(insert(address(index), HandleKind::Arena));
        }
        for index in (0..10_000).step_by(3) {
            remove(address(index));
        }
        for index in 0..10_000 {
            let expected = (index % 3 != 0).then_some(HandleKind::Arena as usize);
            assert_eq!(kind_at(address(index)), expected, "{index}");
        }
        assert_eq!(kind_at(address(1) + 8), None);
        assert_eq!(kind_at(0), None);
    }
}
