//! Arenas.
//!
//! The invariants are those of `handle.rs` and `lib.rs`, and:
//!
//! 1. `ArenaOfC` begins with its arena, whose first fields the header's inline functions use.
//! 2. If `arena` and `resets` of an `allot_arena_position` are those of a live arena, the position
//!    came from `allot_arena_mark` on that arena, and no reset followed. An arena's number is
//!    unique, also among destroyed arenas. `marks`, which only hardened arenas have, holds the
//!    numbers of the positions that are still valid.

use core::cell::{Cell, RefCell};
use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use allotment::{AllocError, Arena, ArenaPosition, ErrorKind};

use crate::error::{Noted, Problem, note, or_null, or_stop, or_stop_pointer};
use crate::handle::{self, Held, Kept, Kind};
use crate::layouts::{layout_of, layout_of_many};
use crate::options::{self, allot_options, has};
use crate::statistics::allot_statistics;

/// `allot_arena`.
pub type allot_arena = Held<ArenaOfC>;

/// An arena, and what is needed to detect invalid positions.
#[repr(C)]
pub struct ArenaOfC {
    arena: Arena,
    /// 0 until the first mark.
    number: Cell<u64>,
    resets: Cell<u64>,
    next_mark: Cell<u64>,
    marks: Option<RefCell<Vec<u64>>>,
}

impl Kept for ArenaOfC {
    const KIND: Kind = Kind::Arena;
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

impl ArenaOfC {
    #[cold]
    fn failed(&self, error: AllocError) -> Noted {
        note(Kind::Arena, self.name(), error)
    }

    /// The number that its positions carry.
    fn number(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if self.number.get() == 0 {
            self.number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        self.number.get()
    }
}

const HAS: u32 = has::SOURCE | has::RELEASE | has::HARDENED | has::HINT | has::RETAIN;

/// # Safety
/// As for [`options::read`].
unsafe fn make(abi: u32, options: *const allot_options) -> Result<NonNull<allot_arena>, Noted> {
    // SAFETY: passed on to the caller.
    let options = unsafe { options::read(Kind::Arena, abi, options, HAS)? };
    let made = if options.is_default {
        Arena::try_with_hint(0)
    } else {
        let mut builder = Arena::builder()
            .hint(options.hint)
            .retain(options.retain)
            .release(options.release)
            .hardened(options.hardened);
        if let Some(name) = options.name {
            builder = builder.name(name);
        }
        if let Some(budget) = &options.budget {
            builder = builder.budget(budget);
        }
        if let Some(source) = options.source {
            builder = builder.source(source);
        }
        builder.try_build()
    };
    let arena = made.map_err(|error| note(Kind::Arena, options.name, error))?;
    let marks = options.hardened.then(RefCell::default);
    let (number, resets, next_mark) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let arena = ArenaOfC { arena, number, resets, next_mark, marks };
    handle::create(arena, options.hardened)
}

/// # Safety
/// As for [`handle::get`].
#[inline]
unsafe fn alloc(
    arena: *const allot_arena,
    size: usize,
    align: usize,
) -> Result<NonNull<u8>, Noted> {
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
) -> Result<NonNull<u8>, Noted> {
    // SAFETY: passed on to the caller.
    let arena = unsafe { handle::get(arena)? };
    layout_of_many(count, size)
        .and_then(|layout| arena.arena.try_alloc_layout_zeroed(layout))
        .map_err(|error| arena.failed(error))
}

/// A copy of `size` bytes, followed by a NUL if `ends`.
///
/// # Safety
/// As for [`handle::get`]. `bytes` is valid for reads of `size` bytes.
unsafe fn copy(
    arena: *const allot_arena,
    bytes: *const u8,
    size: usize,
    align: usize,
    ends: bool,
) -> Result<NonNull<u8>, Noted> {
    // SAFETY: passed on to the caller. The copy is a new object, which no other code uses yet. No
    // object is so large that the sum overflows.
    unsafe {
        let copy = alloc(arena, size.saturating_add(usize::from(ends)), align)?;
        if size > 0 {
            copy.copy_from_nonoverlapping(NonNull::new_unchecked(bytes.cast_mut()), size);
        }
        if ends {
            copy.add(size).write(0);
        }
        Ok(copy)
    }
}

/// # Safety
/// As for [`handle::get`]; `text` ends with a NUL.
unsafe fn strdup(arena: *const allot_arena, text: *const c_char) -> Result<NonNull<c_char>, Noted> {
    // SAFETY: passed on to the caller.
    unsafe {
        let len = CStr::from_ptr(text).to_bytes().len();
        copy(arena, text.cast(), len, 1, true).map(NonNull::cast)
    }
}

/// # Safety
/// As for [`handle::get`]. `text` ends with a NUL, or has at least `most` bytes.
unsafe fn strndup(
    arena: *const allot_arena,
    text: *const c_char,
    most: usize,
) -> Result<NonNull<c_char>, Noted> {
    let mut len = 0;
    // SAFETY: passed on to the caller. Nothing after the NUL, and at most `most` bytes, are read.
    unsafe {
        while len < most && *text.add(len) != 0 {
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
) -> Result<NonNull<u8>, Noted> {
    let Some(object) = NonNull::new(object.cast::<u8>()) else {
        // SAFETY: passed on to the caller.
        return unsafe { alloc(arena, new_size, align) };
    };
    // SAFETY: passed on to the caller. An object older than an open mark is not in the open scope;
    // the library does not change it, and moves it if it grows.
    unsafe {
        let arena = handle::get(arena)?;
        let layouts = layout_of(old_size, align)
            .and_then(|old| layout_of(new_size, align).map(|new| (old, new)));
        layouts
            .and_then(|(old, new)| {
                if new.size() >= old.size() {
                    arena.arena.try_grow(object, old, new)
                } else {
                    arena.arena.try_shrink(object, old, new)
                }
            })
            .map_err(|error| arena.failed(error))
    }
}

/// # Safety
/// As for [`resize`].
unsafe fn free(
    arena: *const allot_arena,
    object: NonNull<u8>,
    size: usize,
    align: usize,
) -> Result<(), Noted> {
    // SAFETY: passed on to the caller.
    unsafe {
        let arena = handle::get(arena)?;
        let layout = layout_of(size, align).map_err(|error| arena.failed(error))?;
        arena.arena.free(object, layout);
    }
    Ok(())
}

/// # Safety
/// As for [`handle::get_mut`].
unsafe fn reset(held: *mut allot_arena) -> Result<(), Noted> {
    // SAFETY: passed on to the caller.
    let arena = unsafe { handle::get_mut(held)? };
    arena.resets.set(arena.resets.get().wrapping_add(1));
    if let Some(marks) = &mut arena.marks {
        marks.get_mut().clear();
    }
    arena.arena.reset();
    Ok(())
}

/// # Safety
/// As for [`handle::get`].
unsafe fn mark(held: *const allot_arena) -> Result<allot_arena_position, Noted> {
    // SAFETY: passed on to the caller.
    let arena = unsafe { handle::get(held)? };
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
    held: *const allot_arena,
    position: *const allot_arena_position,
) -> Result<(), Noted> {
    // SAFETY: passed on to the caller. The library's part of the position is read only after the
    // other fields have shown that it is valid (invariant 2).
    unsafe {
        let arena = handle::get(held)?;
        let bad = |text| Err(note(Kind::Arena, arena.name(), Problem::Bad(text)));
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
                Some(at) => marks.truncate(at + 1),
                None => return bad("rewound to a position that an earlier rewind made invalid"),
            }
        }
        arena.arena.rewind(&(&raw const (*position).position).cast::<ArenaPosition>().read());
    }
    Ok(())
}

/// # Safety
/// As for [`options::read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_arena_create_abi(
    abi: u32,
    options: *const allot_options,
) -> *mut allot_arena {
    // SAFETY: passed on to the caller.
    or_stop_pointer(unsafe { make(abi, options) })
}

/// # Safety
/// As for [`options::read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_arena_try_create_abi(
    abi: u32,
    options: *const allot_options,
) -> *mut allot_arena {
    // SAFETY: passed on to the caller.
    or_null(unsafe { make(abi, options) })
}

/// # Safety
/// As for [`handle::destroy`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_arena_destroy(arena: *mut allot_arena) {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { handle::destroy(arena, |_| Ok(())) });
}

/// # Safety
/// As for [`handle::get`]. The object is NULL, or a live object of this arena with this size and
/// alignment, and is not used any more. If it is NULL, the arena is not accessed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_arena_free(
    arena: *mut allot_arena,
    object: *mut c_void,
    size: usize,
    align: usize,
) {
    if let Some(object) = NonNull::new(object.cast::<u8>()) {
        // SAFETY: passed on to the caller.
        or_stop(unsafe { free(arena, object, size, align) });
    }
}

/// # Safety
/// As for [`handle::get_mut`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_arena_reset(arena: *mut allot_arena) {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { reset(arena) });
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_arena_mark(arena: *mut allot_arena) -> allot_arena_position {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { mark(arena) })
}

/// # Safety
/// As for [`handle::get`]. The position is valid for reads. No object that was allocated after it
/// is used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_arena_rewind(
    arena: *mut allot_arena,
    position: *const allot_arena_position,
) {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { rewind(arena, position) });
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_arena_adopt(arena: *mut allot_arena) {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { handle::adopt(arena) });
}

/// # Safety
/// As for [`handle::get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn allot_arena_statistics(arena: *const allot_arena) -> allot_statistics {
    // SAFETY: passed on to the caller.
    or_stop(unsafe { handle::get(arena) }).arena.statistics().into()
}

/// A call and its `try_` variant.
macro_rules! twins {
    ($($name:ident, $try_name:ident: $work:ident($($arg:ident: $type:ty),*) -> $object:ty;)*) => {$(
        /// # Safety
        #[doc = concat!("As for `", stringify!($work), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(arena: *mut allot_arena, $($arg: $type),*) -> *mut $object {
            // SAFETY: passed on to the caller.
            or_stop_pointer(unsafe { $work(arena, $($arg),*) }).cast()
        }

        /// # Safety
        #[doc = concat!("As for `", stringify!($work), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $try_name(arena: *mut allot_arena, $($arg: $type),*) -> *mut $object {
            // SAFETY: passed on to the caller.
            or_null(unsafe { $work(arena, $($arg),*) }).cast()
        }
    )*};
}

/// # Safety
/// As for [`copy`].
unsafe fn memdup(
    arena: *const allot_arena,
    bytes: *const c_void,
    size: usize,
) -> Result<NonNull<u8>, Noted> {
    // SAFETY: passed on to the caller.
    unsafe { copy(arena, bytes.cast(), size, crate::layouts::DEFAULT_ALIGN, false) }
}

twins! {
    allot_arena_alloc_slowly, allot_arena_try_alloc_slowly: alloc(size: usize, align: usize) -> c_void;
    allot_arena_calloc, allot_arena_try_calloc: calloc(count: usize, size: usize) -> c_void;
    allot_arena_memdup, allot_arena_try_memdup: memdup(bytes: *const c_void, size: usize) -> c_void;
    allot_arena_strdup, allot_arena_try_strdup: strdup(text: *const c_char) -> c_char;
    allot_arena_strndup, allot_arena_try_strndup: strndup(text: *const c_char, most: usize) -> c_char;
    allot_arena_resize, allot_arena_try_resize:
        resize(object: *mut c_void, old_size: usize, new_size: usize, align: usize) -> c_void;
}
