//! The policy for what a reset keeps.

/// Which of an arena's chunks [`Arena::reset`](crate::Arena::reset) keeps. The other chunks go
/// back, warm, to the process-wide recycler, or to where the arena's [`Release`](crate::Release)
/// sends them.
///
/// The end of a scope, the rewind of a mark and [`Arena::rewind`](crate::Arena::rewind) keep chunks
/// by the same rule. The chunks that hold older objects count first, so that scopes never make the
/// arena keep more than a reset does.
///
/// No policy holds on to a peak: an arena that has served one large request does not keep that
/// memory permanently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retain {
    /// No chunk. Between uses the arena holds no memory.
    Nothing,
    /// One chunk: the newest that is not larger than the limit. Without a hint the limit is 1 MiB.
    /// With a hint it is 2 MiB more than the larger of 1 MiB and the hinted chunk, because that
    /// chunk may be rounded up to huge pages. If the arena has only one chunk, it is kept only if
    /// at least a quarter of it was used, or if it is no larger than the chunk that the hint asks
    /// for (without a hint, one page). A request of the usual size then takes no new chunk.
    #[default]
    Newest,
    /// Chunks of up to this many bytes in total, the newest first.
    UpTo(usize),
}
