//! The watched arena: every allocation takes the slow path, and every object is recorded.
//!
//! There are three reasons to watch an arena:
//!
//! | mode | when | memory of an object | what is found |
//! |---|---|---|---|
//! | tool | AddressSanitizer or Valgrind is present | in a chunk, with a red zone of at least 16 bytes behind it | what the tool finds |
//! | hardened | the builder's option | the same; the red zone holds a pattern that is checked | double free, foreign pointer, wrong size, overrun, write after free, write after reset |
//! | pass-through | `ALLOTMENT_PASSTHROUGH=1` | a malloc block of its own | what malloc or its tool finds |
//!
//! A watched arena reuses no byte before it is reset or rewound.
//!
//! # Invariants
//!
//! 1. `entries` lists the objects in the order of their allocation, and `index` finds the newest
//!    entry of an address. Both lie outside the objects' memory, so a stray write can't change
//!    them. Tool mode keeps no table.
//! 2. In hardened mode, every byte in `[pos, end(current))` and of every spare chunk is [`FREE`],
//!    except where a stray write changed it. At least `GUARD` bytes behind each object hold
//!    [`ZONE`].
//! 3. One thread at a time has access, as to the arena itself.

use core::alloc::Layout;
use core::cell::RefCell;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use std::alloc::{GlobalAlloc, System};
use std::collections::HashMap;

use super::raw::{ArenaChecks, RawArena};
use crate::checked::misuse::{Misuse, stop};
use crate::checked::{FREE, GUARD, Mode, ZONE, holds};
use crate::error::{AllocError, ErrorKind};
use crate::memory::layout::align_up;
use crate::memory::source::SharedSource;
use crate::memory::{segments, tools};
use crate::statistics::Record;

#[derive(Debug)]
struct Entry {
    object: NonNull<u8>,
    /// The layout as allocated.
    layout: Layout,
    /// The current size, which a shrink may have made smaller.
    size: usize,
    freed: bool,
}

#[derive(Debug, Default)]
struct Table {
    entries: Vec<Entry>,
    index: HashMap<usize, usize>,
}

/// What a watched arena keeps in addition to its chunks.
#[derive(Debug)]
pub(crate) struct Watch {
    mode: Mode,
    table: RefCell<Table>,
}

impl Watch {
    /// The watch for an arena, or `None` if the arena is not to be watched.
    #[inline]
    pub(super) fn wanted(hardened: bool) -> Option<Self> {
        let mode = Mode::wanted(hardened)?;
        Some(Self { mode, table: RefCell::default() })
    }

    /// Makes room for one entry before anything else changes, because the table's own memory may be
    /// refused too.
    fn make_room_in_table(&self, size: usize) -> Result<(), AllocError> {
        if self.mode == Mode::Tool {
            return Ok(());
        }
        let mut table = self.table.borrow_mut();
        let refused = |_| AllocError::new(ErrorKind::SourceRefused, size);
        table.entries.try_reserve(1).map_err(refused)?;
        table.index.try_reserve(1).map_err(refused)
    }

    fn alloc_by_malloc(&self, arena: &RawArena, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let size = layout.size();
        let budget = arena.settings().budget.as_ref();
        budget.map_or(Ok(()), |budget| budget.charge(size))?;
        // SAFETY: the size is not zero.
        let Some(object) = NonNull::new(unsafe { System.alloc(layout) }) else {
            if let Some(budget) = budget {
                budget.credit(size);
            }
            return Err(AllocError::new(ErrorKind::SourceRefused, size));
        };
        arena.record().hold(size);
        arena.record().source_calls.add(1);
        Ok(object)
    }

    fn free_by_malloc(&self, arena: &RawArena, object: NonNull<u8>, layout: Layout) {
        // SAFETY: allocated by `alloc_by_malloc` with this layout; its entry was live until now.
        unsafe { System.dealloc(object.as_ptr(), layout) };
        arena.record().held_bytes.sub(layout.size() as u64);
        arena.record().source_calls.add(1);
        if let Some(budget) = &arena.settings().budget {
            budget.credit(layout.size());
        }
    }

    fn alloc_in_chunk(&self, arena: &RawArena, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let (size, align) = (layout.size(), layout.align().max(GUARD));
        let overflow = AllocError::new(ErrorKind::SizeOverflow, size);
        let body = size
            .checked_add(GUARD)
            .and_then(|sum| sum.checked_next_multiple_of(GUARD))
            .ok_or(overflow)?;
        let room = body.checked_add(align - GUARD).ok_or(overflow)?;
        if arena.left_in_current() < room {
            arena.grow_by_chunk(room)?;
        }
        // `pos` is a multiple of `GUARD`: the starts of chunks are, and so is every sum below.
        let pos = arena.advance(0).addr().get();
        let padding = align_up(pos, align) - pos;
        let start = arena.advance(padding + body);
        if self.mode == Mode::Hardened {
            self.check_filled(arena, start, padding + body, FREE, Misuse::WriteAfterReset, size);
        }
        // SAFETY: `padding + body` bytes from `start` were free, and belong to the object from here
        // on.
        unsafe {
            let object = start.add(padding);
            tools::allow(object, size);
            self.mark_zone(object.add(size), body - size);
            Ok(object)
        }
    }

    /// Lets malloc shrink the block, so that its tools see the new end. If malloc refuses, the
    /// block stays as it is.
    fn shrink_by_malloc(&self, arena: &RawArena, table: &mut Table, place: usize, asked: Layout) {
        let entry = &mut table.entries[place];
        let (old, new) = (entry.layout.size(), asked.size());
        let align = entry.layout.align().max(asked.align());
        let Ok(layout) = Layout::from_size_align(new, align) else { return };
        // SAFETY: the block is malloc's, has this layout and is live; the new size is not zero.
        // `realloc` keeps only the alignment with which the block was allocated. So a block that
        // happens to have the larger alignment asked for is moved by hand.
        let moved = unsafe {
            if align == entry.layout.align() {
                NonNull::new(System.realloc(entry.object.as_ptr(), entry.layout, new))
            } else {
                let moved = NonNull::new(System.alloc(layout));
                if let Some(moved) = moved {
                    moved.copy_from_nonoverlapping(entry.object, new);
                    System.dealloc(entry.object.as_ptr(), entry.layout);
                }
                moved
            }
        };
        let Some(moved) = moved else { return };
        table.index.remove(&entry.object.addr().get());
        table.index.insert(moved.addr().get(), place);
        entry.object = moved;
        entry.layout = layout;
        arena.record().held_bytes.sub((old - new) as u64);
        arena.record().source_calls.add(1);
        if let Some(budget) = &arena.settings().budget {
            budget.credit(old - new);
        }
    }

    /// Turns the bytes behind an object into its red zone.
    ///
    /// # Safety
    /// The bytes are in a chunk of the arena, and belong to no object.
    unsafe fn mark_zone(&self, zone: NonNull<u8>, len: usize) {
        if self.mode == Mode::Hardened {
            tools::allow(zone, len);
            // SAFETY: guaranteed by the caller.
            unsafe { zone.write_bytes(ZONE, len) };
        }
        tools::forbid(zone, len);
    }

    /// The index of a live object in the table. Stops the program if the object has none.
    fn place_of(&self, table: &Table, arena: &RawArena, object: NonNull<u8>, size: usize) -> usize {
        let known = table.index.get(&object.addr().get()).copied();
        let Some(place) = known else { self.stop(arena, Misuse::ForeignPointer, object, size) };
        let entry = &table.entries[place];
        if entry.freed {
            self.stop(arena, Misuse::DoubleFree, object, size);
        }
        if entry.size != size {
            self.stop(arena, Misuse::WrongSize(entry.size), object, size);
        }
        place
    }

    /// Frees an object of the open scope. Returns whether the object was in the open scope.
    fn free_entry(&self, arena: &RawArena, object: NonNull<u8>, size: usize) -> bool {
        let mut table = self.table.borrow_mut();
        let place = self.place_of(&table, arena, object, size);
        if place < arena.checked_outside_scope() {
            return false;
        }
        let entry = &mut table.entries[place];
        entry.freed = true;
        // Use the allocation's own pointer. The caller's may reach only the object, not the bytes
        // behind it.
        let object = entry.object;
        if self.mode == Mode::Passthrough {
            self.free_by_malloc(arena, object, entry.layout);
        } else {
            self.check_zone(arena, object, size);
            self.now_free(object.as_ptr(), size);
        }
        true
    }

    fn check_zone(&self, arena: &RawArena, object: NonNull<u8>, size: usize) {
        let len = align_up(size + GUARD, GUARD) - size;
        // SAFETY: the object and its red zone lie in a chunk that the arena holds.
        let zone = unsafe { object.add(size) };
        if !filled(zone, len, ZONE) {
            self.stop(arena, Misuse::Overrun, object, size);
        }
    }

    fn check_filled(
        &self,
        arena: &RawArena,
        start: NonNull<u8>,
        len: usize,
        byte: u8,
        misuse: Misuse,
        size: usize,
    ) {
        if !filled(start, len, byte) {
            self.stop(arena, misuse, start, size);
        }
    }

    fn stop(&self, arena: &RawArena, misuse: Misuse, object: NonNull<u8>, size: usize) -> ! {
        let name = arena.record().name();
        stop(misuse, "arena", name.as_deref(), object.addr().get(), size)
    }
}

impl ArenaChecks for Watch {
    /// Whether each object comes from malloc by itself.
    fn has_no_chunks(&self) -> bool {
        self.mode == Mode::Passthrough
    }

    /// The unit of chunks that are registered as segments, or 1.
    fn segment_unit(&self, source: &SharedSource) -> usize {
        self.mode.segment_unit(source)
    }

    /// The number of objects in the table, including freed ones.
    fn count(&self) -> usize {
        self.table.borrow().entries.len()
    }

    /// A chunk was taken. It holds only its header.
    fn chunk_taken(
        &self,
        record: &'static Record,
        start: NonNull<u8>,
        size: usize,
        registered: bool,
    ) -> Result<(), AllocError> {
        if registered {
            let owner = core::ptr::from_ref(record).expose_provenance();
            let owner = NonZeroUsize::new(owner).expect("a reference is not null");
            segments::register(start, size, owner)?;
        }
        let header = super::chunk_header::HEADER;
        tools::allow(start, header);
        self.now_free(start.as_ptr().wrapping_add(header), size - header);
        Ok(())
    }

    /// A chunk is about to go back to its source.
    fn chunk_going(&self, start: NonNull<u8>, size: usize, registered: bool) {
        if registered {
            segments::unregister(start, size);
        }
        tools::allow_defined(start, size);
    }

    /// Marks bytes of a chunk as belonging to no object.
    fn now_free(&self, start: *mut u8, len: usize) {
        let Some(start) = NonNull::new(start).filter(|_| len > 0) else { return };
        if self.mode == Mode::Hardened {
            tools::allow(start, len);
            // SAFETY: free bytes of a chunk that the arena holds (invariant 4 of `raw.rs`).
            unsafe { start.write_bytes(FREE, len) };
        }
        tools::forbid(start, len);
    }

    /// Memory for one object. The size must not be zero.
    fn alloc(&self, arena: &RawArena, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.make_room_in_table(layout.size())?;
        let object = if self.mode == Mode::Passthrough {
            self.alloc_by_malloc(arena, layout)?
        } else {
            self.alloc_in_chunk(arena, layout)?
        };
        if self.mode != Mode::Tool {
            let mut table = self.table.borrow_mut();
            let place = table.entries.len();
            table.entries.push(Entry { object, layout, size: layout.size(), freed: false });
            table.index.insert(object.addr().get(), place);
        }
        let record = arena.record();
        record.live_objects.add(1);
        record.live_bytes.add(layout.size() as u64);
        Ok(object)
    }

    /// Frees one object.
    fn free(&self, arena: &RawArena, object: NonNull<u8>, layout: Layout) {
        if self.mode == Mode::Tool {
            if !arena.in_scope(object) {
                return;
            }
            tools::forbid(object, layout.size());
        } else if !self.free_entry(arena, object, layout.size()) {
            return;
        }
        arena.record().live_objects.sub(1);
        arena.record().live_bytes.sub(layout.size() as u64);
    }

    /// Makes one object of the open scope smaller. It stays in place, except that malloc may move
    /// it in pass-through mode. The new size must not be zero.
    fn shrink(
        &self,
        arena: &RawArena,
        mut object: NonNull<u8>,
        old: usize,
        layout: Layout,
    ) -> NonNull<u8> {
        let new = layout.size();
        if self.mode != Mode::Tool {
            let mut table = self.table.borrow_mut();
            let place = self.place_of(&table, arena, object, old);
            if place < arena.checked_outside_scope() {
                return object;
            }
            if self.mode == Mode::Passthrough {
                self.shrink_by_malloc(arena, &mut table, place, layout);
            } else {
                self.check_zone(arena, table.entries[place].object, old);
            }
            table.entries[place].size = new;
            object = table.entries[place].object;
        } else if !arena.in_scope(object) {
            return object;
        }
        if self.mode != Mode::Passthrough {
            // SAFETY: the bytes from the new size to the old one belong to the object, and were
            // given up.
            unsafe { self.mark_zone(object.add(new), old - new) };
        }
        arena.record().live_bytes.sub((old - new) as u64);
        object
    }

    /// The objects from index `count` on are gone. Checks the bytes that they left.
    fn rewound(&self, arena: &RawArena, count: usize) {
        let mut table = self.table.borrow_mut();
        let gone: Vec<Entry> = table.entries.drain(count..).collect();
        for entry in gone {
            let address = entry.object.addr().get();
            if table.index.get(&address).is_some_and(|&place| place >= count) {
                table.index.remove(&address);
            }
            let size = entry.size;
            match (self.mode, entry.freed) {
                (Mode::Passthrough, false) => {
                    self.free_by_malloc(arena, entry.object, entry.layout);
                }
                (Mode::Hardened, false) => self.check_zone(arena, entry.object, size),
                (Mode::Hardened, true) => {
                    let misuse = Misuse::WriteAfterFree;
                    self.check_filled(arena, entry.object, size, FREE, misuse, size);
                }
                (Mode::Passthrough, true) | (Mode::Tool, _) => {}
            }
        }
    }

    /// Checks, before free bytes of a chunk are given up, that no stray write changed them.
    fn still_free(&self, arena: &RawArena, start: *mut u8, len: usize) {
        match NonNull::new(start) {
            Some(start) if self.mode == Mode::Hardened => {
                self.check_filled(arena, start, len, FREE, Misuse::WriteAfterReset, len);
            }
            _ => {}
        }
    }
}

/// Whether all of these bytes, which belong to no object, equal `byte`.
fn filled(start: NonNull<u8>, len: usize, byte: u8) -> bool {
    tools::allow_defined(start, len);
    // SAFETY: bytes of a chunk that the arena holds; they were written when the chunk was taken.
    let whole = unsafe { holds(start, len, byte) };
    tools::forbid(start, len);
    whole
}
