//! Values on cache lines of their own.

use core::ops::Deref;

/// A value that shares no cache line with its neighbours, nor the line that processors fetch beside one: threads that
/// write it don't slow down those that read what lies next to it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
