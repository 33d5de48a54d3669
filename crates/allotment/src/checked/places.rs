//! The places of the program that allocate: each is a short stack of return addresses, and has a
//! number, which an entry of a ledger has room for.
//!
//! The stacks are walked and stored only with the cargo feature `places`.

#[cfg(feature = "places")]
mod stack_table;

#[cfg(feature = "places")]
pub(crate) use stack_table::{MAX_STACKS, WALKING_FUNCTION, symbols};

/// The number of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PlaceNumber(u32);

impl PlaceNumber {
    /// The number of all places that were not recorded.
    pub(crate) const NONE: Self = Self(0);

    /// Records the place that calls this function. Neither waits nor takes memory from a pool; the
    /// caller has left its current pool.
    #[cfg(feature = "places")]
    pub(crate) fn of_caller() -> Self {
        stack_table::record_caller().map_or(Self::NONE, |index| Self(index + 1))
    }

    #[cfg(not(feature = "places"))]
    pub(crate) fn of_caller() -> Self {
        Self::NONE
    }

    /// The return addresses of the place, innermost first. Empty if it was not recorded.
    #[cfg(feature = "places")]
    pub(crate) fn stack(self) -> &'static [usize] {
        self.0.checked_sub(1).map_or(&[], stack_table::stack)
    }
}
