//! The files of `/proc`. Reading one produces samples: objects of one size, which the collector's
//! thread allocates and frees each second.

use super::chart_kind::{self, ChartKind, MAX_KIND_DIMENSIONS};
use procfs::{
    CpuPressure, CpuTime, Current, CurrentSI, IoPressure, KernelStats, LoadAverage, Meminfo,
    MemoryPressure, PressureRecord, ProcResult,
};

/// The longest name of a device, in bytes. Devices with longer names are ignored.
pub const MAX_DEVICE_NAME_BYTES: usize = 63;

/// The raw numbers of one chart at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The kind of the chart.
    pub kind: &'static ChartKind,
    /// The device.
    pub device: DeviceName,
    numbers: [f64; MAX_KIND_DIMENSIONS],
}

/// A device's name, without memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceName {
    length: u8,
    bytes: [u8; MAX_DEVICE_NAME_BYTES],
}

impl DeviceName {
    /// The name for a kind that has only one chart.
    pub const NONE: Self = Self { length: 0, bytes: [0; MAX_DEVICE_NAME_BYTES] };

    /// Creates a name, or returns `None` if it is too long or empty.
    pub fn new(name: &str) -> Option<Self> {
        let mut device = Self::NONE;
        device.bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        device.length = name.len() as u8;
        (!name.is_empty()).then_some(device)
    }

    /// Returns the name, which is empty for a kind that has only one chart.
    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length.into()]).expect("it was made of text")
    }
}

impl Sample {
    /// Creates a sample from one number for each dimension.
    pub fn new(kind: &'static ChartKind, device: DeviceName, numbers: &[f64]) -> Self {
        assert_eq!(numbers.len(), kind.dimensions.len(), "a number for each dimension");
        let mut all = [0.0; MAX_KIND_DIMENSIONS];
        all[..numbers.len()].copy_from_slice(numbers);
        Self { kind, device, numbers: all }
    }

    /// Returns the numbers, one for each dimension.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers[..self.kind.dimensions.len()]
    }
}

/// Receives samples.
pub type SampleSink<'s> = dyn FnMut(Sample) + 's;

/// A file, or several that are read together.
pub struct ProcFile {
    /// Its name in messages.
    pub name: &'static str,
    /// Reads it and passes its samples on.
    pub read: fn(&mut SampleSink<'_>) -> ProcResult<()>,
}

/// All files. A kernel without one of them has the other charts.
pub const ALL: &[ProcFile] = &[
    ProcFile { name: "/proc/stat", read: stat },
    ProcFile { name: "/proc/loadavg", read: load },
    ProcFile { name: "/proc/meminfo", read: memory },
    ProcFile { name: "/proc/pressure/cpu", read: cpu_pressure },
    ProcFile { name: "/proc/pressure/memory", read: memory_pressure },
    ProcFile { name: "/proc/pressure/io", read: io_pressure },
    ProcFile { name: "/proc/net/dev", read: network },
    ProcFile { name: "/proc/diskstats", read: disks },
];

fn stat(sink: &mut SampleSink<'_>) -> ProcResult<()> {
    let stat = KernelStats::current()?;
    let cpu = |kind, device, time: &CpuTime| {
        let numbers = [
            time.user,
            time.nice,
            time.system,
            time.idle,
            time.iowait.unwrap_or(0),
            time.irq.unwrap_or(0),
            time.softirq.unwrap_or(0),
            time.steal.unwrap_or(0),
        ];
        Sample::new(kind, device, &numbers.map(|ticks| ticks as f64))
    };
    sink(cpu(&chart_kind::ALL_CPUS, DeviceName::NONE, &stat.total));
    let mut name = String::new();
    for (number, time) in stat.cpu_time.iter().enumerate() {
        use std::fmt::Write;
        name.clear();
        let _ = write!(name, "{number}");
        if let Some(device) = DeviceName::new(&name) {
            sink(cpu(&chart_kind::ONE_CPU, device, time));
        }
    }
    let counters = [stat.ctxt as f64, stat.processes as f64];
    sink(Sample::new(&chart_kind::SWITCHES, DeviceName::NONE, &counters));
    Ok(())
}

fn load(sink: &mut SampleSink<'_>) -> ProcResult<()> {
    let load = LoadAverage::current()?;
    let averages = [load.one, load.five, load.fifteen].map(f64::from);
    sink(Sample::new(&chart_kind::LOAD, DeviceName::NONE, &averages));
    let blocked = KernelStats::current()?.procs_blocked.map_or(f64::NAN, f64::from);
    let tasks = [load.max.into(), load.cur.into(), blocked];
    sink(Sample::new(&chart_kind::TASKS, DeviceName::NONE, &tasks));
    Ok(())
}

fn memory(sink: &mut SampleSink<'_>) -> ProcResult<()> {
    let memory = Meminfo::current()?;
    let cached = memory.cached + memory.s_reclaimable.unwrap_or(0);
    let elsewhere = memory.mem_free + cached + memory.buffers;
    let used = memory.mem_total.saturating_sub(elsewhere);
    let numbers = [used, memory.mem_free, cached, memory.buffers].map(|bytes| bytes as f64);
    sink(Sample::new(&chart_kind::MEMORY, DeviceName::NONE, &numbers));
    if memory.swap_total > 0 {
        let used = memory.swap_total.saturating_sub(memory.swap_free);
        let numbers = [used as f64, memory.swap_free as f64];
        sink(Sample::new(&chart_kind::SWAP, DeviceName::NONE, &numbers));
    }
    let numbers = [memory.dirty as f64, memory.writeback as f64];
    sink(Sample::new(&chart_kind::DIRTY, DeviceName::NONE, &numbers));
    Ok(())
}

fn pressure(
    sink: &mut SampleSink<'_>,
    kind: &'static ChartKind,
    some: &PressureRecord,
    full: &PressureRecord,
) {
    let waited = [some.total as f64, full.total as f64];
    sink(Sample::new(kind, DeviceName::NONE, &waited));
}

fn cpu_pressure(sink: &mut SampleSink<'_>) -> ProcResult<()> {
    let CpuPressure { some, full } = CpuPressure::current()?;
    pressure(sink, &chart_kind::CPU_PRESSURE, &some, &full);
    Ok(())
}

fn memory_pressure(sink: &mut SampleSink<'_>) -> ProcResult<()> {
    let MemoryPressure { some, full } = MemoryPressure::current()?;
    pressure(sink, &chart_kind::MEMORY_PRESSURE, &some, &full);
    Ok(())
}

fn io_pressure(sink: &mut SampleSink<'_>) -> ProcResult<()> {
    let IoPressure { some, full } = IoPressure::current()?;
    pressure(sink, &chart_kind::IO_PRESSURE, &some, &full);
    Ok(())
}

fn network(sink: &mut SampleSink<'_>) -> ProcResult<()> {
    for interface in procfs::net::dev_status()?.values() {
        let Some(device) = DeviceName::new(&interface.name) else { continue };
        let bytes = [interface.recv_bytes as f64, interface.sent_bytes as f64];
        sink(Sample::new(&chart_kind::NETWORK, device, &bytes));
        let packets = [
            interface.recv_packets,
            interface.sent_packets,
            interface.recv_drop + interface.sent_drop,
            interface.recv_errs + interface.sent_errs,
        ];
        sink(Sample::new(&chart_kind::PACKETS, device, &packets.map(|count| count as f64)));
    }
    Ok(())
}

fn disks(sink: &mut SampleSink<'_>) -> ProcResult<()> {
    for disk in procfs::diskstats()? {
        // Most machines have many loop and RAM devices that nothing uses.
        let Some(device) = DeviceName::new(&disk.name).filter(|_| disk.reads + disk.writes > 0)
        else {
            continue;
        };
        let sectors = [disk.sectors_read as f64, disk.sectors_written as f64];
        sink(Sample::new(&chart_kind::DISK, device, &sectors));
        let calls = [disk.reads as f64, disk.writes as f64];
        sink(Sample::new(&chart_kind::DISK_CALLS, device, &calls));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_processors_memory_and_load() {
        let mut contexts = Vec::new();
        for reading in ALL {
            // Some kernels and containers lack some of the files.
            let _ = (reading.read)(&mut |sample| contexts.push(sample.kind.context));
        }
        for kind in [
            &chart_kind::ALL_CPUS,
            &chart_kind::ONE_CPU,
            &chart_kind::MEMORY,
            &chart_kind::LOAD,
            &chart_kind::TASKS,
        ] {
            assert!(contexts.contains(&kind.context), "{}", kind.context);
        }
    }

    #[test]
    fn names_of_devices_are_kept_as_they_are_or_left_out() {
        for name in ["eth0", "cciss/c0d0", "é", &"n".repeat(MAX_DEVICE_NAME_BYTES)] {
            assert_eq!(DeviceName::new(name).unwrap().name(), name);
        }
        assert_eq!(DeviceName::new(""), None);
        assert_eq!(DeviceName::new(&"n".repeat(MAX_DEVICE_NAME_BYTES + 1)), None);
        assert_eq!(DeviceName::NONE.name(), "");
    }
}
