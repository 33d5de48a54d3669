//! What allocating costs, roughly: nanoseconds for an allocation and its free, from this project's own measurements
//! (`allot bench`). The replay puts measured figures in their place.

use super::findings::{Allocator, Behaviour, Gain};

/// The C library's malloc: from its cache of small blocks, with many live so that it touches cold memory, by another
/// thread, beyond what it caches, and from the system.
const GLIBC_CACHED: f64 = 18.0;
const GLIBC_COLD: f64 = 45.0;
const GLIBC_REMOTE: f64 = 75.0;
const GLIBC_UNCACHED: f64 = 60.0;
const GLIBC_MAPPED: f64 = 2_000.0;
/// Sizes that it caches, and sizes that it maps, by its defaults.
const CACHED_SIZE: u64 = 1032;
const MAPPED_SIZE: u64 = 32 << 20;
/// Live blocks that don't fit in its cache any more.
const COLD: u64 = 5_000;
/// Part of the cost that allocating has; the rest is the free.
const ALLOCATING: f64 = 0.6;

/// Ours.
const ARENA: f64 = 4.5;
const FREE_LIST: f64 = 5.0;
const POOL: f64 = 7.0;
const SLAB: f64 = 5.0;
const SLAB_REMOTE: f64 = 10.0;

/// CPU time that the recorder takes for an event.
pub const RECORDING: f64 = 25.0;
/// Share of the recorded CPU time that is the program's own whatever was estimated.
const LEAST_OWN: f64 = 0.3;

/// The run that a group is judged in.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The program's own CPU time.
    pub cpu_ns: Option<f64>,
    pub wall_ns: u64,
    /// When each thread was first and last seen.
    pub threads: Vec<(u64, u64)>,
    pub allocator_share: Option<f64>,
    pub peak_live_bytes: u64,
}

impl Setting {
    /// Threads besides the allocating one that were seen after a time; a thread that doesn't allocate isn't seen.
    pub fn threads_after(&self, time_ns: u64) -> u32 {
        let after = self.threads.iter().filter(|(_, last)| *last > time_ns).count() as u32;
        // One of them is, as a rule, the one that built.
        let builder = self.threads.first().is_some_and(|(_, last)| *last > time_ns);
        after - u32::from(builder)
    }
}

/// The program's own CPU time, from what it took under the recorder.
pub fn without_recorder(cpu_ns: u64, events: u64) -> u64 {
    let recorder = events as f64 * RECORDING;
    (cpu_ns as f64 - recorder).max(cpu_ns as f64 * LEAST_OWN) as u64
}

/// Nanoseconds that a group's blocks take with the C library's malloc.
pub fn glibc(b: &Behaviour) -> f64 {
    let size = b.bytes / b.count.max(1);
    let own = match size {
        MAPPED_SIZE.. => GLIBC_MAPPED,
        size if size > CACHED_SIZE => GLIBC_UNCACHED,
        _ if b.peak_live_objects > COLD => GLIBC_COLD,
        _ => GLIBC_CACHED,
    };
    let pair = own + (1.0 - b.same_thread_share) * (GLIBC_REMOTE - own).max(0.0);
    pairs(b) * pair
}

/// Allocations with their frees; one that is never freed costs its allocation only.
fn pairs(b: &Behaviour) -> f64 {
    b.count as f64 - b.never_freed as f64 * (1.0 - ALLOCATING)
}

fn ours(b: &Behaviour, allocator: Allocator) -> f64 {
    match allocator {
        Allocator::Arena | Allocator::Sealed => b.count as f64 * ARENA,
        Allocator::FreeList => pairs(b) * FREE_LIST,
        Allocator::Pool | Allocator::Reap => pairs(b) * POOL,
        Allocator::Slab => pairs(b) * (SLAB + (1.0 - b.same_thread_share) * (SLAB_REMOTE - SLAB)),
        // What the best of the others take, as a rule.
        Allocator::None => glibc(b) * 0.5,
    }
}

/// What an allocator may save.
pub fn gain(b: &Behaviour, allocator: Allocator, setting: &Setting) -> Option<Gain> {
    let cpu = setting.cpu_ns.filter(|&cpu| cpu > 0.0)?;
    let before = glibc(b);
    // Estimates may come to more than there is.
    let ceiling = (before / cpu).min(setting.allocator_share.unwrap_or(1.0)).min(1.0);
    let saved = 1.0 - (ours(b, allocator) / before.max(1.0)).min(1.0);
    Some(Gain { share: ceiling * saved, ceiling, measured: false, ceiling_measured: false })
}
