//! `Sealed`: a value that is built once and then read-only.
//!
//! # Invariants
//!
//! 1. `value` is an initialised `T::In<'a>` in `memory`, for every `'a` during which `memory`
//!    lives. The initialiser works for any lifetime, so the value that it made is valid for any
//!    lifetime. A lifetime changes nothing in a type's bytes.
//! 2. When [`Sealed::make`] returns, the pages of `memory` are read-only. From then on nothing
//!    writes to them, because the value is `ReadOnly`.

use core::fmt;
use core::ptr::NonNull;

use super::builder::SealedSettings;
use super::memory::SealedMemory;
use super::sealable::Sealable;
use super::sealer::Sealer;
use crate::error::AllocError;
use crate::statistics::Statistics;

/// A value that an initialiser builds once, and that is read-only afterwards. Any thread reads it
/// without a lock.
///
/// The value, and everything that the initialiser allocates for it, lies in pages of its own. When
/// the initialiser returns, these pages become read-only. A stray write through a wrong pointer
/// then causes a segmentation fault at the writing instruction, instead of changing data that other
/// threads rely on. [`owner_of`](crate::owner_of()) knows the address of the fault.
///
/// `T` is the type at the lifetime `'static`; [`get`](Self::get) lends it at the lifetime of the
/// borrow. The derive of [`ReadOnly`](crate::ReadOnly) implements [`Sealable`] for types of your
/// own.
///
/// - **Dropping** gives the pages back. It runs no destructors.
/// - **Cost**: a read is a load. Building a value takes at least one system call for each chunk, to
///   protect its pages. The first chunk has 64 KiB; later ones double, up to 1 MiB. A larger object
///   gets a larger chunk.
/// - **Held**: whole pages, at least one. When a chunk is sealed, the pages of its unused end give
///   their memory back.
/// - **Fork**: children share the pages.
///
/// ```
/// # #[cfg(feature = "derive")] {
/// use allotment::{ReadOnly, Sealed};
///
/// #[derive(ReadOnly)]
/// struct Config<'s> {
///     url: &'s str,
///     ports: &'s [u16],
/// }
///
/// let config = Sealed::<Config<'static>>::new(|sealer| Config {
///     url: sealer.alloc_str("http://localhost/"),
///     ports: sealer.alloc_slice_from_iter([80, 443]),
/// });
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| assert_eq!((config.get().url, config.get().ports[1]), ("http://localhost/", 443)));
///     }
/// });
/// # }
/// ```
///
/// A reference to the value can't outlive the `Sealed`:
///
/// ```compile_fail,E0597
/// let text = {
///     let sealed = allotment::Sealed::<&'static str>::new(|sealer| sealer.alloc_str("gone"));
///     *sealed.get()
/// };
/// assert_eq!(text, "gone");
/// ```
///
/// Sealed memory can leave the initialiser only in the value that it returns:
///
/// ```compile_fail
/// let mut stolen = "";
/// let sealed = allotment::Sealed::<()>::new(|sealer| stolen = sealer.alloc_str("mine"));
/// drop(sealed);
/// assert_eq!(stolen, "mine");
/// ```
///
/// A sealed value can't refer to memory that may be freed before it:
///
/// ```compile_fail
/// let text = String::from("short-lived");
/// let sealed = allotment::Sealed::<&'static str>::new(|_| &text);
/// ```
pub struct Sealed<T: Sealable> {
    value: NonNull<T::In<'static>>,
    memory: SealedMemory,
}

// SAFETY: it owns its value, which is `Send` and `Sync` because it is `ReadOnly`.
unsafe impl<T: Sealable> Send for Sealed<T> {}
// SAFETY: as above.
unsafe impl<T: Sealable> Sync for Sealed<T> {}

/// Runs an initialiser and writes its value to `address`.
///
/// # Safety
/// There is memory for one `T::In` at `address`, which belongs to the caller alone and stays valid
/// for `'s`.
unsafe fn fill<'s, T: Sealable, E>(
    address: NonNull<u8>,
    sealer: Sealer<'s>,
    init: impl FnOnce(Sealer<'s>) -> Result<T::In<'s>, E>,
) -> Result<(), E> {
    let value = init(sealer)?;
    // SAFETY: guaranteed by the caller.
    unsafe { address.cast::<T::In<'s>>().write(value) };
    Ok(())
}

/// # Create
impl<T: Sealable> Sealed<T> {
    /// Builds a value. `init` allocates all memory for it from the [`Sealer`]; when `init` returns,
    /// that memory is sealed.
    ///
    /// # Panics
    /// If `init` panics; all memory is then given back. Panics or ends the process if
    /// [`try_new`](Self::try_new) returns an error of the allocator: see
    /// [`AllocError`](crate::AllocError).
    #[must_use]
    #[track_caller]
    pub fn new(init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>) -> Self {
        Self::builder().build(init)
    }

    /// Like [`new`](Self::new), but returns an error instead of panicking or ending the process.
    /// The initialiser may fail, too: because of the sealer's `try_` calls, or for any other
    /// reason. If it fails, all memory is given back.
    ///
    /// ```
    /// use allotment::{AllocError, Sealed};
    ///
    /// let sealed = Sealed::<(&'static str, u16)>::try_new(|sealer| {
    ///     Ok::<_, AllocError>((sealer.try_alloc_str("localhost")?, 443))
    /// })?;
    /// assert_eq!(sealed.get().1, 443);
    /// # Ok::<_, AllocError>(())
    /// ```
    ///
    /// # Errors
    /// The error that `init` returned. An [`AllocError`] if memory for the value itself is refused,
    /// or if the system refuses to protect the pages (too many mappings).
    pub fn try_new<E: From<AllocError>>(
        init: impl for<'s> FnOnce(Sealer<'s>) -> Result<T::In<'s>, E>,
    ) -> Result<Self, E> {
        Self::builder().try_build(init)
    }

    pub(super) fn make<E: From<AllocError>>(
        settings: SealedSettings,
        init: impl for<'s> FnOnce(Sealer<'s>) -> Result<T::In<'s>, E>,
    ) -> Result<Self, E> {
        // If anything below fails or unwinds, the drop gives the memory back.
        let memory = SealedMemory::begin(settings.common)?;
        let address = memory.chunks().alloc(core::alloc::Layout::new::<T::In<'static>>())?;
        // SAFETY: a fresh block for the value, valid as long as `memory` lives.
        unsafe { fill::<T, E>(address, memory.sealer(), init) }?;
        // SAFETY: begun above on this thread. Nothing writes to the memory any more: what the
        // initialiser made is either part of the value, which is `ReadOnly`, or could not leave the
        // initialiser, because it works for any lifetime.
        unsafe { memory.seal() }?;
        Ok(Self { value: address.cast(), memory })
    }
}

/// # Read
impl<T: Sealable> Sealed<T> {
    /// The value. A call is a load: no lock, no atomic instruction.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> &T::In<'_> {
        // SAFETY: initialised for this lifetime too, and read-only (the invariants).
        unsafe { self.value.cast().as_ref() }
    }

    /// The value, for as long as the process lives. The kernel is asked to refuse every later
    /// change to its pages (`mseal`, Linux 6.10). On an older kernel they just stay read-only.
    #[must_use]
    pub fn leak(self) -> &'static T::In<'static> {
        let Self { value, memory } = self;
        // SAFETY: sealed (invariant 2). From here on the memory is never given back, so the value
        // lives until the process ends (invariant 1).
        unsafe {
            memory.leak();
            value.as_ref()
        }
    }
}

/// # Name and statistics
impl<T: Sealable> Sealed<T> {
    /// The statistics of its memory. The bytes held are whole pages, which a budget is charged;
    /// they are the sum of the structures, the wasted bytes, and the live bytes: what the
    /// initialiser allocated and did not free, including the value itself.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.memory.chunks().record().statistics()
    }

    /// The name set by [`SealedBuilder::name`](crate::sealed::SealedBuilder::name).
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.memory.chunks().name()
    }
}

impl<T: Sealable> fmt::Debug for Sealed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealed")
            .field("name", &self.name())
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}
