//! What `allot bench` runs, and in which order.

use crate::console::failure::Failure;
use crate::console::print::listed;
use crate::runner::measured_run::{ChildArguments, Pass};
use crate::workloads::catalogue::MOST_THREADS;
use crate::workloads::{Setting, Subject, Unsupported, Workload, can_run, catalogue};

/// The choices of the command line.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Workloads by name; none means all.
    pub workloads: Vec<String>,
    /// Rows by name, allocators or variants; none means all that can run the workload.
    pub allocators: Vec<String>,
    /// Numbers of threads; none means the workload's own.
    pub threads: Vec<usize>,
}

/// One workload, and the rows and settings that it runs with.
#[derive(Debug)]
pub struct Plan {
    /// The workload.
    pub workload: &'static Workload,
    /// Every allocator or variant in every setting. The cases of one setting are together.
    pub cases: Vec<Case>,
    /// What can't run, in words: the allocators, the number of threads, and the reason.
    pub left_out: Vec<String>,
}

/// Everything to run.
#[derive(Debug)]
pub struct Plans {
    /// A plan for each workload.
    pub plans: Vec<Plan>,
    /// A line for each requested row or setting that can't run.
    pub refused: Vec<String>,
}

impl Plan {
    /// The same plan, in which each case runs with both builds of this program, one after the
    /// other.
    #[must_use]
    pub fn with_both_builds(self) -> Self {
        let both = |case: Case| [Build::This, Build::Other].map(|build| Case { build, ..case });
        Self { cases: self.cases.into_iter().flat_map(both).collect(), ..self }
    }
}

/// One workload with one allocator or variant in one setting.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The workload.
    pub workload: &'static Workload,
    /// The allocator or the variant.
    pub subject: Subject,
    /// Threads and callers.
    pub setting: Setting,
    /// The build that runs it.
    pub build: Build,
}

/// A build of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// The running one.
    This,
    /// The one that `--against` names.
    Other,
}

impl Case {
    /// The row that its time is compared with.
    pub fn own(&self) -> &'static str {
        self.subject.own().unwrap_or(self.workload.own())
    }

    /// The arguments of a child that runs this case. Passes other than the timed one do less work.
    pub fn arguments(&self, quick: bool, pass: Pass) -> ChildArguments {
        ChildArguments {
            workload: self.workload.name.to_owned(),
            allocator: self.subject.name().to_owned(),
            threads: self.setting.threads,
            callers: self.setting.callers,
            quick: quick || pass != Pass::Timed,
            pass,
        }
    }

    /// Environment variables of that child. They override a global allocator named in our own
    /// environment.
    pub fn environment(&self) -> Vec<(&'static str, &'static str)> {
        let global = self.workload.variable(self.subject.name());
        let global = global.unwrap_or((crate::workloads::global::VARIABLE, ""));
        [self.subject.environment(), &[global]].concat()
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with {}, {}", self.workload.name, self.subject.name(), self.setting)?;
        match self.build {
            Build::This => Ok(()),
            Build::Other => f.write_str(", other build"),
        }
    }
}

/// The plans for the requested workloads.
pub fn plans(selection: &Selection) -> Result<Plans, Failure> {
    let workloads = workloads(&selection.workloads)?;
    for name in &selection.allocators {
        Subject::named(name, &workloads).map_err(|unknown| Failure::Usage(unknown.to_string()))?;
    }
    if let Some(threads) =
        selection.threads.iter().find(|count| !(1..=MOST_THREADS).contains(*count))
    {
        return Err(Failure::Usage(format!("{threads} threads: must be 1 to {MOST_THREADS}")));
    }
    let mut refused = Vec::new();
    let mut plans = Vec::new();
    for workload in workloads {
        if let Some(why) = workload.missing() {
            refused.push(format!("left out: {}: {why}", workload.name));
            continue;
        }
        let settings = settings(workload, &selection.threads, &mut refused);
        let subjects = subjects(workload, &selection.allocators);
        let cases =
            settings.iter().flat_map(|setting| subjects.iter().map(|subject| (*subject, *setting)));
        let (mut able, mut unable) = (Vec::new(), Vec::new());
        for (subject, setting) in cases {
            match can_run(workload, subject, setting.threads) {
                Ok(()) => able.push(Case { workload, subject, setting, build: Build::This }),
                Err(lacks) if lacks.is_plain() && selection.allocators.is_empty() => {}
                Err(lacks) => unable.push((subject.name(), setting.threads, lacks)),
            }
        }
        let left_out = left_out(&unable, settings.len());
        if !selection.allocators.is_empty() {
            let line = |row: &String| format!("left out of {}: {row}", workload.name);
            refused.extend(left_out.iter().map(line));
        }
        if !able.is_empty() {
            plans.push(Plan { workload, cases: able, left_out });
        }
    }
    if plans.is_empty() {
        return Err(Failure::Usage(format!("nothing to run: {}", refused.join("; "))));
    }
    Ok(Plans { plans, refused })
}

/// The settings of a workload: its own, or those of the user's numbers of threads that it can run
/// with.
fn settings(workload: &Workload, threads: &[usize], refused: &mut Vec<String>) -> Vec<Setting> {
    if threads.is_empty() {
        return workload.settings();
    }
    let (able, unable): (Vec<usize>, Vec<usize>) = match workload.needed_threads() {
        Some(needed) => threads.iter().partition(|threads| needed.include(**threads)),
        None => (threads.to_vec(), Vec::new()),
    };
    if let (Some(needed), false) = (workload.needed_threads(), unable.is_empty()) {
        refused.push(format!(
            "{} needs {needed} ({}) and was not run with {}",
            workload.name,
            needed.meaning,
            listed(unique(unable))
        ));
    }
    unique(able.into_iter().map(|threads| workload.setting(threads)))
}

/// Lines for what can't run: the rows that lack the same in the same settings share a line.
fn left_out(unable: &[(&str, usize, Unsupported)], settings: usize) -> Vec<String> {
    let mut groups: Vec<(Unsupported, Vec<usize>, Vec<&str>)> = Vec::new();
    for name in unique(unable.iter().map(|(name, ..)| *name)) {
        let own = || unable.iter().filter(|(other, ..)| *other == name);
        for lacks in unique(own().map(|(.., lacks)| *lacks)) {
            let threads: Vec<usize> =
                own().filter(|other| other.2 == lacks).map(|other| other.1).collect();
            match groups.iter_mut().find(|group| group.0 == lacks && group.1 == threads) {
                Some((.., names)) => names.push(name),
                None => groups.push((lacks, threads, vec![name])),
            }
        }
    }
    let line = |(lacks, threads, names): &(Unsupported, Vec<usize>, Vec<&str>)| {
        let with = if threads.len() == settings {
            String::new()
        } else {
            format!(" with {} threads", listed(threads))
        };
        format!("{}{with} ({lacks})", names.join(", "))
    };
    groups.iter().map(line).collect()
}

fn workloads(names: &[String]) -> Result<Vec<&'static Workload>, Failure> {
    if names.is_empty() {
        return Ok(catalogue().iter().collect());
    }
    let found: Result<Vec<_>, _> = names.iter().map(|name| Workload::all_named(name)).collect();
    Ok(unique(found.map_err(|error| Failure::Usage(error.to_string()))?.into_iter().flatten()))
}

/// The rows of a workload, or the rows that the user names, of any workload. The project's own rows
/// come first, then the others in their listed order.
fn subjects(workload: &Workload, names: &[String]) -> Vec<Subject> {
    let mut all = workload.subjects();
    let has = |all: &[Subject], name: &str| all.iter().any(|one| one.name() == name);
    let others = names.iter().filter(|name| !has(&all, name));
    // `plans` has checked that all names are known.
    let others = others.filter_map(|name| Subject::named(name, &[]).ok());
    let others: Vec<Subject> = others.collect();
    all.retain(|one| names.is_empty() || names.iter().any(|name| name == one.name()));
    all.extend(others);
    all.sort_by_key(|one| !one.is_ours());
    all
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

    fn selection(workloads: &[&str], allocators: &[&str], threads: &[usize]) -> Selection {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Selection {
            workloads: owned(workloads),
            allocators: owned(allocators),
            threads: threads.to_vec(),
        }
    }

    fn usage(selection: &Selection) -> String {
        match plans(selection) {
            Err(Failure::Usage(why)) => why,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let why = usage(&selection(&["quary"], &[], &[]));
        assert!(why.contains("'quary'") && why.contains("query-alloc"), "{why}");
        let why = usage(&selection(&[], &["glibcc"], &[]));
        assert!(why.contains("'glibcc'") && why.contains(" glibc,"), "{why}");
        assert!(!why.contains('\n'));
    }

    #[test]
    fn a_workload_of_ways_runs_its_own_and_says_so() {
        let why = usage(&selection(&["published"], &["mutx"], &[]));
        assert!(why.contains("'mutx'; published has ") && why.contains(" mutex,"), "{why}");
        assert!(!why.contains("glibc"), "{why}");
        let why = usage(&selection(&["published"], &["glibc"], &[]));
        assert!(why.starts_with("nothing to run: left out of published: glibc (the rows of "));
        let both = plans(&selection(&["published", "grow"], &["mutex", "glibc"], &[1])).unwrap();
        let rows = both.plans.iter().map(|plan| {
            let names = plan.cases.iter().map(|case| case.subject.name());
            (plan.workload.name, names.collect::<Vec<_>>())
        });
        assert!(rows.eq([("published", vec!["mutex"]), ("grow", vec!["glibc"])]));
        assert_eq!(both.refused[1], "left out of grow: mutex (it is a row of published only)");
        let all = plans(&selection(&["categories"], &[], &[2])).unwrap().plans.remove(0);
        assert_eq!(all.cases[0].subject.name(), all.workload.own());
        assert_eq!((all.cases.len(), all.left_out.len()), (all.workload.variants().len(), 0));
    }

    #[test]
    fn threads_are_bounded() {
        assert!(usage(&selection(&[], &[], &[1, 0])).contains("must be 1 to 1024"));
        assert!(usage(&selection(&[], &[], &[1025])).contains("must be 1 to 1024"));
    }

    #[test]
    fn every_allocator_runs_in_every_setting_and_names_count_once() {
        let plans =
            plans(&selection(&["grow", "grow"], &["glibc", "bumpalo", "glibc"], &[2, 1, 2]))
                .unwrap();
        assert_eq!((plans.plans.len(), plans.refused.len()), (1, 0));
        let cases: Vec<_> =
            plans.plans[0].cases.iter().map(|c| (c.setting.threads, c.subject.name())).collect();
        let names: Vec<_> = cases.iter().map(|case| case.0).collect();
        assert_eq!(names, [2, 2, 1, 1]);
        assert!(cases.contains(&(2, "glibc")) && cases.contains(&(1, "bumpalo")));
    }

    #[test]
    fn what_an_allocator_cannot_do_is_left_out_and_said() {
        let plans = plans(&selection(&["query", "query-small"], &["typed-arena"], &[])).unwrap();
        assert_eq!(plans.plans.len(), 1);
        assert_eq!(plans.plans[0].workload.name, "query-small");
        assert_eq!(
            plans.refused,
            ["left out of query: typed-arena (it serves a fixed set of sizes only)"]
        );
        assert!(usage(&selection(&["query"], &["typed-arena"], &[])).starts_with("nothing to run"));
    }

    #[test]
    fn what_can_not_run_in_some_settings_is_said_with_its_threads() {
        let plans = plans(&selection(&["pair"], &["slab", "bumpalo", "typed-arena", "glibc"], &[]));
        let plans = plans.unwrap();
        let run =
            plans.plans[0].cases.iter().map(|case| (case.setting.threads, case.subject.name()));
        let run: Vec<_> = run.collect();
        assert_eq!(run, [(1, "glibc"), (1, "slab"), (2, "glibc"), (16, "glibc")]);
        assert_eq!(
            plans.plans[0].left_out,
            [
                "bumpalo, typed-arena (its objects are freed when their task ends)",
                "slab with 2 and 16 threads (it serves one thread only)",
            ]
        );
        assert_eq!(plans.refused.len(), 2);
    }

    #[test]
    fn a_plain_name_runs_all_variants_once() {
        let plans = plans(&selection(&["burst", "burst-free"], &["glibc"], &[])).unwrap().plans;
        let names: Vec<_> = plans.iter().map(|plan| plan.workload.name).collect();
        assert_eq!(names, ["burst-alloc", "burst-alloc-cold", "burst-free"]);
    }

    #[test]
    fn a_number_of_threads_that_a_workload_does_not_run_with_is_refused() {
        let both = plans(&selection(&["exchange-1"], &["glibc"], &[1, 2, 4])).unwrap();
        assert_eq!(both.plans[0].cases.len(), 1);
        assert_eq!(
            both.refused,
            ["exchange-1 needs 2 threads (a producer and a consumer) and was not run with 1 and 4"]
        );
        let ring = plans(&selection(&["mixed-remote"], &["glibc"], &[1, 2, 4])).unwrap();
        assert_eq!(ring.plans[0].cases.len(), 2);
        assert_eq!(
            ring.refused,
            [
                "mixed-remote needs 2 threads or more (each thread hands objects to the next) and was not \
                 run with 1"
            ]
        );
        let why = usage(&selection(&["exchange"], &["glibc"], &[3]));
        assert!(why.starts_with("nothing to run: exchange-1000 needs 2 threads"), "{why}");
    }

    #[test]
    fn the_global_allocator_of_a_handlers_child_is_the_one_measured_and_elsewhere_nobody_names_one()
    {
        let variable = |workload| {
            let plans = plans(&selection(&[workload], &["glibc"], &[])).unwrap().plans;
            let environment = plans[0].cases[0].environment();
            let of = |name: &str| environment.iter().find(|(one, _)| *one == name).map(|one| one.1);
            of("ALLOT_GLOBAL").unwrap()
        };
        assert_eq!((variable("handler"), variable("grow")), ("glibc", ""));
    }
}
