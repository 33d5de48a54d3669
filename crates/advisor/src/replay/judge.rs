//! Judges the advice by the rounds of the replay.

use super::rounds::Comparison;
use crate::analyse::LEAST_ALLOCATOR_SHARE;
use crate::analyse::findings::{
    CombinedPlan, MallocAdvice, MallocLibrary, ObjectCategory, RecordedProgram, ReplayOutcome,
    SiteGroup,
};
use crate::analyse::formatting;

/// Where the program's CPU time is unknown: a malloc saves as much as all plans if it takes longer
/// than they do by at most this share of glibc's time.
const AS_MUCH: f64 = 0.01;
/// The most peak memory that a plan may take, as a multiple of glibc's.
pub const MOST_MEMORY: f64 = 1.5;
/// Bytes beyond glibc's peak that every plan may take, even if [`MOST_MEMORY`] is exceeded: an
/// allocator's first chunk is no reason to refuse it.
const FREE_MEMORY: u64 = 1 << 20;
/// The same for a malloc that serves everything: its tables and its first chunks take as much in a
/// small program as in a large one.
const FREE_MEMORY_OF_MALLOC: u64 = 8 << 20;
/// The least saving, as a share of the program's CPU time.
const LEAST_GAIN: f64 = 0.01;

/// A malloc that serves everything.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedMalloc {
    pub name: String,
    /// Its shared library, if this machine has it.
    pub installed: Option<String>,
    pub comparison: Comparison,
}

/// Whether a peak is at most [`MOST_MEMORY`] times glibc's, or `free` bytes more.
fn is_small(comparison: &Comparison, free: u64) -> bool {
    comparison.peaks.is_none_or(|(own, glibc)| {
        own as f64 <= MOST_MEMORY * glibc as f64 || own <= glibc.saturating_add(free)
    })
}

/// What a row saves against glibc, as a share of the program's CPU time, at most 1. `None` if that
/// time is unknown.
pub fn gain(comparison: &Comparison, program: &RecordedProgram) -> Option<f64> {
    let cpu = program.bare_cpu_ns.or(program.cpu_ns).filter(|cpu| *cpu > 0)?;
    Some((comparison.saved_ns / cpu as f64).min(1.0))
}

fn figures(comparison: &Comparison) -> String {
    let memory = formatting::memory(comparison.memory, comparison.more_memory());
    format!("{:.2} × glibc's time ({}) and {memory}", comparison.time, rounds(comparison))
}

fn rounds(comparison: &Comparison) -> String {
    let all = comparison.rounds;
    if all < 3 {
        return if all == 1 { "one round".to_owned() } else { format!("{all} rounds") };
    }
    let deviation = comparison.deviation * 100.0;
    let (count, word) = if comparison.time > 1.0 {
        (comparison.slower, "slower")
    } else {
        (comparison.quicker, "faster")
    };
    let number = if count == all { format!("all {all}") } else { format!("{count} of {all}") };
    format!("{word} in {number} rounds, ±{deviation:.1} %")
}

/// Judges the plan of one group.
pub fn plan(comparison: &Comparison, program: &RecordedProgram) -> ReplayOutcome {
    let gain = gain(comparison, program);
    let figures = figures(comparison);
    let (confirmed, reason) = if !comparison.is_quicker() {
        let slower = if comparison.is_slower() {
            "it is slower"
        } else if comparison.time < 1.0 - LEAST_GAIN {
            "the noise hides whether it is faster"
        } else {
            "it is no faster"
        };
        (false, format!("not confirmed, {slower}: in the replay it takes {figures}"))
    } else if !is_small(comparison, FREE_MEMORY) {
        (
            false,
            format!("not confirmed, it needs too much memory: in the replay it takes {figures}"),
        )
    } else if gain.is_some_and(|gain| gain < LEAST_GAIN) {
        let gain = percent(gain.unwrap_or_default());
        (
            false,
            format!(
                "not confirmed, it saves {gain} of the program's CPU time, too little: in the replay it takes {figures}"
            ),
        )
    } else {
        let saves = gain.map_or_else(String::new, |gain| {
            format!(", which saves {} of the program's CPU time", percent(gain))
        });
        (true, format!("confirmed: in the replay it takes {figures}{saves}"))
    };
    ReplayOutcome {
        confirmed,
        reason,
        time_ratio: Some(comparison.time),
        memory_ratio: comparison.memory,
    }
}

/// Judges the plan of a candidate for sealing, which need not be faster, but must not be slower.
pub fn candidate(comparison: &Comparison) -> ReplayOutcome {
    let figures = figures(comparison);
    let is_slower = comparison.is_slower() || comparison.time > 1.0 + comparison.noise();
    let (confirmed, reason) = if is_slower {
        (false, format!("not confirmed, it is slower: in the replay it takes {figures}"))
    } else if !is_small(comparison, FREE_MEMORY) {
        (
            false,
            format!("not confirmed, it needs too much memory: in the replay it takes {figures}"),
        )
    } else {
        (true, format!("it costs no more than malloc: in the replay it takes {figures}"))
    };
    ReplayOutcome {
        confirmed,
        reason,
        time_ratio: Some(comparison.time),
        memory_ratio: comparison.memory,
    }
}

/// Stores the outcome in a group's verdict, and the measured gain. `ceiling` is what glibc's calls
/// cost in all.
pub fn store_outcome(
    group: &mut SiteGroup,
    outcome: ReplayOutcome,
    comparison: &Comparison,
    program: &RecordedProgram,
    ceiling: Option<f64>,
) {
    if let Some(share) = gain(comparison, program)
        && let Some(gain) = &mut group.verdict.gain
    {
        gain.share = share.max(0.0);
        gain.measured = true;
        let most = ceiling.map_or(gain.ceiling, |ceiling| gain.ceiling.min(ceiling));
        // The other blocks may get cheaper too.
        gain.ceiling = most.max(gain.share);
    }
    group.verdict.replayed = Some(outcome);
}

/// Stores the most that a group can save: what was saved with its blocks at no cost.
pub fn store_ceiling(group: &mut SiteGroup, ceiling: f64) {
    if let Some(gain) = &mut group.verdict.gain {
        gain.ceiling = ceiling.max(gain.share);
        gain.ceiling_measured = true;
    }
}

/// Scales the estimated ceilings down so that they and the measured ones sum to at most `all`.
/// Measured figures stay.
pub fn balance(groups: &mut [SiteGroup], all: f64) {
    let gains = |measured: bool| {
        let gains = groups.iter().filter_map(|group| group.verdict.gain);
        gains.filter(move |gain| gain.ceiling_measured == measured)
    };
    let measured: f64 = gains(true).map(|gain| gain.ceiling).sum();
    let estimated: f64 = gains(false).map(|gain| gain.ceiling).sum();
    let left = (all - measured).max(0.0);
    if estimated <= left {
        return;
    }
    for gain in groups.iter_mut().filter_map(|group| group.verdict.gain.as_mut()) {
        if gain.ceiling_measured {
            continue;
        }
        gain.ceiling *= left / estimated;
        if gain.measured {
            gain.ceiling = gain.ceiling.max(gain.share);
        } else {
            gain.share *= left / estimated;
        }
    }
}

/// The result of all confirmed plans together. `sum` adds up the gains of the single plans;
/// `ceiling` is the most that all of them can save.
pub fn together(
    comparison: &Comparison,
    groups: &[u32],
    sum: Option<f64>,
    ceiling: Option<f64>,
    program: &RecordedProgram,
) -> CombinedPlan {
    let gain = gain(comparison, program);
    let ceiling = ceiling.map(|ceiling| ceiling.max(gain.unwrap_or_default()));
    let mut reason = format!("together they take {} in the replay", figures(comparison));
    if let Some(gain) = gain {
        reason += &format!(", which saves {} of the program's CPU time", percent(gain));
        if let Some(ceiling) = ceiling {
            reason += &format!(", of {} that these blocks cost", formatting::percent(ceiling));
        }
    }
    CombinedPlan {
        groups: groups.to_vec(),
        gain,
        sum,
        ceiling,
        time_ratio: Some(comparison.time),
        memory_ratio: comparison.memory,
        reason,
    }
}

/// A share in the summary's format. A plan that costs more saves nothing.
fn percent(share: f64) -> String {
    formatting::percent(share.max(0.0))
}

/// The mallocs that save enough.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UsefulMallocs {
    /// The fastest one that can be installed and doesn't need too much memory.
    pub best: Option<ComparedMalloc>,
    /// One that is clearly faster than that, and why it is not the best.
    pub faster: Option<(ComparedMalloc, &'static str)>,
}

/// Finds the mallocs that are faster than glibc and save enough. Where allocating and freeing takes
/// too little of the program's CPU time for any allocator to matter, there is none: what the replay
/// shows then is its own memory.
pub fn useful(mallocs: Vec<ComparedMalloc>, program: &RecordedProgram) -> UsefulMallocs {
    if program.allocator_share.is_some_and(|share| share < LEAST_ALLOCATOR_SHARE) {
        return UsefulMallocs::default();
    }
    let gain = |malloc: &ComparedMalloc| gain(&malloc.comparison, program);
    let drawback = |malloc: &ComparedMalloc| {
        if !is_small(&malloc.comparison, FREE_MEMORY_OF_MALLOC) {
            Some("it needs too much memory")
        } else if library(malloc).is_none() {
            Some("no distribution has it")
        } else {
            None
        }
    };
    let mut fast: Vec<ComparedMalloc> = mallocs
        .into_iter()
        .filter(|malloc| malloc.comparison.is_quicker())
        .filter(|malloc| gain(malloc).is_none_or(|gain| gain >= LEAST_GAIN))
        .collect();
    fast.sort_by(|a, b| a.comparison.time.total_cmp(&b.comparison.time));
    let best = fast.iter().position(|malloc| drawback(malloc).is_none());
    let best = best.map(|at| fast.remove(at));
    let is_faster = |malloc: &ComparedMalloc| match (gain(malloc), best.as_ref().map(gain)) {
        (Some(own), Some(Some(best))) => own - best >= LEAST_GAIN,
        (_, None) => true,
        (_, Some(_)) => best
            .as_ref()
            .is_some_and(|best| malloc.comparison.time < best.comparison.time - AS_MUCH),
    };
    let faster = fast
        .into_iter()
        .filter(is_faster)
        .find_map(|malloc| drawback(&malloc).map(|why| (malloc, why)));
    UsefulMallocs { best, faster }
}

/// Where a malloc's shared library is or comes from. `None`: no distribution has it. The
/// tcmalloc that distributions have is another implementation than the built-in one.
fn library(malloc: &ComparedMalloc) -> Option<MallocLibrary> {
    if let Some(file) = &malloc.installed {
        return Some(MallocLibrary { file: file.clone(), packages: String::new() });
    }
    let (file, packages) = match &*malloc.name {
        "jemalloc" => {
            ("libjemalloc.so.2", "libjemalloc2 in Debian and Ubuntu, jemalloc in Fedora and Arch")
        }
        "mimalloc" => (
            "libmimalloc.so",
            "libmimalloc-dev in Debian and Ubuntu, mimalloc-devel in Fedora, mimalloc in Arch",
        ),
        _ => return None,
    };
    Some(MallocLibrary { file: file.to_owned(), packages: packages.to_owned() })
}

/// Whether a malloc saves as much as all confirmed plans together, or so nearly that changing the
/// code is not worth it: the plans would have to save [`LEAST_GAIN`] more.
pub fn gives_as_much(
    malloc: &ComparedMalloc,
    together: &CombinedPlan,
    program: &RecordedProgram,
) -> bool {
    match (gain(&malloc.comparison, program), together.gain) {
        (Some(malloc), Some(plans)) => plans - malloc < LEAST_GAIN,
        _ => together.time_ratio.is_some_and(|time| malloc.comparison.time <= time + AS_MUCH),
    }
}

/// The advice to use a malloc, with its reason.
pub fn malloc_advice(
    malloc: &ComparedMalloc,
    gives_as_much: bool,
    drawback: Option<&str>,
    program: &RecordedProgram,
) -> MallocAdvice {
    let ComparedMalloc { name, comparison, .. } = malloc;
    let gain = gain(comparison, program);
    let mut reason = format!("{name} takes {} in the replay", figures(comparison));
    if let Some(gain) = gain {
        reason += &format!(", which saves {} of the program's CPU time", percent(gain));
    }
    MallocAdvice {
        name: name.clone(),
        gain,
        time_ratio: Some(comparison.time),
        memory_ratio: comparison.memory,
        more_peak_bytes: comparison.more_memory(),
        gives_as_much,
        reason,
        drawback: drawback.map(str::to_owned),
        library: library(malloc),
    }
}

/// Marks a group of the confirmed plans as not needing a change, because a malloc saves as much.
pub fn mark_as_unnecessary(group: &mut SiteGroup, better: &MallocAdvice) {
    group.verdict.category = ObjectCategory::BetterMalloc;
    let Some(outcome) = &mut group.verdict.replayed else { return };
    outcome.reason += &format!(
        "; but without changing the code, another malloc saves as much as all confirmed changes together: {}",
        better.reason
    );
}

/// Judges the advice to use a better malloc. `ceilings` is the sum of the groups' ceilings; the
/// group gets its part of what the malloc saves.
pub fn malloc(group: &mut SiteGroup, better: Option<&MallocAdvice>, ceilings: f64) {
    let saved = better.map_or(Some(0.0), |better| better.gain);
    if let (Some(saved), Some(gain)) = (saved, &mut group.verdict.gain) {
        gain.share = (saved * gain.ceiling / ceilings.max(f64::MIN_POSITIVE)).min(gain.ceiling);
        gain.measured = true;
    }
    group.verdict.replayed = Some(match better {
        Some(better) => ReplayOutcome {
            confirmed: true,
            reason: format!("confirmed: for all groups together, {}", better.reason),
            time_ratio: better.time_ratio,
            memory_ratio: better.memory_ratio,
        },
        None => ReplayOutcome {
            confirmed: false,
            reason: "not confirmed: in the replay no other malloc that is installed or that distributions have saves 1 % of the program's CPU time with at most 1.5 times glibc's memory or 8 MiB more"
                .to_owned(),
            time_ratio: None,
            memory_ratio: None,
        },
    });
}

/// Stores that a group's advice was not replayed.
pub fn not_replayed(group: &mut SiteGroup, why: &str) {
    let reason = format!("not confirmed, because it was not replayed: {why}");
    group.verdict.replayed =
        Some(ReplayOutcome { confirmed: false, reason, time_ratio: None, memory_ratio: None });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::rounds::chance_of;

    fn comparison(time: f64, deviation: f64, peaks: (u64, u64)) -> Comparison {
        let memory = Some(peaks.0 as f64 / peaks.1 as f64);
        // Five rounds, of which the outermost lie twice as far out.
        let ratios = [-2.0, -1.0, 0.0, 1.0, 2.0].map(|far| time + far * deviation);
        let count = |is: &dyn Fn(f64) -> bool| ratios.iter().filter(|ratio| is(**ratio)).count();
        Comparison {
            time,
            deviation,
            rounds: 5,
            quicker: count(&|ratio| ratio < 0.99),
            slower: count(&|ratio| ratio > 1.01),
            extremes: (ratios[0], ratios[4]),
            chance: (
                chance_of(ratios.iter().map(|ratio| ratio / 0.99)),
                chance_of(ratios.iter().map(|ratio| 1.01 / ratio)),
            ),
            memory,
            peaks: Some(peaks),
            saved_ns: (1.0 - time) * 1e9,
        }
    }

    fn program(cpu_ns: u64) -> RecordedProgram {
        RecordedProgram { cpu_ns: Some(cpu_ns), ..RecordedProgram::default() }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_plan_has_to_beat_the_noise() {
        let program = program(2_000_000_000);
        let even = (10 * MIB, 10 * MIB);
        assert!(plan(&comparison(0.9, 0.01, even), &program).confirmed);
        let noisy = plan(&comparison(0.9, 0.06, even), &program);
        assert!(!noisy.confirmed && noisy.reason.contains("noise"), "{}", noisy.reason);
        let slower = plan(&comparison(6.0, 0.06, even), &program);
        assert!(!slower.confirmed && slower.reason.contains("slower"), "{}", slower.reason);
        assert!(
            slower.reason.contains("6.00 × glibc's time (slower in all 5 rounds"),
            "{}",
            slower.reason
        );
        // Noise doesn't matter where every round says the same.
        let clear = plan(&comparison(0.5, 0.24, even), &program);
        assert!(
            clear.confirmed && clear.reason.contains("faster in all 5 rounds, ±24.0 %"),
            "{}",
            clear.reason
        );
    }

    #[test]
    fn a_plan_may_not_take_half_as_much_memory_again() {
        let program = program(2_000_000_000);
        let large = plan(&comparison(0.5, 0.01, (16 * MIB, 10 * MIB)), &program);
        assert!(!large.confirmed && large.reason.contains("memory"), "{}", large.reason);
        // A first chunk isn't much.
        assert!(plan(&comparison(0.5, 0.01, (MIB, MIB / 8)), &program).confirmed);
    }

    #[test]
    fn memory_is_told_in_bytes_where_glibc_needs_none() {
        let program = program(2_000_000_000);
        let none = Comparison { memory: None, ..comparison(0.5, 0.01, (40 << 10, 4 << 10)) };
        let verdict = plan(&none, &program);
        assert!(verdict.confirmed, "{}", verdict.reason);
        assert!(verdict.reason.contains("and 36.0 KiB more memory"), "{}", verdict.reason);
        assert_eq!(verdict.memory_ratio, None);
    }

    #[test]
    fn a_plan_that_saves_next_to_nothing_of_the_program_is_not_confirmed() {
        let little = plan(&comparison(0.5, 0.01, (MIB, MIB)), &program(500_000_000_000));
        assert!(!little.confirmed && little.reason.contains("it saves 0.1 %"), "{}", little.reason);
        // The replay took longer than the program did, perhaps because the machine was busy.
        assert_eq!(gain(&comparison(0.5, 0.01, (MIB, MIB)), &program(1)), Some(1.0));
        let unknown = RecordedProgram::default();
        assert!(plan(&comparison(0.5, 0.01, (MIB, MIB)), &unknown).confirmed);
    }

    #[test]
    fn a_saving_too_small_to_be_told_is_told_as_in_the_summary() {
        let little = plan(&comparison(0.97, 0.001, (MIB, MIB)), &program(40_000_000_000));
        assert!(little.reason.contains("it saves less than 0.1 % of"), "{}", little.reason);
    }

    fn malloc(name: &str, time: f64, peaks: (u64, u64)) -> ComparedMalloc {
        ComparedMalloc {
            name: name.to_owned(),
            installed: None,
            comparison: comparison(time, 0.01, peaks),
        }
    }

    #[test]
    fn the_best_malloc_is_fast_and_small() {
        let mallocs = vec![
            malloc("jemalloc", 0.3, (30 * MIB, 10 * MIB)),
            malloc("mimalloc", 0.6, (9 * MIB, 10 * MIB)),
            malloc("slow", 0.99, (MIB, 10 * MIB)),
        ];
        let program = program(2_000_000_000);
        let found = useful(mallocs.clone(), &program);
        assert_eq!(found.best.unwrap().name, "mimalloc");
        // What is faster is told with its price.
        let (faster, why) = found.faster.unwrap();
        assert_eq!((&*faster.name, why), ("jemalloc", "it needs too much memory"));
        // 0.4 s of a hundred are too little for a change, even for so small a one.
        let long = RecordedProgram { cpu_ns: Some(100_000_000_000), ..RecordedProgram::default() };
        assert_eq!(useful(mallocs, &long), UsefulMallocs::default());
        let slow = vec![malloc("slow", 0.99, (MIB, 10 * MIB))];
        assert_eq!(useful(slow, &program), UsefulMallocs::default());
    }

    #[test]
    fn a_malloc_is_not_withheld_for_the_memory_that_it_takes_in_every_program() {
        let mallocs = vec![malloc("mimalloc", 0.4, (27 * MIB / 10, MIB))];
        let best = useful(mallocs, &program(2_000_000_000)).best.unwrap();
        let advice = malloc_advice(&best, false, None, &program(2_000_000_000));
        assert_eq!(advice.more_peak_bytes, Some(17 * MIB as i64 / 10));
        assert_eq!(advice.library.unwrap().file, "libmimalloc.so");
    }

    #[test]
    fn a_malloc_that_no_distribution_has_is_only_named_beside_one_that_can_be_installed() {
        let peaks = (10 * MIB, 10 * MIB);
        let mallocs = vec![malloc("snmalloc", 0.3, peaks), malloc("jemalloc", 0.5, peaks)];
        let found = useful(mallocs, &program(2_000_000_000));
        assert_eq!(found.best.unwrap().name, "jemalloc");
        let (faster, why) = found.faster.unwrap();
        assert_eq!((&*faster.name, why), ("snmalloc", "no distribution has it"));
        // Where it saves hardly more, it is not named.
        let mallocs = vec![malloc("snmalloc", 0.5, peaks), malloc("jemalloc", 0.51, peaks)];
        assert_eq!(useful(mallocs, &program(2_000_000_000)).faster, None);
        let alone = useful(vec![malloc("snmalloc", 0.3, peaks)], &program(2_000_000_000));
        assert!(alone.best.is_none() && alone.faster.is_some());
    }

    #[test]
    fn where_allocating_takes_too_little_no_malloc_is_said_to_save_anything() {
        let mallocs = vec![malloc("jemalloc", 0.3, (MIB, MIB))];
        let program = RecordedProgram { allocator_share: Some(0.007), ..program(50_000_000_000) };
        assert_eq!(useful(mallocs, &program), UsefulMallocs::default());
    }

    #[test]
    fn a_malloc_gives_as_much_if_it_is_as_fast_as_all_plans_together() {
        let malloc = ComparedMalloc {
            name: "good".to_owned(),
            installed: None,
            comparison: comparison(0.6, 0.01, (MIB, MIB)),
        };
        let all = |time| {
            let comparison = comparison(time, 0.01, (MIB, MIB));
            together(&comparison, &[0], None, None, &RecordedProgram::default())
        };
        assert!(gives_as_much(&malloc, &all(0.595), &RecordedProgram::default()));
        assert!(!gives_as_much(&malloc, &all(0.4), &RecordedProgram::default()));
    }

    #[test]
    fn a_change_has_to_be_worth_it_beyond_what_a_malloc_gives() {
        let malloc = ComparedMalloc {
            name: "good".to_owned(),
            installed: None,
            comparison: comparison(0.6, 0.01, (MIB, MIB)),
        };
        // 0.4 s of 0.5: 0.1 s are 1 % of ten seconds, and a tenth of one.
        let as_much = |cpu_ns| {
            let program = program(cpu_ns);
            let plans = together(&comparison(0.5, 0.01, (MIB, MIB)), &[0], None, None, &program);
            gives_as_much(&malloc, &plans, &program)
        };
        assert!(as_much(10_100_000_000));
        assert!(!as_much(1_000_000_000));
    }
}
