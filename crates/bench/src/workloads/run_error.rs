//! Why a workload can't run. The texts are written where the tables of rows are known: in `support`
//! and `subject`.

use crate::peers::{MissingService, UnknownAllocator};
use crate::workloads::setting::Threads;
use crate::workloads::workload::Workload;
use std::io;

/// Why a run did not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunError {
    /// There is no row of this name.
    Unknown(UnknownRow),
    /// The allocator can't run the workload, or the variant belongs to another workload.
    Unsupported {
        /// The allocator or the variant.
        row: &'static str,
        /// The workload.
        workload: &'static str,
        /// What the row lacks.
        lacks: Unsupported,
    },
    /// The workload does not run with this number of threads.
    Threads {
        /// The workload.
        workload: &'static str,
        /// The numbers of threads that it needs.
        needed: Threads,
    },
    /// The workload measures the program's global allocator, and that is another one.
    Global {
        /// The allocator.
        allocator: &'static str,
        /// The workload.
        workload: &'static str,
        /// The program's global allocator, if this crate knows it.
        in_use: Option<&'static str>,
    },
    /// This build lacks what the row needs.
    Missing {
        /// The workload.
        workload: &'static str,
        /// How to get it.
        what: &'static str,
    },
    /// The library that does the work reported an error.
    Failed {
        /// The workload.
        workload: &'static str,
        /// The library's message.
        why: String,
    },
    /// The file to search could not be created or read.
    File {
        /// Why.
        why: String,
    },
}

impl RunError {
    /// The refusal in a build without rows in C.
    #[cfg(not(feature = "fast-peers"))]
    pub(crate) fn without_c(workload: &Workload) -> Self {
        Self::Missing {
            workload: workload.name,
            what: "build with the default features, or with --features fast-peers",
        }
    }

    pub(crate) fn file(error: &io::Error) -> Self {
        Self::File { why: error.to_string() }
    }
}

/// What a workload needs and a row lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unsupported {
    /// What the allocator would have to serve.
    Service(MissingService),
    /// Its objects have a fixed set of sizes.
    AnySize,
    /// Its tasks don't reuse memory before they end.
    FreesWithinTasks,
    /// Only the allocating thread may free an object.
    FreesElsewhere,
    /// It is a reference for work on cold memory.
    Reference,
    /// It stores values of one size only.
    EveryLayout,
    /// It serves one thread only.
    SeveralThreads,
    /// There is one for each data structure, and the workload has at most one structure.
    ManyStructures,
    /// The workload compares variants of its own.
    Variants(&'static str),
    /// It is a variant of another workload, the one named here.
    VariantOf(&'static str),
}

/// The error if there is no row of that name. Its text lists the rows of the requested workloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownRow {
    pub(crate) unknown: UnknownAllocator,
    pub(crate) with_variants: Vec<&'static Workload>,
    pub(crate) with_allocators: bool,
}

impl From<UnknownAllocator> for UnknownRow {
    fn from(unknown: UnknownAllocator) -> Self {
        Self { unknown, with_variants: Vec::new(), with_allocators: true }
    }
}

impl std::error::Error for UnknownRow {}

impl std::error::Error for RunError {}

impl From<UnknownRow> for RunError {
    fn from(unknown: UnknownRow) -> Self {
        Self::Unknown(unknown)
    }
}

impl From<UnknownAllocator> for RunError {
    fn from(unknown: UnknownAllocator) -> Self {
        Self::Unknown(unknown.into())
    }
}
