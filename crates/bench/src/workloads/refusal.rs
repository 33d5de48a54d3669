//! Which rows can't run which workloads, and why.

use crate::peers::{About, FreedBy, UnknownAllocator};
use crate::workloads::catalogue::{Kind, Threads, Workload, catalogue};
use crate::workloads::contender::{Contender, UnknownRow, listed};
use crate::workloads::fixed_size::Shape;
use crate::workloads::global;
use crate::workloads::ways::Way;
use std::{fmt, io};

/// Why a run did not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no row of this name.
    Unknown(UnknownRow),
    /// The allocator can't run the workload, or the way belongs to another workload.
    Unable {
        /// The allocator or the way.
        row: &'static str,
        /// The workload.
        workload: &'static str,
        /// What the row lacks.
        lacks: Unable,
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

impl Refusal {
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(unknown) => unknown.fmt(f),
            Self::Unable { row, workload, lacks } => {
                write!(f, "'{row}' can't run '{workload}': {lacks}")
            }
            Self::Threads { workload, needed } => {
                write!(f, "'{workload}' needs {needed}: {}", needed.meaning)
            }
            Self::Global { allocator, workload, in_use } => {
                let variable = global::VARIABLE;
                let in_use = in_use.unwrap_or("another allocator");
                write!(
                    f,
                    "'{workload}' measures this program's global allocator, which is {in_use}: start it with \
                     {variable}={allocator}"
                )
            }
            Self::Missing { workload, what } => {
                write!(f, "'{workload}' is not in this build: {what}")
            }
            Self::Failed { workload, why } => write!(f, "'{workload}' failed: {why}"),
            Self::File { why } => write!(
                f,
                "can't create or search the word list in '{}': {why}; set TMPDIR to another directory",
                std::env::temp_dir().display()
            ),
        }
    }
}

/// What a workload needs and a row lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unable {
    /// Its objects have a fixed set of sizes.
    AnySize,
    /// Its objects are all of one size.
    SeveralSizes,
    /// Its objects are freed when their task ends.
    OutlivingTasks,
    /// Each thread has an allocator of its own, and the workload shares one.
    Shared,
    /// Its tasks don't reuse memory before they end.
    FreesWithinTasks,
    /// Only the allocating thread may free an object.
    FreesElsewhere,
    /// It can't be a program's global allocator.
    Global,
    /// It stores values of one size only.
    EveryLayout,
    /// It serves one thread only.
    SeveralThreads,
    /// There is one for each data structure, and the workload has at most one structure.
    ManyStructures,
    /// It is an allocator, and the workload compares placements.
    Placement,
    /// It is a placement.
    Allocator,
    /// The workload compares ways of its own.
    Ways(&'static str),
    /// It is a way of another workload, the one named here.
    WayOf(&'static str),
}

impl Unable {
    /// Whether the reason is obvious from the kinds of row and workload. Such a reason is reported
    /// only if the row was requested by name.
    pub fn is_plain(self) -> bool {
        matches!(self, Self::ManyStructures | Self::Placement | Self::Allocator | Self::Global)
    }
}

impl fmt::Display for Unable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::Ways(workload) => {
                let ways = Workload::named(workload).map_or(&[][..], Workload::ways);
                return write!(f, "the rows of {workload} are {}", listed(ways));
            }
            Self::WayOf(workload) => return write!(f, "it is a row of {workload} only"),
            Self::AnySize => "it serves a fixed set of sizes only",
            Self::SeveralSizes => "it serves objects of one size only",
            Self::OutlivingTasks => "its objects are freed when their task ends",
            Self::Shared => "each thread has one of its own, and this workload shares one",
            Self::FreesWithinTasks => "it reuses nothing before its task ends",
            Self::FreesElsewhere => "only the thread that allocated an object may free it",
            Self::Global => "it can't be a program's global allocator",
            Self::EveryLayout => "it serves values of 64 B only",
            Self::SeveralThreads => "it serves one thread only",
            Self::ManyStructures => "there is one for each tree, and only many-trees has many",
            Self::Placement => "it is an allocator, and this workload compares layouts of a tree",
            Self::Allocator => "it is a layout of a tree, for tree-copy only",
        })
    }
}

impl std::error::Error for Refusal {}

impl From<UnknownRow> for Refusal {
    fn from(unknown: UnknownRow) -> Self {
        Self::Unknown(unknown)
    }
}

impl From<UnknownAllocator> for Refusal {
    fn from(unknown: UnknownAllocator) -> Self {
        Self::Unknown(unknown.into())
    }
}

/// Checks that a workload can run with this row and this number of threads. The error is what the
/// row lacks.
pub fn can_run(workload: &Workload, contender: Contender, threads: usize) -> Result<(), Unable> {
    let has =
        |workload: &Workload, way: &Way| workload.ways().iter().any(|other| other.name == way.name);
    match contender {
        Contender::Way(way) if has(workload, way) => Ok(()),
        _ if !workload.ways().is_empty() => Err(Unable::Ways(workload.name)),
        Contender::Way(way) => {
            let its = catalogue().iter().find(|workload| has(workload, way));
            Err(Unable::WayOf(its.map_or("another workload", |workload| workload.name)))
        }
        Contender::Allocator(about) => serves(about, workload, threads),
    }
}

/// [`can_run`] for an allocator, and for a workload whose rows are allocators.
fn serves(allocator: &About, workload: &Workload, threads: usize) -> Result<(), Unable> {
    let is_placement = allocator.kind == crate::peers::Kind::Placement;
    let shape = match workload.kind {
        Kind::TreeCopy { .. } if is_placement => return Ok(()),
        Kind::TreeCopy { .. } => return Err(Unable::Placement),
        _ if is_placement => return Err(Unable::Allocator),
        Kind::Handler if allocator.global => return Ok(()),
        Kind::Handler => return Err(Unable::Global),
        Kind::Mixed { remote } => {
            return match allocator.lasting {
                Some(FreedBy::ItsThread) if remote => Err(Unable::FreesElsewhere),
                Some(_) => Ok(()),
                None if allocator.tasks => Err(Unable::OutlivingTasks),
                None => Err(Unable::SeveralSizes),
            };
        }
        _ if workload.has_tasks() && !allocator.tasks => return Err(Unable::SeveralSizes),
        Kind::Query | Kind::Grow | Kind::Scope { .. } if !allocator.any_size => {
            return Err(Unable::AnySize);
        }
        Kind::Scope { .. } if !allocator.frees_within_tasks => {
            return Err(Unable::FreesWithinTasks);
        }
        Kind::Query | Kind::Grow | Kind::Scope { .. } | Kind::Objects { .. } => return Ok(()),
        Kind::FixedSize(shape) => shape,
        Kind::Inline(_)
        | Kind::Container(_)
        | Kind::Client(_)
        | Kind::Categories
        | Kind::Published
        | Kind::Letters(_) => {
            return Err(Unable::Ways(workload.name));
        }
    };
    match allocator.fixed_size {
        None if allocator.lasting.is_some() => Err(Unable::Shared),
        None => Err(Unable::OutlivingTasks),
        _ if allocator.one_for_each_structure && !matches!(shape, Shape::ManyTrees(_)) => {
            Err(Unable::ManyStructures)
        }
        Some(serves) if !shape.is_of_objects() && !serves.every_layout => Err(Unable::EveryLayout),
        Some(serves) if threads > 1 && !serves.several_threads => Err(Unable::SeveralThreads),
        Some(_) => Ok(()),
    }
}
