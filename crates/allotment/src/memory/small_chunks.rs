//! Small chunks, cut from larger mappings.
//!
//! The kernel limits the number of a process's mappings (`vm.max_map_count`, 65,530 by default). If
//! each chunk of 4 KiB were a mapping, a program with many small arenas would reach that limit when
//! it drops every second one. So chunks of at most [`MAX_SMALL`] bytes are cut from *ranges*:
//! mappings of 256 KiB to 8 MiB, each for chunks of one size class. A chunk that goes back to the
//! system gives up its memory, and its addresses stay in the range. A range in which no chunk is in
//! use is unmapped.
//!
//! The number of a small chunk says where it is, so small chunks need no entries in the table of
//! mappings:
//!
//! ```text
//! │ class + 1 │ index of the range in its class │ index of the chunk │
//! 31        26                                 11                    0
//! ```
//!
//! # Invariants
//!
//! 1. A bit of `used` is set while a thread maps or unmaps the range, and while it is mapped. The
//!    thread that sets the bit maps the range.
//! 2. A bit of a range's `free` is 1 while its chunk has no owner. A thread that clears the bit
//!    owns the chunk. Before it sets the bit again, it discards the chunk's memory. Only the bits
//!    of a mapped range are set.
//! 3. A thread that owns all chunks of a range unmaps it. Therefore `start` doesn't change while
//!    any chunk has an owner.
//! 4. A bit of `listed` is a hint that the range has free chunks. When no call is running, it is
//!    set for each range that has any, and every range has a chunk in use.
//! 5. The descriptor of a range is never unmapped, and the number of its chunks depends on its
//!    class and index only. So a thread may access the bits of a range that was unmapped, or mapped
//!    anew.
//! 6. No thread waits for another. A child made by fork loses only the chunks, or the range, that
//!    another thread was taking or releasing at that moment.

use core::ptr::{self, NonNull};

use super::bits::low_bits;
use super::chunk_cache::{MAX_MAPPINGS, WarmChunk};
use super::layout::{MIN_CHUNK, class_size};
use crate::error::{AllocError, ErrorKind};
use crate::sync::{AtomicPtr, AtomicU64, Ordering, mutant, order, store_before_load};

/// The number of size classes of small chunks.
pub const SMALL_CLASSES: usize = 5;

/// The largest small chunk, in bytes.
pub const MAX_SMALL: usize = MIN_CHUNK << (SMALL_CLASSES - 1);

/// The bytes of the first range of a class. Each further range has twice as many, up to
/// [`MAX_RANGE`], so that a small program maps few addresses.
const FIRST_RANGE: usize = 256 << 10;

/// The bytes of the largest range: a million chunks of 4 KiB have at most 500 ranges.
const MAX_RANGE: usize = 8 << 20;

/// The bits of a number for the index of the chunk.
pub const CHUNK_BITS: u32 = (MAX_RANGE / MIN_CHUNK).ilog2();

/// The number of bits below the class in a number.
pub const CLASS_SHIFT: u32 = 26;

/// Loom explores ranges of three chunks, two of them in one word, and few ranges.
const WORD_BITS: usize = if cfg!(loom) { 2 } else { 64 };
const WORDS: usize = if cfg!(loom) { 2 } else { MAX_RANGE / MIN_CHUNK / WORD_BITS };
const RANGE_WORDS: usize = if cfg!(loom) { 1 } else { 1 << (CLASS_SHIFT - CHUNK_BITS - 6) };

const _: () = assert!(MAX_MAPPINGS <= 1 << CLASS_SHIFT && SMALL_CLASSES < 32);

/// The identity of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeId {
    pub class: usize,
    pub index: usize,
}

impl RangeId {
    /// The range of a small chunk's number, and the index of the chunk in the range.
    #[inline]
    #[must_use]
    pub const fn of_number(number: u32) -> (Self, usize) {
        let class = (number >> CLASS_SHIFT) as usize - 1;
        let index = (number >> CHUNK_BITS) as usize & ((1 << (CLASS_SHIFT - CHUNK_BITS)) - 1);
        (Self { class, index }, number as usize & ((1 << CHUNK_BITS) - 1))
    }

    /// The number of a chunk of this range.
    #[must_use]
    pub const fn number(self, chunk: usize) -> u32 {
        (self.class as u32 + 1) << CLASS_SHIFT | (self.index as u32) << CHUNK_BITS | chunk as u32
    }

    /// How many chunks the range has.
    #[must_use]
    pub const fn chunks(self) -> usize {
        if cfg!(loom) {
            return WORDS * WORD_BITS - 1;
        }
        let doublings = if self.index < 32 { self.index } else { 32 };
        let bytes = FIRST_RANGE << doublings;
        (if bytes < MAX_RANGE { bytes } else { MAX_RANGE }) / class_size(self.class)
    }

    /// The bytes of the range.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.chunks() * class_size(self.class)
    }

    /// The words of `free` with the bits of all chunks except `own`.
    fn words_without(self, own: Option<usize>) -> impl Iterator<Item = (usize, u64)> {
        let chunks = self.chunks();
        (0..chunks.div_ceil(WORD_BITS)).map(move |word| {
            let bits = low_bits((chunks - word * WORD_BITS).min(WORD_BITS));
            match own {
                Some(own) if own / WORD_BITS == word => (word, bits & !(1 << (own % WORD_BITS))),
                _ => (word, bits),
            }
        })
    }

    /// The word of `listed` and `used` for this range, and its bit.
    const fn bit(self) -> (usize, u64) {
        (self.index / 64, 1 << (self.index % 64))
    }
}

/// Whether a mapping number is that of a small chunk.
#[inline]
#[must_use]
pub const fn is_small(number: u32) -> bool {
    let class = number >> CLASS_SHIFT;
    class != 0 && class <= SMALL_CLASSES as u32
}

/// The descriptor of a range. All-zero bytes are a descriptor without free chunks.
#[derive(Debug)]
pub struct ChunkRange {
    start: AtomicPtr<u8>,
    free: [AtomicU64; WORDS],
}

impl ChunkRange {
    /// The descriptor of a range that is not mapped.
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: AtomicPtr::new(ptr::null_mut()),
            free: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// The start of a chunk in use.
    #[inline]
    pub fn start_of(&self, id: RangeId, chunk: usize) -> NonNull<u8> {
        // Relaxed: written before any chunk of the range had an owner, and stays (invariant 3). The
        // way the chunk reached this thread orders the rest.
        let start = self.start.load(Ordering::Relaxed);
        NonNull::new(start.wrapping_add(chunk * class_size(id.class)))
            .expect("a range with a chunk in use is mapped")
    }

    /// Takes the lowest free chunk.
    fn take_chunk(&self) -> Option<usize> {
        for (word, free) in self.free.iter().enumerate() {
            let mut bits = free.load(Ordering::Relaxed);
            while bits != 0 {
                let bit = bits.trailing_zeros();
                // Acquire pairs with the SeqCst that set the bit: the former owner's accesses and
                // the range's start.
                match free.compare_exchange_weak(
                    bits,
                    bits & !(1 << bit),
                    order(Ordering::Acquire, "take chunk: relaxed"),
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return Some(word * WORD_BITS + bit as usize),
                    Err(now) => bits = now,
                }
            }
        }
        None
    }

    /// Whether any chunk is free.
    fn has_free(&self) -> bool {
        // SeqCst: see `unlist`.
        self.free.iter().any(|free| free.load(Ordering::SeqCst) != 0)
    }

    /// Whether all chunks are free, without regard to `own`, a chunk of the caller.
    fn all_free(&self, id: RangeId, own: Option<usize>) -> bool {
        // SeqCst: see `release`.
        id.words_without(own).all(|(word, bits)| self.free[word].load(Ordering::SeqCst) == bits)
    }

    /// Takes all chunks except `own`, a chunk of the caller. If one of them is in use, takes none.
    fn take_all(&self, id: RangeId, own: Option<usize>) -> bool {
        for (word, bits) in id.words_without(own) {
            // Acquire pairs with the SeqCst that set the bits: the former owners' accesses happen
            // before the range is unmapped.
            let taken =
                self.free[word].compare_exchange(bits, 0, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_err() {
                let taken = if mutant("take all: words kept") { 0 } else { word };
                for (earlier, bits) in id.words_without(own).take(taken) {
                    self.free[earlier].fetch_or(bits, Ordering::SeqCst);
                }
                return false;
            }
        }
        true
    }
}

impl Default for ChunkRange {
    fn default() -> Self {
        Self::new()
    }
}

/// The descriptors of all ranges, and the system calls. The process has one implementation, tests
/// have others.
pub trait RangeTable {
    /// The descriptor of a range. [`prepare`](Self::prepare) was called for it.
    fn range(&self, id: RangeId) -> &ChunkRange;

    /// Makes the descriptor of a range, if it is not made yet.
    ///
    /// # Errors
    /// If there is no memory for it.
    fn prepare(&self, id: RangeId) -> Result<(), AllocError>;

    /// Maps a range. Its memory is zero.
    ///
    /// # Errors
    /// If the system refuses.
    fn map(&self, bytes: usize) -> Result<NonNull<u8>, AllocError>;

    /// Unmaps a range. Returns `false` if the system refuses. The range is then as it was.
    ///
    /// # Safety
    /// The caller owns all chunks of the range, and nothing refers to them.
    unsafe fn unmap(&self, start: NonNull<u8>, bytes: usize) -> bool;

    /// Gives the memory of chunks back. They read zeros afterwards.
    ///
    /// # Safety
    /// The caller owns the chunks, and nothing refers to their bytes.
    unsafe fn discard(&self, start: NonNull<u8>, bytes: usize);
}

/// The ranges of one class, by index.
#[derive(Debug)]
struct ClassRanges {
    used: [AtomicU64; RANGE_WORDS],
    listed: [AtomicU64; RANGE_WORDS],
}

impl ClassRanges {
    #[cfg(not(loom))]
    const fn new() -> Self {
        Self {
            used: [const { AtomicU64::new(0) }; RANGE_WORDS],
            listed: [const { AtomicU64::new(0) }; RANGE_WORDS],
        }
    }

    /// As above, for loom, whose atomics can't be made in a constant.
    #[cfg(loom)]
    fn new() -> Self {
        Self {
            used: core::array::from_fn(|_| AtomicU64::new(0)),
            listed: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// All small chunks that no allocator, thread or stack of the recycler owns.
#[derive(Debug)]
pub struct SmallChunks<T> {
    table: T,
    classes: [ClassRanges; SMALL_CLASSES],
}

impl<T: RangeTable> SmallChunks<T> {
    /// No range is mapped.
    #[cfg(not(loom))]
    pub const fn new(table: T) -> Self {
        Self { table, classes: [const { ClassRanges::new() }; SMALL_CLASSES] }
    }

    /// As above, for loom, whose atomics can't be made in a constant.
    #[cfg(loom)]
    pub fn new(table: T) -> Self {
        Self { table, classes: core::array::from_fn(|_| ClassRanges::new()) }
    }

    /// The descriptors.
    pub fn table(&self) -> &T {
        &self.table
    }

    /// Takes a chunk of this class. Its memory is zero.
    ///
    /// # Errors
    /// If all chunks are in use and the system refuses a range.
    pub fn take(&self, class: usize) -> Result<WarmChunk, AllocError> {
        for (word, listed) in self.classes[class].listed.iter().enumerate() {
            // Acquire pairs with the Release in `list`: the descriptor was made.
            let mut bits = listed.load(Ordering::Acquire);
            while bits != 0 {
                let id = RangeId { class, index: word * 64 + bits.trailing_zeros() as usize };
                let range = self.table.range(id);
                if let Some(chunk) = range.take_chunk() {
                    return Ok(WarmChunk {
                        start: range.start_of(id, chunk),
                        mapping: id.number(chunk),
                    });
                }
                self.unlist(id, range);
                bits &= bits - 1;
            }
        }
        self.map_range(class)
    }

    /// Maps a range, and takes its first chunk.
    fn map_range(&self, class: usize) -> Result<WarmChunk, AllocError> {
        let all_in_use = AllocError::new(ErrorKind::LimitReached, class_size(class));
        let id = self.take_unused(class).ok_or(all_in_use)?;
        let mapped = self.table.prepare(id).and_then(|()| self.table.map(id.bytes()));
        let start = mapped.inspect_err(|_| self.release_unused(id))?;
        let range = self.table.range(id);
        // Relaxed: the stores below publish it.
        range.start.store(start.as_ptr(), Ordering::Relaxed);
        for (word, bits) in id.words_without(Some(0)) {
            // SeqCst: see `unlist`. It pairs with the Acquire of `take_chunk` and `take_all`, too.
            range.free[word].store(bits, Ordering::SeqCst);
        }
        self.list(id);
        Ok(WarmChunk { start, mapping: id.number(0) })
    }

    /// Claims the lowest index that is not in use.
    fn take_unused(&self, class: usize) -> Option<RangeId> {
        for (word, used) in self.classes[class].used.iter().enumerate() {
            let mut bits = used.load(Ordering::Relaxed);
            while bits != u64::MAX {
                let bit = bits.trailing_ones();
                // Acquire pairs with the Release in `release_unused`: the range that had this index
                // before was unmapped.
                bits = used.fetch_or(1 << bit, Ordering::Acquire);
                if bits & (1 << bit) == 0 {
                    return Some(RangeId { class, index: word * 64 + bit as usize });
                }
            }
            if cfg!(loom) {
                break;
            }
        }
        None
    }

    fn release_unused(&self, id: RangeId) {
        let (word, bit) = id.bit();
        self.classes[id.class].used[word].fetch_and(!bit, Ordering::Release);
    }

    /// Lets searches find a range that has free chunks. The caller has just set their bits.
    fn list(&self, id: RangeId) {
        let (word, bit) = id.bit();
        let listed = &self.classes[id.class].listed[word];
        store_before_load();
        // SeqCst: see `unlist`. Release pairs with the Acquire in `take`.
        if listed.load(Ordering::SeqCst) & bit == 0 {
            listed.fetch_or(bit, Ordering::Release);
        }
    }

    /// Hides a range without free chunks from searches.
    ///
    /// Another thread may set a free bit at the same time, and find the range listed still. This
    /// thread clears the bit in `listed` and then looks for free chunks; the other thread sets a
    /// free bit and then looks at `listed`. At least one of them sees what the other did, and lists
    /// the range again.
    fn unlist(&self, id: RangeId, range: &ChunkRange) {
        let (word, bit) = id.bit();
        let seq_cst = order(Ordering::SeqCst, "unlist: unordered");
        self.classes[id.class].listed[word].fetch_and(!bit, seq_cst);
        if !mutant("unlist: unordered") {
            store_before_load();
        }
        if range.has_free() && !mutant("unlist: no second look") {
            self.classes[id.class].listed[word].fetch_or(bit, Ordering::Release);
        }
    }

    /// Releases a chunk and gives its memory back. If no chunk of its range is in use then, unmaps
    /// the range.
    ///
    /// Of two threads that release the last two chunks of a range, at least one must see that all
    /// are free. Each sets its bit and then looks at the others. A thread that has taken some words
    /// of a range, and then meets a chunk in use, sets their bits again and then looks at all bits
    /// again, because the chunk may have become free meanwhile.
    ///
    /// # Safety
    /// The caller owns the chunk with this number, and nothing refers to it.
    pub unsafe fn release(&self, number: u32) {
        let (id, chunk) = RangeId::of_number(number);
        let range = self.table.range(id);
        // If all other chunks are free, the memory need not go back separately.
        if range.all_free(id, Some(chunk)) && range.take_all(id, Some(chunk)) {
            // SAFETY: the caller owned this chunk, and `take_all` took the others.
            return unsafe { self.unmap_range(id, range) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.table.discard(range.start_of(id, chunk), class_size(id.class)) };
        // SeqCst: for the loads in `all_free` and `list`. It pairs with the Acquire of
        // `take_chunk`.
        let seq_cst = order(Ordering::SeqCst, "release chunk: unordered");
        range.free[chunk / WORD_BITS].fetch_or(1 << (chunk % WORD_BITS), seq_cst);
        if !mutant("release chunk: unordered") {
            store_before_load();
        }
        while range.all_free(id, None) {
            if range.take_all(id, None) {
                // SAFETY: `take_all` took all chunks.
                return unsafe { self.unmap_range(id, range) };
            }
            if mutant("release chunk: no second look") {
                break;
            }
            store_before_load();
        }
        self.list(id);
    }

    /// Unmaps a range.
    ///
    /// # Safety
    /// The caller owns all chunks of the range, and nothing refers to them.
    unsafe fn unmap_range(&self, id: RangeId, range: &ChunkRange) {
        let (word, bit) = id.bit();
        // Relaxed: a hint, so that searches skip the range.
        self.classes[id.class].listed[word].fetch_and(!bit, Ordering::Relaxed);
        let (start, bytes) = (range.start_of(id, 0), id.bytes());
        // SAFETY: guaranteed by the caller.
        if unsafe { self.table.unmap(start, bytes) } {
            return self.release_unused(id);
        }
        // The process has too many mappings to split one. Keep the addresses.
        // SAFETY: guaranteed by the caller.
        unsafe { self.table.discard(start, bytes) };
        for (word, bits) in id.words_without(None) {
            range.free[word].fetch_or(bits, Ordering::SeqCst);
        }
        self.list(id);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::index_stack::NIL;

    #[test]
    fn a_number_says_which_chunk_it_is_and_is_no_number_of_a_mapping() {
        for class in 0..SMALL_CLASSES {
            for index in [0, 1, 4, 5, 63, 64, RANGE_WORDS * 64 - 1] {
                let id = RangeId { class, index };
                assert!(id.bytes() >= FIRST_RANGE && id.bytes() <= MAX_RANGE);
                for chunk in [0, 1, id.chunks() - 1] {
                    let number = id.number(chunk);
                    assert!(is_small(number) && number >= MAX_MAPPINGS);
                    assert_eq!(RangeId::of_number(number), (id, chunk));
                }
            }
        }
        assert!(!is_small(0) && !is_small(MAX_MAPPINGS - 1) && !is_small(NIL));
    }

    #[test]
    fn the_words_of_a_range_have_a_bit_for_each_chunk_but_ones_own() {
        for (class, index) in [(0, 0), (0, 9), (2, 1), (4, 0), (4, 9)] {
            let id = RangeId { class, index };
            let bits = |own| id.words_without(own).map(|(_, bits)| bits.count_ones()).sum::<u32>();
            assert_eq!(bits(None) as usize, id.chunks());
            for own in [0, id.chunks() - 1] {
                assert_eq!(bits(Some(own)) as usize, id.chunks() - 1);
            }
        }
    }
}
