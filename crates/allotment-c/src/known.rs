//! The handles that hardened mode knows: a table of their addresses, and a ring of tombstones,
//! whose memory is not reused yet.
//!
//! Lock-free, so that a child created by fork cannot find it locked.
//!
//! # Invariants
//!
//! 1. A slot is [`EMPTY`], [`GONE`], or an address with its kind in the four low bits, which are
//!    zero in the address. A slot that was used never becomes empty again.
//! 2. An address is in the table at most once. The thread that allocates it puts it in, and it is
//!    taken out before it is freed.
//! 3. A block of the table is never freed.
//! 4. A pointer in the ring refers to a tombstone that only the ring frees.

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::ptr;

use crate::handle::{Handle, Kind};

const EMPTY: usize = 0;
const GONE: usize = 0xF;
const KIND: usize = 0xF;

/// Slots of the first block. Each further block has twice as many.
const FIRST: usize = 256;
const BLOCKS: usize = 32;
/// Slots of a block that an address may be in.
const PROBES: usize = 16;

static TABLE: [AtomicPtr<AtomicUsize>; BLOCKS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; BLOCKS];

/// The number of destroyed handles that are kept, so that their use is detected.
pub(crate) const TOMBSTONES: usize = 4096;

static RING: [AtomicPtr<Handle>; TOMBSTONES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; TOMBSTONES];
static NEXT: AtomicUsize = AtomicUsize::new(0);

fn block(index: usize) -> Option<&'static [AtomicUsize]> {
    let first = TABLE.get(index)?.load(Ordering::Acquire);
    // SAFETY: null, or a block of `FIRST << index` slots that is never freed (invariant 3).
    (!first.is_null()).then(|| unsafe { core::slice::from_raw_parts(first, FIRST << index) })
}

fn block_or_new(index: usize) -> Option<&'static [AtomicUsize]> {
    if let Some(block) = block(index) {
        return Some(block);
    }
    let slot = TABLE.get(index)?;
    let mut slots = Vec::new();
    slots.try_reserve_exact(FIRST << index).ok()?;
    slots.resize_with(FIRST << index, || AtomicUsize::new(EMPTY));
    let fresh = Box::leak(slots.into_boxed_slice()).as_mut_ptr();
    let stored = slot.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
    if stored.is_err() {
        // SAFETY: leaked above with this length, and not published.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(fresh, FIRST << index)) });
    }
    block(index)
}

/// The slots of a block that an address may be in.
fn probes(block: &[AtomicUsize], address: usize) -> impl Iterator<Item = &AtomicUsize> {
    let hash = (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    (0..PROBES).map(move |step| &block[(hash + step) % block.len()])
}

/// Puts an address in. Returns false if there is no memory for it.
pub(crate) fn put(address: usize, kind: Kind) -> bool {
    let entry = address | kind as usize;
    (0..BLOCKS).map_while(block_or_new).any(|block| {
        probes(block, address).any(|slot| {
            let before = slot.load(Ordering::Relaxed);
            (before == EMPTY || before == GONE)
                && slot
                    .compare_exchange(before, entry, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
        })
    })
}

fn find(address: usize) -> Option<&'static AtomicUsize> {
    (0..BLOCKS).map_while(block).find_map(|block| {
        probes(block, address).find(|slot| slot.load(Ordering::Acquire) & !KIND == address)
    })
}

/// The kind with which an address was put in, as a number.
pub(crate) fn kind_of(address: usize) -> Option<usize> {
    if address & KIND != 0 || address == 0 {
        return None;
    }
    find(address).map(|slot| slot.load(Ordering::Acquire) & KIND)
}

/// Takes an address out, if it is in the table.
pub(crate) fn take_out(address: usize) {
    if let Some(slot) = find(address) {
        slot.store(GONE, Ordering::Release);
    }
}

/// Keeps a tombstone, and frees the oldest one.
///
/// # Safety
/// The caller does not free it, and its value was dropped.
pub(crate) unsafe fn bury(handle: *mut Handle) {
    let place = NEXT.fetch_add(1, Ordering::Relaxed) % TOMBSTONES;
    let oldest = RING[place].swap(handle, Ordering::AcqRel);
    if !oldest.is_null() {
        // SAFETY: a tombstone that this thread took out of the ring (invariant 4).
        unsafe {
            take_out((*oldest).address());
            Handle::free_memory(oldest);
        }
    }
}

/// Whether handles are looked up: 0 means not determined yet, 1 no, 2 yes.
static HARDENED: AtomicU8 = AtomicU8::new(0);
/// Not 0 if there are handles that are not in the table.
static UNKNOWN: AtomicU8 = AtomicU8::new(0);

/// Whether every allocator is hardened, and handles are looked up before they are followed.
#[inline]
pub(crate) fn all_hardened() -> bool {
    match HARDENED.load(Ordering::Relaxed) {
        0 => ask_environment(),
        asked => asked == 2,
    }
}

/// Whether it is known that they are not. For fast paths; the slow path handles everything else.
#[inline(always)]
pub(crate) fn none_looked_up() -> bool {
    HARDENED.load(Ordering::Relaxed) == 1
}

#[cold]
fn ask_environment() -> bool {
    let set = std::env::var_os("ALLOTMENT_HARDENED")
        .is_some_and(|value| !value.is_empty() && value != "0");
    let asked = if set { 2 } else { 1 };
    // If `allot_set_hardened` ran meanwhile, its value counts.
    let before = HARDENED.compare_exchange(0, asked, Ordering::Relaxed, Ordering::Relaxed);
    before.map_or_else(|told| told == 2, |_| set)
}

/// Notes that a handle is not in the table.
#[inline]
pub(crate) fn left_out() {
    if UNKNOWN.load(Ordering::Relaxed) == 0 {
        UNKNOWN.store(1, Ordering::Relaxed);
    }
}

/// Whether a pointer may be a handle although it is not in the table.
pub(crate) fn some_left_out() -> bool {
    UNKNOWN.load(Ordering::Relaxed) != 0
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_set_hardened(hardened: bool) {
    HARDENED.store(if hardened { 2 } else { 1 }, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_found_until_it_is_taken_out() {
        // Addresses that no allocation of this process has.
        let address = |index: usize| (1 << 60) + index * 16;
        for index in 0..10_000 {
            assert!(put(address(index), Kind::Arena));
        }
        for index in (0..10_000).step_by(3) {
            take_out(address(index));
        }
        for index in 0..10_000 {
            let expected = (index % 3 != 0).then_some(Kind::Arena as usize);
            assert_eq!(kind_of(address(index)), expected, "{index}");
        }
        assert_eq!(kind_of(address(1) + 8), None);
        assert_eq!(kind_of(0), None);
    }
}
