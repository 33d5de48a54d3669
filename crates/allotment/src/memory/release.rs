//! The policy for giving empty memory back to the system.

use core::time::Duration;

/// When an empty chunk or page goes back to the system.
///
/// The same four policies apply to the process-wide [`recycler`](crate::recycler()) and to a single
/// allocator. With every policy, [`Recycler::set_limit`](crate::recycler::Recycler::set_limit)
/// limits the bytes that the recycler keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// Immediately, past every cache. Holds the least memory, and costs a page fault for every page
    /// that is used again.
    AtOnce,
    /// Keeps up to this many bytes warm, without a time limit.
    Keep(usize),
    /// Keeps empty memory warm. Memory that was not used for this long goes back to the system at
    /// the next call that gives memory back.
    Decay(Duration),
    /// Keeps as much memory warm as the program reuses. If memory is taken from the system soon
    /// after other memory went back, the amount to keep rises by half, or by the size taken if that
    /// is more. Each second, the amount to keep falls by half of what stayed unused. A program that
    /// fills and empties repeatedly makes system calls twice, then no more. After a single burst,
    /// little memory is kept.
    #[default]
    Adaptive,
}
