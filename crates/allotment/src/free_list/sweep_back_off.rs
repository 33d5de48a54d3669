//! The back-off of the sweeps: for a list that is filled and emptied over and over, they would be
//! in vain.
//!
//! A *descent* is a fall of the number of live objects between two rises. Either all sweeps of a
//! descent are skipped or none. When the list takes a chunk from its source after it released some,
//! keeping them would have been better. Then the sweeps of the next descents are skipped: one
//! descent, then 3, 7, 15, 31, and at most 63. When a descent begins and the chunks released before
//! it were not needed again, the back-off starts anew.

use core::cell::Cell;

/// The most descents in a row whose sweeps are skipped.
const MAX_SKIPPED_DESCENTS: u32 = 63;

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
    /// How many descents were skipped last time.
    length: Cell<u32>,
}

impl SweepBackOff {
    pub(super) const fn new() -> Self {
        Self {
            released: Cell::new(false),
            grew: Cell::new(false),
            descents_left: Cell::new(0),
            length: Cell::new(0),
        }
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
            let length = (2 * self.length.get() + 1).min(MAX_SKIPPED_DESCENTS);
            self.length.set(length);
            // The descent that begins next lowers it by one.
            self.descents_left.set(length + 1);
        }
    }

    /// Whether to skip the sweep that is due.
    pub(super) fn skips_sweep(&self) -> bool {
        let first_of_descent = self.grew.replace(false);
        if first_of_descent {
            self.descents_left.set(self.descents_left.get().saturating_sub(1));
        }
        if self.descents_left.get() > 0 {
            return true;
        }
        if first_of_descent && self.released.get() {
            // The chunks released last time were not needed again.
            self.length.set(0);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::SweepBackOff;

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
    fn skipped_descents_double_up_to_63_while_released_chunks_are_taken_again() {
        let back_off = SweepBackOff::new();
        assert!(!descent(&back_off));
        for length in [1, 3, 7, 15, 31, 63, 63] {
            // The descent that is not skipped ends each series.
            let skipped = (0..).take_while(|_| descent(&back_off)).count();
            assert_eq!(skipped, length);
        }
    }

    #[test]
    fn the_back_off_starts_anew_when_released_chunks_were_not_needed_again() {
        let back_off = SweepBackOff::new();
        assert!(!descent(&back_off));
        while descent(&back_off) {}
        while descent(&back_off) {}
        // It grows within what it holds.
        back_off.note_growth();
        assert!(!back_off.skips_sweep());
        back_off.note_release();
        assert_eq!((0..).take_while(|_| descent(&back_off)).count(), 1);
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
