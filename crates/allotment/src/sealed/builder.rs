//! `SealedBuilder`: the options of a sealed value.

use core::fmt;
use core::marker::PhantomData;

use super::sealable::Sealable;
use super::sealer::Sealer;
use super::typed::Sealed;
use crate::error::{AllocError, OnRefusal, or_fail};
use crate::memory::budget::Budget;
use crate::options::common_options;

/// The options of a sealed value.
#[derive(Debug)]
pub(super) struct SealedSettings {
    pub name: Option<Box<str>>,
    pub budget: Option<Budget>,
    pub on_refusal: OnRefusal,
}

/// Builds a [`Sealed`] with options. [`Sealed::builder`] returns one.
///
/// ```
/// use allotment::{Budget, Sealed};
///
/// let config = Sealed::<[u16; 2]>::builder()
///     .name("configuration")
///     .budget(&Budget::new(1 << 20))
///     .build(|_| [80, 443]);
/// assert_eq!(config.name(), Some("configuration"));
/// ```
#[must_use = "`build` makes the sealed value"]
pub struct SealedBuilder<T: Sealable> {
    settings: SealedSettings,
    sealable: PhantomData<fn() -> T>,
}

impl<T: Sealable> SealedBuilder<T> {
    pub(super) const fn new() -> Self {
        let settings = SealedSettings { name: None, budget: None, on_refusal: OnRefusal::Panic };
        Self { settings, sealable: PhantomData }
    }

    common_options! {
        name,
        ///
        /// A page is charged when the first block reaches it. When the value is sealed, pages that
        /// hold nothing are credited.
        budget,
        maximum,
        on_refusal,
    }

    /// Builds a value as [`Sealed::new`] does.
    ///
    /// # Panics
    /// If `init` panics. Panics or ends the process if [`try_new`](Self::try_new) returns an error:
    /// see [`AllocError`](crate::AllocError).
    #[must_use]
    #[track_caller]
    pub fn build(self, init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>) -> Sealed<T> {
        or_fail(self.try_new(init))
    }

    /// Builds a value as [`Sealed::try_new`] does.
    ///
    /// # Errors
    /// As [`Sealed::try_new`], and [`ErrorKind::NameTooLong`](crate::ErrorKind).
    pub fn try_new(
        self,
        init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>,
    ) -> Result<Sealed<T>, AllocError> {
        self.try_build(|sealer| Ok(init(sealer)))
    }

    /// Builds a value as [`Sealed::try_build`] does.
    ///
    /// # Errors
    /// As [`Sealed::try_build`], and [`ErrorKind::NameTooLong`](crate::ErrorKind).
    pub fn try_build<E: From<AllocError>>(
        self,
        init: impl for<'s> FnOnce(Sealer<'s>) -> Result<T::In<'s>, E>,
    ) -> Result<Sealed<T>, E> {
        Sealed::make(self.settings, init)
    }
}

impl<T: Sealable> fmt::Debug for SealedBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
