//! The checked slab: the slow path of hardened mode, memory tools and pass-through mode.
//!
//! Every object has a slot with room for a red zone. A slot that leaves the quarantine goes back to
//! its page, so the ledger has no vacant blocks.
//!
//! # Invariant
//!
//! Hardened: every byte of a slot without an object is free, in the ledger's sense.

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use super::page::WORD;
use super::page_table::SlabPage;
use super::shared::{MARK, Shared};
use super::{malloc_blocks, raw, registry};
use crate::checked::{CheckMode, CheckedAllocator, Ledger};
use crate::error::AllocError;
use crate::memory::{segments, tools};
use crate::statistics::{AllocatorKind, Record, Statistics};

impl CheckedAllocator for Shared {
    fn record(&self) -> &'static Record {
        self.record
    }

    fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        self.charge(bytes)
    }

    fn credit(&self, bytes: usize) {
        self.credit(bytes);
    }

    fn note_malloc_block(&self, block: NonNull<u8>, _: usize) -> Result<(), AllocError> {
        // The fast paths look up every address that they are given in the map.
        segments::allow_lookup(block.addr().get())?;
        malloc_blocks::insert(block, self.number);
        registry::refer_more(self.number);
        Ok(())
    }

    /// The caller has a reference to the core, so this is not the last one.
    fn forget_malloc_block(&self, block: NonNull<u8>, _: usize) {
        malloc_blocks::remove(block);
        registry::unrefer(self.number);
    }

    fn block_size(&self, _: Layout) -> usize {
        self.geometry.slot
    }

    fn new_block(&self, ledger: &Ledger, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let slot = raw::alloc_alone(self, 0)?;
        ledger.check_free_block(self, slot, layout);
        Ok(slot)
    }

    unsafe fn release_block(&self, slot: NonNull<u8>) {
        // SAFETY: guaranteed by the caller, who has a reference to the core.
        unsafe {
            let spot = self.spot_of(slot);
            self.free(spot, 1 << (spot.index % WORD), true);
        }
        self.tell_waiters();
    }

    fn is_released_block(&self, address: usize) -> bool {
        let Some((page, tag)) = segments::page_of(address) else { return false };
        if tag & !MARK != self.tag() {
            return false;
        }
        // SAFETY: the tag says that it is a descriptor of this slab. Descriptors stay as long as
        // the core. It may describe another page by this time; then only the answer is wrong, and
        // the process ends either way.
        let page = unsafe { page.cast::<SlabPage>().as_ref() };
        let start = page.beside.start.load(Ordering::Relaxed).addr();
        let offset = address.wrapping_sub(start);
        offset < page.slots() * self.geometry.slot && offset % self.geometry.slot == 0
    }
}

impl Shared {
    /// Makes the ledger of a slab that is to be checked.
    pub(super) fn wanted_ledger(hardened: bool, name: Option<&str>) -> Option<Box<Ledger>> {
        let ledger = Ledger::wanted(hardened, AllocatorKind::Slab, name, 0)?;
        if ledger.mode() == CheckMode::Hardened {
            // A fast path that is given a foreign pointer reads the map, and then comes here.
            segments::allow_all_lookups();
        }
        Some(ledger)
    }

    pub(super) fn checked_statistics(&self, ledger: &Ledger) -> Statistics {
        let pages = self.page_statistics(ledger.quarantined());
        if !ledger.is_passthrough() {
            return pages;
        }
        let (live_objects, live_bytes) = ledger.live();
        let (live_objects, live_bytes) = (live_objects as u64, live_bytes as u64);
        let structure_bytes = pages.held_bytes.saturating_sub(live_bytes);
        Statistics { live_objects, live_bytes, structure_bytes, ..pages }
    }

    /// Prepares a page that was just taken, and holds no objects.
    pub(super) fn checked_page_taken(&self, ledger: &Ledger, start: NonNull<u8>, bytes: usize) {
        // SAFETY: a page that was just taken, and is used by no thread yet.
        unsafe { ledger.fill_free(start, bytes) };
    }

    /// Checks a page that is about to be released. The caller has all of its slots.
    pub(super) fn checked_page_released(
        &self,
        ledger: &Ledger,
        page: &SlabPage,
        start: NonNull<u8>,
        bytes: usize,
    ) {
        for index in 0..page.slots() {
            ledger.check_free_block(self, self.slot_of(page, index), self.layout);
        }
        tools::allow_defined(start, bytes);
    }

    /// Frees a slot.
    ///
    /// # Safety
    /// As for [`RawSlab::free`](super::RawSlab::free), except for the misuse that the mode detects.
    /// The caller has a reference to the core.
    pub(super) unsafe fn checked_free(&self, ledger: &Ledger, slot: NonNull<u8>) {
        ledger.free(self, slot, self.layout);
        if !self.is_calm() {
            // A thread waits for a slot, or the slab was dropped. In the second case no later free
            // may follow this one, and the quarantine would keep the slot and its slab forever.
            ledger.empty_quarantine(self);
        }
    }
}
