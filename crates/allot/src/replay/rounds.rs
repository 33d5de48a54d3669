//! The rounds: every row once, each in a fresh process, then every row again, so that drift hits all alike.

use super::worker::{Job, Round, Who};
use crate::child::spawn;
use crate::progress::Progress;
use crate::statistics::{median, ratio};
use std::time::{Duration, Instant};

/// One row to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub name: String,
    /// Groups whose advice it follows.
    pub groups: Vec<u32>,
    pub who: Who,
}

/// How many rounds.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub most: usize,
    /// From this many on, no round begins that would end later than `time`.
    pub least: usize,
    pub time: Duration,
}

/// What became of a row: its rounds, or why it has none.
pub type Found = Result<Vec<Round>, String>;

/// No round takes as long; one that does hangs.
const LONGEST_ROUND: Duration = Duration::from_secs(1800);

/// Runs all rounds. A row that fails once is not run again, and has no figures.
pub fn run(
    entries: &[Entry],
    limits: Limits,
    progress: &Progress,
    mut one: impl FnMut(&Entry) -> Result<Round, String>,
) -> Vec<Found> {
    let began = Instant::now();
    let mut found: Vec<Found> = entries.iter().map(|_| Ok(Vec::new())).collect();
    let mut longest = Duration::ZERO;
    for round in 0..limits.most {
        let round_began = Instant::now();
        if round >= limits.least && began.elapsed() + longest > limits.time {
            progress.fewer((limits.most - round) * entries.len());
            break;
        }
        for (entry, found) in entries.iter().zip(&mut found) {
            progress.say(&format!("round {}: {}", round + 1, entry.name));
            if let Ok(rounds) = found {
                match one(entry) {
                    Ok(round) => rounds.push(round),
                    Err(why) => {
                        progress.warn(&format!("{}: {why}", entry.name));
                        *found = Err(why);
                    }
                }
            }
            progress.step();
        }
        longest = longest.max(round_began.elapsed());
    }
    found
}

/// Runs a job in a child.
pub fn in_child(job: &Job) -> Result<Round, String> {
    let input = serde_json::to_vec(job).map_err(|error| error.to_string())?;
    let environment = match &job.who {
        Who::Malloc(name) => peers::about(name).map_or(&[][..], |about| about.environment),
        _ => &[],
    };
    let arguments = ["replay-round".to_owned()];
    spawn::ask(&arguments, environment, Some(&input), LONGEST_ROUND).map_err(|why| why.to_string())
}

/// Of fewer rounds than this nobody can see how far they lie apart; they are taken to do so by this much.
const ENOUGH: usize = 3;
const UNKNOWN_APART: f64 = 0.1;

/// How a row did beside glibc.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// Of glibc's time, the median of the rounds' ratios.
    pub time: f64,
    /// How far a round's ratio typically lies from that.
    pub apart: f64,
    /// Of glibc's peak.
    pub memory: Option<f64>,
    /// Its peak, and glibc's.
    pub peaks: Option<(u64, u64)>,
    /// What it saves in the median round, in nanoseconds.
    pub saved_ns: f64,
}

impl Standing {
    pub fn of(row: &[Round], glibc: &[Round]) -> Option<Self> {
        let times = |rounds: &[Round]| -> Vec<Option<f64>> {
            rounds.iter().map(|round| Some(round.time_ns.max(1) as f64)).collect()
        };
        let (own, base) = (times(row), times(glibc));
        let time = ratio(&own, &base)?;
        let pairs = || {
            row.iter().zip(glibc).map(|(a, b)| (a.time_ns.max(1) as f64, b.time_ns.max(1) as f64))
        };
        let apart = median(pairs().map(|(own, base)| (own / base - time).abs()))?;
        let apart =
            if own.len().min(base.len()) < ENOUGH { apart.max(UNKNOWN_APART) } else { apart };
        let peaks = peak(row).zip(peak(glibc));
        Some(Self {
            time,
            apart,
            memory: peaks.map(|(own, base)| own as f64 / base.max(1) as f64),
            peaks,
            saved_ns: median(pairs().map(|(own, base)| base - own))?,
        })
    }
}

/// The median peak.
pub fn peak(rounds: &[Round]) -> Option<u64> {
    crate::statistics::median_whole(rounds, |round| round.peak_resident)
}

/// How far rounds of a row lie from its median, as a share of it.
pub fn spread(rounds: &[Round]) -> Option<f64> {
    let middle = median(rounds.iter().map(|round| round.time_ns as f64))?;
    median(rounds.iter().map(|round| (round.time_ns as f64 / middle.max(1.0) - 1.0).abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry> {
        ["a", "b"]
            .map(|name| Entry { name: name.to_owned(), groups: Vec::new(), who: Who::Null })
            .to_vec()
    }

    fn timed(time_ns: u64) -> Round {
        Round { time_ns, peak_resident: Some(time_ns), ..Round::default() }
    }

    #[test]
    fn rounds_are_interleaved_and_a_row_that_failed_is_not_run_again() {
        let mut diary = Vec::new();
        let limits = Limits { most: 3, least: 3, time: Duration::ZERO };
        let found = run(&entries(), limits, &Progress::new(6), |entry| {
            diary.push(entry.name.clone());
            if entry.name == "b" && diary.len() > 2 { Err("gone".to_owned()) } else { Ok(timed(1)) }
        });
        assert_eq!(diary, ["a", "b", "a", "b", "a"]);
        assert_eq!(found[0].as_ref().unwrap().len(), 3);
        assert_eq!(found[1], Err("gone".to_owned()));
    }

    #[test]
    fn without_time_there_are_no_more_rounds_than_the_least() {
        let limits = Limits { most: 9, least: 2, time: Duration::ZERO };
        let found = run(&entries(), limits, &Progress::new(18), |_| Ok(timed(1)));
        assert_eq!(found[0].as_ref().unwrap().len(), 2);
    }

    #[test]
    fn a_standing_is_of_rounds_side_by_side() {
        let row = [timed(50), timed(110), timed(52)];
        let glibc = [timed(100), timed(200), timed(100)];
        let standing = Standing::of(&row, &glibc).unwrap();
        assert_eq!(standing.time, 0.52);
        assert!((standing.apart - 0.02).abs() < 1e-9);
        assert_eq!(standing.memory, Some(0.52));
        assert_eq!(standing.saved_ns, 50.0);
        assert_eq!(Standing::of(&[], &glibc), None);
        // One round says nothing of the noise.
        assert_eq!(Standing::of(&row[..1], &glibc[..1]).unwrap().apart, 0.1);
    }
}
