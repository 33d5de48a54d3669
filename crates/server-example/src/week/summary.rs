//! What the samples of a variant say.

use super::sample::Sample;
use super::variant::Variant;
use bench::console::table::{self, Emphasis, Line};

/// What a variant may hold beyond its live bytes, as a part of them.
pub const SHARE: f64 = 0.1;

/// The samples of one variant, in the order of time.
#[derive(Debug, Clone)]
pub struct Played {
    /// The variant.
    pub variant: Variant,
    /// Its samples. The first is from before the first request.
    pub samples: Vec<Sample>,
}

impl Played {
    /// Returns the bytes by which the resident memory exceeds what was resident before the first
    /// request, the live bytes that came since, and [`SHARE`] of them: for each sample. Below zero,
    /// it does not exceed them.
    pub fn excess(&self) -> Vec<f64> {
        self.excess_over(|live, _| live)
    }

    /// The same over the most live bytes so far.
    pub fn excess_over_peak(&self) -> Vec<f64> {
        self.excess_over(f64::max)
    }

    fn excess_over(&self, bound: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let Some(first) = self.samples.first() else { return Vec::new() };
        let mut over = 0.0;
        let excess = |sample: &Sample| {
            over = bound(sample.live_bytes as f64 - first.live_bytes as f64, over);
            sample.resident_bytes as f64 - first.resident_bytes as f64 - (1.0 + SHARE) * over
        };
        self.samples.iter().map(excess).collect()
    }

    fn most(&self, figure: impl Fn(&Sample) -> u64) -> Option<u64> {
        self.samples.iter().map(figure).max()
    }

    fn mean(&self, figure: impl Fn(&Sample) -> u64) -> Option<u64> {
        let count = self.samples.len() as u64;
        let sum = self.samples.iter().map(figure).sum::<u64>();
        (count > 0).then(|| sum / count)
    }
}

/// Returns a table of all variants.
pub fn table(all: &[Played]) -> String {
    let head = [
        "variant",
        "requests",
        "live mean",
        "live peak",
        "RSS mean",
        "RSS peak",
        "RSS at first",
        "over live",
        "over peak",
    ];
    let lines: Vec<Line> = all.iter().map(line).collect();
    table::render(&head, &lines)
}

fn line(played: &Played) -> Line {
    let mib = table::mebibytes;
    let most = |excess: Vec<f64>| {
        let most = excess.into_iter().fold(0.0, f64::max);
        mib(Some(most as u64))
    };
    let requests = played.most(|sample| sample.requests);
    let cells = vec![
        played.variant.name.to_owned(),
        requests.map_or_else(|| "-".to_owned(), table::grouped),
        mib(played.mean(|sample| sample.live_bytes)),
        mib(played.most(|sample| sample.live_bytes)),
        mib(played.mean(|sample| sample.resident_bytes)),
        mib(played.most(|sample| sample.resident_bytes)),
        mib(played.samples.first().map(|sample| sample.resident_bytes)),
        most(played.excess()),
        most(played.excess_over_peak()),
    ];
    (if played.variant.has_pools() { Emphasis::Own } else { Emphasis::Plain }, cells)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::variant::VARIANTS;
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A variant that holds 10 MiB at first, with these MiB of live and resident memory beyond that.
    pub fn played(index: usize, more: &[(u64, u64)]) -> Played {
        let samples =
            [(0, 0)].iter().chain(more).enumerate().map(|(sample, (live, resident))| Sample {
                minute: 10 * sample as u32,
                requests: 7 * sample as u64,
                live_bytes: (2 + live) * MIB,
                resident_bytes: (10 + resident) * MIB,
            });
        Played { variant: VARIANTS[index], samples: samples.collect() }
    }

    #[test]
    fn what_exceeds_live_and_a_tenth_is_counted() {
        let mib = |excess: Vec<f64>| -> Vec<f64> {
            excess.iter().map(|bytes| (bytes / MIB as f64 * 10.0).round() / 10.0).collect()
        };
        let played = played(0, &[(10, 12), (100, 105), (20, 90)]);
        assert_eq!(mib(played.excess()), [0.0, 1.0, -5.0, 68.0]);
        assert_eq!(mib(played.excess_over_peak()), [0.0, 1.0, -5.0, -20.0]);
        let text = table(&[played]);
        let line = text.lines().last().unwrap();
        let figures: Vec<_> = line.split_whitespace().collect();
        assert_eq!(
            figures,
            ["glibc", "21", "34.5", "102.0", "61.8", "115.0", "10.0", "68.0", "1.0"]
        );
    }
}
