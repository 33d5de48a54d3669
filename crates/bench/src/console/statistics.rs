//! Medians, and ratios of rounds with their 95 % intervals.

use std::fmt;

/// The middle value. With an even number of values, the average of the two in the middle.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    median_of_sorted(&sorted(values))
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median_of_sorted(values: &[f64]) -> Option<f64> {
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// The median of the values that `of` returns, rounded to the nearest whole number. Items without a
/// value don't count.
pub fn median_whole<T>(items: &[T], of: impl Fn(&T) -> Option<u64>) -> Option<u64> {
    median(items.iter().filter_map(of).map(|value| value as f64)).map(|value| value.round() as u64)
}

/// The fewest rounds that have a 95 % interval.
pub const FEWEST_ROUNDS: usize = 6;

/// The probability that the median lies outside of an interval, at most.
const OUTSIDE: f64 = 0.05;

/// A figure of one row divided by the same figure of another, over several rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The median of the ratios of single rounds.
    pub median: f64,
    /// The 95 % interval of the median; `None` with fewer than [`FEWEST_ROUNDS`] rounds.
    pub interval: Option<Interval>,
}

/// A confidence interval. Both ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// What a ratio says about the first of two rows, if less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RatioVerdict {
    /// The whole interval is below 1.
    Ahead,
    /// The whole interval is above 1.
    Behind,
    /// The interval contains 1.
    Level,
}

impl Ratio {
    /// `rounds` divided by `base`, round by round. Rounds that one of them lacks don't count.
    pub fn of_rounds(rounds: &[Option<f64>], base: &[Option<f64>]) -> Option<Self> {
        let ratios = rounds.iter().zip(base).filter_map(|(round, base)| Some((*round)? / (*base)?));
        let ratios = sorted(ratios);
        Some(Self { median: median_of_sorted(&ratios)?, interval: Interval::of_median(&ratios) })
    }

    /// The comparison if less is better, as with times; `None` if there is no interval.
    pub fn verdict(&self) -> Option<RatioVerdict> {
        let Interval { low, high } = self.interval?;
        Some(if high < 1.0 {
            RatioVerdict::Ahead
        } else if low > 1.0 {
            RatioVerdict::Behind
        } else {
            RatioVerdict::Level
        })
    }

    /// The ratio of the second row to the first.
    #[must_use]
    pub fn inverse(self) -> Self {
        let inverse = |Interval { low, high }| Interval { low: 1.0 / high, high: 1.0 / low };
        Self { median: 1.0 / self.median, interval: self.interval.map(inverse) }
    }
}

impl Interval {
    /// The interval between the value of rank k from below and that of rank k from above, for the
    /// largest k at which the probability that the median of the distribution lies outside is at
    /// most 5 %. That probability is exact, whatever the distribution: as many values are below the
    /// median as a fair coin shows heads. The values must be independent.
    ///
    /// Source: W. R. Thompson, "On Confidence Ranges for the Median and Other Expectation
    /// Distributions for Populations of Unknown Distribution Form", Annals of Mathematical
    /// Statistics 7 (1936); for performance figures, J.-Y. Le Boudec, "Performance Evaluation of
    /// Computer and Communication Systems" (2010), section 2.2.
    fn of_median(sorted: &[f64]) -> Option<Self> {
        let rank = rank(sorted.len())?;
        Some(Self { low: sorted[rank - 1], high: sorted[sorted.len() - rank] })
    }
}

/// The rank of the ends of the interval among `count` values; `None` if even the extremes are too
/// close to each other.
fn rank(count: usize) -> Option<usize> {
    let mut rank = 0;
    // The probabilities that exactly `rank` values are below the median, and at most `rank`.
    let mut exactly = 0.5_f64.powi(i32::try_from(count).ok()?);
    let mut at_most = exactly;
    while at_most <= OUTSIDE / 2.0 {
        rank += 1;
        exactly *= (count + 1 - rank) as f64 / rank as f64;
        at_most += exactly;
    }
    (rank > 0).then_some(rank)
}

impl RatioVerdict {
    /// Its word, in tables and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ahead => "ahead",
            Self::Behind => "behind",
            Self::Level => "level",
        }
    }
}

impl fmt::Display for RatioVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(rounds: &[Option<f64>], base: &[Option<f64>]) -> Option<f64> {
        Ratio::of_rounds(rounds, base).map(|ratio| ratio.median)
    }

    fn of(ratios: &[f64]) -> Ratio {
        let rounds: Vec<_> = ratios.iter().copied().map(Some).collect();
        Ratio::of_rounds(&rounds, &vec![Some(1.0); rounds.len()]).unwrap()
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_two() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        // Drift doubled both in the second round: the ratio of medians would be the same here, but
        // not in the third, where only one was disturbed.
        let row = [Some(2.0), Some(4.0), Some(30.0)];
        let own = [Some(1.0), Some(2.0), Some(3.0)];
        assert_eq!(ratio(&row, &own), Some(2.0));
    }

    #[test]
    fn a_round_that_one_lacks_is_left_out() {
        let row = [Some(2.0), None, Some(9.0)];
        let own = [Some(1.0), Some(1.0), None];
        assert_eq!(ratio(&row, &own), Some(2.0));
        assert_eq!(ratio(&row, &[None, None, None]), None);
    }

    #[test]
    fn what_is_missing_everywhere_stays_missing() {
        assert_eq!(median_whole(&[None, Some(4), Some(5)], |value| *value), Some(5));
        assert_eq!(median_whole(&[None::<u64>], |value| *value), None);
    }

    #[test]
    fn fewer_than_six_rounds_have_no_interval_and_no_verdict() {
        for count in 0..FEWEST_ROUNDS {
            assert_eq!(rank(count), None, "{count}");
        }
        assert_eq!(rank(FEWEST_ROUNDS), Some(1));
        let five = of(&[0.1; 5]);
        assert_eq!((five.median, five.interval, five.verdict()), (0.1, None, None));
        // A round that one row lacks is no round.
        let six = [Some(0.1), Some(0.1), Some(0.1), Some(0.1), Some(0.1), None];
        assert_eq!(Ratio::of_rounds(&six, &[Some(1.0); 6]).unwrap().interval, None);
    }

    #[test]
    fn the_ranks_are_those_that_whole_numbers_give() {
        for (count, expected) in [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (15, 4), (1000, 469)] {
            assert_eq!(rank(count), Some(expected), "{count}");
        }
        for count in FEWEST_ROUNDS..100 {
            // The ways in which fewer than `rank` of `count` coins show heads.
            let ways = |rank: usize| {
                let mut choose = 1_u128;
                (0..rank).fold(0, |sum, heads| {
                    let sum = sum + choose;
                    choose = choose * (count - heads) as u128 / (heads + 1) as u128;
                    sum
                })
            };
            let rank = rank(count).unwrap();
            assert!(40 * ways(rank) <= 1 << count, "{count}");
            assert!(40 * ways(rank + 1) > 1 << count, "{count}");
        }
    }

    #[test]
    fn the_interval_lies_between_two_rounds_and_outliers_do_not_move_it() {
        let eleven = of(&[9.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 1.08, 1.09, 0.1]);
        assert_eq!(eleven.median, 1.05);
        assert_eq!(eleven.interval, Some(Interval { low: 1.01, high: 1.09 }));
        assert_eq!(eleven.verdict(), Some(RatioVerdict::Behind));
    }

    #[test]
    fn level_is_an_interval_that_contains_one() {
        let verdict = |ratios: &[f64]| of(ratios).verdict().unwrap().word();
        assert_eq!(verdict(&[0.90, 0.95, 0.96, 0.97, 0.98, 0.99]), "ahead");
        assert_eq!(verdict(&[1.01, 1.02, 1.03, 1.04, 1.05, 1.06]), "behind");
        assert_eq!(verdict(&[0.90, 0.91, 0.92, 0.93, 0.94, 1.06]), "level");
        assert_eq!(verdict(&[1.0; 6]), "level");
        assert_eq!(verdict(&[0.9, 0.9, 0.9, 0.9, 0.9, 1.0]), "level", "the ends belong to it");
        assert_eq!(of(&[0.5; 6]).inverse().verdict(), Some(RatioVerdict::Behind));
        let inverse = of(&[0.5, 0.5, 0.5, 0.5, 0.5, 0.8]).inverse();
        assert_eq!(inverse.interval, Some(Interval { low: 1.25, high: 2.0 }));
    }

    #[test]
    fn the_interval_contains_the_median_of_the_distribution_as_often_as_it_says() {
        // A skewed distribution with the median 1, as of rounds that are disturbed now and then.
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        };
        for count in [6, 9, 11, 20] {
            let inside = (0..20_000).filter(|_| {
                let rounds: Vec<f64> =
                    (0..count).map(|_| (-random().ln() / std::f64::consts::LN_2).sqrt()).collect();
                of(&rounds).verdict() == Some(RatioVerdict::Level)
            });
            let inside = inside.count() as f64 / 20_000.0;
            assert!((0.945..0.995).contains(&inside), "{count} rounds: {inside}");
        }
    }
}
