//! The patterns of free bytes and red zones, and what they show.
//!
//! The invariants are those of `ledger.rs`.

use core::alloc::Layout;
use core::num::NonZeroUsize;
use core::ptr::NonNull;

use super::{CheckedAllocator, Ledger};
use crate::checked::misuse::Misuse;
use crate::checked::mode::CheckMode;
use crate::error::AllocError;
use crate::memory::{segment_map, tools};
use crate::statistics::Record;

/// Fill byte of free memory in hardened mode.
const FREE: u8 = 0xF5;
/// Fill byte of red zones in hardened mode.
const ZONE: u8 = 0xC7;

impl Ledger {
    /// Prepares a chunk that was just taken: behind its header of `header` bytes it is free.
    /// `registered` chunks can be found by address.
    ///
    /// # Safety
    /// The chunk has `size` bytes, more than `header`, and nothing uses them yet.
    pub(crate) unsafe fn chunk_taken(
        &self,
        record: &'static Record,
        start: NonNull<u8>,
        size: usize,
        header: usize,
        registered: bool,
    ) -> Result<(), AllocError> {
        if registered {
            let owner = core::ptr::from_ref(record).expose_provenance();
            let owner = NonZeroUsize::new(owner).expect("a reference is not null");
            segment_map::register(start, size, owner)?;
        }
        tools::allow(start, header);
        // SAFETY: guaranteed by the caller.
        unsafe { self.fill_free(start.add(header), size - header) };
        Ok(())
    }

    /// Prepares a chunk that is about to go back to its source.
    pub(crate) fn chunk_released(&self, start: NonNull<u8>, size: usize, registered: bool) {
        if registered {
            segment_map::unregister(start, size);
        }
        tools::allow_defined(start, size);
    }

    /// Marks bytes as free.
    ///
    /// # Safety
    /// The allocator holds these bytes, and they belong to no object.
    pub(crate) unsafe fn fill_free(&self, start: NonNull<u8>, len: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.fill(start, len, FREE) };
    }

    /// Marks the bytes behind an object as its red zone.
    ///
    /// # Safety
    /// As for [`fill_free`](Self::fill_free).
    pub(crate) unsafe fn mark_zone(&self, start: NonNull<u8>, len: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.fill(start, len, ZONE) };
    }

    unsafe fn fill(&self, start: NonNull<u8>, len: usize, byte: u8) {
        if self.mode == CheckMode::Hardened {
            tools::allow(start, len);
            // SAFETY: guaranteed by the caller.
            unsafe { start.write_bytes(byte, len) };
        }
        tools::forbid(start, len);
    }

    /// Checks that nothing wrote to a free block that may become one of this layout.
    pub(crate) fn check_free_block(
        &self,
        allocator: &impl CheckedAllocator,
        block: NonNull<u8>,
        layout: Layout,
    ) {
        let whole = allocator.block_size(layout);
        self.check_free(block, whole, Misuse::WriteAfterFree, layout.size());
    }

    /// Checks that nothing wrote to free bytes. If not, ends the process with a message about an
    /// object of `size` bytes.
    pub(crate) fn check_free(&self, start: NonNull<u8>, len: usize, misuse: Misuse, size: usize) {
        if !self.is_filled(start, len, FREE) {
            self.abort_on(misuse, start.addr().get(), size);
        }
    }

    /// Checks that nothing wrote to the red zone of an object, which has `len` bytes.
    pub(crate) fn check_zone(&self, object: NonNull<u8>, size: usize, len: usize) {
        // SAFETY: the object and its red zone lie in a chunk that the allocator holds.
        let zone = unsafe { object.add(size) };
        if !self.is_filled(zone, len, ZONE) {
            self.abort_on(Misuse::Overrun, object.addr().get(), size);
        }
    }

    /// Whether all of these bytes, which belong to no object, equal `byte`. Always true where bytes
    /// are not filled.
    fn is_filled(&self, start: NonNull<u8>, len: usize, byte: u8) -> bool {
        if self.mode != CheckMode::Hardened {
            return true;
        }
        tools::allow_defined(start, len);
        // SAFETY: bytes of a chunk that the allocator holds, which were filled before. (A stray
        // write that races with this read is the misuse that the check looks for; it ends the
        // process.)
        let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), len) };
        let filled = bytes.iter().all(|found| *found == byte);
        tools::forbid(start, len);
        filled
    }
}
