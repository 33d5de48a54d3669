//! The chunks of a trial's memory: one range of addresses, with what is known of each chunk beside it.
//!
//! Invariants:
//!
//! 1. `BASE`, `HEADERS` and `BLOCK_SIZES` are set once, before any chunk is taken, and what they point to
//!    stays reserved: `REGION` bytes, a [`ChunkHeader`] for each chunk, and a byte for each
//!    [`GRANULE`] of each chunk.
//! 2. A chunk's number is below `TAKEN`; it was handed out once, to the memory that is its `owner`.
//!    Only the thread of the owner accesses the header, except `remote`, and except that any thread
//!    that has a block of the chunk may read `owner`, `size` and `route`, which change only while no
//!    block is live.

use crate::spin_lock::SpinLock;
use crate::sys;
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Bytes of all chunks.
const REGION: usize = 4 << 30;
/// Bytes of a chunk.
pub const CHUNK: usize = 64 << 10;
const CHUNKS: usize = REGION / CHUNK;
/// The alignment of blocks, and the unit of their sizes: as malloc's.
pub const GRANULE: usize = 16;
const GRANULES_OF_CHUNK: usize = CHUNK / GRANULE;
/// In the place of a size in granules that is too large for one byte, and is in the next two.
const LONG: usize = 255;
/// The number of no chunk.
pub const NONE: u32 = 0;

/// Where no block is: every address has a distance of at least [`REGION`] from it.
const NOWHERE: usize = usize::MAX - REGION + 1;
static BASE: AtomicUsize = AtomicUsize::new(NOWHERE);
static HEADERS: AtomicPtr<ChunkHeader> = AtomicPtr::new(core::ptr::null_mut());
static BLOCK_SIZES: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// The number of chunks taken. The first is none, so that 0 is the number of no chunk.
static TAKEN: AtomicU32 = AtomicU32::new(1);
/// The number of chunks that have memory.
static PROVIDED: AtomicU32 = AtomicU32::new(0);
/// Chunks that get memory at once: whole pages of headers.
const STEP: usize = 256;

/// What is known of a chunk.
#[repr(C, align(64))]
pub struct ChunkHeader {
    /// The memory that the chunk belongs to.
    pub owner: *mut c_void,
    /// The bytes of each block in a list's chunk; 0 in an arena's.
    pub size: u32,
    /// The route of its blocks.
    pub route: u8,
    /// Blocks of an arena that were handed out since the chunk was last empty.
    pub allocated: u32,
    /// Those that the owner freed.
    pub freed: u32,
    /// Those that other threads freed.
    pub remote: AtomicU32,
    /// The chunk before it in a list of chunks.
    pub previous: u32,
    /// The chunk after it.
    pub next: u32,
}

/// A part of a chunk in which blocks are handed out one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Bump {
    /// The address of the next block.
    pub position: usize,
    /// The end of the chunk.
    pub end: usize,
    /// The chunk.
    pub chunk: u32,
}

impl Bump {
    /// All of a chunk; nothing if it is [`NONE`].
    pub fn of(chunk: u32) -> Self {
        match chunk {
            NONE => Self { position: 0, end: 0, chunk },
            _ => Self { position: start_of(chunk), end: start_of(chunk) + CHUNK, chunk },
        }
    }

    /// The next `bytes`; `None` if there are not as many.
    #[inline(always)]
    pub fn take(&mut self, bytes: usize) -> Option<*mut u8> {
        let block = self.position;
        if self.end - block < bytes {
            return None;
        }
        self.position += bytes;
        Some(block as *mut u8)
    }
}

/// Reserves the addresses. Returns false if there are not as many.
pub fn map() -> bool {
    let reserved = (
        sys::reserve(REGION),
        sys::reserve(CHUNKS * size_of::<ChunkHeader>()),
        sys::reserve(CHUNKS * GRANULES_OF_CHUNK),
    );
    let (Ok(region), Ok(headers), Ok(sizes)) = reserved else { return false };
    HEADERS.store(headers.cast(), Ordering::Relaxed);
    BLOCK_SIZES.store(sizes, Ordering::Relaxed);
    // Stored last: a thread that holds a block has synchronised with this store, as with the block.
    BASE.store(region as usize, Ordering::Release);
    true
}

/// Whether a block is in the region.
#[inline(always)]
pub fn owns(block: *mut u8) -> bool {
    (block as usize).wrapping_sub(BASE.load(Ordering::Relaxed)) < REGION
}

/// The chunk that a block is in.
#[inline(always)]
pub fn chunk_of(block: *mut u8) -> u32 {
    ((block as usize - BASE.load(Ordering::Relaxed)) / CHUNK) as u32
}

/// What is known of a chunk.
#[inline(always)]
pub fn header_of(chunk: u32) -> *mut ChunkHeader {
    // SAFETY: the number is below `CHUNKS` (invariants 1 and 2).
    unsafe { HEADERS.load(Ordering::Relaxed).add(chunk as usize) }
}

/// The route of a block.
///
/// # Safety
///
/// It is a live block of this memory.
pub unsafe fn route_of(block: *mut u8) -> u8 {
    // SAFETY: the block's chunk has a header (both invariants).
    unsafe { (*header_of(chunk_of(block))).route }
}

/// The address of a chunk.
pub fn start_of(chunk: u32) -> usize {
    BASE.load(Ordering::Relaxed) + chunk as usize * CHUNK
}

/// The byte for the granule at which a block begins.
fn size_at(block: *mut u8) -> *mut u8 {
    let granule = (block as usize - BASE.load(Ordering::Relaxed)) / GRANULE;
    // SAFETY: the block is in the region (invariant 1).
    unsafe { BLOCK_SIZES.load(Ordering::Relaxed).add(granule) }
}

/// Whether the memory is mapped.
pub fn is_mapped() -> bool {
    BASE.load(Ordering::Relaxed) != NOWHERE
}

/// The number of a chunk that was never used; [`NONE`] if there is no memory left.
pub fn take_new() -> u32 {
    let _lock = LOCK.take();
    let chunk = TAKEN.load(Ordering::Relaxed);
    let provided = PROVIDED.load(Ordering::Relaxed);
    if chunk >= provided && !provide(provided) {
        return NONE;
    }
    TAKEN.store(chunk + 1, Ordering::Relaxed);
    chunk
}

/// Provides memory for the next chunks, from this number on.
#[cold]
fn provide(from: u32) -> bool {
    let from_chunk = from as usize;
    if from_chunk + STEP > CHUNKS {
        return false;
    }
    let sizes = BLOCK_SIZES.load(Ordering::Relaxed);
    // SAFETY: each is a part of its range, of whole pages. No thread has its chunks yet.
    let provided = unsafe {
        sys::provide(start_of(from) as *mut u8, STEP * CHUNK)
            .and(sys::provide(header_of(from).cast(), STEP * size_of::<ChunkHeader>()))
            .and(sys::provide(sizes.add(from_chunk * GRANULES_OF_CHUNK), STEP * GRANULES_OF_CHUNK))
    };
    if provided.is_ok() {
        PROVIDED.store((from_chunk + STEP) as u32, Ordering::Relaxed);
    }
    provided.is_ok()
}

/// For what several threads change: the number of chunks, and batches of blocks.
pub static LOCK: SpinLock = SpinLock::new();

/// Stores the size of a block in an arena's chunk.
///
/// # Safety
///
/// The block is the calling thread's, and has this size, which is a multiple of [`GRANULE`].
#[inline(always)]
pub unsafe fn set_size(block: *mut u8, bytes: usize) {
    let (size, count) = (size_at(block), bytes / GRANULE);
    // SAFETY: a block has a byte for each of its granules. One of `LONG` granules has more than three.
    unsafe {
        size.write(count.min(LONG) as u8);
        if count >= LONG {
            size.add(1).cast::<u16>().write_unaligned(count as u16);
        }
    }
}

/// Bytes of a block that may be used.
///
/// # Safety
///
/// It is a live block of this memory.
pub unsafe fn usable_size(block: *mut u8) -> usize {
    // SAFETY: the block's chunk has a header, and the block a size (invariants 1 and 2).
    unsafe {
        match (*header_of(chunk_of(block))).size as usize {
            0 => {
                let stored = size_at(block);
                match stored.read() as usize {
                    LONG => stored.add(1).cast::<u16>().read_unaligned() as usize * GRANULE,
                    short => short * GRANULE,
                }
            }
            size => size,
        }
    }
}
