//! The rules that turn the behaviour of a group's blocks into a verdict.
//!
//! Each rule looks at a [`BlockFigures`] and gives its reason in figures. Verdicts are hypotheses
//! until the replay confirms them. `docs/src/advisor.md` explains the thresholds.

use super::block_statistics::LARGEST;
use super::cost_model::{self, RunContext};
use super::findings::{
    AdvisedAllocator, BlockFigures, Gain, ObjectCategory, RefusedAllocator, Verdict,
};
use super::{code_changes, formatting};

/// From this share of frees by the allocating thread on, a group belongs to one thread.
const OWN_THREAD: f64 = 0.99;
/// The share of frees by the allocating thread that a pool needs; it takes back the rest.
const POOL_THREAD: f64 = 0.95;
/// The most bytes that an arena may hold, divided by live bytes: on average, and at the peak.
const ARENA_DRAG: f64 = 2.0;
const ARENA_PEAK_DRAG: f64 = 2.0;
/// The same for an arena that is never reset.
const FOREVER_DRAG: f64 = 1.5;
/// Blocks that must accumulate between two resets.
const ARENA_OBJECTS: f64 = 16.0;
/// The same for a reap, some of whose blocks are freed one by one.
const REAP_OBJECTS: f64 = 64.0;
/// The share of the frees in bursts that a reap needs.
const REAP_BURSTS: f64 = 0.5;
/// From this share of the allocations on, the most frequent size counts as the only one.
const ONE_SIZE: f64 = 0.9;
/// From this share of the bytes in blocks of more than [`LARGEST`] on, a group consists of large
/// blocks.
const MOSTLY: f64 = 0.5;
/// The least gain, as a share of the CPU time, that is worth a change.
const LEAST_GAIN: f64 = 0.01;
/// If all allocating and freeing takes less than this share of the CPU time, nothing is worth a
/// change.
pub const LEAST_ALLOCATOR_SHARE: f64 = 0.02;
/// A group is a candidate for sealing if it is built within this share of the run, at least this
/// share of its blocks lasts to the end, and it has at least this many blocks and bytes.
const BUILT: f64 = 0.5;
const LASTING: f64 = 0.9;
const SEALED_OBJECTS: u64 = 64;
const SEALED_BYTES: u64 = 16 << 10;
/// A free list or a slab is advised if at most this share of the blocks is resized: the program can
/// treat those few separately.
const RESIZED: f64 = 0.01;
/// From this share of blocks made by `realloc` on, a group still changes, and is not sealed.
const SEALED_REALLOCATED: f64 = 0.5;
/// From this mean size on, blocks are probably the chunks of the program's own allocator.
const POOL_CHUNK: u64 = 4 << 10;

/// Whether an arena fits. `Ok(true)`: one that is never reset. `Err`: why not.
pub fn arena(b: &BlockFigures) -> Result<bool, String> {
    if b.same_thread_share < OWN_THREAD {
        return Err(format!(
            "another thread does {} of the frees",
            formatting::percent(1.0 - b.same_thread_share)
        ));
    }
    if b.phase_objects < ARENA_OBJECTS {
        return Err(format!(
            "only {} blocks accumulate on average before all of them are freed, too few for a reset to pay",
            formatting::number(b.phase_objects)
        ));
    }
    let lasts = b.returns_to_zero == 0;
    let most = if lasts { FOREVER_DRAG } else { ARENA_DRAG };
    let most_peak = if lasts { FOREVER_DRAG } else { ARENA_PEAK_DRAG };
    if b.drag > most || b.peak_drag > most_peak {
        let reset = if lasts { "it could never be reset before the end, and" } else { "it" };
        return Err(format!(
            "{reset} would hold {} times the live bytes (its peak {}, live {})",
            formatting::number(b.drag.max(b.peak_drag)),
            formatting::bytes(b.peak_held_bytes),
            formatting::bytes(b.peak_live_bytes),
        ));
    }
    Ok(lasts)
}

/// Whether a reap fits.
fn reap(b: &BlockFigures) -> bool {
    b.same_thread_share >= OWN_THREAD
        && b.returns_to_zero > 1
        && b.phase_objects >= REAP_OBJECTS
        && b.burst_share >= REAP_BURSTS
        && b.dominant_share < ONE_SIZE
        && !is_mostly_large(b)
}

/// Whether a free list fits.
fn free_list(b: &BlockFigures) -> bool {
    b.same_thread_share >= OWN_THREAD && has_one_size(b)
}

/// Whether a slab fits.
fn slab(b: &BlockFigures) -> bool {
    b.same_thread_share < OWN_THREAD && has_one_size(b)
}

/// Whether a free list or a slab can have blocks of its size. Neither can resize a block.
fn has_one_size(b: &BlockFigures) -> bool {
    b.dominant_share >= ONE_SIZE
        && mean_size(b) <= LARGEST
        && b.resized as f64 <= RESIZED * b.count as f64
}

/// Whether a pool fits.
fn pool(b: &BlockFigures) -> bool {
    b.same_thread_share >= POOL_THREAD && !is_mostly_large(b)
}

/// Whether most of its bytes are in large blocks. A pool gives each large block a chunk of its own,
/// often with fresh pages; malloc keeps such blocks, and grows the last one in place.
pub fn is_mostly_large(b: &BlockFigures) -> bool {
    b.large_bytes as f64 > MOSTLY * b.bytes as f64
}

/// The reason why large blocks stay with malloc.
fn large(b: &BlockFigures) -> String {
    format!(
        "{} of the bytes are in blocks of more than {} KiB, up to {}; a pool gives each of them a chunk of its own, often mapped anew, where malloc grows and reuses its blocks",
        formatting::percent(b.large_bytes as f64 / b.bytes.max(1) as f64),
        LARGEST >> 10,
        formatting::bytes(b.most_size),
    )
}

/// Whether it may be read-only once it is built. `Some`: the number of other threads that work
/// afterwards.
pub fn sealed(b: &BlockFigures, run_context: &RunContext) -> Option<u32> {
    let lasting = (b.never_freed + b.freed_at_exit) as f64 >= LASTING * b.count as f64;
    let built = (b.last_ns as f64) < BUILT * run_context.wall_ns as f64;
    let enough = b.count >= SEALED_OBJECTS && b.bytes >= SEALED_BYTES;
    let still = (b.reallocated as f64) < SEALED_REALLOCATED * b.count as f64;
    let others = run_context.threads_after(b.last_ns);
    (lasting && built && enough && still && b.threads == 1 && others >= 2).then_some(others)
}

fn mean_size(b: &BlockFigures) -> u64 {
    b.bytes / b.count.max(1)
}

/// The allocator that fits a group's blocks, whatever it gains.
fn fitting(b: &BlockFigures, known: LifetimesKnown) -> (ObjectCategory, AdvisedAllocator, bool) {
    match arena(b) {
        Ok(without_reset) if known == LifetimesKnown::Measured => {
            (ObjectCategory::Transient, AdvisedAllocator::Arena, without_reset)
        }
        _ if free_list(b) => (ObjectCategory::Transient, AdvisedAllocator::FreeList, false),
        _ if known == LifetimesKnown::Measured && reap(b) => {
            (ObjectCategory::Transient, AdvisedAllocator::Reap, false)
        }
        _ if slab(b) => (ObjectCategory::Shared, AdvisedAllocator::Slab, false),
        _ if pool(b) => (ObjectCategory::Transient, AdvisedAllocator::Pool, false),
        _ => (ObjectCategory::BetterMalloc, AdvisedAllocator::None, false),
    }
}

/// Whether the lifetimes of a group's sites were measured together. If its figures are sums over
/// sites, it is unknown which of their blocks are freed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifetimesKnown {
    Measured,
    Summed,
}

/// The allocator that fits a group's blocks, whatever it gains.
pub fn allocator(b: &BlockFigures, known: LifetimesKnown) -> AdvisedAllocator {
    fitting(b, known).1
}

/// Whether this gain is worth a change.
pub fn worth(gain: Option<Gain>) -> bool {
    gain.is_some_and(|gain| gain.share >= LEAST_GAIN)
}

/// The verdict on a group. `wider` is the largest piece of work around it; if an arena fits
/// neither, the reason given is why it doesn't fit `wider`.
pub fn judge(
    b: &BlockFigures,
    title: &str,
    known: LifetimesKnown,
    wider: Option<&BlockFigures>,
    run_context: &RunContext,
) -> Verdict {
    let (category, allocator, without_reset) = fitting(b, known);
    let gain = cost_model::gain(b, allocator, run_context);
    let mut refused = Vec::new();
    if allocator != AdvisedAllocator::Arena
        && let Err(own) = arena(b)
    {
        let wide = wider.and_then(|wider| arena(wider).err());
        refused.push(RefusedAllocator {
            allocator: AdvisedAllocator::Arena,
            reason: wide.unwrap_or(own),
        });
    }
    if allocator == AdvisedAllocator::None && is_mostly_large(b) {
        refused.push(RefusedAllocator { allocator: AdvisedAllocator::Pool, reason: large(b) });
    }
    if run_context.allocator_share.is_some_and(|share| share < LEAST_ALLOCATOR_SHARE) {
        return leave(little_in_all(run_context), gain, refused);
    }
    if !worth(gain) {
        return leave(too_little(b, gain), gain, refused);
    }
    if category == ObjectCategory::BetterMalloc {
        return Verdict {
            category,
            allocator,
            without_reset,
            reason: format!(
                "{}, {}; none of this project's allocators fits, but these blocks cost {} of the CPU time",
                by_whom(b),
                formatting::sizes(b),
                formatting::percent(gain.map_or(0.0, |gain| gain.ceiling)),
            ),
            refused,
            gain,
            change: code_changes::better_malloc(),
            candidate: false,
            replayed: None,
        };
    }
    Verdict {
        category,
        allocator,
        without_reset,
        reason: reason(b, allocator, without_reset),
        refused,
        gain,
        change: code_changes::change(allocator, title, b),
        candidate: false,
        replayed: None,
    }
}

/// The verdict on a group that is built once and then stays: a candidate for sealing.
pub fn seal(b: &BlockFigures, title: &str, others: u32, run_context: &RunContext) -> Verdict {
    let allocator = AdvisedAllocator::Sealed;
    let gone = match b.count.saturating_sub(b.never_freed + b.freed_at_exit) {
        0 => "all of them".to_owned(),
        some => format!("all but {} of them", formatting::count(some)),
    };
    let reason = format!(
        "one thread makes {} ({}) in the first {} of the run, and {gone} last to the end, while {others} other threads \
         work; a recording doesn't show writes, so check that nothing writes to them",
        formatting::counted(b.count, "block"),
        formatting::bytes(b.bytes),
        formatting::percent(b.last_ns as f64 / run_context.wall_ns.max(1) as f64),
    );
    Verdict {
        category: ObjectCategory::ReadOnlyShared,
        allocator,
        without_reset: true,
        reason,
        refused: Vec::new(),
        gain: cost_model::gain(b, allocator, run_context),
        change: code_changes::change(allocator, title, b),
        candidate: true,
        replayed: None,
    }
}

fn leave(reason: String, gain: Option<Gain>, refused: Vec<RefusedAllocator>) -> Verdict {
    Verdict {
        category: ObjectCategory::LeaveIt,
        allocator: AdvisedAllocator::None,
        without_reset: false,
        reason,
        refused,
        gain,
        change: Default::default(),
        candidate: false,
        replayed: None,
    }
}

/// The verdict on sites that have nothing in common.
pub fn scattered(b: &BlockFigures, sites: usize, run_context: &RunContext) -> Verdict {
    let reason = format!(
        "{} from {} that have nothing in common; none is worth a change",
        formatting::counted(b.count, "block"),
        formatting::counted(sites as u64, "place")
    );
    leave(reason, cost_model::gain(b, AdvisedAllocator::None, run_context), Vec::new())
}

fn little_in_all(run_context: &RunContext) -> String {
    format!(
        "allocating and freeing takes {} of the CPU time in all, too little for any allocator to matter",
        formatting::about(run_context.allocator_share.unwrap_or(0.0))
    )
}

fn too_little(b: &BlockFigures, gain: Option<Gain>) -> String {
    let most = gain.map_or_else(
        || "their cost is unknown".to_owned(),
        |gain| format!("they cost {} of the CPU time", formatting::at_most(gain.ceiling)),
    );
    let count = formatting::counted(b.count, "block");
    if b.never_freed + b.freed_at_exit == b.count {
        let stay = if b.count == 1 { "stays" } else { "stay" };
        format!("{count} that {stay} to the end; {most}")
    } else if is_mostly_large(b) && b.reallocated * 2 > b.count {
        let grow = if b.count == 1 { "grows" } else { "grow" };
        format!("{count} that {grow} by realloc, up to {}; {most}", formatting::bytes(b.most_size))
    } else if mean_size(b) >= POOL_CHUNK {
        let mean = formatting::bytes(mean_size(b));
        format!("{count} of {mean} on average, like the chunks of an allocator of its own; {most}")
    } else {
        format!("{count}; {most}")
    }
}

fn by_whom(b: &BlockFigures) -> String {
    if b.same_thread_share >= OWN_THREAD {
        "freed by the allocating thread".to_owned()
    } else {
        format!("{} freed by another thread", formatting::percent(1.0 - b.same_thread_share))
    }
}

fn reason(b: &BlockFigures, allocator: AdvisedAllocator, without_reset: bool) -> String {
    let whom = by_whom(b);
    let lifetime = b.lifetime_allocations.map_or_else(String::new, |ages| {
        format!(", nine in ten freed within {}", formatting::counted(ages.p90, "allocation"))
    });
    match allocator {
        AdvisedAllocator::Arena if without_reset => format!(
            "{} accumulate, and almost none is freed before the end; an arena would hold {} times the live bytes, provided that a longer run frees as little; {whom}",
            formatting::counted(b.count, "block"),
            formatting::number(b.drag),
        ),
        AdvisedAllocator::Arena => format!(
            "{} blocks on average accumulate until all of them are freed ({}; {} of the frees in runs of 16 or more); an arena would hold {} times the live bytes; {whom}",
            formatting::number(b.phase_objects),
            formatting::times(b.returns_to_zero),
            formatting::percent(b.burst_share),
            formatting::number(b.drag),
        ),
        AdvisedAllocator::Reap => format!(
            "{} blocks in each piece of work; some are freed one by one, the rest in bursts of {} on average; {}; {whom}",
            formatting::number(b.phase_objects),
            formatting::number(b.mean_burst),
            formatting::sizes(b),
        ),
        AdvisedAllocator::FreeList => format!(
            "{} of the blocks have {} bytes{lifetime}, at most {} live at once; {whom}",
            formatting::percent(b.dominant_share),
            b.dominant_size,
            formatting::count(b.peak_live_objects),
        ),
        AdvisedAllocator::Slab => format!(
            "{} of the blocks have {} bytes; {whom}; at most {} live at once",
            formatting::percent(b.dominant_share),
            b.dominant_size,
            formatting::count(b.peak_live_objects),
        ),
        AdvisedAllocator::Pool => format!(
            "{} of {}{lifetime}, at most {} live at once; {whom}",
            formatting::counted(b.count, "block"),
            formatting::sizes(b),
            formatting::count(b.peak_live_objects),
        ),
        AdvisedAllocator::Sealed | AdvisedAllocator::None => whom,
    }
}
