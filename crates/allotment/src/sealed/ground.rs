//! The unsafe heart of sealed memory: chunks, a position in them, and their pages' protection.
//!
//! ```text
//! newest                                                     the oldest
//! ┌───────────────────────────┐   ┌──────────────────────────────────┐
//! │Chunk│block│block│  free   │──▶│Chunk│Ground│name│block│block│free│
//! └───────────────────────────┘   └──────────────────────────────────┘
//!         FIRST ≤   used ≤ charged ≤ size
//! ```
//!
//! # Invariants
//!
//! 1. `newest` heads a list of chunks that this ground alone holds. Each is a mapping of our own of `size` bytes at a
//!    multiple of the segment granule, begins with its `Chunk`, and is registered under the record. The ground lies in
//!    the oldest; `current` is one of them.
//! 2. Bytes in `[used, size)` of a chunk belong to no block. Every block lies in `[FIRST, used)` of one chunk, and no
//!    two overlap. A chunk whose `used` is `FIRST` has none; in any other none lies below `lowest`.
//! 3. `charged` is a whole number of pages, at least up to `used`. The sum over the chunks is the record's held bytes,
//!    and what the budget was charged. Nobody has written behind it since the chunk was taken.
//! 4. `builder` is the token of a living thread, or 0. While it is a token, that thread alone touches the cells of the
//!    ground and of the chunks, and chunks are writable. Once it is 0 it stays 0: from then on no cell is written, until
//!    [`end`](Ground::end), whose caller has the ground alone.

use core::alloc::Layout;
use core::cell::Cell;
use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{AllocError, ErrorKind};
use crate::memory::budget::Budget;
use crate::memory::chunks::Chunks;
use crate::memory::layout::{MAX_GROWTH, SEGMENT_GRANULE, align_up, chunk_bytes_for};
use crate::memory::process::unmap_or_discard;
use crate::memory::source::SharedSource;
use crate::memory::{os, segments, tools};
use crate::statistics::{Kind, Record};

/// The beginning of each chunk.
#[repr(C, align(64))]
struct Chunk {
    /// The one before it.
    older: Option<NonNull<Chunk>>,
    size: usize,
    align: usize,
    link: u32,
    /// Its pages may have memory, whether they were touched here or not.
    recycled: bool,
    /// Where its lowest block begins, if it has one.
    lowest: Cell<usize>,
    used: Cell<usize>,
    charged: Cell<usize>,
}

/// Where a chunk's first block may begin.
const FIRST: usize = size_of::<Chunk>();

/// A block of this size or more is worth a look for the chunk that it may leave empty.
const LARGE: usize = 32 << 10;

/// Sealed memory comes from mappings of our own, whose protection can be changed.
static SOURCE: SharedSource = SharedSource::DEFAULT;

/// The state of sealed memory. It lies in the memory itself, and is sealed with it.
pub(crate) struct Ground {
    builder: AtomicUsize,
    newest: Cell<NonNull<Chunk>>,
    current: Cell<NonNull<Chunk>>,
    /// The size of the last chunk taken for growth, from which the next one doubles.
    grown: Cell<usize>,
    record: &'static Record,
    budget: Option<Budget>,
    name: Cell<Option<NonNull<str>>>,
}

thread_local! {
    /// Its address is this thread's token.
    static TOKEN: u8 = const { 0 };
}

/// A number that no other living thread has.
fn token() -> usize {
    TOKEN.with(|token| ptr::from_ref(token).addr())
}

/// On what terms chunks are taken. With a budget they are fresh mappings: a warm chunk's pages have memory before they
/// are charged.
fn chunks(recycles: bool) -> Chunks<'static> {
    Chunks {
        source: &SOURCE,
        budget: None,
        recycles,
        exact: true,
        segment_unit: SEGMENT_GRANULE,
        grows_huge: false,
    }
}

/// Takes a chunk of at least `need` bytes, charged with the pages of its header and on no list. On an error nothing has
/// changed.
fn take_chunk(
    record: &'static Record,
    budget: Option<&Budget>,
    need: usize,
    grown: usize,
) -> Result<NonNull<Chunk>, AllocError> {
    let charged = align_up(FIRST, os::page_size());
    if let Some(budget) = budget {
        budget.charge(charged)?;
    }
    let uncharge = || {
        if let Some(budget) = budget {
            budget.credit(charged);
        }
    };
    let chunks = chunks(budget.is_none());
    let (taken, align) = chunks.take(need, grown).inspect_err(|_| uncharge())?;
    let owner = ptr::from_ref(record).expose_provenance();
    let owner = NonZeroUsize::new(owner).expect("a reference is not null");
    if let Err(error) = segments::register(taken.start, taken.size, owner) {
        chunks.untake(taken, align);
        uncharge();
        return Err(error);
    }
    tools::allow(taken.start, taken.size);
    let chunk = taken.start.cast::<Chunk>();
    // SAFETY: the mapping is ours, at least a granule long, and aligned to one.
    unsafe {
        chunk.write(Chunk {
            older: None,
            size: taken.size,
            align,
            link: taken.link,
            recycled: taken.recycled,
            lowest: Cell::new(FIRST),
            used: Cell::new(FIRST),
            charged: Cell::new(charged),
        });
    }
    record.hold(charged);
    record.chunks.add(1);
    if taken.recycled {
        record.recycled_chunks.add(1);
    } else {
        record.source_calls.add(1);
    }
    Ok(chunk)
}

/// Gives a chunk back to where it came from.
///
/// # Safety
/// It was taken with this record and budget, is on no list, and nothing in it is used any more.
unsafe fn give_chunk(
    record: &'static Record,
    budget: Option<&Budget>,
    chunk: NonNull<Chunk>,
    sealed: bool,
) {
    // SAFETY: the header can be read before the chunk goes, by this function alone; size, alignment and link are those
    // that it was taken with.
    unsafe {
        let Chunk { size, align, link, charged, .. } = chunk.read();
        let start = chunk.cast::<u8>();
        segments::unregister(start, size);
        let writable = !sealed || os::make_accessible(start, size).is_ok();
        record.source_calls.add(u64::from(sealed));
        if writable {
            let mut giving = SOURCE.give(if budget.is_none() { size } else { 0 });
            giving.add(start, size, align, link);
            record.source_calls.add(giving.finish() as u64);
        } else {
            // No mapping is left to split for it. It goes to the system, and leaves its place in the recycler unused.
            unmap_or_discard(start, size);
        }
        record.chunks.sub(1);
        record.held_bytes.sub(charged.get() as u64);
        if let Some(budget) = budget {
            budget.credit(charged.get());
        }
    }
}

impl Ground {
    /// Takes the first chunk and begins to build on this thread. The caller ends it by [`end`](Self::end).
    pub(super) fn begin(
        name: Option<&str>,
        budget: Option<Budget>,
    ) -> Result<NonNull<Self>, AllocError> {
        let record = Record::acquire(Kind::Sealed, name)?;
        let release = |error| {
            record.release();
            error
        };
        let chunk = take_chunk(record, budget.as_ref(), FIRST, 0).map_err(release)?;
        const { assert!(FIRST + size_of::<Ground>() <= 4096 && align_of::<Ground>() <= FIRST) };
        // SAFETY: the chunk is ours, its first page charged, and the ground fits there.
        let ground = unsafe {
            let place = chunk.cast::<u8>().add(FIRST).cast::<Self>();
            chunk.as_ref().used.set(FIRST + size_of::<Self>());
            place.write(Self {
                builder: AtomicUsize::new(token()),
                newest: Cell::new(chunk),
                current: Cell::new(chunk),
                grown: Cell::new(chunk.as_ref().size),
                record,
                budget,
                name: Cell::new(None),
            });
            place
        };
        if let Some(name) = name {
            // SAFETY: begun above. If the name has no room, the ground ends at once.
            match unsafe { ground.as_ref() }.copy_name(name) {
                Ok(()) => {}
                Err(error) => {
                    // SAFETY: nobody else knows of it.
                    unsafe { Self::end(ground) };
                    return Err(error);
                }
            }
        }
        Ok(ground)
    }

    fn copy_name(&self, name: &str) -> Result<(), AllocError> {
        let Ok(layout) = Layout::array::<u8>(name.len()) else {
            return Err(AllocError::new(ErrorKind::SizeOverflow, name.len()));
        };
        let copy = self.alloc(layout)?;
        // SAFETY: a fresh block so long.
        unsafe { copy.copy_from_nonoverlapping(NonNull::from(name).cast(), name.len()) };
        let bytes = NonNull::slice_from_raw_parts(copy, name.len());
        self.name.set(NonNull::new(bytes.as_ptr() as *mut str));
        // It is the ground's own, no object of the user's.
        self.count(-1, -(name.len() as i64));
        Ok(())
    }

    pub(super) fn record(&self) -> &'static Record {
        self.record
    }

    pub(super) fn name(&self) -> Option<&str> {
        // SAFETY: a copy of a string in the ground's own memory, which stays as long as the ground.
        self.name.get().map(|name| unsafe { name.as_ref() })
    }

    /// Whether the calling thread builds here (invariant 4).
    fn is_building(&self) -> bool {
        // Relaxed: a thread finds its own token if it wrote it and nothing since, and never another's.
        self.builder.load(Ordering::Relaxed) == token()
    }

    fn count(&self, objects: i64, bytes: i64) {
        self.record.live_objects.add(objects as u64);
        self.record.live_bytes.add(bytes as u64);
    }

    /// Memory for one block. For a size of zero no memory: an address that is aligned.
    pub(super) fn alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if !self.is_building() {
            return Err(AllocError::new(ErrorKind::Sealed, layout.size()));
        }
        if layout.size() == 0 {
            let dangling = ptr::without_provenance_mut(layout.align());
            return Ok(NonNull::new(dangling).expect("an alignment is not zero"));
        }
        let block = match self.place(self.current.get(), layout)? {
            Some(block) => block,
            None => self.place_in_new_chunk(layout)?,
        };
        self.count(1, layout.size() as i64);
        Ok(block)
    }

    /// A block behind all others of this chunk, if it has room there.
    fn place(
        &self,
        chunk: NonNull<Chunk>,
        layout: Layout,
    ) -> Result<Option<NonNull<u8>>, AllocError> {
        // SAFETY: a chunk that the ground holds, and whose header this thread alone touches (invariants 1 and 4).
        let header = unsafe { chunk.as_ref() };
        let base = chunk.addr().get();
        let start = align_up(base + header.used.get(), layout.align()) - base;
        // No sum of an address and a valid layout wraps (memory/layout.rs).
        let end = start + layout.size();
        if end > header.size {
            return Ok(None);
        }
        self.charge_up_to(header, end)?;
        if header.used.get() == FIRST {
            header.lowest.set(start);
        }
        header.used.set(end);
        // SAFETY: inside the chunk.
        Ok(Some(unsafe { chunk.cast::<u8>().add(start) }))
    }

    /// Charges the pages that lie below `end` (invariant 3).
    fn charge_up_to(&self, header: &Chunk, end: usize) -> Result<(), AllocError> {
        let more = align_up(end, os::page_size()).saturating_sub(header.charged.get());
        if more > 0 {
            if let Some(budget) = &self.budget {
                budget.charge(more)?;
            }
            self.record.hold(more);
            header.charged.set(header.charged.get() + more);
        }
        Ok(())
    }

    #[cold]
    fn place_in_new_chunk(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let need = chunk_bytes_for(FIRST, layout.size(), layout.align(), SEGMENT_GRANULE)
            .ok_or(AllocError::new(ErrorKind::SizeOverflow, layout.size()))?;
        if let Some(budget) = &self.budget {
            // Before the system is asked: what the budget refuses is the budget's error, and maps nothing.
            budget.charge(layout.size())?;
            budget.credit(layout.size());
        }
        let chunk = take_chunk(self.record, self.budget.as_ref(), need, self.grown.get())?;
        let block = match self.place(chunk, layout) {
            Ok(block) => block.expect("the chunk was taken with room for the block"),
            Err(error) => {
                // SAFETY: taken above, on no list, and holds nothing.
                unsafe { give_chunk(self.record, self.budget.as_ref(), chunk, false) };
                return Err(error);
            }
        };
        // SAFETY: the headers are ours (invariants 1 and 4), and no reference to one is held here.
        unsafe {
            (*chunk.as_ptr()).older = Some(self.newest.get());
            self.newest.set(chunk);
            let size = chunk.as_ref().size;
            if size <= MAX_GROWTH {
                self.grown.set(size);
            }
            // Go on where more room is left.
            let current = self.current.get();
            let left_there = current.as_ref().size - current.as_ref().used.get();
            if size - chunk.as_ref().used.get() >= left_there {
                self.current.set(chunk);
            }
        }
        Ok(block)
    }

    /// The chunk whose last block this one is, if it is the current chunk, or the block is large.
    fn chunk_that_ends_with(&self, block: NonNull<u8>, size: usize) -> Option<NonNull<Chunk>> {
        let end = block.addr().get() + size;
        // SAFETY: chunks that the ground holds (invariants 1 and 4).
        let ends = |chunk: NonNull<Chunk>| unsafe {
            chunk < block.cast() && chunk.addr().get() + chunk.as_ref().used.get() == end
        };
        if ends(self.current.get()) {
            return Some(self.current.get());
        }
        let mut chunk = (size >= LARGE).then(|| self.newest.get());
        while let Some(this) = chunk {
            if ends(this) {
                return chunk;
            }
            // SAFETY: as above.
            chunk = unsafe { this.as_ref() }.older;
        }
        None
    }

    /// Frees a block: the last of its chunk gives its bytes back, and a chunk that held nothing but a large one goes.
    /// On another thread, or once all is sealed, nothing happens.
    ///
    /// # Safety
    /// It came from here with this layout, was not freed since, and is not used any more.
    pub(super) unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        let size = layout.size();
        if size == 0 || !self.is_building() {
            return;
        }
        self.count(-1, -(size as i64));
        if let Some(chunk) = self.chunk_that_ends_with(block, size) {
            let start = block.addr().get() - chunk.addr().get();
            // SAFETY: a chunk that the ground holds (invariants 1 and 4).
            let header = unsafe { chunk.as_ref() };
            let is_empty = start == header.lowest.get();
            header.used.set(if is_empty { FIRST } else { start });
            if is_empty && chunk != self.current.get() {
                self.drop_empty(chunk);
            }
        }
    }

    /// Gives a chunk back that holds nothing, unless it is the ground's. Nothing is placed in it any more.
    fn drop_empty(&self, empty: NonNull<Chunk>) {
        // SAFETY: chunks that the ground holds (invariants 1 and 4); no reference to a header outlives its statement.
        unsafe {
            let older = empty.as_ref().older;
            if older.is_none() {
                return;
            }
            if self.newest.get() == empty {
                self.newest.set(older.expect("checked above"));
            } else {
                let mut newer = self.newest.get();
                while newer.as_ref().older != Some(empty) {
                    newer = newer.as_ref().older.expect("the chunk is on the list");
                }
                (*newer.as_ptr()).older = older;
            }
            give_chunk(self.record, self.budget.as_ref(), empty, false);
        }
    }

    /// Gives a block another size in place, if it is the last of its chunk and there is room.
    ///
    /// # Safety
    /// As for [`free`](Self::free); neither size is zero.
    pub(super) unsafe fn resize_in_place(
        &self,
        block: NonNull<u8>,
        old: usize,
        new: usize,
    ) -> Result<bool, AllocError> {
        if !self.is_building() {
            return Err(AllocError::new(ErrorKind::Sealed, new));
        }
        match self.chunk_that_ends_with(block, old) {
            Some(chunk) => {
                // SAFETY: a chunk that the ground holds (invariants 1 and 4).
                let header = unsafe { chunk.as_ref() };
                let start = block.addr().get() - chunk.addr().get();
                if header.size - start < new {
                    return Ok(false);
                }
                self.charge_up_to(header, start + new)?;
                header.used.set(start + new);
            }
            None if new > old => return Ok(false),
            None => {}
        }
        self.count(0, new as i64 - old as i64);
        Ok(true)
    }

    /// Ends building and makes all pages read-only; those without a block give their memory back.
    ///
    /// # Errors
    /// When the system refuses. Nothing but [`end`](Self::end) may come next.
    ///
    /// # Safety
    /// The ground was begun on this thread, not sealed, and nobody writes to its memory any more.
    pub(super) unsafe fn seal(ground: NonNull<Self>) -> Result<(), AllocError> {
        // SAFETY: the ground was begun, and this thread builds (invariant 4).
        let this = unsafe { ground.as_ref() };
        let record = this.record;
        let mut next = Some(this.newest.get());
        while let Some(chunk) = next {
            // SAFETY: a chunk that the ground holds (invariant 1).
            let header = unsafe { chunk.as_ref() };
            next = header.older;
            if header.used.get() == FIRST {
                this.drop_empty(chunk);
            }
        }
        let newest = this.newest.get();
        let mut structures = size_of::<Self>() + this.name().map_or(0, str::len);
        let mut stale = 0;
        let mut next = Some(newest);
        while let Some(chunk) = next {
            // SAFETY: a chunk that the ground holds (invariant 1).
            let header = unsafe { chunk.as_ref() };
            structures += FIRST;
            let kept = align_up(header.used.get(), os::page_size());
            // Nobody wrote behind `charged` (invariant 3), but a warm chunk's pages have memory there too.
            let touched = if header.recycled { header.size } else { header.charged.get() };
            if touched > kept {
                // SAFETY: no block lies there (invariant 2).
                let _ = unsafe { os::discard(chunk.cast::<u8>().add(kept), touched - kept) };
                record.source_calls.add(1);
            }
            stale += header.charged.get() - kept;
            header.charged.set(kept);
            next = header.older;
        }
        record.held_bytes.sub(stale as u64);
        if let Some(budget) = &this.budget {
            budget.credit(stale);
        }
        record.structure_bytes.set(structures as u64);
        let filled = record.live_bytes.get() + structures as u64;
        record.wasted_bytes.set(record.held_bytes.get().saturating_sub(filled));
        // Relaxed: who gets what was built is handed it by its owner.
        this.builder.store(0, Ordering::Relaxed);
        let mut next = Some(newest);
        while let Some(chunk) = next {
            // SAFETY: as above. Nothing here is written any more (invariant 4).
            unsafe {
                let Chunk { size, older, .. } = *chunk.as_ref();
                record.source_calls.add(1);
                os::make_read_only(chunk.cast(), size)?;
                next = older;
            }
        }
        Ok(())
    }

    /// Has the kernel keep the pages as they are for ever, if it can.
    ///
    /// # Safety
    /// The ground was sealed, and is never ended.
    pub(super) unsafe fn keep_for_ever(&self) {
        let mut next = Some(self.newest.get());
        while let Some(chunk) = next {
            // SAFETY: chunks that the ground holds (invariant 1), and never gives back: the caller's word.
            unsafe {
                // A kernel that can't leaves them read-only as they are.
                let _ = os::seal_for_ever(chunk.cast(), chunk.as_ref().size);
                next = chunk.as_ref().older;
            }
        }
    }

    /// Gives all memory back, the ground's own too. Nothing in it is dropped.
    ///
    /// # Safety
    /// Nothing in it is used any more, and nobody else is here.
    pub(super) unsafe fn end(ground: NonNull<Self>) {
        // SAFETY: passed on to the caller; the ground is read once, and its chunks go after that. Of a chunk the header
        // is read before it goes.
        unsafe {
            let Self { builder, newest, record, budget, .. } = ground.read();
            let sealed = builder.into_inner() == 0;
            let mut next = Some(newest.get());
            while let Some(chunk) = next {
                next = chunk.as_ref().older;
                give_chunk(record, budget.as_ref(), chunk, sealed);
            }
            debug_assert_eq!(record.held_bytes.get(), 0, "every chunk is on the list");
            record.release();
        }
    }
}
