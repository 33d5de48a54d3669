//! The options that several allocators have. An option has one meaning, one default, and one
//! sentence that says both, wherever it appears; a builder adds what is particular to its
//! allocator.
//!
//! | option | absent from | because |
//! |---|---|---|
//! | `source`, `huge_pages` | pools, sealed memory | all pools share one range of addresses; sealed memory needs pages of its own |
//! | `release` | sealed memory | it is released whole |
//! | `hardened` | sealed memory | the hardware refuses every write |
//! | `report_live` | arenas, reaps, sealed memory | their objects end with them |
//! | `on_refusal` | free lists, slabs | they implement no `Allocator` |
//!
//! Pools and reaps have `initial`, `increment` and `reserved`, too.
//!
//! A builder that uses the macros has a field `settings`, which has a field `common`.

use alloc::boxed::Box;

#[cfg(system_memory)]
use crate::error::AllocError;
use crate::error::OnRefusal;
use crate::memory::budget::Budget;
use crate::memory::release::Release;
use crate::memory::source::SharedSource;

/// The values of the options that several allocators have. Options that an allocator lacks keep
/// their defaults.
#[derive(Clone, Debug)]
pub(crate) struct CommonSettings {
    pub name: Option<Box<str>>,
    pub source: SharedSource,
    pub release: Release,
    pub budget: Option<Budget>,
    pub on_refusal: OnRefusal,
    pub hardened: bool,
    #[cfg(feature = "std")]
    pub report_live: Option<bool>,
}

impl CommonSettings {
    pub(crate) const DEFAULT: Self = Self {
        name: None,
        source: SharedSource::DEFAULT,
        release: Release::Adaptive,
        budget: None,
        on_refusal: OnRefusal::Panic,
        hardened: false,
        #[cfg(feature = "std")]
        report_live: None,
    };

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether dropping the allocator reports live objects.
    #[cfg(feature = "std")]
    pub(crate) fn reports_live(&self) -> bool {
        self.report_live.unwrap_or(self.hardened)
    }

    /// Whether chunks come from the recycler and go back to it. Those of a hardened allocator
    /// don't, so that an access to a chunk that was given back faults.
    pub(crate) fn recycles(&self) -> bool {
        self.release != Release::AtOnce && !self.hardened
    }

    /// Charges the budget, if there is one.
    #[cfg(system_memory)]
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        self.budget.as_ref().map_or(Ok(()), |budget| budget.charge(bytes))
    }

    /// Credits the budget, if there is one.
    pub(crate) fn credit(&self, bytes: usize) {
        if let Some(budget) = &self.budget {
            budget.credit(bytes);
        }
    }
}

/// Defines the methods of a builder for these options. What is documented before an option's name
/// follows the option's own sentences.
macro_rules! common_options {
    ($($(#[$detail:meta])* $option:ident,)*) => {
        $($crate::options::common_option! { $option, $(#[$detail])* })*
    };
}

macro_rules! common_option {
    (name, $(#[$detail:meta])*) => {
        /// Names the allocator, for [`report`](crate::report()) and for messages. A name has at
        /// most [`MAX_NAME_LEN`](crate::MAX_NAME_LEN) bytes. Names need not be unique.
        $(#[$detail])*
        pub fn name(mut self, name: impl Into<alloc::boxed::Box<str>>) -> Self {
            self.settings.common.name = Some(name.into());
            self
        }
    };
    (source, $(#[$detail:meta])*) => {
        /// Sets the source of the allocator's memory. The default is anonymous mappings
        /// ([`Mmap`](crate::Mmap)).
        $(#[$detail])*
        pub fn source(mut self, source: impl Into<crate::memory::source::SharedSource>) -> Self {
            self.settings.common.source = source.into();
            self
        }
    };
    (huge_pages, $(#[$detail:meta])*) => {
        /// Takes memory in units of 2 MiB and more, and advises the system to use huge pages. Short
        /// for `source(Mmap::huge_pages())`.
        $(#[$detail])*
        pub fn huge_pages(self) -> Self {
            self.source(crate::Mmap::huge_pages())
        }
    };
    (release, $(#[$detail:meta])*) => {
        /// Sets when empty memory goes back to the system. The default is
        /// [`Release::Adaptive`](crate::Release::Adaptive).
        $(#[$detail])*
        pub fn release(mut self, release: crate::Release) -> Self {
            self.settings.common.release = release;
            self
        }
    };
    (budget, $(#[$detail:meta])*) => {
        /// Limits the bytes held, structures included. A refused charge is
        /// [`ErrorKind::BudgetExceeded`](crate::ErrorKind::BudgetExceeded): an error of a `try_`
        /// call, and a panic in any other call.
        $(#[$detail])*
        pub fn budget(mut self, budget: &crate::Budget) -> Self {
            self.settings.common.budget = Some(budget.clone());
            self
        }
    };
    (maximum, $(#[$detail:meta])*) => {
        /// Limits the bytes held, with a [`Budget`](crate::Budget) of the allocator's own. If a
        /// budget was set before, the new one is its child, and both limits hold. A maximum of 0
        /// refuses every byte; for no limit, leave the option out.
        $(#[$detail])*
        pub fn maximum(mut self, bytes: usize) -> Self {
            self.settings.common.budget = Some(match &self.settings.common.budget {
                Some(budget) => budget.child(bytes),
                None => crate::Budget::new(bytes),
            });
            self
        }
    };
    (on_refusal, $(#[$detail:meta])*) => {
        /// Sets what the `Allocator` traits do when a limit refuses. The default is
        /// [`OnRefusal::Panic`](crate::OnRefusal::Panic). The allocator's own calls don't depend on
        /// it.
        $(#[$detail])*
        pub fn on_refusal(mut self, on_refusal: crate::OnRefusal) -> Self {
            self.settings.common.on_refusal = on_refusal;
            self
        }
    };
    (hardened, $(#[$detail:meta])*) => {
        /// Switches hardened mode on or off. The default is off. Hardened mode detects misuse,
        /// prints what it found to standard error, and aborts. Every call takes a slow path.
        ///
        /// The first hardened allocator of a process registers fork handlers: a fork waits until no
        /// other thread holds a lock of one, so that a child can use it. If there is no memory for
        /// the handlers, building the allocator fails.
        $(#[$detail])*
        pub fn hardened(mut self, hardened: bool) -> Self {
            self.settings.common.hardened = hardened;
            self
        }
    };
    (report_live, $(#[$detail:meta])*) => {
        /// Whether dropping the allocator while objects are live reports them on standard error.
        /// The default is yes in hardened mode and no otherwise.
        $(#[$detail])*
        pub fn report_live(mut self, report: bool) -> Self {
            self.settings.common.report_live = Some(report);
            self
        }
    };
    (initial, $(#[$detail:meta])*) => {
        /// Sets the minimum size of the first chunk in bytes. The default is 64 KiB. A smaller
        /// chunk is taken if this size is refused.
        $(#[$detail])*
        pub fn initial(mut self, bytes: usize) -> Self {
            self.settings.initial = bytes;
            self
        }
    };
    (increment, $(#[$detail:meta])*) => {
        /// Sets the minimum size of each further chunk in bytes. By default, or with 0, chunks
        /// double up to 1 MiB.
        $(#[$detail])*
        pub fn increment(mut self, bytes: usize) -> Self {
            self.settings.increment = (bytes > 0).then_some(bytes);
            self
        }
    };
    (reserved, $(#[$detail:meta])*) => {
        /// Allocates a chunk for `bytes` bytes of blocks when the allocator is built, and faults
        /// its pages in.
        $(#[$detail])*
        pub fn reserved(mut self, bytes: usize) -> Self {
            self.settings.reserved = bytes;
            self
        }
    };
}

/// Defines `build`, the infallible twin of a builder's `try_build`.
macro_rules! build_call {
    ($what:literal, $built:ty) => {
        #[doc = concat!("Builds the ", $what, ".")]
        ///
        /// # Panics
        /// Panics or ends the process if [`try_build`](Self::try_build) returns an error: see
        /// [`AllocError`](crate::AllocError).
        #[must_use]
        #[track_caller]
        pub fn build(self) -> $built {
            $crate::error::or_fail(self.try_build())
        }
    };
}

/// Defines `new` and `try_new`, which build with the default options. The attributes document the
/// errors of `try_new`.
macro_rules! new_calls {
    ($what:literal $(, $layout:ident: $type:ty)?; $(#[$errors:meta])*) => {
        #[doc = concat!("Makes a ", $what, " with the default options.")]
        /// It takes no memory for objects yet.
        ///
        /// # Panics
        /// Panics or ends the process if [`try_new`](Self::try_new) returns an error: see
        /// [`AllocError`](crate::AllocError).
        #[must_use]
        #[track_caller]
        pub fn new($($layout: $type)?) -> Self {
            $crate::error::or_fail(Self::try_new($($layout)?))
        }

        /// Fallible version of [`new`](Self::new).
        ///
        /// # Errors
        $(#[$errors])*
        pub fn try_new($($layout: $type)?) -> Result<Self, AllocError> {
            Self::builder($($layout)?).try_build()
        }
    };
}

pub(crate) use {build_call, common_option, common_options, new_calls};
