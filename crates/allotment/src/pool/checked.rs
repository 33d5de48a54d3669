//! Checked ("watched") blocks: every call takes the slow path, and each block is in the books.
//!
//! | mode | when | memory of a block |
//! |---|---|---|
//! | tool | AddressSanitizer or Valgrind is present | 16 bytes of red zone behind it |
//! | hardened | the builder's option | the same; the red zone holds a pattern that is checked |
//! | pass-through | `ALLOTMENT_PASSTHROUGH=1` | a malloc block of its own |
//!
//! Hardened mode finds double and stale frees, foreign pointers, wrong sizes, overruns and writes
//! after free. In the other modes the tool, or malloc and its tool, find what they can.
//!
//! A freed block rests until [`RESTING`] others have been freed after it. The books lie outside the
//! chunks, so a write after free destroys no evidence.
//!
//! # Invariants
//!
//! 1. `objects` has an entry for each block that was handed out and is not vacant: the layout it
//!    was requested with, and whether it was freed and rests. `vacant` holds, by class, the freed
//!    blocks that may be handed out again.
//! 2. In hardened mode a block that rests or is vacant holds [`FREE`] in all of its bytes, unless a
//!    write after free changed them. Behind a live block, up to the end of its place, every byte is
//!    [`ZONE`].

use core::alloc::Layout;
use core::cell::RefCell;
use core::ptr::NonNull;
use std::alloc::{GlobalAlloc, System};
use std::collections::{HashMap, VecDeque};

use super::blocks::Blocks;
use super::chunk_supply::ChunkSupply;
use super::class_lists::CarveRange;
use super::classes::{CLASSES, Class, align_of, class_of, size_of};
use crate::checked::misuse::{Misuse, stop};
use crate::checked::{FREE, GUARD, Mode, RESTING, ZONE, holds};
use crate::error::{AllocError, ErrorKind};
use crate::memory::tools;

#[derive(Clone, Copy, Debug)]
struct Object {
    layout: Layout,
    rests: bool,
}

#[derive(Debug, Default)]
struct Books {
    objects: HashMap<usize, Object>,
    resting: VecDeque<NonNull<u8>>,
    vacant: Vec<Vec<NonNull<u8>>>,
    /// The bytes of live objects.
    bytes: usize,
}

/// The books about watched blocks.
#[derive(Debug)]
pub(super) struct Watch {
    mode: Mode,
    kind: &'static str,
    name: Option<Box<str>>,
    books: RefCell<Books>,
    /// The range that new blocks are carved from.
    range: CarveRange,
}

impl Watch {
    /// Returns a watch if this process or option needs one.
    pub(super) fn wanted(
        hardened: bool,
        kind: &'static str,
        name: Option<&str>,
    ) -> Option<Box<Self>> {
        let mode = Mode::wanted(hardened)?;
        let books = Books {
            objects: HashMap::new(),
            resting: VecDeque::new(),
            vacant: vec![Vec::new(); CLASSES],
            bytes: 0,
        };
        let name = name.map(Box::from);
        Some(Box::new(Self {
            mode,
            kind,
            name,
            books: RefCell::new(books),
            range: CarveRange::empty(),
        }))
    }

    /// Whether each block comes from malloc.
    pub(super) fn has_no_chunks(&self) -> bool {
        self.mode == Mode::Passthrough
    }

    /// Returns the number of live blocks and their bytes.
    pub(super) fn live(&self) -> (usize, usize) {
        let books = self.books.borrow();
        (books.objects.len() - books.resting.len(), books.bytes)
    }

    /// The layout of a block with its red zone.
    fn place(layout: Layout) -> Option<Layout> {
        let size = layout.size().checked_add(GUARD)?.checked_next_multiple_of(GUARD)?;
        Layout::from_size_align(size, layout.align().max(GUARD)).ok()
    }

    /// The bytes of the place that a block of this layout has.
    fn whole(layout: Layout) -> usize {
        let place = Self::place(layout).expect("it was allocated");
        class_of(place).map_or(place.size(), size_of)
    }

    /// Carves from this range from now on.
    pub(super) fn open(&self, start: *mut u8, end: *mut u8) {
        self.range.open(start, end);
    }

    fn carve(&self, class: Class) -> Option<NonNull<u8>> {
        let gap = self.range.gap(align_of(class));
        let start = self.range.advance(gap + size_of(class))?;
        // SAFETY: the range had at least `gap + size_of(class)` bytes.
        Some(unsafe { start.add(gap) })
    }

    /// Allocates a block.
    pub(super) fn alloc<S: ChunkSupply>(
        &self,
        blocks: &Blocks<S>,
        layout: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        let refused = |_| AllocError::new(ErrorKind::SourceRefused, layout.size());
        {
            // Before anything else changes: memory for the books may be refused too.
            let mut books = self.books.borrow_mut();
            books.objects.try_reserve(1).map_err(refused)?;
            // A free must not need memory.
            let resting = (RESTING + 1).saturating_sub(books.resting.len());
            books.resting.try_reserve(resting).map_err(refused)?;
        }
        let block = if self.mode == Mode::Passthrough {
            self.alloc_by_malloc(blocks, layout)?
        } else {
            self.alloc_place(blocks, layout).or_else(|error| {
                // Resting blocks are free: better to use them early than to refuse.
                if self.end_rest(blocks) { self.alloc_place(blocks, layout) } else { Err(error) }
            })?
        };
        let mut books = self.books.borrow_mut();
        books.objects.insert(block.addr().get(), Object { layout, rests: false });
        books.bytes += layout.size();
        Ok(block)
    }

    fn alloc_place<S: ChunkSupply>(
        &self,
        blocks: &Blocks<S>,
        layout: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let place = Self::place(layout).ok_or(overflow)?;
        let block = match class_of(place) {
            None => blocks.alloc_large(place, place.size())?,
            Some(class) => {
                // Reserves the entry that the block needs when it becomes vacant.
                let mut books = self.books.borrow_mut();
                let most = books.objects.len() + 1;
                let refused = |_| AllocError::new(ErrorKind::SourceRefused, layout.size());
                books.vacant[class.index()].try_reserve(most).map_err(refused)?;
                match books.vacant[class.index()].pop() {
                    Some(block) => {
                        self.check_untouched(block, layout, size_of(class));
                        block
                    }
                    None => match self.carve(class) {
                        Some(block) => block,
                        None => {
                            // Accounting for the new chunk reads the books.
                            drop(books);
                            blocks.grow(class)?;
                            self.carve(class).expect("a chunk has room for it")
                        }
                    },
                }
            }
        };
        let (size, whole) = (layout.size(), Self::whole(layout));
        if self.mode == Mode::Hardened {
            tools::allow(block, whole);
            // SAFETY: the place is new or vacant, and has `whole` bytes, more than `size`.
            unsafe { block.add(size).write_bytes(ZONE, whole - size) };
            tools::forbid(block, whole);
        }
        tools::allow(block, size);
        Ok(block)
    }

    /// Frees a block, or stops the process at a misuse.
    pub(super) fn free<S: ChunkSupply>(
        &self,
        blocks: &Blocks<S>,
        block: NonNull<u8>,
        layout: Layout,
    ) {
        let address = block.addr().get();
        let mut books = self.books.borrow_mut();
        let object = match books.objects.get(&address).copied() {
            Some(object) if !object.rests => object,
            Some(object) => self.stop(Misuse::DoubleFree, address, object.layout.size()),
            None if books.vacant.iter().flatten().any(|vacant| *vacant == block) => {
                self.stop(Misuse::DoubleFree, address, layout.size())
            }
            None => self.stop(Misuse::ForeignPointer, address, layout.size()),
        };
        if object.layout != layout {
            self.stop(Misuse::WrongSize(object.layout.size()), address, layout.size());
        }
        books.bytes -= layout.size();
        if self.mode == Mode::Passthrough {
            books.objects.remove(&address);
            return Self::free_by_malloc(blocks, block, layout);
        }
        let (size, whole) = (layout.size(), Self::whole(layout));
        if self.mode == Mode::Hardened {
            tools::allow_defined(block, whole);
            // SAFETY: the place has `whole` bytes, and its user has just given it up.
            unsafe {
                if !holds(block.add(size), whole - size, ZONE) {
                    self.stop(Misuse::Overrun, address, size);
                }
                block.write_bytes(FREE, whole);
            }
        }
        tools::forbid(block, whole);
        books.objects.insert(address, Object { layout, rests: true });
        books.resting.push_back(block);
        if books.resting.len() > RESTING {
            drop(books);
            self.end_one_rest(blocks);
        }
    }

    /// Makes the block that has rested longest vacant, or frees it if it is large. Returns whether
    /// one rested.
    fn end_one_rest<S: ChunkSupply>(&self, blocks: &Blocks<S>) -> bool {
        let mut books = self.books.borrow_mut();
        let Some(oldest) = books.resting.pop_front() else { return false };
        let object = books.objects.remove(&oldest.addr().get()).expect("what rests is noted");
        let whole = Self::whole(object.layout);
        self.check_untouched(oldest, object.layout, whole);
        match Self::place(object.layout).and_then(class_of) {
            Some(class) => books.vacant[class.index()].push(oldest),
            None => {
                drop(books);
                // SAFETY: a large block of ours, freed by its user and handed to no other.
                unsafe { blocks.free_large(oldest) };
            }
        }
        true
    }

    /// Ends the rest of all blocks. Returns whether there were any.
    pub(super) fn end_rest<S: ChunkSupply>(&self, blocks: &Blocks<S>) -> bool {
        let mut any = false;
        while self.end_one_rest(blocks) {
            any = true;
        }
        any
    }

    /// Frees every block, and checks those that were free before.
    pub(super) fn clear<S: ChunkSupply>(&self, blocks: &Blocks<S>) {
        self.end_rest(blocks);
        let mut books = self.books.borrow_mut();
        if self.mode == Mode::Passthrough {
            for (address, object) in books.objects.drain() {
                // The provenance of a block was exposed when it was allocated.
                let block = core::ptr::with_exposed_provenance_mut(address);
                let block = NonNull::new(block).expect("a block is somewhere");
                Self::free_by_malloc(blocks, block, object.layout);
            }
        }
        let layout = Layout::new::<u8>();
        for class in Class::all() {
            for block in books.vacant[class.index()].drain(..) {
                self.check_untouched(block, layout, size_of(class));
            }
        }
        books.objects.clear();
        books.bytes = 0;
        self.range.open(core::ptr::null_mut(), core::ptr::null_mut());
    }

    /// Frees the books' memory. No block is live, and none will be allocated or freed.
    pub(super) fn end(&self) {
        *self.books.borrow_mut() = Books::default();
    }

    fn check_untouched(&self, block: NonNull<u8>, layout: Layout, whole: usize) {
        if self.mode == Mode::Hardened {
            tools::allow_defined(block, whole);
            // SAFETY: a free place of `whole` bytes, all of which were written when it was freed.
            if !unsafe { holds(block, whole, FREE) } {
                self.stop(Misuse::WriteAfterFree, block.addr().get(), layout.size());
            }
            tools::forbid(block, whole);
        }
    }

    fn alloc_by_malloc<S: ChunkSupply>(
        &self,
        blocks: &Blocks<S>,
        layout: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        let layout = Self::malloc_layout(layout);
        blocks.supply.charge(layout.size())?;
        // SAFETY: the size is not zero.
        let Some(block) = NonNull::new(unsafe { System.alloc(layout) }) else {
            blocks.supply.credit(layout.size());
            return Err(AllocError::new(ErrorKind::SourceRefused, layout.size()));
        };
        let _ = block.as_ptr().expose_provenance();
        blocks.record.hold(layout.size());
        blocks.record.source_calls.add(1);
        Ok(block)
    }

    fn free_by_malloc<S: ChunkSupply>(blocks: &Blocks<S>, block: NonNull<u8>, layout: Layout) {
        let layout = Self::malloc_layout(layout);
        // SAFETY: the block was in the books until now, so `alloc_by_malloc` allocated it with this
        // layout, and it is freed once.
        unsafe { System.dealloc(block.as_ptr(), layout) };
        blocks.record.held_bytes.sub(layout.size() as u64);
        blocks.record.source_calls.add(1);
        blocks.supply.credit(layout.size());
    }

    fn malloc_layout(layout: Layout) -> Layout {
        Layout::from_size_align(layout.size().max(1), layout.align()).unwrap_or(layout)
    }

    fn stop(&self, misuse: Misuse, address: usize, size: usize) -> ! {
        stop(misuse, self.kind, self.name.as_deref(), address, size)
    }
}
