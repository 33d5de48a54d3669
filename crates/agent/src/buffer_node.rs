//! The node of a list of full buffers.

use std::ptr::NonNull;

/// A full buffer in the list of its dimension. The store links the nodes; [`Memory`] allocates
/// them.
///
/// [`Memory`]: crate::memory::Memory
#[derive(Debug)]
pub struct FullBufferNode {
    pub(crate) next: Option<NonNull<FullBufferNode>>,
    pub(crate) buffer: NonNull<u8>,
    /// The slot of the buffer's first point.
    pub(crate) start: u32,
    /// The number of points that the buffer can hold.
    pub(crate) capacity: u16,
    /// The number of points that are written.
    pub(crate) used: u16,
}

const _: () = assert!(size_of::<FullBufferNode>() == 24);
