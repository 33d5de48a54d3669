//! Size classes of reaps and pools: pure arithmetic.
//!
//! | sizes, bytes | classes | unused at most |
//! |---|---|---|
//! | up to 256 | each multiple of 16 | 15 bytes |
//! | up to 32 KiB | eight per doubling | an eighth |
//! | up to 32 KiB, aligned to more than 16 | powers of two, aligned to themselves | a half |
//!
//! Larger objects have no class: each gets a chunk of its own.
#![forbid(unsafe_code)]

use core::alloc::Layout;

/// The alignment of every block, and the step between the smallest classes.
pub(crate) const STEP: usize = 16;
/// The largest size with a class.
pub(crate) const MAX_SMALL: usize = 32 << 10;
/// Up to this size a table gives the class.
const MAX_COMMON: usize = 1 << 10;

/// The number of classes that are one step apart, up to 256 bytes.
const LINEAR_CLASSES: usize = 16;
/// The number of classes per doubling above 256 bytes.
const PER_DOUBLING: usize = 8;
const GEOMETRIC_CLASSES: usize = PER_DOUBLING * (MAX_SMALL.ilog2() - 8) as usize;
/// The first class whose blocks are aligned to their size, 32 bytes.
const FIRST_ALIGNED: usize = LINEAR_CLASSES + GEOMETRIC_CLASSES;
/// The number of classes.
pub(crate) const CLASSES: usize = FIRST_ALIGNED + (MAX_SMALL.ilog2() - 4) as usize;

/// A size class.
///
/// # Invariants
///
/// The number is less than [`CLASSES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SizeClass(u8);

impl SizeClass {
    /// Returns the class of a layout, or `None` if the layout is too large for a class. A block
    /// whose new size is of the same class is resized in place.
    #[inline]
    pub(crate) fn of(layout: Layout) -> Option<Self> {
        Self::of_common(layout).or_else(|| Self::of_uncommon(layout))
    }

    /// Returns the class of the layouts that most objects have, or `None` for others.
    #[inline(always)]
    pub(crate) fn of_common(layout: Layout) -> Option<Self> {
        let common = layout.size() <= MAX_COMMON && layout.align() <= STEP;
        common.then(|| Self(CLASS_OF[layout.size().div_ceil(STEP)]))
    }

    fn of_uncommon(layout: Layout) -> Option<Self> {
        let (size, align) = (layout.size(), layout.align());
        if size > MAX_SMALL || align > MAX_SMALL {
            return None;
        }
        if align <= STEP {
            return Some(Self(class_of_size(size.max(1)) as u8));
        }
        let size = size.next_power_of_two().max(align);
        Some(Self((FIRST_ALIGNED + (size.ilog2() - 5) as usize) as u8))
    }

    /// Returns the largest class of alignment [`STEP`] whose blocks have at most this size, for
    /// leftover bytes. Returns `None` below one step.
    pub(crate) fn largest_within(bytes: usize) -> Option<Self> {
        if bytes < STEP {
            return None;
        }
        let class = class_of_size(bytes.min(MAX_SMALL));
        Some(Self(if size_of_class(class) <= bytes { class } else { class - 1 } as u8))
    }

    /// All classes.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..CLASSES as u8).map(Self)
    }

    /// Returns the class of this number, if there is one.
    #[inline(always)]
    pub(crate) fn of_index(index: usize) -> Option<Self> {
        (index < CLASSES).then_some(Self(index as u8))
    }

    /// Returns the class's number, less than [`CLASSES`].
    #[inline(always)]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the size in bytes of a block of this class.
    #[inline(always)]
    pub(crate) fn size(self) -> usize {
        SIZES[self.index()] as usize
    }

    /// Returns the alignment of a block of this class.
    #[inline(always)]
    pub(crate) fn align(self) -> usize {
        if self.index() < FIRST_ALIGNED { STEP } else { self.size() }
    }
}

/// The class of each size up to [`MAX_COMMON`], by the size in steps, rounded up. A constant, so
/// that the class of a size known at compile time is known at compile time.
const CLASS_OF: [u8; MAX_COMMON / STEP + 1] = {
    let mut classes = [0; MAX_COMMON / STEP + 1];
    let mut steps = 1;
    while steps < classes.len() {
        classes[steps] = class_of_size(steps * STEP) as u8;
        steps += 1;
    }
    classes
};

pub(crate) static SIZES: [u32; CLASSES] = {
    let mut sizes = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        sizes[class] = size_of_class(class) as u32;
        class += 1;
    }
    sizes
};

/// The class of a size from 1 to [`MAX_SMALL`], for any alignment up to [`STEP`].
const fn class_of_size(size: usize) -> usize {
    let last = size - 1;
    if last < 256 {
        return last / STEP;
    }
    let doubling = last.ilog2() as usize;
    let step = (last >> (doubling - 3)) - PER_DOUBLING;
    LINEAR_CLASSES + PER_DOUBLING * (doubling - 8) + step
}

const fn size_of_class(class: usize) -> usize {
    if class < LINEAR_CLASSES {
        return (class + 1) * STEP;
    }
    if class < FIRST_ALIGNED {
        let above = class - LINEAR_CLASSES;
        let (doubling, step) = (above / PER_DOUBLING, above % PER_DOUBLING);
        let base = 256 << doubling;
        return base + base / PER_DOUBLING * (step + 1);
    }
    32 << (class - FIRST_ALIGNED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn every_small_size_has_the_smallest_class_that_holds_it() {
        for size in 0..=MAX_SMALL {
            let class = SizeClass::of(layout(size, 1)).unwrap();
            assert!(class.size() >= size, "{size}");
            let below = class.index().checked_sub(1);
            assert!(below.is_none_or(|below| size_of_class(below) < size), "{size}");
        }
        assert_eq!(SizeClass::of(layout(MAX_SMALL + 1, 1)), None);
    }

    #[test]
    fn no_class_leaves_more_unused_than_is_stated() {
        for size in 1..=MAX_SMALL {
            let unused = SizeClass::of(layout(size, 8)).unwrap().size() - size;
            assert!(if size <= 256 { unused < STEP } else { unused * 8 <= size + 8 }, "{size}");
        }
    }

    #[test]
    fn a_larger_alignment_gets_a_power_of_two_aligned_to_itself() {
        for align in [32, 64, 4096, MAX_SMALL] {
            for size in [0, 1, 31, 32, 33, 1000, 1024, 1025, MAX_SMALL] {
                let class = SizeClass::of(layout(size, align)).unwrap();
                assert!(class.size() >= size.max(align) && class.align() == class.size());
                assert!(class.size() < 2 * size.max(align));
            }
        }
        assert_eq!(SizeClass::of(layout(8, 2 * MAX_SMALL)), None);
    }

    #[test]
    fn what_is_left_over_finds_the_largest_class_within() {
        assert_eq!(SizeClass::largest_within(15), None);
        for bytes in 16..=MAX_SMALL + 100 {
            let class = SizeClass::largest_within(bytes).unwrap();
            assert!(class.size() <= bytes && class.align() == STEP);
            let next = class.index() + 1;
            assert!(next == FIRST_ALIGNED || size_of_class(next) > bytes, "{bytes}");
        }
    }

    #[test]
    fn classes_of_one_alignment_grow_and_each_is_its_own() {
        for class in SizeClass::all() {
            assert_eq!(SizeClass::of(layout(class.size(), class.align())), Some(class));
        }
    }
}
