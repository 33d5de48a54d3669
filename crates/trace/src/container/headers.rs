//! What is known of a recording besides its events.

use serde::{Deserialize, Serialize};

/// A process image, as it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessHeader {
    /// The system's number.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// How many images this process had before, by exec.
    pub image: u32,
    /// It began as the child of a fork, with its parent's blocks.
    pub forked: bool,
    /// The path of its executable.
    pub executable: String,
    /// Its command line.
    pub command: Vec<String>,
    /// The monotonic clock when it began.
    pub start_ns: u64,
    /// Ticks when it began.
    pub start_tick: u64,
    /// Nanoseconds of a tick, as a multiple of 2^-32, as far as was known when the process was first seen.
    pub ns_of_tick: u64,
}

/// A process image, as it was seen when it had ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// Nanoseconds of a tick, as a multiple of 2^-32, over the whole recording.
    pub ns_of_tick: u64,
    /// Threads that were seen.
    pub threads: u32,
    /// Allocations, frees and waits for locks.
    pub events: u64,
    /// Bytes of events before compression.
    pub raw_bytes: u64,
    /// There was no more room for events: the time since the process's start when the first one was lost.
    pub full_at_ns: Option<u64>,
    /// The number of the error that was it.
    pub full_error: Option<u32>,
    /// Calls that were not recorded because a thread had no memory to do so.
    pub missed: u64,
    /// Stacks from the recorder's cache that were compared with the unwinder's, where that was asked for.
    pub stacks_checked: u64,
    /// Those that were different.
    pub stacks_wrong: u64,
    /// What calls and their recording took, where some were measured.
    #[serde(default)]
    pub costs: Option<Costs>,
    /// The path of the library whose `operator new` somebody needed and which doesn't go by way of `malloc`: what it gave is not there.
    #[serde(default)]
    pub new_unseen: Option<String>,
    /// It ran its exit handlers; otherwise `_exit`, exec or a signal ended it, or it still ran.
    pub exited: bool,
    /// It still ran when the recording ended with the program that was asked for.
    pub still_running: bool,
}

/// What the program's own allocator and the recorder took in this run, from calls that were measured now and then:
/// about one in 256 of each thread's. Calls of more than 20 microseconds are counted apart, most being waits for a processor.
///
/// Times are nanoseconds, summed over the measured calls, without what measuring them took.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Costs {
    /// In the next `malloc`, `calloc` and the aligned ones.
    pub allocations: Cost,
    /// In the next `free`.
    pub frees: Cost,
    /// In the next `realloc` and `reallocarray`, of blocks that there were.
    pub reallocations: Cost,
    /// In the recorder, at all of these calls.
    pub recorder: Cost,
    /// Measured calls that are in none of the sums, since they took longer than 20 microseconds.
    pub too_long: u64,
    /// Nanoseconds that one time stamp takes.
    pub stamp_ns: f64,
}

/// What some calls took together.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// How many were measured.
    pub samples: u64,
    /// Nanoseconds of all of them.
    pub ns: f64,
}

impl Cost {
    /// Nanoseconds of one call, if there was one.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.ns / self.samples as f64)
    }
}

/// How the program that was asked for ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// What the kernel counted for the program and the children that it waited for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Nanoseconds in the program.
    pub user_ns: u64,
    /// Nanoseconds in the kernel.
    pub system_ns: u64,
    /// Nanoseconds from its start to its end.
    pub wall_ns: u64,
    /// The largest resident size of one process, in bytes.
    pub peak_resident: u64,
    /// Page faults without reading.
    pub minor_faults: u64,
    /// Page faults that read from a disk.
    pub major_faults: u64,
    /// Context switches because it waited.
    pub voluntary_switches: u64,
    /// Context switches because others had their turn.
    pub involuntary_switches: u64,
    /// Calls that read, where the kernel says.
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

/// A kind of system call, counted where the kernel permits it: of the program and of all that it started, without those of the recorder.
/// Only calls that came back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SystemCall {
    /// Its name; in parentheses what it was asked for, where that is told apart: `futex (wait)`, `mmap (anonymous)`.
    pub name: String,
    /// How often.
    pub calls: u64,
    /// How many of them failed.
    #[serde(default)]
    pub failed: u64,
    /// Nanoseconds from each call to its return, with what it waited for.
    #[serde(default)]
    pub ns: u64,
    /// Bytes that were read or written; `None` where it does neither.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Calls of those that moved some bytes, but fewer than [`SMALL`]; of calls that read, only if they got what they asked for, since
    /// otherwise there was no more to be had.
    #[serde(default)]
    pub small: Option<u64>,
    /// The bytes that these moved.
    #[serde(default)]
    pub small_bytes: Option<u64>,
}

/// Small reads of an open file, or small writes to one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SmallTransfers {
    /// The process, by the system's number.
    pub process: u32,
    /// The number that it has the file under.
    pub descriptor: u32,
    /// Its path, or what the kernel calls it; `None` where it was closed before anybody looked.
    pub name: Option<String>,
    /// A pipe, a connection, a terminal or what else one waits for, so that a transfer may be small because there was no more.
    pub waits: bool,
    /// Writes, not reads.
    pub writes: bool,
    /// How many.
    pub calls: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// What calls of the kernel cost on the machine that the program ran on, in nanoseconds of CPU time each.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CallCosts {
    /// A call that does nothing.
    pub call: f64,
    /// Reading a byte of a file that is in memory.
    pub read: f64,
    /// Writing one.
    pub write: f64,
    /// Mapping and unmapping memory, for each of the two.
    pub map: f64,
    /// The first touch of a page.
    pub fault: f64,
    /// Waiting in a futex until another thread wakes one, and its waking.
    pub wait: f64,
    /// What counting adds to each call of the recorded program.
    pub counting: f64,
}

/// The end of a recording.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RecordingEnd {
    /// How the program ended.
    pub outcome: Option<Outcome>,
    /// What it used.
    pub usage: Usage,
    /// Its system calls, where they were counted.
    pub system_calls: Vec<SystemCall>,
    /// Why they were not.
    #[serde(default)]
    pub not_counted: Option<String>,
    /// Which files the small transfers among them were of, the most frequent first.
    #[serde(default)]
    pub small_transfers: Vec<SmallTransfers>,
    /// Page faults on its own way, not on the recorder's, where they were counted.
    #[serde(default)]
    pub page_faults: Option<u64>,
    /// What calls cost.
    #[serde(default)]
    pub costs: Option<CallCosts>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_s_end_from_before_operator_new_was_looked_for_tells_nothing_of_it() {
        let end = ProcessEnd { threads: 3, ..ProcessEnd::default() };
        let mut json = serde_json::to_value(&end).unwrap();
        assert!(json.as_object_mut().unwrap().remove("new_unseen").is_some());
        assert_eq!(serde_json::from_value::<ProcessEnd>(json).unwrap(), end);
    }
}
