//! The one process-wide [`ChunkCache`], and the table of mappings behind it.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::chunk_cache::{ChunkCache, MAX_MAPPINGS, Mappings};
use super::index_stack::Links;
use super::{os, tools};

struct MappingEntry {
    next: AtomicU32,
    start: AtomicPtr<u8>,
}

/// A static table of 1 MiB of addresses. Only the part in use has memory.
pub(crate) struct MappingTable;

static MAPPINGS: [MappingEntry; MAX_MAPPINGS as usize] =
    [const { MappingEntry { next: AtomicU32::new(0), start: AtomicPtr::new(ptr::null_mut()) } };
        MAX_MAPPINGS as usize];

impl Links for MappingTable {
    fn next(&self, index: u32) -> &AtomicU32 {
        &MAPPINGS[index as usize].next
    }
}

impl Mappings for MappingTable {
    fn start(&self, mapping: u32) -> NonNull<u8> {
        // Relaxed: `start` is written before the number is first pushed, and read after it was
        // popped (see index_stack.rs).
        NonNull::new(MAPPINGS[mapping as usize].start.load(Ordering::Relaxed))
            .expect("a number in use names a mapping")
    }

    fn set_start(&self, mapping: u32, start: NonNull<u8>) {
        // A mapping that is not numbered yet is not cached yet, so no fork comes before.
        static WATCHED: AtomicBool = AtomicBool::new(false);
        os::on_fork(recount_in_child, &WATCHED);
        MAPPINGS[mapping as usize].start.store(start.as_ptr(), Ordering::Relaxed);
    }

    fn capacity(&self) -> u32 {
        MAX_MAPPINGS
    }

    unsafe fn unmap(&self, start: NonNull<u8>, size: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { unmap_or_discard(start, size) };
    }

    fn now(&self) -> u64 {
        os::coarse_millis()
    }
}

/// Unmaps memory. If the kernel refuses because the process has too many mappings to split one,
/// discards the memory and loses the addresses.
///
/// # Safety
/// As for [`os::unmap`].
pub(crate) unsafe fn unmap_or_discard(start: NonNull<u8>, size: usize) {
    // Tell the tools that the memory is usable: otherwise they would still regard it as free when
    // something else is mapped there.
    tools::allow_defined(start, size);
    tools::remove_leak_root(start, size);
    // SAFETY: guaranteed by the caller.
    unsafe {
        if os::unmap(start, size).is_err() {
            let _ = os::discard(start, size);
        }
    }
}

/// Another thread of the parent may have been between the stacks and the counter. Async-signal-safe:
/// only atomics.
extern "C" fn recount_in_child() {
    CACHE.recount();
}

static CACHE: ChunkCache<MappingTable> = ChunkCache::new(MappingTable);

pub(crate) type ProcessCache = ChunkCache<MappingTable>;

/// The cache, for the sources in `memory`.
pub(crate) fn cache() -> &'static ProcessCache {
    &CACHE
}
