//! Marks that a traced child sets, so that its tracer knows what to count.
//!
//! A mark is `close` of a descriptor that can't exist: harmless if no tracer is attached, and the
//! one call that the tracer's filter stops at besides those it counts.

use std::os::fd::RawFd;

/// One mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Counting begins.
    Begin,
    /// Counting ends.
    End,
    /// The calling thread reaches its steady state.
    Steady,
    /// The calling thread leaves it.
    Finished,
}

/// All marks, each with the descriptor that stands for it.
pub const MARKS: [(Mark, RawFd); 4] = [
    (Mark::Begin, -0x0A11_0701),
    (Mark::End, -0x0A11_0702),
    (Mark::Steady, -0x0A11_0703),
    (Mark::Finished, -0x0A11_0704),
];

/// Sets a mark.
pub fn set(mark: Mark) {
    for (one, descriptor) in MARKS {
        if one == mark {
            // It fails, as it should.
            let _ = nix::unistd::close(descriptor);
        }
    }
}
