//! The options of sealed memory.

use core::fmt;
use core::marker::PhantomData;

use super::sealable::Sealable;
use super::sealer::Sealer;
use super::typed::Sealed;
use crate::error::{AllocError, Report};
use crate::memory::budget::Budget;

/// Makes a [`Sealed`] with options; [`Sealed::builder`] begins one.
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

    /// Names it, for [`report`](crate::report()) and [`owner_of`](crate::owner_of()). At most
    /// [`MAX_NAME_LEN`](crate::MAX_NAME_LEN) bytes. Names need not be unique.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Caps the bytes held, page by page: a page is charged when the first block reaches it, one that holds nothing in the
    /// end is credited when the value is sealed. A refused charge is [`ErrorKind::BudgetExceeded`](crate::ErrorKind).
    pub fn budget(mut self, budget: &Budget) -> Self {
        self.budget = Some(budget.clone());
        self
    }

    /// Builds a value as [`Sealed::new`] does.
    ///
    /// # Panics
    /// If `init` does. Aborts where [`try_new`](Self::try_new) returns an error.
    #[must_use]
    pub fn build(self, init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>) -> Sealed<T> {
        Sealed::make_always(self.name.as_deref(), self.budget, init)
    }

    /// Builds a value as [`Sealed::try_new`] does.
    ///
    /// # Errors
    /// As there; a name that is too long.
    pub fn try_new(
        self,
        init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>,
    ) -> Result<Sealed<T>, AllocError> {
        Sealed::make_or::<Report>(self.name.as_deref(), self.budget, init)
    }

    /// Builds a value as [`Sealed::try_build`] does.
    ///
    /// # Errors
    /// As there; a name that is too long.
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
