//! This machine's own counters, read from /proc several times. Every process and device is a chart,
//! and every counter is a dimension. What can't be read is left out.

use crate::workloads::query::store::{Chart, Dimension, Store};
use procfs::CurrentSI;
use procfs::process::{Process, all_processes};
use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

/// The time between two readings.
const INTERVAL: Duration = Duration::from_millis(200);

/// How a value is stored: a gauge as it is, a counter as its change per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    Gauge,
    Counter,
}
use ValueKind::{Counter, Gauge};

/// Reads all counters `samples` times and calls `sampled` after each reading.
pub fn read(samples: u32, mut sampled: impl FnMut()) -> Store {
    let mut readings = Readings::new();
    let began = Instant::now();
    for sample in 0..samples {
        thread::sleep((INTERVAL * sample).saturating_sub(began.elapsed()));
        readings.begin(began.elapsed());
        processes(&mut readings);
        processors(&mut readings);
        disks(&mut readings);
        interfaces(&mut readings);
        memory(&mut readings);
        sampled();
    }
    readings.into_store()
}

/// Sorts values into a store as they are read.
struct Readings {
    store: Store,
    charts: HashMap<(&'static str, String), usize>,
    /// For each chart, by the dimension's name: the dimension's index, its last raw value, and the
    /// time of that.
    dimensions: Vec<HashMap<String, (usize, f64, Duration)>>,
    samples: usize,
    now: Duration,
}

impl Readings {
    fn new() -> Self {
        Self {
            store: Store::default(),
            charts: HashMap::new(),
            dimensions: Vec::new(),
            samples: 0,
            now: Duration::ZERO,
        }
    }

    fn begin(&mut self, now: Duration) {
        self.samples += 1;
        self.now = now;
    }

    /// The store. Dimensions that disappeared get gaps up to the last sample.
    fn into_store(mut self) -> Store {
        for dimension in self.store.charts.iter_mut().flat_map(|chart| &mut chart.dimensions) {
            dimension.values.resize(self.samples, f64::NAN);
        }
        self.store
    }

    /// The values of one chart in this sample.
    fn chart<'n>(
        &mut self,
        context: &'static str,
        name: String,
        values: impl IntoIterator<Item = (&'n str, ValueKind, u64)>,
    ) {
        let place = *self.charts.entry((context, name.clone())).or_insert_with(|| {
            self.dimensions.push(HashMap::new());
            let context = context.to_owned();
            self.store.charts.push(Chart { context, name, dimensions: Vec::new() });
            self.store.charts.len() - 1
        });
        let chart = &mut self.store.charts[place];
        for (name, kind, raw) in values {
            let raw = raw as f64;
            let known = self.dimensions[place].get(name).copied();
            let value = match (kind, known) {
                (Gauge, _) => raw,
                (Counter, None) => f64::NAN,
                (Counter, Some((_, last, at))) => {
                    (raw - last) / (self.now - at).as_secs_f64().max(1e-9)
                }
            };
            let at = known.map_or(chart.dimensions.len(), |known| known.0);
            if known.is_none() {
                chart.dimensions.push(Dimension {
                    id: format!("{}.{name}", chart.name),
                    name: name.to_owned(),
                    values: Vec::new(),
                });
            }
            self.dimensions[place].insert(name.to_owned(), (at, raw, self.now));
            // Gaps for the samples in which the dimension was missing.
            let values = &mut chart.dimensions[at].values;
            values.resize(self.samples - 1, f64::NAN);
            values.push(value);
        }
    }
}

fn processes(readings: &mut Readings) {
    for process in all_processes().into_iter().flatten().flatten() {
        one_process(readings, &process);
    }
}

fn one_process(readings: &mut Readings, process: &Process) {
    // The process may end at any moment. What was read before that counts.
    let Ok(stat) = process.stat() else { return };
    let mut values = vec![
        ("user time", Counter, stat.utime),
        ("system time", Counter, stat.stime),
        ("minor faults", Counter, stat.minflt),
        ("major faults", Counter, stat.majflt),
        ("threads", Gauge, stat.num_threads.try_into().unwrap_or(0)),
        ("virtual bytes", Gauge, stat.vsize),
        ("resident pages", Gauge, stat.rss),
    ];
    if let Ok(status) = process.status() {
        let switches = [
            ("voluntary switches", status.voluntary_ctxt_switches),
            ("involuntary switches", status.nonvoluntary_ctxt_switches),
        ];
        values
            .extend(switches.into_iter().filter_map(|(name, count)| Some((name, Counter, count?))));
    }
    // Only root may read this for other users' processes.
    if let Ok(io) = process.io() {
        values.extend([
            ("bytes read", Counter, io.rchar),
            ("bytes written", Counter, io.wchar),
            ("read calls", Counter, io.syscr),
            ("write calls", Counter, io.syscw),
            ("disk bytes read", Counter, io.read_bytes),
            ("disk bytes written", Counter, io.write_bytes),
        ]);
    }
    readings.chart("process", format!("{} ({})", stat.comm, stat.pid), values);
}

fn processors(readings: &mut Readings) {
    let Ok(kernel) = procfs::KernelStats::current() else { return };
    for (index, time) in kernel.cpu_time.iter().enumerate() {
        let known = [
            ("user", Some(time.user)),
            ("nice", Some(time.nice)),
            ("system", Some(time.system)),
            ("idle", Some(time.idle)),
            ("waiting for disks", time.iowait),
            ("interrupts", time.irq),
            ("soft interrupts", time.softirq),
            ("stolen", time.steal),
            ("guest", time.guest),
            ("nice guest", time.guest_nice),
        ];
        let values = known.into_iter().filter_map(|(name, ticks)| Some((name, Counter, ticks?)));
        readings.chart("processor", format!("cpu{index}"), values);
    }
}

fn disks(readings: &mut Readings) {
    for disk in procfs::diskstats().into_iter().flatten() {
        let mut values = vec![
            ("reads", Counter, disk.reads),
            ("reads merged", Counter, disk.merged),
            ("sectors read", Counter, disk.sectors_read),
            ("ms reading", Counter, disk.time_reading),
            ("writes", Counter, disk.writes),
            ("writes merged", Counter, disk.writes_merged),
            ("sectors written", Counter, disk.sectors_written),
            ("ms writing", Counter, disk.time_writing),
            ("in progress", Gauge, disk.in_progress),
            ("ms busy", Counter, disk.time_in_progress),
            ("ms waited", Counter, disk.weighted_time_in_progress),
        ];
        let newer = [
            ("discards", disk.discards),
            ("sectors discarded", disk.sectors_discarded),
            ("flushes", disk.flushes),
        ];
        values.extend(newer.into_iter().filter_map(|(name, count)| Some((name, Counter, count?))));
        readings.chart("disk", disk.name, values);
    }
}

fn interfaces(readings: &mut Readings) {
    let mut interfaces: Vec<_> =
        procfs::net::dev_status().into_iter().flat_map(HashMap::into_values).collect();
    interfaces.sort_by(|one, other| one.name.cmp(&other.name));
    for one in interfaces {
        let values = [
            ("bytes received", one.recv_bytes),
            ("packets received", one.recv_packets),
            ("receive errors", one.recv_errs),
            ("receive drops", one.recv_drop),
            ("receive overruns", one.recv_fifo),
            ("frame errors", one.recv_frame),
            ("compressed received", one.recv_compressed),
            ("multicast received", one.recv_multicast),
            ("bytes sent", one.sent_bytes),
            ("packets sent", one.sent_packets),
            ("send errors", one.sent_errs),
            ("send drops", one.sent_drop),
            ("send overruns", one.sent_fifo),
            ("collisions", one.sent_colls),
            ("carrier losses", one.sent_carrier),
            ("compressed sent", one.sent_compressed),
        ];
        let values = values.map(|(name, count)| (name, Counter, count));
        readings.chart("interface", one.name, values);
    }
}

fn memory(readings: &mut Readings) {
    // One line for each name and value. New kernels add lines.
    if let Ok(text) = std::fs::read_to_string("/proc/meminfo") {
        let values = text.lines().filter_map(|line| {
            let (name, rest) = line.split_once(':')?;
            Some((name, Gauge, rest.split_whitespace().next()?.parse().ok()?))
        });
        readings.chart("memory", "system".to_owned(), values);
    }
    if let Ok(counters) = procfs::vmstat() {
        let mut counters: Vec<_> = counters.into_iter().collect();
        counters.sort();
        let values = counters.iter().filter_map(|(name, value)| {
            let kind = if name.starts_with("nr_") { Gauge } else { Counter };
            Some((name.as_str(), kind, u64::try_from(*value).ok()?))
        });
        readings.chart("paging", "system".to_owned(), values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_rates_and_gaps_stay_gaps() {
        let mut readings = Readings::new();
        let mut sample = |second, value: Option<u64>| {
            readings.begin(Duration::from_secs(second));
            if let Some(value) = value {
                let both = [("count", Counter, value), ("level", Gauge, value)];
                readings.chart("process", "one".to_owned(), both);
            }
        };
        sample(0, Some(10));
        sample(1, Some(16));
        sample(2, None);
        sample(4, Some(25));
        sample(5, None);
        let store = readings.into_store();
        let [chart] = &store.charts[..] else { panic!("one chart") };
        let [count, level] = &chart.dimensions[..] else { panic!("two dimensions") };
        assert_eq!((count.id.as_str(), count.name.as_str()), ("one.count", "count"));
        assert!([0, 2, 4].into_iter().all(|gap| count.values[gap].is_nan()));
        assert_eq!((count.values[1], count.values[3]), (6.0, 3.0));
        assert_eq!((level.values[0], level.values[1], level.values[3]), (10.0, 16.0, 25.0));
    }

    #[test]
    fn this_machine_has_processes_and_this_one_is_among_them() {
        let mut readings = Readings::new();
        readings.begin(Duration::ZERO);
        processes(&mut readings);
        processors(&mut readings);
        memory(&mut readings);
        let own = format!("({})", std::process::id());
        let store = readings.store;
        assert!(store.of_context("process").any(|chart| chart.name.ends_with(&own)));
        assert!(store.of_context("memory").all(|chart| chart.dimensions.len() > 10));
    }
}
