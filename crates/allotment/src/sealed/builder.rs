//! `SealedBuilder`: the options of a sealed value.

use core::fmt;
use core::marker::PhantomData;

use super::sealable::Sealable;
use super::sealer::Sealer;
use super::typed::Sealed;
use crate::error::{AllocError, ReturnError};
use crate::memory::budget::Budget;
use crate::options::common_options;

/// The options of a sealed value.
#[derive(Debug)]
struct SealedSettings {
    name: Option<Box<str>>,
    budget: Option<Budget>,
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
        Self { settings: SealedSettings { name: None, budget: None }, sealable: PhantomData }
    }

    common_options! {
        name,
        ///
        /// A page is charged when the first block reaches it. When the value is sealed, pages that hold
        /// nothing are credited.
        budget,
        maximum,
    }

    /// Builds a value as [`Sealed::new`] does.
    ///
    /// # Panics
    /// If `init` panics. Aborts where [`try_new`](Self::try_new) returns an error.
    #[must_use]
    pub fn build(self, init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>) -> Sealed<T> {
        Sealed::make_always(self.settings.name.as_deref(), self.settings.budget, init)
    }

    /// Builds a value as [`Sealed::try_new`] does.
    ///
    /// # Errors
    /// As [`Sealed::try_new`], and [`ErrorKind::NameTooLong`](crate::ErrorKind).
    pub fn try_new(
        self,
        init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>,
    ) -> Result<Sealed<T>, AllocError> {
        Sealed::make_or::<ReturnError>(self.settings.name.as_deref(), self.settings.budget, init)
    }

    /// Builds a value as [`Sealed::try_build`] does.
    ///
    /// # Errors
    /// As [`Sealed::try_build`], and [`ErrorKind::NameTooLong`](crate::ErrorKind).
    pub fn try_build<E: From<AllocError>>(
        self,
        init: impl for<'s> FnOnce(Sealer<'s>) -> Result<T::In<'s>, E>,
    ) -> Result<Sealed<T>, E> {
        Sealed::make(self.settings.name.as_deref(), self.settings.budget, init)
    }
}

impl<T: Sealable> fmt::Debug for SealedBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
