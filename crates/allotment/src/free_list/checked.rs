//! The checked list: every call takes the slow path, and each object is recorded.
//!
//! | mode | when | memory of an object |
//! |---|---|---|
//! | tool | AddressSanitizer or Valgrind runs | its place, with a red zone of at least 16 bytes |
//! | hardened | the builder's option | the same; the red zone holds a pattern |
//! | pass-through | `ALLOTMENT_PASSTHROUGH=1` | its own malloc block |
//!
//! Hardened mode finds double and stale frees, foreign pointers, overruns (it checks the pattern)
//! and writes after free. In the other modes, malloc or the tool finds what it can.
//!
//! A freed object stays in quarantine until [`RESTING`] more objects are freed. Free places are
//! recorded outside the chunks, so that a write after free destroys no evidence.
//!
//! # Invariants
//!
//! 1. `objects` has an entry for each place that was handed out and is not vacant. The entry says
//!    whether the object was freed, and is in quarantine. `vacant` holds the places that were
//!    handed out before and may be handed out again.
//! 2. Hardened: every byte of a chunk behind its header that is in no live object's place is
//!    [`FREE`]. Every byte behind an object to the end of its place is [`ZONE`]. Any other value is
//!    a misuse by the program.

use core::alloc::Layout;
use core::cell::RefCell;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use std::alloc::{GlobalAlloc, System};
use std::collections::{HashMap, VecDeque};

use super::chunk_header::{KIND, ListChunk};
use super::raw::{ListChecks, RawFreeList};
use crate::checked::misuse::{Misuse, stop};
use crate::checked::{FREE, GUARD, Mode, RESTING, ZONE, holds};
use crate::error::{AllocError, ErrorKind};
use crate::memory::source::SharedSource;
use crate::memory::{segments, tools};

#[derive(Debug, Default)]
struct Books {
    objects: HashMap<usize, bool>,
    resting: VecDeque<NonNull<u8>>,
    vacant: Vec<NonNull<u8>>,
}

/// What a checked list records besides its chunks.
#[derive(Debug)]
pub(super) struct Watch {
    mode: Mode,
    books: RefCell<Books>,
}

impl Watch {
    /// Makes the records that a list needs in its mode; `None` if it is not checked.
    pub(super) fn wanted(hardened: bool) -> Option<Self> {
        let mode = Mode::wanted(hardened)?;
        Some(Self { mode, books: RefCell::default() })
    }

    fn take_vacant(&self) -> Option<NonNull<u8>> {
        self.books.borrow_mut().vacant.pop()
    }

    /// Makes an object of a place.
    fn hand_out(&self, list: &RawFreeList, place: NonNull<u8>) {
        let (size, whole) = (list.layout().size(), list.stride());
        self.books.borrow_mut().objects.insert(place.addr().get(), false);
        if self.mode == Mode::Hardened {
            self.check_untouched(list, place);
            tools::allow(place, whole);
            // SAFETY: the place is ours and `whole` bytes long, which has room for the zone.
            unsafe { place.add(size).write_bytes(ZONE, whole - size) };
            tools::forbid(place, whole);
        }
        if self.mode != Mode::Passthrough {
            tools::allow(place, size);
        }
    }

    /// Makes the place vacant that was in quarantine longest. Returns whether there was one.
    fn end_one_rest(&self, list: &RawFreeList) -> bool {
        let mut books = self.books.borrow_mut();
        let Some(oldest) = books.resting.pop_front() else { return false };
        books.objects.remove(&oldest.addr().get());
        self.check_untouched(list, oldest);
        books.vacant.push(oldest);
        true
    }

    fn end_rest(&self, list: &RawFreeList) {
        while self.end_one_rest(list) {}
    }

    fn check_vacant(&self, list: &RawFreeList) {
        for place in &self.books.borrow().vacant {
            self.check_untouched(list, *place);
        }
    }

    fn check_untouched(&self, list: &RawFreeList, place: NonNull<u8>) {
        if self.mode == Mode::Hardened {
            let whole = list.stride();
            tools::allow_defined(place, whole);
            // SAFETY: a free place of the list. Every byte of it was written when its chunk was
            // taken.
            if !unsafe { holds(place, whole, FREE) } {
                self.stop(list, Misuse::WriteAfterFree, place.addr().get());
            }
            tools::forbid(place, whole);
        }
    }

    fn alloc_by_malloc(&self, list: &RawFreeList) -> Result<NonNull<u8>, AllocError> {
        let layout = Self::block_layout(list);
        list.charge(layout.size())?;
        // SAFETY: the size is not zero.
        let Some(block) = NonNull::new(unsafe { System.alloc(layout) }) else {
            list.credit(layout.size());
            return Err(AllocError::new(ErrorKind::SourceRefused, layout.size()));
        };
        let _ = block.as_ptr().expose_provenance();
        list.record.hold(layout.size());
        list.record.source_calls.add(1);
        Ok(block)
    }

    fn free_by_malloc(&self, list: &RawFreeList, block: NonNull<u8>) {
        let layout = Self::block_layout(list);
        // SAFETY: it was recorded until here, so it came from `alloc_by_malloc` with this layout.
        // It is freed once.
        unsafe { System.dealloc(block.as_ptr(), layout) };
        list.record.held_bytes.sub(layout.size() as u64);
        list.record.source_calls.add(1);
        list.credit(layout.size());
    }

    fn block_layout(list: &RawFreeList) -> Layout {
        let layout = list.layout();
        Layout::from_size_align(layout.size().max(1), layout.align()).unwrap_or(layout)
    }

    fn stop(&self, list: &RawFreeList, misuse: Misuse, address: usize) -> ! {
        stop(misuse, KIND, list.name(), address, list.layout().size())
    }
}

impl ListChecks for Watch {
    /// Whether each object is a malloc block.
    fn has_no_chunks(&self) -> bool {
        self.mode == Mode::Passthrough
    }

    /// The layout of a place that has room for the red zone.
    fn slot_layout(&self, layout: Layout) -> Option<Layout> {
        let size = layout.size().checked_add(GUARD)?;
        Layout::from_size_align(size, layout.align().max(GUARD)).ok()
    }

    /// The unit of chunks that are registered as segments, or 1.
    fn segment_unit(&self, source: &SharedSource) -> usize {
        self.mode.segment_unit(source)
    }

    /// The number of live objects.
    fn live(&self) -> usize {
        let books = self.books.borrow();
        books.objects.len() - books.resting.len()
    }

    /// Prepares a chunk that was just taken. It holds nothing but its header, of `header` bytes.
    fn chunk_taken(
        &self,
        list: &RawFreeList,
        start: NonNull<u8>,
        size: usize,
        header: usize,
    ) -> Result<(), AllocError> {
        if list.segment_unit() > 1 {
            let owner = core::ptr::from_ref(list.record).expose_provenance();
            let owner = NonZeroUsize::new(owner).expect("a reference is not null");
            segments::register(start, size, owner)?;
        }
        tools::allow(start, header);
        // SAFETY: `size` bytes from `start` belong to the chunk, and that is more than its header.
        let behind = unsafe { start.add(header) };
        if self.mode == Mode::Hardened {
            tools::allow(behind, size - header);
            // SAFETY: as above; no object lies there yet.
            unsafe { behind.write_bytes(FREE, size - header) };
        }
        tools::forbid(behind, size - header);
        Ok(())
    }

    /// Prepares a chunk that is about to go back to its source.
    fn chunk_going(&self, list: &RawFreeList, chunk: ListChunk) {
        let start = chunk.header.cast::<u8>();
        if list.segment_unit() > 1 {
            segments::unregister(start, chunk.size);
        }
        tools::allow_defined(start, chunk.size);
    }

    /// Allocates an object.
    fn alloc(&self, list: &RawFreeList) -> Result<NonNull<u8>, AllocError> {
        let refused = |_| AllocError::new(ErrorKind::SourceRefused, list.layout().size());
        {
            // Before anything else changes: the memory for the records may be refused, too.
            let mut books = self.books.borrow_mut();
            books.objects.try_reserve(1).map_err(refused)?;
            books.resting.try_reserve(1).map_err(refused)?;
            // Every object may become vacant at some time.
            let most = books.objects.len() + 1;
            books.vacant.try_reserve(most).map_err(refused)?;
        }
        let place = match self.mode {
            Mode::Passthrough => self.alloc_by_malloc(list)?,
            Mode::Tool | Mode::Hardened => match self.take_vacant() {
                Some(place) => place,
                None => list.take_fresh(1).or_else(|error| {
                    // Objects in quarantine are free: reusing them early is better than an error.
                    self.end_rest(list);
                    self.take_vacant().ok_or(error)
                })?,
            },
        };
        self.hand_out(list, place);
        Ok(place)
    }

    /// Allocates `objects` objects next to each other.
    fn alloc_run(&self, list: &RawFreeList, objects: usize) -> Result<NonNull<u8>, AllocError> {
        if objects == 1 && self.mode == Mode::Passthrough {
            return self.alloc(list);
        }
        if self.mode == Mode::Passthrough {
            return Err(AllocError::new(ErrorKind::SourceRefused, objects));
        }
        let run = list.take_fresh(objects)?;
        let reserved = {
            let mut books = self.books.borrow_mut();
            let most = books.objects.len() + objects;
            let objects = books.objects.try_reserve(objects).is_ok();
            objects
                && books.resting.try_reserve(1).is_ok()
                && books.vacant.try_reserve(most).is_ok()
        };
        if !reserved {
            // No other code has seen them: they are fresh again.
            list.fresh.set(run.as_ptr());
            return Err(AllocError::new(ErrorKind::SourceRefused, objects));
        }
        for index in 0..objects {
            // SAFETY: the run has `objects` objects.
            self.hand_out(list, unsafe { run.add(index * list.stride()) });
        }
        Ok(run)
    }

    /// Records places of a chunk that were not handed out, before another chunk becomes the fresh
    /// one. If there is no memory for the record, these places are not used any more.
    fn leave(&self, list: &RawFreeList, first: *mut u8, objects: usize) {
        let mut books = self.books.borrow_mut();
        let room = books.objects.len() + objects;
        if books.vacant.try_reserve(room).is_ok() {
            let places = (0..objects).map(|index| first.wrapping_add(index * list.stride()));
            books.vacant.extend(places.rev().filter_map(NonNull::new));
        }
    }

    /// Frees an object, or aborts at a misuse.
    fn free(&self, list: &RawFreeList, object: NonNull<u8>) {
        let address = object.addr().get();
        let mut books = self.books.borrow_mut();
        match books.objects.get(&address).copied() {
            Some(false) => {}
            Some(true) => self.stop(list, Misuse::DoubleFree, address),
            None if books.vacant.iter().any(|place| place.addr().get() == address) => {
                self.stop(list, Misuse::DoubleFree, address)
            }
            None => self.stop(list, Misuse::ForeignPointer, address),
        }
        books.objects.insert(address, true);
        if self.mode == Mode::Passthrough {
            books.objects.remove(&address);
            drop(books);
            return self.free_by_malloc(list, object);
        }
        let (size, whole) = (list.layout().size(), list.stride());
        if self.mode == Mode::Hardened {
            tools::allow_defined(object, whole);
            // SAFETY: the place is `whole` bytes long, and belonged to the caller of `free` until
            // here.
            unsafe {
                if !holds(object.add(size), whole - size, ZONE) {
                    self.stop(list, Misuse::Overrun, address);
                }
                object.write_bytes(FREE, whole);
            }
        }
        tools::forbid(object, whole);
        books.resting.push_back(object);
        if books.resting.len() > RESTING {
            drop(books);
            self.end_one_rest(list);
        }
    }

    /// Empties the quarantine, and releases the chunks if nothing is live. Returns the bytes
    /// released.
    fn trim(&self, list: &RawFreeList) -> usize {
        self.end_rest(list);
        if self.live() > 0 || self.has_no_chunks() {
            return 0;
        }
        self.check_vacant(list);
        self.books.borrow_mut().vacant.clear();
        list.release_all()
    }

    /// The list is dropped: checks all free places.
    fn end(&self, list: &RawFreeList) {
        if self.mode == Mode::Passthrough {
            let objects: Vec<usize> = self.books.borrow().objects.keys().copied().collect();
            for address in objects {
                // The provenance of a block was exposed when it was allocated.
                let block = core::ptr::with_exposed_provenance_mut(address);
                self.free_by_malloc(list, NonNull::new(block).expect("a block is somewhere"));
            }
            return self.books.borrow_mut().objects.clear();
        }
        self.end_rest(list);
        self.check_vacant(list);
    }
}
