//! The machine's charts: added with their devices, and removed when a device has been absent for
//! long.

use super::chart_kind::{ChartKind, MAX_KIND_DIMENSIONS};
use super::proc_files::{DeviceName, Sample};
use crate::log::Log;
use crate::memory::Memory;
use crate::store::{Chart, Dimensions, NewChart, Second, StoreWriter};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// The largest number of charts of devices, so that a machine that creates and removes devices
/// without end does not fill the memory.
pub const MAX_CHARTS: usize = 10_000;

/// After this time without its device a chart is removed, in seconds.
pub const FORGET_AFTER: Second = 3600;

/// A kind's context, and the name of the device.
type ChartKey = (&'static str, DeviceName);

/// The charts of a machine.
pub struct MachineCharts<M: Memory> {
    charts: HashMap<ChartKey, CollectedChart<M>>,
    dimensions: HashMap<&'static str, Arc<Dimensions>>,
    values: Vec<f32>,
    limit_reported: bool,
}

struct CollectedChart<M: Memory> {
    chart: Arc<Chart<M>>,
    before: [f64; MAX_KIND_DIMENSIONS],
    read: Instant,
    seen: Second,
}

impl<M: Memory> Default for MachineCharts<M> {
    fn default() -> Self {
        Self {
            charts: HashMap::new(),
            dimensions: HashMap::new(),
            values: Vec::with_capacity(MAX_KIND_DIMENSIONS),
            limit_reported: false,
        }
    }
}

impl<M: Memory> MachineCharts<M> {
    /// Appends a sample to its chart, which is added if it does not exist.
    pub fn add_sample(
        &mut self,
        writer: &mut StoreWriter<M>,
        log: &Log,
        at: Second,
        read: Instant,
        sample: &Sample,
    ) {
        self.values.clear();
        let key = (sample.kind.context, sample.device);
        let numbers = sample.numbers();
        if let Some(known) = self.charts.get_mut(&key) {
            // The machine's own time, because its counters do not follow simulated time.
            let seconds = read.duration_since(known.read).as_secs_f64();
            let before = Some(&known.before[..numbers.len()]);
            sample.kind.values(numbers, before, seconds, &mut self.values);
            writer.append(&known.chart, at, &self.values);
            known.before[..numbers.len()].copy_from_slice(numbers);
            (known.read, known.seen) = (read, at);
            return;
        }
        let Some(chart) = self.add(writer, log, sample) else { return };
        sample.kind.values(numbers, None, f64::NAN, &mut self.values);
        writer.append(&chart, at, &self.values);
        let mut before = [0.0; MAX_KIND_DIMENSIONS];
        before[..numbers.len()].copy_from_slice(numbers);
        self.charts.insert(key, CollectedChart { chart, before, read, seen: at });
    }

    fn add(
        &mut self,
        writer: &mut StoreWriter<M>,
        log: &Log,
        sample: &Sample,
    ) -> Option<Arc<Chart<M>>> {
        if self.charts.len() >= MAX_CHARTS {
            if !std::mem::replace(&mut self.limit_reported, true) {
                log.warning(format_args!(
                    "more than {MAX_CHARTS} charts; new devices are not collected"
                ));
            }
            return None;
        }
        let kind = sample.kind;
        let dimensions = self.dimensions.entry(kind.context).or_insert_with(|| {
            Arc::new(Dimensions::new(kind.dimensions.iter().map(|(name, _)| *name)))
        });
        let new = NewChart {
            name: name_of(kind, &sample.device).into(),
            context: kind.context.into(),
            title: kind.title.into(),
            units: kind.units.into(),
            dimensions: dimensions.clone(),
        };
        match writer.add(vec![new]) {
            Ok(mut charts) => {
                let chart = charts.pop()?;
                log.info(format_args!("collecting {}", chart.name()));
                Some(chart)
            }
            // The next sample tries again. A message each second would fill the log.
            Err(_) => None,
        }
    }

    /// Removes the charts of devices that have been absent for long.
    pub fn forget(&mut self, writer: &mut StoreWriter<M>, log: &Log, at: Second) {
        let gone = |known: &CollectedChart<M>| at.saturating_sub(known.seen) > FORGET_AFTER;
        if !self.charts.values().any(gone) {
            return;
        }
        let charts = self.charts.extract_if(|_, known| gone(known));
        let charts: Vec<_> = charts.map(|(_, known)| known.chart).collect();
        let names: Vec<_> = charts.iter().map(|chart| chart.name()).collect();
        for name in &names {
            log.info(format_args!("stopped collecting {name}, which is gone"));
        }
        writer.remove(&names);
    }
}

/// Returns the name of a device's chart.
fn name_of(kind: &ChartKind, device: &DeviceName) -> String {
    match device.name() {
        "" => kind.context.to_owned(),
        name => format!("{}.{name}", kind.context),
    }
}

#[cfg(test)]
mod tests {
    use super::super::chart_kind;
    use super::*;
    use crate::memory::SlabStoreMemory;
    use crate::store::{Retention, RunPoints, Store, Tier};
    use std::time::Duration;

    fn traffic(device: &str, received: f64) -> Sample {
        Sample::new(&chart_kind::NETWORK, DeviceName::new(device).unwrap(), &[received, 0.0])
    }

    #[test]
    fn a_device_appears_with_its_first_sample_and_is_forgotten_long_after_its_last() {
        let memory = Arc::new(SlabStoreMemory::new(None).unwrap());
        let (store, mut writer) = Store::new(memory, Retention::DEFAULT);
        let (mut machine, log) = (MachineCharts::default(), Log::stderr());
        let began = Instant::now();
        let take = |machine: &mut MachineCharts<_>, writer: &mut _, at: u32, sample: &Sample| {
            let read = began + Duration::from_secs(at.into());
            machine.add_sample(writer, &log, 1_000_000 + at, read, sample);
            machine.forget(writer, &log, 1_000_000 + at);
        };
        for at in 0..3 {
            take(&mut machine, &mut writer, at, &traffic("eth0", f64::from(at) * 2048.0));
        }
        take(&mut machine, &mut writer, 2, &traffic("veth", 1.0));
        assert_eq!(store.generation(), 2);
        let structure = store.structure();
        let chart = structure.context("net.traffic").unwrap().charts()[0].clone();
        assert_eq!(chart.name(), "net.traffic.eth0");
        let points = chart.read();
        let run = points.runs(0, Tier::Second, 0..u32::MAX).next().unwrap();
        let RunPoints::Values(values) = run.points else { panic!() };
        assert!(values[0].is_nan() && values[1..] == [2.0, 2.0]);
        drop(points);

        take(&mut machine, &mut writer, 2 + FORGET_AFTER, &traffic("eth0", 1e9));
        assert_eq!(store.statistics().charts, 2);
        take(&mut machine, &mut writer, 3 + FORGET_AFTER, &traffic("eth0", 2e9));
        assert_eq!(store.statistics().charts, 1);
        // A device may come back.
        take(&mut machine, &mut writer, 4 + FORGET_AFTER, &traffic("veth", 1.0));
        assert_eq!((store.statistics().charts, store.generation()), (2, 4));
    }

    #[test]
    fn devices_without_end_do_not_fill_the_memory() {
        let memory = Arc::new(SlabStoreMemory::new(None).unwrap());
        let (store, mut writer) = Store::new(memory, Retention::DEFAULT);
        let (mut machine, log) = (MachineCharts::default(), Log::stderr());
        machine.limit_reported = true;
        // Adding charts one by one is slow, so most entries are inserted directly.
        let read = Instant::now();
        machine.add_sample(&mut writer, &log, 9, read, &traffic("first", 0.0));
        let chart = machine.charts.values().next().unwrap().chart.clone();
        for number in 1..MAX_CHARTS {
            let device = DeviceName::new(&format!("device {number}")).unwrap();
            let known = CollectedChart {
                chart: chart.clone(),
                before: [0.0; MAX_KIND_DIMENSIONS],
                read,
                seen: 9,
            };
            machine.charts.insert((chart_kind::NETWORK.context, device), known);
        }
        machine.add_sample(&mut writer, &log, 9, read, &traffic("one more", 0.0));
        assert_eq!((machine.charts.len(), store.statistics().charts), (MAX_CHARTS, 1));
    }
}
