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
/// Up to this size the class is looked up in a table.
const MAX_LOOKED_UP: usize = 1 << 10;

/// The number of classes that are one step apart, up to 256 bytes.
const LINEAR: usize = 16;
const STEPS: usize = 8;
const STEPPED: usize = STEPS * (MAX_SMALL.ilog2() - 8) as usize;
/// The first class whose blocks are aligned to their size, 32 bytes.
const FIRST_ALIGNED: usize = LINEAR + STEPPED;
/// The number of classes.
pub(crate) const CLASSES: usize = FIRST_ALIGNED + (MAX_SMALL.ilog2() - 4) as usize;

/// A size class.
///
/// # Invariants
///
/// The number is less than [`CLASSES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(u8);

impl Class {
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
}

/// The class of each size up to [`MAX_LOOKED_UP`], by the size in steps, rounded up. A constant, so
/// that for a size known at compile time nothing is looked up.
const CLASS_OF: [u8; MAX_LOOKED_UP / STEP + 1] = {
    let mut classes = [0; MAX_LOOKED_UP / STEP + 1];
    let mut steps = 1;
    while steps < classes.len() {
        classes[steps] = computed(steps * STEP) as u8;
        steps += 1;
    }
    classes
};

static SIZES: [u32; CLASSES] = {
    let mut sizes = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        sizes[class] = size_of_class(class) as u32;
        class += 1;
    }
    sizes
};

/// The class of a size from 1 to [`MAX_SMALL`], for any alignment up to [`STEP`].
const fn computed(size: usize) -> usize {
    let below = size - 1;
    if below < 256 {
        return below / STEP;
    }
    let doubling = below.ilog2() as usize;
    let step = (below >> (doubling - 3)) - STEPS;
    LINEAR + STEPS * (doubling - 8) + step
}

const fn size_of_class(class: usize) -> usize {
    if class < LINEAR {
        return (class + 1) * STEP;
    }
    if class < FIRST_ALIGNED {
        let (doubling, step) = ((class - LINEAR) / STEPS, (class - LINEAR) % STEPS);
        let base = 256 << doubling;
        return base + base / STEPS * (step + 1);
    }
    32 << (class - FIRST_ALIGNED)
}

/// Returns the class of a layout, or `None` if the layout is too large for a class. A block whose
/// new size is of the same class is resized in place.
#[inline]
pub(crate) fn class_of(layout: Layout) -> Option<Class> {
    common_class_of(layout).or_else(|| class_of_others(layout))
}

/// Returns the class of the layouts that most objects have, or `None` for others.
#[inline(always)]
pub(crate) fn common_class_of(layout: Layout) -> Option<Class> {
    let common = layout.size() <= MAX_LOOKED_UP && layout.align() <= STEP;
    common.then(|| Class(CLASS_OF[layout.size().div_ceil(STEP)]))
}

fn class_of_others(layout: Layout) -> Option<Class> {
    let (size, align) = (layout.size(), layout.align());
    if size > MAX_SMALL || align > MAX_SMALL {
        return None;
    }
    if align <= STEP {
        return Some(Class(computed(size.max(1)) as u8));
    }
    let whole = size.next_power_of_two().max(align);
    Some(Class((FIRST_ALIGNED + (whole.ilog2() - 5) as usize) as u8))
}

/// Returns the size in bytes of a block of this class.
#[inline(always)]
pub(crate) fn size_of(class: Class) -> usize {
    SIZES[class.index()] as usize
}

/// Returns the alignment of a block of this class.
#[inline(always)]
pub(crate) fn align_of(class: Class) -> usize {
    if class.index() < FIRST_ALIGNED { STEP } else { size_of(class) }
}

/// Returns the largest class of alignment [`STEP`] whose blocks have at most this size, for
/// leftover bytes. Returns `None` below one step.
pub(crate) fn class_within(bytes: usize) -> Option<Class> {
    if bytes < STEP {
        return None;
    }
    let class = computed(bytes.min(MAX_SMALL));
    Some(Class(if size_of_class(class) <= bytes { class } else { class - 1 } as u8))
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
            let class = class_of(layout(size, 1)).unwrap();
            assert!(size_of(class) >= size, "{size}");
            let below = class.index().checked_sub(1);
            assert!(below.is_none_or(|below| size_of_class(below) < size), "{size}");
        }
        assert_eq!(class_of(layout(MAX_SMALL + 1, 1)), None);
    }

    #[test]
    fn no_class_leaves_more_unused_than_is_stated() {
        for size in 1..=MAX_SMALL {
            let unused = size_of(class_of(layout(size, 8)).unwrap()) - size;
            assert!(if size <= 256 { unused < STEP } else { unused * 8 <= size + 8 }, "{size}");
        }
    }

    #[test]
    fn a_larger_alignment_gets_a_power_of_two_aligned_to_itself() {
        for align in [32, 64, 4096, MAX_SMALL] {
            for size in [0, 1, 31, 32, 33, 1000, 1024, 1025, MAX_SMALL] {
                let class = class_of(layout(size, align)).unwrap();
                assert!(size_of(class) >= size.max(align) && align_of(class) == size_of(class));
                assert!(size_of(class) < 2 * size.max(align));
            }
        }
        assert_eq!(class_of(layout(8, 2 * MAX_SMALL)), None);
    }

    #[test]
    fn what_is_left_over_finds_the_largest_class_within() {
        assert_eq!(class_within(15), None);
        for bytes in 16..=MAX_SMALL + 100 {
            let class = class_within(bytes).unwrap();
            assert!(size_of(class) <= bytes && align_of(class) == STEP);
            let next = class.index() + 1;
            assert!(next == FIRST_ALIGNED || size_of_class(next) > bytes, "{bytes}");
        }
    }

    #[test]
    fn classes_of_one_alignment_grow_and_each_is_its_own() {
        for class in Class::all() {
            assert_eq!(class_of(layout(size_of(class), align_of(class))), Some(class));
        }
    }
}
