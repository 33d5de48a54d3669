//! `SealedBuilder`: the options of a sealed value.

use core::fmt;
use core::marker::PhantomData;

use super::sealable::Sealable;
use super::sealer::Sealer;
use super::typed::Sealed;
use crate::error::{AllocError, or_fail};
use crate::options::{CommonSettings, common_options};

/// The options of a sealed value. It has none of its own.
#[derive(Debug)]
pub(super) struct SealedSettings {
    pub common: CommonSettings,
}

/// Builds a [`Sealed`] with options. [`Sealed::builder`] returns one.
///
/// It has neither `source` nor `release`: sealed memory has pages of its own, which are released
/// whole. It has no `hardened`: the hardware refuses every write. It has no `report_live`: a sealed
/// value's objects end with it.
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

/// # Options
impl<T: Sealable> Sealed<T> {
    /// Starts building a value with options.
    pub const fn builder() -> SealedBuilder<T> {
        SealedBuilder::new()
    }
}

impl<T: Sealable> SealedBuilder<T> {
    const fn new() -> Self {
        let settings = SealedSettings { common: CommonSettings::DEFAULT };
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
    /// If `init` panics. Panics or ends the process if [`try_build`](Self::try_build) returns an
    /// error of the allocator: see [`AllocError`](crate::AllocError).
    #[must_use]
    #[track_caller]
    pub fn build(self, init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>) -> Sealed<T> {
        or_fail(self.try_build(|sealer| Ok(init(sealer))))
    }

    /// Builds a value as [`Sealed::try_new`] does.
    ///
    /// # Errors
    /// As [`Sealed::try_new`], and [`ErrorKind::NameTooLong`](crate::ErrorKind).
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
