//! What the program itself took with each malloc, without the recorder.

use serde::{Deserialize, Serialize};

/// Runs of the program, interleaved: as it is, and with each installed malloc preloaded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MeasuredFindings {
    /// How often each was run.
    pub runs: u32,
    /// The first row is the program as it is.
    pub rows: Vec<MeasuredRow>,
    /// Why there are no figures, or fewer than were asked for.
    pub notes: Vec<String>,
}

/// The program with one malloc.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredRow {
    /// The malloc; the first row's is `as it is`.
    pub name: String,
    /// The library that was preloaded.
    pub library: Option<String>,
    /// CPU time, user and system, with the children that the program waited for: the median.
    pub cpu_ns: Option<u64>,
    /// From start to end: the median.
    pub wall_ns: Option<u64>,
    /// The largest resident size of the program's first process: the median.
    pub peak_bytes: Option<u64>,
    /// The same three, divided by those of the program as it is.
    pub cpu: Option<MeasuredRatio>,
    pub wall: Option<MeasuredRatio>,
    pub peak: Option<MeasuredRatio>,
    /// Why it was not run again.
    pub failure: Option<String>,
}

/// The median of the ratios of single rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MeasuredRatio {
    pub median: f64,
    /// Its 95 % interval; `None` with fewer than six rounds.
    pub low: Option<f64>,
    pub high: Option<f64>,
}

impl MeasuredRatio {
    /// Whether the whole interval is below 1.
    pub fn is_below_one(&self) -> bool {
        self.high.is_some_and(|high| high < 1.0)
    }

    /// Whether the interval contains 1, so that there is no difference.
    pub fn shows_no_difference(&self) -> bool {
        self.low.zip(self.high).is_some_and(|(low, high)| (low..=high).contains(&1.0))
    }
}

impl MeasuredFindings {
    /// The malloc that takes the least CPU time, if that is less than what the program takes as it
    /// is beyond chance.
    pub fn best(&self) -> Option<(&MeasuredRow, MeasuredRatio)> {
        let ratios = self.rows.iter().skip(1).filter_map(|row| Some((row, row.cpu?)));
        ratios
            .filter(|(_, cpu)| cpu.is_below_one())
            .min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median))
    }
}
