//! The figures of a load.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Counters of a running load.
#[derive(Debug, Default)]
pub(super) struct LoadTally {
    /// The time of each reply with a status below 400, in microseconds.
    times: Vec<u32>,
    statuses: BTreeMap<u16, u64>,
    bytes: u64,
    pub(super) connections: u64,
    pub(super) refused: u64,
    pub(super) lost: u64,
}

impl LoadTally {
    pub(super) fn reply(&mut self, status: u16, time: Duration, bytes: usize) {
        if status < 400 {
            self.times.push(u32::try_from(time.as_micros()).unwrap_or(u32::MAX));
        }
        *self.statuses.entry(status).or_default() += 1;
        self.bytes += bytes as u64;
    }

    pub(super) fn replies(&self) -> u64 {
        self.statuses.values().sum()
    }

    pub(super) fn report(mut self, took: Duration, asked: usize) -> LoadReport {
        self.times.sort_unstable();
        let quantile = |part: f64| {
            let last = self.times.len().checked_sub(1)?;
            let at = ((self.times.len() as f64 * part).ceil() as usize).saturating_sub(1).min(last);
            Some(f64::from(self.times[at]) / 1000.0)
        };
        LoadReport {
            connections: asked,
            seconds: took.as_secs_f64(),
            answered: self.times.len() as u64,
            requests_per_second: self.times.len() as f64 / took.as_secs_f64().max(1e-9),
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            max_ms: quantile(1.0),
            bytes: self.bytes,
            statuses: self.statuses,
            connected: self.connections,
            refused: self.refused,
            lost: self.lost,
        }
    }
}

/// The figures of a load. Times are those of replies with a status below 400.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadReport {
    /// Number of connections at a time.
    pub connections: usize,
    /// Time from the first request to the last reply.
    pub seconds: f64,
    /// Number of replies with a status below 400.
    pub answered: u64,
    /// Such replies per second.
    pub requests_per_second: f64,
    /// The median time, or `None` without replies.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of the times.
    pub p99_ms: Option<f64>,
    /// The longest time.
    pub max_ms: Option<f64>,
    /// Bytes of all bodies.
    pub bytes: u64,
    /// Number of replies by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Number of connections that were opened.
    pub connected: u64,
    /// Number of connections that failed.
    pub refused: u64,
    /// Number of requests that were sent and not answered.
    pub lost: u64,
}

impl LoadReport {
    /// Returns one JSON object on one line.
    pub fn to_json(&self) -> String {
        let statuses: serde_json::Map<_, _> = self
            .statuses
            .iter()
            .map(|(status, count)| (status.to_string(), (*count).into()))
            .collect();
        serde_json::json!({
            "connections": self.connections,
            "seconds": self.seconds,
            "answered": self.answered,
            "requests_per_second": self.requests_per_second,
            "p50_ms": self.p50_ms,
            "p99_ms": self.p99_ms,
            "max_ms": self.max_ms,
            "bytes": self.bytes,
            "statuses": statuses,
            "connected": self.connected,
            "refused": self.refused,
            "lost": self.lost,
        })
        .to_string()
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.2} ms"));
        writeln!(
            f,
            "{} replies over {} connections in {:.1} s",
            self.answered, self.connections, self.seconds
        )?;
        writeln!(f, "  requests/second    {:.1}", self.requests_per_second)?;
        writeln!(f, "  median             {}", time(self.p50_ms))?;
        writeln!(f, "  99th percentile    {}", time(self.p99_ms))?;
        writeln!(f, "  slowest            {}", time(self.max_ms))?;
        let mebibytes = self.bytes as f64 / f64::from(1 << 20);
        write!(f, "  received           {mebibytes:.1} MiB")?;
        for (status, count) in self.statuses.iter().filter(|(status, _)| **status >= 400) {
            write!(f, "\n  refused with {status}   {count}")?;
        }
        if self.lost > 0 {
            write!(f, "\n  without a reply    {}", self.lost)?;
        }
        if self.refused > 0 {
            write!(f, "\n  not connected      {}", self.refused)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_replies_that_answered() {
        let mut tally = LoadTally::default();
        for ms in (1..=100).rev() {
            tally.reply(200, Duration::from_millis(ms), 10);
        }
        tally.reply(503, Duration::from_secs(9), 1);
        let report = tally.report(Duration::from_secs(2), 4);
        assert_eq!(
            (report.p50_ms, report.p99_ms, report.max_ms),
            (Some(50.0), Some(99.0), Some(100.0))
        );
        assert_eq!((report.answered, report.requests_per_second, report.bytes), (100, 50.0, 1001));
        assert!(report.to_string().contains("refused with 503   1"));
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["statuses"]["503"], 1);
    }

    #[test]
    fn no_reply_has_no_time() {
        let report = LoadTally::default().report(Duration::from_secs(1), 1);
        assert_eq!((report.p50_ms, report.max_ms), (None, None));
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert!(json["p99_ms"].is_null());
    }
}
