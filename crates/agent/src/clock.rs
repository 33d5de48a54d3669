//! The agent's clock: the machine's, or a simulated one.

use crate::store::Second;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The speed of simulated time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// This many simulated seconds pass in one second.
    Times(f64),
    /// The next second begins when the one before has been collected.
    Max,
}

/// A longer wait for the machine's clock means that the clock was set back. Seconds then continue
/// from the last one, so that none is missed, until the clock has caught up.
const MAX_NORMAL_WAIT: Duration = Duration::from_secs(5);

const SECOND: Duration = Duration::from_secs(1);

/// The last second that the clock reaches. The store needs one after it.
const LAST_SECOND: Second = Second::MAX - 1;

/// The greatest factor of [`Speed::Times`].
const MAX_SPEED: f64 = 1_000_000.0;

/// The text is not a speed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSpeed(String);

impl fmt::Display for InvalidSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a speed; give a number above 0 and up to {MAX_SPEED}, or max",
            self.0
        )
    }
}

impl std::error::Error for InvalidSpeed {}

impl FromStr for Speed {
    type Err = InvalidSpeed;

    fn from_str(text: &str) -> Result<Self, InvalidSpeed> {
        if text == "max" {
            return Ok(Self::Max);
        }
        match text.parse() {
            Ok(times) if times > 0.0 && times <= MAX_SPEED => Ok(Self::Times(times)),
            _ => Err(InvalidSpeed(text.to_owned())),
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(times) => times.fmt(f),
            Self::Max => f.write_str("max"),
        }
    }
}

/// The text is not a time that the clock can start at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidStartTime(String, String);

impl fmt::Display for InvalidStartTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text, cause) = self;
        write!(f, "{text:?} is not a start time: {cause}; write it like 2026-02-01T09:59:30Z")
    }
}

impl std::error::Error for InvalidStartTime {}

/// Reads a time as RFC 3339 writes it, in UTC, from 1970 to 2105.
///
/// # Errors
/// When the text is not such a time.
pub fn parse_start_time(text: &str) -> Result<Second, InvalidStartTime> {
    let refuse = |cause: &str| InvalidStartTime(text.to_owned(), cause.to_owned());
    let time = humantime::parse_rfc3339(text).map_err(|error| refuse(&error.to_string()))?;
    let since = time.duration_since(UNIX_EPOCH).map_err(|_| refuse("it is before 1970"))?;
    // At least a year remains before the last second.
    match Second::try_from(since.as_secs()) {
        Ok(second) if second < Second::MAX - 366 * 86_400 => Ok(second),
        _ => Err(refuse("it is after 2105")),
    }
}

/// The agent's clock.
#[derive(Debug)]
pub struct Clock {
    kind: ClockKind,
}

#[derive(Debug)]
enum ClockKind {
    Real,
    Simulated {
        start: Second,
        began: Instant,
        times: f64,
    },
    /// The second that is being collected.
    Stepped(AtomicU32),
}

impl Clock {
    /// Returns the machine's clock.
    #[must_use]
    pub fn real() -> Self {
        Self { kind: ClockKind::Real }
    }

    /// Returns a clock that starts at this second, now.
    #[must_use]
    pub fn simulated(start: Second, speed: Speed) -> Self {
        let kind = match speed {
            Speed::Times(times) => ClockKind::Simulated { start, began: Instant::now(), times },
            Speed::Max => ClockKind::Stepped(AtomicU32::new(start)),
        };
        Self { kind }
    }

    /// Whether the clock is simulated.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        !matches!(self.kind, ClockKind::Real)
    }

    /// Returns the current second.
    #[must_use]
    pub fn now(&self) -> Second {
        self.since_epoch().as_secs().try_into().unwrap_or(Second::MAX)
    }

    fn since_epoch(&self) -> Duration {
        match &self.kind {
            ClockKind::Real => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            ClockKind::Simulated { start, began, times } => {
                Duration::from_secs((*start).into()) + began.elapsed().mul_f64(*times)
            }
            ClockKind::Stepped(now) => Duration::from_secs(now.load(Ordering::Acquire).into()),
        }
    }

    /// Waits for the second after `last`. Returns the current second, which is later than the next
    /// one if that was missed, or `None` when the signal is set or the store can count no further
    /// second.
    #[must_use]
    pub fn next_tick(&self, last: Second, stop: &StopSignal) -> Option<Second> {
        let next = last.saturating_add(1);
        if let ClockKind::Stepped(now) = &self.kind {
            now.store(next, Ordering::Release);
        }
        if stop.is_set() || next > LAST_SECOND {
            return None;
        }
        if let ClockKind::Stepped(_) = self.kind {
            return Some(next);
        }
        let due = Duration::from_secs(next.into());
        loop {
            if stop.is_set() {
                return None;
            }
            let now = self.since_epoch();
            if now >= due {
                return Some(
                    now.as_secs()
                        .try_into()
                        .map_or(LAST_SECOND, |now: Second| now.min(LAST_SECOND)),
                );
            }
            let rest = match self.kind {
                // A slow clock is read at least once a second.
                ClockKind::Simulated { times, .. } => {
                    Duration::from_secs_f64(((due - now).as_secs_f64() / times).min(1.0))
                }
                _ if due - now > MAX_NORMAL_WAIT => {
                    stop.wait(SECOND);
                    return (!stop.is_set()).then_some(next);
                }
                _ => due - now,
            };
            // A change of the machine's clock is noticed within a second.
            stop.wait(rest.min(SECOND));
        }
    }
}

/// A signal that ends waits. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StopSignal(Arc<(Mutex<bool>, Condvar)>);

impl StopSignal {
    /// Sets the signal, for all clones.
    pub fn set(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Whether the signal is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the signal is set, at most this long.
    pub fn wait(&self, at_most: Duration) {
        let set = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.1.wait_timeout_while(set, at_most, |set| !*set));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_and_moments_are_read_or_refused_with_a_remedy() {
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("2.5".parse(), Ok(Speed::Times(2.5)));
        for text in ["", "0", "-1", "inf", "NaN", "1e7", "fast"] {
            assert!(text.parse::<Speed>().unwrap_err().to_string().contains("or max"), "{text}");
        }
        assert_eq!(parse_start_time("1970-01-02T00:00:01Z"), Ok(86_401));
        assert_eq!(parse_start_time("2026-02-01T09:59:30Z"), Ok(1_769_939_970));
        for text in [
            "",
            "yesterday",
            "1969-12-31T23:59:59Z",
            "2105-12-31T00:00:00Z",
            "9999-01-01T00:00:00Z",
        ] {
            assert!(
                parse_start_time(text).unwrap_err().to_string().contains("write it like"),
                "{text}"
            );
        }
    }

    #[test]
    fn at_the_highest_speed_each_second_comes_once() {
        let clock = Clock::simulated(1000, Speed::Max);
        let stop = StopSignal::default();
        assert_eq!(clock.now(), 1000);
        let mut last = 1000;
        for second in 1001..2000 {
            last = clock.next_tick(last, &stop).unwrap();
            assert_eq!((last, clock.now()), (second, second));
        }
        stop.set();
        assert_eq!(clock.next_tick(last, &stop), None);
    }

    #[test]
    fn simulated_time_goes_on_from_its_start_and_the_last_second_counts() {
        let clock = Clock::simulated(1000, Speed::Times(1000.0));
        let stop = StopSignal::default();
        let next = clock.next_tick(1000, &stop).unwrap();
        assert!(next > 1000);
        let later = clock.next_tick(next, &stop).unwrap();
        assert!(later > next && clock.now() >= later);
    }

    #[test]
    fn seconds_go_on_when_the_machines_clock_is_set_back() {
        let (clock, stop) = (Clock::real(), StopSignal::default());
        let last = clock.now() + 3600;
        assert_eq!(clock.next_tick(last, &stop), Some(last + 1));
        // A caller that is late gets the current second.
        assert!(clock.next_tick(last - 7200, &stop).unwrap() > last - 3601);
    }

    #[test]
    fn after_the_last_second_there_is_no_other() {
        let stop = StopSignal::default();
        for speed in [Speed::Max, Speed::Times(MAX_SPEED)] {
            let clock = Clock::simulated(LAST_SECOND - 2, speed);
            let mut last = LAST_SECOND - 2;
            // Each second is later than the one before, and the seconds end.
            while let Some(next) = clock.next_tick(last, &stop) {
                assert!(next > last && next <= LAST_SECOND);
                last = next;
            }
            assert_eq!(last, LAST_SECOND);
        }
    }

    #[test]
    fn the_slowest_clock_waits_for_the_end() {
        for times in [f64::MIN_POSITIVE, 5e-324] {
            let (clock, stop) =
                (Clock::simulated(1000, Speed::Times(times)), StopSignal::default());
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| clock.next_tick(1000, &stop));
                // It waits, however slow it is, and does not panic.
                std::thread::sleep(Duration::from_millis(20));
                stop.set();
                assert_eq!(waits.join().unwrap(), None);
            });
        }
    }

    #[test]
    fn who_waits_for_a_second_is_woken_by_the_end() {
        let clock = Clock::simulated(1000, Speed::Times(0.000_001));
        let stop = StopSignal::default();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| clock.next_tick(1000, &stop));
            stop.set();
            assert_eq!(waits.join().unwrap(), None);
        });
    }
}
