//! Arenas.
//!
//! The invariants are those of `handle.rs` and `lib.rs`, and:
//!
//! 1. `CArena` begins with its arena, whose first fields the header's inline functions use.
//! 2. If `arena` and `resets` of an `allot_arena_position` are those of a live arena, the position
//!    came from `allot_arena_mark` on that arena, and no reset followed. An arena's number is
//!    unique, also among destroyed arenas. `marks`, which only hardened arenas have, holds the
//!    numbers of the positions that are still valid.

use core::cell::{Cell, RefCell};
use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use allotment::arena::ArenaPosition;
use allotment::{AllocError, Arena, ErrorKind};

use crate::blocks::resize_in;
use crate::calls::{call, call_pair};
use crate::error::{CallError, FailedCall, fail, or_abort};
use crate::handle::{self, HandleBox, HandleTarget};
use crate::handle_kind::HandleKind;
use crate::layouts::{DEFAULT_ALIGN, layout_of, layout_of_many};
use crate::options::{self, CheckedOptions, allot_options, option_bits, with_requested};
use crate::statistics::allot_statistics;

/// `allot_arena`.
pub type allot_arena = HandleBox<CArena>;

/// An arena, and what is needed to detect invalid positions.
#[repr(C)]
pub struct CArena {
    arena: Arena,
    /// 0 until the first mark.
    number: Cell<u64>,
    /// The number of resets.
    resets: Cell<u64>,
    /// The number of the next position that `allot_arena_mark` returns.
    next_mark: Cell<u64>,
    /// The numbers of the valid positions, of a hardened arena.
    marks: Option<RefCell<Vec<u64>>>,
}

impl HandleTarget for CArena {
    const KIND: HandleKind = HandleKind::Arena;
    const ONE_THREAD: bool = true;

    fn name(&self) -> Option<&str> {
        self.arena.name()
    }
}

/// `allot_arena_position`. The last field holds the library's own position.
#[repr(C)]
pub struct allot_arena_position {
    arena: u64,
    resets: u32,
    number: u32,
    position: [MaybeUninit<u64>; 18],
}

pub(crate) const POSITION: &[(&str, usize)] = &[
    ("sizeof(allot_arena_position)", size_of::<allot_arena_position>()),
    ("_Alignof(allot_arena_position)", align_of::<allot_arena_position>()),
];

const _: () = assert!(
    size_of::<allot_arena_position>() == 20 * 8
        && size_of::<ArenaPosition>() <= 18 * 8
        && align_of::<ArenaPosition>() <= 8
);

impl CArena {
    /// The number that its positions carry.
    fn number(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if self.number.get() == 0 {
            self.number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        self.number.get()
    }
}

/// The options besides name, budget and maximum.
const SUPPORTED: u32 = option_bits::SOURCE
    | option_bits::RELEASE
    | option_bits::HARDENED
    | option_bits::HINT
    | option_bits::RETAIN;

/// # Safety
/// As for [`options::read`].
unsafe fn create(
    abi: u32,
    options: *const allot_options,
) -> Result<NonNull<allot_arena>, FailedCall> {
    // SAFETY: passed on to the caller.
    let options = unsafe { options::read(HandleKind::Arena, abi, options, SUPPORTED)? };
    let (name, hardened) = (options.name, options.hardened);
    let arena = build(options).map_err(|error| fail(HandleKind::Arena, name, error))?;
    let marks = hardened.then(RefCell::default);
    let (number, resets, next_mark) = (Cell::new(0), Cell::new(0), Cell::new(0));
    handle::create(CArena { arena, number, resets, next_mark, marks }, hardened)
}

fn build(options: CheckedOptions<'_>) -> Result<Arena, AllocError> {
    if options.is_default {
        return Arena::try_with_capacity(0);
    }
    let builder = Arena::builder()
        .hint(options.hint)
        .retain(options.retain)
        .release(options.release)
        .hardened(options.hardened);
    with_requested!(builder, options: source).try_build()
}

/// # Safety
/// As for [`handle::get`].
#[inline]
unsafe fn alloc(
    arena: *const allot_arena,
    size: usize,
    align: usize,
) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller.
    let arena = unsafe { handle::get(arena)? };
    layout_of(size, align)
        .and_then(|layout| arena.arena.try_alloc_layout(layout))
        .map_err(|error| arena.failed(error))
}

/// # Safety
/// As for [`handle::get`].
unsafe fn calloc(
    arena: *const allot_arena,
    count: usize,
    size: usize,
) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller.
    let arena = unsafe { handle::get(arena)? };
    layout_of_many(count, size)
        .and_then(|layout| arena.arena.try_alloc_layout_zeroed(layout))
        .map_err(|error| arena.failed(error))
}

/// # Safety
/// As for [`handle::get`].
unsafe fn check_not_null(
    arena: *const allot_arena,
    argument: *const u8,
    what: &str,
) -> Result<(), FailedCall> {
    if !argument.is_null() {
        return Ok(());
    }
    // SAFETY: passed on to the caller.
    let arena = unsafe { handle::get(arena)? };
    Err(fail(HandleKind::Arena, arena.name(), CallError::NullArgument(what)))
}

/// A copy of `size` bytes, followed by a NUL if `add_nul`.
///
/// # Safety
/// As for [`handle::get`]. `bytes` is valid for reads of `size` bytes.
unsafe fn copy(
    arena: *const allot_arena,
    bytes: *const u8,
    size: usize,
    align: usize,
    add_nul: bool,
) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller. The copy is a new object, which no other code uses yet. No
    // object is so large that the sum overflows.
    unsafe {
        if size > 0 {
            check_not_null(arena, bytes, "memory to copy")?;
        }
        let copy = alloc(arena, size.saturating_add(usize::from(add_nul)), align)?;
        if size > 0 {
            copy.copy_from_nonoverlapping(NonNull::new_unchecked(bytes.cast_mut()), size);
        }
        if add_nul {
            copy.add(size).write(0);
        }
        Ok(copy)
    }
}

/// # Safety
/// As for [`handle::get`]; `text` ends with a NUL.
unsafe fn strdup(
    arena: *const allot_arena,
    text: *const c_char,
) -> Result<NonNull<c_char>, FailedCall> {
    // SAFETY: passed on to the caller.
    unsafe {
        check_not_null(arena, text.cast(), "text")?;
        let len = CStr::from_ptr(text).to_bytes().len();
        copy(arena, text.cast(), len, 1, true).map(NonNull::cast)
    }
}

/// # Safety
/// As for [`handle::get`]. `text` ends with a NUL, or has at least `max_len` bytes.
unsafe fn strndup(
    arena: *const allot_arena,
    text: *const c_char,
    max_len: usize,
) -> Result<NonNull<c_char>, FailedCall> {
    let mut len = 0;
    // SAFETY: passed on to the caller. Nothing after the NUL, and at most `max_len` bytes, are
    // read.
    unsafe {
        if max_len > 0 {
            check_not_null(arena, text.cast(), "text")?;
        }
        while len < max_len && *text.add(len) != 0 {
            len += 1;
        }
        copy(arena, text.cast(), len, 1, true).map(NonNull::cast)
    }
}

/// # Safety
/// As for [`handle::get`]. The object is NULL, or a live object of this arena with this size and
/// alignment.
unsafe fn resize(
    arena: *const allot_arena,
    object: *mut c_void,
    old_size: usize,
    new_size: usize,
    align: usize,
) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller. An object older than an open mark is not in the open scope;
    // the library does not change it, and moves it if it grows.
    unsafe {
        let arena = handle::get(arena)?;
        let resized = resize_in(&arena.arena, object, old_size, new_size, align);
        resized.map_err(|error| arena.failed(error))
    }
}

/// # Safety
/// As for [`resize`].
unsafe fn free_sized(
    arena: *const allot_arena,
    object: NonNull<u8>,
    size: usize,
    align: usize,
) -> Result<(), FailedCall> {
    // SAFETY: passed on to the caller.
    unsafe {
        let arena = handle::get(arena)?;
        let layout = layout_of(size, align).map_err(|error| arena.failed(error))?;
        arena.arena.free_layout(object, layout);
    }
    Ok(())
}

/// # Safety
/// As for [`handle::get_mut`].
unsafe fn reset(arena: *mut allot_arena) -> Result<(), FailedCall> {
    // SAFETY: passed on to the caller.
    let arena = unsafe { handle::get_mut(arena)? };
    arena.resets.set(arena.resets.get().wrapping_add(1));
    if let Some(marks) = &mut arena.marks {
        marks.get_mut().clear();
    }
    arena.arena.reset();
    Ok(())
}

/// # Safety
/// As for [`handle::get`].
unsafe fn mark(arena: *const allot_arena) -> Result<allot_arena_position, FailedCall> {
    // SAFETY: passed on to the caller.
    let arena = unsafe { handle::get(arena)? };
    let number = arena.next_mark.get();
    if let Some(marks) = &arena.marks {
        let mut marks = marks.borrow_mut();
        let refused = AllocError::new(ErrorKind::SourceRefused, size_of::<u64>());
        marks.try_reserve(1).map_err(|_| arena.failed(refused))?;
        marks.push(number);
    }
    arena.next_mark.set(number.wrapping_add(1));
    let mut position = [MaybeUninit::zeroed(); 18];
    // SAFETY: it is large enough, and aligned, as asserted above.
    unsafe { position.as_mut_ptr().cast::<ArenaPosition>().write(arena.arena.position_in_scope()) };
    let (resets, number) = (arena.resets.get() as u32, number as u32);
    Ok(allot_arena_position { arena: arena.number(), resets, number, position })
}

/// # Safety
/// As for [`handle::get`]. The position is valid for reads. No object that was allocated after it
/// is used any more.
unsafe fn rewind(
    arena: *const allot_arena,
    position: *const allot_arena_position,
) -> Result<(), FailedCall> {
    // SAFETY: passed on to the caller. The library's part of the position is read only after the
    // other fields have shown that it is valid (invariant 2).
    unsafe {
        let arena = handle::get(arena)?;
        let bad = |text| Err(fail(HandleKind::Arena, arena.name(), CallError::BadArgument(text)));
        if position.is_null() {
            return bad("the position to rewind to is NULL; take one with allot_arena_mark()");
        }
        if (*position).arena != arena.number() {
            return bad(
                "rewound to a position that this arena did not return; take one with allot_arena_mark()",
            );
        }
        if (*position).resets != arena.resets.get() as u32 {
            return bad("rewound to a position from before its last reset; take a new one");
        }
        if let Some(marks) = &arena.marks {
            let mut marks = marks.borrow_mut();
            let number = (*position).number;
            match marks.iter().rposition(|mark| *mark as u32 == number) {
                Some(index) => marks.truncate(index + 1),
                None => return bad("rewound to a position that an earlier rewind made invalid"),
            }
        }
        arena.arena.rewind(&(&raw const (*position).position).cast::<ArenaPosition>().read());
    }
    Ok(())
}

/// # Safety
/// As for [`copy`].
unsafe fn memdup(
    arena: *const allot_arena,
    bytes: *const c_void,
    size: usize,
) -> Result<NonNull<u8>, FailedCall> {
    // SAFETY: passed on to the caller.
    unsafe { copy(arena, bytes.cast(), size, DEFAULT_ALIGN, false) }
}

// SAFETY, of every function below: the caller keeps the contract of the header, which includes that
// of the functions called here.

call_pair! {
    unsafe fn allot_arena_create_abi, allot_arena_try_create_abi(
        abi: u32,
        options: *const allot_options,
    ) -> *mut allot_arena = create
}

call! { fn allot_arena_destroy(arena: *mut allot_arena) = handle::destroy }

call_pair! {
    unsafe fn allot_arena_alloc_slowly, allot_arena_try_alloc_slowly(
        arena: *mut allot_arena,
        size: usize,
        align: usize,
    ) -> *mut c_void = alloc
}

call_pair! {
    unsafe fn allot_arena_calloc, allot_arena_try_calloc(
        arena: *mut allot_arena,
        count: usize,
        size: usize,
    ) -> *mut c_void = calloc
}

call_pair! {
    unsafe fn allot_arena_memdup, allot_arena_try_memdup(
        arena: *mut allot_arena,
        bytes: *const c_void,
        size: usize,
    ) -> *mut c_void = memdup
}

call_pair! {
    unsafe fn allot_arena_strdup, allot_arena_try_strdup(
        arena: *mut allot_arena,
        text: *const c_char,
    ) -> *mut c_char = strdup
}

call_pair! {
    unsafe fn allot_arena_strndup, allot_arena_try_strndup(
        arena: *mut allot_arena,
        text: *const c_char,
        max_len: usize,
    ) -> *mut c_char = strndup
}

call_pair! {
    unsafe fn allot_arena_resize, allot_arena_try_resize(
        arena: *mut allot_arena,
        object: *mut c_void,
        old_size: usize,
        new_size: usize,
        align: usize,
    ) -> *mut c_void = resize
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_arena_free_sized(
    arena: *mut allot_arena,
    object: *mut c_void,
    size: usize,
    align: usize,
) {
    // Freeing NULL does not access the arena.
    if let Some(object) = NonNull::new(object.cast::<u8>()) {
        // SAFETY: as above.
        or_abort(unsafe { free_sized(arena, object, size, align) });
    }
}

call! { fn allot_arena_reset(arena: *mut allot_arena) = reset }

call! { fn allot_arena_mark(arena: *mut allot_arena) -> allot_arena_position = mark }

call! {
    fn allot_arena_rewind(arena: *mut allot_arena, position: *const allot_arena_position)
        = rewind
}

call! { fn allot_arena_adopt(arena: *mut allot_arena) = handle::adopt }

call! {
    fn allot_arena_statistics(arena: *const allot_arena) -> allot_statistics
        => arena.arena.statistics().into()
}
