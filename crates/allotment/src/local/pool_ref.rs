//! `PoolRef`: what an object of a pool knows of it.

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use super::core::Core;
use super::current::CURRENT;
use super::heap::{Heap, HeapId, global_alloc, global_free, global_resize};
use crate::error::{AllocError, ErrorKind, Report};

/// A pool, or the global heap, as an object knows it: eight bytes, good on any thread and for ever.
///
/// - Allocating takes from the pool on the pool's own thread while it lives, else from the global heap; from there also where the
///   range of addresses that all pools share is used up, or could not be had. What a budget refuses stays refused.
/// - Freeing and growing find the owner by the block's address, whatever the reference says; from any thread, at any time.
///
/// So what is made in a pool may be sent to other threads and outlive it; there it grows on the global heap.
///
/// `PoolRef::default()` is [`current`]. With the feature for its version of the trait it is an allocator for hashbrown's maps and the
/// collections of `allocator-api2`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolRef(u64);

/// The pool that this thread entered last and has not left, or the global heap.
#[inline]
#[must_use]
pub fn current() -> PoolRef {
    let core = CURRENT.with(core::cell::Cell::get);
    if core.is_null() {
        return PoolRef::GLOBAL;
    }
    // SAFETY: the current core is that of a pool, which stays.
    PoolRef::of(unsafe { Core::at(core) })
}

/// The program's global heap.
#[inline]
#[must_use]
pub fn global() -> PoolRef {
    PoolRef::GLOBAL
}

impl PoolRef {
    /// The program's global heap.
    pub const GLOBAL: Self = Self(0);

    #[inline]
    pub(super) fn of(core: &'static Core) -> Self {
        Self(core.reference())
    }

    /// The core, if its pool lives and the calling thread has it.
    #[inline(always)]
    fn usable(self) -> Option<&'static Core> {
        if self.0 == 0 {
            return None;
        }
        let core = Core::of_reference(self.0);
        // If the thread is ours, nobody else changes the reference.
        (core.is_mine() && core.reference() == self.0).then_some(core)
    }

    /// The number that it is, 0 for the global heap: for the C interface.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The reference that a number was.
    ///
    /// # Safety
    /// It came from [`to_bits`](Self::to_bits), or [`is_one`](Self::is_one) said so.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether a number is a reference to a pool that there is or was. Looks through all of them.
    #[doc(hidden)]
    #[must_use]
    pub fn is_one(bits: u64) -> bool {
        bits == 0 || Core::is_known(bits)
    }

    /// Whether allocating takes from a pool: it lives, and is the calling thread's.
    #[inline]
    #[must_use]
    pub fn is_usable(self) -> bool {
        self.usable().is_some()
    }

    /// A block for this layout, uninitialised: of the pool, or the global heap's where the pool can't be used.
    ///
    /// # Errors
    /// When the pool's budget or the system refuses; a size beyond the address space.
    #[inline]
    pub fn try_alloc_layout(self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        match self.take_at_hand(layout) {
            Some(block) => Ok(block),
            // Taken apart and put together again: a result in memory would cost the way above a detour through it.
            None => match self.alloc_slowly(layout) {
                Ok(block) => Ok(block),
                Err(error) => Err(error),
            },
        }
    }

    /// A block that is at hand, if there is one; else there is more to do. For the C interface, whose slow path is its own.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn take_at_hand(self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the calling thread has it.
        self.usable().and_then(|core| unsafe { core.alloc_free(layout) })
    }

    /// The same of the pool that the thread is in.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn take_in_current(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: a pool's core, which stays; a thread that has entered a pool owns it.
        unsafe { CURRENT.with(core::cell::Cell::get).as_ref()?.alloc_free(layout) }
    }

    #[inline(never)]
    fn alloc_slowly(self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        match self.usable() {
            // SAFETY: the calling thread has it.
            Some(core) => match unsafe { core.alloc::<Report>(layout) } {
                Err(error) if is_out_of_addresses(error) => global_alloc(layout),
                done => done,
            },
            None => global_alloc(layout),
        }
    }

    /// Frees a block of whatever pool, or of the global heap; on any thread, at any time.
    ///
    /// On the owner's thread no more than a comparison dearer than the pool's own free. Elsewhere the block goes on the owner's remote list
    /// by one exchange; if the freeing thread is in a pool itself, 32 of one owner's together, or fewer when it leaves.
    ///
    /// # Safety
    /// The block came from a `PoolRef`, a [`LocalPool`](crate::LocalPool), or the program's global allocator, with this layout (or was
    /// resized to it), was not freed since, and is not used any more.
    #[inline]
    pub unsafe fn free_anywhere(block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe {
            match Core::of(block) {
                Some(core) => free_pooled(core, block, layout),
                None => global_free(block, layout),
            }
        }
    }

    /// Gives a block another size; its first bytes stay. With its owner where that is the global heap or a pool of the calling thread;
    /// else it is copied to where this reference allocates, and freed.
    ///
    /// # Errors
    /// When no memory is to be had; the block is then as it was.
    ///
    /// # Safety
    /// As for [`free_anywhere`](Self::free_anywhere), of the old block; the new size is valid for the alignment.
    pub unsafe fn try_resize(
        self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: passed on to the caller.
        unsafe {
            let Some(owner) = Core::of(block) else {
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

/// Whether pools have no memory, while the global heap may have some: the range of all pools is used up, or the process may
/// have none.
fn is_out_of_addresses(error: AllocError) -> bool {
    matches!(error.kind(), ErrorKind::SourceRefused | ErrorKind::System(_))
}

/// Frees a block of a pool.
///
/// # Safety
/// It is this core's, of a layout of this size class, live until now.
#[inline(always)]
pub(super) unsafe fn free_pooled(core: &Core, block: NonNull<u8>, layout: Layout) {
    // SAFETY: passed on to the caller. The current core is one of the thread's own.
    unsafe {
        if core.is_current() {
            core.free(block, layout);
        } else {
            Core::free_elsewhere(block, layout.size(), layout.align(), core);
        }
    }
}

impl Default for PoolRef {
    /// The [`current`] one.
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

// SAFETY: blocks of a pool and of the global heap stay until they are freed, wherever the reference is.
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
