//! Handles that keep an arena alive: [`ArenaRc`] on one thread, [`ArenaArc`] on several.
//!
//! # Invariants
//!
//! 1. The `value` of a handle was lent as a `&'a T`, for any `'a` for which the arena is borrowed and
//!    `T` is valid. So it stays valid, and is only read, as long as `T` is valid and until the arena
//!    is reset, rewound or dropped. A handle is invariant in `T`: with variance, its type could name
//!    a longer lifetime than the `T` that was lent.
//! 2. A handle holds a strong count of its arena. While one exists, no `&mut` to the arena can be
//!    had: those of `Rc` and `Arc` need a count of one. So the arena is not reset, gets no scope or
//!    mark, and is not dropped. [`Arena::rewind`] is an unsafe call, whose contract rules out later
//!    use.
//! 3. One [`SharedArena`] exists for each [`SendArena`] at most; it alone gives access to the arena, and
//!    is not `Sync`. An `ArenaArc` never calls the arena. It only drops it, when it has the last
//!    count, so after the `SharedArena` was dropped.
//! 4. The value of an [`ArenaArc`] is not the arena: it is `Sync`, and an arena is not. So a handle
//!    gives no second access to the arena.

use alloc::rc::Rc;
use alloc::sync::Arc;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use super::handle_traits::handle_traits;
use super::typed::Arena;

/// A reference to a value in an [`Arena`] that keeps the arena alive, for one thread: the `Rc` of an
/// arena. The arena is in an `Rc`, too, and any number of handles share it.
///
/// - **What it keeps**: the whole arena with all its chunks, until the last handle and the last
///   `Rc<Arena>` are dropped. So a small handle that lives long keeps much memory. Where few values
///   outlive a large arena, copy them out instead.
/// - **Size**: two words; three for a string, a slice or a trait object.
/// - **Cost**: making or cloning a handle increments the arena's count. No memory is allocated for
///   the handle, and the value has no count of its own.
/// - **Drop**: the value is never dropped. [`Arena::alloc`] refuses a type that needs drop.
/// - **Threads**: neither `Send` nor `Sync`; see [`ArenaArc`].
///
/// ```
/// use std::rc::Rc;
///
/// use allotment::Arena;
/// use allotment::arena::ArenaRc;
///
/// let arena = Rc::new(Arena::new());
/// let name: ArenaRc<str> = ArenaRc::new(&arena, |arena| arena.alloc_str("system.cpu"));
/// drop(arena); // the handle keeps it
/// let first = ArenaRc::map(name.clone(), |name| &name[..6]);
/// assert_eq!((&*name, &*first), ("system.cpu", "system"));
/// ```
///
/// An arena with a handle can't be reset:
///
/// ```
/// # use std::rc::Rc;
/// # use allotment::{Arena, arena::ArenaRc};
/// let mut arena = Rc::new(Arena::new());
/// let number = ArenaRc::new(&arena, |arena| arena.alloc(7));
/// assert!(Rc::get_mut(&mut arena).is_none());
/// drop(number);
/// Rc::get_mut(&mut arena).unwrap().reset();
/// ```
///
/// The value must lie in the arena, or live as long as the program:
///
/// ```compile_fail,E0597
/// # use std::rc::Rc;
/// # use allotment::{Arena, arena::ArenaRc};
/// let arena = Rc::new(Arena::new());
/// let name: ArenaRc<str> = {
///     let text = String::from("short-lived");
///     ArenaRc::new(&arena, |_| text.as_str())
/// };
/// println!("{name}");
/// ```
///
/// A part that a value only borrows can't be made a handle of its own:
///
/// ```compile_fail,E0597
/// # use std::rc::Rc;
/// # use allotment::{Arena, arena::ArenaRc};
/// let arena = Rc::new(Arena::new());
/// let number: ArenaRc<u8> = {
///     let outside = 7;
///     let borrowed: ArenaRc<&u8> = ArenaRc::new(&arena, |arena| arena.alloc(&outside));
///     ArenaRc::map(borrowed, |borrowed| *borrowed)
/// };
/// assert_eq!(*number, 7);
/// ```
///
/// A handle can't outlive what its value borrows. This holds for every variance of the value's type:
///
/// ```compile_fail,E0597
/// # use std::{marker::PhantomData, rc::Rc};
/// # use allotment::{Arena, arena::ArenaRc};
/// struct Sink<'x>(String, PhantomData<fn(&'x ())>);
/// fn handle<'x>(arena: &Rc<Arena>, value: &'x Sink<'x>) -> ArenaRc<Sink<'x>> {
///     ArenaRc::new(arena, move |_| value)
/// }
/// let arena = Rc::new(Arena::new());
/// let escaped: ArenaRc<Sink<'static>> = {
///     let value = Sink(String::from("freed"), PhantomData);
///     handle(&arena, &value)
/// };
/// println!("{}", escaped.0);
/// ```
///
/// ```compile_fail,E0597
/// # use std::{marker::PhantomData, rc::Rc};
/// # use allotment::{Arena, arena::ArenaRc};
/// struct Sink<'x>(String, PhantomData<fn(&'x ())>);
/// fn part<'x>(handle: ArenaRc<u8>, value: &'x Sink<'x>) -> ArenaRc<Sink<'x>> {
///     ArenaRc::map(handle, move |_| value)
/// }
/// let arena = Rc::new(Arena::new());
/// let escaped: ArenaRc<Sink<'static>> = {
///     let value = Sink(String::from("freed"), PhantomData);
///     part(ArenaRc::new(&arena, |arena| arena.alloc(7)), &value)
/// };
/// println!("{}", escaped.0);
/// ```
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// # use std::rc::Rc;
/// # use allotment::{Arena, arena::ArenaRc};
/// let number = ArenaRc::new(&Rc::new(Arena::new()), |arena| arena.alloc(7));
/// std::thread::spawn(move || drop(number));
/// ```
pub struct ArenaRc<T: ?Sized, const MIN_ALIGN: usize = 8> {
    value: NonNull<T>,
    arena: Rc<Arena<MIN_ALIGN>>,
    /// Invariant in `T` (invariant 1).
    invariant: PhantomData<*mut T>,
}

impl<T: ?Sized, const MIN_ALIGN: usize> ArenaRc<T, MIN_ALIGN> {
    /// Makes a handle to a value that `make` puts into the arena.
    ///
    /// # Panics
    /// If `make` panics. The process ends if there are more handles than the count can hold.
    pub fn new(
        arena: &Rc<Arena<MIN_ALIGN>>,
        make: impl for<'a> FnOnce(&'a Arena<MIN_ALIGN>) -> &'a T,
    ) -> Self {
        // The value is lent for any lifetime of the borrow (invariant 1).
        let value = NonNull::from(make(arena));
        Self { value, arena: Rc::clone(arena), invariant: PhantomData }
    }

    /// As [`new`](Self::new), with a `make` that can fail, such as one that calls `try_` twins.
    ///
    /// # Errors
    /// The error that `make` returned.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn try_new<E>(
        arena: &Rc<Arena<MIN_ALIGN>>,
        make: impl for<'a> FnOnce(&'a Arena<MIN_ALIGN>) -> Result<&'a T, E>,
    ) -> Result<Self, E> {
        let value = NonNull::from(make(arena)?);
        Ok(Self { value, arena: Rc::clone(arena), invariant: PhantomData })
    }

    /// The arena that the value is in, for further allocations and handles.
    #[inline]
    #[must_use]
    pub fn arena(this: &Self) -> &Rc<Arena<MIN_ALIGN>> {
        &this.arena
    }
}

/// A reference to a value in a [`SharedArena`] that keeps the arena's memory alive, for any thread:
/// the `Arc` of an arena.
///
/// - **What it keeps**: the whole arena with all its chunks, until the last handle and the
///   `SharedArena` are dropped. So a small handle that lives long keeps much memory. Where few
///   values outlive a large arena, copy them out instead.
/// - **Size**: two words; three for a string, a slice or a trait object.
/// - **Cost**: making or cloning a handle, and its drop, is one locked instruction each, on a count
///   that all handles of the arena share. No memory is allocated for the handle, and the value has
///   no count of its own.
/// - **Drop**: the value is never dropped. [`Arena::alloc`] refuses a type that needs drop. The
///   thread that drops the last handle gives back the arena's chunks.
/// - **Threads**: the value must be `Sync`. The handle is `Send` and `Sync` where the value is `Send`.
///
/// ```
/// use allotment::arena::{ArenaArc, SharedArena};
///
/// let arena = SharedArena::new();
/// let words = ["one", "two"].map(|word| ArenaArc::new(&arena, |arena| arena.alloc_str(word)));
/// let threads = words.clone().map(|word| std::thread::spawn(move || word.len()));
/// arena.alloc(7); // the arena can be used meanwhile
/// drop(arena);
/// assert_eq!(threads.map(|thread| thread.join().unwrap()), [3, 3]);
/// assert_eq!(&*words[1], "two");
/// ```
///
/// Its value must be `Sync`:
///
/// ```compile_fail,E0277
/// use allotment::arena::{ArenaArc, SharedArena};
/// let cell = ArenaArc::new(&SharedArena::new(), |arena| arena.alloc(std::cell::Cell::new(7)));
/// ```
///
/// So it is not the arena itself, which another thread may use:
///
/// ```compile_fail,E0277
/// use allotment::arena::{ArenaArc, SharedArena};
/// let shared = SharedArena::new();
/// let alias = ArenaArc::new(&shared, |arena| arena);
/// std::thread::spawn(move || shared.alloc(7));
/// alias.alloc(8);
/// ```
pub struct ArenaArc<T: ?Sized, const MIN_ALIGN: usize = 8> {
    value: NonNull<T>,
    arena: Arc<SendArena<MIN_ALIGN>>,
    /// Invariant in `T` (invariant 1).
    invariant: PhantomData<*mut T>,
}

// SAFETY: handles on several threads read the value, which `T: Sync` allows. The arena is only
// dropped by a handle, after the count of every other thread was released (invariant 3), and an
// arena is `Send`.
unsafe impl<T: ?Sized + Send + Sync, const MIN_ALIGN: usize> Send for ArenaArc<T, MIN_ALIGN> {}
// SAFETY: as above; a `&ArenaArc` can be cloned.
unsafe impl<T: ?Sized + Send + Sync, const MIN_ALIGN: usize> Sync for ArenaArc<T, MIN_ALIGN> {}

impl<T: ?Sized + Sync, const MIN_ALIGN: usize> ArenaArc<T, MIN_ALIGN> {
    /// Makes a handle to a value that `make` puts into the arena.
    ///
    /// # Panics
    /// If `make` panics. The process ends if there are more handles than the count can hold.
    pub fn new(
        arena: &SharedArena<MIN_ALIGN>,
        make: impl for<'a> FnOnce(&'a Arena<MIN_ALIGN>) -> &'a T,
    ) -> Self {
        // The value is lent for any lifetime of the borrow (invariant 1), and is not the arena
        // (invariant 4).
        let value = NonNull::from(make(arena));
        Self { value, arena: Arc::clone(&arena.kept), invariant: PhantomData }
    }

    /// As [`new`](Self::new), with a `make` that can fail, such as one that calls `try_` twins.
    ///
    /// # Errors
    /// The error that `make` returned.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn try_new<E>(
        arena: &SharedArena<MIN_ALIGN>,
        make: impl for<'a> FnOnce(&'a Arena<MIN_ALIGN>) -> Result<&'a T, E>,
    ) -> Result<Self, E> {
        let value = NonNull::from(make(arena)?);
        Ok(Self { value, arena: Arc::clone(&arena.kept), invariant: PhantomData })
    }
}

/// What [`ArenaRc`] and [`ArenaArc`] have in common.
macro_rules! shared_handle {
    ($handle:ident) => {
        impl<T: ?Sized, const MIN_ALIGN: usize> $handle<T, MIN_ALIGN> {
            /// Makes a handle to a part of the value. Keep a clone of `this` to keep its handle,
            /// too.
            ///
            /// The value must not borrow anything outside of the arena, because the new handle's
            /// type would not tell how long that lives.
            ///
            /// # Panics
            /// If `part` panics.
            #[must_use]
            pub fn map<U: ?Sized>(
                this: Self,
                part: impl for<'a> FnOnce(&'a T) -> &'a U,
            ) -> $handle<U, MIN_ALIGN>
            where
                T: 'static,
            {
                let value = NonNull::from(part(&this));
                $handle { value, arena: this.arena, invariant: PhantomData }
            }

            /// Whether two handles refer to the same address.
            #[inline]
            #[must_use]
            pub fn ptr_eq(this: &Self, other: &Self) -> bool {
                core::ptr::addr_eq(this.value.as_ptr(), other.value.as_ptr())
            }
        }

        impl<T: ?Sized, const MIN_ALIGN: usize> Clone for $handle<T, MIN_ALIGN> {
            #[inline]
            fn clone(&self) -> Self {
                Self { value: self.value, arena: self.arena.clone(), invariant: PhantomData }
            }
        }

        impl<T: ?Sized, const MIN_ALIGN: usize> Deref for $handle<T, MIN_ALIGN> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: the arena is neither reset nor dropped while the handle exists (invariants
                // 1 and 2).
                unsafe { self.value.as_ref() }
            }
        }

        handle_traits!([T: ?Sized, const MIN_ALIGN: usize] $handle<T, MIN_ALIGN>);
    };
}

shared_handle!(ArenaRc);
shared_handle!(ArenaArc);

/// An [`Arena`] whose memory lives as long as the handles to its values: see [`ArenaArc`].
///
/// It derefs to the arena. As long as handles exist, the arena can't be reset and has no scopes;
/// [`get_mut`](Self::get_mut) gives access to those calls when there is none. It takes one word. The
/// arena moves to the heap, beside the count of the handles.
///
/// **Threads**: `Send` and not `Sync`, as an arena.
///
/// ```
/// use allotment::Arena;
/// use allotment::arena::{ArenaArc, SharedArena};
///
/// let mut arena = SharedArena::from(Arena::with_capacity(64 << 10));
/// let numbers: ArenaArc<[u32]> = ArenaArc::new(&arena, |arena| arena.alloc_slice_copy(&[1, 2]));
/// assert!(arena.get_mut().is_none());
/// drop(numbers);
/// arena.get_mut().unwrap().reset();
/// assert_eq!(arena.statistics().live_objects, 0);
/// ```
///
/// ```compile_fail,E0277
/// let arena = allotment::arena::SharedArena::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| arena.alloc(7));
/// });
/// ```
pub struct SharedArena<const MIN_ALIGN: usize = 8> {
    kept: Arc<SendArena<MIN_ALIGN>>,
    /// Not `Sync` (invariant 3).
    one_thread: PhantomData<Cell<()>>,
}

/// An arena to which a [`SharedArena`] gives access, and which any thread may drop.
struct SendArena<const MIN_ALIGN: usize>(Arena<MIN_ALIGN>);

// SAFETY: one `SharedArena` at most has access to the arena, on one thread at a time (invariant 3).
unsafe impl<const MIN_ALIGN: usize> Sync for SendArena<MIN_ALIGN> {}

impl SharedArena {
    /// An empty arena with the default options. `SharedArena::from(arena)` takes an arena with
    /// other ones.
    ///
    /// # Panics
    /// As [`Arena::new`], and ends the process if the heap has no memory for the arena.
    #[must_use]
    pub fn new() -> Self {
        Self::from(Arena::new())
    }
}

impl<const MIN_ALIGN: usize> SharedArena<MIN_ALIGN> {
    /// The arena, if no handle exists.
    pub fn get_mut(&mut self) -> Option<&mut Arena<MIN_ALIGN>> {
        Arc::get_mut(&mut self.kept).map(|kept| &mut kept.0)
    }
}

impl<const MIN_ALIGN: usize> Default for SharedArena<MIN_ALIGN> {
    fn default() -> Self {
        Self::from(Arena::default())
    }
}

impl<const MIN_ALIGN: usize> From<Arena<MIN_ALIGN>> for SharedArena<MIN_ALIGN> {
    /// Moves the arena, which may hold values already, to the heap.
    ///
    /// # Panics
    /// Ends the process if the heap has no memory for the arena.
    fn from(arena: Arena<MIN_ALIGN>) -> Self {
        Self { kept: Arc::new(SendArena(arena)), one_thread: PhantomData }
    }
}

impl<const MIN_ALIGN: usize> Deref for SharedArena<MIN_ALIGN> {
    type Target = Arena<MIN_ALIGN>;

    #[inline]
    fn deref(&self) -> &Arena<MIN_ALIGN> {
        &self.kept.0
    }
}

impl<const MIN_ALIGN: usize> fmt::Debug for SharedArena<MIN_ALIGN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedArena")
            .field("arena", &**self)
            .field("handles", &(Arc::strong_count(&self.kept) - 1))
            .finish()
    }
}
