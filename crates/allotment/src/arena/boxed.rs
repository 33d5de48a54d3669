//! A value in an arena with an owner that drops it.

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::collections::{ArenaMemory, BoxIn, BoxMemory, LendingMemory};

/// A value in an [`Arena`](crate::Arena) that is dropped with the box. The box takes one word (two
/// for slices). Its further methods are those of [`BoxIn`].
///
/// The memory belongs to the arena: dropping the box runs the value's destructor and frees no
/// memory.
///
/// ```
/// use allotment::{Arena, ArenaBox, unsize_box};
///
/// let arena = Arena::new();
/// let name = arena.alloc_boxed(String::from("system.cpu"));
/// let shapes: [ArenaBox<'_, dyn Fn(f64) -> f64>; 2] =
///     [unsize_box!(arena.alloc_boxed(|side| side * side)), unsize_box!(arena.alloc_boxed(f64::abs))];
/// assert_eq!((&**name, shapes[0](3.0), shapes[1](-3.0)), ("system.cpu", 9.0, 3.0));
/// ```
///
/// A box can't be turned into a `Pin`. If a box is forgotten, its memory is reused without a drop,
/// which pinning forbids.
///
/// ```compile_fail,E0597
/// let arena = allotment::Arena::new();
/// let boxed = arena.alloc_boxed(7);
/// let pinned: std::pin::Pin<allotment::ArenaBox<'_, i32>> = boxed.into();
/// ```
///
/// A box can't outlive its arena, and a trait object can't outlive what its value borrows:
///
/// ```compile_fail,E0505
/// let arena = allotment::Arena::new();
/// let boxed: allotment::ArenaBox<'_, [i32]> = allotment::unsize_box!(arena.alloc_boxed([1, 2]));
/// drop(arena);
/// assert_eq!(boxed.len(), 2);
/// ```
///
/// ```compile_fail,E0597
/// use std::fmt::Display;
/// let arena = allotment::Arena::new();
/// let shown: allotment::ArenaBox<'_, dyn Display + '_> = {
///     let text = String::from("short-lived");
///     allotment::unsize_box!(arena.alloc_boxed(text.as_str()))
/// };
/// println!("{shown}");
/// ```
pub type ArenaBox<'a, T> = BoxIn<T, ArenaMemory<'a>>;

// SAFETY: freeing does nothing.
unsafe impl BoxMemory for ArenaMemory<'_> {
    #[inline(always)]
    unsafe fn free(self, _block: NonNull<u8>, _layout: Layout) {}
}

// SAFETY: the arena is borrowed for `'a`. A reset, a rewind and the drop of the arena need it whole
// or are unsafe calls.
unsafe impl<'a> LendingMemory<'a> for ArenaMemory<'a> {}
