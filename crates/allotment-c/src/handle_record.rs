//! The part that all handles share, and the tombstones of destroyed hardened handles.
//!
//! # Invariants
//!
//! 1. A pointer in [`TOMBSTONES`] refers to the record of a destroyed handle, whose memory only
//!    [`keep_tombstone`] frees.
//! 2. Thread numbers are never reused.

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::alloc::Layout;
use std::ptr;

use crate::handle_table;

/// The part of a handle that does not depend on its allocator. The invariants of handle.rs say what
/// the fields mean.
#[repr(C)]
pub struct HandleRecord {
    pub(crate) state: AtomicU32,
    /// The number of the thread that may use an allocator of one thread, otherwise 0.
    pub(crate) owner: AtomicU64,
    /// Start of the whole allocation, and its layout.
    pub(crate) start: *mut u8,
    pub(crate) layout: Layout,
    /// Whether `handle_table` has the handle's address.
    pub(crate) in_table: bool,
    /// The name of a hardened allocator. It outlives the allocator.
    pub(crate) name: Option<Box<str>>,
}

impl HandleRecord {
    pub(crate) fn is_owned_by_this_thread(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == this_thread()
    }

    /// Frees the memory of a handle, which contains its record.
    ///
    /// # Safety
    /// The handle's value was dropped, and the handle is not used any more.
    pub(crate) unsafe fn free_memory(record: *mut Self) {
        // SAFETY: passed on to the caller; the memory was allocated with this layout.
        unsafe {
            let (start, layout) = ((*record).start, (*record).layout);
            drop((*record).name.take());
            std::alloc::dealloc(start, layout);
        }
    }
}

thread_local! {
    static THREAD_NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread's number. It is not zero, and no other thread ever has it.
#[inline]
pub(crate) fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    THREAD_NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// The number of destroyed handles that are kept, so that their use is detected.
pub(crate) const MAX_TOMBSTONES: usize = 4096;

/// A ring: a new tombstone replaces the oldest one.
static TOMBSTONES: [AtomicPtr<HandleRecord>; MAX_TOMBSTONES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_TOMBSTONES];
static NEXT_TOMBSTONE: AtomicUsize = AtomicUsize::new(0);

/// Keeps the memory of a destroyed handle as a tombstone, and frees that of the oldest one.
///
/// # Safety
/// The caller does not free the handle's memory, and its value was dropped.
#[cold]
#[inline(never)]
pub(crate) unsafe fn keep_tombstone(record: *mut HandleRecord) {
    let index = NEXT_TOMBSTONE.fetch_add(1, Ordering::Relaxed) % MAX_TOMBSTONES;
    let oldest = TOMBSTONES[index].swap(record, Ordering::AcqRel);
    if !oldest.is_null() {
        // SAFETY: this thread took the tombstone out of the ring (invariant 1).
        unsafe {
            handle_table::remove((*oldest).start.addr());
            HandleRecord::free_memory(oldest);
        }
    }
}
