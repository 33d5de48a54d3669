//! From behaviour to verdict.
//!
//! Each rule looks at a [`Behaviour`] and says why or why not, in figures. They are hypotheses: the replay confirms them
//! or withdraws them. `docs/src/advisor.md` explains the thresholds.

use super::costs::{self, Setting};
use super::findings::{Allocator, Behaviour, Category, Gain, Refusal, Verdict};
use super::tally::LARGEST;
use super::{changes, words};

/// Frees by the thread that allocated, from which on a group is one thread's own.
const OWN_THREAD: f64 = 0.99;
/// A pool takes back what other threads free, if it isn't more than this.
const POOL_THREAD: f64 = 0.95;
/// What an arena may hold over what is live: on average, and at the peak.
const ARENA_DRAG: f64 = 2.0;
const ARENA_PEAK_DRAG: f64 = 2.0;
/// The same for one that is never reset.
const FOREVER_DRAG: f64 = 1.5;
/// Blocks that have to gather between two resets.
const ARENA_OBJECTS: f64 = 16.0;
/// The same for a reap, whose blocks die on the way.
const REAP_OBJECTS: f64 = 64.0;
/// Share of the frees in bursts that makes a reap worth while.
const REAP_BURSTS: f64 = 0.5;
/// Share of the most frequent size that makes it the only one.
const ONE_SIZE: f64 = 0.9;
/// Where more of the bytes are in blocks of more than [`LARGEST`], it is those that matter.
const MOSTLY: f64 = 0.5;
/// Below this share of the CPU time no change is worth its lines.
const LEAST_GAIN: f64 = 0.01;
/// Where all allocating takes less, nothing is worth a change.
pub const LEAST_ALLOCATOR_SHARE: f64 = 0.02;
/// What is sealed has been built in this part of the run, lasts to the end with all but this share, and is so much.
const BUILT: f64 = 0.5;
const LASTING: f64 = 0.9;
const SEALED_OBJECTS: u64 = 64;
const SEALED_BYTES: u64 = 16 << 10;
/// Reallocation of more than this share while it is built means that it still changes.
const SEALED_REALLOCATED: f64 = 0.5;
/// A mean size from which on few blocks are a pool's own chunks.
const POOL_CHUNK: u64 = 4 << 10;

/// Whether an arena would do. `Ok(true)`: one that is never reset. `Err`: why not.
pub fn arena(b: &Behaviour) -> Result<bool, String> {
    if b.same_thread_share < OWN_THREAD {
        return Err(format!(
            "{} of its frees are by another thread",
            words::percent(1.0 - b.same_thread_share)
        ));
    }
    if b.phase_objects < ARENA_OBJECTS {
        return Err(format!(
            "its blocks are gone after every {} of them, so that nothing gathers",
            words::number(b.phase_objects)
        ));
    }
    let lasts = b.returns_to_zero == 0;
    let most = if lasts { FOREVER_DRAG } else { ARENA_DRAG };
    let most_peak = if lasts { FOREVER_DRAG } else { ARENA_PEAK_DRAG };
    if b.drag > most || b.peak_drag > most_peak {
        let reset = if lasts { "it could never be reset before the end, and" } else { "it" };
        return Err(format!(
            "{reset} would hold {} times what is live ({} at most, {} live)",
            words::number(b.drag.max(b.peak_drag)),
            words::bytes(b.peak_held_bytes),
            words::bytes(b.peak_live_bytes),
        ));
    }
    Ok(lasts)
}

/// Whether a reap would do.
fn reap(b: &Behaviour) -> bool {
    b.same_thread_share >= OWN_THREAD
        && b.returns_to_zero > 1
        && b.phase_objects >= REAP_OBJECTS
        && b.burst_share >= REAP_BURSTS
        && b.dominant_share < ONE_SIZE
        && !is_mostly_large(b)
}

/// Whether a free list would do.
fn free_list(b: &Behaviour) -> bool {
    b.same_thread_share >= OWN_THREAD && b.dominant_share >= ONE_SIZE && mean_size(b) <= LARGEST
}

/// Whether a slab would do.
fn slab(b: &Behaviour) -> bool {
    b.same_thread_share < OWN_THREAD && b.dominant_share >= ONE_SIZE && mean_size(b) <= LARGEST
}

/// Whether a pool would do.
fn pool(b: &Behaviour) -> bool {
    b.same_thread_share >= POOL_THREAD && !is_mostly_large(b)
}

/// Whether it is large blocks that its bytes are in. A pool gives each a chunk of its own, often with fresh
/// pages; malloc keeps those, and grows the last one where it is.
pub fn is_mostly_large(b: &Behaviour) -> bool {
    b.large_bytes as f64 > MOSTLY * b.bytes as f64
}

/// Why large blocks stay with malloc.
fn large(b: &Behaviour) -> String {
    format!(
        "{} of its bytes are in blocks of more than {} KiB, up to {}: it gives each a chunk of its own, often mapped anew, where malloc grows and reuses what it has",
        words::percent(b.large_bytes as f64 / b.bytes.max(1) as f64),
        LARGEST >> 10,
        words::bytes(b.most_size),
    )
}

/// Whether it may be read-only once it was built. `Some`: by how many other threads it outlives its building.
pub fn sealed(b: &Behaviour, setting: &Setting) -> Option<u32> {
    let lasting = (b.never_freed + b.freed_at_exit) as f64 >= LASTING * b.count as f64;
    let built = (b.last_ns as f64) < BUILT * setting.wall_ns as f64;
    let enough = b.count >= SEALED_OBJECTS && b.bytes >= SEALED_BYTES;
    let still = (b.reallocated as f64) < SEALED_REALLOCATED * b.count as f64;
    let others = setting.threads_after(b.last_ns);
    (lasting && built && enough && still && b.threads == 1 && others >= 2).then_some(others)
}

fn mean_size(b: &Behaviour) -> u64 {
    b.bytes / b.count.max(1)
}

/// What a group's blocks could be served by, whatever it gains.
fn fitting(b: &Behaviour, known: Together) -> (Category, Allocator, bool) {
    match arena(b) {
        Ok(without_reset) if known == Together::Watched => {
            (Category::Transient, Allocator::Arena, without_reset)
        }
        _ if free_list(b) => (Category::Transient, Allocator::FreeList, false),
        _ if known == Together::Watched && reap(b) => (Category::Transient, Allocator::Reap, false),
        _ if slab(b) => (Category::Shared, Allocator::Slab, false),
        _ if pool(b) => (Category::Transient, Allocator::Pool, false),
        _ => (Category::BetterMalloc, Allocator::None, false),
    }
}

/// Whether a group's sites were watched together. Where its figures are sums over sites, nothing is known of what dies
/// together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Together {
    Watched,
    Summed,
}

/// The allocator that a group's blocks would be served by, whatever it gains.
pub fn allocator(b: &Behaviour, known: Together) -> Allocator {
    fitting(b, known).1
}

/// Whether a change for so much would be worth its lines.
pub fn worth(gain: Option<Gain>) -> bool {
    gain.is_some_and(|gain| gain.share >= LEAST_GAIN)
}

/// The verdict on a group. `wider` is the largest piece of work around it, whose arena is refused if its own isn't a matter.
pub fn judge(
    b: &Behaviour,
    title: &str,
    known: Together,
    wider: Option<&Behaviour>,
    setting: &Setting,
) -> Verdict {
    let (category, allocator, without_reset) = fitting(b, known);
    let gain = costs::gain(b, allocator, setting);
    let mut refused = Vec::new();
    if allocator != Allocator::Arena
        && let Err(own) = arena(b)
    {
        let wide = wider.and_then(|wider| arena(wider).err());
        refused.push(Refusal { allocator: Allocator::Arena, reason: wide.unwrap_or(own) });
    }
    if allocator == Allocator::None && is_mostly_large(b) {
        refused.push(Refusal { allocator: Allocator::Pool, reason: large(b) });
    }
    if setting.allocator_share.is_some_and(|share| share < LEAST_ALLOCATOR_SHARE) {
        return leave(little_in_all(setting), gain, refused);
    }
    if !worth(gain) {
        return leave(too_little(b, gain), gain, refused);
    }
    if category == Category::BetterMalloc {
        return Verdict {
            category,
            allocator,
            without_reset,
            reason: format!(
                "{}, of {}: no pattern of ours, but {} of the CPU time goes there",
                by_whom(b),
                words::sizes(b),
                words::percent(gain.map_or(0.0, |gain| gain.ceiling)),
            ),
            refused,
            gain,
            change: changes::better_malloc(),
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
        change: changes::change(allocator, title, b),
        candidate: false,
        replayed: None,
    }
}

/// The verdict on what is built once and then stays.
pub fn seal(b: &Behaviour, title: &str, others: u32, setting: &Setting) -> Verdict {
    let allocator = Allocator::Sealed;
    let gone = match b.count.saturating_sub(b.never_freed + b.freed_at_exit) {
        0 => "all of them".to_owned(),
        some => format!("all but {} of them", words::count(some)),
    };
    let reason = format!(
        "{} ({}) made by one thread in the first {} of the run, {gone} there to the end, while {others} other threads \
         work; a recording doesn't show who writes: prove that nobody does",
        words::counted(b.count, "block"),
        words::bytes(b.bytes),
        words::percent(b.last_ns as f64 / setting.wall_ns.max(1) as f64),
    );
    Verdict {
        category: Category::ReadOnlyShared,
        allocator,
        without_reset: true,
        reason,
        refused: Vec::new(),
        gain: costs::gain(b, allocator, setting),
        change: changes::change(allocator, title, b),
        candidate: true,
        replayed: None,
    }
}

fn leave(reason: String, gain: Option<Gain>, refused: Vec<Refusal>) -> Verdict {
    Verdict {
        category: Category::LeaveIt,
        allocator: Allocator::None,
        without_reset: false,
        reason,
        refused,
        gain,
        change: Default::default(),
        candidate: false,
        replayed: None,
    }
}

/// The verdict on many sites that have nothing in common.
pub fn scattered(b: &Behaviour, sites: usize, setting: &Setting) -> Verdict {
    let reason = format!(
        "{} of {} with nothing in common, none of them worth a change",
        words::counted(b.count, "block"),
        words::counted(sites as u64, "place")
    );
    leave(reason, costs::gain(b, Allocator::None, setting), Vec::new())
}

fn little_in_all(setting: &Setting) -> String {
    format!(
        "all allocating and freeing together takes {} of the CPU time; no quicker calls can save more",
        words::about(setting.allocator_share.unwrap_or(0.0))
    )
}

fn too_little(b: &Behaviour, gain: Option<Gain>) -> String {
    let most = gain.map_or_else(
        || "too little to tell".to_owned(),
        |gain| format!("{} of the CPU time", words::at_most(gain.ceiling)),
    );
    let count = words::counted(b.count, "block");
    if b.never_freed + b.freed_at_exit == b.count {
        let stay = if b.count == 1 { "stays" } else { "stay" };
        format!("{count} that {stay} to the end: {most}")
    } else if is_mostly_large(b) && b.reallocated * 2 > b.count {
        let grow = if b.count == 1 { "grows" } else { "grow" };
        format!("{count} that {grow}, up to {}: {most}", words::bytes(b.most_size))
    } else if mean_size(b) >= POOL_CHUNK {
        let mean = words::bytes(mean_size(b));
        format!("{count} of {mean} on average, such as pools of its own are made of: {most}")
    } else {
        format!("{count}: {most}")
    }
}

fn by_whom(b: &Behaviour) -> String {
    if b.same_thread_share >= OWN_THREAD {
        "freed by the thread that made them".to_owned()
    } else {
        format!("{} freed by another thread", words::percent(1.0 - b.same_thread_share))
    }
}

fn reason(b: &Behaviour, allocator: Allocator, without_reset: bool) -> String {
    let whom = by_whom(b);
    let lifetime = b.lifetime_allocations.map_or_else(String::new, |ages| {
        format!(", nine in ten dead after {}", words::counted(ages.p90, "allocation"))
    });
    match allocator {
        Allocator::Arena if without_reset => format!(
            "{} gather and none to speak of goes before the end: an arena would hold {} times what is live, if a longer run frees as little; {whom}",
            words::counted(b.count, "block"),
            words::number(b.drag),
        ),
        Allocator::Arena => format!(
            "{} blocks die together ({}; {} of the frees in bursts): an arena would hold {} times what is live; {whom}",
            words::number(b.phase_objects),
            words::times(b.returns_to_zero),
            words::percent(b.burst_share),
            words::number(b.drag),
        ),
        Allocator::Reap => format!(
            "{} blocks a piece of work, some of which die on the way, the rest in a burst of {}; {}; {whom}",
            words::number(b.phase_objects),
            words::number(b.mean_burst),
            words::sizes(b),
        ),
        Allocator::FreeList => format!(
            "{} of the blocks have {} bytes{lifetime}, at most {} live; {whom}",
            words::percent(b.dominant_share),
            b.dominant_size,
            words::count(b.peak_live_objects),
        ),
        Allocator::Slab => format!(
            "{} of the blocks have {} bytes; {whom}; at most {} live",
            words::percent(b.dominant_share),
            b.dominant_size,
            words::count(b.peak_live_objects),
        ),
        Allocator::Pool => format!(
            "{} of {}{lifetime}, at most {} live; {whom}",
            words::counted(b.count, "block"),
            words::sizes(b),
            words::count(b.peak_live_objects),
        ),
        Allocator::Sealed | Allocator::None => whom,
    }
}
