//! When empty memory goes back to the system.

use core::time::Duration;

/// When an empty chunk or page goes back to the system, as a value.
///
/// The same four words set the process-wide [`recycler`](crate::recycler()) and a single allocator. What
/// the recycler keeps is bounded in bytes in every case ([`Recycler::set_limit`](crate::Recycler::set_limit)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// At once, past every cache. The least memory, and a page fault for every page used again.
    AtOnce,
    /// Kept warm up to this many bytes, however long.
    Keep(usize),
    /// Kept warm; what nobody used for this long goes back at the next call that gives memory back.
    Decay(Duration),
    /// Empty memory goes back, but memory that is taken anew soon after it went raises what is kept, by half
    /// or by as much; what is kept and not used shrinks by half, second after second. A program that fills and
    /// empties pays the system twice, then no more; one burst leaves little behind.
    #[default]
    Adaptive,
}
