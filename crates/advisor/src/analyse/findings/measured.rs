//! What the program itself took with each malloc, and with the memory that changes would give it.

use serde::{Deserialize, Serialize};

/// Runs of the program, interleaved: as it is, with each installed malloc preloaded, and with each
/// advised change tried.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MeasuredFindings {
    /// How often each was run.
    pub runs: u32,
    /// The first row is the program as it is.
    pub rows: Vec<MeasuredRow>,
    /// Why there are no figures, or fewer than were asked for.
    pub notes: Vec<String>,
}

/// The program with one malloc, or with a change tried: the blocks of its groups get memory like that
/// of the advised allocator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredRow {
    /// The malloc; the first row's is `as it is`. Or the change.
    pub name: String,
    /// The groups whose change was tried; empty for a malloc.
    #[serde(default)]
    pub groups: Vec<u32>,
    /// The library that was preloaded.
    pub library: Option<String>,
    /// CPU time, user and system, with the children that the program waited for: the median.
    pub cpu_ns: Option<u64>,
    /// From start to end: the median.
    pub wall_ns: Option<u64>,
    /// The largest resident size of the program's first process: the median.
    pub peak_bytes: Option<u64>,
    /// The same three, divided by those of the program as it is. Of a change they are calculated:
    /// the CPU ratio from all three [`ChangeParts`], the other two from `allocation` alone.
    pub cpu: Option<MeasuredRatio>,
    pub wall: Option<MeasuredRatio>,
    pub peak: Option<MeasuredRatio>,
    /// Why it was not run again.
    pub failure: Option<String>,
    /// From which parts a change's CPU time was calculated.
    #[serde(default)]
    pub parts: Option<ChangeParts>,
}

/// The parts of what a change saves, as shares of the CPU time of the program as it is.
///
/// In a trial, hooks of malloc look each call's stack up and allocate. The control run of the same
/// round does so too, but malloc serves all of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ChangeParts {
    /// The trial compared with the control run: malloc's own work, and the program's cache misses.
    pub allocation: f64,
    /// The time of an empty call for each call of malloc, free and the like that is no longer made, less
    /// that of the advised allocator's code; below 0 if that takes longer.
    pub calls: f64,
    /// The program's way from block to block where it frees many of an arena in a row.
    pub walks: f64,
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
    /// The rows of other mallocs.
    pub fn mallocs(&self) -> impl Iterator<Item = &MeasuredRow> {
        self.rows.iter().skip(1).filter(|row| row.groups.is_empty())
    }

    /// The malloc that takes the least CPU time, if that is less than what the program takes as it
    /// is beyond chance.
    pub fn best(&self) -> Option<(&MeasuredRow, MeasuredRatio)> {
        let ratios = self.mallocs().filter_map(|row| Some((row, row.cpu?)));
        ratios
            .filter(|(_, cpu)| cpu.is_below_one())
            .min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median))
    }
}
