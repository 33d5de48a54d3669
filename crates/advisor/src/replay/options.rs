//! The options of a replay, and the limits that follow from them.

use super::rounds::RoundLimits;
use bench::console::failure::Failure;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Rounds without `--rounds`: as many as fit in the target time, up to `MOST_ROUNDS`; `WANTED_ROUNDS`
/// if they fit in three times that; always at least `LEAST_ROUNDS`.
const MOST_ROUNDS: usize = 15;
const WANTED_ROUNDS: usize = 5;
const LEAST_ROUNDS: usize = 3;
/// The target time of a replay by itself.
const TIME: Duration = Duration::from_secs(60);

/// Options of a replay.
#[derive(Debug, Clone, Default)]
pub struct ReplayOptions {
    /// Mallocs besides glibc, as built in; `None`: each installed malloc, and the built-in ones of
    /// jemalloc, mimalloc and snmalloc that aren't installed.
    pub allocators: Option<Vec<String>>,
    /// `None`: as many as fit in the time.
    pub rounds: Option<usize>,
    /// Compare live bytes with the recording's.
    pub check: bool,
    /// Time limit for all rounds; `None`: about the target time, longer for the least number of
    /// rounds.
    pub time: Option<Duration>,
    /// The target time, where it isn't a minute.
    pub target: Option<Duration>,
    /// Show the progress on a terminal.
    pub progress: bool,
    /// Once it is set, the running round is ended and no further one begins. The verdicts use the
    /// rounds done so far; if these are too few, the replay fails with [`Failure::Interrupted`].
    pub stop: Option<&'static AtomicBool>,
}

impl ReplayOptions {
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// The limits of rounds that may take this part of the time.
    pub fn limits(&self, part: f64) -> RoundLimits {
        let (least, wanted) = match self.time {
            Some(_) => (1, 1),
            None => (LEAST_ROUNDS, WANTED_ROUNDS),
        };
        let time = self.time.or(self.target).unwrap_or(TIME).mul_f64(part);
        match (self.rounds, self.time) {
            (Some(rounds), None) => {
                RoundLimits { most: rounds, least: rounds, wanted: rounds, time }
            }
            (most, _) => RoundLimits { most: most.unwrap_or(MOST_ROUNDS), least, wanted, time },
        }
    }
}

/// Fails if the replay was stopped.
pub fn interrupted(options: &ReplayOptions) -> Result<(), Failure> {
    if options.is_stopped() { Err(Failure::Interrupted) } else { Ok(()) }
}
