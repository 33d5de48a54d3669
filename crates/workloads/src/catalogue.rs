//! Which workloads there are, and in which settings each is run.

use std::fmt;
use std::num::NonZero;

/// One workload of the measuring contract.
#[derive(Debug, PartialEq, Eq)]
pub struct Workload {
    /// As it is named on the command line and in rows.
    pub name: &'static str,
    /// What it does, in one line.
    pub meaning: &'static str,
    /// What one operation is.
    pub unit: &'static str,
    /// What one task is: what an arena is created and destroyed for.
    pub task: &'static str,
    /// Whether it asks for objects of sizes that are not known beforehand.
    pub any_size: bool,
    pub(crate) kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Context queries.
    Query,
    /// The objects of queries of so many dimensions.
    Objects { dimensions: usize },
    /// Replies appended in pieces.
    Grow,
}

static CATALOGUE: [Workload; 4] = [
    Workload {
        name: "query",
        meaning: "a context query over 1000 charts x 100 dimensions: build, group, render, free",
        unit: "dimension",
        task: "query",
        any_size: true,
        kind: Kind::Query,
    },
    Workload {
        name: "query-alloc",
        meaning: "a query's objects alone: 100,000 x (192, 24, 40, 64 B), every byte written",
        unit: "object",
        task: "query",
        any_size: false,
        kind: Kind::Objects { dimensions: 100_000 },
    },
    Workload {
        name: "query-small",
        meaning: "the same for a small query: 100 x (192, 24, 40, 64 B)",
        unit: "object",
        task: "query",
        any_size: false,
        kind: Kind::Objects { dimensions: 100 },
    },
    Workload {
        name: "grow",
        meaning: "a reply appended in pieces of 1 to 64 B up to 1 MiB, then dropped",
        unit: "byte",
        task: "reply",
        any_size: true,
        kind: Kind::Grow,
    },
];

/// All workloads.
pub fn catalogue() -> &'static [Workload] {
    &CATALOGUE
}

/// The most threads that a run may have.
pub const MOST_THREADS: usize = 1024;

/// The callers of the parallel `query`, and its queries, as in the seed.
pub const CALLERS: usize = 256;

/// How many threads work, and for how many callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Setting {
    /// Threads that work.
    pub threads: usize,
    /// Callers that they serve; only `query` has any.
    pub callers: Option<usize>,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |count: usize| if count == 1 { "" } else { "s" };
        match self.callers {
            Some(1) => f.write_str("1 caller"),
            Some(callers) => {
                write!(f, "{callers} callers, {} worker{}", self.threads, s(self.threads))
            }
            None => write!(f, "{} thread{}", self.threads, s(self.threads)),
        }
    }
}

/// How much work a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// As the contract says; a second or two a run.
    Full,
    /// Enough to see the order of things.
    Quick,
}

impl Workload {
    /// The workload of this name.
    pub fn named(name: &str) -> Result<&'static Self, UnknownWorkload> {
        CATALOGUE
            .iter()
            .find(|workload| workload.name == name)
            .ok_or_else(|| UnknownWorkload { name: name.to_owned() })
    }

    /// The settings that the contract names.
    pub fn settings(&self) -> Vec<Setting> {
        let threads = |counts: &[usize]| {
            counts.iter().map(|threads| Setting { threads: *threads, callers: None }).collect()
        };
        match self.kind {
            Kind::Query => {
                let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
                vec![
                    Setting { threads: 1, callers: Some(1) },
                    Setting { threads: cores.min(MOST_THREADS), callers: Some(CALLERS) },
                ]
            }
            Kind::Objects { dimensions } if dimensions > 1000 => threads(&[1, 2, 16, 64]),
            Kind::Objects { .. } | Kind::Grow => threads(&[1, 2]),
        }
    }

    /// The setting for a number of threads that the user names. More than one thread in `query`
    /// serves [`CALLERS`] callers.
    pub fn setting(&self, threads: usize) -> Setting {
        let callers = (self.kind == Kind::Query).then_some(if threads == 1 { 1 } else { CALLERS });
        Setting { threads, callers }
    }

    /// Whether there is other work beside the allocator's, so that its part can be told.
    pub fn has_share(&self) -> bool {
        self.kind == Kind::Query
    }

    /// Tasks that each thread does; in `query`, that all do together. The same for every allocator.
    pub fn tasks(&self, threads: usize, effort: Effort) -> u64 {
        let threads = threads as u64;
        // At least three, so that there is a steady state to count; but a quick run of many threads
        // has none.
        let least = if effort == Effort::Quick && threads > 16 { 1 } else { crate::WARM_UP + 1 };
        let shared = |all: u64, most: u64| (all / threads).clamp(least, most);
        match (&self.kind, effort) {
            (Kind::Query, Effort::Full) => CALLERS as u64,
            (Kind::Query, Effort::Quick) => 16,
            (Kind::Objects { dimensions: 100_000 }, Effort::Full) => shared(64, 48),
            (Kind::Objects { dimensions: 100_000 }, Effort::Quick) => shared(16, 12),
            (Kind::Objects { .. }, Effort::Full) => shared(120_000, 60_000),
            (Kind::Objects { .. }, Effort::Quick) => shared(40_000, 20_000),
            (Kind::Grow, Effort::Full) => shared(4_000, 2_000),
            (Kind::Grow, Effort::Quick) => shared(1_000, 500),
        }
    }
}

/// There is no workload of this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWorkload {
    /// The name asked for.
    pub name: String,
}

impl fmt::Display for UnknownWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = CATALOGUE.iter().map(|workload| workload.name).collect();
        write!(f, "unknown workload '{}'; known are {}", self.name, known.join(", "))
    }
}

impl std::error::Error for UnknownWorkload {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_workload_lists_the_known_ones() {
        let error = Workload::named("quary").unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown workload 'quary'; known are query, query-alloc, query-small, grow"
        );
    }

    #[test]
    fn every_setting_has_a_steady_state_and_every_quick_one_is_shorter() {
        for workload in catalogue() {
            for threads in [1, 2, 16, 64, MOST_THREADS] {
                assert!(workload.tasks(threads, Effort::Full) > crate::WARM_UP);
                let quick = workload.tasks(threads, Effort::Quick);
                assert!((1..=workload.tasks(threads, Effort::Full)).contains(&quick));
            }
            for threads in [1, 2, 16] {
                assert!(workload.tasks(threads, Effort::Quick) > crate::WARM_UP);
            }
        }
    }

    #[test]
    fn more_than_one_thread_serves_the_seeds_callers() {
        let query = Workload::named("query").unwrap();
        assert_eq!(query.setting(1).to_string(), "1 caller");
        assert_eq!(query.setting(3).to_string(), "256 callers, 3 workers");
        let grow = Workload::named("grow").unwrap();
        assert_eq!(grow.setting(1).to_string(), "1 thread");
    }
}
