//! The checked arena: the slow path of hardened mode, memory tools and pass-through mode.
//!
//! A checked arena reuses no byte before it is reset or rewound, so the ledger's quarantine stays
//! empty: a freed object keeps its entry, and its free bytes are checked when the arena goes back
//! behind its allocation.
//!
//! # Invariants
//!
//! 1. `order` lists the objects in the order of their allocation, by address and number. Tool mode
//!    records no objects: an arena would keep each entry until it is reset, and the tool has its
//!    own record of what is free.
//! 2. In hardened mode, every byte in `[pos, end(current))` and of every spare chunk is free, and
//!    at least [`GUARD`] bytes behind each object are its red zone.
//! 3. One thread at a time has access, as to the arena itself.

use core::alloc::Layout;
use core::cell::RefCell;
use core::ptr::NonNull;
use std::alloc::{GlobalAlloc, System};

use super::chunk_header::HEADER;
use super::raw::{ArenaChecks, RawArena};
use crate::checked::{CheckMode, CheckedAllocator, CheckedObject, GUARD, Ledger, Misuse};
use crate::error::{AllocError, ErrorKind};
use crate::memory::layout::align_up;
use crate::memory::source::SharedSource;
use crate::memory::tools;
use crate::statistics::{AllocatorKind, Record};

/// What a checked arena records in addition to its chunks.
#[derive(Debug)]
pub(super) struct ArenaLedger {
    ledger: Ledger,
    order: RefCell<Vec<(usize, u64)>>,
}

impl ArenaLedger {
    /// The records of an arena, or `None` if there is no reason to check it.
    pub(super) fn new_if_checked(
        hardened: bool,
        name: Option<&str>,
    ) -> Result<Option<Box<Self>>, AllocError> {
        let ledger = Ledger::new_if_checked(hardened, AllocatorKind::Arena, name, 0)?;
        Ok(ledger.map(|ledger| Box::new(Self { ledger: *ledger, order: RefCell::default() })))
    }

    /// Whether this mode records objects.
    fn records_objects(&self) -> bool {
        self.ledger.mode() != CheckMode::Tool
    }

    /// Notes the address of an object that may have moved.
    fn note_move(&self, object: &CheckedObject) {
        let mut order = self.order.borrow_mut();
        let at = order.binary_search_by_key(&object.number, |(_, number)| *number);
        order[at.expect("a live object is in the order")].0 = object.start.addr().get();
    }

    fn check_zone(&self, object: &CheckedObject) {
        let size = object.size;
        self.ledger.check_zone(object.start, size, align_up(size + GUARD, GUARD) - size);
    }
}

impl CheckedAllocator for RawArena {
    fn record(&self) -> &'static Record {
        RawArena::record(self)
    }

    fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        self.settings().common.charge(bytes)
    }

    fn credit(&self, bytes: usize) {
        self.settings().common.credit(bytes);
    }

    /// An object that has shrunk in place keeps the alignment of its first layout.
    fn is_of_layout(&self, object: &CheckedObject, layout: Layout) -> bool {
        object.size == layout.size()
    }

    fn block_size(&self, layout: Layout) -> usize {
        align_up(layout.size() + GUARD, GUARD)
    }

    /// The next bytes of the current chunk, or of a new one.
    fn new_block(&self, ledger: &Ledger, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let (size, align) = (layout.size(), layout.align().max(GUARD));
        let overflow = AllocError::new(ErrorKind::SizeOverflow, size);
        let whole = size
            .checked_add(GUARD)
            .and_then(|sum| sum.checked_next_multiple_of(GUARD))
            .ok_or(overflow)?;
        let need = whole.checked_add(align - GUARD).ok_or(overflow)?;
        if self.left_in_current() < need {
            self.grow_by_chunk(need)?;
        }
        // `pos` is a multiple of `GUARD`: the starts of chunks are, and so is every sum below.
        let pos = self.advance(0).addr().get();
        let padding = align_up(pos, align) - pos;
        let start = self.advance(padding + whole);
        ledger.check_free(start, padding + whole, Misuse::WriteAfterReset, size);
        // SAFETY: `padding + whole` bytes from `start` lie in the chunk.
        Ok(unsafe { start.add(padding) })
    }
}

impl ArenaChecks for ArenaLedger {
    fn has_no_chunks(&self) -> bool {
        self.ledger.is_passthrough()
    }

    fn segment_unit(&self, source: &SharedSource) -> usize {
        self.ledger.mode().segment_unit(source)
    }

    fn next_number(&self) -> u64 {
        self.ledger.next_number()
    }

    fn chunk_taken(
        &self,
        record: &'static Record,
        start: NonNull<u8>,
        size: usize,
        registered: bool,
    ) -> Result<(), AllocError> {
        // SAFETY: the arena has just taken the chunk, which is larger than its header.
        unsafe { self.ledger.chunk_taken(record, start, size, HEADER, registered) }
    }

    fn chunk_released(&self, start: NonNull<u8>, size: usize, registered: bool) {
        self.ledger.chunk_released(start, size, registered);
    }

    fn fill_free(&self, start: *mut u8, len: usize) {
        if let Some(start) = NonNull::new(start).filter(|_| len > 0) {
            // SAFETY: free bytes of a chunk that the arena holds (invariant 4 of `raw.rs`).
            unsafe { self.ledger.fill_free(start, len) };
        }
    }

    fn check_free(&self, start: *mut u8, len: usize) {
        if let Some(start) = NonNull::new(start) {
            self.ledger.check_free(start, len, Misuse::WriteAfterReset, len);
        }
    }

    fn alloc(&self, arena: &RawArena, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let size = layout.size();
        let object = if self.records_objects() {
            let mut order = self.order.borrow_mut();
            order.try_reserve(1).map_err(|_| AllocError::new(ErrorKind::SourceRefused, size))?;
            let object = self.ledger.alloc(arena, layout)?;
            order.push((object.addr().get(), self.ledger.next_number() - 1));
            object
        } else {
            let object = arena.new_block(&self.ledger, layout)?;
            tools::allow(object, size);
            object
        };
        let record = arena.record();
        record.live_objects.add(1);
        record.live_bytes.add(size as u64);
        Ok(object)
    }

    fn free(&self, arena: &RawArena, object: NonNull<u8>, layout: Layout) {
        let size = layout.size();
        if self.records_objects() {
            let found = self.ledger.live_object(arena, object, layout);
            if found.number >= arena.first_of_scope() {
                self.ledger.mark_freed(&found);
                if self.ledger.is_passthrough() {
                    // SAFETY: the object was live until here, and its block has this layout.
                    unsafe { self.ledger.free_malloc_block(arena, found.start, found.layout) };
                } else {
                    self.check_zone(&found);
                    self.fill_free(found.start.as_ptr(), size);
                }
            }
        } else if arena.in_scope(object) {
            tools::forbid(object, size);
        }
        arena.record().live_objects.sub(1);
        arena.record().live_bytes.sub(size as u64);
    }

    fn shrink(
        &self,
        arena: &RawArena,
        mut object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> NonNull<u8> {
        let (old_size, new_size) = (old.size(), new.size());
        arena.record().live_bytes.sub((old_size - new_size) as u64);
        if self.records_objects() {
            let found = self.ledger.live_object(arena, object, old);
            if found.number < arena.first_of_scope() {
                return object;
            }
            let mut changed = CheckedObject { size: new_size, ..found };
            if self.ledger.is_passthrough() {
                (changed.start, changed.layout) = shrink_by_malloc(arena, &found, new);
                self.note_move(&changed);
            } else {
                self.check_zone(&found);
            }
            self.ledger.change(&found, changed);
            object = changed.start;
        } else if !arena.in_scope(object) {
            return object;
        }
        if !self.ledger.is_passthrough() {
            // SAFETY: the bytes from the new size to the old one belong to the object, and were
            // given up.
            unsafe { self.ledger.mark_zone(object.add(new_size), old_size - new_size) };
        }
        object
    }

    fn rewound(&self, arena: &RawArena, first: u64) {
        let mut order = self.order.borrow_mut();
        let first_gone = order.partition_point(|(_, number)| *number < first);
        for (address, number) in order.drain(first_gone..) {
            let Some(object) = self.ledger.remove(address, number) else { continue };
            match (self.ledger.is_passthrough(), object.freed) {
                // SAFETY: the object was live until here, and its block has this layout.
                (true, false) => unsafe {
                    self.ledger.free_malloc_block(arena, object.start, object.layout);
                },
                (true, true) => {}
                (false, false) => self.check_zone(&object),
                (false, true) => {
                    let (size, misuse) = (object.size, Misuse::WriteAfterFree);
                    self.ledger.check_free(object.start, size, misuse, size);
                }
            }
        }
    }
}

/// Lets malloc shrink the block, so that its tools see the new end. Returns the block and its
/// layout. If malloc refuses, the block stays as it is.
fn shrink_by_malloc(
    arena: &RawArena,
    object: &CheckedObject,
    wanted: Layout,
) -> (NonNull<u8>, Layout) {
    let (block, old) = (object.start, object.layout);
    let align = old.align().max(wanted.align());
    let Ok(new) = Layout::from_size_align(wanted.size(), align) else { return (block, old) };
    // SAFETY: the block is malloc's, has this layout and is live; the new size is not zero.
    // `realloc` keeps only the alignment with which the block was allocated. So a block that
    // happens to have the larger alignment asked for is moved by hand.
    let moved = unsafe {
        if align == old.align() {
            NonNull::new(System.realloc(block.as_ptr(), old, new.size()))
        } else {
            let moved = NonNull::new(System.alloc(new));
            if let Some(moved) = moved {
                moved.copy_from_nonoverlapping(block, new.size());
                System.dealloc(block.as_ptr(), old);
            }
            moved
        }
    };
    let Some(moved) = moved else { return (block, old) };
    let released = old.size() - new.size();
    arena.record().held_bytes.sub(released as u64);
    arena.record().source_calls.add(1);
    arena.credit(released);
    (moved, new)
}
