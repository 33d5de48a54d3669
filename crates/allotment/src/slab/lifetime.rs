//! How long an object is expected to live.

/// A hint of how long an object will live.
///
/// Objects with different hints lie on different pages, so that a few long-lived objects don't keep
/// the pages of many short-lived ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// As long as most objects of this slab, or unknown.
    #[default]
    Short,
    /// Much longer than most objects of this slab. Freeing such an object takes the slow path: its
    /// slot is not cached.
    Long,
}

impl Lifetime {
    pub(super) fn number(self) -> usize {
        match self {
            Self::Short => 0,
            Self::Long => 1,
        }
    }
}
