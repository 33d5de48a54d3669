//! Blocks that know their size.
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
//! 1. While a block is its caller's, the [`Header`] before it holds its size and a check word: the key, the block's address,
//!    the size above the six lowest bits, and in these the binary logarithm of the offset, exclusive-ored. The offset is the
//!    alignment, 16 at least.
//! 2. The check word is cleared before the block is freed or moved, so that it is wrong at a second free.

use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr::NonNull;

use allotment::{AllocError, ErrorKind, LocalPool, PoolRef, current};

use crate::error::{Noted, Problem, note, or_null, or_stop_pointer};
use crate::handle::Kind;
use crate::layouts::{COMMON, DEFAULT_ALIGN, bytes_of_many};

/// What stands before a block.
#[repr(C, align(16))]
struct Header {
    size: usize,
    check: u64,
}

const HEADER: usize = size_of::<Header>();
const _: () = assert!(HEADER == DEFAULT_ALIGN);
const USUAL_SHIFT: u64 = HEADER.ilog2() as u64;
const SHIFT_BITS: u32 = 6;

/// What tells the blocks of one owner from others'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    /// That of all blocks that `allot_free` frees.
    const ANY: Self = Self(0xA110_7E57_B10C_0000);

    /// One of its own for each number that is not 0.
    pub(crate) fn numbered(number: u64) -> Self {
        // Offsets differ in the six lowest bits alone.
        Self(Self::ANY.0 ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15 & !63))
    }
}

/// How a block is to be laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    size: usize,
    offset: usize,
}

/// The form of a block at the usual alignment.
#[inline(always)]
pub(crate) fn usual(size: usize) -> Result<Form, AllocError> {
    of(size, HEADER)
}

/// The form of a block of a size that most have, for fast paths, which leave everything else to others.
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
    // The bytes behind each other, rounded up to the alignment, are no more than half of the addresses. Whatever is subtracted is
    // smaller: the greatest alignment is one above that half.
    let room = isize::MAX as usize - (offset - 1);
    if offset > room || size > room - offset {
        return Err(AllocError::new(ErrorKind::SizeOverflow, size));
    }
    Ok(Form { size, offset })
}

impl Form {
    /// The layout of the memory to take.
    #[inline(always)]
    pub(crate) fn layout(self) -> Layout {
        // SAFETY: `of` and the header that a form was read from have seen to it.
        unsafe { Layout::from_size_align_unchecked(self.offset + self.size, self.offset) }
    }

    /// Makes a block of such memory.
    ///
    /// # Safety
    /// It is of this layout, and nobody else's.
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

/// What a check word holds of a block's address and size.
#[inline(always)]
fn mixed(block: NonNull<u8>, size: usize) -> u64 {
    block.addr().get() as u64 ^ (size as u64) << SHIFT_BITS
}

/// The header of a block, and what its check word holds beside the key, the address and the size.
///
/// # Safety
/// The 16 bytes before it may be read.
#[inline(always)]
unsafe fn header_of(block: NonNull<c_void>, key: Key) -> (NonNull<Header>, u64) {
    let header = block.cast::<Header>();
    // SAFETY: passed on to the caller. An address of no block need not be aligned.
    unsafe {
        let header = header.sub(1);
        let Header { size, check } = header.read_unaligned();
        (header, check ^ key.0 ^ mixed(block.cast(), size))
    }
}

/// The form of a live block; nothing if it is none of this key.
///
/// # Safety
/// As for [`header_of`].
unsafe fn look(block: NonNull<c_void>, key: Key) -> Option<(NonNull<Header>, Form)> {
    // SAFETY: passed on to the caller; a block's header is one, says its check word (invariant 1).
    unsafe {
        let (header, shift) = header_of(block, key);
        if !(USUAL_SHIFT..1 << SHIFT_BITS).contains(&shift) {
            return None;
        }
        Some((header, Form { size: (*header.as_ptr()).size, offset: 1 << shift }))
    }
}

/// Ends a live block: the memory that it lay in and its layout, which are to be freed. Nothing if it is none of this key.
///
/// # Safety
/// As for [`header_of`]; nobody uses it any more.
#[inline(always)]
pub(crate) unsafe fn end(block: NonNull<c_void>, key: Key) -> Option<(NonNull<u8>, Layout)> {
    // SAFETY: passed on to the caller; it is a block.
    unsafe {
        let (header, form) = look(block, key)?;
        (*header.as_ptr()).check = 0;
        Some((block.cast::<u8>().sub(form.offset), form.layout()))
    }
}

/// Gives a live block another size by `resize`, which gets its memory, the layout of that and the new size of it. Nothing if
/// it is none of this key. On an error it is as it was.
///
/// # Safety
/// As for [`header_of`]; `resize` does what it is to do.
pub(crate) unsafe fn resize(
    block: NonNull<c_void>,
    size: usize,
    key: Key,
    resize: impl FnOnce(NonNull<u8>, Layout, usize) -> Result<NonNull<u8>, AllocError>,
) -> Option<Result<NonNull<c_void>, AllocError>> {
    // SAFETY: passed on to the caller; it is a block.
    unsafe {
        let (header, old) = look(block, key)?;
        let new = match of(size, old.offset) {
            Ok(new) => new,
            Err(error) => return Some(Err(error)),
        };
        let start = block.cast::<u8>().sub(old.offset);
        let check = (*header.as_ptr()).check;
        // What it leaves behind is no block.
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

/// What there is to say of an address that is no block's.
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

/// A block at hand of the pool that the thread is in.
#[inline(always)]
fn at_hand(size: usize) -> Option<NonNull<c_void>> {
    let form = common(size)?;
    let start = PoolRef::take_in_current(form.layout())?;
    // SAFETY: taken just now.
    Some(unsafe { form.begin(start, Key::ANY) })
}

/// A block of the pool that a reference leads to, or of malloc.
pub(crate) fn alloc(pool: PoolRef, size: usize, align: usize) -> Result<NonNull<c_void>, Noted> {
    let made = of(size, align).and_then(|form| {
        let start = pool.try_alloc_layout(form.layout())?;
        // SAFETY: taken just now.
        Ok(unsafe { form.begin(start, Key::ANY) })
    });
    made.map_err(|error| note(kind_of(pool), None, error))
}

/// A block of a pool of this thread, and of no other place.
pub(crate) fn alloc_in(pool: &LocalPool, size: usize) -> Result<NonNull<c_void>, AllocError> {
    let form = usual(size)?;
    let start = match pool.take_at_hand(form.layout()) {
        Some(start) => start,
        None => pool.try_alloc_layout(form.layout())?,
    };
    // SAFETY: taken just now.
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
    // SAFETY: ours, and so long.
    unsafe { block.cast::<u8>().write_bytes(0, bytes) };
    Ok(block)
}

unsafe fn realloc(block: *mut c_void, size: usize) -> Result<NonNull<c_void>, Noted> {
    let pool = current();
    let Some(block) = NonNull::new(block) else { return alloc(pool, size, HEADER) };
    // SAFETY: passed on to the caller; the memory is a pool's or malloc's, says its header.
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
    // SAFETY: passed on to the caller; the memory is a pool's or malloc's, says its header.
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

// SAFETY, of every function below: the caller keeps the contract of the header, which is that of the functions that are
// called here.

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
    // SAFETY: as above; the memory is a pool's or malloc's, says its header.
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
