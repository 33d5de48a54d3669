//! Histograms by powers of two.
//!
//! There are two for each stack, and most stacks allocate only a few times, so a histogram stores
//! the first few classes inline.

use super::findings::Quantiles;

/// The number of classes: 0, 1, 2 to 3, 4 to 7 and so on. The last one has all larger values.
const CLASSES: usize = 40;
/// The most classes that are stored inline.
const FEW: usize = 7;

/// Counts of values by powers of two.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// One bit for each class that is not empty.
    present: u64,
    counts: HistogramCounts,
}

#[derive(Debug, Clone)]
enum HistogramCounts {
    /// The counts of the classes that are not empty, in their order.
    Few([u32; FEW]),
    /// The counts of all classes.
    All(Box<[u32; CLASSES]>),
}

impl Default for HistogramCounts {
    fn default() -> Self {
        Self::Few([0; FEW])
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        self.all() == other.all()
    }
}

impl Histogram {
    #[inline]
    pub fn add(&mut self, value: u64) {
        let class = (64 - value.leading_zeros()).min(CLASSES as u32 - 1);
        self.add_to(class, 1);
    }

    #[inline]
    fn add_to(&mut self, class: u32, count: u32) {
        let own = match &mut self.counts {
            HistogramCounts::All(counts) => {
                self.present |= 1 << class;
                &mut counts[class as usize]
            }
            HistogramCounts::Few(counts) if self.present >> class & 1 == 1 => {
                &mut counts[below(self.present, class)]
            }
            HistogramCounts::Few(_) => return self.add_to_new_class(class, count),
        };
        *own = own.saturating_add(count);
    }

    /// Adds to a class that is empty.
    #[cold]
    fn add_to_new_class(&mut self, class: u32, count: u32) {
        let before = self.present;
        match &mut self.counts {
            HistogramCounts::Few(counts) if (before.count_ones() as usize) < FEW => {
                let at = below(before, class);
                counts.copy_within(at..FEW - 1, at + 1);
                counts[at] = count;
            }
            _ => {
                let mut all = self.all();
                all[class as usize] = count;
                self.counts = HistogramCounts::All(Box::new(all));
            }
        }
        self.present |= 1 << class;
    }

    pub fn merge(&mut self, other: &Self) {
        match (&mut self.counts, &other.counts) {
            (HistogramCounts::All(own), HistogramCounts::All(others)) => {
                for (own, other) in own.iter_mut().zip(others.iter()) {
                    *own = own.saturating_add(*other);
                }
                self.present |= other.present;
            }
            _ => other.each(|class, count| self.add_to(class, count)),
        }
    }

    /// Calls `of` with each class that is not empty, and its count.
    fn each(&self, mut of: impl FnMut(u32, u32)) {
        let (mut left, mut at) = (self.present, 0);
        while left != 0 {
            let class = left.trailing_zeros();
            left &= left - 1;
            of(
                class,
                match &self.counts {
                    HistogramCounts::Few(counts) => counts[at],
                    HistogramCounts::All(counts) => counts[class as usize],
                },
            );
            at += 1;
        }
    }

    /// The counts of all classes.
    fn all(&self) -> [u32; CLASSES] {
        let mut all = [0; CLASSES];
        self.each(|class, count| all[class as usize] = count);
        all
    }

    fn total(&self) -> u64 {
        let mut total = 0;
        self.each(|_, count| total += u64::from(count));
        total
    }

    /// The quantile of a share, within a factor of two.
    fn at(&self, share: f64) -> u64 {
        let wanted = (self.total() as f64 * share).ceil().max(1.0) as u64;
        let (mut seen, mut found) = (0, None);
        self.each(|class, count| {
            seen += u64::from(count);
            if seen >= wanted && found.is_none() {
                // The middle of the class.
                found = Some(if class < 2 { u64::from(class) } else { 3 << (class - 2) });
            }
        });
        found.unwrap_or(0)
    }

    pub fn quantiles(&self) -> Option<Quantiles> {
        (self.total() > 0).then(|| Quantiles {
            p10: self.at(0.1),
            p50: self.at(0.5),
            p90: self.at(0.9),
            p99: self.at(0.99),
            most: self.at(1.0),
        })
    }

    /// The Kolmogorov-Smirnov distance of two distributions, from 0 to 1: the largest difference of
    /// their cumulative shares, not counting a shift by one class.
    pub fn distance(&self, other: &Self) -> f64 {
        let (own, others) = (self.total(), other.total());
        if own == 0 || others == 0 {
            return if own == others { 0.0 } else { 1.0 };
        }
        let shares = |histogram: &Self, total: u64| {
            let mut sum = 0.0;
            histogram.all().map(|count| {
                sum += f64::from(count) / total as f64;
                sum
            })
        };
        let (a, b) = (shares(self, own), shares(other, others));
        let mut most: f64 = 0.0;
        for (class, own) in a.iter().enumerate() {
            // Compared with the neighbouring classes, to allow for a shift by one class.
            let (low, high) = (class.saturating_sub(1), (class + 1).min(CLASSES - 1));
            let above = (own - b[high]).max(0.0);
            let below = (b[low] - own).max(0.0);
            most = most.max(above).max(below);
        }
        most
    }
}

/// The number of classes below this one that are not empty.
#[inline]
fn below(present: u64, class: u32) -> usize {
    (present & ((1 << class) - 1)).count_ones() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_a_factor_of_two() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantiles(), None);
        (1..=1000).for_each(|value| histogram.add(value));
        let quantiles = histogram.quantiles().unwrap();
        for (found, right) in [(quantiles.p10, 100), (quantiles.p50, 500), (quantiles.p90, 900)] {
            assert!(found * 2 >= right && found <= right * 2, "{found} for {right}");
        }
    }

    #[test]
    fn inline_and_allocated_counts_are_right_in_any_order() {
        let mut chance = 1_u64;
        for classes in [1, 3, FEW as u64, FEW as u64 + 1, 64] {
            let (mut histogram, mut right) = (Histogram::default(), [0_u32; CLASSES]);
            let (mut sum, mut part) = (Histogram::default(), Histogram::default());
            for number in 0..5000 {
                chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let value = 1_u64.checked_shl((chance >> 40) as u32 % classes as u32 * 7 % 64);
                let value = value.unwrap_or(0) - (chance >> 33 & 1);
                let class = (64 - value.leading_zeros() as usize).min(CLASSES - 1);
                right[class] += 1;
                histogram.add(value);
                part.add(value);
                if number % 700 == 0 {
                    sum.merge(&std::mem::take(&mut part));
                }
            }
            sum.merge(&part);
            assert_eq!(histogram.all(), right, "{classes}");
            assert_eq!((sum == histogram, histogram.total()), (true, 5000));
            assert_eq!(sum.quantiles(), histogram.quantiles());
            assert!(histogram.distance(&sum).abs() < 1e-9);
        }
        // Most stacks have inline counts.
        assert!(size_of::<Histogram>() <= 40);
    }
}
