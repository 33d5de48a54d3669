//! Checked blocks: the slow path of hardened mode, memory tools and pass-through mode.
//!
//! A block contains the object and a red zone of at least [`GUARD`] bytes. A block of a size
//! class is vacant after its quarantine, a large block goes back to the supply. Blocks that were
//! never handed out are not filled.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::class_lists::CarveRange;
use super::size_classes::{CLASSES, STEP, SizeClass};
use crate::checked::{CheckedAllocator, GUARD, Ledger};
use crate::error::AllocError;
use crate::statistics::AllocatorKind;

/// What a reap or a pool needs in checked mode besides its lists of chunks.
#[derive(Debug)]
pub(super) struct BlockLedger {
    pub ledger: Ledger,
    /// The range that new blocks are carved from.
    range: CarveRange,
}

const _: () = assert!(GUARD == STEP, "a block of a class contains its red zone");

/// The layout of a block that contains an object and its red zone.
pub(super) fn block_layout(layout: Layout) -> Option<Layout> {
    let size = layout.size().checked_add(GUARD)?.checked_next_multiple_of(GUARD)?;
    Layout::from_size_align(size, layout.align().max(GUARD)).ok()
}

impl BlockLedger {
    /// Makes the ledger that these options or this process ask for, if any.
    pub(super) fn new_if_checked(
        hardened: bool,
        record_places: bool,
        kind: AllocatorKind,
        name: Option<&str>,
    ) -> Result<Option<Box<Self>>, AllocError> {
        let ledger = if record_places {
            Some(Ledger::new_with_places(hardened, kind, name, CLASSES)?)
        } else {
            Ledger::new_if_checked(hardened, kind, name, CLASSES)?
        };
        Ok(ledger.map(|ledger| Box::new(Self { ledger: *ledger, range: CarveRange::empty() })))
    }

    /// Carves from this range from now on.
    pub(super) fn open(&self, start: *mut u8, end: *mut u8) {
        self.range.open(start, end);
    }

    pub(super) fn carve(&self, class: SizeClass) -> Option<NonNull<u8>> {
        let gap = self.range.gap(class.align());
        let start = self.range.advance(gap + class.size())?;
        // SAFETY: the range had at least `gap + class.size()` bytes.
        Some(unsafe { start.add(gap) })
    }

    /// Frees every block, and checks those that were free before.
    pub(super) fn clear(&self, blocks: &impl CheckedAllocator) {
        self.ledger.clear(blocks);
        self.range.open(core::ptr::null_mut(), core::ptr::null_mut());
    }
}
