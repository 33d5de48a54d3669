//! What a bench runs, and in which order.

use crate::child::{ChildArguments, Pass};
use crate::failure::Failure;
use peers::{About, Allocator, Visitor};
use workloads::catalogue::MOST_THREADS;
use workloads::{Setting, Workload, can_run, catalogue};

/// What the command line asks for.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// Workloads by name; none means all.
    pub workloads: Vec<String>,
    /// Allocators by name; none means all that can do it.
    pub allocators: Vec<String>,
    /// Numbers of threads; none means the workload's own.
    pub threads: Vec<usize>,
}

/// One workload with all that it is run with.
#[derive(Debug)]
pub struct Plan {
    /// The workload.
    pub workload: &'static Workload,
    /// Every allocator in every setting, the settings outermost.
    pub cases: Vec<Case>,
}

/// One allocator in one setting.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The workload.
    pub workload: &'static Workload,
    /// The allocator.
    pub allocator: &'static About,
    /// Threads and callers.
    pub setting: Setting,
}

impl Case {
    /// The arguments of a child that runs it. Only what is timed takes its time: the others are quick.
    pub fn arguments(&self, quick: bool, pass: Pass) -> ChildArguments {
        ChildArguments {
            workload: self.workload.name.to_owned(),
            allocator: self.allocator.name.to_owned(),
            threads: self.setting.threads,
            callers: self.setting.callers,
            quick: quick || pass != Pass::Timed,
            pass,
        }
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with {}, {}", self.workload.name, self.allocator.name, self.setting)
    }
}

/// The plans for the workloads asked for, and a line for each pair that is left out.
pub fn plans(wishes: &Wishes) -> Result<(Vec<Plan>, Vec<String>), Failure> {
    let workloads = workloads(&wishes.workloads)?;
    let allocators = allocators(&wishes.allocators)?;
    if let Some(threads) = wishes.threads.iter().find(|count| !(1..=MOST_THREADS).contains(*count))
    {
        return Err(Failure::Usage(format!("{threads} threads: must be 1 to {MOST_THREADS}")));
    }
    let mut left_out = Vec::new();
    let mut plans = Vec::new();
    for workload in workloads {
        let (able, unable): (Vec<&About>, Vec<&About>) =
            allocators.iter().copied().partition(|allocator| can_run(workload, allocator));
        if !wishes.allocators.is_empty() {
            left_out.extend(unable.iter().map(|allocator| {
                format!(
                    "{} is left out of {}: it has no objects of any size",
                    allocator.name, workload.name
                )
            }));
        }
        let settings = match wishes.threads.as_slice() {
            [] => workload.settings(),
            threads => unique(threads.iter().map(|threads| workload.setting(*threads))),
        };
        let cases: Vec<Case> = settings
            .iter()
            .flat_map(|setting| {
                able.iter().map(|allocator| Case { workload, allocator, setting: *setting })
            })
            .collect();
        if !cases.is_empty() {
            plans.push(Plan { workload, cases });
        }
    }
    if plans.is_empty() {
        return Err(Failure::Usage(format!("nothing to run: {}", left_out.join("; "))));
    }
    Ok((plans, left_out))
}

fn workloads(names: &[String]) -> Result<Vec<&'static Workload>, Failure> {
    if names.is_empty() {
        return Ok(catalogue().iter().collect());
    }
    let found: Result<Vec<_>, _> = names.iter().map(|name| Workload::named(name)).collect();
    Ok(unique(found.map_err(|error| Failure::Usage(error.to_string()))?))
}

/// The project's own first, then the others in the order they are known in.
fn allocators(names: &[String]) -> Result<Vec<&'static About>, Failure> {
    for name in names {
        peers::with(name, Known).map_err(|unknown| Failure::Usage(unknown.to_string()))?;
    }
    let wanted = |one: &&About| names.is_empty() || names.iter().any(|name| name == one.name);
    let mut wanted: Vec<&About> = peers::known().iter().filter(wanted).collect();
    wanted.sort_by_key(|one| !one.ours);
    Ok(wanted)
}

/// Asks only whether there is such an allocator.
struct Known;

impl Visitor for Known {
    type Output = ();

    fn visit<A: Allocator>(self, _: &'static About) {}
}

fn unique<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut unique = Vec::new();
    for item in items {
        if !unique.contains(&item) {
            unique.push(item);
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(workloads: &[&str], allocators: &[&str], threads: &[usize]) -> Wishes {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Wishes {
            workloads: owned(workloads),
            allocators: owned(allocators),
            threads: threads.to_vec(),
        }
    }

    fn usage(wishes: &Wishes) -> String {
        match plans(wishes) {
            Err(Failure::Usage(why)) => why,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let why = usage(&wishes(&["quary"], &[], &[]));
        assert!(why.contains("'quary'") && why.contains("query-alloc"), "{why}");
        let why = usage(&wishes(&[], &["glibcc"], &[]));
        assert!(why.contains("'glibcc'") && why.contains(" glibc,"), "{why}");
        assert!(!why.contains('\n'));
    }

    #[test]
    fn threads_are_bounded() {
        assert!(usage(&wishes(&[], &[], &[1, 0])).contains("must be 1 to 1024"));
        assert!(usage(&wishes(&[], &[], &[1025])).contains("must be 1 to 1024"));
    }

    #[test]
    fn every_allocator_runs_in_every_setting_and_names_count_once() {
        let (plans, left_out) =
            plans(&wishes(&["grow", "grow"], &["glibc", "bumpalo", "glibc"], &[2, 1, 2])).unwrap();
        assert_eq!((plans.len(), left_out.len()), (1, 0));
        let cases: Vec<_> =
            plans[0].cases.iter().map(|c| (c.setting.threads, c.allocator.name)).collect();
        let names: Vec<_> = cases.iter().map(|case| case.0).collect();
        assert_eq!(names, [2, 2, 1, 1]);
        assert!(cases.contains(&(2, "glibc")) && cases.contains(&(1, "bumpalo")));
    }

    #[test]
    fn what_an_allocator_cannot_do_is_left_out_and_said() {
        let (plans, left_out) =
            plans(&wishes(&["query", "query-small"], &["typed-arena"], &[])).unwrap();
        assert_eq!(plans.len(), 1);
        assert_eq!(plans[0].workload.name, "query-small");
        assert_eq!(left_out.len(), 1);
        assert!(usage(&wishes(&["query"], &["typed-arena"], &[])).starts_with("nothing to run"));
    }
}
