//! `Arena`: how to make one, and how to put values, strings and slices in.
//!
//! # Invariant
//!
//! The memory that `RawArena` allocates belongs to the caller alone until a reset, a rewind
//! below it, or the drop of the arena. Each of those takes `&mut self`, or is an unsafe call whose
//! contract rules out later use. So the memory can be lent for as long as `&self` is borrowed.

use core::alloc::Layout;
use core::convert::Infallible;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::boxed::ArenaBox;
use super::raw::{MAX_MIN_ALIGN, RawArena};
use crate::collections::{
    ArenaMemory, BoxIn, LendingSource, NoDrop, StatelessMemory, layout_calls, typed_calls,
};
use crate::error::{AllocError, OnFailure, PanicOrAbort, ReturnError, always, or_fail};

/// Memory for objects that die together: a position that moves up through chunks.
///
/// Allocating takes `&self` and returns a `&mut T` that lives as long as the arena is borrowed.
/// [`reset`](Arena::reset) and dropping the arena free everything at once. When memory is
/// exhausted, calls without `try_` end the process, like any other Rust allocation. If a limit
/// refuses, such as a budget, they panic. Their `try_` twins return an [`AllocError`] and leave the
/// arena as it was.
///
/// `MIN_ALIGN` is the alignment of every position: 1, 2, 4, 8 or 16. An object of that alignment or
/// less needs no rounding, and sizes are padded to it. The default, 8, gives pointers and numbers
/// the shortest path. `Arena<1>` packs strings and bytes tightest, and needs some more instructions
/// for objects of larger alignment.
///
/// - **Alignment**: any power of two that the type or layout asks for.
/// - **Cost**: 11 instructions for a `u32`, statistics included, none of them locked. From time to
///   time the arena takes a new chunk, usually from the recycler. The first chunk is 4 KiB (one
///   hardware page); each next one is twice as large, up to 1 MiB. On the default source, chunks of
///   2 MiB follow.
/// - **Threads**: `Send` and not `Sync`: one thread at a time uses an arena.
///
/// ```
/// use allotment::Arena;
///
/// let mut arena = Arena::new();
/// let point = arena.alloc((3, 4));
/// point.0 += 1;
/// let name = arena.alloc_str("system.cpu");
/// assert_eq!((point.0, &*name), (4, "system.cpu"));
/// assert_eq!(arena.statistics().live_objects, 2);
/// arena.reset();
/// assert_eq!(arena.statistics().live_objects, 0);
/// ```
///
/// A value can't be used after a reset:
///
/// ```compile_fail,E0502
/// let mut arena = allotment::Arena::new();
/// let number = arena.alloc(7);
/// arena.reset();
/// *number += 1;
/// ```
///
/// A value can't outlive the arena, and two threads can't share one arena:
///
/// ```compile_fail,E0597
/// let number = {
///     let arena = allotment::Arena::new();
///     arena.alloc(7)
/// };
/// *number += 1;
/// ```
///
/// ```compile_fail,E0277
/// let arena = allotment::Arena::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| arena.alloc(7));
/// });
/// ```
#[repr(transparent)]
pub struct Arena<const MIN_ALIGN: usize = 8> {
    pub(super) raw: RawArena,
}

impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    const VALID_MIN_ALIGN: () = assert!(
        MIN_ALIGN.is_power_of_two() && MIN_ALIGN <= MAX_MIN_ALIGN,
        "MIN_ALIGN must be 1, 2, 4, 8 or 16"
    );

    #[inline]
    pub(super) fn from_raw(raw: RawArena) -> Self {
        const { Self::VALID_MIN_ALIGN };
        Self { raw }
    }
}

/// # Create
impl Arena {
    /// An empty arena. It takes no memory before the first object. The first chunk is one hardware
    /// page, or more if the first object needs more.
    ///
    /// # Panics
    /// Ends the process if the system has no memory for the table of statistics. The table takes
    /// 16 KiB for the first 64 allocators that are alive at one time; each further block of it is
    /// twice as large as the one before.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self::from_raw(RawArena::plain())
    }

    /// Like [`new`](Self::new), but returns an error instead of ending the process.
    ///
    /// # Errors
    /// If the system has no memory for the table of statistics.
    pub fn try_new() -> Result<Self, AllocError> {
        Self::try_with_capacity(0)
    }

    /// An arena that takes its first chunk immediately. The chunk has room for `bytes` bytes and
    /// for the padding of one object of ordinary alignment. The arena grows beyond it as needed. A
    /// capacity of 0 is the same as [`new`](Self::new).
    ///
    /// # Panics
    /// Panics or ends the process if [`try_with_capacity`](Self::try_with_capacity) returns an
    /// error: see [`AllocError`](crate::AllocError).
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn with_capacity(bytes: usize) -> Self {
        or_fail(Self::try_with_capacity(bytes))
    }

    /// Like [`with_capacity`](Self::with_capacity), but returns an error instead of panicking or
    /// ending the process.
    ///
    /// # Errors
    /// If the capacity overflows, or the system refuses the chunk.
    #[inline]
    pub fn try_with_capacity(bytes: usize) -> Result<Self, AllocError> {
        RawArena::new(bytes, None).map(Self::from_raw)
    }

    #[doc(hidden)]
    #[deprecated(note = "use `with_capacity`")]
    #[must_use]
    #[track_caller]
    pub fn with_hint(bytes: usize) -> Self {
        Self::with_capacity(bytes)
    }

    #[doc(hidden)]
    #[deprecated(note = "use `try_with_capacity`")]
    pub fn try_with_hint(bytes: usize) -> Result<Self, AllocError> {
        Self::try_with_capacity(bytes)
    }
}

/// # Create with another alignment
impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    /// An empty arena with this minimum alignment.
    ///
    /// ```
    /// let arena = allotment::Arena::<1>::with_min_align();
    /// let flags: [usize; 3] = [true, false, true].map(|flag| std::ptr::from_ref(arena.alloc(flag)).addr());
    /// assert_eq!(flags[2], flags[1] + 1);
    /// ```
    ///
    /// # Panics
    /// As [`Arena::new`].
    #[inline]
    #[must_use]
    pub fn with_min_align() -> Self {
        Self::from_raw(RawArena::plain())
    }
}

// SAFETY: by the module's invariant, memory stays valid for `'a` unless it is freed.
unsafe impl<'a, const MIN_ALIGN: usize> LendingSource<'a> for &'a Arena<MIN_ALIGN> {
    type Memory = ArenaMemory<'a>;

    #[inline(always)]
    fn memory(self) -> ArenaMemory<'a> {
        StatelessMemory::MEMORY
    }

    #[inline(always)]
    fn alloc_fast(self, layout: Layout) -> Option<NonNull<u8>> {
        self.raw.alloc_fast::<MIN_ALIGN>(layout)
    }

    #[inline(always)]
    fn alloc_slow<F: OnFailure>(self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        self.raw.alloc_slow::<F, MIN_ALIGN>(layout)
    }
}

typed_calls! {
    impl[const MIN_ALIGN: usize] Arena<MIN_ALIGN>, ArenaBox;
    ///
    /// ```compile_fail
    /// let arena = allotment::Arena::new();
    /// arena.alloc(String::from("nothing would drop this"));
    /// ```
    alloc;
    alloc_with;
    ///
    /// ```
    /// let arena = allotment::Arena::new();
    /// let names = arena.alloc_boxed(vec![String::from("dropped with the box")]);
    /// assert_eq!(names.len(), 1);
    /// ```
    alloc_boxed;
    /// An empty slice takes no memory.
    alloc_slice_copy;
    alloc_slice_with;
}

layout_calls! {
    impl[const MIN_ALIGN: usize] Arena<MIN_ALIGN>, [&] self;
    /// A size of zero takes no memory and returns an aligned dangling pointer.
    alloc_layout;
    /// If it is the last one allocated, its bytes go back to the arena; otherwise only the
    /// statistics change. Inside a scope, a block from outside the scope keeps its bytes until the
    /// scope ends, which restores the statistics.
    free_layout;
    /// A block that shrinks stays, unless it has to move for a larger alignment. A block that grows
    /// stays if it is the last one and its chunk has room.
    resize;
}

impl<const MIN_ALIGN: usize> Default for Arena<MIN_ALIGN> {
    fn default() -> Self {
        Self::with_min_align()
    }
}
