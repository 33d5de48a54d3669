//! The table of all page descriptors of one slab.
//!
//! # Invariants
//!
//! 1. A bucket of descriptors stays, with their bitmaps and hints, until the table is dropped. So
//!    references to them are valid as long as a reference to the table.
//! 2. A descriptor that was issued either has a page or is on the stack of vacant descriptors,
//!    never both.
//! 3. The fields of [`PageInfo`] are written by the thread that has the page's claim, or that has
//!    just taken the descriptor.
//! 4. A vacant descriptor belongs to the thread that exchanges its `vacancy`: the thread that takes
//!    it for a page, or that discards the memory of its bitmap. The words of a vacant descriptor's
//!    bitmap are zero.

use core::ops::Deref;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, Ordering};
use core::{ptr, slice};

use super::page::{PageClaim, PageDescriptor};
use super::page_group::{CacheUse, OwnPages, PageGroup, PageOrigin, PageUse};
use super::page_hints::{PageHints, words_for};
use crate::error::AllocError;
use crate::memory::growing_table::{GrowingTable, TableEntry};
use crate::memory::index_stack::NIL;
use crate::memory::layout::{MIN_CHUNK, align_up};
use crate::memory::os;
use crate::memory::system_array::SystemArray;
use crate::sync::{AtomicU32, AtomicU64};

/// A page's memory and place in the table. All accesses are relaxed: the handover of a slot or a
/// claim to a thread also orders these fields.
#[derive(Debug)]
pub(crate) struct PageInfo {
    /// The page's memory.
    pub start: AtomicPtr<u8>,
    /// The page's bytes, in units of the smallest hardware page.
    units: AtomicU32,
    /// The reserved range that holds the page (see memory/span_allocator.rs).
    pub range: AtomicU32,
    /// A [`Lifetime`](super::Lifetime) as a number.
    lifetime: AtomicU8,
    vacancy: AtomicU8,
    /// The thread cache that claimed the page last, and when.
    last_cache: AtomicU32,
    last_used_at: AtomicU16,
    index: u32,
    next: AtomicU32,
}

pub(super) type SlabPage = PageDescriptor<PageInfo>;
pub(super) type SlabClaim<'t> = PageClaim<'t, PageInfo>;

/// The words of a bitmap in one cache line. Each bitmap has its own lines, so threads that use
/// different pages don't share one.
const WORDS_PER_LINE: usize = 8;

#[derive(Default)]
#[repr(align(64))]
struct BitmapLine(
    // Read and written through the pages' bitmaps.
    #[expect(dead_code)] [AtomicU64; WORDS_PER_LINE],
);

/// Vacancy of a descriptor: it has a page, or is about to have one.
const IN_USE: u8 = 0;
/// Vacancy of a descriptor: it may be taken for a page.
const VACANT: u8 = 1;
/// Vacancy of a descriptor: a thread discards the memory of its bitmap.
const DISCARDING: u8 = 2;

struct Bucket {
    pages: SystemArray<SlabPage>,
    hints: SystemArray<AtomicU64>,
    /// What the pages' `bits` refer to. Freed after the pages.
    bits: SystemArray<BitmapLine>,
}

impl Deref for Bucket {
    type Target = [SlabPage];

    fn deref(&self) -> &[SlabPage] {
        &self.pages
    }
}

impl Bucket {
    fn group(&self) -> PageGroup<'_, PageInfo> {
        PageGroup { pages: &self.pages, hints: PageHints { words: &self.hints } }
    }
}

/// The page descriptors of one slab.
pub(super) struct PageTable {
    pages: Pages,
    /// The words of each page's bitmap.
    words: usize,
}

type Pages = GrowingTable<Bucket, 8>;

impl TableEntry for SlabPage {
    fn next(&self) -> &AtomicU32 {
        &self.info.next
    }
}

impl PageTable {
    /// Makes an empty table for pages whose bitmaps have at most this many words.
    pub(super) fn new(words: usize) -> Self {
        Self { pages: GrowingTable::new(), words }
    }

    /// The group that holds a descriptor, and the descriptor's position in the group.
    pub(super) fn group_of(&self, page: &SlabPage) -> (PageGroup<'_, PageInfo>, usize) {
        let (bucket, position) = Pages::position_of(page.info.index);
        (self.pages.bucket(bucket).expect("a descriptor's bucket exists").group(), position)
    }

    /// The number of cache lines of one page's bitmap.
    const fn lines(&self) -> usize {
        self.words.div_ceil(WORDS_PER_LINE)
    }

    fn bucket_bytes(&self, pages: usize) -> usize {
        SystemArray::<SlabPage>::bytes_of(pages)
            + SystemArray::<AtomicU64>::bytes_of(words_for(pages))
            + SystemArray::<BitmapLine>::bytes_of(pages * self.lines())
            + size_of::<Bucket>()
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
        let make = |first, len| {
            charge(self.bucket_bytes(len))?;
            self.new_bucket(first, len).inspect_err(|_| credit(self.bucket_bytes(len)))
        };
        let index = self.pages.issue(make, |pages| credit(self.bucket_bytes(pages)))?;
        Ok(&self.pages[index])
    }

    /// Pops a vacant descriptor. Skips those whose bitmap memory is being discarded.
    fn pop_vacant(&self) -> Option<&SlabPage> {
        let (mut first, mut last) = (NIL, NIL);
        let page = loop {
            let popped = self.pages.vacant.pop(&self.pages);
            let Some(page) = popped.and_then(|index| self.pages.get(index)) else { break None };
            if page.info.change_vacancy(VACANT, IN_USE) {
                break Some(page);
            }
            page.info.next.store(first, Ordering::Relaxed);
            first = page.info.index;
            last = if last == NIL { first } else { last };
        };
        if first != NIL {
            self.pages.vacant.push_chain(&self.pages, first, last);
        }
        page
    }

    /// The descriptor of an index.
    pub(super) fn page(&self, index: u32) -> Option<&SlabPage> {
        self.pages.get(index)
    }

    /// Returns a descriptor whose page is released or never existed.
    pub(super) fn return_vacant(&self, page: &SlabPage) {
        page.info.set_vacancy(VACANT);
        self.pages.put_back(page.info.index);
    }

    /// Returns the memory of unused bitmaps to the system. It does so for whole hardware pages in
    /// which every bitmap belongs to a vacant descriptor. The words of these bitmaps are zero, and
    /// read zero when they are next touched.
    pub(super) fn discard_vacant(&self) {
        for bucket in self.pages.buckets() {
            let hardware_page = os::page_size();
            let bitmap_bytes = self.lines() * size_of::<BitmapLine>();
            let start = bucket.bits.as_ptr().cast::<u8>();
            let bytes = bucket.pages.len() * bitmap_bytes;
            let mut offset = align_up(start.addr().get(), hardware_page) - start.addr().get();
            while offset + hardware_page <= bytes {
                let end = (offset + hardware_page).div_ceil(bitmap_bytes);
                let pages = &bucket.pages[offset / bitmap_bytes..end];
                let owned = pages.iter().take_while(|page| page.info.begin_discard()).count();
                if owned == pages.len() {
                    // SAFETY: a hardware page of the block in which all words are zero. They belong
                    // to vacant descriptors that this thread owns, so no thread takes one (4).
                    // Other threads may read the words, and read zeros before and after. If the
                    // system refuses, nothing changes.
                    let _ = unsafe { os::discard(start.add(offset), hardware_page) };
                }
                pages[..owned].iter().for_each(|page| page.info.set_vacancy(VACANT));
                offset += hardware_page;
            }
        }
    }

    /// In a child made by fork: makes the descriptors vacant that belonged to threads which the
    /// child does not have.
    pub(super) fn after_fork(&self) {
        for page in self.descriptors() {
            let vacancy = &page.info.vacancy;
            let _ =
                vacancy.compare_exchange(DISCARDING, VACANT, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn new_bucket(&self, first_index: u32, pages: usize) -> Result<Bucket, AllocError> {
        let lines = SystemArray::new(pages * self.lines(), |_| BitmapLine::default())?;
        let hints = SystemArray::new(words_for(pages), |_| AtomicU64::new(0))?;
        let first_word = lines.as_ptr().as_ptr().cast();
        // SAFETY: the words stay until the bucket is dropped. Only the bucket's pages get this
        // reference, and they are dropped with it. References to these pages end with the table
        // (invariant 1).
        let words: &'static [AtomicU64] =
            unsafe { slice::from_raw_parts(first_word, lines.len() * WORDS_PER_LINE) };
        let pages = SystemArray::new(pages, |page| {
            let info = PageInfo {
                start: AtomicPtr::new(ptr::null_mut()),
                units: AtomicU32::new(0),
                range: AtomicU32::new(0),
                lifetime: AtomicU8::new(0),
                last_cache: AtomicU32::new(0),
                last_used_at: AtomicU16::new(0),
                vacancy: AtomicU8::new(IN_USE),
                index: first_index + page as u32,
                next: AtomicU32::new(0),
            };
            let bits = &words[page * self.lines() * WORDS_PER_LINE..][..self.words];
            PageDescriptor::new(bits, info)
        })?;
        Ok(Bucket { pages, hints, bits: lines })
    }

    /// Claims a page that one of the lists names: the fullest page with free slots, if the lists
    /// are in that order and the hints are up to date. The search in each list starts at the
    /// descriptor `start`, which is different for each thread.
    pub(super) fn claim_listed(
        &self,
        lists: &[usize],
        start: u32,
        own: Option<&OwnPages>,
        listed: impl Fn(),
    ) -> Option<(SlabClaim<'_>, PageOrigin)> {
        let (start_bucket, start_position) = Pages::position_of(start);
        let buckets = self.pages.buckets().count();
        if buckets == 0 {
            return None;
        }
        let first = start_bucket.min(buckets - 1);
        for &list in lists {
            for step in 0..buckets {
                let bucket = self.pages.bucket((first + step) % buckets).expect("counted above");
                let from = if step == 0 { start_position } else { 0 };
                if let Some((_, claim, origin)) = bucket.group().find(list, from, own, &listed) {
                    return Some((claim, origin));
                }
            }
        }
        None
    }

    /// All descriptors that were issued.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = &SlabPage> {
        self.pages.iter().map(|(_, page)| page)
    }
}

impl PageUse for PageInfo {
    fn lifetime(&self) -> usize {
        usize::from(self.lifetime.load(Ordering::Relaxed))
    }

    fn set_lifetime(&self, lifetime: usize) {
        self.lifetime.store(lifetime as u8, Ordering::Relaxed);
    }

    fn last_use(&self) -> CacheUse {
        let at = self.last_used_at.load(Ordering::Relaxed);
        CacheUse { cache: self.last_cache.load(Ordering::Relaxed), at }
    }

    fn set_last_use(&self, used: CacheUse) {
        self.last_cache.store(used.cache, Ordering::Relaxed);
        self.last_used_at.store(used.at, Ordering::Relaxed);
    }
}

impl PageInfo {
    fn change_vacancy(&self, from: u8, to: u8) -> bool {
        // Acquire and Release: what one owner did to the bitmap's memory happens before what the
        // next owner does.
        self.vacancy.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn set_vacancy(&self, vacancy: u8) {
        self.vacancy.store(vacancy, Ordering::Release);
    }

    /// Keeps other threads from taking a vacant descriptor. Returns whether it was vacant.
    fn begin_discard(&self) -> bool {
        self.change_vacancy(VACANT, DISCARDING)
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Links the page to another one. The caller has the page's claim, and the link lasts as long
    /// as the claim: descriptors without a page use it for their stack.
    pub(super) fn set_link(&self, to: Option<u32>) {
        self.next.store(to.unwrap_or(NIL), Ordering::Relaxed);
    }

    /// The index of the page that this one is linked to.
    pub(super) fn link(&self) -> Option<u32> {
        Some(self.next.load(Ordering::Relaxed)).filter(|index| *index != NIL)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_descriptor_fits_a_cache_line() {
        assert_eq!(size_of::<SlabPage>(), 64);
    }

    #[test]
    fn a_vacant_descriptor_is_taken_before_a_new_one_is_issued() {
        let table = PageTable::new(1);
        let take = || table.take_vacant(|_| Ok(()), |_| ()).unwrap();
        let first = take().info.index();
        let second = take();
        assert_eq!((first, second.info.index()), (0, 1));
        table.return_vacant(second);
        assert_eq!(take().info.index(), 1);
        for expected in 2..1000 {
            assert_eq!(take().info.index(), expected);
        }
        assert_eq!(table.descriptors().count(), 1000);
    }

    #[test]
    fn the_bitmaps_of_vacant_descriptors_take_no_memory_and_serve_again() {
        let table = PageTable::new(16);
        let taken: Vec<_> =
            (0..500).map(|_| table.take_vacant(|_| Ok(()), |_| ()).unwrap()).collect();
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
        for page in taken.iter().filter(|page| page.info.index() != kept.info.index()) {
            table.return_vacant(page);
        }
        table.discard_vacant();
        assert!(resident(kept) && !resident(left));
        assert_eq!(kept.bits()[0].load(Ordering::Relaxed), 5);
        // All but one are vacant again, and none occurs twice.
        let again: std::collections::BTreeSet<_> =
            (0..499).map(|_| table.take_vacant(|_| Ok(()), |_| ()).unwrap().info.index()).collect();
        assert_eq!(again.len(), 499);
        assert!(again.iter().all(|index| *index < 500));
        assert!(left.bits().iter().all(|bits| bits.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn structures_that_the_budget_refuses_are_an_error_and_nothing_is_issued() {
        let table = PageTable::new(1);
        let refuse = |bytes| Err(AllocError::new(ErrorKind::BudgetExceeded, bytes));
        assert!(table.take_vacant(refuse, |_| ()).is_err());
        assert_eq!(table.descriptors().count(), 0);
        assert!(table.pages.bucket(0).is_none());
    }
}
