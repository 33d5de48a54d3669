//! The kinds of charts of a machine: their contexts, their dimensions, and how raw numbers become
//! values.

/// How a raw number becomes a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Conversion {
    /// The number times this factor.
    Scale(f64),
    /// The growth of a counter per second, times this factor.
    Rate(f64),
    /// The growth of a counter, as a percentage of the growth of all counters of the chart.
    Share,
}

/// A kind of chart.
#[derive(Debug)]
pub struct ChartKind {
    /// The context, which is also the first part of the charts' names.
    pub context: &'static str,
    /// A description of the charts.
    pub title: &'static str,
    /// The unit of the values.
    pub units: &'static str,
    /// The dimensions' names and conversions.
    pub dimensions: &'static [(&'static str, Conversion)],
}

/// The largest number of dimensions of a kind.
pub const MAX_KIND_DIMENSIONS: usize = 8;

const MIB_OF_BYTES: f64 = 1.0 / (1 << 20) as f64;
const KIB_OF_BYTES: f64 = 1.0 / 1024.0;

/// A sector of `/proc/diskstats` has 512 bytes, whatever the disk's sectors have.
const KIB_OF_SECTORS: f64 = 0.5;

const CPU: &[(&str, Conversion)] = &[
    ("user", Conversion::Share),
    ("nice", Conversion::Share),
    ("system", Conversion::Share),
    ("idle", Conversion::Share),
    ("iowait", Conversion::Share),
    ("irq", Conversion::Share),
    ("softirq", Conversion::Share),
    ("steal", Conversion::Share),
];

/// Time that tasks waited, in percent, from microseconds per second.
const PRESSURE: &[(&str, Conversion)] =
    &[("some", Conversion::Rate(1e-4)), ("full", Conversion::Rate(1e-4))];

macro_rules! kinds {
    ($($name:ident: $context:literal, $title:literal, $units:literal, $dimensions:expr;)*) => {
        $(
            #[doc = $title]
            pub static $name: ChartKind =
                ChartKind { context: $context, title: $title, units: $units, dimensions: $dimensions };
            const _: () = assert!($name.dimensions.len() <= MAX_KIND_DIMENSIONS);
        )*
        /// All kinds.
        #[cfg(test)]
        pub static ALL: &[&ChartKind] = &[$(&$name),*];
    };
}

kinds! {
    ALL_CPUS: "system.cpu", "Processor time by use", "percent", CPU;
    ONE_CPU: "cpu.cpu", "Time of one processor by use", "percent", CPU;
    LOAD: "system.load", "Load averages", "tasks", &[
        ("load1", Conversion::Scale(1.0)), ("load5", Conversion::Scale(1.0)), ("load15", Conversion::Scale(1.0)),
    ];
    TASKS: "system.tasks", "Tasks by state", "tasks", &[
        ("all", Conversion::Scale(1.0)), ("running", Conversion::Scale(1.0)), ("blocked", Conversion::Scale(1.0)),
    ];
    SWITCHES: "system.switches", "Context switches and new tasks", "events/s", &[
        ("switches", Conversion::Rate(1.0)), ("forks", Conversion::Rate(1.0)),
    ];
    MEMORY: "system.memory", "Memory by use", "MiB", &[
        ("used", Conversion::Scale(MIB_OF_BYTES)), ("free", Conversion::Scale(MIB_OF_BYTES)),
        ("cached", Conversion::Scale(MIB_OF_BYTES)), ("buffers", Conversion::Scale(MIB_OF_BYTES)),
    ];
    SWAP: "system.swap", "Swap space by use", "MiB", &[
        ("used", Conversion::Scale(MIB_OF_BYTES)), ("free", Conversion::Scale(MIB_OF_BYTES)),
    ];
    DIRTY: "system.dirty", "Memory that waits to be written", "MiB", &[
        ("dirty", Conversion::Scale(MIB_OF_BYTES)), ("writeback", Conversion::Scale(MIB_OF_BYTES)),
    ];
    CPU_PRESSURE: "pressure.cpu", "Time in which tasks waited for a processor", "percent", PRESSURE;
    MEMORY_PRESSURE: "pressure.memory", "Time in which tasks waited for memory", "percent", PRESSURE;
    IO_PRESSURE: "pressure.io", "Time in which tasks waited for disks", "percent", PRESSURE;
    NETWORK: "net.traffic", "Traffic of a network device", "KiB/s", &[
        ("received", Conversion::Rate(KIB_OF_BYTES)), ("sent", Conversion::Rate(KIB_OF_BYTES)),
    ];
    PACKETS: "net.packets", "Packets of a network device", "packets/s", &[
        ("received", Conversion::Rate(1.0)), ("sent", Conversion::Rate(1.0)),
        ("dropped", Conversion::Rate(1.0)), ("errors", Conversion::Rate(1.0)),
    ];
    DISK: "disk.traffic", "Traffic of a disk", "KiB/s", &[
        ("read", Conversion::Rate(KIB_OF_SECTORS)), ("written", Conversion::Rate(KIB_OF_SECTORS)),
    ];
    DISK_CALLS: "disk.calls", "Reads and writes of a disk", "calls/s", &[
        ("reads", Conversion::Rate(1.0)), ("writes", Conversion::Rate(1.0)),
    ];
    AGENT: "agent.ticks", "Duration of the agent's collection", "ms", &[
        ("collect", Conversion::Scale(1.0)),
    ];
}

impl ChartKind {
    /// Appends the values of a sample to `values`. `before` has the raw numbers of the sample
    /// before, which was read `seconds` earlier. Values that can't be known are NaN: rates of a
    /// first sample, and of a counter that was reset.
    pub fn values(&self, now: &[f64], before: Option<&[f64]>, seconds: f64, values: &mut Vec<f32>) {
        let grown = |index: usize| {
            let grown = before.map_or(f64::NAN, |before| now[index] - before[index]);
            if grown < 0.0 { f64::NAN } else { grown }
        };
        // A processor's idle time may decrease a little. Its own share is then unknown, and the
        // other shares are not affected.
        let known = |index: usize| Some(grown(index)).filter(|grown| !grown.is_nan());
        let whole: f64 = (0..self.dimensions.len()).filter_map(known).sum();
        values.extend((0..self.dimensions.len()).map(|index| {
            let value = match self.dimensions[index].1 {
                Conversion::Scale(scale) => now[index] * scale,
                Conversion::Rate(scale) => grown(index) * scale / seconds,
                Conversion::Share => grown(index) * 100.0 / whole,
            };
            value as f32
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(kind: &ChartKind, now: &[f64], before: Option<&[f64]>, seconds: f64) -> Vec<f32> {
        let mut values = Vec::new();
        kind.values(now, before, seconds, &mut values);
        values
    }

    #[test]
    fn contexts_differ() {
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|kind| kind.context).collect();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn levels_are_scaled_rates_are_by_second_and_shares_are_percent() {
        let mib = (1 << 20) as f64;
        assert_eq!(values(&SWAP, &[3.0 * mib, mib], None, 1.0), [3.0, 1.0]);
        assert_eq!(values(&NETWORK, &[4096.0, 1024.0], Some(&[0.0, 1024.0]), 2.0), [2.0, 0.0]);
        let before = [10.0; 8];
        let now = [11.0, 10.0, 12.0, 15.0, 10.0, 10.0, 10.0, 12.0];
        assert_eq!(
            values(&ALL_CPUS, &now, Some(&before), 1.0),
            [10.0, 0.0, 20.0, 50.0, 0.0, 0.0, 0.0, 20.0]
        );
    }

    #[test]
    fn a_first_sample_and_a_counter_that_began_anew_have_no_rate() {
        assert!(values(&NETWORK, &[1.0, 2.0], None, 1.0).iter().all(|value| value.is_nan()));
        let one_anew = values(&NETWORK, &[1.0, 2048.0], Some(&[5.0, 1024.0]), 1.0);
        assert!(one_anew[0].is_nan() && one_anew[1] == 1.0);
        let mut idle_goes_back = [10.0; 8];
        idle_goes_back[3] = 9.0;
        idle_goes_back[0] = 14.0;
        let values = values(&ONE_CPU, &idle_goes_back, Some(&[10.0; 8]), 1.0);
        assert!(values[3].is_nan() && values[0] == 100.0);
    }
}
