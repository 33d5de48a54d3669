//! Readings of `/proc`: each becomes samples, objects of one kind that the collector's thread makes and frees each second.

use super::kind::{self, Kind, MOST};
use procfs::{
    CpuPressure, CpuTime, Current, CurrentSI, IoPressure, KernelStats, LoadAverage, Meminfo,
    MemoryPressure, PressureRecord, ProcResult,
};

/// The longest name of a device; what has a longer one is left out.
pub const MAX_INSTANCE_BYTES: usize = 63;

/// Raw numbers of one chart at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// What they are.
    pub kind: &'static Kind,
    /// Of which device.
    pub instance: Instance,
    numbers: [f64; MOST],
}

/// A device's name, which needs no memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instance {
    length: u8,
    bytes: [u8; MAX_INSTANCE_BYTES],
}

impl Instance {
    /// Of a kind that has one chart.
    pub const ONLY: Self = Self { length: 0, bytes: [0; MAX_INSTANCE_BYTES] };

    /// `None` if the name is too long or empty.
    pub fn new(name: &str) -> Option<Self> {
        let mut instance = Self::ONLY;
        instance.bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        instance.length = name.len() as u8;
        (!name.is_empty()).then_some(instance)
    }

    /// The name; empty where there is one chart.
    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length.into()]).expect("it was made of text")
    }
}

impl Sample {
    /// Of these numbers, one for each dimension.
    pub fn new(kind: &'static Kind, instance: Instance, numbers: &[f64]) -> Self {
        assert_eq!(numbers.len(), kind.dimensions.len(), "a number for each dimension");
        let mut all = [0.0; MOST];
        all[..numbers.len()].copy_from_slice(numbers);
        Self { kind, instance, numbers: all }
    }

    /// A number for each dimension.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers[..self.kind.dimensions.len()]
    }
}

/// Where samples go.
pub type Sink<'s> = dyn FnMut(Sample) + 's;

/// A file, or a few, that are read together.
pub struct Reading {
    /// Its name in messages.
    pub name: &'static str,
    /// Reads it.
    pub read: fn(&mut Sink<'_>) -> ProcResult<()>,
}

/// All readings. A kernel without one of the files has its other charts.
pub const ALL: &[Reading] = &[
    Reading { name: "/proc/stat", read: stat },
    Reading { name: "/proc/loadavg", read: load },
    Reading { name: "/proc/meminfo", read: memory },
    Reading { name: "/proc/pressure/cpu", read: cpu_pressure },
    Reading { name: "/proc/pressure/memory", read: memory_pressure },
    Reading { name: "/proc/pressure/io", read: io_pressure },
    Reading { name: "/proc/net/dev", read: network },
    Reading { name: "/proc/diskstats", read: disks },
];

fn stat(sink: &mut Sink<'_>) -> ProcResult<()> {
    let stat = KernelStats::current()?;
    let cpu = |kind, instance, time: &CpuTime| {
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
        Sample::new(kind, instance, &numbers.map(|ticks| ticks as f64))
    };
    sink(cpu(&kind::ALL_CPUS, Instance::ONLY, &stat.total));
    let mut name = String::new();
    for (number, time) in stat.cpu_time.iter().enumerate() {
        use std::fmt::Write;
        name.clear();
        let _ = write!(name, "{number}");
        if let Some(instance) = Instance::new(&name) {
            sink(cpu(&kind::ONE_CPU, instance, time));
        }
    }
    let counters = [stat.ctxt as f64, stat.processes as f64];
    sink(Sample::new(&kind::SWITCHES, Instance::ONLY, &counters));
    Ok(())
}

fn load(sink: &mut Sink<'_>) -> ProcResult<()> {
    let load = LoadAverage::current()?;
    let averages = [load.one, load.five, load.fifteen].map(f64::from);
    sink(Sample::new(&kind::LOAD, Instance::ONLY, &averages));
    let blocked = KernelStats::current()?.procs_blocked.map_or(f64::NAN, f64::from);
    let tasks = [load.max.into(), load.cur.into(), blocked];
    sink(Sample::new(&kind::TASKS, Instance::ONLY, &tasks));
    Ok(())
}

fn memory(sink: &mut Sink<'_>) -> ProcResult<()> {
    let memory = Meminfo::current()?;
    let cached = memory.cached + memory.s_reclaimable.unwrap_or(0);
    let elsewhere = memory.mem_free + cached + memory.buffers;
    let used = memory.mem_total.saturating_sub(elsewhere);
    let numbers = [used, memory.mem_free, cached, memory.buffers].map(|bytes| bytes as f64);
    sink(Sample::new(&kind::MEMORY, Instance::ONLY, &numbers));
    if memory.swap_total > 0 {
        let used = memory.swap_total.saturating_sub(memory.swap_free);
        let numbers = [used as f64, memory.swap_free as f64];
        sink(Sample::new(&kind::SWAP, Instance::ONLY, &numbers));
    }
    let numbers = [memory.dirty as f64, memory.writeback as f64];
    sink(Sample::new(&kind::DIRTY, Instance::ONLY, &numbers));
    Ok(())
}

fn pressure(
    sink: &mut Sink<'_>,
    kind: &'static Kind,
    some: &PressureRecord,
    full: &PressureRecord,
) {
    let waited = [some.total as f64, full.total as f64];
    sink(Sample::new(kind, Instance::ONLY, &waited));
}

fn cpu_pressure(sink: &mut Sink<'_>) -> ProcResult<()> {
    let CpuPressure { some, full } = CpuPressure::current()?;
    pressure(sink, &kind::CPU_PRESSURE, &some, &full);
    Ok(())
}

fn memory_pressure(sink: &mut Sink<'_>) -> ProcResult<()> {
    let MemoryPressure { some, full } = MemoryPressure::current()?;
    pressure(sink, &kind::MEMORY_PRESSURE, &some, &full);
    Ok(())
}

fn io_pressure(sink: &mut Sink<'_>) -> ProcResult<()> {
    let IoPressure { some, full } = IoPressure::current()?;
    pressure(sink, &kind::IO_PRESSURE, &some, &full);
    Ok(())
}

fn network(sink: &mut Sink<'_>) -> ProcResult<()> {
    for device in procfs::net::dev_status()?.values() {
        let Some(instance) = Instance::new(&device.name) else { continue };
        let bytes = [device.recv_bytes as f64, device.sent_bytes as f64];
        sink(Sample::new(&kind::NETWORK, instance, &bytes));
        let packets = [
            device.recv_packets,
            device.sent_packets,
            device.recv_drop + device.sent_drop,
            device.recv_errs + device.sent_errs,
        ];
        sink(Sample::new(&kind::PACKETS, instance, &packets.map(|count| count as f64)));
    }
    Ok(())
}

fn disks(sink: &mut Sink<'_>) -> ProcResult<()> {
    for disk in procfs::diskstats()? {
        // Loop and RAM devices that nobody uses are many.
        let Some(instance) = Instance::new(&disk.name).filter(|_| disk.reads + disk.writes > 0)
        else {
            continue;
        };
        let sectors = [disk.sectors_read as f64, disk.sectors_written as f64];
        sink(Sample::new(&kind::DISK, instance, &sectors));
        let calls = [disk.reads as f64, disk.writes as f64];
        sink(Sample::new(&kind::DISK_CALLS, instance, &calls));
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
            // Some kernels, and containers, are without some of them.
            let _ = (reading.read)(&mut |sample| contexts.push(sample.kind.context));
        }
        for kind in [&kind::ALL_CPUS, &kind::ONE_CPU, &kind::MEMORY, &kind::LOAD, &kind::TASKS] {
            assert!(contexts.contains(&kind.context), "{}", kind.context);
        }
    }

    #[test]
    fn names_of_devices_are_kept_as_they_are_or_left_out() {
        for name in ["eth0", "cciss/c0d0", "é", &"n".repeat(MAX_INSTANCE_BYTES)] {
            assert_eq!(Instance::new(name).unwrap().name(), name);
        }
        assert_eq!(Instance::new(""), None);
        assert_eq!(Instance::new(&"n".repeat(MAX_INSTANCE_BYTES + 1)), None);
        assert_eq!(Instance::ONLY.name(), "");
    }
}
