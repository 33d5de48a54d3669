//! The options that the builders of several allocators have. An option has one meaning, and one
//! sentence that says it, wherever it appears; a builder adds what is particular to its allocator.
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
//! A builder that uses the macro has a field `settings` with a field for each of its options.

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
        pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
            self.settings.name = Some(name.into());
            self
        }
    };
    (source, $(#[$detail:meta])*) => {
        /// Sets the source of the allocator's memory. The default is anonymous mappings
        /// ([`Mmap`](crate::Mmap)).
        $(#[$detail])*
        pub fn source(mut self, source: impl Into<crate::SharedSource>) -> Self {
            self.settings.source = source.into();
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
            self.settings.release = release;
            self
        }
    };
    (budget, $(#[$detail:meta])*) => {
        /// Limits the bytes held, structures included. A refused charge is
        /// [`ErrorKind::BudgetExceeded`](crate::ErrorKind::BudgetExceeded): an error of a `try_`
        /// call, and a panic in any other call.
        $(#[$detail])*
        pub fn budget(mut self, budget: &crate::Budget) -> Self {
            self.settings.budget = Some(budget.clone());
            self
        }
    };
    (maximum, $(#[$detail:meta])*) => {
        /// Limits the bytes held, with a [`Budget`](crate::Budget) of the allocator's own. If a
        /// budget was set before, the new one is its child, and both limits hold.
        $(#[$detail])*
        pub fn maximum(mut self, bytes: usize) -> Self {
            self.settings.budget = Some(match &self.settings.budget {
                Some(budget) => budget.child(bytes),
                None => crate::Budget::new(bytes),
            });
            self
        }
    };
    (on_refusal, $(#[$detail:meta])*) => {
        /// Sets what the `Allocator` traits do when the budget refuses. The default is
        /// [`OnRefusal::Panic`](crate::OnRefusal::Panic). The allocator's own calls don't depend on
        /// it.
        $(#[$detail])*
        pub fn on_refusal(mut self, on_refusal: crate::OnRefusal) -> Self {
            self.settings.on_refusal = on_refusal;
            self
        }
    };
    (hardened, $(#[$detail:meta])*) => {
        /// Switches hardened mode on or off. The default is off. Hardened mode detects misuse,
        /// prints what it found to standard error, and aborts. Every call takes a slow path.
        $(#[$detail])*
        pub fn hardened(mut self, hardened: bool) -> Self {
            self.settings.hardened = hardened;
            self
        }
    };
    (report_live, $(#[$detail:meta])*) => {
        /// Whether dropping the allocator while objects are live reports them on standard error.
        $(#[$detail])*
        pub fn report_live(mut self, report: bool) -> Self {
            self.settings.report_live = Some(report);
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

pub(crate) use {common_option, common_options};
