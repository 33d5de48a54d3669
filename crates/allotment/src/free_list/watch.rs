//! The watched list: every call on the slow path, each object known.
//!
//! | mode | when | memory of an object | what is found |
//! |---|---|---|---|
//! | tool | AddressSanitizer or Valgrind is there | its place, 16 bytes of red zone behind | what the tool finds |
//! | hardened | the builder's option | the same, the red zone a pattern that is checked | double and stale free, foreign pointer, overrun, write after free |
//! | pass-through | `ALLOTMENT_PASSTHROUGH=1` | a malloc block of its own | what malloc or its tool finds |
//!
//! A freed object rests until [`RESTING`] others were freed after it. Free places are noted outside the slabs: a write
//! after free destroys no evidence.
//!
//! # Invariants
//!
//! 1. `objects` has an entry for each place that was handed out and is not vacant: whether it was freed, and rests.
//!    `vacant` are the places that were handed out before and may be again.
//! 2. Hardened: every byte of a slab behind its header that is in no live object's place is [`FREE`] unless somebody
//!    wrote there who should not; behind an object, to its place's end, every byte is [`ZONE`].

use core::alloc::Layout;
use core::cell::RefCell;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use std::alloc::{GlobalAlloc, System};
use std::collections::{HashMap, VecDeque};

use super::raw::RawFreeList;
use super::slabs::{KIND, Slab};
use crate::error::{AllocError, ErrorKind};
use crate::memory::source::SharedSource;
use crate::memory::{segments, tools};
use crate::misuse::{Misuse, stop};
use crate::watching::{FREE, GUARD, Mode, RESTING, ZONE, holds};

#[derive(Debug, Default)]
struct Books {
    objects: HashMap<usize, bool>,
    resting: VecDeque<NonNull<u8>>,
    vacant: Vec<NonNull<u8>>,
}

/// What a watched list knows beside its slabs.
#[derive(Debug)]
pub(super) struct Watch {
    mode: Mode,
    books: RefCell<Books>,
}

impl Watch {
    /// The watch that a list needs, if it needs one.
    pub(super) fn wanted(hardened: bool) -> Option<Self> {
        let mode = Mode::wanted(hardened)?;
        Some(Self { mode, books: RefCell::default() })
    }

    /// Whether objects come from malloc one by one.
    pub(super) fn has_no_slabs(&self) -> bool {
        self.mode == Mode::Passthrough
    }

    /// The layout of a place that has room for the red zone.
    pub(super) fn slot_layout(&self, layout: Layout) -> Option<Layout> {
        let size = layout.size().checked_add(GUARD)?;
        Layout::from_size_align(size, layout.align().max(GUARD)).ok()
    }

    /// The unit of slabs that are registered as segments, or 1.
    pub(super) fn segment_unit(&self, source: &SharedSource) -> usize {
        self.mode.segment_unit(source)
    }

    /// The objects in use.
    pub(super) fn live(&self) -> usize {
        let books = self.books.borrow();
        books.objects.len() - books.resting.len()
    }

    /// A slab was taken: it holds nothing but its header, of so many bytes.
    pub(super) fn slab_taken(
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
        // SAFETY: `size` bytes from `start` are the slab's, and more than its header.
        let behind = unsafe { start.add(header) };
        if self.mode == Mode::Hardened {
            tools::allow(behind, size - header);
            // SAFETY: as above; nobody's yet.
            unsafe { behind.write_bytes(FREE, size - header) };
        }
        tools::forbid(behind, size - header);
        Ok(())
    }

    /// A slab goes back to its source.
    pub(super) fn slab_going(&self, list: &RawFreeList, slab: Slab) {
        let start = slab.header.cast::<u8>();
        if list.segment_unit() > 1 {
            segments::unregister(start, slab.size);
        }
        tools::allow_defined(start, slab.size);
    }

    /// An object.
    pub(super) fn alloc(&self, list: &RawFreeList) -> Result<NonNull<u8>, AllocError> {
        let refused = |_| AllocError::new(ErrorKind::SourceRefused, list.layout().size());
        {
            // Before anything else changes: the books' own memory may be refused too.
            let mut books = self.books.borrow_mut();
            books.objects.try_reserve(1).map_err(refused)?;
            books.resting.try_reserve(1).map_err(refused)?;
            // Every object may be vacant once.
            let most = books.objects.len() + 1;
            books.vacant.try_reserve(most).map_err(refused)?;
        }
        let place = match self.mode {
            Mode::Passthrough => self.alloc_by_malloc(list)?,
            Mode::Tool | Mode::Hardened => match self.take_vacant() {
                Some(place) => place,
                None => list.take_fresh(1).or_else(|error| {
                    // Objects that rest are free: better used early than refused.
                    self.end_rest(list);
                    self.take_vacant().ok_or(error)
                })?,
            },
        };
        self.hand_out(list, place);
        Ok(place)
    }

    fn take_vacant(&self) -> Option<NonNull<u8>> {
        self.books.borrow_mut().vacant.pop()
    }

    /// So many objects behind each other.
    pub(super) fn alloc_run(
        &self,
        list: &RawFreeList,
        objects: usize,
    ) -> Result<NonNull<u8>, AllocError> {
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
            // Nobody has seen them: they are fresh again.
            list.fresh.set(run.as_ptr());
            return Err(AllocError::new(ErrorKind::SourceRefused, objects));
        }
        for index in 0..objects {
            // SAFETY: the run has so many objects.
            self.hand_out(list, unsafe { run.add(index * list.stride()) });
        }
        Ok(run)
    }

    /// Notes places that were not handed out, and that another slab's come before. Where there is no memory for the note
    /// they serve no more.
    pub(super) fn leave(&self, list: &RawFreeList, first: *mut u8, objects: usize) {
        let mut books = self.books.borrow_mut();
        let room = books.objects.len() + objects;
        if books.vacant.try_reserve(room).is_ok() {
            let places = (0..objects).map(|index| first.wrapping_add(index * list.stride()));
            books.vacant.extend(places.rev().filter_map(NonNull::new));
        }
    }

    /// A place becomes an object.
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

    /// Frees an object, or stops at a misuse.
    pub(super) fn free(&self, list: &RawFreeList, object: NonNull<u8>) {
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
            // SAFETY: the place is `whole` bytes long, and the caller's until now.
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

    /// The place that rested longest is vacant.
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

    /// Nothing rests any more, and the slabs go if nothing is live. The bytes given back.
    pub(super) fn trim(&self, list: &RawFreeList) -> usize {
        self.end_rest(list);
        if self.live() > 0 || self.has_no_slabs() {
            return 0;
        }
        self.check_vacant(list);
        self.books.borrow_mut().vacant.clear();
        list.give_all_back()
    }

    /// The list is dropped: checks what is free.
    pub(super) fn end(&self, list: &RawFreeList) {
        if self.mode == Mode::Passthrough {
            let objects: Vec<usize> = self.books.borrow().objects.keys().copied().collect();
            for address in objects {
                // The provenance of a block is exposed where it is allocated.
                let block = core::ptr::with_exposed_provenance_mut(address);
                self.free_by_malloc(list, NonNull::new(block).expect("a block is somewhere"));
            }
            return self.books.borrow_mut().objects.clear();
        }
        self.end_rest(list);
        self.check_vacant(list);
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
            // SAFETY: a free place of the list's, of which every byte was written when its slab came.
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
        // SAFETY: in the books until now, so it came from `alloc_by_malloc` with this layout and is freed once.
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
