//! Sources of memory, and how a chunk is taken from a source and given back.
//!
//! # Invariants
//!
//! 1. A block that a source returned belongs to the taker alone. Its `size` bytes are valid and
//!    writable, at the requested alignment, until the block is given back to the same source with
//!    the same size.
//! 2. A chunk stores its mapping number (`NIL` for none). It goes back through the source
//!    that it came from. So a recycled chunk is always one of this library's own anonymous
//!    mappings.
//!
//! | file | what it holds |
//! |---|---|
//! | `custom` | sources that the program implements |
//! | `mmap` | the default source, `Mmap`; it calls `os/linux/mappings.rs` |
//! | `shared` | any source, and how chunks are taken from it |
//! | `release_batch` | how chunks are released |
//! | `shared_without_mmap` | replaces the last three in a build without the system's mappings |

mod custom;
#[cfg(system_memory)]
mod mmap;
#[cfg(system_memory)]
mod release_batch;
#[cfg(system_memory)]
mod shared;
#[cfg(not(system_memory))]
mod shared_without_mmap;

use core::alloc::Layout;
use core::ptr::NonNull;

use super::malloc;
use crate::error::{AllocError, ErrorKind};

#[cfg(system_memory)]
pub use self::mmap::Mmap;
#[cfg(system_memory)]
pub use self::shared::SharedSource;
#[cfg(not(system_memory))]
pub use self::shared_without_mmap::SharedSource;

/// A place that memory comes from, in pieces of one page or more. You can implement your own.
///
/// The library asks a source for whole chunks and ranges, never for single objects. It calls the
/// source from every thread that uses an allocator on it.
///
/// # Safety
/// - A block returned by [`acquire`](Source::acquire) is valid for reads and writes of
///   `layout.size()` bytes, is aligned to `layout.align()`, overlaps no other memory in use, and
///   stays so until it is released.
/// - The source's calls and its drop don't unwind. They use no allocator that is on this source,
///   and no global allocator that is built on one.
/// - [`paged`](Source::paged) and [`is_inherited`](Source::is_inherited) always return the same
///   answer. `is_inherited` returns `false` if a child made by fork does not have the memory. The
///   source then does in the child what is said there.
/// - On a platform without these two calls ([platforms](crate#platforms)), a child made by fork has
///   its own copy of the memory.
pub unsafe trait Source: Send + Sync {
    /// The kind of source in one word, for reports.
    fn name(&self) -> &str;

    /// Takes a block. Its bytes are zero if [`zeroed`](Source::zeroed) returns `true`; otherwise
    /// they can have any value.
    ///
    /// # Errors
    /// If the source has no such block. The source must then be as it was before the call.
    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError>;

    /// Gives a block back.
    ///
    /// # Safety
    /// The block came from this source's `acquire` with this layout, is released once, and nothing
    /// refers to it.
    unsafe fn release(&self, block: NonNull<u8>, layout: Layout);

    /// Whether every acquired block is filled with zeros.
    fn zeroed(&self) -> bool {
        false
    }

    /// Whether a child made by fork has its own copy of the memory, as with private mappings. If
    /// not, an allocator on this source neither reads its chunks nor gives them back in the child,
    /// and takes no others ([`ErrorKind::ForkedChild`]). The same holds for allocators that the child
    /// makes on a [`SharedSource`] that it inherited.
    ///
    /// The source must ensure that an access to the memory faults in the child. It is not enough to
    /// exclude the memory from forks: the addresses must also be reserved in the child before
    /// anything else can be mapped there.
    ///
    /// A [`SharedSource`] belongs to the process that made it. If the child inherits an `Arc` of the
    /// source and makes a [`SharedSource`] from that, the library calls
    /// [`acquire`](Source::acquire) or [`reserve`](PagedSource::reserve) in the child. They must then
    /// return an error, such as [`ErrorKind::ForkedChild`], or memory of the child's own that
    /// satisfies the contract. They can't wait for locks that threads of the parent may hold at the
    /// fork. The library releases only blocks that were acquired in the same process.
    #[cfg(system_memory)]
    fn is_inherited(&self) -> bool {
        true
    }

    /// This source as a [`PagedSource`], if it can commit memory page by page. From a paged source,
    /// a slab reserves a few large ranges. From any other source, it acquires and releases each
    /// page by itself.
    #[cfg(system_memory)]
    fn paged(&self) -> Option<&dyn PagedSource> {
        None
    }
}

/// A source that lends addresses first, and commits and decommits the memory behind them page by
/// page.
///
/// # Safety
/// A reserved range overlaps no other memory in use until it is returned. Each part of it that was
/// committed, and not decommitted after that, is valid for reads and writes. The calls don't
/// unwind.
#[cfg(system_memory)]
pub unsafe trait PagedSource: Source {
    /// Reserves a range of addresses: whole hardware pages, at `layout.align()`.
    ///
    /// # Errors
    /// If there is no such range. The source must then be as it was before the call.
    fn reserve(&self, layout: Layout) -> Result<NonNull<u8>, AllocError>;

    /// Commits memory behind whole hardware pages of a reserved range.
    ///
    /// # Errors
    /// If there is no memory. The range must then be as it was before the call.
    ///
    /// # Safety
    /// The pages lie in a range that was reserved and not returned, and are not committed.
    unsafe fn commit(&self, start: NonNull<u8>, len: usize) -> Result<(), AllocError>;

    /// Decommits the memory of whole hardware pages. The addresses stay reserved.
    ///
    /// # Safety
    /// The pages were committed, and nothing refers to their bytes.
    unsafe fn decommit(&self, start: NonNull<u8>, len: usize);

    /// Returns a range.
    ///
    /// # Safety
    /// The range was reserved with this layout, is returned once, and none of it is committed.
    unsafe fn unreserve(&self, start: NonNull<u8>, layout: Layout);
}

/// The system's malloc (`malloc`, `posix_memalign`), independent of the program's global allocator.
/// Without the feature `std`, it is the program's global allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Malloc;

// SAFETY: malloc keeps this contract.
unsafe impl Source for Malloc {
    fn name(&self) -> &str {
        "malloc"
    }

    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if layout.size() == 0 {
            return Err(AllocError::new(ErrorKind::SourceRefused, 0));
        }
        malloc::alloc(layout).ok_or(AllocError::new(ErrorKind::SourceRefused, layout.size()))
    }

    unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { malloc::free(block, layout) }
    }
}
