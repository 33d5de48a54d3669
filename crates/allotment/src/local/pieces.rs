//! Pieces of memory beneath a reap's or a pool's blocks: what they look like, and where they come from.

use core::cell::Cell;
use core::ptr::NonNull;

use crate::error::AllocError;
use crate::memory::layout::CACHE_LINE;

/// One piece of memory, as a supply gave it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub start: NonNull<u8>,
    pub size: usize,
    pub align: usize,
    pub link: u32,
    /// It came warm.
    pub recycled: bool,
}

/// Where pieces come from.
pub(super) trait Supply {
    /// The alignment of every piece, at least [`CACHE_LINE`].
    fn align(&self) -> usize;

    /// A piece of at least `need` bytes; if it can be had, of twice the size of the one before (`grown`). On an error
    /// nothing has changed.
    fn take(&self, need: usize, grown: usize) -> Result<Piece, AllocError>;

    /// Gives pieces back; the calls that it took.
    ///
    /// # Safety
    /// Each came from this supply, is given back once, and nothing refers to it any more.
    unsafe fn give(&self, pieces: &mut dyn Iterator<Item = Piece>, total: usize) -> usize;

    /// Whether a budget says how many bytes there are.
    fn is_limited(&self) -> bool;

    /// Charges bytes that come from elsewhere.
    fn charge(&self, bytes: usize) -> Result<(), AllocError>;

    /// Undoes [`charge`](Self::charge).
    fn credit(&self, bytes: usize);
}

/// The beginning of each chunk; of a large block's, right before the block.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Header {
    pub next: Cell<*mut Header>,
    pub prev: Cell<*mut Header>,
    pub start: NonNull<u8>,
    pub size: usize,
    pub align: usize,
    pub link: u32,
    /// It was reserved, and stays until the end.
    pub stays: Cell<bool>,
    /// The bytes of the large block as they were asked for.
    pub asked: Cell<usize>,
}

pub(super) const HEADER: usize = size_of::<Header>();
const _: () = assert!(HEADER == CACHE_LINE);

impl Header {
    pub(super) fn piece(&self) -> Piece {
        let Self { start, size, align, link, .. } = *self;
        Piece { start, size, align, link, recycled: false }
    }
}

/// How chunks grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// The bytes of the first chunk, at least.
    pub initial: usize,
    /// The bytes of each further one; if there is none, each is twice the one before, up to 1 MiB.
    pub increment: Option<usize>,
    /// The bytes of freed large blocks that wait for the next ones, at most.
    pub large_kept: usize,
}
