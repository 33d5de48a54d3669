//! Offset, object count and object bytes in one word, so that an allocation writes one word.
//!
//! ```text
//! 63            40 39            20 19             0
//! ┌───────────────┬────────────────┬────────────────┐
//! │    offset     │    objects     │     bytes      │
//! └───────────────┴────────────────┴────────────────┘
//! ```
//!
//! - `offset` is where the next object begins, in bytes from the window's base.
//! - `objects` is the number of objects allocated in the window.
//! - `bytes` is the sum of their requested sizes. The padding counts in `offset` only.
//!
//! An allocation adds one number to the word, which is a constant for most types, and compares the
//! sum with [`limit`] once. The offset is in the highest bits, so the fields below can't change the
//! result.
//!
//! # Why nothing overflows
//!
//! A window has at most [`WINDOW`] bytes, less than 2^20, and every object takes at least one of
//! them. So `objects < 2^20` and `bytes < 2^20` in every word that is stored. A sum that is not
//! stored may carry from a field into the next, but only if the offset is beyond the window anyway.
//! With a step of at most [`MAX_STEP`] for the object and as much for its padding, the offset stays
//! below 2^24.
#![forbid(unsafe_code)]

use super::layout::align_up;

const OFFSET: u32 = 40;
const OBJECTS: u32 = 20;
const FIELD: u64 = (1 << OBJECTS) - 1;

/// The largest window, in bytes.
pub const WINDOW: usize = (1 << 20) - 16;

/// The largest size and the largest alignment of an object for which a step can be computed.
pub const MAX_STEP: usize = 1 << 22;

/// What one object of `size` bytes adds to the word, with the padding after it up to `min_align`.
/// Freeing the last object subtracts the same. Needs `size <= MAX_STEP`.
#[inline(always)]
#[must_use]
pub const fn object(size: usize, min_align: usize) -> u64 {
    ((align_up(size, min_align) as u64) << OFFSET) + (1 << OBJECTS) + size as u64
}

/// What `bytes` of padding before an object add to the word. Needs `bytes < MAX_STEP`.
#[inline(always)]
#[must_use]
pub const fn padding(bytes: usize) -> u64 {
    (bytes as u64) << OFFSET
}

/// The word after an object counted in it became `bytes` smaller without moving the offset.
#[inline(always)]
#[must_use]
pub const fn shrunk(word: u64, bytes: u64) -> u64 {
    word - bytes
}

/// The smallest word whose offset is larger than `bytes`. Needs `bytes <= WINDOW`.
#[inline(always)]
#[must_use]
pub const fn limit(bytes: usize) -> u64 {
    (bytes as u64 + 1) << OFFSET
}

/// The offset of the next object, in bytes from the base.
#[inline(always)]
#[must_use]
pub const fn offset(word: u64) -> usize {
    (word >> OFFSET) as usize
}

/// The number of objects allocated in the window.
#[inline(always)]
#[must_use]
pub const fn objects(word: u64) -> u64 {
    (word >> OBJECTS) & FIELD
}

/// Their bytes, as requested.
#[inline(always)]
#[must_use]
pub const fn bytes(word: u64) -> u64 {
    word & FIELD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_full_of_single_bytes_counts_each() {
        let mut word = 0;
        let limit = limit(WINDOW);
        let mut count = 0;
        while word + object(1, 1) < limit {
            word += object(1, 1);
            count += 1;
        }
        assert_eq!((offset(word), objects(word), bytes(word)), (WINDOW, count, count));
        assert_eq!(count, WINDOW as u64);
    }

    #[test]
    fn padding_is_told_apart_from_bytes() {
        let word = object(3, 8) + padding(8) + object(16, 8);
        assert_eq!((offset(word), objects(word), bytes(word)), (32, 2, 19));
    }

    #[test]
    fn the_largest_step_from_the_fullest_word_is_refused_without_overflow() {
        for min_align in [1, 16] {
            let mut fullest = 0;
            while fullest + object(1, min_align) < limit(WINDOW) {
                fullest += object(1, min_align);
            }
            let sum = fullest
                .checked_add(padding(MAX_STEP - 1))
                .and_then(|sum| sum.checked_add(object(MAX_STEP, 16)))
                .unwrap();
            assert!(sum >= limit(WINDOW));
        }
    }

    #[test]
    fn what_was_added_can_be_taken_away() {
        let word = object(24, 1) + object(5, 8);
        assert_eq!(word - object(5, 8), object(24, 1));
    }

    #[test]
    fn a_shrunk_object_can_be_taken_away_at_its_new_size() {
        let word = shrunk(object(15, 8), 6);
        assert_eq!((objects(word), bytes(word)), (1, 9));
        assert_eq!(word - object(9, 8), 0);
        // Shrunk without a call of `shrunk`: the offset is right too.
        assert_eq!(offset(object(15, 8) - object(9, 8)), 0);
    }

    #[test]
    fn an_empty_window_refuses_one_byte() {
        assert!(object(1, 1) >= limit(0));
        assert!(object(16, 16) < limit(16));
        assert!(object(17, 1) >= limit(16));
    }
}
