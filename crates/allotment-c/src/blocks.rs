//! Blocks that store their size.
//!
//! ```text
//! start                              block
//! │  padding of large alignments  │size│check│  the caller's bytes …
//!                                  ◀─ Header ─▶
//!                                ◀──────────── offset ─▶
//! ```
//!
//! # Invariants
//!
//! 1. While a block is live, the [`Header`] before it holds its size and a check word. The check
//!    word is the exclusive or of the key, the block's address, the size shifted left by six bits,
//!    and the binary logarithm of the offset. The offset is the alignment, at least 16.
//! 2. The check word is cleared before the block is freed or moved, so that it is wrong at a second
//!    free.

use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr::NonNull;

use allotment::pool::current;
use allotment::{AllocError, ErrorKind, LocalPool, PoolRef};

use crate::error::{Noted, Problem, note, or_null, or_stop_pointer};
use crate::handle::Kind;
use crate::layouts::{COMMON, DEFAULT_ALIGN, bytes_of_many};

/// The header before a block.
#[repr(C, align(16))]
struct Header {
    size: usize,
    check: u64,
}

const HEADER: usize = size_of::<Header>();
const _: () = assert!(HEADER == DEFAULT_ALIGN);
const USUAL_SHIFT: u64 = HEADER.ilog2() as u64;
const SHIFT_BITS: u32 = 6;

/// Distinguishes the blocks of one owner from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    /// The key of all blocks that `allot_free` frees.
    const ANY: Self = Self(0xA110_7E57_B10C_0000);

    /// A distinct key for each number that is not 0.
    pub(crate) fn numbered(number: u64) -> Self {
        // The six lowest bits are left to the offset.
        Self(Self::ANY.0 ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15 & !63))
    }
}

/// The size and the offset of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    size: usize,
    offset: usize,
}

/// The form of a block at the default alignment.
#[inline(always)]
pub(crate) fn usual(size: usize) -> Result<Form, AllocError> {
    of(size, HEADER)
}

/// The form of a block of a common size. For fast paths; the slow path handles all others.
#[inline(always)]
fn common(size: usize) -> Option<Form> {
    (size.wrapping_sub(1) < COMMON - HEADER).then_some(Form { size, offset: HEADER })
}

#[inline(always)]
fn of(size: usize, align: usize) -> Result<Form, AllocError> {
    if !align.is_power_of_two() {
        return Err(AllocError::new(ErrorKind::BadAlignment, align));
    }
    let (size, offset) = (size.max(1), align.max(HEADER));
    // Offset and size together, rounded up to the alignment, are at most `isize::MAX`. The
    // subtraction does not underflow: the largest alignment is `isize::MAX + 1`.
    let room = isize::MAX as usize - (offset - 1);
    if offset > room || size > room - offset {
        return Err(AllocError::new(ErrorKind::SizeOverflow, size));
    }
    Ok(Form { size, offset })
}

impl Form {
    /// The layout of the memory that the block needs.
    #[inline(always)]
    pub(crate) fn layout(self) -> Layout {
        // SAFETY: `of` has checked it, also for a form that was read from a header.
        unsafe { Layout::from_size_align_unchecked(self.offset + self.size, self.offset) }
    }

    /// Writes the header, and returns the block.
    ///
    /// # Safety
    /// The memory has this layout and belongs to the caller.
    #[inline(always)]
    pub(crate) unsafe fn begin(self, start: NonNull<u8>, key: Key) -> NonNull<c_void> {
        // SAFETY: passed on to the caller.
        unsafe {
            let block = start.add(self.offset);
            let shift = u64::from(self.offset.trailing_zeros());
            let check = key.0 ^ mixed(block, self.size) ^ shift;
            block.cast::<Header>().sub(1).write(Header { size: self.size, check });
            block.cast()
        }
    }
}

/// The part of a check word that depends on the block's address and size.
#[inline(always)]
fn mixed(block: NonNull<u8>, size: usize) -> u64 {
    block.addr().get() as u64 ^ (size as u64) << SHIFT_BITS
}

/// The header of a block, and what remains of its check word without the key, the address and the
/// size.
///
/// # Safety
/// The 16 bytes before the block are valid for reads.
#[inline(always)]
unsafe fn header_of(block: NonNull<c_void>, key: Key) -> (NonNull<Header>, u64) {
    let header = block.cast::<Header>();
    // SAFETY: passed on to the caller. The address may be unaligned if it is not that of a block.
    unsafe {
        let header = header.sub(1);
        let Header { size, check } = header.read_unaligned();
        (header, check ^ key.0 ^ mixed(block.cast(), size))
    }
}

/// The form of a live block. `None` if it is not a live block with this key.
///
/// # Safety
/// As for [`header_of`].
unsafe fn look(block: NonNull<c_void>, key: Key) -> Option<(NonNull<Header>, Form)> {
    // SAFETY: passed on to the caller. The check word shows that the header is valid (invariant 1).
    unsafe {
        let (header, shift) = header_of(block, key);
        if !(USUAL_SHIFT..1 << SHIFT_BITS).contains(&shift) {
            return None;
        }
        Some((header, Form { size: (*header.as_ptr()).size, offset: 1 << shift }))
    }
}

/// Ends a live block, and returns its memory and layout for the caller to free. `None` if it is not
/// a live block with this key.
///
/// # Safety
/// As for [`header_of`]. The block is not used any more.
#[inline(always)]
pub(crate) unsafe fn end(block: NonNull<c_void>, key: Key) -> Option<(NonNull<u8>, Layout)> {
    // SAFETY: passed on to the caller. It is a block.
    unsafe {
        let (header, form) = look(block, key)?;
        (*header.as_ptr()).check = 0;
        Some((block.cast::<u8>().sub(form.offset), form.layout()))
    }
}

/// Resizes a live block with `resize`, which gets the block's memory, its layout and the new size
/// of the memory. `None` if it is not a live block with this key. After an error the block is
/// unchanged.
///
/// # Safety
/// As for [`header_of`]. `resize` returns the resized memory, with its contents kept.
pub(crate) unsafe fn resize(
    block: NonNull<c_void>,
    size: usize,
    key: Key,
    resize: impl FnOnce(NonNull<u8>, Layout, usize) -> Result<NonNull<u8>, AllocError>,
) -> Option<Result<NonNull<c_void>, AllocError>> {
    // SAFETY: passed on to the caller. It is a block.
    unsafe {
        let (header, old) = look(block, key)?;
        let new = match of(size, old.offset) {
            Ok(new) => new,
            Err(error) => return Some(Err(error)),
        };
        let start = block.cast::<u8>().sub(old.offset);
        let check = (*header.as_ptr()).check;
        // If the block moves, the old memory is not a block any more.
        (*header.as_ptr()).check = 0;
        match resize(start, old.layout(), new.layout().size()) {
            Ok(start) => Some(Ok(new.begin(start, key))),
            Err(error) => {
                (*header.as_ptr()).check = check;
                Some(Err(error))
            }
        }
    }
}

/// The error for an address that is not a live block.
#[cold]
pub(crate) fn no_block(kind: Kind, name: Option<&str>, block: NonNull<c_void>) -> Noted {
    let text = format!(
        "{block:p} is not a live block with a stored size: it was freed before, is of another allocator, or its header was overwritten"
    );
    note(kind, name, Problem::Bad(&text))
}

// ---- of the pool that a reference leads to ----

fn kind_of(pool: PoolRef) -> Kind {
    if pool == PoolRef::GLOBAL { Kind::Memory } else { Kind::Pool }
}

/// A block of the thread's current pool, if the fast path finds one.
#[inline(always)]
fn at_hand(size: usize) -> Option<NonNull<c_void>> {
    let form = common(size)?;
    let start = PoolRef::alloc_fast_in_current(form.layout())?;
    // SAFETY: allocated above.
    Some(unsafe { form.begin(start, Key::ANY) })
}

/// A block of the pool that a reference refers to, or of malloc.
pub(crate) fn alloc(pool: PoolRef, size: usize, align: usize) -> Result<NonNull<c_void>, Noted> {
    let made = of(size, align).and_then(|form| {
        let start = pool.try_alloc_layout(form.layout())?;
        // SAFETY: allocated above.
        Ok(unsafe { form.begin(start, Key::ANY) })
    });
    made.map_err(|error| note(kind_of(pool), None, error))
}

/// A block of a pool of this thread; never of malloc.
pub(crate) fn alloc_in(pool: &LocalPool, size: usize) -> Result<NonNull<c_void>, AllocError> {
    let form = usual(size)?;
    let start = match pool.alloc_fast(form.layout()) {
        Some(start) => start,
        None => pool.try_alloc_layout(form.layout())?,
    };
    // SAFETY: allocated above.
    Ok(unsafe { form.begin(start, Key::ANY) })
}

#[cold]
#[inline(never)]
extern "C" fn malloc_slowly(size: usize) -> *mut c_void {
    or_stop_pointer(alloc(current(), size, HEADER))
}

#[cold]
#[inline(never)]
extern "C" fn try_malloc_slowly(size: usize) -> *mut c_void {
    or_null(alloc(current(), size, HEADER))
}

fn calloc(count: usize, size: usize) -> Result<NonNull<c_void>, Noted> {
    let pool = current();
    let bytes = bytes_of_many(count, size).map_err(|error| note(kind_of(pool), None, error))?;
    let block = match at_hand(bytes) {
        Some(block) => block,
        None => alloc(pool, bytes, HEADER)?,
    };
    // SAFETY: a new block of `bytes` bytes.
    unsafe { block.cast::<u8>().write_bytes(0, bytes) };
    Ok(block)
}

unsafe fn realloc(block: *mut c_void, size: usize) -> Result<NonNull<c_void>, Noted> {
    let pool = current();
    let Some(block) = NonNull::new(block) else { return alloc(pool, size, HEADER) };
    // SAFETY: passed on to the caller; its header shows that the memory is a pool's or malloc's.
    let resized = unsafe {
        resize(block, size, Key::ANY, |start, old, new| pool.try_resize(start, old, new))
    };
    match resized {
        Some(block) => block.map_err(|error| note(kind_of(pool), None, error)),
        None => Err(no_block(Kind::Memory, None, block)),
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_slowly(block: *mut c_void) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: passed on to the caller; its header shows that the memory is a pool's or malloc's.
    unsafe {
        match end(block, Key::ANY) {
            Some((start, layout)) => PoolRef::free_anywhere(start, layout),
            None => no_block(Kind::Memory, None, block).stop(),
        }
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_large(start: NonNull<u8>, size: usize) {
    // SAFETY: passed on to the caller.
    unsafe { PoolRef::free_anywhere(start, Form { size, offset: HEADER }.layout()) }
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

#[unsafe(no_mangle)]
pub extern "C" fn allot_malloc(size: usize) -> *mut c_void {
    match at_hand(size) {
        Some(block) => block.as_ptr(),
        None => malloc_slowly(size),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_try_malloc(size: usize) -> *mut c_void {
    match at_hand(size) {
        Some(block) => block.as_ptr(),
        None => try_malloc_slowly(size),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_calloc(count: usize, size: usize) -> *mut c_void {
    or_stop_pointer(calloc(count, size))
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_try_calloc(count: usize, size: usize) -> *mut c_void {
    or_null(calloc(count, size))
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_aligned_alloc(align: usize, size: usize) -> *mut c_void {
    or_stop_pointer(alloc(current(), size, align))
}

#[unsafe(no_mangle)]
pub extern "C" fn allot_try_aligned_alloc(align: usize, size: usize) -> *mut c_void {
    or_null(alloc(current(), size, align))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as above.
    or_stop_pointer(unsafe { realloc(block, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_try_realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as above.
    or_null(unsafe { realloc(block, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_free(block: *mut c_void) {
    let Some(live) = NonNull::new(block) else { return };
    // SAFETY: as above; its header shows that the memory is a pool's or malloc's.
    unsafe {
        let (header, shift) = header_of(live, Key::ANY);
        if shift != USUAL_SHIFT {
            return free_slowly(block);
        }
        let header = header.as_ptr();
        (*header).check = 0;
        let start = live.cast::<u8>().sub(HEADER);
        match common((*header).size) {
            Some(form) => PoolRef::free_anywhere(start, form.layout()),
            None => free_large(start, (*header).size),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_usable_size(block: *const c_void) -> usize {
    let Some(block) = NonNull::new(block.cast_mut()) else { return 0 };
    // SAFETY: as above.
    match unsafe { look(block, Key::ANY) } {
        Some((_, form)) => form.size,
        None => no_block(Kind::Memory, None, block).stop(),
    }
}
