//! Address arithmetic: no pointers, no memory, no unsafe code.
//!
//! The arithmetic on addresses, sizes and size classes is separate so that it can be fuzzed by
//! itself: `fuzz/fuzz_targets/layout.rs` and `tests/layout_corpus.rs` assert every pre- and
//! postcondition.
//!
//! The arithmetic rests on one fact. On 64-bit platforms, a user address is below `MAX_ADDRESS`,
//! and a valid [`Layout`](core::alloc::Layout) has `size + (align - 1) <= isize::MAX`. So `address +
//! (align - 1) + size < 2^57 + 2^63` never wraps. Addresses of 32 bits have no such bound, and
//! [`start_within`] checks the sums there. Fast paths compute with offsets and sizes of at most
//! 2^24 on every platform, and need no check.
#![forbid(unsafe_code)]

/// Larger than every user address: x86-64 with five-level tables has 56 bits, aarch64 has 52.
#[cfg(target_pointer_width = "64")]
pub const MAX_ADDRESS: usize = 1 << 57;

/// The cache line of the supported processors, and the smallest alignment of a chunk.
pub const CACHE_LINE: usize = 64;

/// The smallest size class, and the smallest hardware page of a supported platform.
pub const MIN_CHUNK: usize = 4 << 10;

/// An arena's chunks double in size up to this. From there on they are huge pages if the source has
/// them. A larger object gets a chunk of its own size.
pub const MAX_GROWTH: usize = 1 << 20;

/// The largest chunk that has a size class. A larger one goes directly back to its source.
pub const MAX_CLASS_SIZE: usize = 64 << 20;

/// The unit in which segments are aligned and looked up.
pub const SEGMENT_GRANULE: usize = 64 << 10;

/// The size of a huge page on x86-64 and on aarch64 with 4 KiB pages.
pub const HUGE_PAGE: usize = 2 << 20;

const POWER_CLASSES: usize = (MAX_GROWTH.ilog2() - MIN_CHUNK.ilog2()) as usize + 1;
const STEPS: usize = 4;

/// The number of size classes: powers of two up to [`MAX_GROWTH`], then four classes for each
/// doubling.
pub const CLASSES: usize =
    POWER_CLASSES + STEPS * (MAX_CLASS_SIZE.ilog2() - MAX_GROWTH.ilog2()) as usize;

/// `address` rounded up to a multiple of `align`, which is a power of two.
///
/// Needs a result in the address space, as for an address in a block with room for it. On 64-bit
/// platforms `address <= MAX_ADDRESS` and `align <= 2^63` are enough.
#[inline(always)]
#[must_use]
pub const fn align_up(address: usize, align: usize) -> usize {
    address.wrapping_add(align - 1) & !(align - 1)
}

/// `address` rounded up to a multiple of `align`, if `size` bytes from there end at `end` or before.
#[inline(always)]
#[must_use]
pub const fn start_within(address: usize, align: usize, size: usize, end: usize) -> Option<usize> {
    let start = align_up(address, align);
    let wraps = start < address || start.checked_add(size).is_none();
    if (cfg!(target_pointer_width = "64") || !wraps) && start.wrapping_add(size) <= end {
        Some(start)
    } else {
        None
    }
}

/// `size` rounded up to a multiple of `align`, which is a power of two. `None` if that overflows.
#[inline]
#[must_use]
pub const fn checked_align_up(size: usize, align: usize) -> Option<usize> {
    match size.checked_add(align - 1) {
        Some(sum) => Some(sum & !(align - 1)),
        None => None,
    }
}

/// The size of a chunk in which an object of this layout fits behind `header` bytes, at every
/// address that the chunk may have (a multiple of `chunk_align`). `None` if that overflows.
#[inline]
#[must_use]
pub const fn chunk_bytes_for(
    header: usize,
    size: usize,
    align: usize,
    chunk_align: usize,
) -> Option<usize> {
    // The position behind the header is known modulo `chunk_align`. A larger alignment costs at
    // most the difference.
    let slack = if align <= chunk_align {
        align_up(header, align) - header
    } else {
        align_up(header, chunk_align) - header + (align - chunk_align)
    };
    match header.checked_add(slack) {
        Some(before) => match before.checked_add(size) {
            Some(sum) if sum <= isize::MAX as usize => Some(sum),
            _ => None,
        },
        None => None,
    }
}

/// The size of the next chunk: at least `need`, at least `page`, and twice `previous` up to
/// [`MAX_GROWTH`]. It is rounded up to a size class or to pages. `None` if that overflows.
#[inline]
#[must_use]
pub const fn next_chunk(need: usize, previous: usize, page: usize) -> Option<usize> {
    let doubled = if previous >= MAX_GROWTH / 2 { MAX_GROWTH } else { previous * 2 };
    let mut size = if need > doubled { need } else { doubled };
    if size < page {
        size = page;
    }
    if size <= MAX_GROWTH {
        // The classes up to here are powers of two, as pages are.
        return Some(size.next_power_of_two());
    }
    match class_of(size) {
        // No class is smaller than a page here: `size` is at least a page.
        Some(class) => checked_align_up(class_size(class), page),
        None => match checked_align_up(size, page) {
            Some(sum) if sum <= isize::MAX as usize => Some(sum),
            _ => None,
        },
    }
}

/// The smallest size class that holds `bytes`. `None` above [`MAX_CLASS_SIZE`].
#[inline]
#[must_use]
pub const fn class_of(bytes: usize) -> Option<usize> {
    if bytes <= MIN_CHUNK {
        return Some(0);
    }
    if bytes <= MAX_GROWTH {
        return Some((bytes - 1).ilog2() as usize + 1 - MIN_CHUNK.ilog2() as usize);
    }
    if bytes > MAX_CLASS_SIZE {
        return None;
    }
    // `bytes - 1` lies in `[2^d, 2^(d+1))`; a step is a quarter of `2^d`.
    let d = (bytes - 1).ilog2() as usize;
    let step = ((bytes - 1) >> (d - 2)) - STEPS;
    Some(POWER_CLASSES + (d - MAX_GROWTH.ilog2() as usize) * STEPS + step)
}

/// The size of a class in bytes. Needs `class < CLASSES`.
#[inline]
#[must_use]
pub const fn class_size(class: usize) -> usize {
    if class < POWER_CLASSES {
        return MIN_CHUNK << class;
    }
    let above = class - POWER_CLASSES;
    let base = MAX_GROWTH << (above / STEPS);
    base + (base / STEPS) * (above % STEPS + 1)
}

/// The class of exactly this size, if there is one.
#[inline]
#[must_use]
pub const fn exact_class(bytes: usize) -> Option<usize> {
    match class_of(bytes) {
        Some(class) if class_size(class) == bytes => Some(class),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_two_and_then_four_steps_a_doubling() {
        let sizes: Vec<usize> = (0..CLASSES).map(class_size).collect();
        assert_eq!(&sizes[..3], &[4 << 10, 8 << 10, 16 << 10]);
        assert_eq!(sizes[POWER_CLASSES - 1], 1 << 20);
        assert_eq!(sizes[POWER_CLASSES], (1 << 20) + (1 << 18));
        assert_eq!(*sizes.last().unwrap(), MAX_CLASS_SIZE);
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_class_holds_its_size_and_one_byte_more_is_the_next_class() {
        for class in 0..CLASSES {
            assert_eq!(class_of(class_size(class)), Some(class));
            assert_eq!(exact_class(class_size(class)), Some(class));
            let next = (class + 1 < CLASSES).then_some(class + 1);
            assert_eq!(class_of(class_size(class) + 1), next);
        }
        assert_eq!(class_of(0), Some(0));
        assert_eq!(class_of(usize::MAX), None);
    }

    #[test]
    fn chunks_double_from_a_page_and_stop_at_the_growth_limit() {
        let mut size = next_chunk(1, 0, 4096).unwrap();
        assert_eq!(size, 4096);
        for _ in 0..20 {
            let next = next_chunk(1, size, 4096).unwrap();
            assert_eq!(next, (size * 2).min(MAX_GROWTH));
            size = next;
        }
    }

    #[test]
    fn a_chunk_size_that_overflows_is_nothing() {
        assert_eq!(next_chunk(usize::MAX, 0, 4096), None);
        assert_eq!(next_chunk(isize::MAX as usize, 0, 4096), None);
        assert_eq!(chunk_bytes_for(64, isize::MAX as usize, 1, 4096), None);
        assert_eq!(chunk_bytes_for(64, usize::MAX - 8, 1, 4096), None);
    }

    #[test]
    fn an_alignment_above_the_chunks_own_costs_its_difference() {
        assert_eq!(chunk_bytes_for(64, 8, 8, 4096), Some(72));
        assert_eq!(chunk_bytes_for(64, 8, 4096, 4096), Some(4096 + 8));
        assert_eq!(chunk_bytes_for(64, 8, 8192, 4096), Some(4096 + 4096 + 8));
    }
}
