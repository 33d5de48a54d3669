//! What the tests of lists and slabs share: stamped objects, sums, random numbers.

use core::alloc::Layout;
use core::ptr::NonNull;

use allotment::{AllocError, ErrorKind, Statistics};

pub fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a valid layout")
}

/// A small random number generator, one for each thread.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % bound as u64) as usize
    }

    pub fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last + 1));
        }
    }
}

/// A live object: every word of it holds its number, so that two objects that overlap overwrite
/// each other.
#[derive(Debug)]
pub struct Object {
    pub start: NonNull<u8>,
    size: usize,
    number: u64,
}

// SAFETY: an address and two numbers; the owner of the object owns its slot.
unsafe impl Send for Object {}

impl Object {
    /// Stamps a slot that was just allocated. The caller gives each object a different number.
    pub fn stamp(start: NonNull<u8>, layout: Layout, number: u64) -> Self {
        assert_eq!(start.addr().get() % layout.align(), 0, "{start:?} is aligned");
        let object = Self::claim(start, layout, number);
        for index in 0..object.words() {
            // SAFETY: a word inside of a live object of this size.
            unsafe { start.cast::<u64>().add(index).write_unaligned(object.word(index)) };
        }
        for index in object.words() * 8..object.size {
            // SAFETY: as above.
            unsafe { start.add(index).write(object.word(index) as u8) };
        }
        object
    }

    /// An object that was stamped with this number before, or its beginning, a multiple of eight
    /// bytes.
    pub fn claim(start: NonNull<u8>, layout: Layout, number: u64) -> Self {
        Self { start, size: layout.size(), number }
    }

    fn words(&self) -> usize {
        self.size / 8
    }

    fn word(&self, index: usize) -> u64 {
        (self.number.wrapping_mul(2) + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(index as u64)
    }

    /// Asserts that nothing else was written here since the stamp.
    pub fn assert_intact(&self) {
        for index in 0..self.words() {
            // SAFETY: as in `stamp`.
            let word = unsafe { self.start.cast::<u64>().add(index).read_unaligned() };
            assert_eq!(word, self.word(index), "word {index} of {self:?} changed");
        }
        for index in self.words() * 8..self.size {
            // SAFETY: as in `stamp`.
            let byte = unsafe { self.start.add(index).read() };
            assert_eq!(byte, self.word(index) as u8, "byte {index} of {self:?} changed");
        }
    }

    /// Checks the object, and returns its slot to be freed.
    pub fn end(self) -> NonNull<u8> {
        self.assert_intact();
        self.start
    }

    pub fn range(&self) -> (usize, usize) {
        let start = self.start.addr().get();
        (start, start + self.size)
    }
}

/// Asserts that no two objects overlap, nor share an address where they have no size.
pub fn assert_apart<'o>(objects: impl IntoIterator<Item = &'o Object>) {
    let mut ranges: Vec<_> = objects.into_iter().map(Object::range).collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].1 <= pair[1].0 && pair[0].0 < pair[1].0, "{pair:x?} overlap");
    }
}

/// Asserts that the bytes held are the sum of the parts, to the byte.
pub fn assert_sums(statistics: &Statistics) {
    let parts = statistics.structure_bytes
        + statistics.live_bytes
        + statistics.free_bytes
        + statistics.wasted_bytes;
    assert_eq!(statistics.held_bytes, parts, "structures + live + free + wasted: {statistics:?}");
    assert!(statistics.peak_held_bytes >= statistics.held_bytes, "{statistics:?}");
}

/// Asserts that an error is one that a source or a budget makes.
pub fn assert_refusal(error: AllocError) {
    let kind = error.kind();
    let known =
        matches!(kind, ErrorKind::BudgetExceeded | ErrorKind::SourceRefused | ErrorKind::System(_));
    assert!(known, "{kind:?} is what a source or a budget says");
}
