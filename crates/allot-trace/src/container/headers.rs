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
    /// It ran its exit handlers; otherwise `_exit`, exec or a signal ended it, or it still ran.
    pub exited: bool,
    /// It still ran when the recording ended with the program that was asked for.
    pub still_running: bool,
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

/// A kind of system call, counted where the kernel permits it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemCall {
    /// Its name.
    pub name: String,
    /// How often.
    pub calls: u64,
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
}
