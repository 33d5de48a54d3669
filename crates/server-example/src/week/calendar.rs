//! The requests of each simulated minute.

use bench::workloads::random::Random;
use std::f64::consts::TAU;
use std::ops::Range;

/// The minutes of an hour.
pub const HOUR: u32 = 60;
/// The minutes of a day.
pub const DAY: u32 = 24 * HOUR;

/// The hour of the day with the fewest requests.
const QUIETEST_HOUR: f64 = 4.0;
/// By how much the requests of a minute differ from the mean, at most, as a part of the mean.
const DAILY: f64 = 0.8;
/// The requests of a day of the weekend, as a part of those of another day.
const WEEKEND: f64 = 0.6;
/// The number of bursts a day.
const BURSTS: u32 = 2;
/// The minutes of a burst.
const BURST: u32 = 15;
/// How many times as many requests come in a burst.
const BURST_FACTOR: f64 = 5.0;
/// The hours of a working day at which a cache is deployed anew.
const DEPLOYS: [u32; 2] = [10, 15];

/// A week that begins at Monday, 0:00, or a part of it.
#[derive(Debug, Clone)]
pub struct Calendar {
    minutes: u32,
    mean: f64,
    bursts: Vec<Range<u32>>,
}

impl Calendar {
    /// Makes a calendar with this mean number of requests a minute. Equal arguments make equal
    /// calendars.
    pub fn new(days: u32, requests_per_minute: u32) -> Self {
        let mut random = Random::stream(1);
        let starts = (0..days * BURSTS).map(|burst| burst / BURSTS * DAY + random.below(DAY));
        let bursts = starts.map(|start| start..start + BURST).collect();
        Self { minutes: days * DAY, mean: f64::from(requests_per_minute), bursts }
    }

    /// Returns the number of minutes.
    pub fn minutes(&self) -> u32 {
        self.minutes
    }

    fn rate(&self, minute: u32) -> f64 {
        let hour = f64::from(minute % DAY) / f64::from(HOUR);
        let daily = 1.0 - DAILY * (TAU * (hour - QUIETEST_HOUR) / 24.0).cos();
        let weekly = if is_weekend(minute) { WEEKEND } else { 1.0 };
        let is_burst = self.bursts.iter().any(|burst| burst.contains(&minute));
        self.mean * daily * weekly * if is_burst { BURST_FACTOR } else { 1.0 }
    }

    /// Returns the number of requests of a minute.
    pub fn requests(&self, minute: u32) -> u64 {
        self.rate(minute).round() as u64
    }

    /// Whether a cache is deployed anew at the beginning of a minute.
    pub fn is_deploy(&self, minute: u32) -> bool {
        let hour = minute % DAY / HOUR;
        !is_weekend(minute) && minute.is_multiple_of(HOUR) && DEPLOYS.contains(&hour)
    }
}

fn is_weekend(minute: u32) -> bool {
    minute / DAY % 7 >= 5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_has_days_and_nights_bursts_deploys_and_a_weekend() {
        let week = Calendar::new(7, 100);
        let requests =
            |minutes: Range<u32>| minutes.map(|minute| week.requests(minute)).sum::<u64>();
        let day = |day: u32| requests(day * DAY..(day + 1) * DAY);
        assert_eq!(week.minutes(), 7 * DAY);
        assert!((0..5).all(|one| day(one) > day(5) && day(one) > day(6)));
        let night = requests(DAY + 3 * HOUR..DAY + 5 * HOUR);
        assert!(night * 3 < requests(DAY + 15 * HOUR..DAY + 17 * HOUR), "{night}");
        let most = (0..week.minutes()).map(|minute| week.requests(minute)).max();
        assert!(most > Some(500), "{most:?}");
        let deploys: Vec<_> =
            (0..week.minutes()).filter(|minute| week.is_deploy(*minute)).collect();
        assert_eq!((deploys.len(), deploys[0]), (10, 10 * HOUR));
        let again = Calendar::new(7, 100);
        assert!((0..week.minutes()).all(|minute| again.requests(minute) == week.requests(minute)));
    }
}
