//! What the workloads do, as plain values. The code is in the files of each kind.

use crate::peers::Service;
use crate::workloads::boxes::Handover;
use crate::workloads::collections::CollectionKind;
use crate::workloads::fixed_size::Shape;

/// What a workload does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkloadKind {
    /// Context queries.
    Query,
    /// The objects of queries.
    Objects(Objects),
    /// An allocator's own vector or strings.
    Collections(CollectionKind),
    /// Objects freed inside scopes of this number of objects.
    FreeInScope { objects: usize },
    /// Replies that grow in pieces.
    Grow,
    /// Objects of one size that belong to no task.
    FixedSize(Shape),
    /// Boxes that other threads drop than those that made them.
    Boxes(Handover),
    /// Objects of any size that belong to no task. With `remote`, other threads free some of them.
    Mixed { remote: bool },
    /// The memory of requests. With `exit`, only the ends of the requests are timed.
    Scope { exit: bool },
    /// Requests that each leave an object behind, in a cache with this number of entries.
    RequestsWithCache { entries: usize },
    /// Requests to ordinary code, which allocates from the program's global allocator.
    Handler,
    /// Trees of 2^`exponent` nodes, walked after a placement has laid out their nodes.
    TreeCopy { exponent: u32 },
    /// Requests to a server whose shared objects are protected in several ways.
    Locking,
    /// Reads of a configuration that all threads share.
    Published,
    /// A file searched by one of three programs.
    FileScan(FileSearch),
    /// Loops over the C header's inline functions.
    Inline(InlineLoop),
    /// Containers of C++.
    Container(Container),
    /// A library of another project.
    Client(Client),
}

impl WorkloadKind {
    /// What its rows must serve. `None` if they are variants, not allocators.
    pub fn service(self) -> Option<Service> {
        Some(match self {
            Self::Query | Self::Objects(_) | Self::Grow | Self::Scope { .. } => Service::Tasks,
            Self::Collections(_) => Service::Collections,
            Self::FreeInScope { .. } => Service::Scopes,
            Self::FixedSize(_) => Service::FixedSize,
            Self::Boxes(_) => Service::Boxes,
            Self::Mixed { .. } => Service::AnySize,
            Self::RequestsWithCache { .. } => Service::Requests,
            Self::Handler => Service::Global,
            Self::TreeCopy { .. } => Service::Placement,
            Self::Locking
            | Self::Published
            | Self::FileScan(_)
            | Self::Inline(_)
            | Self::Container(_)
            | Self::Client(_) => return None,
        })
    }
}

/// A library of another project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    /// A database in memory.
    Sqlite,
    /// A script.
    Lua,
    /// A document.
    Expat,
}

/// A container of C++.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Container {
    /// Vectors that grow.
    Vector,
    /// Small maps of strings.
    Map,
}

/// An allocator whose inline functions a loop calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InlineLoop {
    /// The objects of a query.
    Arena,
    /// Pairs of an allocation and a free.
    FreeList,
    /// The same.
    SlabHandle,
    /// The array allocator's stress test, with that allocator's own functions.
    Stress,
}

/// A program that searches a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSearch {
    /// A system call for each byte.
    Read,
    /// One byte at a time from a buffer.
    Buffered,
    /// The mapped file.
    Mapped,
}

/// The objects of queries with this number of dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Objects {
    pub dimensions: usize,
    /// Whether they are structures, or else words.
    pub structures: bool,
    /// Whether only the first query of each thread is measured.
    pub cold: bool,
}

/// The objects of `query-alloc`.
pub(crate) const QUERY_ALLOC: Objects =
    Objects { dimensions: DIMENSIONS, structures: false, cold: false };

/// The dimensions of a query in `query-alloc` and in `c-arena`.
pub(crate) const DIMENSIONS: usize = 100_000;
