//! What is found out about a program: the model that analysis, replay and report share.
//!
//! Plain data. `allot analyse --json` prints it, the replay fills in [`Findings::replay`] and each verdict's
//! [`Verdict::replayed`], the report shows it. Times are nanoseconds, memory is bytes, a share is a number from 0 to 1; what
//! can't be known is `None`, never 0.

mod kernel;

pub use kernel::{LockSite, System, SystemAdvice, SystemCalls};
use serde::{Deserialize, Serialize};

/// The version of this model in JSON; it grows when a field changes its meaning or goes.
pub const VERSION: u32 = 1;
/// The most points of a timeline.
pub const MOST_POINTS: usize = 1000;

/// Everything that is known of one process of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// [`VERSION`].
    pub version: u32,
    /// The program and its run.
    pub program: Program,
    /// Live memory over time, at most [`MOST_POINTS`] points.
    pub timeline: Vec<Point>,
    /// Where it allocates, the most frequent first; [`Site::id`] is the index.
    pub sites: Vec<Site>,
    /// Sites that one change would serve, the largest gain first; [`Group::id`] is the index. Each site is in one.
    pub groups: Vec<Group>,
    /// Allocations by function, outermost callers at the root.
    pub flame: Flame,
    /// What the check for overlapping blocks found, where it was asked for.
    pub overlaps: Option<Overlaps>,
    /// Waits for locks, the longest in all first.
    pub locks: Vec<LockSite>,
    /// What the kernel counted.
    pub system: System,
    /// How the recorded sequence ran on other allocators, once it was replayed.
    pub replay: Option<Replay>,
    /// What the reader has to know, one sentence each.
    pub notes: Vec<Note>,
}

/// The program and its run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Program {
    /// Its command line.
    pub command: Vec<String>,
    /// The path of its executable.
    pub executable: String,
    /// Which process of the recording this is, and how many there are.
    pub process: u32,
    pub processes: u32,
    /// The exit code, or `signal N`; `None` where the recording was cut off, or this isn't the first process.
    pub exit: Option<String>,
    /// CPU time of the program under the recorder, user and system, with the children it waited for.
    pub cpu_ns: Option<u64>,
    /// The same without what the recorder took: measured where the bare program ran too, else estimated.
    pub bare_cpu_ns: Option<u64>,
    /// `bare_cpu_ns` was measured.
    pub bare_measured: bool,
    /// From its start to its last event.
    pub wall_ns: u64,
    /// The largest resident size.
    pub peak_resident: Option<u64>,
    /// Threads that did something with memory.
    pub threads: u32,
    /// Events in the recording.
    pub events: u64,
    /// Allocations, those by realloc included.
    pub allocations: u64,
    /// Frees, those by realloc included.
    pub frees: u64,
    /// Share of the allocations that were made by realloc from another block.
    pub realloc_share: f64,
    /// Bytes that were asked for in all.
    pub bytes: u64,
    /// The most bytes and blocks that were live at once.
    pub peak_live_bytes: u64,
    pub peak_live_objects: u64,
    /// Blocks live at the end.
    pub live_at_end: u64,
    /// Frees of blocks that the recording did not see made.
    pub unknown_frees: u64,
    /// Share of the CPU time that allocating and freeing takes: no allocator can save more.
    pub allocator_share: Option<f64>,
    /// That share rests on calls of this run that were measured, not on what such calls usually take.
    #[serde(default)]
    pub allocator_measured: bool,
    /// What calls took in this run on average: an allocation, a free, and the recorder at each of them. `None`: too few were
    /// measured.
    #[serde(default)]
    pub allocation_ns: Option<f64>,
    #[serde(default)]
    pub free_ns: Option<f64>,
    #[serde(default)]
    pub recorder_ns: Option<f64>,
    /// Frees that came in the last run of frees before the end: they say nothing about when a block was last wanted.
    pub freed_at_exit: u64,
    /// Bytes of the recording for each event, compressed and raw.
    pub trace_bytes_per_event: f64,
    pub raw_bytes_per_event: f64,
    /// The recording ends before the program did.
    pub truncated: bool,
}

/// A point of the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Since the process began.
    pub time_ns: u64,
    /// Live when it was taken.
    pub bytes: u64,
    pub objects: u64,
    /// The most bytes that were live since the point before.
    pub most_bytes: u64,
}

/// A function that a stack goes through, one of several where calls were inlined.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The function's name, or `module+0x1234` where it has none.
    pub function: String,
    /// The file it lies in, as far as debug information says.
    pub file: Option<String>,
    pub line: Option<u32>,
    /// The executable or library.
    pub module: String,
    /// It was inlined into the next frame.
    pub inlined: bool,
    /// It only passes its callers' wishes on: `xmalloc`, `operator new`.
    pub wrapper: bool,
}

/// How often something was smaller than so much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quantiles {
    pub p10: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub most: u64,
}

/// What the blocks of a site, or of a group, do.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Behaviour {
    /// Allocations.
    pub count: u64,
    /// Of them, those by realloc from another block.
    pub reallocated: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Of them, in blocks of more than 32 KiB.
    #[serde(default)]
    pub large_bytes: u64,
    /// The most frequent size, and its share of the allocations.
    pub dominant_size: u64,
    pub dominant_share: f64,
    /// Different sizes, as far as they were counted (at most 16).
    pub sizes: u32,
    /// The smallest and the largest.
    pub least_size: u64,
    pub most_size: u64,
    /// How long freed blocks lived. Within a factor of two; `None` where none was freed before the end.
    pub lifetime_ns: Option<Quantiles>,
    /// The same in allocations that the program made meanwhile.
    pub lifetime_allocations: Option<Quantiles>,
    /// Share of the frees that were done by the thread that allocated.
    pub same_thread_share: f64,
    /// Threads that allocated (at most 64 are told apart).
    pub threads: u32,
    /// Share of the frees that freed the youngest live block of the site or group.
    pub last_in_first_out_share: f64,
    /// The most that were live at once.
    pub peak_live_objects: u64,
    pub peak_live_bytes: u64,
    /// Blocks live at the end, and blocks freed in the last run of frees before it.
    pub never_freed: u64,
    pub freed_at_exit: u64,
    /// Runs of frees without an allocation of the site or group in between, the one at exit left out: the share of frees in
    /// runs of at least 16, and the mean length over all frees.
    pub burst_share: f64,
    pub mean_burst: f64,
    /// How often the live count came back to zero, the exit left out.
    pub returns_to_zero: u64,
    /// Allocations between two such returns, weighted by allocation: what an average block shares its life with.
    pub phase_objects: f64,
    /// Bytes that an arena would hold, reset at each return to zero, over bytes live: the mean over the program's
    /// allocations, and the peaks against each other.
    pub drag: f64,
    pub peak_drag: f64,
    /// The most bytes that such an arena would hold.
    pub peak_held_bytes: u64,
    /// First and last allocation, in nanoseconds since the process began.
    pub first_ns: u64,
    pub last_ns: u64,
}

/// A place in the program that allocates, its wrappers trimmed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// Its index in [`Findings::sites`].
    pub id: u32,
    /// The innermost function that isn't a wrapper, and its callers as far as they are told apart.
    pub title: String,
    /// The frames, the innermost first; those of wrappers are marked. A site is what all stacks through these have in common.
    pub frames: Vec<Frame>,
    /// How many different stacks it stands for.
    pub stacks: u32,
    /// The group it is in.
    pub group: u32,
    #[serde(flatten)]
    pub behaviour: Behaviour,
}

/// Sites that one change would serve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Its index in [`Findings::groups`].
    pub id: u32,
    /// A function and what it makes.
    pub title: String,
    /// Its sites, the most frequent first.
    pub sites: Vec<u32>,
    #[serde(flatten)]
    pub behaviour: Behaviour,
    pub verdict: Verdict,
}

/// The paper's categories of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Made and freed within a piece of work of one thread.
    Transient,
    /// Handed from thread to thread.
    Shared,
    /// Built once, then read by many.
    ReadOnlyShared,
    /// Nothing worth a change.
    LeaveIt,
    /// What it would gain, another malloc gives without a change.
    BetterMalloc,
}

/// An allocator of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allocator {
    Arena,
    Reap,
    FreeList,
    Pool,
    Slab,
    Sealed,
    None,
}

/// What is advised for a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub category: Category,
    pub allocator: Allocator,
    /// An arena that is never reset before the end of the program: the replay makes it so.
    pub without_reset: bool,
    /// Why, in words with figures.
    pub reason: String,
    /// What else was thought of, and why not.
    pub refused: Vec<Refusal>,
    /// What it may save, as a share of the program's CPU time; `None` where that time isn't known.
    pub gain: Option<Gain>,
    /// The lines to change.
    pub change: Change,
    /// It needs a proof that a recording can't give (that nobody writes to a sealed object).
    pub candidate: bool,
    /// What the replay said of it.
    pub replayed: Option<Outcome>,
}

/// An allocator that was not advised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    pub allocator: Allocator,
    pub reason: String,
}

/// What may be saved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Estimated share of the program's CPU time; measured once it was replayed.
    pub share: f64,
    /// What is saved if the group's allocating and freeing cost nothing at all.
    pub ceiling: f64,
    /// The share was measured by replay.
    #[serde(default)]
    pub measured: bool,
    /// The ceiling was measured by replay, with the group's blocks from nowhere.
    #[serde(default)]
    pub ceiling_measured: bool,
}

/// The lines to change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Change {
    pub rust: String,
    pub c: String,
}

/// What the replay said of an advice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub confirmed: bool,
    /// In words with figures.
    pub reason: String,
    /// Time and peak memory over glibc's; `None` where it could not be replayed.
    pub time_ratio: Option<f64>,
    pub memory_ratio: Option<f64>,
}

/// How the recorded sequence ran on other allocators.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Replay {
    pub rounds: u32,
    /// `null` first, which is the harness alone, then allocators that take everything, then plans.
    pub rows: Vec<ReplayRow>,
    /// Rows that failed, and why.
    pub failed: Vec<ReplayFailure>,
    /// How far rounds of the same allocator lay apart, as a share of the median.
    pub noise: f64,
    /// Allocations and frees that were replayed, and the threads that did them.
    pub steps: u64,
    pub threads: u32,
    /// Live bytes were compared with the recording's after every step: whether they were the same.
    pub faithful: Option<bool>,
    /// All that was confirmed, together in one plan; `None` where nothing was.
    #[serde(default)]
    pub together: Option<Together>,
    /// The malloc that saves the most without any change; `None` where none does.
    #[serde(default)]
    pub better_malloc: Option<BetterMalloc>,
    /// What glibc's calls take here in all, as a share of the program's CPU time: no allocator can save more.
    #[serde(default)]
    pub ceiling: Option<f64>,
    /// It was interrupted: there are fewer rounds than were wanted.
    #[serde(default)]
    pub interrupted: bool,
}

/// All confirmed advice in one plan. Its row is the one with the same groups.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Together {
    pub groups: Vec<u32>,
    /// Of the program's CPU time: what the plan saves, what the advice of each group saves by itself, added up, and what is
    /// saved if all these groups' blocks cost nothing.
    pub gain: Option<f64>,
    pub sum: Option<f64>,
    pub ceiling: Option<f64>,
    /// Time and peak memory over glibc's.
    pub time_ratio: Option<f64>,
    pub memory_ratio: Option<f64>,
    /// In words with figures.
    pub reason: String,
}

/// A malloc that is better than glibc for the whole program.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BetterMalloc {
    pub name: String,
    /// Of the program's CPU time.
    pub gain: Option<f64>,
    /// Time and peak memory over glibc's.
    pub time_ratio: Option<f64>,
    pub memory_ratio: Option<f64>,
    /// It gives as much as all confirmed advice together.
    pub gives_as_much: bool,
    /// In words with figures.
    pub reason: String,
}

/// One allocator, or one plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayRow {
    /// `null`, `glibc`, ..., or the plan's words.
    pub name: String,
    /// The groups whose advice it follows; none for an allocator that takes everything.
    pub groups: Vec<u32>,
    /// CPU time of the harness with the allocator, without waiting for other threads: median, least and most.
    pub time_ns: u64,
    pub least_ns: u64,
    pub most_ns: u64,
    /// From the first step to the last, of all threads.
    pub wall_ns: u64,
    /// Net of what the harness itself holds.
    pub peak_resident: Option<u64>,
    pub minor_faults: Option<u64>,
    /// Time and peak memory over glibc's: the median of the rounds' ratios, and the ratio of the medians.
    pub time_ratio: Option<f64>,
    pub memory_ratio: Option<f64>,
    /// What it saves of the program's CPU time against glibc; less than 0 where it costs more.
    #[serde(default)]
    pub gain: Option<f64>,
}

/// A row that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayFailure {
    pub name: String,
    pub reason: String,
}

/// A tree by function.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Flame {
    pub name: String,
    /// With those of its children.
    pub count: u64,
    pub bytes: u64,
    /// At the root alone: functions with a smaller share of the allocations and of the bytes are left out, and only in their
    /// callers' figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_share: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Flame>,
}

/// What the check for overlapping blocks found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Overlaps {
    /// Blocks that were checked.
    pub checked: u64,
    /// Blocks that overlapped a live one.
    pub found: u64,
    /// The first of them, in words.
    pub examples: Vec<String>,
}

/// Something that the reader has to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// It puts what is found in doubt.
    pub warning: bool,
    pub text: String,
}
