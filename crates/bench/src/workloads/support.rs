//! Which rows can't run which workloads, and why.

use crate::console::print::listed;
use crate::peers::{About, FreedBy};
use crate::workloads::catalogue::catalogue;
use crate::workloads::fixed_size::Shape;
use crate::workloads::global;
use crate::workloads::kind::WorkloadKind;
use crate::workloads::run_error::{RunError, Unsupported};
use crate::workloads::subject::Subject;
use crate::workloads::variant::Variant;
use crate::workloads::workload::Workload;
use std::fmt;

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(unknown) => unknown.fmt(f),
            Self::Unsupported { row, workload, lacks } => {
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

impl Unsupported {
    /// Whether the reason is obvious from the kinds of row and workload. Such a reason is reported
    /// only if the row was requested by name.
    pub fn is_plain(self) -> bool {
        matches!(
            self,
            Self::ManyStructures
                | Self::Placement
                | Self::Allocator
                | Self::Global
                | Self::Collections
                | Self::Scopes
                | Self::Reference
        )
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::Variants(workload) => {
                let variants = Workload::named(workload).map_or(&[][..], Workload::variants);
                let names = variants.iter().map(|variant| variant.name);
                return write!(f, "the rows of {workload} are {}", listed(names));
            }
            Self::VariantOf(workload) => return write!(f, "it is a row of {workload} only"),
            Self::AnySize => "it serves a fixed set of sizes only",
            Self::SeveralSizes => "it serves objects of one size only",
            Self::OutlivingTasks => "its objects are freed when their task ends",
            Self::Shared => "each thread has one of its own, and this workload shares one",
            Self::FreesWithinTasks => "it reuses nothing before its task ends",
            Self::FreesElsewhere => "only the thread that allocated an object may free it",
            Self::Global => "it can't be a program's global allocator",
            Self::Collections => "it has no vector and no string of its own",
            Self::Scopes => "it has no scopes",
            Self::Reference => "it shows what pages of one size cost, in work on cold memory only",
            Self::EveryLayout => "it serves values of 64 B only",
            Self::SeveralThreads => "it serves one thread only",
            Self::ManyStructures => "there is one for each tree, and only many-trees has many",
            Self::Placement => "it is an allocator, and this workload compares layouts of a tree",
            Self::Allocator => "it is a layout of a tree, for tree-copy only",
        })
    }
}

/// Checks that a workload can run with this row and this number of threads. The error is what the
/// row lacks.
pub fn can_run(workload: &Workload, subject: Subject, threads: usize) -> Result<(), Unsupported> {
    let has = |workload: &Workload, variant: &Variant| {
        workload.variants().iter().any(|other| other.name == variant.name)
    };
    match subject {
        Subject::Variant(variant) if has(workload, variant) => Ok(()),
        _ if !workload.variants().is_empty() => Err(Unsupported::Variants(workload.name)),
        Subject::Variant(variant) => {
            let its = catalogue().iter().find(|workload| has(workload, variant));
            Err(Unsupported::VariantOf(its.map_or("another workload", |workload| workload.name)))
        }
        Subject::Allocator(about) => serves(about, workload, threads),
    }
}

/// [`can_run`] for an allocator, and for a workload whose rows are allocators.
fn serves(allocator: &About, workload: &Workload, threads: usize) -> Result<(), Unsupported> {
    let is_placement = allocator.kind == crate::peers::PeerKind::Placement;
    let shape = match workload.kind {
        WorkloadKind::TreeCopy { .. } if is_placement => return Ok(()),
        WorkloadKind::TreeCopy { .. } => return Err(Unsupported::Placement),
        _ if is_placement => return Err(Unsupported::Allocator),
        _ if allocator.reference && !workload.is_cold() => return Err(Unsupported::Reference),
        WorkloadKind::Handler if allocator.global => return Ok(()),
        WorkloadKind::Handler => return Err(Unsupported::Global),
        WorkloadKind::Collections(_) if allocator.collections => return Ok(()),
        WorkloadKind::Collections(_) => return Err(Unsupported::Collections),
        WorkloadKind::FreeInScope { .. } if allocator.scopes => return Ok(()),
        WorkloadKind::FreeInScope { .. } => return Err(Unsupported::Scopes),
        WorkloadKind::Objects(_) if !allocator.tasks => return Err(Unsupported::SeveralSizes),
        WorkloadKind::Mixed { remote } => {
            return match allocator.lasting {
                Some(FreedBy::ItsThread) if remote => Err(Unsupported::FreesElsewhere),
                Some(_) => Ok(()),
                None if allocator.tasks => Err(Unsupported::OutlivingTasks),
                None => Err(Unsupported::SeveralSizes),
            };
        }
        _ if workload.has_tasks() && !allocator.tasks => return Err(Unsupported::SeveralSizes),
        WorkloadKind::Query | WorkloadKind::Grow | WorkloadKind::Scope { .. }
            if !allocator.any_size =>
        {
            return Err(Unsupported::AnySize);
        }
        WorkloadKind::Scope { .. } if !allocator.frees_within_tasks => {
            return Err(Unsupported::FreesWithinTasks);
        }
        WorkloadKind::Query
        | WorkloadKind::Grow
        | WorkloadKind::Scope { .. }
        | WorkloadKind::Objects(_) => return Ok(()),
        WorkloadKind::FixedSize(shape) => shape,
        WorkloadKind::Inline(_)
        | WorkloadKind::Container(_)
        | WorkloadKind::Client(_)
        | WorkloadKind::Locking
        | WorkloadKind::Published
        | WorkloadKind::FileScan(_) => {
            return Err(Unsupported::Variants(workload.name));
        }
    };
    match allocator.fixed_size {
        None if allocator.lasting.is_some() => Err(Unsupported::Shared),
        None => Err(Unsupported::OutlivingTasks),
        _ if allocator.one_for_each_structure && !matches!(shape, Shape::ManyTrees(_)) => {
            Err(Unsupported::ManyStructures)
        }
        Some(serves) if !shape.is_of_objects() && !serves.every_layout => {
            Err(Unsupported::EveryLayout)
        }
        Some(serves) if threads > 1 && !serves.several_threads => Err(Unsupported::SeveralThreads),
        Some(_) => Ok(()),
    }
}
