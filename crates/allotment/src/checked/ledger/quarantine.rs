//! How freed blocks leave the quarantine, and how a ledger is emptied.
//!
//! The invariants are those of `ledger.rs`.

use core::ptr::NonNull;

use super::{CheckedAllocator, CheckedObject, Ledger, LedgerState};

impl Ledger {
    /// Releases the block of an object that has left the quarantine.
    pub(super) fn release(&self, allocator: &impl CheckedAllocator, object: CheckedObject) {
        self.check_free_block(allocator, object.start, object.layout);
        match allocator.vacant_class(object.layout) {
            Some(class) => self.objects().vacant[class].push(object.start),
            // SAFETY: a block of the allocator that was freed, and that has no entry any more.
            None => unsafe { allocator.release_block(object.start) },
        }
    }

    /// Empties the quarantine. Returns whether it held anything.
    pub(crate) fn empty_quarantine(&self, allocator: &impl CheckedAllocator) -> bool {
        let mut any = false;
        loop {
            let oldest = self.objects().pop_quarantined();
            let Some(oldest) = oldest else { return any };
            self.release(allocator, oldest);
            any = true;
        }
    }

    /// Adds blocks of a class to the vacant ones. Without memory to record them, they are not used
    /// any more.
    pub(crate) fn add_vacant(
        &self,
        class: usize,
        blocks: impl ExactSizeIterator<Item = NonNull<u8>>,
    ) {
        let mut objects = self.objects();
        let most = objects.by_address.len() + objects.reserved + blocks.len();
        if objects.vacant[class].try_reserve(most).is_ok() {
            objects.vacant[class].extend(blocks);
        }
    }

    /// Checks and forgets all blocks that are free, and the red zones of live objects. In
    /// pass-through mode, live objects are freed, too; in the other modes the allocator frees them
    /// with its chunks.
    pub(crate) fn clear(&self, allocator: &impl CheckedAllocator) {
        self.empty_quarantine(allocator);
        let mut objects = self.objects();
        for object in objects.by_address.values() {
            if self.is_passthrough() {
                // SAFETY: it has an entry, so it is a malloc block of this layout. The entry is
                // removed below.
                unsafe { self.free_malloc_block(allocator, object.start, object.layout) };
            } else {
                let zone = allocator.block_size(object.layout) - object.size;
                self.check_zone(object.start, object.size, zone);
            }
        }
        for (class, blocks) in objects.vacant.iter_mut().enumerate() {
            let layout = allocator.class_layout(class);
            for block in blocks.drain(..) {
                self.check_free_block(allocator, block, layout);
            }
        }
        objects.by_address.clear();
        objects.live_bytes = 0;
    }

    /// Frees the ledger's memory. No object is live, and none will be allocated or freed.
    pub(crate) fn end(&self) {
        *self.objects() = LedgerState::default();
    }
}
