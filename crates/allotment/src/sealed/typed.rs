//! `Sealed`: a value that is built once and then read-only.
//!
//! # Invariants
//!
//! 1. `value` is an initialised `T::In<'a>` in the region's memory, for every `'a` in which the region lives. The
//!    initialiser worked for any lifetime, so what it made holds for any; a lifetime changes nothing in a type's bytes.
//! 2. From [`Sealed::make`]'s end on the region's pages are read-only, and nobody writes to them (`ReadOnly`).

use core::fmt;
use core::ptr::NonNull;

use super::builder::SealedBuilder;
use super::region::Region;
use super::sealable::Sealable;
use super::sealer::Sealer;
use crate::error::{Abort, AllocError, OnFailure, always};
use crate::memory::budget::Budget;
use crate::statistics::Statistics;

/// A value that an initialiser builds, and that is read-only from then on: any thread reads it, without a lock.
///
/// Everything that it is made of lies in pages of its own, which nobody can write to once the initialiser has ended: a stray
/// write through a wrong pointer stops at the instruction that does it (a segmentation fault at an address that
/// [`owner_of`](crate::owner_of()) knows), instead of changing a configuration that everyone believes.
///
/// `T` is the type at the lifetime `'static`; [`get`](Self::get) lends it at that of the borrow. Which types these are the
/// derive of [`ReadOnly`](crate::ReadOnly) says. **Dropping** gives the pages back and drops nothing in them. **Cost**: a read
/// is a load, making one a system call for each chunk (64 KiB at first, doubling up to 1 MiB). **Held**: whole pages, at
/// least one; the pages of a chunk's unused end give their memory back when it is sealed. **Fork**: children share the pages.
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
///     url: sealer.str("http://localhost/"),
///     ports: sealer.slice([80, 443]),
/// });
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| assert_eq!((config.get().url, config.get().ports[1]), ("http://localhost/", 443)));
///     }
/// });
/// # }
/// ```
///
/// What is read can't outlive it:
///
/// ```compile_fail,E0597
/// let text = {
///     let sealed = allotment::Sealed::<&'static str>::new(|sealer| sealer.str("gone"));
///     *sealed.get()
/// };
/// assert_eq!(text, "gone");
/// ```
///
/// nor can anything leave the initialiser by another way:
///
/// ```compile_fail
/// let mut stolen = "";
/// let sealed = allotment::Sealed::<()>::new(|sealer| stolen = sealer.str("mine"));
/// drop(sealed);
/// assert_eq!(stolen, "mine");
/// ```
///
/// nor does it hold what it doesn't own:
///
/// ```compile_fail
/// let text = String::from("short-lived");
/// let sealed = allotment::Sealed::<&'static str>::new(|_| &text);
/// ```
pub struct Sealed<T: Sealable> {
    value: NonNull<T::In<'static>>,
    region: Region,
}

// SAFETY: what it holds is `Send` and `Sync` (`ReadOnly`), and owned.
unsafe impl<T: Sealable> Send for Sealed<T> {}
// SAFETY: as above.
unsafe impl<T: Sealable> Sync for Sealed<T> {}

/// Runs an initialiser and puts its value into its place.
///
/// # Safety
/// The place is for one `T::In`, nobody else's, and stays for `'s`.
unsafe fn fill<'s, T: Sealable, E>(
    place: NonNull<u8>,
    sealer: Sealer<'s>,
    init: impl FnOnce(Sealer<'s>) -> Result<T::In<'s>, E>,
) -> Result<(), E> {
    let value = init(sealer)?;
    // SAFETY: passed on to the caller.
    unsafe { place.cast::<T::In<'s>>().write(value) };
    Ok(())
}

impl<T: Sealable> Sealed<T> {
    /// Builds a value. All memory for it is from `sealer`; what is left at the end is sealed.
    ///
    /// # Panics
    /// If `init` does: then all memory is given back. Aborts where [`try_new`](Self::try_new) returns an error.
    #[must_use]
    pub fn new(init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>) -> Self {
        Self::builder().build(init)
    }

    /// Builds a value, or says why it could not be sealed.
    ///
    /// # Errors
    /// When there is no memory for the value itself, and when the system refuses to protect the pages (too many
    /// mappings). `init` decides about its own calls: see [`try_build`](Self::try_build).
    pub fn try_new(init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>) -> Result<Self, AllocError> {
        Self::builder().try_new(init)
    }

    /// Builds a value with an initialiser that may fail, by the `try_` calls of its sealer or otherwise: then all memory
    /// is given back.
    ///
    /// ```
    /// use allotment::{AllocError, Sealed};
    ///
    /// let sealed = Sealed::<(&'static str, u16)>::try_build(|sealer| {
    ///     Ok::<_, AllocError>((sealer.try_str("localhost")?, 443))
    /// })?;
    /// assert_eq!(sealed.get().1, 443);
    /// # Ok::<_, AllocError>(())
    /// ```
    ///
    /// # Errors
    /// What `init` returned; else as [`try_new`](Self::try_new).
    pub fn try_build<E: From<AllocError>>(
        init: impl for<'s> FnOnce(Sealer<'s>) -> Result<T::In<'s>, E>,
    ) -> Result<Self, E> {
        Self::builder().try_build(init)
    }

    /// Begins one with options.
    pub const fn builder() -> SealedBuilder<T> {
        SealedBuilder::new()
    }

    pub(super) fn make<E: From<AllocError>>(
        name: Option<&str>,
        budget: Option<Budget>,
        init: impl for<'s> FnOnce(Sealer<'s>) -> Result<T::In<'s>, E>,
    ) -> Result<Self, E> {
        // If anything below fails or unwinds, the region gives its memory back.
        let region = Region::begin(name, budget)?;
        let place = region.ground().alloc(core::alloc::Layout::new::<T::In<'static>>())?;
        // SAFETY: a fresh block for the value, which stays as long as the region.
        unsafe { fill::<T, E>(place, region.sealer(), init) }?;
        // SAFETY: begun above on this thread. What the initialiser made is either the value, which nobody writes to, or
        // could not leave it: it worked for any lifetime.
        unsafe { region.seal() }?;
        Ok(Self { value: place.cast(), region })
    }

    pub(super) fn make_or<F: OnFailure>(
        name: Option<&str>,
        budget: Option<Budget>,
        init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>,
    ) -> Result<Self, F::Error> {
        Self::make::<AllocError>(name, budget, |sealer| Ok(init(sealer))).map_err(F::fail)
    }

    pub(super) fn make_always(
        name: Option<&str>,
        budget: Option<Budget>,
        init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>,
    ) -> Self {
        always(Self::make_or::<Abort>(name, budget, init))
    }

    /// The value. A load: no lock, no atomic instruction.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> &T::In<'_> {
        // SAFETY: initialised for this lifetime too, and read-only (the invariants).
        unsafe { self.value.cast().as_ref() }
    }

    /// The value for as long as the process lives. The kernel is asked to refuse every later change to its pages (`mseal`,
    /// Linux 6.10); an older one keeps them read-only, as they are.
    #[must_use]
    pub fn leak(self) -> &'static T::In<'static> {
        let Self { value, region } = self;
        // SAFETY: sealed (invariant 2). The region lives for ever from now on, and the value with it (invariant 1).
        unsafe {
            region.leak();
            value.as_ref()
        }
    }

    /// The bytes of memory that it holds: whole pages, which a budget is charged.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.statistics().held_bytes as usize
    }

    /// The bytes that the initialiser asked for and did not give back, the value's own among them.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        self.statistics().live_bytes as usize
    }

    /// What it holds: `held = structures + live + wasted`.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.region.ground().record().statistics()
    }

    /// The name that it was given.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.region.ground().name()
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
