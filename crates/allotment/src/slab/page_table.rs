//! The table of all page descriptors of one slab.
//!
//! # Invariants
//!
//! 1. `parts[k]` is null, or points to `FIRST << k` descriptors with their bitmaps and hints, which
//!    stay until the yard is dropped. So references to them are valid as long as a reference to the
//!    yard.
//! 2. Each descriptor is issued once. After that it is in exactly one place: with its page, or on
//!    the stack of vacant descriptors.
//! 3. The fields of [`Place`] are written by the thread that has the page's claim or has just taken
//!    the descriptor up.
//! 4. One thread takes up a vacant descriptor, or holds it while the memory of its bitmap is given
//!    back: the thread that exchanges its `vacancy`. The words of a vacant descriptor's bitmap are
//!    zero.

use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use core::{ptr, slice};

use super::block::{Block, Lists};
use super::hints::{Hints, words_for};
use super::page::{BINS, Claim, Page};
use crate::error::{AllocError, ErrorKind};
use crate::memory::layout::{MIN_CHUNK, align_up};
use crate::memory::lifo::{Lifo, Links, NIL};
use crate::memory::metadata::Metadata;
use crate::memory::os;
use crate::sync::{AtomicU32, AtomicU64};

const FIRST: u32 = 8;
const PARTS: usize = 24;

/// What is known of a page besides its slots. All accesses are relaxed: the handover of a slot or a
/// claim to a thread also orders these fields.
#[derive(Debug)]
pub(super) struct Place {
    pub start: AtomicPtr<u8>,
    /// The page's bytes, in units of the smallest hardware page.
    units: AtomicU32,
    /// Where the page lies in its source (see memory/spans.rs).
    pub segment: AtomicU32,
    /// A [`Lifetime`](super::Lifetime) as a number.
    pub lifetime: AtomicU8,
    vacancy: AtomicU8,
    index: u32,
    next: AtomicU32,
}

pub(super) type SlabPage = Page<Place>;
pub(super) type SlabClaim<'y> = Claim<'y, Place>;

/// The words of a bitmap in one cache line. Each bitmap has its own lines, so threads that use
/// different pages don't share one.
const LINE: usize = 8;

#[derive(Default)]
#[repr(align(64))]
struct Line(
    // Read and written through the pages' bitmaps.
    #[expect(dead_code)] [AtomicU64; LINE],
);

/// Vacancy of a descriptor. `IN_USE`: it has a page, or is about to have one. `VACANT`: free to be
/// taken up. `HELD`: a thread gives the memory of its bitmap back.
const IN_USE: u8 = 0;
const VACANT: u8 = 1;
const HELD: u8 = 2;

struct Part {
    pages: Metadata<SlabPage>,
    hints: Metadata<AtomicU64>,
    /// What the pages' `bits` refer to. Freed after the pages.
    bits: Metadata<Line>,
}

/// The page descriptors of one slab.
pub(super) struct PageTable {
    parts: [AtomicPtr<Part>; PARTS],
    words: usize,
    issued: AtomicU32,
    vacant: Lifo,
}

/// The part that holds an index, and the position in that part.
const fn part_of(index: u32) -> (usize, usize) {
    let part = (index / FIRST + 1).ilog2();
    let before = FIRST * ((1 << part) - 1);
    (part as usize, (index - before) as usize)
}

impl Links for PageTable {
    fn next(&self, index: u32) -> &AtomicU32 {
        &self.page(index).expect("an issued descriptor stays").beside.next
    }
}

impl PageTable {
    /// Makes an empty table for pages whose bitmaps have at most this many words.
    pub(super) fn new(words: usize) -> Self {
        Self {
            parts: [const { AtomicPtr::new(ptr::null_mut()) }; PARTS],
            words,
            issued: AtomicU32::new(0),
            vacant: Lifo::new(),
        }
    }

    fn part(&self, part: usize) -> Option<&Part> {
        // Acquire pairs with the Release in `make_part`.
        let part = self.parts.get(part)?.load(Ordering::Acquire);
        // SAFETY: null, or a part that stays until the yard is dropped (invariant 1).
        unsafe { part.as_ref() }
    }

    fn block_of<'y>(&'y self, part: &'y Part) -> Block<'y, Place> {
        let hints = Hints { words: &part.hints };
        Block { pages: &part.pages, hints }
    }

    fn page(&self, index: u32) -> Option<&SlabPage> {
        let (part, place) = part_of(index);
        self.part(part)?.pages.get(place)
    }

    /// The block that holds a descriptor, and the descriptor's position in the block.
    pub(super) fn find(&self, page: &SlabPage) -> (Block<'_, Place>, usize) {
        let (part, place) = part_of(page.beside.index);
        (self.block_of(self.part(part).expect("a descriptor's part is there")), place)
    }

    /// The number of cache lines of one page's bitmap.
    const fn lines(&self) -> usize {
        self.words.div_ceil(LINE)
    }

    fn part_bytes(&self, pages: usize) -> usize {
        Metadata::<SlabPage>::bytes_of(pages)
            + Metadata::<AtomicU64>::bytes_of(words_for(pages))
            + Metadata::<Line>::bytes_of(pages * self.lines())
            + size_of::<Part>()
    }

    /// Takes a descriptor without a page. If that needs new structures, `charge` is called for
    /// their bytes first.
    pub(super) fn take_vacant(
        &self,
        charge: impl Fn(usize) -> Result<(), AllocError>,
        credit: impl Fn(usize),
    ) -> Result<&SlabPage, AllocError> {
        if let Some(page) = self.pop_vacant() {
            return Ok(page);
        }
        let mut index = self.issued.load(Ordering::Relaxed);
        loop {
            let (part, place) = part_of(index);
            let part = match self.part(part) {
                Some(part) => part,
                None => self.make_part(part, &charge, &credit)?,
            };
            // Relaxed: this is only a number. The part was already read by Acquire.
            match self.issued.compare_exchange_weak(
                index,
                index + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(&part.pages[place]),
                Err(now) => index = now,
            }
        }
    }

    /// Pops a vacant descriptor. Skips those whose bitmap memory is being given back.
    fn pop_vacant(&self) -> Option<&SlabPage> {
        let (mut first, mut last) = (NIL, NIL);
        let page = loop {
            let Some(page) = self.vacant.pop(self).and_then(|index| self.page(index)) else {
                break None;
            };
            if page.beside.change_vacancy(VACANT, IN_USE) {
                break Some(page);
            }
            page.beside.next.store(first, Ordering::Relaxed);
            first = page.beside.index;
            last = if last == NIL { first } else { last };
        };
        if first != NIL {
            self.vacant.push_chain(self, first, last);
        }
        page
    }

    /// Returns a descriptor whose page is released or never existed.
    pub(super) fn give_vacant(&self, page: &SlabPage) {
        page.beside.set_vacancy(VACANT);
        self.vacant.push(self, page.beside.index);
    }

    /// Returns the memory of unused bitmaps to the system. It does so for whole hardware pages in
    /// which every bitmap belongs to a vacant descriptor. The words of these bitmaps are zero, and
    /// read zero when they are next touched.
    pub(super) fn discard_vacant(&self) {
        for part in (0..PARTS).map_while(|part| self.part(part)) {
            let unit = os::page_size();
            let each = self.lines() * size_of::<Line>();
            let start = part.bits.as_ptr().cast::<u8>();
            let bytes = part.pages.len() * each;
            let mut page = align_up(start.addr().get(), unit) - start.addr().get();
            while page + unit <= bytes {
                let over = &part.pages[page / each..(page + unit).div_ceil(each)];
                let held = over.iter().take_while(|page| page.beside.hold()).count();
                if held == over.len() {
                    // SAFETY: a hardware page of the block in which all words are zero. They belong
                    // to vacant descriptors that this thread holds, so no thread takes one up (4).
                    // Other threads may read the words, and read zeros before and after. If the
                    // system refuses, nothing changes.
                    let _ = unsafe { os::discard(start.add(page), unit) };
                }
                over[..held].iter().for_each(|page| page.beside.set_vacancy(VACANT));
                page += unit;
            }
        }
    }

    /// In a child made by fork: releases descriptors that were held by threads that the child does
    /// not have.
    pub(super) fn now_a_child(&self) {
        for page in self.all() {
            let vacancy = &page.beside.vacancy;
            let _ = vacancy.compare_exchange(HELD, VACANT, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    #[cold]
    fn make_part(
        &self,
        part: usize,
        charge: &impl Fn(usize) -> Result<(), AllocError>,
        credit: &impl Fn(usize),
    ) -> Result<&Part, AllocError> {
        if part >= PARTS {
            return Err(AllocError::new(ErrorKind::SizeOverflow, size_of::<SlabPage>()));
        }
        let pages = (FIRST as usize) << part;
        let bytes = self.part_bytes(pages);
        charge(bytes)?;
        let made = self.build_part(part, pages).inspect_err(|_| credit(bytes))?;
        let fresh = made.as_ptr().as_ptr();
        let null = ptr::null_mut();
        // Release pairs with the Acquire in `part`. Acquire on failure, to read the other thread's
        // part.
        match self.parts[part].compare_exchange(null, fresh, Ordering::Release, Ordering::Acquire) {
            Ok(_) => {
                // The yard owns it from here on; the yard's drop frees it.
                core::mem::forget(made);
                // SAFETY: stays until the yard is dropped (invariant 1).
                Ok(unsafe { &*fresh })
            }
            Err(theirs) => {
                credit(bytes);
                // SAFETY: not null, so it is another thread's part (1).
                Ok(unsafe { &*theirs })
            }
        }
    }

    /// Builds one part in its own block.
    fn build_part(&self, part: usize, pages: usize) -> Result<Metadata<Part>, AllocError> {
        let lines = Metadata::new(pages * self.lines(), |_| Line::default())?;
        let hints = Metadata::new(words_for(pages), |_| AtomicU64::new(0))?;
        // SAFETY: the words stay until the part is dropped. Only the part's pages get this
        // reference, and they are dropped with it. References to these pages end with the yard
        // (invariant 1).
        let words: &'static [AtomicU64] =
            unsafe { slice::from_raw_parts(lines.as_ptr().as_ptr().cast(), lines.len() * LINE) };
        let first = FIRST * ((1 << part) - 1);
        let pages = Metadata::new(pages, |page| {
            let place = Place {
                start: AtomicPtr::new(ptr::null_mut()),
                units: AtomicU32::new(0),
                segment: AtomicU32::new(0),
                lifetime: AtomicU8::new(0),
                vacancy: AtomicU8::new(IN_USE),
                index: first + page as u32,
                next: AtomicU32::new(0),
            };
            Page::new(&words[page * self.lines() * LINE..][..self.words], place)
        })?;
        let mut part = Some(Part { pages, hints, bits: lines });
        Metadata::new(1, |_| part.take().expect("one value is made"))
    }

    /// Claims a page with free slots, the fullest as far as the hints know. Returns `true` with it
    /// if the page was kept empty. The search in each list starts at `near`, which is different for
    /// each thread.
    pub(super) fn claim(&self, lists: &[usize], near: u32) -> Option<(SlabClaim<'_>, bool)> {
        let (near_part, near_place) = part_of(near);
        let parts =
            self.parts.iter().take_while(|part| !part.load(Ordering::Relaxed).is_null()).count();
        if parts == 0 {
            return None;
        }
        let first = near_part.min(parts - 1);
        for &list in lists {
            for step in 0..parts {
                let part = (first + step) % parts;
                let from = if step == 0 { near_place } else { 0 };
                let block = self.block_of(self.part(part).expect("counted above"));
                if let Some((_, claim, kept)) = block.find(list, from) {
                    return Some((claim, kept));
                }
            }
        }
        None
    }

    /// All descriptors that were issued.
    pub(super) fn all(&self) -> impl Iterator<Item = &SlabPage> {
        (0..self.issued.load(Ordering::Acquire)).filter_map(|index| self.page(index))
    }
}

impl Lists for Place {
    fn first_list(&self) -> usize {
        usize::from(self.lifetime.load(Ordering::Relaxed)) * BINS
    }
}

impl Place {
    fn change_vacancy(&self, from: u8, to: u8) -> bool {
        // Acquire and Release: what one holder did to the bitmap's memory happens before what the
        // next one does.
        self.vacancy.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn set_vacancy(&self, vacancy: u8) {
        self.vacancy.store(vacancy, Ordering::Release);
    }

    /// Keeps a vacant descriptor from being taken up. Returns whether it was vacant.
    fn hold(&self) -> bool {
        self.change_vacancy(VACANT, HELD)
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// The bytes of the page.
    pub(super) fn bytes(&self) -> usize {
        self.units.load(Ordering::Relaxed) as usize * MIN_CHUNK
    }

    /// Sets the bytes, a multiple of the hardware page.
    pub(super) fn set_bytes(&self, bytes: usize) {
        debug_assert!(bytes % MIN_CHUNK == 0 && bytes / MIN_CHUNK <= u32::MAX as usize);
        self.units.store((bytes / MIN_CHUNK) as u32, Ordering::Relaxed);
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        for part in &mut self.parts {
            if let Some(part) =
                ptr::NonNull::new(core::mem::replace(part.get_mut(), ptr::null_mut()))
            {
                // SAFETY: `build_part` made it as one value in its own block, and the yard has
                // owned it alone.
                drop(unsafe { Metadata::adopt(part, 1) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_a_place_of_its_own() {
        assert_eq!(part_of(0), (0, 0));
        assert_eq!(part_of(7), (0, 7));
        assert_eq!(part_of(8), (1, 0));
        assert_eq!(part_of(23), (1, 15));
        assert_eq!(part_of(24), (2, 0));
    }

    #[test]
    fn a_descriptor_fits_a_cache_line() {
        assert_eq!(size_of::<SlabPage>(), 64);
    }

    #[test]
    fn a_vacant_descriptor_is_taken_again_before_a_new_one_is_issued() {
        let yard = PageTable::new(1);
        let take = || yard.take_vacant(|_| Ok(()), |_| ()).unwrap();
        let first = take().beside.index();
        let second = take();
        assert_eq!((first, second.beside.index()), (0, 1));
        yard.give_vacant(second);
        assert_eq!(take().beside.index(), 1);
        for expected in 2..1000 {
            assert_eq!(take().beside.index(), expected);
        }
        assert_eq!(yard.all().count(), 1000);
    }

    #[test]
    fn the_bitmaps_of_vacant_descriptors_take_no_memory_and_serve_again() {
        let yard = PageTable::new(16);
        let taken: Vec<_> =
            (0..500).map(|_| yard.take_vacant(|_| Ok(()), |_| ()).unwrap()).collect();
        let resident = |page: &SlabPage| {
            let (mut seen, unit) = (0u8, os::page_size());
            let start = ptr::from_ref(&page.bits()[0]).addr() / unit * unit;
            // SAFETY: asks about one page of addresses, and writes one byte.
            let told =
                unsafe { libc::mincore(ptr::without_provenance_mut(start), unit, &raw mut seen) };
            assert_eq!(told, 0);
            seen & 1 == 1
        };
        let (kept, left) = (taken[300], taken[400]);
        for page in &taken {
            page.bits()[0].store(1, Ordering::Relaxed);
            page.bits()[0].store(0, Ordering::Relaxed);
        }
        kept.bits()[0].store(5, Ordering::Relaxed);
        for page in taken.iter().filter(|page| page.beside.index() != kept.beside.index()) {
            yard.give_vacant(page);
        }
        yard.discard_vacant();
        assert!(resident(kept) && !resident(left));
        assert_eq!(kept.bits()[0].load(Ordering::Relaxed), 5);
        // All but one are vacant again, and none occurs twice.
        let again: std::collections::BTreeSet<_> = (0..499)
            .map(|_| yard.take_vacant(|_| Ok(()), |_| ()).unwrap().beside.index())
            .collect();
        assert_eq!(again.len(), 499);
        assert!(again.iter().all(|index| *index < 500));
        assert!(left.bits().iter().all(|bits| bits.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn structures_that_the_budget_refuses_are_an_error_and_nothing_is_issued() {
        let yard = PageTable::new(1);
        let refuse = |bytes| Err(AllocError::new(ErrorKind::BudgetExceeded, bytes));
        assert!(yard.take_vacant(refuse, |_| ()).is_err());
        assert_eq!(yard.all().count(), 0);
        assert!(yard.part(0).is_none());
    }
}
