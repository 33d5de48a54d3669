//! Medians of the rounds, and their ratios to mimalloc's, as a table and as JSON.

use super::run::{Figures, Load};
use super::variant::{BASE, Variant};
use bench::console::statistics::{Ratio, RatioVerdict, median, median_whole};
use bench::console::table::{self, Emphasis, Line};
use serde_json::{Value, json};

/// The runs of one variant with one cache, round by round.
#[derive(Debug, Clone)]
pub struct Row {
    /// The variant.
    pub variant: Variant,
    /// The number of orders that its cache keeps.
    pub cache: usize,
    /// Its runs.
    pub rounds: Vec<Figures>,
}

/// A figure of a run.
type Figure = fn(&Figures) -> Option<f64>;

const CPU: Figure = |figures| figures.cpu_us;
/// Resident bytes without those before the first request.
const NET_RSS: Figure = |figures| {
    figures
        .end_rss_bytes
        .zip(figures.base_rss_bytes)
        .map(|(end, base)| end.saturating_sub(base) as f64)
};

impl Row {
    fn all(&self, figure: Figure) -> Vec<Option<f64>> {
        self.rounds.iter().map(figure).collect()
    }

    fn median(&self, figure: Figure) -> Option<f64> {
        median(self.all(figure).into_iter().flatten())
    }

    fn least(&self, figure: Figure) -> Option<f64> {
        self.all(figure).into_iter().flatten().min_by(f64::total_cmp)
    }

    fn most(&self, figure: Figure) -> Option<f64> {
        self.all(figure).into_iter().flatten().max_by(f64::total_cmp)
    }

    fn bytes(&self, of: impl Fn(&Figures) -> Option<u64>) -> Option<u64> {
        median_whole(&self.rounds, of)
    }

    /// Returns its processor time, divided by that of the row of [`BASE`] with the same cache.
    fn ratio(&self, rows: &[Self]) -> Option<Ratio> {
        let base = rows.iter().find(|row| row.variant.name == BASE && row.cache == self.cache)?;
        Ratio::of_rounds(&self.all(CPU), &base.all(CPU))
    }
}

/// Returns a table for each cache.
pub fn table(rows: &[Row]) -> String {
    let mut caches: Vec<usize> = rows.iter().map(|row| row.cache).collect();
    caches.dedup();
    let head = [
        "variant",
        "CPU µs a request",
        "least",
        "most",
        "ratio",
        "95 % interval",
        "",
        "RSS MiB",
        "net MiB",
        "faults",
    ];
    let mut text = String::new();
    for cache in caches {
        let part: Vec<&Row> = rows.iter().filter(|row| row.cache == cache).collect();
        let best = part.iter().filter_map(|row| row.median(CPU)).min_by(f64::total_cmp);
        let lines: Vec<Line> = part
            .iter()
            .map(|row| {
                let cpu = row.median(CPU);
                let emphasis = if cpu.is_some() && cpu == best {
                    Emphasis::Best
                } else if row.variant.pools == "none" {
                    Emphasis::Plain
                } else {
                    Emphasis::Own
                };
                (emphasis, cells(row, row.ratio(rows)))
            })
            .collect();
        text += &format!("A cache of {} orders:\n", table::grouped(cache as u64));
        text += &table::render(&head, &lines);
        text.push('\n');
    }
    text
}

fn cells(row: &Row, ratio: Option<Ratio>) -> Vec<String> {
    let none = || "-".to_owned();
    let interval = ratio.and_then(|ratio| ratio.interval);
    let verdict = ratio.and_then(|ratio| ratio.verdict());
    let is_base = row.variant.name == BASE;
    vec![
        row.variant.name.to_owned(),
        table::figure(row.median(CPU)),
        table::figure(row.least(CPU)),
        table::figure(row.most(CPU)),
        ratio.map_or_else(none, |ratio| table::ratio(ratio.median)),
        match interval {
            Some(interval) if !is_base => {
                format!("{}–{}", table::ratio(interval.low), table::ratio(interval.high))
            }
            _ => none(),
        },
        verdict.filter(|_| !is_base).map_or_else(none, |verdict| verdict.word().to_owned()),
        table::mebibytes(row.bytes(|figures| figures.end_rss_bytes)),
        table::mebibytes(row.median(NET_RSS).map(|bytes| bytes as u64)),
        row.bytes(|figures| figures.minor_faults).map_or_else(none, table::grouped),
    ]
}

/// Returns one JSON object for each row.
pub fn json(rows: &[Row], load: &Load, workers: usize) -> Vec<Value> {
    rows.iter().map(|row| json_row(row, row.ratio(rows), load, workers)).collect()
}

fn json_row(row: &Row, ratio: Option<Ratio>, load: &Load, workers: usize) -> Value {
    let interval = ratio.and_then(|ratio| ratio.interval);
    json!({
        "workload": "server",
        "variant": row.variant.name,
        "allocator": row.variant.allocator(),
        "pools": row.variant.pools,
        "limit_bytes": row.variant.limit,
        "cache": row.cache,
        "threads": workers,
        "connections": load.connections,
        "rounds": row.rounds.len(),
        "ops": load.requests,
        "unit": "request",
        "cpu_us_per_request": row.median(CPU),
        "cpu_us_per_request_min": row.least(CPU),
        "cpu_us_per_request_max": row.most(CPU),
        "user_us_per_request": row.median(|figures| figures.user_us),
        "ratio_to_mimalloc": ratio.map(|ratio| ratio.median),
        "ratio_to_mimalloc_low": interval.map(|interval| interval.low),
        "ratio_to_mimalloc_high": interval.map(|interval| interval.high),
        "ratio_to_mimalloc_verdict": ratio.and_then(|ratio| ratio.verdict()).map(RatioVerdict::word),
        "requests_per_second": row.median(|figures| figures.per_second),
        "base_rss_bytes": row.bytes(|figures| figures.base_rss_bytes),
        "peak_rss_bytes": row.bytes(|figures| figures.peak_rss_bytes),
        "end_rss_bytes": row.bytes(|figures| figures.end_rss_bytes),
        "minor_faults": row.bytes(|figures| figures.minor_faults),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, cpu: &[f64]) -> Row {
        let figures = |cpu: &f64| Figures {
            cpu_us: Some(*cpu),
            base_rss_bytes: Some(1 << 20),
            end_rss_bytes: Some(3 << 20),
            ..Figures::default()
        };
        let variant = Variant::named(name).unwrap();
        Row { variant, cache: 1000, rounds: cpu.iter().map(figures).collect() }
    }

    const LOAD: Load = Load { requests: 10, connections: 1, requests_per_connection: 1 };

    #[test]
    fn a_ratio_is_that_to_mimalloc_with_the_same_cache() {
        let mut rows = vec![row("mimalloc", &[10.0; 6]), row("request", &[8.0; 6])];
        rows.push(Row { cache: 7, ..row("request", &[9.0; 6]) });
        let json = json(&rows, &LOAD, 2);
        assert_eq!(json[0]["ratio_to_mimalloc"], 1.0);
        assert_eq!(json[1]["ratio_to_mimalloc"], 0.8);
        assert_eq!(json[1]["ratio_to_mimalloc_verdict"], "ahead");
        assert_eq!(json[2]["ratio_to_mimalloc"], Value::Null);
        assert_eq!(json[1]["end_rss_bytes"], 3 << 20);
        assert_eq!(json[1]["peak_rss_bytes"], Value::Null);
        let table = table(&rows);
        assert!(
            table.contains("A cache of 1,000 orders:") && table.contains("0.800–0.800"),
            "{table}"
        );
    }

    #[test]
    fn few_rounds_have_no_interval() {
        let rows = [row("mimalloc", &[10.0; 2]), row("glibc", &[20.0; 2])];
        let json = json(&rows, &LOAD, 2);
        assert_eq!(json[1]["ratio_to_mimalloc"], 2.0);
        assert_eq!(json[1]["ratio_to_mimalloc_low"], Value::Null);
    }
}
