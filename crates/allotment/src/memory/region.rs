//! The one address range for the memory of all pools. A comparison tells whether an address can
//! belong to a pool, and one load then tells to which.
//!
//! The range is reserved when the first pool needs memory. It is 64 GiB of addresses without memory
//! behind them, or half of that and so on down to 64 MiB, if the process may not have as much
//! (`ulimit -v`). Its size is a power of two, and it is aligned to its size. So all its addresses
//! have one *prefix*: the bits above the lowest 36. If the range is smaller than 64 GiB, other
//! memory may have the same prefix. The range is handed out in *granules* of 64 KiB.
//!
//! If the process locks its new mappings in memory (`mlockall(MCL_FUTURE)`) when the range is
//! reserved, the range is not locked: all of it would count towards the limit on locked memory.
//! Each granule is locked while it is handed out.
//!
//! # Invariants
//!
//! 1. `prefix` is [`NO_PREFIX`], or the range was reserved. The range is never released, and the
//!    rest of `REGION` was written before `prefix`.
//! 2. A bit of `words` is set while its granule is handed out. The thread that sets the bit has the
//!    granule, and only the holder of a granule may clear its bit.
//! 3. The memory of one word's granules, 4 MiB, is made accessible before the first of them is
//!    handed out, and stays accessible.
//! 4. The owner of a granule is null, or what the holder of the granule entered. The holder clears
//!    it before it releases the granule. The owner of a granule with the prefix outside the
//!    range is null.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use super::bits::{low_bits, lowest_run};
use super::layout::SEGMENT_GRANULE;
use super::{first_touch, os, tools};
use crate::error::{AllocError, ErrorKind};

/// The unit and the alignment of what is handed out.
pub(crate) const GRANULE: usize = SEGMENT_GRANULE;
const PREFIX_SHIFT: u32 = 36;
const MAX_BYTES: usize = 1 << PREFIX_SHIFT;
const MIN_BYTES: usize = 64 << 20;
/// The bytes of one word's granules.
const WORD_BYTES: usize = GRANULE * 64;
/// The value of `prefix` before the range is reserved: the prefix of no address.
const NO_PREFIX: usize = usize::MAX;

/// The range, in one place, so that one load finds the data for a lookup.
struct Region {
    prefix: AtomicUsize,
    /// The owners of all granules with this prefix.
    owners: AtomicPtr<AtomicPtr<()>>,
    base: AtomicUsize,
    len: AtomicUsize,
    words: AtomicPtr<AtomicU64>,
    /// Whether granules are locked in memory while they are handed out.
    locks: AtomicBool,
}

static REGION: Region = Region {
    prefix: AtomicUsize::new(NO_PREFIX),
    owners: AtomicPtr::new(ptr::null_mut()),
    base: AtomicUsize::new(0),
    len: AtomicUsize::new(0),
    words: AtomicPtr::new(ptr::null_mut()),
    locks: AtomicBool::new(false),
};

/// A hint: the lowest word that may have a free granule.
static FIRST_FREE: AtomicUsize = AtomicUsize::new(0);

/// Whether an address has the range's prefix. If not, it belongs to no pool.
#[inline(always)]
pub(crate) fn may_hold(address: usize) -> bool {
    // Acquire pairs with the Release in `reserve`: a thread that sees the prefix sees the rest.
    address >> PREFIX_SHIFT == REGION.prefix.load(Ordering::Acquire)
}

/// The owner of the granule of an address with the prefix, or null.
#[inline(always)]
pub(crate) fn owner_of(address: usize) -> *mut () {
    debug_assert!(may_hold(address));
    // SAFETY: there is an owner entry for each granule with the prefix. Acquire pairs with the
    // Release in `set_owner`.
    unsafe { owner_entry(address / GRANULE).load(Ordering::Acquire) }
}

/// # Safety
/// The range was reserved.
#[inline(always)]
unsafe fn owner_entry(granule: usize) -> &'static AtomicPtr<()> {
    let index = granule % (MAX_BYTES / GRANULE);
    // SAFETY: the table has `MAX_BYTES / GRANULE` entries and is never unmapped (invariant 1).
    unsafe { &*REGION.owners.load(Ordering::Relaxed).add(index) }
}

/// Whether an address lies in memory that was handed out.
pub(crate) fn contains(address: usize) -> bool {
    may_hold(address) && !owner_of(address).is_null()
}

/// Takes `granules` contiguous granules and enters `new_owner` as their owner. They read zeros if
/// [`is_zeroed`] says so.
pub(crate) fn take(granules: usize, new_owner: NonNull<()>) -> Result<NonNull<u8>, AllocError> {
    let full = AllocError::new(ErrorKind::LimitReached, granules.saturating_mul(GRANULE));
    let len = reserve()?;
    if granules == 0 || granules > len / GRANULE {
        return Err(full);
    }
    let words = len / WORD_BYTES;
    let first =
        if granules <= 64 { claim_in_word(words, granules) } else { claim_words(words, granules) };
    let first = first.ok_or(full)?;
    let base = NonNull::new(ptr::with_exposed_provenance_mut(REGION.base.load(Ordering::Relaxed)));
    // SAFETY: within the range.
    let start = unsafe { base.expect("reserved").add(first * GRANULE) };
    set_up(start, first, granules, new_owner)?;
    Ok(start)
}

/// Makes claimed granules usable, and enters their owner. On an error they are free again.
fn set_up(
    start: NonNull<u8>,
    first: usize,
    granules: usize,
    new_owner: NonNull<()>,
) -> Result<(), AllocError> {
    let usable = make_accessible(first, granules).and_then(|()| lock(start, granules * GRANULE));
    if usable.is_ok() {
        set_owner(first, granules, new_owner.as_ptr());
        first_touch::count_small(granules * GRANULE);
    } else {
        release_bits(first, granules);
    }
    usable
}

/// Takes the `more` granules right behind granules that the caller has, if they are free. Returns
/// whether it did.
///
/// # Safety
/// The caller has `granules` contiguous granules from `start` on.
pub(crate) unsafe fn extend(
    start: NonNull<u8>,
    granules: usize,
    more: usize,
    owner: NonNull<()>,
) -> bool {
    let first = (start.addr().get() - REGION.base.load(Ordering::Relaxed)) / GRANULE + granules;
    let behind = (REGION.len.load(Ordering::Relaxed) / GRANULE).saturating_sub(first);
    if more > behind || !claim_at(first, more) {
        return false;
    }
    // SAFETY: within the range.
    let start = unsafe { start.add(granules * GRANULE) };
    set_up(start, first, more, owner).is_ok()
}

/// Whether granules read zeros when they are taken. A thread that has taken some gets the answer
/// for them.
pub(crate) fn is_zeroed() -> bool {
    // Relaxed: what `release` stored is visible after the claim, which acquires its release.
    !KEEPS_BYTES.load(Ordering::Relaxed)
}

/// The system did not take the memory of released granules, so their bytes may still be there.
static KEEPS_BYTES: AtomicBool = AtomicBool::new(false);

/// Locks memory that is handed out, where new mappings are locked.
fn lock(start: NonNull<u8>, len: usize) -> Result<(), AllocError> {
    if !REGION.locks.load(Ordering::Relaxed) {
        return Ok(());
    }
    match os::lock(start, len) {
        // A part may be locked. If the process stopped locking new mappings, this memory need not
        // be locked.
        Err(error) => {
            os::unlock(start, len);
            if os::locks_new_mappings() { Err(error) } else { Ok(()) }
        }
        Ok(()) => Ok(()),
    }
}

/// Releases granules, and gives their memory to the system.
///
/// # Safety
/// The caller has these granules, and nothing refers to their bytes.
pub(crate) unsafe fn release(start: NonNull<u8>, granules: usize) {
    let first = (start.addr().get() - REGION.base.load(Ordering::Relaxed)) / GRANULE;
    if REGION.locks.load(Ordering::Relaxed) {
        os::unlock(start, granules * GRANULE);
    }
    // SAFETY: whole pages of the range; the rest is guaranteed by the caller.
    if unsafe { os::discard(start, granules * GRANULE) }.is_err() {
        KEEPS_BYTES.store(true, Ordering::Relaxed);
    }
    set_owner(first, granules, ptr::null_mut());
    release_bits(first, granules);
}

/// Enters the owner of granules of the range.
fn set_owner(first: usize, granules: usize, new_owner: *mut ()) {
    let base = REGION.base.load(Ordering::Relaxed) / GRANULE;
    for granule in first..first + granules {
        // SAFETY: the range was reserved, otherwise there would be no granules. Release: the
        // owner's data was written before.
        unsafe { owner_entry(base + granule).store(new_owner, Ordering::Release) };
    }
}

fn word(index: usize) -> &'static AtomicU64 {
    // SAFETY: callers ask only for words of the range (invariant 1), which are never unmapped.
    unsafe { &*REGION.words.load(Ordering::Relaxed).add(index) }
}

/// Claims at most 64 granules, all in one word.
fn claim_in_word(words: usize, granules: usize) -> Option<usize> {
    let from = FIRST_FREE.load(Ordering::Relaxed).min(words);
    // The hint may be too high: a thread may raise it after another thread gave back granules below
    // it.
    for index in (from..words).chain(0..from) {
        let bits = word(index);
        let mut taken = bits.load(Ordering::Relaxed);
        while let Some(shift) = lowest_run(!taken, granules) {
            let mask = low_bits(granules) << shift;
            // Acquire pairs with the Release in `release_bits`: the former owner no longer uses the
            // granules.
            match bits.compare_exchange_weak(
                taken,
                taken | mask,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    if granules == 1 && taken | mask == u64::MAX {
                        let _ = FIRST_FREE.compare_exchange(
                            index,
                            index + 1,
                            Ordering::Relaxed,
                            Ordering::Relaxed,
                        );
                    }
                    return Some(index * 64 + shift as usize);
                }
                Err(now) => taken = now,
            }
        }
    }
    None
}

/// Claims granules that begin with a word, in contiguous words that are completely free.
fn claim_words(words: usize, granules: usize) -> Option<usize> {
    let wanted = granules.div_ceil(64);
    let mut first = 0;
    while first + wanted <= words {
        let claimed = (first..first + wanted).take_while(|index| {
            // Acquire: as in `claim_in_word`.
            word(*index).compare_exchange(0, u64::MAX, Ordering::Acquire, Ordering::Relaxed).is_ok()
        });
        let claimed = claimed.count();
        if claimed == wanted {
            let over = wanted * 64 - granules;
            if over > 0 {
                word(first + wanted - 1).fetch_and(low_bits(64 - over), Ordering::Release);
            }
            return Some(first * 64);
        }
        for index in first..first + claimed {
            word(index).store(0, Ordering::Release);
        }
        first += claimed + 1;
    }
    None
}

/// Claims these granules, or none of them if one is taken.
fn claim_at(first: usize, granules: usize) -> bool {
    let (mut at, end) = (first, first + granules);
    while at < end {
        let in_word = (64 - at % 64).min(end - at);
        let mask = low_bits(in_word) << (at % 64);
        let claim = |taken: u64| (taken & mask == 0).then_some(taken | mask);
        // Acquire: as in `claim_in_word`.
        if word(at / 64).fetch_update(Ordering::Acquire, Ordering::Relaxed, claim).is_err() {
            release_bits(first, at - first);
            return false;
        }
        at += in_word;
    }
    true
}

fn release_bits(first: usize, granules: usize) {
    let mut at = first;
    let end = first + granules;
    while at < end {
        let in_word = (64 - at % 64).min(end - at);
        // Release pairs with the Acquire of the claims: the former owner's accesses happen before.
        word(at / 64).fetch_and(!(low_bits(in_word) << (at % 64)), Ordering::Release);
        at += in_word;
    }
    FIRST_FREE.fetch_min(first / 64, Ordering::Relaxed);
}

/// Makes the memory of claimed granules accessible.
fn make_accessible(first: usize, granules: usize) -> Result<(), AllocError> {
    /// For each word, whether its memory is accessible.
    static ACCESSIBLE: [AtomicU8; MAX_BYTES / WORD_BYTES] =
        [const { AtomicU8::new(0) }; MAX_BYTES / WORD_BYTES];
    let base = REGION.base.load(Ordering::Relaxed);
    let (from, to) = (first / 64, (first + granules).div_ceil(64));
    for (index, accessible) in ACCESSIBLE.iter().enumerate().take(to).skip(from) {
        // Acquire pairs with the Release below.
        if accessible.load(Ordering::Acquire) == 0 {
            let start = ptr::with_exposed_provenance_mut(base + index * WORD_BYTES);
            // SAFETY: whole pages of the range. Two threads may do this at the same time.
            unsafe { os::make_accessible(NonNull::new_unchecked(start), WORD_BYTES)? };
            accessible.store(1, Ordering::Release);
        }
    }
    Ok(())
}

/// A range that a thread has reserved, and that becomes the region if no other thread was first.
/// Stored at the start of the thread's tables.
struct RegionCandidate {
    base: usize,
    len: usize,
    locks: bool,
}

/// Reserves the range if it is not reserved yet, and returns its length. If several threads do this
/// at the same time, each reserves a range, and one of those is kept. No thread waits for another,
/// so a fork leaves nothing half done.
fn reserve() -> Result<usize, AllocError> {
    static CHOSEN: AtomicPtr<RegionCandidate> = AtomicPtr::new(ptr::null_mut());
    // Acquire pairs with the Release below.
    if REGION.prefix.load(Ordering::Acquire) != NO_PREFIX {
        return Ok(REGION.len.load(Ordering::Relaxed));
    }
    let mut chosen = CHOSEN.load(Ordering::Acquire);
    if chosen.is_null() {
        let (mine, size) = reserve_candidate()?;
        // Release for what `reserve_candidate` wrote, Acquire for what the other thread wrote.
        match CHOSEN.compare_exchange(chosen, mine.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                chosen = mine.as_ptr();
                // SAFETY: made above.
                let RegionCandidate { base, len, .. } = unsafe { mine.read() };
                if let Some(start) = NonNull::new(ptr::with_exposed_provenance_mut(base)) {
                    tools::add_leak_root(start, len);
                }
            }
            Err(other) => {
                chosen = other;
                // SAFETY: made above, and no other thread has seen it.
                unsafe {
                    let RegionCandidate { base, len, .. } = mine.read();
                    let start = NonNull::new_unchecked(ptr::with_exposed_provenance_mut(base));
                    let _ = os::unmap(start, len);
                    let _ = os::unmap(mine.cast(), size);
                }
            }
        }
    }
    // SAFETY: chosen once, written before that, and never unmapped.
    let RegionCandidate { base, len, locks } = unsafe { chosen.read() };
    // Every thread that comes here writes the same values.
    let owners = chosen.wrapping_add(1).cast::<AtomicPtr<()>>();
    REGION.owners.store(owners, Ordering::Relaxed);
    REGION.words.store(owners.wrapping_add(MAX_BYTES / GRANULE).cast(), Ordering::Relaxed);
    REGION.base.store(base, Ordering::Relaxed);
    REGION.len.store(len, Ordering::Relaxed);
    REGION.locks.store(locks, Ordering::Relaxed);
    // Release pairs with the Acquire in `may_hold`.
    REGION.prefix.store(base >> PREFIX_SHIFT, Ordering::Release);
    Ok(len)
}

/// Reserves a range, and memory for its tables. Returns the address and the size of the tables.
fn reserve_candidate() -> Result<(NonNull<RegionCandidate>, usize), AllocError> {
    // A process that locks its new mappings may be allowed to lock no more than 8 MiB. So addresses
    // and tables are not locked. Granules are locked while they are handed out.
    let locks = os::locks_new_mappings();
    let reserve = if locks { os::reserve_unlocked } else { os::reserve_addresses };
    let mut len = MAX_BYTES;
    let start = loop {
        match reserve(len, len) {
            Ok(start) => break start,
            Err(error) if len <= MIN_BYTES => return Err(error),
            Err(_) => len /= 2,
        }
    };
    // In a huge page, a chunk in use would keep the memory of its free neighbours.
    first_touch::refuse_huge(start, len);
    let owners = MAX_BYTES / GRANULE * size_of::<AtomicPtr<()>>();
    let bytes = size_of::<RegionCandidate>() + owners + len / GRANULE / 8;
    let size = bytes.next_multiple_of(os::page_size());
    let tables = if locks { os::map_sparse(size) } else { os::map(size, 1) };
    let tables = tables.inspect_err(|_| {
        // SAFETY: reserved above, and not used.
        let _ = unsafe { os::unmap(start, len) };
    })?;
    let reserved = RegionCandidate { base: start.as_ptr().expose_provenance(), len, locks };
    // SAFETY: just mapped, and large enough.
    unsafe { tables.cast::<RegionCandidate>().write(reserved) };
    Ok((tables.cast(), size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granules_belong_to_one_owner_until_they_are_released() {
        let owner = NonNull::<()>::dangling();
        let mut taken: Vec<(NonNull<u8>, usize)> = Vec::new();
        for granules in [1, 3, 64, 65, 200, 7, 64, 1] {
            let start = take(granules, owner).unwrap();
            let range = start.addr().get()..start.addr().get() + granules * GRANULE;
            assert_eq!(range.start % GRANULE, 0);
            assert!(contains(range.start) && contains(range.end - 1));
            assert_eq!(owner_of(range.end - 1), owner.as_ptr());
            assert!(!contains(range.end) || owner_of(range.end) == owner.as_ptr());
            for (other, its) in &taken {
                let other = other.addr().get()..other.addr().get() + its * GRANULE;
                assert!(range.end <= other.start || other.end <= range.start);
            }
            // SAFETY: taken above.
            unsafe {
                assert_eq!(start.read(), 0);
                start.write_bytes(7, granules * GRANULE);
            }
            taken.push((start, granules));
        }
        for (start, granules) in taken {
            // SAFETY: taken above, released once.
            unsafe { release(start, granules) };
        }
    }

    #[test]
    fn a_hint_that_is_too_high_refuses_nothing() {
        reserve().unwrap();
        for granules in [1, 64] {
            FIRST_FREE.store(usize::MAX, Ordering::Relaxed);
            let start = take(granules, NonNull::dangling()).unwrap();
            // SAFETY: taken above.
            unsafe { release(start, granules) };
        }
    }

    #[test]
    fn more_than_the_range_has_is_refused() {
        let error = take(MAX_BYTES / GRANULE + 1, NonNull::dangling()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitReached);
        assert!(!contains(0x1000) && !contains(usize::MAX));
    }
}
