//! The list of workloads, and the settings in which each of them runs.

mod table;

use crate::workloads::boxes::Handover;
use crate::workloads::c::containers;
use crate::workloads::collections::CollectionKind;
use crate::workloads::fixed_size::{Boundary, Shape};
use crate::workloads::kind::{DIMENSIONS, InlineLoop, Objects, WorkloadKind};
use crate::workloads::setting::{Effort, Setting, Threads};
use crate::workloads::variant::Variant;
use crate::workloads::workload::Workload;
use crate::workloads::{locking, published};
use std::fmt;
use std::num::NonZero;
use table::CATALOGUE;

/// All workloads.
pub fn catalogue() -> &'static [Workload] {
    &CATALOGUE
}

/// The largest number of threads of a run.
pub const MOST_THREADS: usize = 1024;

/// The number of callers of the parallel `query`, and of its queries.
pub const CALLERS: usize = 256;

impl Workload {
    /// The workload called `name`.
    pub fn named(name: &str) -> Result<&'static Self, UnknownWorkload> {
        CATALOGUE
            .iter()
            .find(|workload| workload.name == name)
            .ok_or_else(|| UnknownWorkload { name: name.to_owned() })
    }

    /// The workload called `name`, or all workloads of the kind `name`: `burst` means `burst-alloc`
    /// and `burst-free`.
    pub fn all_named(name: &str) -> Result<Vec<&'static Self>, UnknownWorkload> {
        Self::named(name).map(|workload| vec![workload]).or_else(|unknown| {
            let of = |workload: &&Self| workload.family() == Some(name);
            let variants: Vec<_> = CATALOGUE.iter().filter(of).collect();
            if variants.is_empty() { Err(unknown) } else { Ok(variants) }
        })
    }

    /// The name of its kind, if there are several workloads of that kind.
    pub fn family(&self) -> Option<&'static str> {
        let (family, _) = match self.kind {
            WorkloadKind::Inline(_) => self.name.split_once('-')?,
            WorkloadKind::FixedSize(Shape::BurstAlloc { .. }) => self.name.split_once('-')?,
            _ => self.name.rsplit_once('-')?,
        };
        // A name that is a workload's own means only that workload.
        CATALOGUE.iter().all(|workload| workload.name != family).then_some(family)
    }

    /// Why this program was built without what the workload needs, and what to do about it.
    pub fn missing(&self) -> Option<&'static str> {
        match self.kind {
            WorkloadKind::Client(client) => client.missing(),
            _ => None,
        }
    }

    /// The default settings.
    pub fn settings(&self) -> Vec<Setting> {
        let threads = |counts: &[usize]| {
            counts.iter().map(|threads| Setting { threads: *threads, callers: None }).collect()
        };
        match self.kind {
            WorkloadKind::Query => {
                let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
                vec![
                    Setting { threads: 1, callers: Some(1) },
                    Setting { threads: cores.min(MOST_THREADS), callers: Some(CALLERS) },
                ]
            }
            WorkloadKind::Objects(Objects {
                dimensions: DIMENSIONS, structures: false, ..
            }) => threads(&[1, 2, 16, 64]),
            WorkloadKind::Objects(_)
            | WorkloadKind::Collections(_)
            | WorkloadKind::FreeInScope { .. }
            | WorkloadKind::Grow
            | WorkloadKind::RequestsWithCache { .. }
            | WorkloadKind::Handler => threads(&[1, 2]),
            WorkloadKind::Boxes(Handover::Channel) => threads(&[2]),
            WorkloadKind::Boxes(Handover::Batches) | WorkloadKind::Mixed { remote: true } => {
                threads(&[2, 16])
            }
            WorkloadKind::Mixed { remote: false } | WorkloadKind::Scope { .. } => {
                threads(&[1, 2, 16])
            }
            WorkloadKind::Locking | WorkloadKind::Published => threads(&[1, 2, 16]),
            WorkloadKind::TreeCopy { .. }
            | WorkloadKind::FileScan(_)
            | WorkloadKind::Inline(InlineLoop::FreeList) => threads(&[1]),
            WorkloadKind::Client(_) => threads(&[1]),
            WorkloadKind::Inline(InlineLoop::Stress) => threads(&[1, 2, 4, 8, 16]),
            WorkloadKind::Inline(_) | WorkloadKind::Container(_) => threads(&[1, 2]),
            WorkloadKind::FixedSize(shape) => threads(match shape {
                Shape::Pair | Shape::Lifo | Shape::Fifo | Shape::Random => &[1, 2, 16],
                Shape::Stress => &[1, 2, 4, 8, 16],
                Shape::BurstAlloc { .. } | Shape::BurstFree | Shape::Churn => &[1, 2],
                Shape::Exchange { .. } | Shape::Tiers(_) => &[2],
                Shape::Tree { .. } | Shape::ManyTrees(_) => &[1],
            }),
        }
    }

    /// The setting for a number of threads from the command line. In `query`, more than one thread
    /// serves [`CALLERS`] callers.
    pub fn setting(&self, threads: usize) -> Setting {
        let callers = self.has_callers().then_some(if threads == 1 { 1 } else { CALLERS });
        Setting { threads, callers }
    }

    /// The numbers of threads that it needs; `None` if it runs with any number.
    pub fn needed_threads(&self) -> Option<Threads> {
        let exactly = |count, meaning| Some(Threads { count, or_more: false, meaning });
        match self.kind {
            WorkloadKind::FixedSize(Shape::Exchange { .. }) => {
                exactly(2, "a producer and a consumer")
            }
            WorkloadKind::Boxes(Handover::Channel) => exactly(2, "a sender and a receiver"),
            WorkloadKind::Boxes(Handover::Batches) => Some(Threads {
                count: 2,
                or_more: true,
                meaning: "each thread drops what others have made",
            }),
            WorkloadKind::FixedSize(Shape::Tree { .. } | Shape::ManyTrees(_))
            | WorkloadKind::TreeCopy { .. } => exactly(1, "a tree belongs to one thread"),
            WorkloadKind::FileScan(_) => exactly(1, "one thread reads the file"),
            WorkloadKind::Inline(InlineLoop::FreeList) => {
                exactly(1, "a free list belongs to one thread")
            }
            WorkloadKind::Client(_) => exactly(1, "the program has one thread"),
            WorkloadKind::Mixed { remote: true } => Some(Threads {
                count: 2,
                or_more: true,
                meaning: "each thread hands objects to the next",
            }),
            _ => None,
        }
    }

    /// The environment variable, with its value, that a process must be started with to run this
    /// workload with `allocator`, if there is one.
    pub fn variable(&self, allocator: &'static str) -> Option<(&'static str, &'static str)> {
        (self.kind == WorkloadKind::Handler)
            .then_some((crate::workloads::global::VARIABLE, allocator))
    }

    /// Whether it has callers, whose response times are measured.
    pub fn has_callers(&self) -> bool {
        self.kind == WorkloadKind::Query
    }

    /// Whether it measures the first touch of memory.
    pub fn is_cold(&self) -> bool {
        matches!(
            self.kind,
            WorkloadKind::Objects(Objects { cold: true, .. })
                | WorkloadKind::FixedSize(
                    Shape::BurstAlloc { cold: true } | Shape::Tiers(Boundary::Cold)
                )
        )
    }

    /// The variants that it compares. Empty if it compares allocators.
    pub fn variants(&self) -> &'static [Variant] {
        match self.kind {
            WorkloadKind::Locking => &locking::VARIANTS,
            WorkloadKind::Published => &published::VARIANTS,
            WorkloadKind::FileScan(program) => program.variants(),
            WorkloadKind::Inline(inline) => inline.variants(),
            WorkloadKind::Container(_) => &containers::VARIANTS,
            WorkloadKind::Client(client) => client.variants(),
            _ => &[],
        }
    }

    /// The size as an exponent of two, if the workload exists in several sizes. The sizes of one
    /// kind share the time of one workload, and are plotted together.
    pub fn exponent(&self) -> Option<u32> {
        match self.kind {
            WorkloadKind::FixedSize(Shape::Tree { exponent })
            | WorkloadKind::TreeCopy { exponent } => Some(exponent),
            _ => None,
        }
    }

    /// The project's own row, with which ratios compare.
    pub fn own(&self) -> &'static str {
        match self.kind {
            WorkloadKind::FixedSize(Shape::Tree { .. } | Shape::ManyTrees(_)) => {
                "allotment-free-list"
            }
            WorkloadKind::FixedSize(_) | WorkloadKind::Boxes(_) => "allotment-slab",
            WorkloadKind::RequestsWithCache { .. } => "allotment-pool-request",
            WorkloadKind::TreeCopy { .. } => "compact-copy",
            WorkloadKind::Query
            | WorkloadKind::Objects(_)
            | WorkloadKind::Collections(_)
            | WorkloadKind::FreeInScope { .. }
            | WorkloadKind::Grow => "allotment-arena",
            WorkloadKind::Mixed { .. } | WorkloadKind::Handler => "allotment-pool",
            WorkloadKind::Scope { .. } => "allotment-reap",
            WorkloadKind::Locking => locking::OWN,
            WorkloadKind::Published => published::OWN,
            WorkloadKind::FileScan(_)
            | WorkloadKind::Inline(_)
            | WorkloadKind::Container(_)
            | WorkloadKind::Client(_) => self.variants()[0].name,
        }
    }

    /// The approximate memory in bytes that a run needs, if some machines lack that much.
    pub fn memory(&self, effort: Effort) -> Option<u64> {
        match (&self.kind, effort) {
            (WorkloadKind::FixedSize(Shape::Tiers(_)), Effort::Full) => Some(6 << 30),
            _ => None,
        }
    }

    /// The number of tasks of each thread; in `query`, of all threads together. The same for every
    /// allocator. 0 if the workload has no tasks.
    pub(crate) fn tasks(&self, threads: usize, effort: Effort) -> u64 {
        let Some([full, quick]) = self.amounts() else { return 0 };
        let (all, most) = if effort == Effort::Full { full } else { quick };
        if self.has_callers() {
            return all;
        }
        let threads = threads as u64;
        // At least three tasks, so that there is a steady state. A quick run with many threads has
        // none.
        let least =
            if effort.is_quick() && threads > 16 { 1 } else { crate::workloads::WARM_UP + 1 };
        (all / threads).clamp(least, most)
    }

    /// The numbers of tasks of a full run and of a quick run: for all threads together, and the
    /// maximum for each.
    /// `None` if it has no tasks.
    fn amounts(&self) -> Option<[(u64, u64); 2]> {
        const CALLERS: u64 = self::CALLERS as u64;
        Some(match self.kind {
            WorkloadKind::Query => [(CALLERS, CALLERS), (16, 16)],
            WorkloadKind::Objects(Objects { cold: true, .. }) => return None,
            WorkloadKind::Objects(Objects { dimensions: DIMENSIONS, .. })
            | WorkloadKind::Inline(InlineLoop::Arena) => [(64, 48), (16, 12)],
            WorkloadKind::Objects(_) => [(120_000, 60_000), (40_000, 20_000)],
            WorkloadKind::Collections(CollectionKind::Vector) => [(1_000, 1_000), (200, 200)],
            WorkloadKind::Collections(CollectionKind::Strings) => [(300, 300), (60, 60)],
            WorkloadKind::Grow => [(4_000, 2_000), (1_000, 500)],
            WorkloadKind::Scope { .. } => [(20_000, 20_000), (4_000, 4_000)],
            WorkloadKind::RequestsWithCache { .. } => [(600_000, 600_000), (150_000, 150_000)],
            WorkloadKind::Handler => [(100_000, 100_000), (20_000, 20_000)],
            WorkloadKind::Container(_) => [(30_000, 30_000), (6_000, 6_000)],
            WorkloadKind::Locking => [(200_000, 200_000), (40_000, 40_000)],
            WorkloadKind::FixedSize(_)
            | WorkloadKind::FreeInScope { .. }
            | WorkloadKind::TreeCopy { .. }
            | WorkloadKind::Boxes(_)
            | WorkloadKind::Mixed { .. }
            | WorkloadKind::Published
            | WorkloadKind::FileScan(_)
            | WorkloadKind::Inline(_)
            | WorkloadKind::Client(_) => return None,
        })
    }
}

/// The error if there is no workload of this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWorkload {
    /// The requested name.
    pub name: String,
}

impl fmt::Display for UnknownWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = CATALOGUE.iter().map(|workload| workload.name).collect();
        let mut families: Vec<_> = CATALOGUE.iter().filter_map(Workload::family).collect();
        families.dedup();
        write!(
            f,
            "unknown workload '{}'; available: {}; all of a kind: {}",
            self.name,
            known.join(", "),
            families.join(", ")
        )
    }
}

impl std::error::Error for UnknownWorkload {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_workload_lists_the_known_ones() {
        let error = Workload::named("quary").unwrap_err().to_string();
        assert!(error.starts_with("unknown workload 'quary'; available: query, query-alloc"));
        assert!(error.ends_with(
            "client-expat; all of a kind: arena, scope-free, exchange, burst, tiers, tree, tree-copy, many-trees, pool-request, letters, c, pmr, client"
        ));
    }

    #[test]
    fn a_plain_name_stands_for_all_variants_unless_it_is_a_workload_itself() {
        let names = |name| -> Vec<_> {
            Workload::all_named(name).unwrap().iter().map(|workload| workload.name).collect()
        };
        assert_eq!(names("burst"), ["burst-alloc", "burst-alloc-cold", "burst-free"]);
        assert_eq!(names("arena"), ["arena-vec", "arena-format"]);
        assert_eq!(names("scope-free"), ["scope-free-1000", "scope-free-10000000"]);
        assert_eq!((names("typed"), names("query-alloc")), (vec!["typed"], vec!["query-alloc"]));
        assert_eq!(names("exchange"), ["exchange-1000", "exchange-1"]);
        assert_eq!(names("tiers"), ["tiers-cold", "tiers-reserved", "tiers-steady"]);
        for sizes in [names("tree"), names("tree-copy")] {
            assert_eq!(sizes.len(), 7);
            let exponents = sizes.iter().map(|name| Workload::named(name).unwrap().exponent());
            assert!(exponents.eq([8, 10, 12, 14, 16, 18, 20].map(Some)));
        }
        assert_eq!(names("many-trees"), ["many-trees-each", "many-trees-all"]);
        assert_eq!(names("letters"), ["letters-read", "letters-buffered", "letters-mapped"]);
        assert_eq!(names("c"), ["c-arena", "c-free-list", "c-slab-handle", "c-stress"]);
        assert_eq!(names("pmr"), ["pmr-vector", "pmr-map"]);
        assert_eq!(names("client"), ["client-sqlite", "client-lua", "client-expat"]);
        assert_eq!(names("query"), ["query"]);
        assert_eq!(names("burst-free"), ["burst-free"]);
        let caches = ["pool-request-1000", "pool-request-10000", "pool-request-100000"];
        assert_eq!(names("pool-request"), caches);
        assert_eq!((names("channel"), names("xmalloc")), (vec!["channel"], vec!["xmalloc"]));
        assert_eq!((names("mixed"), names("scope")), (vec!["mixed"], vec!["scope"]));
        for unknown in ["", "-", "burst-", "tier", "exchange-10", "many", "tree-9"] {
            assert!(Workload::all_named(unknown).is_err(), "{unknown:?}");
        }
    }

    #[test]
    fn every_setting_has_a_steady_state_and_every_quick_one_is_shorter() {
        for workload in catalogue().iter().filter(|workload| workload.amounts().is_some()) {
            for threads in [1, 2, 16, 64, MOST_THREADS] {
                assert!(workload.tasks(threads, Effort::Full) > crate::workloads::WARM_UP);
                let quick = workload.tasks(threads, Effort::Quick);
                assert!((1..=workload.tasks(threads, Effort::Full)).contains(&quick));
            }
            for threads in [1, 2, 16] {
                assert!(workload.tasks(threads, Effort::Quick) > crate::workloads::WARM_UP);
            }
        }
    }

    #[test]
    fn what_is_cold_says_so_and_has_a_steady_workload_beside_it() {
        let cold = |workload: &&Workload| workload.is_cold();
        let names: Vec<_> = catalogue().iter().filter(cold).map(|one| one.name).collect();
        assert_eq!(names, ["query-alloc-cold", "burst-alloc-cold", "tiers-cold"]);
        for steady in ["query-alloc", "burst-alloc", "tiers-steady"] {
            assert!(!Workload::named(steady).unwrap().is_cold());
        }
    }

    #[test]
    fn more_than_one_thread_serves_the_seeds_callers() {
        let query = Workload::named("query").unwrap();
        assert_eq!(query.setting(1).to_string(), "1 caller");
        assert_eq!(query.setting(3).to_string(), "256 callers, 3 workers");
        let grow = Workload::named("grow").unwrap();
        assert_eq!(grow.setting(1).to_string(), "1 thread");
        assert!(
            catalogue().iter().all(|one| one.has_callers() == one.setting(2).callers.is_some())
        );
    }

    #[test]
    fn a_workload_runs_with_its_own_threads() {
        for workload in catalogue() {
            let Some(needed) = workload.needed_threads() else { continue };
            assert!(workload.settings().iter().all(|setting| needed.include(setting.threads)));
        }
        let remote = Workload::named("mixed-remote").unwrap().needed_threads().unwrap();
        assert_eq!([1, 2, 3, MOST_THREADS].map(|n| remote.include(n)), [false, true, true, true]);
        assert_eq!(remote.to_string(), "2 threads or more");
        let xmalloc = Workload::named("xmalloc").unwrap().needed_threads();
        assert_eq!(xmalloc.map(|needed| needed.to_string()).as_deref(), Some("2 threads or more"));
        let tree = Workload::named("tree-8").unwrap().needed_threads().unwrap();
        assert_eq!((tree.to_string().as_str(), tree.include(2)), ("1 thread", false));
    }
}
