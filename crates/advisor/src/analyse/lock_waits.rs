//! Waits for locks, by the place in the program that waited.

use super::block_statistics::share;
use super::findings::LockSite;
use super::formatting;
use super::stack_pass::{LockWaits, StackPassResult};
use super::symbols::Symbols;
use std::cmp::Reverse;
use trace_format::{NodeId, Stacks};

/// The most places that are reported.
const MOST_LOCKS: usize = 100;
/// The most frames of a stack that are reported.
const LOCK_FRAMES: usize = 16;
/// The least share of the threads' time that is worth advice.
const LEAST: f64 = 0.01;

/// The places that waited, the longest total wait first.
pub fn lock_sites(
    stacks: &Stacks,
    symbols: &mut Symbols<'_>,
    end: &StackPassResult,
) -> Vec<LockSite> {
    let mut waits: Vec<_> = end.locks.iter().collect();
    waits.sort_by_key(|((node, kind), waits)| (Reverse(waits.waited_ns), *node, *kind));
    waits.truncate(MOST_LOCKS);
    let thread_ns: u64 = end.threads.iter().map(|(first, last)| last - first).sum();
    let site = |((node, kind), waits): (&(NodeId, &str), &LockWaits)| {
        // A thread's first event may be the end of a wait, so the share could be more than 1.
        let share = share(waits.waited_ns, thread_ns).map(|share| share.min(1.0));
        LockSite {
            frames: stacks
                .frames(*node)
                .take(LOCK_FRAMES)
                .flat_map(|node| symbols.at(stacks, node).to_vec())
                .collect(),
            kind: (*kind).to_owned(),
            waits: waits.waits,
            waited_ns: waits.waited_ns,
            longest_ns: waits.longest_ns,
            locks: waits.locks.len() as u32,
            share,
            advice: share.filter(|&share| share >= LEAST).map(|share| advice(kind, waits, share)),
        }
    };
    waits.into_iter().map(site).collect()
}

/// What to do about waits at one place.
fn advice(kind: &str, waits: &LockWaits, share: f64) -> String {
    let locks = waits.locks.len() as u64;
    let of = match (kind, locks) {
        ("mutex", 1) => "a mutex".to_owned(),
        ("mutex", _) => format!("{} mutexes", formatting::count(locks)),
        (_, 1) => "a read-write lock".to_owned(),
        _ => format!("{} read-write locks", formatting::count(locks)),
    };
    let remedy = match kind {
        "read" => {
            "Readers wait for a writer: publish a sealed value (`Published`), which they read without a lock, and let the writer publish the next one."
        }
        "write" => {
            "The writer waits for readers or other writers: publish whole values (`Published`) instead of changing one in place, or split the lock so that fewer threads share one."
        }
        _ if locks == 1 => {
            "Hold it for a shorter time (don't allocate, print or call the kernel under it), give each thread a part of its own and combine the parts at the end, or take it once for many things. If it protects an allocator, a pool or an arena for each thread needs no lock; if it protects data that all threads only read, seal it."
        }
        _ => {
            "Hold them for a shorter time (don't allocate, print or call the kernel under them), or let each thread work on a part of its own."
        }
    };
    format!(
        "{} waits for {of} took {} in all, the longest {}: {} of the time of all threads. {remedy}",
        formatting::count(waits.waits),
        formatting::time(waits.waited_ns),
        formatting::time(waits.longest_ns),
        formatting::percent(share)
    )
}
