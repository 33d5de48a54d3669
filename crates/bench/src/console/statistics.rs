//! Medians, and ratios of rounds.

/// The middle value. With an even number of values, the average of the two in the middle.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// The median of the values that `of` returns, rounded to the nearest whole number. Items without a
/// value don't count.
pub fn median_whole<T>(items: &[T], of: impl Fn(&T) -> Option<u64>) -> Option<u64> {
    median(items.iter().filter_map(of).map(|value| value as f64)).map(|value| value.round() as u64)
}

/// The median of `rounds` divided by `own`, round by round. Rounds that one of them lacks don't
/// count.
pub fn ratio(rounds: &[Option<f64>], own: &[Option<f64>]) -> Option<f64> {
    median(rounds.iter().zip(own).filter_map(|(round, own)| Some((*round)? / (*own)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
