//! `PoolRef`: the reference to a pool that its objects carry.

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use super::current::CURRENT;
use super::heap::{Heap, HeapId, global_alloc, global_free, global_resize};
use super::shared::Shared;
use crate::error::{AllocError, ErrorKind, Report};

/// A reference to a pool or to the global heap: eight bytes, valid on any thread, for the life of
/// the process.
///
/// - Allocation takes from the pool on the pool's own thread, while the pool exists, and otherwise
///   from the global heap. It also takes from the global heap where the address range of all pools
///   is used up or could not be reserved. If the pool's budget refuses, the allocation fails.
/// - Free and resize find the owner by the block's address, on any thread and at any time. The
///   reference plays no part in that.
///
/// So an object that is made in a pool may be sent to other threads and may outlive the pool. There
/// it grows on the global heap.
///
/// `PoolRef::default()` is [`current`]. With the cargo feature for the trait's version it is an
/// allocator for hashbrown's maps and the collections of `allocator-api2`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolRef(u64);

/// Returns the thread's current pool: the one that it entered last and has not left. Outside every
/// pool this is the global heap.
#[inline]
#[must_use]
pub fn current() -> PoolRef {
    let core = CURRENT.with(core::cell::Cell::get);
    if core.is_null() {
        return PoolRef::GLOBAL;
    }
    // SAFETY: the current core belongs to a pool, and cores are never unmapped.
    PoolRef::of(unsafe { Shared::at(core) })
}

/// Returns the program's global heap.
#[inline]
#[must_use]
pub fn global() -> PoolRef {
    PoolRef::GLOBAL
}

impl PoolRef {
    /// The program's global heap.
    pub const GLOBAL: Self = Self(0);

    #[inline]
    pub(super) fn of(core: &'static Shared) -> Self {
        Self(core.reference())
    }

    /// Returns the core if its pool exists and the calling thread owns it.
    #[inline(always)]
    fn usable(self) -> Option<&'static Shared> {
        if self.0 == 0 {
            return None;
        }
        let core = Shared::of_reference(self.0);
        // If the core carries this thread's token, no other thread changes the reference.
        (core.is_mine() && core.reference() == self.0).then_some(core)
    }

    /// The reference as a number, 0 for the global heap. For the C interface.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Makes a reference from its number.
    ///
    /// # Safety
    /// The number came from [`to_bits`](Self::to_bits), or [`is_one`](Self::is_one) returned `true`
    /// for it.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether a number is a reference to a pool that exists or existed. Searches all cores.
    #[doc(hidden)]
    #[must_use]
    pub fn is_one(bits: u64) -> bool {
        bits == 0 || Shared::is_known(bits)
    }

    /// Whether allocation takes from a pool: the pool exists, and belongs to the calling thread.
    #[inline]
    #[must_use]
    pub fn is_usable(self) -> bool {
        self.usable().is_some()
    }

    /// Allocates an uninitialised block for this layout: from the pool, or from the global heap
    /// where the pool cannot be used.
    ///
    /// # Errors
    /// When the pool's budget or the system refuses memory, or the size exceeds the address space.
    #[inline]
    pub fn try_alloc_layout(self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        match self.take_at_hand(layout) {
            Some(block) => Ok(block),
            // Matched and rebuilt: returning the call's result as it is would make the fast path
            // above return through memory too.
            None => match self.alloc_slowly(layout) {
                Ok(block) => Ok(block),
                Err(error) => Err(error),
            },
        }
    }

    /// Takes a free block if the fast path finds one; otherwise the caller takes its slow path. For
    /// the C interface, which has a slow path of its own.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn take_at_hand(self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: `usable` returns a core only to the thread that owns it.
        self.usable().and_then(|core| unsafe { core.alloc_free(layout) })
    }

    /// As [`take_at_hand`](Self::take_at_hand), from the thread's current pool.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn take_in_current(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: null or a pool's core, which is never unmapped; a thread that has entered a pool
        // owns it.
        unsafe { CURRENT.with(core::cell::Cell::get).as_ref()?.alloc_free(layout) }
    }

    #[inline(never)]
    fn alloc_slowly(self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        match self.usable() {
            // SAFETY: `usable` returns a core only to the thread that owns it.
            Some(core) => match unsafe { core.alloc::<Report>(layout) } {
                Err(error) if is_out_of_addresses(error) => global_alloc(layout),
                done => done,
            },
            None => global_alloc(layout),
        }
    }

    /// Frees a block of any pool or of the global heap, on any thread and at any time.
    ///
    /// On the owning thread the block goes back to its pool at once. On another thread it goes on
    /// the pool's remote list by one atomic exchange. If the freeing thread is inside a pool of its
    /// own, blocks of up to 32 KiB are sent in batches of 32 that belong to the same pool. A
    /// smaller batch is sent when the thread frees a block of a third pool, when an allocation
    /// takes the slow path, or when the thread leaves its own pool.
    ///
    /// # Safety
    /// The block came from a `PoolRef`, a [`LocalPool`](crate::LocalPool), or the program's global
    /// allocator, with this layout (or was resized to it), has not been freed, and is not used
    /// again.
    #[inline]
    pub unsafe fn free_anywhere(block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe {
            match Shared::of(block) {
                Some(core) => free_pooled(core, block, layout),
                None => global_free(block, layout),
            }
        }
    }

    /// Resizes a block. The contents are kept up to the smaller of the two sizes. The block stays
    /// with its owner if that is the global heap or a pool of the calling thread. Otherwise the
    /// contents are copied to a block that this reference allocates, and the old block is freed.
    ///
    /// # Errors
    /// When memory is not available. The block is then unchanged.
    ///
    /// # Safety
    /// As for [`free_anywhere`](Self::free_anywhere), with the old layout. The new size must be
    /// valid for the alignment.
    pub unsafe fn try_resize(
        self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: passed on to the caller.
        unsafe {
            let Some(owner) = Shared::of(block) else {
                return global_resize(block, old, new_size);
            };
            if owner.is_mine() {
                match owner.resize(block, old, new_size) {
                    Err(error) if is_out_of_addresses(error) => {}
                    done => return done,
                }
            }
            let fresh =
                self.try_alloc_layout(Layout::from_size_align_unchecked(new_size, old.align()))?;
            fresh.copy_from_nonoverlapping(block, old.size().min(new_size));
            free_pooled(owner, block, old);
            Ok(fresh)
        }
    }
}

/// Whether the pools have no memory while the global heap may have some: the address range of all
/// pools is used up, or the process cannot reserve or map memory for it.
fn is_out_of_addresses(error: AllocError) -> bool {
    matches!(error.kind(), ErrorKind::SourceRefused | ErrorKind::System(_))
}

/// Frees a block of a pool.
///
/// # Safety
/// The block belongs to this core, was allocated with a layout of this size class, and has not been
/// freed.
#[inline(always)]
pub(super) unsafe fn free_pooled(core: &Shared, block: NonNull<u8>, layout: Layout) {
    // SAFETY: passed on to the caller. The current core belongs to this thread.
    unsafe {
        if core.is_current() {
            core.free(block, layout);
        } else {
            Shared::free_elsewhere(block, layout.size(), layout.align(), core);
        }
    }
}

impl Default for PoolRef {
    /// Returns the [`current`] pool.
    #[inline]
    fn default() -> Self {
        current()
    }
}

impl fmt::Debug for PoolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            f.write_str("PoolRef(global)")
        } else {
            write!(f, "PoolRef({:#x})", self.0)
        }
    }
}

// SAFETY: blocks of a pool or of the global heap stay valid until they are freed, wherever the
// reference is.
unsafe impl Heap for PoolRef {
    #[inline]
    fn alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.try_alloc_layout(layout)
    }

    #[inline]
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { Self::free_anywhere(block, layout) }
    }

    fn id(&self) -> HeapId {
        HeapId(self.0)
    }

    unsafe fn realloc(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, new_size);
        Layout::from_size_align(new_size, old.align()).map_err(|_| overflow)?;
        // SAFETY: passed on to the caller.
        unsafe { self.try_resize(block, old, new_size) }
    }
}
