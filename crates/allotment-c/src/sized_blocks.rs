//! The header of blocks that store their size.
//!
//! ```text
//! start                              block
//! │  padding of large alignments  │size│check│  the caller's bytes …
//!                                  ◀─ SizeHeader ─▶
//!                                ◀──────────── offset ─▶
//! ```
//!
//! # Invariants
//!
//! 1. While a block is live, the [`SizeHeader`] before it holds its size and a check word. The
//!    check word is the exclusive or of the owner's key, the block's address, the size shifted left
//!    by six bits, and the binary logarithm of the offset. The offset is the alignment, at least
//!    16.
//! 2. The check word is cleared before the block is freed or moved, so that it is wrong at a second
//!    free.

use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr::NonNull;

use allotment::{AllocError, ErrorKind};

use crate::error::{CallError, FailedCall, fail};
use crate::handle_kind::HandleKind;
use crate::layouts::{DEFAULT_ALIGN, MAX_FAST_BYTES};

/// What is stored before a block.
#[repr(C, align(16))]
struct SizeHeader {
    size: usize,
    check: u64,
}

const HEADER_BYTES: usize = size_of::<SizeHeader>();
const _: () = assert!(HEADER_BYTES == DEFAULT_ALIGN);
const DEFAULT_SHIFT: u64 = HEADER_BYTES.ilog2() as u64;
const SHIFT_BITS: u32 = 6;

/// Distinguishes the blocks of one owner from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerKey(u64);

impl OwnerKey {
    /// The key of all blocks that `allot_free` frees.
    pub(crate) const SHARED: Self = Self(0xA110_7E57_B10C_0000);

    /// A distinct key for each number that is not 0.
    pub(crate) fn numbered(number: u64) -> Self {
        // The six lowest bits are left to the offset.
        Self(Self::SHARED.0 ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15 & !63))
    }
}

/// The size and the offset of a block. Together they fit in a `Layout`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockShape {
    size: usize,
    offset: usize,
}

impl BlockShape {
    /// The shape of a block with the default alignment.
    #[inline(always)]
    pub(crate) fn with_default_align(size: usize) -> Result<Self, AllocError> {
        Self::new(size, HEADER_BYTES)
    }

    /// The shape of a block with the default alignment, if fast paths serve its size. The slow path
    /// handles all others.
    #[inline(always)]
    pub(crate) fn fast(size: usize) -> Option<Self> {
        let offset = HEADER_BYTES;
        (size.wrapping_sub(1) < MAX_FAST_BYTES - HEADER_BYTES).then_some(Self { size, offset })
    }

    /// The shape of a block with any alignment.
    #[inline(always)]
    pub(crate) fn new(size: usize, align: usize) -> Result<Self, AllocError> {
        if !align.is_power_of_two() {
            return Err(AllocError::new(ErrorKind::BadAlignment, align));
        }
        let (size, offset) = (size.max(1), align.max(HEADER_BYTES));
        // Offset and size together, rounded up to the alignment, must be at most `isize::MAX`. The
        // subtraction does not underflow: the largest alignment is `isize::MAX + 1`.
        let max_bytes = isize::MAX as usize - (offset - 1);
        if offset > max_bytes || size > max_bytes - offset {
            return Err(AllocError::new(ErrorKind::SizeOverflow, size));
        }
        Ok(Self { size, offset })
    }

    /// The size of the block in bytes, as requested.
    pub(crate) fn size(self) -> usize {
        self.size
    }

    /// The layout of the memory that the block needs.
    #[inline(always)]
    pub(crate) fn layout(self) -> Layout {
        // SAFETY: `new` has checked it, also for a shape that was read from a header.
        unsafe { Layout::from_size_align_unchecked(self.offset + self.size, self.offset) }
    }

    /// Writes the header, and returns the block.
    ///
    /// # Safety
    /// The memory has this layout and belongs to the caller.
    #[inline(always)]
    pub(crate) unsafe fn write_header(self, start: NonNull<u8>, key: OwnerKey) -> NonNull<c_void> {
        // SAFETY: passed on to the caller.
        unsafe {
            let block = start.add(self.offset);
            let shift = u64::from(self.offset.trailing_zeros());
            let check = key.0 ^ mix(block, self.size) ^ shift;
            block.cast::<SizeHeader>().sub(1).write(SizeHeader { size: self.size, check });
            block.cast()
        }
    }
}

/// The part of a check word that depends on the block's address and size.
#[inline(always)]
fn mix(block: NonNull<u8>, size: usize) -> u64 {
    block.addr().get() as u64 ^ (size as u64) << SHIFT_BITS
}

/// The header of a block, and what remains of its check word without the key, the address and the
/// size: the logarithm of the offset, if the block is live and has this key.
///
/// # Safety
/// The 16 bytes before the block are valid for reads.
#[inline(always)]
unsafe fn header_of(block: NonNull<c_void>, key: OwnerKey) -> (NonNull<SizeHeader>, u64) {
    let header = block.cast::<SizeHeader>();
    // SAFETY: passed on to the caller. The address may be unaligned if it is not that of a block.
    unsafe {
        let header = header.sub(1);
        let SizeHeader { size, check } = header.read_unaligned();
        (header, check ^ key.0 ^ mix(block.cast(), size))
    }
}

/// The header and the shape of a live block. `None` if it is not a live block with this key.
///
/// # Safety
/// As for [`header_of`].
unsafe fn live_block(
    block: NonNull<c_void>,
    key: OwnerKey,
) -> Option<(NonNull<SizeHeader>, BlockShape)> {
    // SAFETY: passed on to the caller. The check word shows that the header is valid (invariant 1).
    unsafe {
        let (header, shift) = header_of(block, key);
        if !(DEFAULT_SHIFT..1 << SHIFT_BITS).contains(&shift) {
            return None;
        }
        Some((header, BlockShape { size: (*header.as_ptr()).size, offset: 1 << shift }))
    }
}

/// Ends a live block, and returns its memory and layout for the caller to free. `None` if it is not
/// a live block with this key.
///
/// # Safety
/// As for [`header_of`]. The block is not used any more.
#[inline(always)]
pub(crate) unsafe fn retire(
    block: NonNull<c_void>,
    key: OwnerKey,
) -> Option<(NonNull<u8>, Layout)> {
    // SAFETY: passed on to the caller. It is a block.
    unsafe {
        let (header, shape) = live_block(block, key)?;
        (*header.as_ptr()).check = 0;
        Some((block.cast::<u8>().sub(shape.offset), shape.layout()))
    }
}

/// [`retire`], for a block with the default alignment. `None` for any other. Returns the block's
/// shape instead of its layout.
///
/// # Safety
/// As for [`retire`].
#[inline(always)]
pub(crate) unsafe fn retire_default_aligned(
    block: NonNull<c_void>,
    key: OwnerKey,
) -> Option<(NonNull<u8>, BlockShape)> {
    // SAFETY: passed on to the caller. The check word shows that the header is valid (invariant 1).
    unsafe {
        let (header, shift) = header_of(block, key);
        if shift != DEFAULT_SHIFT {
            return None;
        }
        let header = header.as_ptr();
        (*header).check = 0;
        let shape = BlockShape { size: (*header).size, offset: HEADER_BYTES };
        Some((block.cast::<u8>().sub(HEADER_BYTES), shape))
    }
}

/// The size in bytes of a live block, as requested. `None` if it is not a live block with this key.
///
/// # Safety
/// As for [`header_of`].
pub(crate) unsafe fn size_of_block(block: NonNull<c_void>, key: OwnerKey) -> Option<usize> {
    // SAFETY: passed on to the caller.
    unsafe { live_block(block, key) }.map(|(_, shape)| shape.size)
}

/// Resizes a live block with `resize`, which gets the block's memory, its layout and its new shape.
/// `None` if it is not a live block with this key. After an error the block is unchanged.
///
/// # Safety
/// As for [`header_of`]. `resize` returns the resized memory, with its contents kept.
pub(crate) unsafe fn resize(
    block: NonNull<c_void>,
    size: usize,
    key: OwnerKey,
    resize: impl FnOnce(NonNull<u8>, Layout, BlockShape) -> Result<NonNull<u8>, AllocError>,
) -> Option<Result<NonNull<c_void>, AllocError>> {
    // SAFETY: passed on to the caller. It is a block.
    unsafe {
        let (header, old) = live_block(block, key)?;
        let new = match BlockShape::new(size, old.offset) {
            Ok(new) => new,
            Err(error) => return Some(Err(error)),
        };
        let start = block.cast::<u8>().sub(old.offset);
        let check = (*header.as_ptr()).check;
        // If the block moves, the old memory is not a block any more.
        (*header.as_ptr()).check = 0;
        match resize(start, old.layout(), new) {
            Ok(start) => Some(Ok(new.write_header(start, key))),
            Err(error) => {
                (*header.as_ptr()).check = check;
                Some(Err(error))
            }
        }
    }
}

/// The error for an address that is not a live block.
#[cold]
pub(crate) fn not_a_block(
    kind: HandleKind,
    name: Option<&str>,
    block: NonNull<c_void>,
) -> FailedCall {
    let text = format!(
        "{block:p} is not a live block with a stored size: it was freed before, is of another allocator, or its header was overwritten"
    );
    fail(kind, name, CallError::BadArgument(&text))
}
