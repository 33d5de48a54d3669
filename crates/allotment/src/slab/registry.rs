//! The numbers of live slabs, and the slab that each number stands for.
//!
//! A slab's number is the index of its caches in each thread's table, and the number in the tag of
//! its pages. So an address leads to a slab. Numbers are even; the odd number that follows is the
//! index of the thread's cache for long-lived objects. Numbers are dense and reused. 0 is never a
//! slab's number: it is the tag of memory that belongs to no slab.
//!
//! This file knows a slab by its address only; `shared.rs` knows the type.
//!
//! # Invariants
//!
//! 1. Entries are never unmapped.
//! 2. A number is used again only after its slab was destroyed. References follow the rules of
//!    `references.rs`.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::references::References;
use super::tags::SLAB_NUMBERS;
use crate::error::{AllocError, ErrorKind};
use crate::memory::index_stack::{IndexStack, Links};
use crate::memory::system_array::SystemArray;

/// The number of entries in the first bucket. Each further bucket has twice as many.
const FIRST_BUCKET: u32 = 64;
const BUCKETS: usize = 24;

/// The entry of one slab.
struct SlabEntry {
    references: References<()>,
    /// The link on the stack of vacant entries.
    next: AtomicU32,
}

static ENTRIES: [AtomicPtr<SlabEntry>; BUCKETS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS];
static ISSUED: AtomicU32 = AtomicU32::new(0);
static VACANT: IndexStack = IndexStack::new();

/// The links of the entries.
struct EntryLinks;

impl Links for EntryLinks {
    fn next(&self, index: u32) -> &AtomicU32 {
        &entry(index).expect("an issued entry stays").next
    }
}

/// The bucket that holds an index, and the position in that bucket.
fn bucket_of(index: u32) -> (usize, usize) {
    let bucket = (index / FIRST_BUCKET + 1).ilog2();
    (bucket as usize, (index - FIRST_BUCKET * ((1 << bucket) - 1)) as usize)
}

const fn index_of(number: u32) -> u32 {
    number / 2 - 1
}

const fn number_of(index: u32) -> u32 {
    (index + 1) * 2
}

fn entry(index: u32) -> Option<&'static SlabEntry> {
    let (bucket, position) = bucket_of(index);
    // Acquire pairs with the Release in `take_number`.
    let bucket = ENTRIES.get(bucket)?.load(Ordering::Acquire);
    // SAFETY: null, or `FIRST_BUCKET << bucket` entries that stay (invariant 1).
    (!bucket.is_null()).then(|| unsafe { &*bucket.add(position) })
}

/// The references to the slab of a number in use.
fn references(number: u32) -> &'static References<()> {
    &entry(index_of(number)).expect("a number in use was issued").references
}

/// Takes a number for a slab that is about to be made.
pub(super) fn take_number() -> Result<u32, AllocError> {
    if let Some(index) = VACANT.pop(&EntryLinks) {
        return Ok(number_of(index));
    }
    let mut index = ISSUED.load(Ordering::Relaxed);
    loop {
        let (bucket, _) = bucket_of(index);
        let overflow = AllocError::new(ErrorKind::SizeOverflow, 0);
        if number_of(index) + 1 >= SLAB_NUMBERS {
            return Err(overflow);
        }
        let start = ENTRIES.get(bucket).ok_or(overflow)?;
        if entry(index).is_none() {
            let made = SystemArray::new((FIRST_BUCKET as usize) << bucket, |_| SlabEntry {
                references: References::none(),
                next: AtomicU32::new(0),
            })?;
            let fresh = made.as_ptr().as_ptr();
            // Release pairs with the Acquire in `entry`.
            let set = start.compare_exchange(
                ptr::null_mut(),
                fresh,
                Ordering::Release,
                Ordering::Relaxed,
            );
            if set.is_ok() {
                core::mem::forget(made);
            }
        }
        match ISSUED.compare_exchange_weak(index, index + 1, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Ok(number_of(index)),
            Err(now) => index = now,
        }
    }
}

/// Returns a number that stands for no slab: no slab was registered, or it was destroyed.
pub(super) fn return_number(number: u32) {
    VACANT.push(&EntryLinks, index_of(number));
}

/// Registers a slab under a number, with one reference, which belongs to the caller.
pub(super) fn register(number: u32, slab: NonNull<()>) {
    references(number).set(slab);
}

/// The slab of a number in use.
pub(super) fn slab_of(number: u32) -> *mut () {
    references(number).object()
}

/// Adds a reference to the slab of a number. The caller has one already, or holds a slot of the
/// slab, which keeps one from being released.
pub(super) fn add_reference(number: u32) {
    references(number).add();
}

/// Releases a reference. If it was the last one, returns the slab. The caller must destroy it, and
/// then return its number.
#[must_use = "the last reference's slab must be destroyed"]
pub(super) fn release_reference(number: u32) -> Option<NonNull<()>> {
    references(number).release()
}

/// Calls `visit` with the number and the address of each live slab, one after the other. Each call
/// gets a reference to its slab, which it must release.
pub(super) fn visit_live(mut visit: impl FnMut(u32, NonNull<()>)) {
    for index in 0..ISSUED.load(Ordering::Relaxed) {
        if let Some(slab) = entry(index).and_then(|entry| entry.references.try_add()) {
            visit(number_of(index), slab);
        }
    }
}
