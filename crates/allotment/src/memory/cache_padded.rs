//! Values on separate cache lines.

use core::ops::Deref;

/// A value that shares no cache line with its neighbours, nor the adjacent line that processors
/// prefetch with it. Threads that write the value don't slow down threads that read its neighbours.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
