//! The findings on a program: the model that analysis, replay and report share.
//!
//! This is plain data. `allot analyse --json` prints it, the replay fills in [`Findings::replay`]
//! and each verdict's [`Verdict::replayed`], and the report shows it. Times are in nanoseconds,
//! memory is in bytes, and a share is a number from 0 to 1. What is unknown is `None`, never 0.

mod measured;
mod system;

pub use measured::{ChangeParts, MeasuredFindings, MeasuredRatio, MeasuredRow};
use serde::{Deserialize, Serialize};
pub use system::{LockSite, SystemCallAdvice, SystemCallFigures, SystemFindings};

/// The version of this model in JSON. It increases when a field changes its meaning or is removed.
pub const VERSION: u32 = 1;
/// The most points of a timeline.
pub const MOST_POINTS: usize = 1000;

/// All findings on one process of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// [`VERSION`].
    pub version: u32,
    /// The program and its run.
    pub program: RecordedProgram,
    /// Live memory over time, at most [`MOST_POINTS`] points.
    pub timeline: Vec<TimelinePoint>,
    /// The places that allocate, the most frequent first; [`Site::id`] is the index.
    pub sites: Vec<Site>,
    /// Groups of sites that one change would serve, the largest gain first; [`SiteGroup::id`] is
    /// the index. Each site is in one group.
    pub groups: Vec<SiteGroup>,
    /// Allocations by function, outermost callers at the root.
    pub flame: FlameNode,
    /// The result of the check for overlapping blocks, with `--check`.
    pub overlaps: Option<OverlapFindings>,
    /// Waits for locks, the longest total wait first.
    pub locks: Vec<LockSite>,
    /// What the kernel counted.
    pub system: SystemFindings,
    /// The results of the replay, once there was one.
    pub replay: Option<ReplayFindings>,
    /// What the program itself took with other mallocs, with `--repeat`.
    #[serde(default)]
    pub measured: Option<MeasuredFindings>,
    /// Notes for the reader, one sentence each.
    pub notes: Vec<ReportNote>,
}

/// The program and its run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RecordedProgram {
    /// Its command line.
    pub command: Vec<String>,
    /// The path of its executable.
    pub executable: String,
    /// The number of this process in the recording, and the number of processes.
    pub process: u32,
    pub processes: u32,
    /// The exit code, or `signal N`; `None` where the recording was cut off, or this isn't the
    /// first process.
    pub exit: Option<String>,
    /// CPU time of the program under the recorder, user and system, with the children it waited
    /// for.
    pub cpu_ns: Option<u64>,
    /// The same without the recorder's share: measured with `--against-bare`, otherwise estimated.
    pub bare_cpu_ns: Option<u64>,
    /// Whether `bare_cpu_ns` was measured.
    pub bare_measured: bool,
    /// From its start to its last event.
    pub wall_ns: u64,
    /// The largest resident size.
    pub peak_resident: Option<u64>,
    /// Why malloc doesn't allocate most of its objects; `None` if it does, as far as is known.
    #[serde(default)]
    pub own_heap: Option<OwnHeap>,
    /// Threads that allocated or freed.
    pub threads: u32,
    /// Events in the recording.
    pub events: u64,
    /// Allocations, those by realloc included.
    pub allocations: u64,
    /// Frees, those by realloc included.
    pub frees: u64,
    /// Share of the allocations that were made by realloc from another block.
    pub realloc_share: f64,
    /// The sum of all requested sizes.
    pub bytes: u64,
    /// The most bytes and blocks that were live at once.
    pub peak_live_bytes: u64,
    pub peak_live_objects: u64,
    /// Blocks live at the end.
    pub live_at_end: u64,
    /// Frees of blocks whose allocation was not recorded.
    pub unknown_frees: u64,
    /// Share of the CPU time that allocating and freeing takes.
    pub allocator_share: Option<f64>,
    /// Whether that share comes from measured calls of this run, not from constants.
    #[serde(default)]
    pub allocator_measured: bool,
    /// The average time in this run of an allocation, of a free, and of the recorder at each of
    /// them. `None` if too few were measured.
    #[serde(default)]
    pub allocation_ns: Option<f64>,
    #[serde(default)]
    pub free_ns: Option<f64>,
    #[serde(default)]
    pub recorder_ns: Option<f64>,
    /// Frees in the last run of frees before the end. They say nothing about when a block was last
    /// used.
    pub freed_at_exit: u64,
    /// Bytes of the recording per event, compressed and raw.
    pub trace_bytes_per_event: f64,
    pub raw_bytes_per_event: f64,
    /// The recording ends before the program did.
    pub truncated: bool,
}

/// A heap that a program has besides malloc's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OwnHeap {
    /// `most of its objects are in V8's heap`.
    pub reason: String,
    /// A sentence that says what to do.
    pub remedy: String,
}

/// A point of the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// Since the process began.
    pub time_ns: u64,
    /// Live when it was taken.
    pub bytes: u64,
    pub objects: u64,
    /// The most bytes that were live since the point before.
    pub most_bytes: u64,
}

/// A function of a stack; there are several for one return address if calls were inlined.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StackFrame {
    /// The function's name, or `module+0x1234` where it has none.
    pub function: String,
    /// The file it lies in, as far as debug information says.
    pub file: Option<String>,
    pub line: Option<u32>,
    /// The executable or library.
    pub module: String,
    /// It was inlined into the next frame.
    pub inlined: bool,
    /// It only passes its callers' requests on, as `xmalloc` and `operator new` do.
    pub wrapper: bool,
}

/// Quantiles: `p90` is the value that nine in ten do not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quantiles {
    pub p10: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub most: u64,
}

/// The figures of the blocks of a site or a group.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BlockFigures {
    /// Allocations.
    pub count: u64,
    /// Of them, those by realloc from another block.
    pub reallocated: u64,
    /// Of them, those that realloc gave another size later.
    #[serde(default)]
    pub resized: u64,
    /// The sum of the requested sizes.
    pub bytes: u64,
    /// Of them, in blocks of more than 32 KiB.
    #[serde(default)]
    pub large_bytes: u64,
    /// The most frequent size, and its share of the allocations.
    pub dominant_size: u64,
    pub dominant_share: f64,
    /// The number of different sizes, counted up to 16.
    pub sizes: u32,
    /// The smallest and the largest.
    pub least_size: u64,
    pub most_size: u64,
    /// Lifetimes of freed blocks, within a factor of two. `None` if none was freed before the end.
    pub lifetime_ns: Option<Quantiles>,
    /// The same, counted in allocations of the program.
    pub lifetime_allocations: Option<Quantiles>,
    /// Share of the frees by the thread that allocated.
    pub same_thread_share: f64,
    /// Threads that allocated, counted up to 64.
    pub threads: u32,
    /// Share of the frees that freed the youngest live block of the site or group.
    pub last_in_first_out_share: f64,
    /// The most that were live at once.
    pub peak_live_objects: u64,
    pub peak_live_bytes: u64,
    /// Blocks live at the end, and blocks freed in the last run of frees before it.
    pub never_freed: u64,
    pub freed_at_exit: u64,
    /// Runs of frees without an allocation of the site or group in between, without the run at
    /// exit: the share of the frees in runs of at least 16, and the mean length of a free's run.
    pub burst_share: f64,
    pub mean_burst: f64,
    /// How often the number of live blocks returned to zero, without the exit.
    pub returns_to_zero: u64,
    /// Allocations between two such returns, for an average block.
    pub phase_objects: f64,
    /// Bytes that an arena would hold if it were reset at each return to zero, divided by live
    /// bytes: the mean over the program's allocations, and the ratio of the peaks.
    pub drag: f64,
    pub peak_drag: f64,
    /// The most bytes that such an arena would hold.
    pub peak_held_bytes: u64,
    /// First and last allocation, in nanoseconds since the process began.
    pub first_ns: u64,
    pub last_ns: u64,
}

/// A place in the program that allocates, without its wrappers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// Its index in [`Findings::sites`].
    pub id: u32,
    /// The innermost function that isn't a wrapper, and its caller if callers are told apart.
    pub title: String,
    /// The frames that all its stacks have in common, the innermost first; those of wrappers are
    /// marked.
    pub frames: Vec<StackFrame>,
    /// The number of different stacks.
    pub stacks: u32,
    /// The group it is in.
    pub group: u32,
    #[serde(flatten)]
    pub behaviour: BlockFigures,
}

/// Sites that one change would serve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SiteGroup {
    /// Its index in [`Findings::groups`].
    pub id: u32,
    /// The function that the group is named after, or a description.
    pub title: String,
    /// Its sites, the most frequent first.
    pub sites: Vec<u32>,
    /// The call during which all its blocks are allocated: where an arena is created and reset. If
    /// the function is recursive, the call is that of the outermost one. `None` if the group is not
    /// a piece of work, or is the whole run.
    #[serde(default)]
    pub place: Option<StackFrame>,
    #[serde(flatten)]
    pub behaviour: BlockFigures,
    pub verdict: Verdict,
}

/// The paper's categories of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectCategory {
    /// Allocated and freed within a piece of work of one thread.
    Transient,
    /// Passed from thread to thread.
    Shared,
    /// Built once, then read by many.
    ReadOnlyShared,
    /// No change is worth it.
    LeaveIt,
    /// Another malloc saves as much without changing the code.
    BetterMalloc,
}

/// An allocator of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdvisedAllocator {
    Arena,
    Reap,
    FreeList,
    Pool,
    Slab,
    Sealed,
    None,
}

/// The advice for a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub category: ObjectCategory,
    pub allocator: AdvisedAllocator,
    /// The arena is never reset before the end of the program; the replay does the same.
    pub without_reset: bool,
    /// Why, in words with figures.
    pub reason: String,
    /// Allocators that don't fit, and why.
    pub refused: Vec<RefusedAllocator>,
    /// What it may save; `None` if the program's CPU time is unknown.
    pub gain: Option<Gain>,
    /// The lines to change.
    pub change: CodeChange,
    /// It needs a proof that a recording can't give: that nothing writes to a sealed object.
    pub candidate: bool,
    /// What the replay said of it.
    pub replayed: Option<ReplayOutcome>,
}

/// An allocator that was not advised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusedAllocator {
    pub allocator: AdvisedAllocator,
    pub reason: String,
}

/// What may be saved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Estimated share of the program's CPU time; measured once it was replayed.
    pub share: f64,
    /// What the group's allocating and freeing costs in all, and so the most that can be saved.
    pub ceiling: f64,
    /// Whether the share was measured, by replay or in the program itself.
    #[serde(default)]
    pub measured: bool,
    /// Whether it was measured in the program itself.
    #[serde(default)]
    pub tried: bool,
    /// Whether the ceiling was measured, by a replay with the group's blocks at no cost.
    #[serde(default)]
    pub ceiling_measured: bool,
}

/// The lines to change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CodeChange {
    pub rust: String,
    pub c: String,
}

/// The result of the replay for a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayOutcome {
    pub confirmed: bool,
    /// In words with figures.
    pub reason: String,
    /// Time and peak memory divided by glibc's; `None` if it could not be replayed. The memory is
    /// also `None` if glibc's is 0.
    pub time_ratio: Option<f64>,
    pub memory_ratio: Option<f64>,
}

/// The results of a replay with other allocators.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ReplayFindings {
    pub rounds: u32,
    /// First `null`, the replay without an allocator; then mallocs that serve everything; then
    /// plans.
    pub rows: Vec<ReplayRow>,
    /// Rows that failed, and why.
    pub failed: Vec<ReplayFailure>,
    /// The typical distance of a round from its allocator's median, as a share of that.
    pub noise: f64,
    /// The number of replayed allocations and frees, and of the threads that performed them.
    pub steps: u64,
    pub threads: u32,
    /// With `--check`: whether live bytes equalled the recording's after every step, and no blocks
    /// overlapped.
    pub faithful: Option<bool>,
    /// All confirmed changes in one plan; `None` if there is none.
    #[serde(default)]
    pub together: Option<CombinedPlan>,
    /// The malloc that saves the most without changing the code, of those that can be installed and
    /// don't need too much memory; `None` if none does.
    #[serde(default)]
    pub better_malloc: Option<MallocAdvice>,
    /// A malloc that saves clearly more than that, with its drawback.
    #[serde(default)]
    pub faster_malloc: Option<MallocAdvice>,
    /// What glibc's calls take in the replay in all, as a share of the program's CPU time. Better
    /// locality, and walks over objects that only free them, can make a program save more.
    #[serde(default)]
    pub ceiling: Option<f64>,
    /// It was interrupted, so there are fewer rounds than planned.
    #[serde(default)]
    pub interrupted: bool,
}

impl ReplayFindings {
    /// If glibc's calls take a larger share of the program's CPU time in the replay, one of the two
    /// figures is wrong.
    const MOST_OF_PROGRAM: f64 = 0.9;

    /// Whether its figures can't be right, because it took so much of the program's CPU time.
    pub fn is_too_high(&self) -> bool {
        self.ceiling.is_some_and(|ceiling| ceiling > Self::MOST_OF_PROGRAM)
    }
}

/// All confirmed changes in one plan. Its row is the one with the same groups.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CombinedPlan {
    pub groups: Vec<u32>,
    /// Shares of the program's CPU time: what the plan saves; the sum of what each group's plan
    /// saves by itself; and what these groups' blocks cost in all.
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
pub struct MallocAdvice {
    pub name: String,
    /// Of the program's CPU time.
    pub gain: Option<f64>,
    /// Time and peak memory over glibc's. The memory is `None` if glibc's peak is under 1 MiB.
    pub time_ratio: Option<f64>,
    pub memory_ratio: Option<f64>,
    /// Peak memory minus glibc's.
    #[serde(default)]
    pub more_peak_bytes: Option<i64>,
    /// It saves as much as all confirmed changes together.
    pub gives_as_much: bool,
    /// In words with figures.
    pub reason: String,
    /// Why it isn't the one to use although it saves more.
    #[serde(default)]
    pub drawback: Option<String>,
    /// How to try it; `None` if no distribution has it.
    #[serde(default)]
    pub library: Option<MallocLibrary>,
}

/// A malloc's shared library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MallocLibrary {
    /// Its name, for `LD_PRELOAD`.
    pub file: String,
    /// The packages that it is in, in words; empty if it is installed.
    pub packages: String,
}

/// One allocator, or one plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayRow {
    /// `null`, `glibc`, ..., or a plan such as `arena for group 0`.
    pub name: String,
    /// The shared library that served everything; `None` for an allocator that is built in.
    #[serde(default)]
    pub library: Option<String>,
    /// The groups whose advice it follows; none for a malloc that serves everything.
    pub groups: Vec<u32>,
    /// CPU time of the replay with this allocator, without waiting for other threads: median, least
    /// and most.
    pub time_ns: u64,
    pub least_ns: u64,
    pub most_ns: u64,
    /// From the first step to the last, of all threads.
    pub wall_ns: u64,
    /// Without what the replay itself holds.
    pub peak_resident: Option<u64>,
    pub minor_faults: Option<u64>,
    /// Time and peak memory divided by glibc's: the median of the rounds' ratios, and the ratio of
    /// the medians.
    pub time_ratio: Option<f64>,
    pub memory_ratio: Option<f64>,
    /// What it saves against glibc, as a share of the program's CPU time; negative if it costs
    /// more.
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
pub struct FlameNode {
    pub name: String,
    /// Allocations and bytes, those of its children included.
    pub count: u64,
    pub bytes: u64,
    /// Only at the root: functions with a smaller share of both the allocations and the bytes are
    /// left out; their figures are part of their callers'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_share: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<FlameNode>,
}

/// What the check for overlapping blocks found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OverlapFindings {
    /// Blocks that were checked.
    pub checked: u64,
    /// Blocks that overlapped a live one.
    pub found: u64,
    /// The first of them, in words.
    pub examples: Vec<String>,
}

/// A note for the reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportNote {
    /// It casts doubt on the findings.
    pub warning: bool,
    pub text: String,
}
