//! `SealedChunks`: the unsafe core of sealed memory. Chunks, a position in each, and the protection
//! of their pages.
//!
//! ```text
//! newest                                oldest
//! ┌────────────────────────────────┐   ┌────────────────────────────────────────────┐
//! │  header   │block│block│  free  │──▶│  header   │SealedChunks│name│block│block│free│
//! └────────────────────────────────┘   └────────────────────────────────────────────┘
//! 0           FIRST ≤     used ≤ charged ≤ size
//! ```
//!
//! # Invariants
//!
//! 1. `newest` heads a list of chunks that only this `SealedChunks` holds. Each chunk is one of the
//!    library's own mappings, has `size` bytes at a multiple of the segment granule, begins with
//!    its header, and is registered under the record. The `SealedChunks` itself lies in the oldest
//!    chunk. `current` is one of the chunks.
//! 2. Bytes in `[used, size)` of a chunk belong to no block. Every block lies in `[FIRST, used)` of
//!    one chunk, and no two blocks overlap. A chunk with `used == FIRST` has no block. In any other
//!    chunk, no block lies below `lowest`.
//! 3. `charged` is a whole number of pages, and at least `used`. Its sum over all chunks is the
//!    record's held bytes, and what the budget was charged. Since a chunk was taken, nothing has
//!    been written to it at or behind `charged`.
//! 4. `building_thread` is the token of a living thread, or 0. While it is a token, only that
//!    thread touches the cells of the `SealedChunks` and of the headers, and the chunks are
//!    writable. Once it is 0, it stays 0. From then on no cell is written until
//!    [`end`](SealedChunks::end), whose caller has exclusive access.

use core::alloc::Layout;
use core::cell::Cell;
use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{AllocError, ErrorKind, OnRefusal};
use crate::memory::acquired_chunk::SmallTouch;
use crate::memory::budget::Budget;
use crate::memory::chunk_source::ChunkSource;
use crate::memory::layout::{MAX_GROWTH, SEGMENT_GRANULE, align_up, chunk_bytes_for};
use crate::memory::process_cache::unmap_or_discard;
use crate::memory::source::SharedSource;
use crate::memory::{os, segment_map, tools};
use crate::options::CommonSettings;
use crate::statistics::{AllocatorKind, Record};

/// The header at the beginning of each chunk.
#[repr(C, align(64))]
struct SealedChunkHeader {
    /// The chunk that was taken before this one.
    older: Option<NonNull<SealedChunkHeader>>,
    size: usize,
    align: usize,
    mapping: u32,
    /// The chunk came from the recycler: its pages may have memory even if this `SealedChunks` did
    /// not touch them.
    recycled: bool,
    /// The offset of the lowest block, if the chunk has a block.
    lowest: Cell<usize>,
    used: Cell<usize>,
    charged: Cell<usize>,
}

/// The offset at which a chunk's first block may begin.
const FIRST: usize = size_of::<SealedChunkHeader>();

/// When a block of at least this size is freed, all chunks are searched for the one that ends with
/// it, because that chunk may then be empty.
const LARGE_BLOCK: usize = 32 << 10;

/// Sealed memory comes from the library's own mappings, whose protection can be changed.
static SOURCE: SharedSource = SharedSource::DEFAULT;

/// Chunks that one thread builds in, and that are then sealed. The value lies in its oldest chunk,
/// and is sealed with it.
pub(crate) struct SealedChunks {
    building_thread: AtomicUsize,
    newest: Cell<NonNull<SealedChunkHeader>>,
    current: Cell<NonNull<SealedChunkHeader>>,
    /// The size of the last chunk that was not taken for one large block. The next chunk has twice
    /// this size.
    last_growth: Cell<usize>,
    record: &'static Record,
    budget: Option<Budget>,
    on_refusal: OnRefusal,
    name: Cell<Option<NonNull<str>>>,
}

thread_local! {
    /// The address of this variable is the thread's token.
    static TOKEN: u8 = const { 0 };
}

/// A number that no other living thread has.
fn token() -> usize {
    TOKEN.with(|token| ptr::from_ref(token).addr())
}

/// How chunks are taken. With a budget, chunks are fresh mappings: the pages of a warm chunk would
/// have memory before they are charged.
fn chunk_source(recycles: bool) -> ChunkSource<'static> {
    ChunkSource {
        source: &SOURCE,
        budget: None,
        recycles,
        exact: true,
        segment_unit: SEGMENT_GRANULE,
        grows_huge: false,
        small: SmallTouch::Faults,
    }
}

/// Takes a chunk of at least `need` bytes, and charges the pages of its header. The chunk is on no
/// list. On an error nothing has changed.
fn take_chunk(
    record: &'static Record,
    budget: Option<&Budget>,
    need: usize,
    last_growth: usize,
) -> Result<NonNull<SealedChunkHeader>, AllocError> {
    let charged = align_up(FIRST, os::page_size());
    if let Some(budget) = budget {
        budget.charge(charged)?;
    }
    let uncharge = || {
        if let Some(budget) = budget {
            budget.credit(charged);
        }
    };
    let source = chunk_source(budget.is_none());
    let taken = source.take(need, last_growth).inspect_err(|_| uncharge())?;
    let owner = ptr::from_ref(record).expose_provenance();
    let owner = NonZeroUsize::new(owner).expect("a reference is not null");
    if let Err(error) = segment_map::register(taken.start, taken.size, owner) {
        source.return_unused(taken);
        uncharge();
        return Err(error);
    }
    tools::allow(taken.start, taken.size);
    let chunk = taken.start.cast::<SealedChunkHeader>();
    // SAFETY: the mapping belongs to this call, has at least one granule, and is aligned to a
    // granule.
    unsafe {
        chunk.write(SealedChunkHeader {
            older: None,
            size: taken.size,
            align: taken.align,
            mapping: taken.mapping,
            recycled: taken.recycled,
            lowest: Cell::new(FIRST),
            used: Cell::new(FIRST),
            charged: Cell::new(charged),
        });
    }
    record.hold_chunk(charged, taken.recycled);
    Ok(chunk)
}

/// Gives a chunk back to where it came from. `sealed` says whether its pages may be read-only.
///
/// # Safety
/// The chunk was taken with this record and budget, is on no list, and nothing in it is used any
/// more.
unsafe fn release_chunk(
    record: &'static Record,
    budget: Option<&Budget>,
    chunk: NonNull<SealedChunkHeader>,
    sealed: bool,
) {
    // SAFETY: the header is read before the chunk is given back, and only this function accesses
    // it. Size, alignment and mapping number are those that the chunk was taken with.
    unsafe {
        let SealedChunkHeader { size, align, mapping, charged, .. } = chunk.read();
        let start = chunk.cast::<u8>();
        segment_map::unregister(start, size);
        let writable = !sealed || os::make_accessible(start, size).is_ok();
        record.source_calls.add(u64::from(sealed));
        if writable {
            let mut batch = SOURCE.release_batch(size, budget.is_none());
            batch.add(start, size, align, mapping);
            record.source_calls.add(batch.finish() as u64);
        } else {
            // The process has too many mappings to split one. The chunk goes back to the system,
            // and its mapping number stays unused.
            unmap_or_discard(start, size);
        }
        record.chunks.sub(1);
        record.held_bytes.sub(charged.get() as u64);
        if let Some(budget) = budget {
            budget.credit(charged.get());
        }
    }
}

impl SealedChunks {
    /// Takes the first chunk, and begins to build on this thread. The caller must
    /// [`end`](Self::end) it.
    pub(super) fn begin(settings: CommonSettings) -> Result<NonNull<Self>, AllocError> {
        let record = Record::acquire(AllocatorKind::Sealed, settings.name())?;
        let release = |error| {
            record.release();
            error
        };
        let chunk = take_chunk(record, settings.budget.as_ref(), FIRST, 0).map_err(release)?;
        const {
            assert!(
                FIRST + size_of::<SealedChunks>() <= 4096 && align_of::<SealedChunks>() <= FIRST
            )
        };
        // SAFETY: the chunk belongs to this call, its first page is charged, and `Self` fits into
        // that page.
        let this = unsafe {
            let this = chunk.cast::<u8>().add(FIRST).cast::<Self>();
            chunk.as_ref().used.set(FIRST + size_of::<Self>());
            this.write(Self {
                building_thread: AtomicUsize::new(token()),
                newest: Cell::new(chunk),
                current: Cell::new(chunk),
                last_growth: Cell::new(chunk.as_ref().size),
                record,
                on_refusal: settings.on_refusal,
                budget: settings.budget,
                name: Cell::new(None),
            });
            this
        };
        if let Some(name) = &settings.name {
            // SAFETY: begun above. It ends only below, if there is no memory for the name.
            match unsafe { this.as_ref() }.copy_name(name) {
                Ok(()) => {}
                Err(error) => {
                    // SAFETY: only this call has it.
                    unsafe { Self::end(this) };
                    return Err(error);
                }
            }
        }
        Ok(this)
    }

    fn copy_name(&self, name: &str) -> Result<(), AllocError> {
        let Ok(layout) = Layout::array::<u8>(name.len()) else {
            return Err(AllocError::new(ErrorKind::SizeOverflow, name.len()));
        };
        let copy = self.alloc(layout)?;
        // SAFETY: a fresh block of `name.len()` bytes.
        unsafe { copy.copy_from_nonoverlapping(NonNull::from(name).cast(), name.len()) };
        let bytes = NonNull::slice_from_raw_parts(copy, name.len());
        self.name.set(NonNull::new(bytes.as_ptr() as *mut str));
        // The name is the library's own. It does not count as an object of the user.
        self.count(-1, -(name.len() as i64));
        Ok(())
    }

    pub(super) fn on_refusal(&self) -> OnRefusal {
        self.on_refusal
    }

    pub(super) fn record(&self) -> &'static Record {
        self.record
    }

    pub(super) fn name(&self) -> Option<&str> {
        // SAFETY: a copy of a string, in memory that lives as long as `self`.
        self.name.get().map(|name| unsafe { name.as_ref() })
    }

    /// Whether the calling thread is the building thread (invariant 4).
    fn is_building(&self) -> bool {
        // Relaxed: a thread reads its own token only if it wrote that token itself and has written
        // nothing since. The token of another living thread is never equal to it.
        self.building_thread.load(Ordering::Relaxed) == token()
    }

    fn count(&self, objects: i64, bytes: i64) {
        self.record.live_objects.add(objects as u64);
        self.record.live_bytes.add(bytes as u64);
    }

    /// Memory for one block. For a size of zero, returns an aligned address without memory.
    pub(super) fn alloc(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if !self.is_building() {
            return Err(AllocError::new(ErrorKind::Sealed, layout.size()));
        }
        if layout.size() == 0 {
            let dangling = ptr::without_provenance_mut(layout.align());
            return Ok(NonNull::new(dangling).expect("an alignment is not zero"));
        }
        let block = match self.alloc_in(self.current.get(), layout)? {
            Some(block) => block,
            None => self.alloc_in_new_chunk(layout)?,
        };
        self.count(1, layout.size() as i64);
        Ok(block)
    }

    /// Allocates a block behind all others of this chunk, if the chunk has room.
    fn alloc_in(
        &self,
        chunk: NonNull<SealedChunkHeader>,
        layout: Layout,
    ) -> Result<Option<NonNull<u8>>, AllocError> {
        // SAFETY: one of the chunks, and only this thread touches its header (invariants 1 and 4).
        let header = unsafe { chunk.as_ref() };
        let base = chunk.addr().get();
        let start = align_up(base + header.used.get(), layout.align()) - base;
        // The sum of an address and a valid layout never wraps (memory/layout.rs).
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
    fn charge_up_to(&self, header: &SealedChunkHeader, end: usize) -> Result<(), AllocError> {
        let more = align_up(end, os::page_size()).saturating_sub(header.charged.get());
        if more > 0 {
            if let Some(budget) = &self.budget {
                budget.charge(more)?;
            }
            self.record.add_held_bytes(more);
            header.charged.set(header.charged.get() + more);
        }
        Ok(())
    }

    #[cold]
    fn alloc_in_new_chunk(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let need = chunk_bytes_for(FIRST, layout.size(), layout.align(), SEGMENT_GRANULE)
            .ok_or(AllocError::new(ErrorKind::SizeOverflow, layout.size()))?;
        if let Some(budget) = &self.budget {
            // Ask the budget before the system: if the budget refuses, its error is returned and
            // nothing is mapped.
            budget.charge(layout.size())?;
            budget.credit(layout.size());
        }
        let chunk = take_chunk(self.record, self.budget.as_ref(), need, self.last_growth.get())?;
        let block = match self.alloc_in(chunk, layout) {
            Ok(block) => block.expect("the chunk was taken with room for the block"),
            Err(error) => {
                // SAFETY: taken above, on no list, and without a block.
                unsafe { release_chunk(self.record, self.budget.as_ref(), chunk, false) };
                return Err(error);
            }
        };
        // SAFETY: only this thread touches the headers of the chunks (invariants 1 and 4). No
        // reference to a header is held here.
        unsafe {
            (*chunk.as_ptr()).older = Some(self.newest.get());
            self.newest.set(chunk);
            let size = chunk.as_ref().size;
            if size <= MAX_GROWTH {
                self.last_growth.set(size);
            }
            // Continue in the chunk that has more room left.
            let current = self.current.get();
            let left_in_current = current.as_ref().size - current.as_ref().used.get();
            if size - chunk.as_ref().used.get() >= left_in_current {
                self.current.set(chunk);
            }
        }
        Ok(block)
    }

    /// The chunk whose last block is `block`, if that is the current chunk, or if the block is
    /// large.
    fn chunk_that_ends_with(
        &self,
        block: NonNull<u8>,
        size: usize,
    ) -> Option<NonNull<SealedChunkHeader>> {
        let end = block.addr().get() + size;
        // SAFETY: chunks on the list (invariants 1 and 4).
        let ends = |chunk: NonNull<SealedChunkHeader>| unsafe {
            chunk < block.cast() && chunk.addr().get() + chunk.as_ref().used.get() == end
        };
        if ends(self.current.get()) {
            return Some(self.current.get());
        }
        let mut chunk = (size >= LARGE_BLOCK).then(|| self.newest.get());
        while let Some(this) = chunk {
            if ends(this) {
                return chunk;
            }
            // SAFETY: as above.
            chunk = unsafe { this.as_ref() }.older;
        }
        None
    }

    /// Frees a block. If [`chunk_that_ends_with`](Self::chunk_that_ends_with) finds its chunk, the
    /// bytes can be allocated again. If that chunk is then empty and is not the current one, it is
    /// given back. On another thread, or once the memory is sealed, nothing happens.
    ///
    /// # Safety
    /// The block came from [`alloc`](Self::alloc) of these chunks with this layout, or was last
    /// resized to it. It was not freed since, and is not used any more.
    pub(super) unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        let size = layout.size();
        if size == 0 || !self.is_building() {
            return;
        }
        self.count(-1, -(size as i64));
        if let Some(chunk) = self.chunk_that_ends_with(block, size) {
            let start = block.addr().get() - chunk.addr().get();
            // SAFETY: a chunk on the list (invariants 1 and 4).
            let header = unsafe { chunk.as_ref() };
            let is_empty = start == header.lowest.get();
            header.used.set(if is_empty { FIRST } else { start });
            if is_empty && chunk != self.current.get() {
                self.release_empty(chunk);
            }
        }
    }

    /// Gives back a chunk without a block, unless it is the oldest one, in which `self` lies.
    /// Nothing is allocated in it any more.
    fn release_empty(&self, empty: NonNull<SealedChunkHeader>) {
        // SAFETY: chunks on the list (invariants 1 and 4). No reference to a header
        // outlives its statement.
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
            release_chunk(self.record, self.budget.as_ref(), empty, false);
        }
    }

    /// Resizes a block in place, and returns whether it could. It grows only if
    /// [`chunk_that_ends_with`](Self::chunk_that_ends_with) finds its chunk, and the chunk has
    /// room.
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
                // SAFETY: a chunk on the list (invariants 1 and 4).
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

    /// Ends building, and makes all pages read-only. Pages that hold nothing give their memory
    /// back.
    ///
    /// # Errors
    /// If the system refuses. Only [`end`](Self::end) may be called after that.
    ///
    /// # Safety
    /// `this` was begun on this thread and not sealed, and nothing writes to its memory any more.
    pub(super) unsafe fn seal(this: NonNull<Self>) -> Result<(), AllocError> {
        // SAFETY: begun, and this thread builds (invariant 4).
        let this = unsafe { this.as_ref() };
        let record = this.record;
        let mut next = Some(this.newest.get());
        while let Some(chunk) = next {
            // SAFETY: a chunk on the list (invariant 1).
            let header = unsafe { chunk.as_ref() };
            next = header.older;
            if header.used.get() == FIRST {
                this.release_empty(chunk);
            }
        }
        let newest = this.newest.get();
        let mut structures = size_of::<Self>() + this.name().map_or(0, str::len);
        let mut uncharged = 0;
        let mut next = Some(newest);
        while let Some(chunk) = next {
            // SAFETY: a chunk on the list (invariant 1).
            let header = unsafe { chunk.as_ref() };
            structures += FIRST;
            let kept = align_up(header.used.get(), os::page_size());
            // Nothing was written behind `charged` (invariant 3), but in a recycled chunk the pages
            // there may have memory too.
            let touched = if header.recycled { header.size } else { header.charged.get() };
            if touched > kept {
                // SAFETY: no block lies there (invariant 2).
                let _ = unsafe { os::discard(chunk.cast::<u8>().add(kept), touched - kept) };
                record.source_calls.add(1);
            }
            uncharged += header.charged.get() - kept;
            header.charged.set(kept);
            next = header.older;
        }
        record.held_bytes.sub(uncharged as u64);
        if let Some(budget) = &this.budget {
            budget.credit(uncharged);
        }
        record.structure_bytes.set(structures as u64);
        let filled = record.live_bytes.get() + structures as u64;
        record.wasted_bytes.set(record.held_bytes.get().saturating_sub(filled));
        // Relaxed: another thread gets the value from its owner, and that hand-over orders this
        // store before the reads of that thread.
        this.building_thread.store(0, Ordering::Relaxed);
        let mut next = Some(newest);
        while let Some(chunk) = next {
            // SAFETY: as above. No cell is written any more (invariant 4), nor anything else, as
            // the caller guarantees.
            unsafe {
                let SealedChunkHeader { size, older, .. } = *chunk.as_ref();
                record.source_calls.add(1);
                os::make_read_only(chunk.cast(), size)?;
                next = older;
            }
        }
        Ok(())
    }

    /// Has the kernel refuse every later change to the pages, if it can.
    ///
    /// # Safety
    /// It was sealed, and is never ended.
    pub(super) unsafe fn seal_permanently(&self) {
        let mut next = Some(self.newest.get());
        while let Some(chunk) = next {
            // SAFETY: chunks on the list (invariant 1). They are never given back, as the caller
            // guarantees.
            unsafe {
                // On a kernel that can't, the pages stay read-only.
                let _ = os::seal_permanently(chunk.cast(), chunk.as_ref().size);
                next = chunk.as_ref().older;
            }
        }
    }

    /// Gives all memory back, including that of the `SealedChunks` itself. Nothing in it is
    /// dropped.
    ///
    /// # Safety
    /// Nothing in the memory is used any more, and no other thread uses `this`.
    pub(super) unsafe fn end(this: NonNull<Self>) {
        // SAFETY: guaranteed by the caller. `this` is read once, before its chunks are given back.
        // The header of each chunk is read before that chunk is given back.
        unsafe {
            let Self { building_thread, newest, record, budget, .. } = this.read();
            let sealed = building_thread.into_inner() == 0;
            let mut next = Some(newest.get());
            while let Some(chunk) = next {
                next = chunk.as_ref().older;
                release_chunk(record, budget.as_ref(), chunk, sealed);
            }
            debug_assert_eq!(record.held_bytes.get(), 0, "every chunk is on the list");
            record.release();
        }
    }
}
