//! `SealedBuilder`: the options of a sealed value.

use core::fmt;
use core::marker::PhantomData;

use super::sealable::Sealable;
use super::sealer::Sealer;
use super::typed::Sealed;
use crate::error::{AllocError, Report};
use crate::memory::budget::Budget;

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
    name: Option<Box<str>>,
    budget: Option<Budget>,
    sealable: PhantomData<fn() -> T>,
}

impl<T: Sealable> SealedBuilder<T> {
    pub(super) const fn new() -> Self {
        Self { name: None, budget: None, sealable: PhantomData }
    }

    /// Sets the name that [`report`](crate::report()) and [`owner_of`](crate::owner_of()) show. It
    /// has at most [`MAX_NAME_LEN`](crate::MAX_NAME_LEN) bytes. Names need not be unique.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Limits the bytes held, page by page. A page is charged when the first block reaches it. When
    /// the value is sealed, pages that hold nothing are credited. A refused charge is an
    /// [`ErrorKind::BudgetExceeded`](crate::ErrorKind) error.
    pub fn budget(mut self, budget: &Budget) -> Self {
        self.budget = Some(budget.clone());
        self
    }

    /// Builds a value as [`Sealed::new`] does.
    ///
    /// # Panics
    /// If `init` panics. Aborts where [`try_new`](Self::try_new) returns an error.
    #[must_use]
    pub fn build(self, init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>) -> Sealed<T> {
        Sealed::make_always(self.name.as_deref(), self.budget, init)
    }

    /// Builds a value as [`Sealed::try_new`] does.
    ///
    /// # Errors
    /// As [`Sealed::try_new`], and [`ErrorKind::NameTooLong`](crate::ErrorKind).
    pub fn try_new(
        self,
        init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>,
    ) -> Result<Sealed<T>, AllocError> {
        Sealed::make_or::<Report>(self.name.as_deref(), self.budget, init)
    }

    /// Builds a value as [`Sealed::try_build`] does.
    ///
    /// # Errors
    /// As [`Sealed::try_build`], and [`ErrorKind::NameTooLong`](crate::ErrorKind).
    pub fn try_build<E: From<AllocError>>(
        self,
        init: impl for<'s> FnOnce(Sealer<'s>) -> Result<T::In<'s>, E>,
    ) -> Result<Sealed<T>, E> {
        Sealed::make(self.name.as_deref(), self.budget, init)
    }
}

impl<T: Sealable> fmt::Debug for SealedBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedBuilder")
            .field("name", &self.name)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}
