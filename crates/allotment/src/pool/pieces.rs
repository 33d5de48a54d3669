//! Pieces of memory beneath the blocks of a reap or a pool: their headers, and the interface of
//! their supply.

use core::cell::Cell;
use core::ptr::NonNull;

use crate::error::AllocError;
use crate::memory::layout::CACHE_LINE;

/// One piece of memory, as the supply returned it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub start: NonNull<u8>,
    pub size: usize,
    pub align: usize,
    pub link: u32,
    /// The piece came from the recycler, so its pages may be warm.
    pub recycled: bool,
}

/// A source of pieces.
pub(super) trait Supply {
    /// The alignment of every piece, at least [`CACHE_LINE`].
    fn align(&self) -> usize;

    /// Takes a piece of at least `need` bytes, and if available of twice `grown`, the size of the
    /// previous piece. On an error nothing has changed.
    fn take(&self, need: usize, grown: usize) -> Result<Piece, AllocError>;

    /// Gives pieces back. Returns the number of calls to the source.
    ///
    /// # Safety
    /// Each piece came from this supply, is given back once, and nothing refers to it any more.
    /// `total` is the sum of their sizes.
    unsafe fn give(&self, pieces: &mut dyn Iterator<Item = Piece>, total: usize) -> usize;

    /// Whether a budget limits the bytes.
    fn is_limited(&self) -> bool;

    /// Charges bytes that come from elsewhere.
    fn charge(&self, bytes: usize) -> Result<(), AllocError>;

    /// Undoes [`charge`](Self::charge).
    fn credit(&self, bytes: usize);
}

/// The header at the beginning of each chunk; for a large block, right before the block.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Header {
    pub next: Cell<*mut Header>,
    pub prev: Cell<*mut Header>,
    pub start: NonNull<u8>,
    pub size: usize,
    pub align: usize,
    pub link: u32,
    /// The chunk is reserved, and stays until the end.
    pub stays: Cell<bool>,
    /// The requested size of the large block in bytes.
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
    /// Minimum size of the first chunk in bytes.
    pub initial: usize,
    /// Minimum size of each further chunk in bytes; with `None`, each is twice the previous one, up
    /// to 1 MiB.
    pub increment: Option<usize>,
    /// Maximum bytes of freed large blocks kept for later ones.
    pub large_kept: usize,
}
