//! Runs the rounds: every row once, each in a fresh process, then every row again, so that a drift
//! of the machine affects all rows alike.

use super::installed_mallocs::preload_list;
use super::round_job::{REST, Round, RoundJob, RowAllocator};
use bench::console::progress::Progress;
use bench::console::statistics::{Ratio, median};
use bench::runner::child_process::{self, ChildFailure};
use std::time::{Duration, Instant};

/// A row to run.
#[derive(Debug, Clone, PartialEq)]
pub struct RowSpec {
    pub name: String,
    /// The groups whose advice it follows.
    pub groups: Vec<u32>,
    pub allocator: RowAllocator,
}

/// Limits of the number of rounds.
#[derive(Debug, Clone, Copy)]
pub struct RoundLimits {
    /// The most rounds, and the fewest.
    pub most: usize,
    pub least: usize,
    /// This many rounds, if they end within [`TIME_FACTOR_FOR_WANTED`] times `time`.
    pub wanted: usize,
    /// The time within which more rounds have to end.
    pub time: Duration,
}

/// The multiple of its time that a replay may take for the wanted rounds.
const TIME_FACTOR_FOR_WANTED: u32 = 3;

impl RoundLimits {
    /// The number of rounds if one round takes this long.
    fn rounds(&self, one: Duration) -> usize {
        let fit = |time: Duration| (time.as_nanos() / one.as_nanos().max(1)) as usize;
        let wanted = self.wanted.min(fit(self.time * TIME_FACTOR_FOR_WANTED));
        fit(self.time).max(wanted).max(self.least).min(self.most)
    }
}

/// The result of a row: its rounds, or why it failed.
pub type RowRounds = Result<Vec<Round>, String>;

/// The time limit of a round; one that takes longer hangs.
const LONGEST_ROUND: Duration = Duration::from_secs(1800);
/// A plan that took more than this multiple of glibc's time in a round is not run again, because it
/// can't be confirmed and would take most of the time.
const MOST_TIMES_SLOWER: u64 = 3;

/// Runs all rounds, or until `stopped`. A row that fails once is not run again, and has no figures.
pub fn run(
    specs: &[RowSpec],
    limits: RoundLimits,
    progress: &Progress,
    stopped: &dyn Fn() -> bool,
    mut run_one: impl FnMut(&RowSpec) -> Result<Round, String>,
) -> Vec<RowRounds> {
    let mut found: Vec<RowRounds> = specs.iter().map(|_| Ok(Vec::new())).collect();
    let mut longest = Duration::ZERO;
    let mut goal = limits.most;
    let mut round = 0;
    while round < goal {
        let began = Instant::now();
        for at in 0..specs.len() {
            let spec = &specs[at];
            if found[at].is_err() || is_too_slow(specs, &found, at) {
                progress.step();
                continue;
            }
            let of = if round > 0 { format!(" of {goal}") } else { String::new() };
            progress.say(&format!("round {}{of}: {}", round + 1, spec.name));
            let done = run_one(spec);
            if stopped() {
                return found;
            }
            match (done, &mut found[at]) {
                (Ok(round), Ok(rounds)) => rounds.push(round),
                (Ok(_), Err(_)) => {}
                (Err(why), row) => {
                    progress.warn(&format!("{}: {why}", spec.name));
                    *row = Err(why);
                }
            }
            progress.step();
        }
        round += 1;
        longest = longest.max(began.elapsed());
        let next = limits.rounds(longest).clamp(round, goal);
        progress.fewer((goal - next) * specs.len());
        goal = next;
    }
    found
}

/// Whether a plan's last round was so slow that it isn't run again.
fn is_too_slow(specs: &[RowSpec], found: &[RowRounds], at: usize) -> bool {
    let base = specs.iter().zip(found).find(|(spec, _)| spec.name == REST);
    let (RowAllocator::Plan(_), Ok(own), Some((_, Ok(base)))) =
        (&specs[at].allocator, &found[at], base)
    else {
        return false;
    };
    let both = own.last().zip(own.len().checked_sub(1).and_then(|last| base.get(last)));
    both.is_some_and(|(own, base)| own.time_ns > MOST_TIMES_SLOWER * base.time_ns.max(1))
}

/// Runs a job in a child process, and ends it once `stopped`.
pub fn in_child(job: &RoundJob, stopped: &dyn Fn() -> bool) -> Result<Round, String> {
    let input = serde_json::to_vec(job).map_err(|error| error.to_string())?;
    let preload = match &job.allocator {
        RowAllocator::Preloaded(library) => preload_list(library),
        _ => String::new(),
    };
    let preload = [("LD_PRELOAD", &*preload)];
    let environment = match &job.allocator {
        RowAllocator::Malloc(name) => {
            bench::peers::about(name).map_or(&[][..], |about| about.environment)
        }
        RowAllocator::Preloaded(_) => &preload,
        _ => &[],
    };
    let arguments = ["replay-round".to_owned()];
    child_process::ask_unless(stopped, &arguments, environment, Some(&input), LONGEST_ROUND)
        .map_err(|why| match why {
            ChildFailure::Signal(KILLED, _) => {
                format!("{why}, usually because memory ran out")
            }
            why => why.to_string(),
        })
}

const KILLED: i32 = nix::sys::signal::Signal::SIGKILL as i32;

/// The distance between fewer rounds than this is unknown; it is assumed to be `ASSUMED_DEVIATION`.
const FEWEST_FOR_DEVIATION: usize = 3;
const ASSUMED_DEVIATION: f64 = 0.1;

/// The least difference between two rows in a round, as a share of glibc's time, for one to be
/// quicker.
const LEAST_DIFFERENCE: f64 = 0.01;
/// The fewest rounds for which the test can decide: four rounds agree by chance once in 16 times,
/// five once in 32 times.
const TESTED: usize = 5;
/// With fewer rounds, all of them have to differ by more than this, and by more than the noise.
const UNTESTED: f64 = 0.05;
/// Below this many bytes, a peak is no base for a ratio: the first chunk of any allocator is larger.
const LEAST_PEAK: u64 = 1 << 20;
/// The highest probability that chance alone explains the result, for a row to be quicker.
const MOST_CHANCE: f64 = 0.05;

/// A row compared with glibc.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Time divided by glibc's: the median of the rounds' ratios.
    pub time: f64,
    /// The median distance of a round's ratio from `time`.
    pub deviation: f64,
    /// The number of rounds that both have; in how many of these the row was quicker, and slower,
    /// by more than 1 %; and the least and the largest ratio.
    pub rounds: usize,
    pub quicker: usize,
    pub slower: usize,
    pub extremes: (f64, f64),
    /// The probabilities that chance alone makes it look this much quicker, and this much slower,
    /// by more than 1 % each.
    pub chance: (f64, f64),
    /// Peak memory divided by glibc's; `None` if glibc's is less than 1 MiB or either is unknown.
    pub memory: Option<f64>,
    /// Its peak, and glibc's.
    pub peaks: Option<(u64, u64)>,
    /// What it saves in the median round, in nanoseconds.
    pub saved_ns: f64,
}

impl Comparison {
    pub fn of(row: &[Round], glibc: &[Round]) -> Option<Self> {
        let times = |rounds: &[Round]| -> Vec<Option<f64>> {
            rounds.iter().map(|round| Some(round.time_ns.max(1) as f64)).collect()
        };
        let (own, base) = (times(row), times(glibc));
        let time = Ratio::of_rounds(&own, &base)?.median;
        let pairs = || {
            row.iter().zip(glibc).map(|(a, b)| (a.time_ns.max(1) as f64, b.time_ns.max(1) as f64))
        };
        let deviation = median(pairs().map(|(own, base)| (own / base - time).abs()))?;
        let deviation = if own.len().min(base.len()) < FEWEST_FOR_DEVIATION {
            deviation.max(ASSUMED_DEVIATION)
        } else {
            deviation
        };
        let peaks = peak(row).zip(peak(glibc));
        let ratios = || pairs().map(|(own, base)| own / base);
        Some(Self {
            time,
            deviation,
            rounds: pairs().count(),
            quicker: ratios().filter(|ratio| *ratio < 1.0 - LEAST_DIFFERENCE).count(),
            slower: ratios().filter(|ratio| *ratio > 1.0 + LEAST_DIFFERENCE).count(),
            extremes: (ratios().fold(f64::MAX, f64::min), ratios().fold(0.0, f64::max)),
            chance: (
                chance_of(ratios().map(|ratio| ratio / (1.0 - LEAST_DIFFERENCE))),
                chance_of(ratios().map(|ratio| (1.0 + LEAST_DIFFERENCE) / ratio)),
            ),
            memory: peaks
                .filter(|peaks| peaks.1 >= LEAST_PEAK)
                .map(|(own, base)| own as f64 / base as f64),
            peaks,
            saved_ns: median(pairs().map(|(own, base)| base - own))?,
        })
    }

    /// The bytes of peak memory beyond glibc's; negative if it takes less.
    pub fn more_memory(&self) -> Option<i64> {
        self.peaks.map(|(own, base)| own as i64 - base as i64)
    }

    /// Twice the typical distance of a round from the median.
    pub fn noise(&self) -> f64 {
        (2.0 * self.deviation).max(LEAST_DIFFERENCE)
    }

    /// What all rounds have to differ by, if they are too few for the test.
    fn untested(&self) -> Option<f64> {
        (self.rounds < TESTED).then(|| self.noise().max(UNTESTED))
    }

    /// Whether it is quicker than glibc by more than 1 %. The test uses only the ratios within the
    /// rounds, so a disturbance that slows both has no effect, and neither has a single outlier.
    pub fn is_quicker(&self) -> bool {
        match self.untested() {
            Some(least) => self.extremes.1 < 1.0 - least,
            None => self.chance.0 <= MOST_CHANCE,
        }
    }

    /// Whether it is slower than glibc by more than 1 %.
    pub fn is_slower(&self) -> bool {
        match self.untested() {
            Some(least) => self.extremes.0 > 1.0 + least,
            None => self.chance.1 <= MOST_CHANCE,
        }
    }
}

/// The probability that ratios lie at least this far below 1 if each were as likely to be its
/// inverse: Wilcoxon's signed-rank test, computed exactly. The ranks are those of the ratios'
/// logarithms.
pub fn chance_of(ratios: impl Iterator<Item = f64>) -> f64 {
    let mut logs: Vec<f64> = ratios.map(f64::ln).collect();
    logs.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let above = logs.iter().enumerate().filter(|(_, log)| **log >= 0.0);
    let against: usize = above.map(|(at, _)| at + 1).sum();
    // By sum: the share of all sign patterns whose ranks above 1 have this sum.
    let mut sums = vec![0.0; against + 1];
    sums[0] = 1.0;
    for rank in 1..=logs.len() {
        for sum in (0..=against).rev() {
            let with = sum.checked_sub(rank).map_or(0.0, |less| sums[less]);
            sums[sum] = (sums[sum] + with) / 2.0;
        }
    }
    sums.iter().sum()
}

/// The median peak.
pub fn peak(rounds: &[Round]) -> Option<u64> {
    bench::console::statistics::median_whole(rounds, |round| round.peak_resident)
}

/// The median distance of a row's rounds from their median, as a share of it.
pub fn spread(rounds: &[Round]) -> Option<f64> {
    let middle = median(rounds.iter().map(|round| round.time_ns as f64))?;
    let deviation = rounds.iter().map(|round| (round.time_ns as f64 / middle.max(1.0) - 1.0).abs());
    let deviation = median(deviation)?;
    Some(if rounds.len() < FEWEST_FOR_DEVIATION {
        deviation.max(ASSUMED_DEVIATION)
    } else {
        deviation
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs() -> Vec<RowSpec> {
        ["a", "b"]
            .map(|name| RowSpec {
                name: name.to_owned(),
                groups: Vec::new(),
                allocator: RowAllocator::Null,
            })
            .to_vec()
    }

    fn timed(time_ns: u64) -> Round {
        Round { time_ns, peak_resident: Some(time_ns), ..Round::default() }
    }

    fn exactly(most: usize) -> RoundLimits {
        RoundLimits { most, least: most, wanted: most, time: Duration::ZERO }
    }

    #[test]
    fn rounds_are_interleaved_and_a_row_that_failed_is_not_run_again() {
        let mut diary = Vec::new();
        let found = run(&specs(), exactly(3), &Progress::new(6), &|| false, |spec| {
            diary.push(spec.name.clone());
            if spec.name == "b" && diary.len() > 2 { Err("gone".to_owned()) } else { Ok(timed(1)) }
        });
        assert_eq!(diary, ["a", "b", "a", "b", "a"]);
        assert_eq!(found[0].as_ref().unwrap().len(), 3);
        assert_eq!(found[1], Err("gone".to_owned()));
    }

    #[test]
    fn there_are_as_many_rounds_as_there_is_time_for() {
        let limits =
            |time| RoundLimits { most: 15, least: 3, wanted: 5, time: Duration::from_secs(time) };
        let one = Duration::from_secs(1);
        assert_eq!(limits(60).rounds(one), 15);
        assert_eq!(limits(8).rounds(one), 8);
        // The wanted rounds may take more time, but not any time.
        assert_eq!(limits(2).rounds(one), 5);
        assert_eq!(limits(1).rounds(one), 3);
        assert_eq!(limits(0).rounds(one), 3);
    }

    #[test]
    fn without_time_there_are_no_more_rounds_than_the_least() {
        let limits = RoundLimits { most: 9, least: 2, wanted: 5, time: Duration::ZERO };
        let found = run(&specs(), limits, &Progress::new(18), &|| false, |_| Ok(timed(1)));
        assert_eq!(found[0].as_ref().unwrap().len(), 2);
    }

    #[test]
    fn a_plan_without_a_chance_is_run_once() {
        let mut specs = specs();
        specs[0].name = REST.to_owned();
        specs[1].allocator = RowAllocator::Plan(Vec::new());
        for (own, rounds) in [(3_001, 1), (3_000, 4)] {
            let found = run(&specs, exactly(4), &Progress::new(8), &|| false, |spec| {
                Ok(timed(if spec.name == REST { 1_000 } else { own }))
            });
            assert_eq!(found[1].as_ref().unwrap().len(), rounds);
            assert_eq!(found[0].as_ref().unwrap().len(), 4);
        }
    }

    #[test]
    fn a_stopped_replay_keeps_the_rounds_that_are_done() {
        let asked = std::cell::Cell::new(0);
        let stopped = || asked.replace(asked.get() + 1) == 4;
        let found = run(&specs(), exactly(9), &Progress::new(18), &stopped, |_| Ok(timed(1)));
        // The fifth was ended, and counts neither as a round nor as a failure.
        assert_eq!(found[0].as_ref().unwrap().len(), 2);
        assert_eq!(found[1].as_ref().unwrap().len(), 2);
    }

    #[test]
    fn chance_is_counted_right() {
        let of = |ratios: &[f64]| chance_of(ratios.iter().copied());
        assert_eq!(of(&[0.5, 0.6, 0.7, 0.8, 0.9]), 1.0 / 32.0);
        // One against it, of the lowest rank: two ways of 32 are no worse; of the highest: ten.
        assert_eq!(of(&[0.5, 0.6, 0.7, 0.8, 1.1]), 2.0 / 32.0);
        assert_eq!(of(&[0.9, 0.8, 0.7, 0.6, 3.0]), 10.0 / 32.0);
        assert_eq!(of(&[2.0, 3.0]), 1.0);
        // A quarter of glibc's time in eleven rounds, and four in which something else ran
        // meanwhile.
        let mut rounds = vec![0.26; 11];
        rounds.extend([1.1, 1.3, 1.6, 2.0]);
        assert!(of(&rounds) < 0.01, "{}", of(&rounds));
        let many = vec![0.9; 1000];
        assert!(of(&many) < 1e-200);
    }

    /// Numbers from 0 to 1, always the same.
    fn random() -> impl FnMut() -> f64 {
        let mut state = 1_u64;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1_u64 << 31) as f64
        }
    }

    /// The shares of simulated replays in which a plan that takes `time` times glibc's time is
    /// judged quicker, and slower. The machine drifts by up to half from round to round, each row
    /// takes up to `noise` longer, and one in ten takes twice as long.
    fn judged(time: f64, noise: f64, rounds: usize) -> (f64, f64) {
        const TRIALS: usize = 4_000;
        let mut random = random();
        let (mut quicker, mut slower) = (0, 0);
        for _ in 0..TRIALS {
            let (mut own, mut glibc) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                let drift = 1.0 + random() / 2.0;
                for (row, of) in [(&mut own, time), (&mut glibc, 1.0)] {
                    let outlier = if random() < 0.1 { 2.0 } else { 1.0 };
                    let ns = 1e6 * of * drift * (1.0 + noise * random()) * outlier;
                    row.push(timed(ns as u64));
                }
            }
            let comparison = Comparison::of(&own, &glibc).unwrap();
            quicker += usize::from(comparison.is_quicker());
            slower += usize::from(comparison.is_slower());
        }
        (quicker as f64 / TRIALS as f64, slower as f64 / TRIALS as f64)
    }

    #[test]
    fn a_plan_that_is_glibcs_equal_is_seldom_held_to_be_quicker_or_slower_however_noisy_it_is() {
        for rounds in [1, 2, 3, 4, 5, 6, 8, 11, 15] {
            for noise in [0.02, 0.1, 0.3, 1.0] {
                let (quicker, slower) = judged(1.0, noise, rounds);
                // One or two rounds decide only by a large difference.
                let most = if rounds < 3 { 0.3 } else { 0.05 };
                assert!(quicker <= most, "{rounds} rounds, ±{noise}: {quicker}");
                assert!(slower <= most, "{rounds} rounds, ±{noise}: {slower}");
            }
        }
    }

    #[test]
    fn a_plan_of_half_of_glibcs_time_is_found_on_a_busy_machine() {
        for rounds in [8, 15] {
            let (quicker, slower) = judged(0.5, 0.6, rounds);
            assert!(quicker > 0.95 && slower == 0.0, "{rounds} rounds: {quicker}, {slower}");
        }
    }

    #[test]
    fn a_plan_that_is_always_quicker_is_so_whatever_lies_between_the_rounds() {
        // A busy machine: the rounds lie ±30 % from their median, and each is a clear gain.
        let ratios = [0.49, 0.2, 0.79, 0.8, 0.48, 0.19];
        let glibc: Vec<Round> = (1..=6).map(|i| timed(i * 1_000_000)).collect();
        let pairs = ratios.iter().zip(&glibc);
        let own: Vec<Round> =
            pairs.map(|(r, base)| timed((r * base.time_ns as f64) as u64)).collect();
        let comparison = Comparison::of(&own, &glibc).unwrap();
        assert!(comparison.deviation > 0.28 && comparison.is_quicker(), "{comparison:?}");
        assert!(!Comparison::of(&own[..4], &glibc).unwrap().is_quicker());
    }

    #[test]
    fn a_standing_is_of_rounds_side_by_side() {
        let row = [timed(50), timed(110), timed(52)];
        let glibc = [timed(100), timed(200), timed(100)];
        let comparison = Comparison::of(&row, &glibc).unwrap();
        assert_eq!(comparison.time, 0.52);
        assert!((comparison.deviation - 0.02).abs() < 1e-9);
        // The medians are 52 and 100 bytes.
        assert_eq!((comparison.memory, comparison.more_memory()), (None, Some(-48)));
        let with_mebibytes = |rounds: &[Round]| -> Vec<Round> {
            let peak = |round: &Round| round.peak_resident.map(|bytes| bytes << 20);
            let more = |round: &Round| Round { peak_resident: peak(round), ..round.clone() };
            rounds.iter().map(more).collect()
        };
        let large = Comparison::of(&with_mebibytes(&row), &with_mebibytes(&glibc)).unwrap();
        assert_eq!(large.memory, Some(0.52));
        assert_eq!(comparison.saved_ns, 50.0);
        assert_eq!(Comparison::of(&[], &glibc), None);
        // One round does not show the noise.
        assert_eq!(spread(&row[..1]), Some(ASSUMED_DEVIATION));
        assert_eq!(Comparison::of(&row[..1], &glibc[..1]).unwrap().deviation, 0.1);
    }
}
