//! A list's slabs: their layout, where they come from, and how they are released.
//!
//! # Invariants
//!
//! 1. A slab begins with its `Header`. `size` bytes from its start are one block, taken from the
//!    source with `align` and `link`. Behind the header, from `first` on, lie `objects` objects.
//! 2. `held_bytes` of the record is the sum of all slabs' sizes, and equals what the budget was
//!    charged. (In pass-through mode it is the sum of the malloc blocks' sizes.)

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};
use std::io::Write;

use super::raw::{Link, RawFreeList};
use crate::checked::{Ledger, guarded};
use crate::error::{AllocError, ErrorKind};
use crate::memory::chunk_source::ChunkSource;
use crate::memory::layout::{
    CACHE_LINE, MAX_GROWTH, MIN_CHUNK, align_up, checked_align_up, chunk_bytes_for,
};
use crate::memory::release::Release;
use crate::statistics::printable;

/// At most this many objects, or this many bytes of them if that is fewer, are linked at once.
const MOST_LINKED: usize = 64;
const LINKED_BYTES: usize = 4 << 10;

/// The sizes of one list, which never change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub layout: Layout,
    /// The alignment of an object.
    pub align: usize,
    /// The bytes from one object to the next.
    pub stride: usize,
}

impl Geometry {
    /// The sizes for objects of this layout, each at least as large as a link.
    pub(super) fn new(layout: Layout, is_checked: bool) -> Result<Self, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let slot = if is_checked { guarded(layout) } else { Some(layout) }.ok_or(overflow)?;
        let align = slot.align().max(align_of::<Link>());
        let stride = checked_align_up(slot.size().max(size_of::<Link>()), align);
        let stride = stride.filter(|stride| *stride <= isize::MAX as usize).ok_or(overflow)?;
        Ok(Self { layout, align, stride })
    }

    /// The address that stands for no object.
    pub(super) fn dangling(&self) -> NonNull<u8> {
        NonNull::new(ptr::without_provenance_mut(self.align)).expect("a power of two")
    }
}

/// The beginning of each slab.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Header {
    pub next: Cell<*mut Header>,
    size: usize,
    align: usize,
    link: u32,
    pub objects: usize,
}

/// What messages call a list.
pub(super) const KIND: &str = "free list";

pub(super) const HEADER: usize = size_of::<Header>();
const _: () = assert!(HEADER == CACHE_LINE);

/// A slab as its header describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub header: NonNull<Header>,
    /// The slab's first object.
    pub first: NonNull<u8>,
    pub objects: usize,
    pub size: usize,
}

impl RawFreeList {
    /// All slabs in use, the newest first.
    pub(super) fn each_slab(&self) -> impl Iterator<Item = Chunk> + '_ {
        let mut next = self.slabs.get();
        core::iter::from_fn(move || {
            let header = NonNull::new(next)?;
            let slab = self.slab_at(header);
            // SAFETY: a slab of our list (raw.rs, invariant 1).
            next = unsafe { header.as_ref() }.next.get();
            Some(slab)
        })
    }

    pub(super) fn slab_at(&self, header: NonNull<Header>) -> Chunk {
        // SAFETY: callers pass the header of one of the list's slabs.
        let (objects, size) = unsafe { (header.as_ref().objects, header.as_ref().size) };
        let start = header.addr().get();
        let before = align_up(start + HEADER, self.geometry.align) - start;
        // SAFETY: the objects lie in the slab's block (invariant 1).
        let first = unsafe { header.cast::<u8>().add(before) };
        Chunk { header, first, objects, size }
    }

    // ---- objects that were never handed out ----

    pub(super) fn fresh_bytes(&self) -> usize {
        self.fresh_end.get().addr() - self.fresh.get().addr()
    }

    /// Allocates an object when the first chain is empty: the first of the next chain, or a fresh
    /// one. In the second case, the objects behind it are linked as the first chain.
    pub(super) fn refill(&self) -> Result<NonNull<u8>, AllocError> {
        if let Some(ledger) = self.ledger.as_deref() {
            return ledger.alloc(self, self.layout());
        }
        self.risen.set(true);
        if let Some(first) = self.chains.pop() {
            // SAFETY: a free object, which no other code uses, and which holds a link (raw.rs,
            // invariant 2).
            self.head.set(unsafe { first.as_ref() }.0.get());
            self.count.set(self.count.get() + 1);
            self.raise_look(0);
            return Ok(first.cast());
        }
        let first = self.take_fresh(1)?;
        self.count.set(self.count.get() + 1);
        self.place_watermark(self.live());
        let stride = self.geometry.stride;
        let some = (LINKED_BYTES / stride).min(MOST_LINKED).min(self.fresh_bytes() / stride);
        self.link_fresh(some);
        Ok(first)
    }

    /// Takes fresh objects that lie next to each other. Does not count them.
    pub(super) fn take_fresh(&self, objects: usize) -> Result<NonNull<u8>, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, objects);
        let bytes = objects.checked_mul(self.geometry.stride).ok_or(overflow)?;
        if bytes > self.fresh_bytes() {
            self.take_slab(objects)?;
        }
        let start = self.fresh.get();
        self.fresh.set(start.wrapping_add(bytes));
        Ok(NonNull::new(start).expect("a slab has room for them"))
    }

    /// Puts this many fresh objects on the first chain, so that the lowest comes first.
    fn link_fresh(&self, objects: usize) {
        let stride = self.geometry.stride;
        let start = self.fresh.get();
        self.fresh.set(start.wrapping_add(objects * stride));
        for index in (0..objects).rev() {
            // SAFETY: these objects were fresh, and no longer are. The list owns them (raw.rs,
            // invariant 3).
            unsafe { self.push(NonNull::new_unchecked(start.add(index * stride))) };
        }
    }

    // ---- slabs ----

    /// Takes a slab with room for this many objects, which become the fresh objects. An error
    /// changes nothing, except that spare slabs may have been released.
    fn take_slab(&self, objects: usize) -> Result<(), AllocError> {
        if self.take_spare(objects) {
            return Ok(());
        }
        let overflow = AllocError::new(ErrorKind::SizeOverflow, objects);
        let wanted_objects = objects;
        let objects = objects.max(self.settings.objects_per_slab.unwrap_or(1));
        let bytes = objects.checked_mul(self.geometry.stride).ok_or(overflow)?;
        let align = self.geometry.align.max(CACHE_LINE);
        let chunk_align = self.settings.source.chunk_align();
        let need = chunk_bytes_for(HEADER, bytes, align, chunk_align).ok_or(overflow)?;
        let chunks = self.chunks();
        let grown = self.grown_to();
        let taken = match chunks.take(need, grown) {
            // The budget or the source may lack just what the spare slabs hold.
            Err(_) if self.give_spare_back(0) > 0 => chunks.take(need, grown)?,
            taken => taken?,
        };
        let size = taken.size;
        if let Some(ledger) = self.ledger.as_deref() {
            if let Err(error) = self.checked_slab_taken(ledger, taken.start, size) {
                chunks.return_unused(taken);
                return Err(error);
            }
        }
        // The fresh objects left in the previous slab go on the free list.
        let left = self.fresh_bytes() / self.geometry.stride;
        match self.ledger.as_deref() {
            Some(ledger) => self.checked_leave(ledger, self.fresh.get(), left),
            None => self.link_fresh(left),
        }
        let header = taken.start.cast::<Header>();
        let before =
            align_up(header.addr().get() + HEADER, self.geometry.align) - header.addr().get();
        let objects = (size - before) / self.geometry.stride;
        let next = Cell::new(ptr::null_mut());
        // SAFETY: the chunk is ours. It has at least `need > HEADER` bytes and is aligned to at
        // least a cache line.
        unsafe {
            header.write(Header { next, size, align: taken.align, link: taken.link, objects })
        };
        self.list_slab(self.slab_at(header));
        if size <= MAX_GROWTH && self.settings.objects_per_slab.is_none() {
            self.grown.set(size);
        }
        self.make_fresh(self.slab_at(header));
        let record = self.record;
        record.hold(size);
        record.chunks.add(1);
        record.structure_bytes.add(before as u64);
        if taken.recycled {
            record.recycled_chunks.add(1);
        } else {
            record.source_calls.add(1);
        }
        self.note_live();
        if self.ledger.is_none() {
            self.risen.set(true);
            self.raise_look(wanted_objects);
            self.taken_again();
        }
        Ok(())
    }

    /// The size that the next slab doubles. Slabs that have doubled from the smallest hold almost
    /// twice the size of the last one. If the list holds less than that, it has shrunk, and the
    /// next slab doubles half of what the list holds.
    fn grown_to(&self) -> usize {
        let (held, grown) = (self.record.held_bytes.get() as usize, self.grown.get());
        if held + MIN_CHUNK < 2 * grown { held / 2 } else { grown }
    }

    /// Continues with a spare slab, if one has room for this many objects.
    fn take_spare(&self, objects: usize) -> bool {
        let mut before: *mut Header = ptr::null_mut();
        let mut next = self.spare.get();
        while let Some(header) = NonNull::new(next) {
            let slab = self.slab_at(header);
            // SAFETY: these are our spare slabs. The one that is found is taken off their list.
            unsafe {
                next = header.as_ref().next.get();
                if slab.objects < objects {
                    before = header.as_ptr();
                    continue;
                }
                match before.as_ref() {
                    Some(before) => before.next.set(next),
                    None => self.spare.set(next),
                }
            }
            self.spare_objects.set(self.spare_objects.get() - slab.objects);
            self.link_fresh(self.fresh_bytes() / self.geometry.stride);
            self.list_slab(slab);
            self.make_fresh(slab);
            self.raise_look(objects);
            return true;
        }
        false
    }

    /// Puts a slab on the list of slabs in use.
    pub(super) fn list_slab(&self, slab: Chunk) {
        // SAFETY: a slab of ours that is on no list.
        unsafe { slab.header.as_ref() }.next.set(self.slabs.get());
        self.slabs.set(slab.header.as_ptr());
        self.slab_count.set(self.slab_count.get() + 1);
        self.capacity.set(self.capacity.get() + slab.objects);
    }

    /// Counts a slab as no longer on the list of slabs in use.
    pub(super) fn unlist_slab(&self, slab: Chunk) {
        self.slab_count.set(self.slab_count.get() - 1);
        self.capacity.set(self.capacity.get() - slab.objects);
    }

    /// Sets a slab without live objects aside as spare.
    pub(super) fn spare_slab(&self, slab: Chunk) {
        // SAFETY: a slab of ours that is on no list.
        unsafe { slab.header.as_ref() }.next.set(self.spare.get());
        self.spare.set(slab.header.as_ptr());
        self.spare_objects.set(self.spare_objects.get() + slab.objects);
    }

    /// The bytes of the spare slabs.
    pub(super) fn spare_bytes(&self) -> usize {
        let mut bytes = 0;
        let mut next = self.spare.get();
        while let Some(header) = NonNull::new(next) {
            // SAFETY: a spare slab of ours.
            (bytes, next) = unsafe { (bytes + header.as_ref().size, header.as_ref().next.get()) };
        }
        bytes
    }

    pub(super) fn make_fresh(&self, slab: Chunk) {
        let start = slab.first.as_ptr();
        self.fresh.set(start);
        self.fresh_end.set(start.wrapping_add(slab.objects * self.geometry.stride));
    }

    fn chunks(&self) -> ChunkSource<'_> {
        let settings = &*self.settings;
        ChunkSource {
            source: &settings.source,
            budget: settings.budget.as_ref(),
            recycles: self.recycles(),
            exact: settings.budget.is_some() || settings.objects_per_slab.is_some(),
            segment_unit: self.segment_unit(),
            grows_huge: self.ledger.is_none(),
        }
    }

    /// The unit of slabs that are registered as segments, or 1 if this list registers none.
    pub(super) fn segment_unit(&self) -> usize {
        self.ledger.as_deref().map_or(1, |ledger| ledger.mode().segment_unit(&self.settings.source))
    }

    /// Whether slabs come from the recycler and go there.
    fn recycles(&self) -> bool {
        self.settings.release != Release::AtOnce && !self.settings.hardened
    }

    pub(super) fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        self.settings.budget.as_ref().map_or(Ok(()), |budget| budget.charge(bytes))
    }

    pub(super) fn credit(&self, bytes: usize) {
        if let Some(budget) = &self.settings.budget {
            budget.credit(bytes);
        }
    }

    /// Releases slabs that are on no list. Returns their bytes.
    ///
    /// # Safety
    /// The slabs belonged to this list. Nothing in them is used, and none of their objects is on a
    /// chain or fresh.
    pub(super) unsafe fn give_back(&self, slabs: impl Iterator<Item = Chunk> + Clone) -> usize {
        let total: usize = slabs.clone().map(|slab| slab.size).sum();
        if total == 0 {
            return 0;
        }
        let record = self.record;
        let mut batch = self.settings.source.release_batch(total, self.recycles());
        for slab in slabs {
            // SAFETY: the header is read before its slab is released. Size, alignment and link are
            // those that the slab was taken with.
            unsafe {
                let (align, link) = (slab.header.as_ref().align, slab.header.as_ref().link);
                let start = slab.header.cast::<u8>();
                if let Some(ledger) = self.ledger.as_deref() {
                    self.checked_slab_released(ledger, slab);
                }
                let before = slab.first.addr().get() - start.addr().get();
                record.structure_bytes.sub(before as u64);
                batch.add(start, slab.size, align, link);
            }
            record.chunks.sub(1);
        }
        record.source_calls.add(batch.finish() as u64);
        record.held_bytes.sub(total as u64);
        self.credit(total);
        total
    }

    /// Releases all slabs. The caller has no live objects, or gives them up.
    pub(super) fn give_all_back(&self) -> usize {
        self.forget_free();
        self.fresh.set(ptr::null_mut());
        self.fresh_end.set(ptr::null_mut());
        self.grown.set(0);
        self.slab_count.set(0);
        self.capacity.set(0);
        let mut given = self.give_spare_back(0);
        while let Some(header) = NonNull::new(self.slabs.get()) {
            let slab = self.slab_at(header);
            // SAFETY: a slab of our list, which is taken off the list here.
            unsafe {
                self.slabs.set(header.as_ref().next.get());
                given += self.give_back(core::iter::once(slab));
            }
        }
        given
    }

    /// Releases spare slabs, except for at most `keep` bytes of them. Returns the bytes released.
    pub(super) fn give_spare_back(&self, mut keep: usize) -> usize {
        let mut given = 0;
        let mut next = self.spare.replace(ptr::null_mut());
        self.spare_objects.set(0);
        while let Some(header) = NonNull::new(next) {
            let slab = self.slab_at(header);
            // SAFETY: a spare slab of ours, which was taken off the list here.
            next = unsafe { header.as_ref() }.next.get();
            if slab.size <= keep {
                keep -= slab.size;
                self.spare_slab(slab);
            } else {
                // SAFETY: as above; the slab holds no live objects.
                given += unsafe { self.give_back(core::iter::once(slab)) };
            }
        }
        given
    }

    // ---- what there is ----

    /// Updates the record.
    pub(super) fn note_live(&self) {
        let (record, size) = (self.record, self.geometry.layout.size());
        let live = self.live();
        let all = self.capacity.get() + self.spare_objects.get();
        let free = if self.has_slabs() { all.saturating_sub(live) } else { 0 };
        record.live_objects.set(live as u64);
        record.live_bytes.set((live * size) as u64);
        record.free_bytes.set((free * size) as u64);
        let known = ((live + free) * size) as u64 + record.structure_bytes.get();
        record.wasted_bytes.set(record.held_bytes.get().saturating_sub(known));
    }

    fn has_slabs(&self) -> bool {
        !self.ledger.as_deref().is_some_and(Ledger::is_passthrough)
    }

    /// Reports live objects on standard error, if that was requested and there are any.
    pub(super) fn report_live(&self) {
        let wanted = self.settings.report_live.unwrap_or(self.settings.hardened);
        let live = self.live();
        if wanted && live > 0 {
            let name = self.name().filter(|name| !name.is_empty()).unwrap_or("(no name)");
            let name = printable(name);
            let size = self.geometry.layout.size();
            // A closed standard error is no reason to panic.
            let _ = writeln!(
                std::io::stderr(),
                "allotment: free list '{name}' dropped with {live} live objects of {size} bytes each"
            );
        }
    }
}
