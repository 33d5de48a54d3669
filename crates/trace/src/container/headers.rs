//! What is known about a recording besides its events.

use serde::{Deserialize, Serialize};

/// A process image at its begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessHeader {
    /// Its process id.
    pub pid: u32,
    /// The process id of its parent.
    pub parent: u32,
    /// The number of programs that this process executed before.
    pub image: u32,
    /// It began as the child of a fork, with its parent's blocks.
    pub forked: bool,
    /// The path of its executable.
    pub executable: String,
    /// Its command line.
    pub command: Vec<String>,
    /// The monotonic clock when it began, in nanoseconds.
    pub start_ns: u64,
    /// Ticks when it began.
    pub start_tick: u64,
    /// Nanoseconds in a tick, as a multiple of 2^-32, estimated when the process was first seen.
    pub ns_of_tick: u64,
}

/// A process image at its end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// Nanoseconds in a tick, as a multiple of 2^-32, measured over the whole recording.
    pub ns_of_tick: u64,
    /// The number of threads seen.
    pub threads: u32,
    /// The number of allocations, frees and waits for locks.
    pub events: u64,
    /// Bytes of events before compression.
    pub raw_bytes: u64,
    /// If the recording ended early: the time of the first lost event, in nanoseconds since the
    /// start of the process.
    pub full_at_ns: Option<u64>,
    /// The number of the error that ended it.
    pub full_error: Option<u32>,
    /// Calls that were not recorded because there was no memory for a thread.
    pub missed: u64,
    /// Results of the recorder's stack cache that were compared with the unwinder's, if requested.
    pub stacks_checked: u64,
    /// Those that differed.
    pub stacks_wrong: u64,
    /// The measured times of calls and of their recording.
    #[serde(default)]
    pub costs: Option<AllocatorCosts>,
    /// The path of the library whose `operator new` the program used and which does not call
    /// `malloc`. Its allocations are missing.
    #[serde(default)]
    pub new_unseen: Option<String>,
    /// Its executable has a `malloc` of its own, so nothing was recorded.
    #[serde(default)]
    pub own_malloc: bool,
    /// It ran its exit handlers. Otherwise `_exit`, exec or a signal ended it, or it still ran.
    pub exited: bool,
    /// It still ran when the recording ended with the recorded program.
    pub still_running: bool,
}

/// The time that the program's own allocator and the recorder took in this run, from a sample of
/// about one in 256 calls of each thread. Calls of more than 20 microseconds are counted
/// separately, because most of them waited for a processor.
///
/// Times are nanoseconds, summed over the measured calls, without the time of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocatorCosts {
    /// In the next `malloc`, `calloc` and the functions with an alignment.
    pub allocations: SampledCost,
    /// In the next `free`.
    pub frees: SampledCost,
    /// In the next `realloc` and `reallocarray`, for existing blocks.
    pub reallocations: SampledCost,
    /// In the recorder, for all of these calls.
    pub recorder: SampledCost,
    /// Measured calls that are in none of the sums because they took longer than 20 microseconds.
    pub too_long: u64,
    /// The nanoseconds that one time stamp takes.
    pub stamp_ns: f64,
}

/// The time of some calls together.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SampledCost {
    /// The number of measured calls.
    pub samples: u64,
    /// Their time in nanoseconds.
    pub ns: f64,
}

impl SampledCost {
    /// The mean time of a call in nanoseconds, if any was measured.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.ns / self.samples as f64)
    }
}

/// How the recorded program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramExit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// The kernel's counts for the program and the children that it waited for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// Nanoseconds of CPU time in the program.
    pub user_ns: u64,
    /// Nanoseconds of CPU time in the kernel.
    pub system_ns: u64,
    /// Nanoseconds from its start to its end.
    pub wall_ns: u64,
    /// The largest resident size of one process, in bytes.
    pub peak_resident: u64,
    /// The most bytes of resident memory that belong to no file, of the first process, as far as it
    /// was seen.
    #[serde(default)]
    pub peak_anonymous: Option<u64>,
    /// Page faults that read nothing from a disk.
    pub minor_faults: u64,
    /// Page faults that read from a disk.
    pub major_faults: u64,
    /// Context switches because it waited.
    pub voluntary_switches: u64,
    /// Context switches because the kernel ran other threads.
    pub involuntary_switches: u64,
    /// Calls that read, if the kernel tells.
    pub read_calls: Option<u64>,
    /// Bytes that they read.
    pub read_bytes: Option<u64>,
    /// Calls that wrote.
    pub write_calls: Option<u64>,
    /// Bytes that they wrote.
    pub written_bytes: Option<u64>,
}

/// Transfers of fewer bytes than this, and of at least one, are small.
pub const SMALL: u64 = 512;

/// The calls of one kind of system call by the program and all processes that it started, if the
/// kernel permits counting. Calls of the recorder, and calls that did not return, are not counted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SystemCallCounts {
    /// Its name, with the operation in parentheses if operations are distinguished: `futex (wait)`,
    /// `mmap (anonymous)`.
    pub name: String,
    /// The number of calls.
    pub calls: u64,
    /// The number of failed calls.
    #[serde(default)]
    pub failed: u64,
    /// Nanoseconds from each call to its return, including waiting.
    #[serde(default)]
    pub ns: u64,
    /// The number of bytes read or written; `None` for a call that does neither.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// The number of calls that transferred at least one byte, but fewer than [`SMALL`]. Of calls
    /// that read, only those that got as much as they requested, because otherwise there was no
    /// more to read.
    #[serde(default)]
    pub small: Option<u64>,
    /// The number of bytes that these transferred.
    #[serde(default)]
    pub small_bytes: Option<u64>,
}

/// Small reads of an open file, or small writes to one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SmallTransfers {
    /// The process id.
    pub process: u32,
    /// The file descriptor.
    pub descriptor: u32,
    /// The file's path, or the kernel's name for it; `None` if it was closed before its name was
    /// read.
    pub name: Option<String>,
    /// It is a pipe, a connection, a terminal or anything else whose data arrive over time, so that
    /// a transfer may be small because there were no more.
    pub waits: bool,
    /// These are writes, not reads.
    pub writes: bool,
    /// The number of transfers.
    pub calls: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of them right before which the same thread had transferred data of the same file in the
    /// same direction, without reading from another file or waiting for one in between. A buffer
    /// joins these; it would only delay the others where somebody waits for them.
    #[serde(default)]
    pub consecutive: u64,
}

/// The costs of system calls on the machine on which the program ran, in nanoseconds of CPU time
/// each.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SystemCallCosts {
    /// A call that does nothing.
    pub call: f64,
    /// Reading one byte of a file that is in memory.
    pub read: f64,
    /// Writing one byte to such a file.
    pub write: f64,
    /// Mapping and unmapping memory, for each of the two.
    pub map: f64,
    /// The first touch of a page.
    pub fault: f64,
    /// Waiting in a futex and being woken by another thread.
    pub wait: f64,
    /// The time that counting adds to each call of the recorded program.
    pub counting: f64,
}

/// The end of a recording.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RecordingEnd {
    /// How the program ended.
    pub outcome: Option<ProgramExit>,
    /// The resources that it used.
    pub usage: ResourceUsage,
    /// Its system calls, if they were counted.
    pub system_calls: Vec<SystemCallCounts>,
    /// Why they were not counted.
    #[serde(default)]
    pub not_counted: Option<String>,
    /// The small transfers by file, the most frequent first.
    #[serde(default)]
    pub small_transfers: Vec<SmallTransfers>,
    /// The page faults of the program itself, without those of the recorder, if they were counted.
    #[serde(default)]
    pub page_faults: Option<u64>,
    /// The costs of system calls.
    #[serde(default)]
    pub costs: Option<SystemCallCosts>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_end_without_the_field_for_operator_new_is_read() {
        let end = ProcessEnd { threads: 3, ..ProcessEnd::default() };
        let mut json = serde_json::to_value(&end).unwrap();
        assert!(json.as_object_mut().unwrap().remove("new_unseen").is_some());
        assert_eq!(serde_json::from_value::<ProcessEnd>(json).unwrap(), end);
    }
}
