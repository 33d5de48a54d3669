//! What a reset keeps.

/// What [`Arena::reset`](crate::Arena::reset) keeps of an arena's chunks. The rest goes back, warm, to the
/// process-wide recycler or wherever the arena's [`Release`](crate::Release) says.
///
/// No policy ratchets: an arena that once served a large request does not hold its memory for ever after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retain {
    /// No chunk: between uses the arena holds nothing.
    Nothing,
    /// One chunk, the newest that is no larger than 1 MiB or the size hint; where there was only one, it stays
    /// if at least a quarter of it was used. A request of the usual size then takes nothing from anywhere.
    #[default]
    Newest,
    /// Chunks up to this many bytes in all, the newest first.
    UpTo(usize),
}
