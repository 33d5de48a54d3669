//! What a program does besides using memory: its system calls, and its waits for locks.

use super::Frame;
use serde::{Deserialize, Serialize};

/// Waits for locks at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockSite {
    /// The innermost frame first.
    pub frames: Vec<Frame>,
    /// `mutex`, `read` or `write`.
    pub kind: String,
    /// How often a thread had to wait, and for how long in all and at most.
    pub waits: u64,
    pub waited_ns: u64,
    pub longest_ns: u64,
    /// Different locks.
    pub locks: u32,
    /// The waiting as a share of the time of all its threads, each from its first event to its last.
    #[serde(default)]
    pub share: Option<f64>,
    /// What to do, where it is worth it.
    #[serde(default)]
    pub advice: Option<String>,
}

/// What the kernel counted: for all processes of the recording together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct System {
    /// Calls by name, where they could be counted; the most frequent first. The recorder's own are not among them.
    pub calls: Vec<SystemCalls>,
    /// Why they were not counted, in words with what to do.
    #[serde(default)]
    pub not_counted: Option<String>,
    /// All of them together.
    #[serde(default)]
    pub total_calls: Option<u64>,
    /// Reads and writes by files, pipes and what else `/proc/PID/io` counts.
    pub read_calls: Option<u64>,
    pub read_bytes: Option<u64>,
    pub write_calls: Option<u64>,
    pub written_bytes: Option<u64>,
    /// With the recorder's.
    pub minor_faults: Option<u64>,
    pub major_faults: Option<u64>,
    /// The program's own, where they were counted.
    #[serde(default)]
    pub page_faults: Option<u64>,
    pub voluntary_switches: Option<u64>,
    pub involuntary_switches: Option<u64>,
    /// Waits in the kernel for a lock, a condition or a thread, and their time.
    #[serde(default)]
    pub futex_waits: Option<u64>,
    #[serde(default)]
    pub futex_wait_ns: Option<u64>,
    /// CPU time in the kernel over all CPU time, with what the recorder took.
    #[serde(default)]
    pub kernel_share: Option<f64>,
    /// Which files small reads and writes were of, the most frequent first.
    #[serde(default)]
    pub small_transfers: Vec<allot_trace::container::SmallTransfers>,
    /// What calls cost on the machine that the program ran on.
    #[serde(default)]
    pub costs: Option<allot_trace::container::CallCosts>,
    /// What sidestepping some of them would save, the most first; only what is worth it.
    pub advice: Vec<SystemAdvice>,
}

/// Calls of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemCalls {
    pub name: String,
    pub calls: u64,
    #[serde(default)]
    pub failed: u64,
    /// Bytes that were read or written; `None` where it does neither.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Of the calls, those that moved some bytes, but fewer than 512; and these bytes.
    #[serde(default)]
    pub small: Option<u64>,
    #[serde(default)]
    pub small_bytes: Option<u64>,
    /// From each call to its return, with what it waited for.
    #[serde(default)]
    pub ns: Option<u64>,
    /// What so many such calls cost in CPU time at least; `None` where it wasn't measured.
    #[serde(default)]
    pub cost_ns: Option<u64>,
}

/// What sidestepping system calls would save.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemAdvice {
    /// `reads`, `writes`, `memory`, `waits`, `clock`, `seeks`, `yields`.
    #[serde(default)]
    pub kind: String,
    /// What to do, in a few words: `buffer the reads`.
    #[serde(default)]
    pub title: String,
    /// Why, and how, in words with figures.
    pub advice: String,
    pub calls: u64,
    pub saved_ns: u64,
    /// Of the program's CPU time.
    pub gain: Option<f64>,
}
