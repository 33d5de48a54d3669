//! The one process-wide [`ChunkCache`], the process's small chunks, and the tables behind them.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::chunk_cache::{ChunkCache, MAX_MAPPINGS, Mappings, WarmChunk};
use super::index_stack::Links;
use super::layout::HUGE_PAGE;
use super::small_chunks::{
    CHUNK_BITS, CLASS_SHIFT, ChunkRange, RangeId, RangeTable, SMALL_CLASSES, SmallChunks, is_small,
};
use super::table_slot::{MappedTable, TableSlot};
use super::{first_touch, os, refused_unmaps, tools};
use crate::error::AllocError;

struct CachedMapping {
    next: AtomicU32,
    start: AtomicPtr<u8>,
}

/// A static table of 1 MiB of addresses. Only the part in use has memory.
pub(crate) struct MappingTable;

static MAPPINGS: [CachedMapping; MAX_MAPPINGS as usize] =
    [const { CachedMapping { next: AtomicU32::new(0), start: AtomicPtr::new(ptr::null_mut()) } };
        MAX_MAPPINGS as usize];

impl Links for MappingTable {
    fn next(&self, index: u32) -> &AtomicU32 {
        if is_small(index) { SMALL.table().next(index) } else { &MAPPINGS[index as usize].next }
    }
}

impl Mappings for MappingTable {
    fn start(&self, mapping: u32) -> NonNull<u8> {
        if is_small(mapping) {
            let (id, chunk) = RangeId::of_number(mapping);
            return SMALL.table().range(id).start_of(id, chunk);
        }
        // Relaxed: `start` is written before the number is first pushed, and read after it was
        // popped (see index_stack.rs).
        NonNull::new(MAPPINGS[mapping as usize].start.load(Ordering::Relaxed))
            .expect("a number in use names a mapping")
    }

    fn set_start(&self, mapping: u32, start: NonNull<u8>) {
        watch_forks();
        MAPPINGS[mapping as usize].start.store(start.as_ptr(), Ordering::Relaxed);
    }

    fn capacity(&self) -> u32 {
        MAX_MAPPINGS
    }

    unsafe fn unmap(&self, chunk: WarmChunk, size: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if is_small(chunk.mapping) {
                SMALL.release(chunk.mapping);
            } else {
                unmap_or_discard(chunk.start, size);
            }
        }
    }

    fn now(&self) -> u64 {
        os::coarse_millis()
    }
}

/// Unmaps memory. If the kernel refuses because the process has too many mappings to split one, the
/// memory goes back, and the addresses follow later if they can (`refused_unmaps.rs`).
///
/// # Safety
/// As for [`os::unmap`].
pub(crate) unsafe fn unmap_or_discard(start: NonNull<u8>, size: usize) {
    // Tell the tools that the memory is usable: otherwise they would still regard it as free when
    // something else is mapped there.
    tools::allow_defined(start, size);
    tools::remove_leak_root(start, size);
    // SAFETY: guaranteed by the caller.
    unsafe { refused_unmaps::unmap(start, size) };
}

/// Has children made by fork count again. Called before a chunk gets its number, so before any
/// chunk is cached.
fn watch_forks() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    // If that fails, a child may recycle less than it could until the next call registers it.
    let _ = os::on_fork(recount_in_child, &REGISTERED);
}

/// Another thread of the parent may have been between the stacks and the counter.
/// Async-signal-safe: only atomics.
extern "C" fn recount_in_child() {
    CACHE.recount();
}

static CACHE: ChunkCache<MappingTable> = ChunkCache::new(MappingTable);

pub(crate) type ProcessCache = ChunkCache<MappingTable>;

/// The cache, for the sources in `memory`.
pub(crate) fn cache() -> &'static ProcessCache {
    &CACHE
}

static SMALL: SmallChunks<DescriptorTables> =
    SmallChunks::new(DescriptorTables { tables: [const { TableSlot::empty() }; TABLES] });

/// The small chunks of the process, for the sources in `memory`.
pub(crate) fn small_chunks() -> &'static SmallChunks<DescriptorTables> {
    &SMALL
}

/// The bits of a small chunk's number that select an entry of a table of descriptors.
const NUMBER_BITS: u32 = 16;
const RANGES: usize = 1 << (NUMBER_BITS - CHUNK_BITS);
const TABLES: usize = (SMALL_CLASSES + 1) << (CLASS_SHIFT - NUMBER_BITS);

/// Descriptors of ranges. All-zero bytes are valid.
#[repr(C)]
struct Descriptors {
    /// The links of the ranges' chunks, for the stacks of the cache.
    next: [AtomicU32; 1 << NUMBER_BITS],
    ranges: [ChunkRange; RANGES],
}

/// The tables of descriptors, by the higher bits of the numbers. A table is mapped before the first
/// of its ranges, and never unmapped. Only the part in use has memory.
pub(crate) struct DescriptorTables {
    tables: [TableSlot<Descriptors>; TABLES],
}

impl DescriptorTables {
    #[inline]
    fn table(&self, number: u32) -> *const Descriptors {
        let table = self.tables[(number >> NUMBER_BITS) as usize].get();
        debug_assert!(!table.is_null(), "a number in use has a table");
        table
    }

    /// The link of a small chunk.
    #[inline]
    fn next(&self, number: u32) -> &AtomicU32 {
        let entry = number as usize & ((1 << NUMBER_BITS) - 1);
        // SAFETY: `prepare` mapped the table before there was any chunk with this number, and it is
        // never unmapped. The entry is inside the array.
        unsafe { &*(&raw const (*self.table(number)).next).cast::<AtomicU32>().add(entry) }
    }
}

impl RangeTable for DescriptorTables {
    fn range(&self, id: RangeId) -> &ChunkRange {
        let table = self.table(id.number(0));
        // SAFETY: as in `next`.
        unsafe { &*(&raw const (*table).ranges).cast::<ChunkRange>().add(id.index % RANGES) }
    }

    fn prepare(&self, id: RangeId) -> Result<(), AllocError> {
        let table = &self.tables[(id.number(0) >> NUMBER_BITS) as usize];
        table.get_or_install(|| MappedTable::new(1)).map(|_| ())
    }

    fn map(&self, bytes: usize) -> Result<NonNull<u8>, AllocError> {
        watch_forks();
        let start = os::map(bytes, 1)?;
        if bytes >= HUGE_PAGE {
            // In a huge page, a chunk in use would keep the memory of its free neighbours.
            let _ = os::advise_small(start, bytes);
        } else {
            // The kernel may join it to a larger mapping.
            first_touch::refuse_huge(start, bytes);
        }
        tools::add_leak_root(start, bytes);
        tools::forbid(start, bytes);
        Ok(start)
    }

    unsafe fn unmap(&self, start: NonNull<u8>, bytes: usize) -> bool {
        tools::allow_defined(start, bytes);
        tools::remove_leak_root(start, bytes);
        // SAFETY: guaranteed by the caller.
        let unmapped = unsafe { os::unmap(start, bytes) }.is_ok();
        if !unmapped {
            tools::add_leak_root(start, bytes);
        }
        unmapped
    }

    unsafe fn discard(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if os::discard(start, bytes).is_err() {
                // Possible for locked memory only. A free chunk must read zeros.
                tools::allow_defined(start, bytes);
                start.write_bytes(0, bytes);
            }
        }
        tools::forbid(start, bytes);
    }
}
