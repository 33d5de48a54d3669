//! The numbers of live slabs, and the core that each number stands for.
//!
//! A slab's number is the index of its caches in each thread's table, and the tag of its pages. So
//! an address leads to a slab. Numbers are even; the odd number that follows is the index of the
//! thread's cache for long-lived objects. Numbers are dense and reused. 0 is never a slab's number:
//! it is the tag of memory that belongs to no slab.
//!
//! # Invariants
//!
//! 1. Entries are never unmapped.
//! 2. While `references > 0`, `core` is the address of a live core. A thread that increments the
//!    count from a value above zero may use the core until it decrements the count. The thread that
//!    decrements the count to zero destroys the core, and then makes the number vacant.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::shared::{NUMBERS, Shared};
use crate::error::{AllocError, ErrorKind};
use crate::memory::lifo::{Lifo, Links};
use crate::memory::metadata::Metadata;

const FIRST: u32 = 64;
const PARTS: usize = 24;

/// The entry of one slab.
pub(super) struct Entry {
    references: AtomicUsize,
    core: AtomicPtr<Shared>,
    next: AtomicU32,
}

static PART: [AtomicPtr<Entry>; PARTS] = [const { AtomicPtr::new(ptr::null_mut()) }; PARTS];
static ISSUED: AtomicU32 = AtomicU32::new(0);
static VACANT: Lifo = Lifo::new();

struct Table;

impl Links for Table {
    fn next(&self, index: u32) -> &AtomicU32 {
        &entry(index).expect("an issued entry stays").next
    }
}

fn part_of(index: u32) -> (usize, usize) {
    let part = (index / FIRST + 1).ilog2();
    (part as usize, (index - FIRST * ((1 << part) - 1)) as usize)
}

/// The entry of a number in use.
fn of_number(number: u32) -> &'static Entry {
    entry(index_of(number)).expect("a number in use was issued")
}

const fn index_of(number: u32) -> u32 {
    number / 2 - 1
}

const fn number_of(index: u32) -> u32 {
    (index + 1) * 2
}

fn entry(index: u32) -> Option<&'static Entry> {
    let (part, place) = part_of(index);
    // Acquire pairs with the Release in `issue`.
    let part = PART.get(part)?.load(Ordering::Acquire);
    // SAFETY: null, or `FIRST << part` entries that stay (invariant 1).
    (!part.is_null()).then(|| unsafe { &*part.add(place) })
}

/// Takes a number for a slab that is about to be made.
pub(super) fn take_number() -> Result<u32, AllocError> {
    if let Some(index) = VACANT.pop(&Table) {
        return Ok(number_of(index));
    }
    let mut index = ISSUED.load(Ordering::Relaxed);
    loop {
        let (part, _) = part_of(index);
        if number_of(index) + 1 >= NUMBERS {
            return Err(AllocError::new(ErrorKind::SizeOverflow, size_of::<Shared>()));
        }
        let slot = PART.get(part).ok_or(AllocError::new(ErrorKind::SizeOverflow, 0))?;
        if entry(index).is_none() {
            let fresh = Metadata::new((FIRST as usize) << part, |_| Entry {
                references: AtomicUsize::new(0),
                core: AtomicPtr::new(ptr::null_mut()),
                next: AtomicU32::new(0),
            })?;
            let start = fresh.as_ptr().as_ptr();
            // Release pairs with the Acquire in `entry`.
            let set =
                slot.compare_exchange(ptr::null_mut(), start, Ordering::Release, Ordering::Relaxed);
            if set.is_ok() {
                core::mem::forget(fresh);
            }
        }
        match ISSUED.compare_exchange_weak(index, index + 1, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Ok(number_of(index)),
            Err(now) => index = now,
        }
    }
}

/// Returns a number that stands for no slab: it never did, or no longer does.
pub(super) fn give_number(number: u32) {
    VACANT.push(&Table, index_of(number));
}

/// Assigns a core to a number, with one reference, which belongs to the caller.
pub(super) fn enter(number: u32, core: NonNull<Shared>) {
    let entry = of_number(number);
    entry.core.store(core.as_ptr(), Ordering::Relaxed);
    // Release pairs with the Acquire in `refer`.
    entry.references.store(1, Ordering::Release);
}

/// Adds a reference. The caller has one already, or holds a slot of the slab, which keeps one from
/// being given up.
pub(super) fn refer_more(number: u32) {
    let before = of_number(number).references.fetch_add(1, Ordering::Relaxed);
    debug_assert!(before > 0, "a reference to nothing");
}

/// Takes a reference to the slab of an entry, if there is one.
fn refer(entry: &Entry) -> Option<NonNull<Shared>> {
    let mut references = entry.references.load(Ordering::Relaxed);
    while references > 0 {
        // Acquire pairs with the Release in `enter`.
        match entry.references.compare_exchange_weak(
            references,
            references + 1,
            Ordering::Acquire,
            Ordering::Relaxed,
        ) {
            Ok(_) => return NonNull::new(entry.core.load(Ordering::Relaxed)),
            Err(now) => references = now,
        }
    }
    None
}

/// The core of a number.
///
/// # Safety
/// The caller has a reference to the core, or holds a slot of the slab. The result is used only as
/// long as that lasts.
pub(super) unsafe fn core_of<'c>(number: u32) -> &'c Shared {
    let core = of_number(number).core.load(Ordering::Relaxed);
    // SAFETY: a core with a reference is alive (invariant 2).
    unsafe { &*core }
}

/// Gives up a reference. The last one destroys the core.
pub(super) fn unrefer(number: u32) {
    let entry = of_number(number);
    // Release, and Acquire for the last reference: every use of the core happens before its end.
    if entry.references.fetch_sub(1, Ordering::AcqRel) == 1 {
        let core = entry.core.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: this was the last reference, so no thread uses the core (invariant 2).
        // `Shared::make` made it as one value in its own block.
        drop(unsafe { Metadata::adopt(NonNull::new(core).expect("a referred core"), 1) });
        give_number(number);
    }
}

/// Calls `look` on every live slab, one after the other.
pub(crate) fn each(mut look: impl FnMut(&Shared)) {
    for index in 0..ISSUED.load(Ordering::Relaxed) {
        if let Some(core) = entry(index).and_then(refer) {
            // SAFETY: the reference was taken just above.
            look(unsafe { core.as_ref() });
            unrefer(number_of(index));
        }
    }
}
