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
use std::collections::BTreeMap;

use super::page_table::SlabPage;
use super::registry;
use super::shared::{SlabChecks, SlabShared};
use super::tags::TAG_MARK;
use crate::checked::{CheckedAllocator, Ledger};
use crate::error::AllocError;
use crate::memory::fork_mutex::{self, ForkMutex};
use crate::memory::{segment_map, tools};
use crate::statistics::{AllocatorKind, Record, Statistics};

type MallocBlocks = BTreeMap<usize, u32>;

/// In pass-through mode, the slab of each malloc block. The address of a block does not lead to its
/// slab. All slabs share the map.
static MALLOC_BLOCKS: ForkMutex<MallocBlocks> = ForkMutex::new(MallocBlocks::new());

/// The number of the slab that handed out a malloc block, if one did.
pub(super) fn slab_of_malloc_block(block: NonNull<u8>) -> Option<u32> {
    // Without the handlers of the lock no slab has been made in this mode, so there is no block.
    if !tools::passthrough() || fork_mutex::watch_forks().is_err() {
        return None;
    }
    MALLOC_BLOCKS.lock().get(&block.addr().get()).copied()
}

/// Makes the ledger of a slab; `None` if the slab is not checked.
pub(super) fn new_if_checked(
    hardened: bool,
    name: Option<&str>,
) -> Result<Option<Box<dyn SlabChecks>>, AllocError> {
    let Some(ledger) = Ledger::new_if_checked(hardened, AllocatorKind::Slab, name, 0)? else {
        return Ok(None);
    };
    // A handle that is given a foreign pointer reads the map, and then comes here.
    segment_map::allow_all_lookups();
    Ok(Some(ledger))
}

impl CheckedAllocator for SlabShared {
    fn record(&self) -> &'static Record {
        SlabShared::record(self)
    }

    fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        SlabShared::charge(self, bytes)
    }

    fn credit(&self, bytes: usize) {
        SlabShared::credit(self, bytes);
    }

    fn note_malloc_block(&self, block: NonNull<u8>, _: usize) -> Result<(), AllocError> {
        // The fast paths look up every address that they are given in the map.
        segment_map::allow_lookup(block.addr().get())?;
        MALLOC_BLOCKS.lock().insert(block.addr().get(), self.number);
        registry::add_reference(self.number);
        Ok(())
    }

    /// The caller has a reference to the slab, so this is not the last one.
    fn forget_malloc_block(&self, block: NonNull<u8>, _: usize) {
        MALLOC_BLOCKS.lock().remove(&block.addr().get());
        SlabShared::release_reference(self.number);
    }

    fn block_size(&self, _: Layout) -> usize {
        self.geometry.slot
    }

    fn new_block(&self, ledger: &Ledger, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let slot = self.alloc_uncached(0)?;
        ledger.check_free_block(self, slot, layout);
        Ok(slot)
    }

    unsafe fn release_block(&self, slot: NonNull<u8>) {
        // SAFETY: guaranteed by the caller, who has a reference to the slab.
        unsafe { self.free_one(slot) };
    }

    fn is_released_block(&self, address: usize) -> bool {
        let Some((page, tag)) = segment_map::page_of(address) else { return false };
        if tag & !TAG_MARK != self.tag() {
            return false;
        }
        // SAFETY: the tag says that it is a descriptor of this slab. Descriptors stay as long as
        // the slab's shared part. It may describe another page by this time; then only the answer
        // is wrong, and the process ends either way.
        let page = unsafe { page.cast::<SlabPage>().as_ref() };
        let start = page.info.start.load(Ordering::Relaxed).addr();
        let offset = address.wrapping_sub(start);
        offset < page.slots() * self.geometry.slot && offset % self.geometry.slot == 0
    }
}

/// Whether this is a child made by fork that does not have the slab's pages, so that no byte of
/// them can be checked. (In pass-through mode the slots are malloc's blocks, which the child has.)
fn is_without_memory(ledger: &Ledger, slab: &SlabShared) -> bool {
    !ledger.is_passthrough() && slab.check_not_orphaned().is_err()
}

impl SlabChecks for Ledger {
    fn is_passthrough(&self) -> bool {
        Ledger::is_passthrough(self)
    }

    fn alloc(&self, slab: &SlabShared) -> Result<NonNull<u8>, AllocError> {
        if is_without_memory(self, slab) {
            slab.check_not_orphaned()?;
        }
        Ledger::alloc(self, slab, slab.layout)
    }

    unsafe fn free(&self, slab: &SlabShared, slot: NonNull<u8>) {
        if is_without_memory(self, slab) {
            return;
        }
        Ledger::free(self, slab, slot, slab.layout);
        if !slab.waiters.allow_caching() {
            // A thread waits for a slot, or the slab was dropped. In the second case no later free
            // may follow this one, and the quarantine would keep the slot and its slab forever.
            Ledger::empty_quarantine(self, slab);
        }
    }

    fn page_taken(&self, _: &SlabShared, start: NonNull<u8>, bytes: usize) {
        // SAFETY: a page that was just taken, and is used by no thread yet.
        unsafe { self.fill_free(start, bytes) };
    }

    fn page_released(&self, slab: &SlabShared, page: &SlabPage, start: NonNull<u8>, bytes: usize) {
        let slots = if is_without_memory(self, slab) { 0 } else { page.slots() };
        for index in 0..slots {
            self.check_free_block(slab, slab.slot_address(page, index), slab.layout);
        }
        tools::allow_defined(start, bytes);
    }

    fn empty_quarantine(&self, slab: &SlabShared) -> bool {
        !is_without_memory(self, slab) && Ledger::empty_quarantine(self, slab)
    }

    fn statistics(&self, slab: &SlabShared) -> Statistics {
        let pages = slab.slot_statistics(self.quarantined());
        if !Ledger::is_passthrough(self) {
            return pages;
        }
        let (live_objects, live_bytes) = self.live();
        let (live_objects, live_bytes) = (live_objects as u64, live_bytes as u64);
        let structure_bytes = pages.held_bytes.saturating_sub(live_bytes);
        Statistics { live_objects, live_bytes, structure_bytes, ..pages }
    }
}
