//! Which rows can't run which workloads, and why.

use crate::console::print::listed;
use crate::peers::{About, FreedBy, Service};
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
        match self {
            Self::Service(lack) => lack.is_plain,
            _ => matches!(self, Self::ManyStructures | Self::Reference),
        }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::Service(lack) => lack.why,
            Self::Variants(workload) => {
                let variants = Workload::named(workload).map_or(&[][..], Workload::variants);
                let names = variants.iter().map(|variant| variant.name);
                return write!(f, "the rows of {workload} are {}", listed(names));
            }
            Self::VariantOf(workload) => return write!(f, "it is a row of {workload} only"),
            Self::AnySize => "it serves a fixed set of sizes only",
            Self::FreesWithinTasks => "it reuses nothing before its task ends",
            Self::FreesElsewhere => "only the thread that allocated an object may free it",
            Self::Reference => "it shows what pages of one size cost, in work on cold memory only",
            Self::EveryLayout => "it serves values of 64 B only",
            Self::SeveralThreads => "it serves one thread only",
            Self::ManyStructures => "there is one for each tree, and only many-trees has many",
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

/// [`can_run`] for an allocator.
fn serves(allocator: &About, workload: &Workload, threads: usize) -> Result<(), Unsupported> {
    let Some(service) = workload.kind.service() else {
        return Err(Unsupported::Variants(workload.name));
    };
    let lacks = match (service, workload.kind) {
        _ if allocator.reference && !workload.is_cold() => Unsupported::Reference,
        _ if !allocator.serves(service) => Unsupported::Service(allocator.lack(service)),
        (Service::AnySize, WorkloadKind::Mixed { remote: true })
            if allocator.freed_by == FreedBy::ItsThread =>
        {
            Unsupported::FreesElsewhere
        }
        (Service::Tasks, WorkloadKind::Query | WorkloadKind::Grow | WorkloadKind::Scope { .. })
            if !allocator.any_size =>
        {
            Unsupported::AnySize
        }
        (_, WorkloadKind::Scope { .. }) if !allocator.frees_within_tasks => {
            Unsupported::FreesWithinTasks
        }
        (_, WorkloadKind::FixedSize(shape))
            if allocator.one_for_each_structure && !matches!(shape, Shape::ManyTrees(_)) =>
        {
            Unsupported::ManyStructures
        }
        (_, WorkloadKind::FixedSize(shape))
            if !shape.is_of_objects() && !allocator.every_layout =>
        {
            Unsupported::EveryLayout
        }
        (Service::FixedSize, _) if threads > 1 && !allocator.several_threads => {
            Unsupported::SeveralThreads
        }
        _ => return Ok(()),
    };
    Err(lacks)
}
