//! One range of addresses for the memory of all pools, so that a comparison tells whether an address can be a pool's, and a
//! load whose.
//!
//! The range is reserved when the first pool wants memory: 64 GiB of addresses without memory behind them, or half of that,
//! and so on, where the process may not have so many (`ulimit -v`). It is a power of two, aligned to itself, so that it lies
//! in one *window*, an aligned range of 64 GiB; where it is smaller, others' memory may lie there too. It is handed out in
//! *granules* of 64 KiB.
//!
//! # Invariants
//!
//! 1. `window` is [`NOWHERE`], or the range was reserved, stays for ever, and the rest of `RANGE` was written before `window`.
//! 2. A bit of `words` is set while its granule is handed out; who sets it has the granule, who has it may clear it.
//! 3. The memory of a word's granules, 4 MiB, is made accessible before the first of them is handed out, and stays so.
//! 4. A granule's owner is null, or what whoever has it noted, and takes back before he gives it back. So is that of every
//!    granule of the window that is not the range's.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use super::layout::SEGMENT_GRANULE;
use super::{os, tools};
use crate::error::{AllocError, ErrorKind};

/// The unit, and the alignment, of what is handed out.
pub(crate) const GRANULE: usize = SEGMENT_GRANULE;
const WINDOW_BITS: u32 = 36;
const MOST: usize = 1 << WINDOW_BITS;
const LEAST: usize = 64 << 20;
/// The bytes of one word's granules.
const WORD: usize = GRANULE * 64;
/// No address's window.
const NOWHERE: usize = usize::MAX;

/// The range, in one place: a look at an address takes one load of where that is.
struct Range {
    window: AtomicUsize,
    /// The owners of the window's granules.
    owners: AtomicPtr<AtomicPtr<()>>,
    base: AtomicUsize,
    len: AtomicUsize,
    words: AtomicPtr<AtomicU64>,
}

static RANGE: Range = Range {
    window: AtomicUsize::new(NOWHERE),
    owners: AtomicPtr::new(ptr::null_mut()),
    base: AtomicUsize::new(0),
    len: AtomicUsize::new(0),
    words: AtomicPtr::new(ptr::null_mut()),
};

/// The lowest word that may have a free granule: a hint.
static FIRST_FREE: AtomicUsize = AtomicUsize::new(0);

/// Whether an address lies in the range's window: if not, it is no pool's. Five instructions with the branch.
#[inline(always)]
pub(crate) fn may_hold(address: usize) -> bool {
    // Acquire pairs with the Release in `reserve`: who sees the window sees the rest.
    address >> WINDOW_BITS == RANGE.window.load(Ordering::Acquire)
}

/// The owner of the granule of an address in the window, or null.
#[inline(always)]
pub(crate) fn owner_of(address: usize) -> *mut () {
    debug_assert!(may_hold(address));
    // SAFETY: there is an owner for each granule of the window. Acquire pairs with the Release in `take`.
    unsafe { owner(address / GRANULE).load(Ordering::Acquire) }
}

/// # Safety
/// The range was reserved.
#[inline(always)]
unsafe fn owner(granule: usize) -> &'static AtomicPtr<()> {
    let index = granule % (MOST / GRANULE);
    // SAFETY: so many there are, for ever (invariant 1).
    unsafe { &*RANGE.owners.load(Ordering::Relaxed).add(index) }
}

/// Whether an address lies in memory that was handed out.
pub(crate) fn contains(address: usize) -> bool {
    may_hold(address) && !owner_of(address).is_null()
}

/// So many granules, one behind the other, noted as this owner's; zeroed if nobody had them before. Whether they were
/// had by somebody is not known.
pub(crate) fn take(granules: usize, owner_is: NonNull<()>) -> Result<NonNull<u8>, AllocError> {
    let full = AllocError::new(ErrorKind::SourceRefused, granules.saturating_mul(GRANULE));
    let len = reserve()?;
    if granules == 0 || granules > len / GRANULE {
        return Err(full);
    }
    let words = len / WORD;
    let first =
        if granules <= 64 { claim_few(words, granules) } else { claim_many(words, granules) };
    let first = first.ok_or(full)?;
    if let Err(error) = open(first, granules) {
        unclaim(first, granules);
        return Err(error);
    }
    note(first, granules, owner_is.as_ptr());
    let base = NonNull::new(ptr::with_exposed_provenance_mut(RANGE.base.load(Ordering::Relaxed)));
    // SAFETY: within the range.
    Ok(unsafe { base.expect("reserved").add(first * GRANULE) })
}

/// Gives granules back, and their memory to the system.
///
/// # Safety
/// They were taken together, by nobody given back, and nothing refers to their bytes.
pub(crate) unsafe fn give(start: NonNull<u8>, granules: usize) {
    let first = (start.addr().get() - RANGE.base.load(Ordering::Relaxed)) / GRANULE;
    // SAFETY: whole pages of ours, passed on to the caller.
    let _ = unsafe { os::discard(start, granules * GRANULE) };
    note(first, granules, ptr::null_mut());
    unclaim(first, granules);
}

/// Notes the owner of granules of the range.
fn note(first: usize, granules: usize, owner_is: *mut ()) {
    let base = RANGE.base.load(Ordering::Relaxed) / GRANULE;
    for granule in first..first + granules {
        // SAFETY: the range was reserved, or nobody would have granules. Release: what the owner is was written before.
        unsafe { owner(base + granule).store(owner_is, Ordering::Release) };
    }
}

fn word(index: usize) -> &'static AtomicU64 {
    // SAFETY: callers ask for words of the range alone (invariant 1), which stay.
    unsafe { &*RANGE.words.load(Ordering::Relaxed).add(index) }
}

/// The lowest `bits` bits.
const fn ones(bits: usize) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Where `bits` free bits lie one behind the other in a word.
fn gap(taken: u64, bits: usize) -> Option<u32> {
    let mut starts = !taken;
    let mut found = 1;
    while found < bits && starts != 0 {
        // A start of so many is one of more if the bits behind it are free too.
        let more = found.min(bits - found);
        starts &= starts >> more;
        found += more;
    }
    (starts != 0).then(|| starts.trailing_zeros())
}

/// Claims at most 64 granules, all of one word.
fn claim_few(words: usize, granules: usize) -> Option<usize> {
    let from = FIRST_FREE.load(Ordering::Relaxed).min(words);
    // The hint may be too high: whoever raises it may come after somebody who gave granules back below it.
    for index in (from..words).chain(0..from) {
        let bits = word(index);
        let mut taken = bits.load(Ordering::Relaxed);
        while let Some(shift) = gap(taken, granules) {
            let mask = ones(granules) << shift;
            // Acquire pairs with the Release in `unclaim`: the former owner is done with them.
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

/// Claims whole words, one behind the other.
fn claim_many(words: usize, granules: usize) -> Option<usize> {
    let wanted = granules.div_ceil(64);
    let mut first = 0;
    while first + wanted <= words {
        let claimed = (first..first + wanted).take_while(|index| {
            // Acquire: as in `claim_few`.
            word(*index).compare_exchange(0, u64::MAX, Ordering::Acquire, Ordering::Relaxed).is_ok()
        });
        let claimed = claimed.count();
        if claimed == wanted {
            let over = wanted * 64 - granules;
            if over > 0 {
                word(first + wanted - 1).fetch_and(ones(64 - over), Ordering::Release);
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

fn unclaim(first: usize, granules: usize) {
    let mut at = first;
    let end = first + granules;
    while at < end {
        let in_word = (64 - at % 64).min(end - at);
        // Release pairs with the Acquire of the claims: what was done with the granules comes before.
        word(at / 64).fetch_and(!(ones(in_word) << (at % 64)), Ordering::Release);
        at += in_word;
    }
    FIRST_FREE.fetch_min(first / 64, Ordering::Relaxed);
}

/// Makes the memory of claimed granules accessible.
fn open(first: usize, granules: usize) -> Result<(), AllocError> {
    /// A byte for each word: whether its memory is accessible.
    static OPEN: [AtomicU8; MOST / WORD] = [const { AtomicU8::new(0) }; MOST / WORD];
    let base = RANGE.base.load(Ordering::Relaxed);
    let (from, to) = (first / 64, (first + granules).div_ceil(64));
    for (index, open) in OPEN.iter().enumerate().take(to).skip(from) {
        // Acquire pairs with the Release below.
        if open.load(Ordering::Acquire) == 0 {
            let start = ptr::with_exposed_provenance_mut(base + index * WORD);
            // SAFETY: whole pages of the range. Twice, by two threads, does no harm.
            unsafe { os::make_accessible(NonNull::new_unchecked(start), WORD)? };
            open.store(1, Ordering::Release);
        }
    }
    Ok(())
}

/// What a thread reserved, at the beginning of its tables.
struct Reserved {
    base: usize,
    len: usize,
}

/// Reserves the range if nobody has; its length. Threads that come first together each reserve one, and one of those
/// stays: nobody waits, and a fork finds nothing half done.
fn reserve() -> Result<usize, AllocError> {
    static CHOSEN: AtomicPtr<Reserved> = AtomicPtr::new(ptr::null_mut());
    // Acquire pairs with the Release below.
    if RANGE.window.load(Ordering::Acquire) != NOWHERE {
        return Ok(RANGE.len.load(Ordering::Relaxed));
    }
    let mut chosen = CHOSEN.load(Ordering::Acquire);
    if chosen.is_null() {
        let (mine, size) = make()?;
        // Release for what `make` wrote, Acquire for what the other thread did.
        match CHOSEN.compare_exchange(chosen, mine.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                chosen = mine.as_ptr();
                // SAFETY: made above.
                let Reserved { base, len } = unsafe { mine.read() };
                if let Some(start) = NonNull::new(ptr::with_exposed_provenance_mut(base)) {
                    tools::search(start, len);
                }
            }
            Err(others) => {
                chosen = others;
                // SAFETY: made above, and published to nobody.
                unsafe {
                    let Reserved { base, len } = mine.read();
                    let start = NonNull::new_unchecked(ptr::with_exposed_provenance_mut(base));
                    let _ = os::unmap(start, len);
                    let _ = os::unmap(mine.cast(), size);
                }
            }
        }
    }
    // SAFETY: chosen once, written before that, and there for ever.
    let Reserved { base, len } = unsafe { chosen.read() };
    // Whoever comes here writes the same.
    let owners = chosen.wrapping_add(1).cast::<AtomicPtr<()>>();
    RANGE.owners.store(owners, Ordering::Relaxed);
    RANGE.words.store(owners.wrapping_add(MOST / GRANULE).cast(), Ordering::Relaxed);
    RANGE.base.store(base, Ordering::Relaxed);
    RANGE.len.store(len, Ordering::Relaxed);
    // Release: see `may_hold`.
    RANGE.window.store(base >> WINDOW_BITS, Ordering::Release);
    Ok(len)
}

/// Reserves a range, and memory for what is noted of it; where that is, and its size.
fn make() -> Result<(NonNull<Reserved>, usize), AllocError> {
    let mut len = MOST;
    let start = loop {
        match os::reserve_addresses(len, len) {
            Ok(start) => break start,
            Err(error) if len <= LEAST => return Err(error),
            Err(_) => len /= 2,
        }
    };
    let owners = MOST / GRANULE * size_of::<AtomicPtr<()>>();
    let bytes = size_of::<Reserved>() + owners + len / GRANULE / 8;
    let size = bytes.next_multiple_of(os::page_size());
    let tables = os::map(size, 1).inspect_err(|_| {
        // SAFETY: reserved above, used by nobody.
        let _ = unsafe { os::unmap(start, len) };
    })?;
    let reserved = Reserved { base: start.as_ptr().expose_provenance(), len };
    // SAFETY: mapped just now, and large enough.
    unsafe { tables.cast::<Reserved>().write(reserved) };
    Ok((tables.cast(), size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_found_where_so_many_bits_are_free_and_nowhere_else() {
        for bits in 1..=64 {
            for taken in
                [0, 1, 0b1011, u64::MAX >> 1, u64::MAX << 3, 0x0f0f_0f0f_0f0f_0f0f, u64::MAX]
            {
                let expected =
                    (0..=64 - bits as u32).find(|shift| taken & (ones(bits) << shift) == 0);
                assert_eq!(gap(taken, bits), expected, "{bits} bits of {taken:#x}");
            }
        }
    }

    #[test]
    fn granules_are_nobody_elses_until_they_are_given_back() {
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
            // SAFETY: taken above, given back once.
            unsafe { give(start, granules) };
        }
    }

    #[test]
    fn a_hint_that_is_too_high_refuses_nothing() {
        reserve().unwrap();
        for granules in [1, 64] {
            FIRST_FREE.store(usize::MAX, Ordering::Relaxed);
            let start = take(granules, NonNull::dangling()).unwrap();
            // SAFETY: taken above.
            unsafe { give(start, granules) };
        }
    }

    #[test]
    fn more_than_the_range_has_is_refused() {
        let error = take(MOST / GRANULE + 1, NonNull::dangling()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SourceRefused);
        assert!(!contains(0x1000) && !contains(usize::MAX));
    }
}
