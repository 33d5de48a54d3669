//! The back-off of the sweeps: for a list that is filled and emptied over and over, they would be
//! in vain.
//!
//! A *descent* is a fall of the number of live objects between two rises. Either all sweeps of a
//! descent are skipped or none. When the list takes a chunk from its source after it released some,
//! keeping them would have been better. Then the sweeps of the next [`SKIPPED_DESCENTS`] descents
//! are skipped.
//!
//! This is for lists that empty and are needed again at once, as in `allot bench lifo fifo`.

use core::cell::Cell;

/// How many descents in a row are skipped.
const SKIPPED_DESCENTS: u32 = 63;

/// When sweeps are skipped.
#[derive(Debug)]
pub(super) struct SweepBackOff {
    /// Chunks were released, and none was taken from the source after that.
    released: Cell<bool>,
    /// The number of live objects has risen after the last sweep, as far as the slow paths have
    /// seen: the next sweep is the first one of a descent.
    grew: Cell<bool>,
    /// Sweeps are skipped while this is above 0. Each descent lowers it by one when it begins.
    descents_left: Cell<u32>,
}

impl SweepBackOff {
    pub(super) const fn new() -> Self {
        Self { released: Cell::new(false), grew: Cell::new(false), descents_left: Cell::new(0) }
    }

    /// Notes that the number of live objects has risen.
    pub(super) fn note_growth(&self) {
        self.grew.set(true);
    }

    /// Notes that a sweep released chunks.
    pub(super) fn note_release(&self) {
        self.released.set(true);
    }

    /// Notes that a chunk was taken from the source, which is also growth. If chunks were released
    /// shortly before, the next descents are skipped, unless the release policy (`skips`) rules
    /// that out.
    pub(super) fn note_chunk_taken(&self, skips: bool) {
        self.note_growth();
        if self.released.replace(false) && skips {
            // The descent that begins next lowers it by one.
            self.descents_left.set(SKIPPED_DESCENTS + 1);
        }
    }

    /// Whether to skip the sweep that is due.
    pub(super) fn skips_sweep(&self) -> bool {
        if self.grew.replace(false) {
            self.descents_left.set(self.descents_left.get().saturating_sub(1));
        }
        self.descents_left.get() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::{SKIPPED_DESCENTS, SweepBackOff};

    /// One descent: the list grew by a chunk of its source, and a sweep is due twice. Returns
    /// whether they were skipped.
    fn descent(back_off: &SweepBackOff) -> bool {
        back_off.note_chunk_taken(true);
        let skipped = back_off.skips_sweep();
        assert_eq!(back_off.skips_sweep(), skipped, "all sweeps of a descent are skipped, or none");
        if !skipped {
            back_off.note_release();
        }
        skipped
    }

    #[test]
    fn the_next_63_descents_are_skipped_while_released_chunks_are_taken_again() {
        let back_off = SweepBackOff::new();
        assert!(!descent(&back_off));
        for _ in 0..3 {
            // The descent that is not skipped ends each series.
            let skipped = (0..).take_while(|_| descent(&back_off)).count();
            assert_eq!(skipped, SKIPPED_DESCENTS as usize);
        }
    }

    #[test]
    fn no_descent_is_skipped_when_released_chunks_were_not_needed_again() {
        let back_off = SweepBackOff::new();
        for _ in 0..10 {
            // It grows within what it holds.
            back_off.note_growth();
            assert!(!back_off.skips_sweep());
            back_off.note_release();
        }
    }

    #[test]
    fn a_policy_without_back_off_skips_no_sweep() {
        let back_off = SweepBackOff::new();
        for _ in 0..10 {
            back_off.note_chunk_taken(false);
            assert!(!back_off.skips_sweep());
            back_off.note_release();
        }
    }
}
