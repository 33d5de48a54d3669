//! The findings on system calls and on waits for locks.

use super::StackFrame;
use serde::{Deserialize, Serialize};

/// Waits for locks at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockSite {
    /// The innermost frame first.
    pub frames: Vec<StackFrame>,
    /// `mutex`, `read` or `write`.
    pub kind: String,
    /// How often a thread waited, for how long in all, and the longest wait.
    pub waits: u64,
    pub waited_ns: u64,
    pub longest_ns: u64,
    /// The number of different locks.
    pub locks: u32,
    /// The waiting time as a share of the time of all threads, each from its first event to its
    /// last.
    #[serde(default)]
    pub share: Option<f64>,
    /// What to do, if a change is worth it.
    #[serde(default)]
    pub advice: Option<String>,
}

/// What the kernel counted, for all processes of the recording together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SystemFindings {
    /// Calls by name, if they could be counted, the most frequent first, without the recorder's
    /// own.
    pub calls: Vec<SystemCallFigures>,
    /// Why they were not counted, and what to do about it.
    #[serde(default)]
    pub not_counted: Option<String>,
    /// The number of all calls.
    #[serde(default)]
    pub total_calls: Option<u64>,
    /// Reads and writes as `/proc/PID/io` counts them: of files, pipes and others.
    pub read_calls: Option<u64>,
    pub read_bytes: Option<u64>,
    pub write_calls: Option<u64>,
    pub written_bytes: Option<u64>,
    /// The recorder's included.
    pub minor_faults: Option<u64>,
    pub major_faults: Option<u64>,
    /// The program's own, if they were counted.
    #[serde(default)]
    pub page_faults: Option<u64>,
    pub voluntary_switches: Option<u64>,
    pub involuntary_switches: Option<u64>,
    /// Waits in the kernel for a lock, a condition or a thread, and their time.
    #[serde(default)]
    pub futex_waits: Option<u64>,
    #[serde(default)]
    pub futex_wait_ns: Option<u64>,
    /// CPU time in the kernel as a share of all CPU time, the recorder's included.
    #[serde(default)]
    pub kernel_share: Option<f64>,
    /// The files of small reads and writes, the most frequent first.
    #[serde(default)]
    pub small_transfers: Vec<trace_format::container::SmallTransfers>,
    /// What calls cost on the machine of the recording.
    #[serde(default)]
    pub costs: Option<trace_format::container::SystemCallCosts>,
    /// What avoiding calls would save, the largest saving first; only what is worth a change.
    pub advice: Vec<SystemCallAdvice>,
}

/// Calls of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemCallFigures {
    pub name: String,
    pub calls: u64,
    #[serde(default)]
    pub failed: u64,
    /// Bytes that were read or written; `None` if it does neither.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// The calls that moved at least one byte but fewer than 512, and the bytes that they moved.
    #[serde(default)]
    pub small: Option<u64>,
    #[serde(default)]
    pub small_bytes: Option<u64>,
    /// The time from each call to its return, waiting included.
    #[serde(default)]
    pub ns: Option<u64>,
    /// A lower bound of the CPU time of these calls; `None` if it wasn't measured.
    #[serde(default)]
    pub cost_ns: Option<u64>,
}

/// What avoiding system calls would save.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemCallAdvice {
    /// `reads`, `writes`, `memory`, `waits`, `clock`, `seeks`, `yields`.
    #[serde(default)]
    pub kind: String,
    /// What to do, in a few words: `buffer the reads`.
    #[serde(default)]
    pub title: String,
    /// The reason with figures, and how to change it.
    pub advice: String,
    /// The sentences at its end that say how to change it.
    #[serde(default)]
    pub remedy: String,
    pub calls: u64,
    pub saved_ns: u64,
    /// Of the program's CPU time.
    pub gain: Option<f64>,
}
